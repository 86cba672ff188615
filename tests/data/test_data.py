"""ImageSet and load: what every data set has in common."""

import os

import numpy as np
import pytest
import torch

from dmlkit import data
from dmlkit.data import ImageSet, load
from tests.data import trees


def small(**changes) -> ImageSet:
    parts = {
        "images": torch.arange(3 * 16, dtype=torch.uint8).reshape(3, 1, 4, 4),
        "labels": np.array([1, 0, 1]),
        "groups": np.array(["x", "y", "x"]),
        "class_names": ("a", "b"),
        "attributes": {"weight": np.array(["bold", "bold", "regular"])},
    }
    return ImageSet(**parts | changes)


def test_an_image_set_is_indexed_and_counted():
    images = small()
    assert len(images) == 3
    assert images.num_classes == 2
    assert torch.equal(images[2], images.images[2])


@pytest.mark.parametrize("dtype", ["int32", "uint8", ">i8"])
def test_labels_of_any_integers_become_int64(dtype):
    images = small(labels=np.array([1, 0, 1], dtype))
    assert images.labels.dtype == np.int64
    assert images.fingerprint == small().fingerprint


def test_fingerprint_follows_pixels_and_labels_only():
    images = small()
    assert images.fingerprint == small(groups=np.array(["p", "q", "r"])).fingerprint
    changed = images.images.clone()
    changed[0, 0, 0, 0] += 1
    others = [
        small(images=changed),
        small(labels=np.array([0, 1, 1])),
        small(images=images.images.reshape(3, 1, 2, 8)),
    ]
    assert len({images.fingerprint, *(other.fingerprint for other in others)}) == 4


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"images": torch.empty(0, 1, 4, 4), "labels": np.empty(0, int), "groups": np.empty(0)},
            "the split is empty",
        ),
        ({"labels": np.array([0, 1])}, "one entry for each of 3 images.*'labels': 2"),
        ({"queries": np.array([True])}, "'queries': 1"),
        ({"attributes": {"slant": np.array(["upright"])}}, "'slant': 1"),
        ({"labels": np.array([0, 0, 0])}, r"each of 0\.\.1"),
        ({"labels": np.array([0, 1, 2])}, r"each of 0\.\.1"),
        ({"labels": [1, 0, 1]}, "labels must be a NumPy array of integers .*, but are list"),
        ({"labels": np.array([1.0, 0.0, 1.0])}, "but are float64"),
        ({"images": torch.full((3, 1, 4, 4), 255.0)}, r"float 0\.\.1, but are float from 255"),
        ({"images": torch.full((3, 1, 4, 4), -0.5)}, "float from -0.5 to -0.5"),
        ({"images": torch.full((3, 1, 4, 4), torch.nan)}, "float from nan to nan"),
        ({"images": torch.ones(3, 1, 4, 4).long()}, r"uint8 0\.\.255, .* but are torch.int64"),
        ({"images": torch.ones(3, 4, 4)}, r"\(N, C, H, W\), .* are Tensor of shape \(3, 4, 4\)"),
        ({"images": np.ones((3, 1, 4, 4))}, "but are ndarray of shape"),
        ({"images": [torch.ones(1, 4, 4)] * 3}, "but are list"),
    ],
)
def test_parts_that_do_not_fit_are_refused(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        small(**changes)


@pytest.mark.parametrize(
    "call, message",
    [
        (
            lambda: load("mnist"),
            "data must be one of glyphs, omniglot, cub, cars, sop, inshop, grocery, grocery64, "
            "folder, list, features, but is 'mnist'",
        ),
        (lambda: load("glyphs", "dev"), "split must be one of train, val, test, but is 'dev'"),
        (lambda: load("glyphs", size=3), "'glyphs' takes train_classes, .*seed, part; not size"),
        (lambda: load("cub", size=3), "'cub' takes validation, class_split, crop, .*; not size"),
    ],
)
def test_load_lists_what_exists(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_queries_are_compared_with_their_gallery():
    embeddings = np.arange(6.0).reshape(3, 2)
    everything = small().retrieval_sets(embeddings)
    assert list(everything) == ["embeddings", "labels"]
    assert everything["embeddings"] is embeddings
    parts = small(queries=np.array([False, True, False])).retrieval_sets(embeddings)
    assert parts["embeddings"].tolist() == [[2.0, 3.0]]
    assert parts["labels"].tolist() == [0]
    assert parts["gallery"].tolist() == [[0.0, 1.0], [4.0, 5.0]]
    assert parts["gallery_labels"].tolist() == [1, 1]


def test_load_looks_in_root_then_in_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_DATA", str(tmp_path / "environment"))
    with pytest.raises(FileNotFoundError, match="environment"):
        load("omniglot")
    with pytest.raises(FileNotFoundError, match="named"):
        load("omniglot", root=tmp_path / "named")
    monkeypatch.delenv("DMLKIT_DATA")
    monkeypatch.setattr(data, "ROOT", tmp_path / "project")
    with pytest.raises(FileNotFoundError, match=r"project.data"):
        load("omniglot")


def test_a_repeated_load_gives_the_same_object(monkeypatch, tmp_path):
    calls = []

    def loader(split, root, check=True, sizes=()):
        calls.append((split, root, check, sizes))
        return small()

    monkeypatch.setitem(data.LOADERS, "toy", loader)
    first = load("toy", root=tmp_path, sizes=[1, 2])
    assert load("toy", "train", root=str(tmp_path), sizes=[1, 2]) is first
    assert load("toy", "test", root=tmp_path, sizes=[1, 2]) is not first
    assert load("toy", root=tmp_path, sizes=[2, 1]) is not first
    assert calls[0] == ("train", tmp_path, True, (1, 2))
    assert len(calls) == 3


@pytest.mark.parametrize(
    "name, file", [("omniglot", "images_background_small2.zip"), ("cub", "images.txt")]
)
def test_a_file_that_has_changed_is_read_again(name, file, tmp_path):
    getattr(trees, name)(tmp_path)
    first = load(name, "test", tmp_path, check=False)
    assert load(name, "test", tmp_path, check=False) is first
    os.utime(tmp_path / file, ns=(1, 1))
    assert load(name, "test", tmp_path, check=False) is not first
