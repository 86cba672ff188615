"""Groceries: a small archive of their layout, and the published one where it is."""

import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dmlkit import data, diagnosis, search, training
from dmlkit.data import features, grocery
from tests.data import trees

PUBLISHED = Path(os.environ.get("DMLKIT_DATA", "")) / "grocery"
needs_photographs = pytest.mark.skipif(
    not PUBLISHED.is_dir(), reason="$DMLKIT_DATA names no folder with photographs of groceries"
)
SMALL = {"crop": 16, "resize": 18}
SEEN, UNSEEN = grocery.FOLDS[1][:4].tolist(), grocery.FOLDS[0][:2].tolist()


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Where an archive lies that counts as the published one; the cache is another folder."""
    archive = trees.grocery(tmp_path / "grocery", SEEN + UNSEEN)
    with zipfile.ZipFile(archive) as file:
        file.extractall(tmp_path / "git")
    for command in ("git init -q", "git add .", "git write-tree --prefix=X/dataset/"):
        command = command.replace("X", grocery.NAME).split()
        done = subprocess.run(command, cwd=tmp_path / "git", capture_output=True, check=True)
    monkeypatch.setattr(grocery, "TREE", done.stdout.decode().strip())
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def load(root, split="test", **args):
    return data.load("grocery", split, root, **SMALL | args)


def test_the_fold_s_classes_are_searched_for_in_photographs_of_another_visit(root):
    train, test = load(root, "train"), load(root)
    names = [{f"Class-{c}" for c in classes} for classes in (SEEN, UNSEEN)]
    assert [set(images.class_names) for images in (train, test)] == names
    assert train.queries is None
    assert list(test.queries) == [each == "test" for each in test.attributes["list"]]
    assert set(test.attributes["list"]) == {"train", "val", "test"}
    for images in (train, test):
        named = [images.class_names[label].replace("Class", "Coarse") for label in images.labels]
        assert named == list(images.groups)
    assert tuple(test[0].shape) == (3, 16, 16)
    everything = load(root, fold=None)
    assert len(everything) == len(train) + len(test) == 24


def test_other_galleries_and_validation(root):
    everywhere, catalog = load(root, gallery="all"), load(root, gallery="catalog")
    assert everywhere.queries is None
    assert (catalog.queries.sum(), (~catalog.queries).sum(), catalog.num_classes) == (4, 81, 81)
    found = {catalog.class_names[label] for label in catalog.labels[catalog.queries]}
    assert found == {f"Class-{c}" for c in UNSEEN}
    parts = [load(root, split, validation=True) for split in ("train", "val")]
    assert [images.num_classes for images in parts] == [2, 2]
    assert parts[1].queries.sum() == 4
    with pytest.raises(ValueError, match="gallery must be one of visit, all, catalog"):
        load(root, gallery="shop")


def test_a_search_sees_them_as_training_does(root):
    test = load(root)
    experiment = training.Experiment(data="grocery", data_args=SMALL)
    run = SimpleNamespace(experiment=experiment, image_shape=tuple(test[0].shape))
    assert torch.equal(search.as_seen(run, test.images.paths)[:], test.images[:])


def test_what_is_not_as_published_is_refused(root, monkeypatch):
    folder = grocery.located(root)
    (folder / ".DS_Store").write_text("what macOS leaves behind")
    grocery._checked.cache_clear()
    assert grocery.located(root) == folder
    trees.picture(folder / "test" / "more.jpg", 1)
    grocery._checked.cache_clear()
    with pytest.raises(ValueError, match=r"expected 5695 files of Git's hash .*, found"):
        grocery.located(root)
    shutil.rmtree(root / "cache")
    archive = trees.truncate(root / "grocery" / grocery.ARCHIVE.name)
    with pytest.raises(ValueError, match=r"is damaged .*: delete it, to have it fetched"):
        grocery.located(root)
    archive.unlink()

    def no_network(*args, **others):
        raise OSError("no network")

    monkeypatch.setattr("torchvision.datasets.utils.download_url", no_network)
    with pytest.raises(OSError, match=r"cannot fetch https://.*\.zip \(no network\): .* or place"):
        grocery.located(root)
    assert not list((root / "cache" / "grocery").glob("Gro*"))


def test_kept_features_are_those_of_the_photographs(root, monkeypatch):
    listing = grocery.listed(grocery.located(root))
    x = np.random.default_rng(0).normal(size=(len(listing.ids), 5)).astype(np.float32)
    features.write(root / "cache" / "features" / "grocery_net@16.npz", listing, x)
    found = data.load("grocery", "test", root / "nowhere", features="net@16")
    pictures = load(root)
    assert found.images.shape == (len(pictures), 5, 1, 1)
    for part in ("labels", "groups", "queries", "class_names"):
        np.testing.assert_array_equal(getattr(found, part), getattr(pictures, part))
    names = ["/".join(path.parts[-3:]) for path in pictures.images.paths]
    rows = [list(listing.paths).index(name) for name in names]
    largest = np.abs(x[rows]).max(axis=1, keepdims=True)
    assert (np.abs(found.images.flatten(1).numpy() - x[rows]) <= largest / 126 + 1e-6).all()
    with pytest.raises(
        FileNotFoundError, match=r"no features 'net@8' of grocery: there are .*net@16"
    ):
        data.load("grocery", "test", root, features="net@8")
    with pytest.raises(ValueError, match="they go without crop"):
        data.load("grocery", "test", root, features="net@16", crop=8)


@needs_photographs
def test_the_published_photographs(monkeypatch):
    """Counts of the authors' lists; all bytes are compared by Git's hash."""
    splits = [[data.load("grocery", s, fold=k) for s in ("train", "test")] for k in range(4)]
    assert [test.num_classes for _, test in splits] == [21, 20, 20, 20]
    assert {len(train) + len(test) for train, test in splits} == {5421}
    whole = data.load("grocery", "test", fold=None)
    lists = np.unique(whole.attributes["list"], return_counts=True)
    assert dict(zip(*lists, strict=True)) == {"test": 2485, "train": 2640, "val": 296}
    assert len(set(whole.groups)) == 43
    assert tuple(whole[0].shape) == (3, 224, 224)


def test_committed_features_find_near_copies_and_classes_of_another_visit():
    """Against all cosines; Recall@1 as data/features/README.md says it."""
    whole = data.load("grocery", "test", fold=None, features="tf_efficientnet_lite0@224")
    x = torch.nn.functional.normalize(whole.images.flatten(1)).numpy()
    queries, gallery = np.flatnonzero(whole.queries), np.flatnonzero(~whole.queries)
    cosines = x[queries] @ x[gallery].T
    near = cosines.argmax(axis=1)
    same = cosines.max(axis=1) >= 0.95
    expected = np.stack([queries, gallery[near]], axis=1)[same]
    assert len(expected) == 4
    np.testing.assert_array_equal(diagnosis.near_copies(whole), expected)
    hits = whole.labels[gallery[near]] == whole.labels[queries]
    assert 100 * hits.mean() == pytest.approx(62.3, abs=0.1)
