"""A folder of pictures: split by class, any size, bad files named or skipped on request."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from dmlkit import training
from dmlkit.data import load, pictures
from tests.data.trees import classes, picture, truncate
from tests.training.tiny import interrupt_before, run

SMALL = {"crop": 16, "resize": 18}


@pytest.fixture
def root(tmp_path):
    return classes(tmp_path / "pictures", "ant bee cat dog eel fox")


def splits(root, **args):
    names = ("train", "val", "test") if args.get("validation") else ("train", "test")
    return {name: load("folder", name, root, **SMALL | args) for name in names}


def test_one_folder_is_one_class_and_classes_are_split(root):
    (root / ".git").mkdir()
    (root / "__MACOSX").mkdir()
    (root / "read me.txt").write_text("not a picture")
    (root / "ant" / "._0.png").write_bytes(b"what macOS leaves behind")
    (root / "ant" / "Thumbs.db").write_bytes(b"what Windows leaves behind")
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
    with pytest.raises(ValueError, match="the split is empty"):
        load("folder", "train", root, test_share=1.0, **SMALL)
    with pytest.raises(ValueError, match="test_share must be a number from 0 to 1, but is 2"):
        load("folder", "train", root, test_share=2)


def test_unreadable_files_are_an_error_that_lists_them(root):
    truncate(picture(root / "ant" / "x y.JPEG", 1))
    (root / "fox" / "3.png").write_bytes(b"")
    for split, name in (("train", r"x y\.JPEG"), ("test", r"3\.png")):
        with pytest.raises(ValueError, match=rf"1 picture is unreadable: .*{name}"):
            load("folder", split, root, **SMALL)
    taken = splits(root, check=False)  # on trust: found out when they are asked for
    assert sum(map(len, taken.values())) == 25
    with pytest.raises(ValueError, match="cannot be read"):
        [images.images[:] for images in taken.values()]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda root: (root / "gnu").mkdir(), "there are none in gnu"),
        (lambda root: picture(root / "train" / "ant" / "0.png", 0), "there are none in train"),
    ],
)
def test_a_class_without_pictures_is_refused(root, make, message):
    make(root)
    with pytest.raises(ValueError, match=f"one folder per class, with pictures.*{message}"):
        load("folder", "train", root)


def test_a_folder_that_is_none_or_holds_no_classes_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load("folder", "train", tmp_path / "nowhere")
    picture(tmp_path / "alone.png", 0)
    with pytest.raises(ValueError, match=r"there are none in it"):
        load("folder", "train", tmp_path)


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
    monkeypatch.setattr(pictures.joblib, "cpu_count", lambda: 1)
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
    assert list(found) == ["raw pixels", "untrained network"]
    images = load("folder", "train", root, **SMALL)
    small = images.images.thumbnails(4)
    assert small.shape == (12, 3, 4, 4)
    blocks = images.images[:].double().unflatten(3, (4, 4)).unflatten(2, (4, 4)).mean((3, 5))
    torch.testing.assert_close(small.double(), blocks / 255)
