"""Omniglot: small archives in its layout, and the published ones where they are."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

import dmlkit
from dmlkit.data import benchmarks, load, omniglot
from tests.data import trees

#: Where the project itself holds the two small archives.
OURS = dmlkit.ROOT / "data"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return trees.omniglot(tmp_path)


def test_train_takes_one_archive_and_test_what_the_other_has_alone(root):
    train = load("omniglot", "train", root, check=False)
    test = load("omniglot", "test", root, check=False)
    assert (len(train), train.num_classes, set(train.groups)) == (16, 8, {"Greek", "Korean"})
    assert (len(test), test.num_classes, set(test.groups)) == (12, 6, {"Sanskrit", "Tagalog"})
    assert test.class_names[0] == "Sanskrit/character01"
    assert [test.class_names[label].split("/")[0] for label in test.labels] == list(test.groups)
    assert list(test.attributes["drawer"]) == [1, 2] * 6


def test_the_other_direction(root):
    train = load("omniglot", "train", root, check=False, train_on="small2")
    test = load("omniglot", "test", root, check=False, train_on="small2")
    assert set(train.groups) == {"Greek", "Sanskrit", "Tagalog"}
    assert set(test.groups) == {"Korean"}


def test_a_class_split_draws_three_quarters_to_train_on_and_half_to_test_on(root):
    def drawn(split, number):
        return load("omniglot", split, root, check=False, class_split=number).class_names

    for split, count in (("train", 6), ("test", 3)):  # of 8 and of 6
        whole = load("omniglot", split, root, check=False).class_names
        found = {drawn(split, number) for number in range(6)}
        assert {len(names) for names in found} == {count}
        assert len(found) > 1
        assert all(names == tuple(n for n in whole if n in names) for names in found)
    with pytest.raises(ValueError, match="class_split goes with validation=False"):
        load("omniglot", "train", root, check=False, validation=True, class_split=0)


def test_the_full_set(root):
    trees.archive(root, "background", {"Greek": 3, "Korean": 5}, seed=0)
    trees.archive(root, "evaluation", {"Tibetan": 4, "Atlantean": 2}, seed=200)
    train, test = (
        load("omniglot", split, root, check=False, train_on="background")
        for split in ("train", "test")
    )
    assert set(train.groups) == {"Greek", "Korean"}
    assert set(test.groups) == {"Tibetan", "Atlantean"}
    with pytest.raises(ValueError, match="expected 68d2efa1b9178cc56df9314c21c6e718"):
        load("omniglot", "train", root, train_on="background")


def test_get_fetches_the_archives_that_are_not_there(root, monkeypatch):
    (root / "images_background_small2.zip").unlink()
    asked = []
    monkeypatch.setattr(omniglot, "fetch", lambda file, folder: asked.append((file.name, folder)))
    benchmarks.get("omniglot", root)
    assert asked[:2] == [  # what lies in the root stays there
        ("images_background_small1.zip", root),
        ("images_background_small2.zip", root / "omniglot"),
    ]


def test_archives_may_lie_in_a_folder_of_their_own(root):
    (root / "omniglot").mkdir()
    for path in root.glob("*.zip"):
        path.rename(root / "omniglot" / path.name)
    assert len(load("omniglot", "train", root, check=False)) == 16


def test_validation_divides_the_training_characters(root):
    whole = load("omniglot", "train", root, check=False)
    train = load("omniglot", "train", root, check=False, validation=True)
    val = load("omniglot", "val", root, check=False, validation=True)
    assert (train.num_classes, val.num_classes) == (6, 2)
    assert sorted(train.class_names + val.class_names) == sorted(whole.class_names)
    with pytest.raises(ValueError, match="val split only with validation=True"):
        load("omniglot", "val", root, check=False)


def test_ink_is_high_and_its_amount_is_kept(root):
    images = load("omniglot", "train", root, check=False).images
    assert images.shape == (16, 1, 32, 32)
    assert (images.amax(dim=(1, 2, 3)) == 255).all()
    share = images.double().mean(dim=(1, 2, 3)) / 255
    # Averaging over boxes keeps the mean, but for boxes being whole pixels: at most 1 of 21 a side.
    np.testing.assert_allclose(share, 21**2 / 105**2, rtol=2 / 21)
    larger = load("omniglot", "train", root, check=False, size=105).images
    assert set(np.unique(larger)) == {0, 255}


@pytest.mark.parametrize(
    "args, message",
    [
        ({"train_on": "small3"}, "must be one of small1, small2, background, but is 'small3'"),
        ({"size": 0}, "size must be a whole number from 1, but is 0"),
    ],
)
def test_bad_arguments_are_named(root, args, message):
    with pytest.raises(ValueError, match=message):
        load("omniglot", "test", root, check=False, **args)


def test_a_missing_archive_says_where_it_belongs_and_comes_from(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"small1\.zip in .*data get omniglot.*brendenlake"):
        load("omniglot", root=tmp_path)


def test_a_foreign_archive_is_refused(root):
    with pytest.raises(ValueError, match=r"MD5 is .*, expected e704a628b5459e08445c13499850abc4"):
        load("omniglot", root=root)


def test_a_damaged_archive_is_refused(root):
    path = root / "images_background_small1.zip"
    content = bytearray(path.read_bytes())
    start = content.index(b"IDAT") + 8  # inside the pixels of the first drawing
    content[start] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(zipfile.BadZipFile, match="CRC-32"):
        load("omniglot", root=root, check=False)


@pytest.mark.parametrize(
    "train_on, train, test, unseen",
    [
        ("small1", (136, 2720), (106, 2120), {"Japanese_(katakana)", "Sanskrit", "Tagalog"}),
        ("small2", (156, 3120), (86, 1720), {"Balinese", "Early_Aramaic", "Korean"}),
    ],
)
def test_published_counts(train_on, train, test, unseen):
    trained = load("omniglot", "train", OURS, train_on=train_on)
    tested = load("omniglot", "test", OURS, train_on=train_on)
    assert (trained.num_classes, len(trained)) == train
    assert (tested.num_classes, len(tested)) == test
    assert set(tested.groups) == unseen
    assert {"Greek", "Latin"} <= set(trained.groups)
    for images in (trained, tested):
        assert (np.bincount(images.labels) == 20).all()
        np.testing.assert_array_equal(images.attributes["drawer"].reshape(-1, 20)[0], range(1, 21))


@pytest.mark.parametrize("train_on", ["small1", "small2"])
def test_no_published_drawing_is_both_trained_and_tested_on(train_on):
    """Both archives hold the same drawings of Greek and Latin."""
    train, test = (
        {
            image.numpy().tobytes()
            for image in load("omniglot", split, OURS, train_on=train_on).images
        }
        for split in ("train", "test")
    )
    assert len(train & test) <= 1  # two people may draw the same by chance
