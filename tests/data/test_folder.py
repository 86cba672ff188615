"""A folder of pictures: split by class, any size, bad files named or skipped on request."""

import csv
import dataclasses
import os
import re
import shutil
import unicodedata

import numpy as np
import pandas as pd
import pytest
import torch
from torchvision.datasets import ImageFolder

from dmlkit import training
from dmlkit.data import folder, load, pictures
from tests.data.trees import classes, picture, truncate
from tests.training.tiny import interrupt_before, run

SMALL = {"crop": 16, "resize": 18}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))  # where unreadable files are listed
    return classes(tmp_path / "pictures", "ant bee cat dog eel fox")


def splits(root, **args):
    names = ("train", "val", "test") if args.get("validation") else ("train", "test")
    return {name: load("folder", name, root, **SMALL | args) for name in names}


def test_one_folder_is_one_class_and_classes_are_split(root, monkeypatch):
    monkeypatch.setattr(folder, "suffixes", lambda: (".png",))  # without the extra for HEIC
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "read me.txt").write_text("not a picture")
    (root / "ant" / "._0.png").write_bytes(b"what macOS leaves behind")
    (root / "ant" / "Thumbs.db").write_bytes(b"what Windows leaves behind")
    (root / "ant" / "IMG_1.HEIC").write_bytes(b"what telephones leave behind")
    told = r"not used: 3 of 27 \(1 .db, 1 .heic, 1 .txt\); of HEIC: pip install"
    with pytest.warns(UserWarning, match=told):
        found = splits(root)
    names = [set(images.class_names) for images in found.values()]
    assert [len(one) for one in names] == [3, 3]
    assert names[0] | names[1] == {"ant", "bee", "cat", "dog", "eel", "fox"}
    for images in found.values():
        assert len(images) == 12
        assert images[0].shape == (3, 16, 16)
        assert [images.class_names[label] for label in images.labels] == list(images.groups)
        assert [path.parent.name for path in images.images.paths] == list(images.groups)


def test_class_split_shares_and_validation(root):
    def names(**args):
        return {name: images.class_names for name, images in splits(root, **args).items()}

    assert len({names(class_split=k)["test"] for k in range(8)}) > 3
    shared = names(test_share=1 / 3, validation=True, class_split=2)
    assert [len(shared[name]) for name in ("train", "val", "test")] == [2, 2, 2]
    assert len(set().union(*shared.values())) == 6
    assert shared["test"] == names(test_share=1 / 3, class_split=2)["test"]
    with pytest.raises(ValueError, match="val split only with validation=True"):
        load("folder", "val", root, **SMALL)
    with pytest.raises(
        ValueError, match=r"'train' is empty: .* of 6 \(ant, .*\) in .* 0 can train"
    ):
        load("folder", "train", root, test_share=1.0, **SMALL)
    with pytest.raises(ValueError, match="test_share must be a number from 0 to 1, but is 2"):
        load("folder", "train", root, test_share=2)


def test_unreadable_files_are_an_error_that_lists_them(root):
    truncate(picture(root / "ant" / "x y.JPEG", 1))
    (root / "fox" / "3.png").write_bytes(b"")
    for split in ("train", "test"):
        told = (
            r"2 of 25 pictures are unreadable: .*x y\.JPEG.*3\.png.* All are in (.*\.csv); .*skip"
        )
        with pytest.raises(ValueError, match=told) as refused:
            load("folder", split, root, **SMALL)
    with open(re.search(told, str(refused.value))[1], newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["path", "reason"]
    assert [path for path, _ in rows] == [str(root / "ant/x y.JPEG"), str(root / "fox/3.png")]
    with pytest.warns(UserWarning, match="2 of 25 .* left out"):
        left = splits(root, unreadable="skip")
    assert sum(map(len, left.values())) == 23
    with pytest.raises(ValueError, match="unreadable must be one of refuse, skip"):
        splits(root, unreadable="drop")
    taken = splits(root, check=False)  # on trust: found out when they are asked for
    assert sum(map(len, taken.values())) == 25
    with pytest.raises(ValueError, match="cannot be read"):
        [images.images[:] for images in taken.values()]


@pytest.mark.filterwarnings("ignore:files in:UserWarning", "ignore:identical files:UserWarning")
def test_pictures_are_those_of_image_folder_but_for_what_is_hidden(tmp_path):
    root, known = classes(tmp_path / "pictures", "ant bee"), pictures.suffixes()
    (root / "elk").symlink_to(classes(tmp_path / "elsewhere", "elk") / "elk")
    for suffix in {".jfif", ".jp2", ".avif"} & set(known):
        picture(root / "bee" / "left" / "old" / f"0{suffix}", 1)
    for hidden in ("ant/._0.png", ".cache/thumb.jpg", "bee/.left/0.png", "__MACOSX/ant/0.png"):
        (root / hidden).parent.mkdir(parents=True, exist_ok=True)
        (root / hidden).write_bytes(b"what systems leave behind")
    (root / "bee" / "note.xyz").write_bytes(b"no picture")

    def is_valid(path):
        return path.endswith(known) and "/." not in path and "__MACOSX" not in path

    reference = ImageFolder(root, is_valid_file=is_valid, allow_empty=True)
    expected = [(path, reference.classes[label]) for path, label in reference.samples]
    for around in (root / "bee" / "round", tmp_path / "elsewhere" / "elk" / "round"):
        around.symlink_to(root)  # which torchvision would follow 40 times
    found = folder.listing(root)
    assert sorted(zip(map(str, found.paths), found.names, strict=True)) == sorted(expected)
    images = splits(root)
    assert sum(map(len, images.values())) == len(expected)


@pytest.mark.filterwarnings("ignore:identical files:UserWarning")
def test_what_changes_in_a_folder_is_seen_and_trained_on(root, tmp_path):
    asked, found = experiment(root, monitor=()), []
    for change in (None, "ant/9.png", "bee/0.png", "ant/9.png", "gnu/0.png"):
        if change == "ant/9.png" and (root / change).exists():
            (root / change).unlink()
        elif change:
            picture(root / change, 999)
        found.append((sum(map(len, splits(root).values())), run(asked, tmp_path / "runs").path))
        assert splits(root)["test"] is splits(root)["test"]
    counts, paths = zip(*found, strict=True)
    assert counts == (24, 25, 25, 24, 25)
    assert len(set(paths)) == 5


@pytest.mark.filterwarnings("ignore:identical files:UserWarning")
def test_train_and_test_folders_of_ones_own(tmp_path):
    root = tmp_path / "pictures"
    classes(root / "train", "ant bee cat dog")
    classes(root / "test", "eel fox", each=3)
    (root / "train" / "gnu").mkdir()
    with pytest.warns(UserWarning, match=r"without pictures .* not used: 1 \(gnu\)"):
        found = splits(root)
    assert found["train"].class_names == ("ant", "bee", "cat", "dog")
    assert found["test"].class_names == ("eel", "fox")
    assert [len(images) for images in found.values()] == [16, 6]
    (root / "train" / "gnu").rmdir()
    halves = splits(root, validation=True)
    assert halves["train"].num_classes == halves["val"].num_classes == 2
    classes(root / "val", "hen")
    found = splits(root, validation=True)
    assert [images.num_classes for images in found.values()] == [4, 1, 2]
    assert run(experiment(root, split="val"), tmp_path / "runs").embeddings.shape == (4, 8)
    classes(root / "test", "ant")
    with pytest.warns(UserWarning, match=r"1 \(ant\) in .* both train and test"):
        assert splits(root)["test"].class_names == ("ant", "eel", "fox")
    shutil.rmtree(root / "test")
    assert splits(root)["test"].class_names == ("hen",)  # as val alone tests
    for before, after in (("train", "Train"), ("val", "VALID")):
        (root / before).rename(root / after)
    assert splits(root)["test"].class_names == ("hen",)


@pytest.mark.filterwarnings("ignore:identical files:UserWarning")
@pytest.mark.filterwarnings("ignore:1 .ant. in .* both train and test:UserWarning")
def test_a_share_of_0_trains_on_all_whatever_the_folders_say(root, tmp_path_factory):
    own = tmp_path_factory.mktemp("own")
    every = load("folder", "train", root, test_share=0)
    assert every.class_names == folder.listing(root).image_set().class_names
    classes(own / "train", "ant bee")
    classes(own / "test", "ant cat", each=3, side=30)
    every = load("folder", "train", own, test_share=0)
    assert every.class_names == ("ant", "bee", "cat")
    assert np.bincount(every.labels).tolist() == [7, 4, 3]
    with pytest.raises(ValueError, match="the split 'test' is empty"):
        load("folder", "test", own, test_share=0)


@pytest.mark.filterwarnings("ignore:identical files:UserWarning")
def test_one_class_or_folders_of_classes_by_other_names_are_told(tmp_path):
    with pytest.raises(
        ValueError, match=r"'test' is empty: .* of 1 \(ant\) .* 1 can train .* 0 test"
    ):
        load("folder", "test", classes(tmp_path / "one", "ant"))
    for name in ("training", "testing"):
        classes(tmp_path / "two" / name, "ant bee")
    with pytest.warns(UserWarning, match=r"2 \(testing, training\): all .* in folders below"):
        load("folder", "test", tmp_path / "two")


def test_a_folder_that_is_none_or_holds_no_classes_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load("folder", "train", tmp_path / "nowhere")
    picture(tmp_path / "alone.png", 0)
    with pytest.raises(ValueError, match=r"there are none in it"):
        load("folder", "train", tmp_path)
    (tmp_path / "gnu").mkdir()
    with pytest.raises(ValueError, match=r"one folder per class.* there are none in gnu"):
        load("folder", "train", tmp_path)


def test_names_of_one_form_are_one_class_and_others_that_look_alike_are_told(root):
    root_names = {path.name for path in root.iterdir()}
    for form in ("NFC", "NFD"):
        picture(root / unicodedata.normalize(form, "Äpfel") / f"{form}.png", 1 + len(form))
    picture(root / os.fsdecode(b"na\xefve") / "0.png", 7)
    for name in ("Dog", " d og"):
        picture(root / name / "0.png", len(name))
    with pytest.warns(UserWarning, match=r"hyphens alone: 1 \( d og and Dog and dog\); join=True"):
        found = folder.listing(root)
    assert set(found.names) == {*root_names, "Dog", " d og", "Äpfel", r"na\xefve"}
    assert sum(found.names == "Äpfel") == 2
    assert sum(folder.listing(root, join=True).names == " d og") == 6


def test_identical_files_in_two_classes_and_parts_are_counted_and_named(tmp_path):
    root = classes(tmp_path / "pictures", "ant bee")
    shutil.copy(root / "ant" / "1.png", root / "bee" / "same.png")
    (root / "bee" / "linked.png").symlink_to(root / "ant" / "2.png")
    told = (
        r"identical files in .*: 2 in two classes, 2 on both sides of a split: 2 \(ant.*1.png = bee"
    )
    with pytest.warns(UserWarning, match=told):
        load("folder", "test", root, **SMALL)
    for part, start in (("train", 0), ("test", 900)):
        for i in range(3):
            picture(tmp_path / "parts" / part / "ant" / f"{i}.png", start + i)
    picture(tmp_path / "parts" / "test" / "ant" / "again.png", 1)
    with (
        pytest.warns(UserWarning, match=r"0 in two classes, 1 on both .*: 1 \(train.ant.1.png = "),
        pytest.warns(UserWarning, match=r"both train and test"),
    ):
        load("folder", "test", tmp_path / "parts", **SMALL)


def test_links_long_names_and_other_bytes_are_read_or_named(root):
    (root / "ant" / "round").symlink_to(root)
    (root / "ant" / "self.png").symlink_to("self.png")
    (root / "ant" / "gone.png").symlink_to("nowhere.png")
    picture(root / ("b" * 255) / "c" / "d" / f"{'e' * 251}.png", 7)
    shutil.copy(root / "ant" / "0.png", os.fsencode(root) + b"/eel/\xff.png")
    told = r"2 of 28 .*gone.png.*self.png"
    with (
        pytest.warns(UserWarning, match=told),
        pytest.warns(UserWarning, match=r"1 in two classes.* = eel.*\.png"),
    ):
        found = splits(root, unreadable="skip")
    assert sum(map(len, found.values())) == 26
    assert "b" * 255 in found["train"].class_names + found["test"].class_names
    for images in found.values():
        assert images.fingerprint


def test_a_picture_that_vanishes_or_breaks_after_it_was_checked_is_named(root, tmp_path):
    images = load("folder", "train", root, **SMALL)
    path = images.images.paths[3]
    truncate(path)
    with pytest.raises(ValueError, match=f"{path} cannot be read"):
        images.images[:]
    path.unlink()
    assert len(load("folder", "train", root, **SMALL)) == 11


@pytest.mark.skipif(os.geteuid() == 0, reason="a superuser may read every folder")
def test_a_folder_that_may_not_be_read_holds_nothing(root):
    (root / "lost+found").mkdir(mode=0)
    with pytest.warns(UserWarning, match=r"without pictures .*lost\+found"):
        assert len(set(folder.listing(root).names)) == 6


def experiment(root, **changes):
    fields = {
        "data": "folder",
        "data_args": {"root": str(root), **SMALL},
        "sampler_args": {"classes": 3, "per_class": 2},
        "model_args": {"widths": [4, 8]},
        "dim": 8,
        "steps": 2,
        "monitor": ["train"],
    }
    return training.Experiment(**fields | changes)


@pytest.mark.parametrize("augment", [False, True])
def test_a_run_from_a_folder_is_the_same_every_time(root, tmp_path, monkeypatch, augment):
    asked = experiment(root, augment=augment)
    first = run(asked, tmp_path / "a")
    monkeypatch.setattr(pictures.joblib, "cpu_count", lambda: 7)
    second = run(asked, tmp_path / "b")
    assert first.embeddings.shape == (12, 8)
    assert first.history["train_recall_at_1"].notna().sum() == 1
    np.testing.assert_array_equal(first.embeddings, second.embeddings)
    pd.testing.assert_frame_equal(first.history, second.history)
    assert run(asked, tmp_path / "a").loaded


def test_a_run_is_named_by_its_pictures_wherever_they_lie(root, tmp_path, monkeypatch):
    asked, found = experiment(root, data_args=SMALL), []
    for place in ("first", "moved", "changed"):
        shutil.copytree(root, tmp_path / place)
        if place == "changed":
            picture(tmp_path / place / "ant" / "0.png", 999)
        monkeypatch.setenv("DMLKIT_DATA", str(tmp_path / place))
        found.append(run(asked, tmp_path / "runs"))
    first, moved, changed = found
    assert [each.loaded for each in found] == [False, True, False]
    assert first.path == moved.path != changed.path


def test_a_batch_of_more_classes_than_the_folder_has_names_the_option(root, tmp_path):
    asked = experiment(root, sampler_args={"classes": 4, "per_class": 2})
    with pytest.raises(ValueError, match=r"4 classes .* hold 3: .*the sampler's classes"):
        run(asked, tmp_path)


def test_an_interrupted_run_goes_on_with_the_same_crops(root, tmp_path, monkeypatch):
    asked = experiment(root, steps=5, monitor=())
    unbroken = run(asked, tmp_path / "a")
    with monkeypatch.context() as patch:
        interrupt_before(patch, step=3)
        with pytest.raises(KeyboardInterrupt):
            run(asked, tmp_path / "b")
    np.testing.assert_array_equal(run(asked, tmp_path / "b").embeddings, unbroken.embeddings)


def test_pictures_train_like_the_tensor_they_would_be(root):
    """With nothing left to chance, files and memory give the same numbers, bit for bit."""
    args = {"crop": 16, "resize": 16, "flip": False}
    files = load("folder", "train", root, **args)
    memory = dataclasses.replace(files, images=files.images[:])
    losses = []
    for images in (files, memory):
        asked = experiment(root, steps=4)
        model = training.build_model(asked, images)
        objective = training.build_objective(asked, images)
        history = training.fit(model, objective, images, asked, device="cpu", progress=False)
        losses.append(list(history["loss"]))
        losses.append(training.embed(model, images).tolist())
    assert losses[:2] == losses[2:]


def test_baselines_compare_small_pixels(root):
    found = training.baselines(experiment(root, split="train"))
    assert list(found) == ["raw pixels", "color histogram", "untrained network"]
    images = load("folder", "train", root, **SMALL)
    small = images.images.thumbnails(4)
    assert small.shape == (12, 3, 4, 4)
    blocks = images.images[:].double().unflatten(3, (4, 4)).unflatten(2, (4, 4)).mean((3, 5))
    torch.testing.assert_close(small.double(), blocks / 255)
