"""Features that were computed elsewhere become images of one pixel."""

import numpy as np
import pytest

from dmlkit.data import load

X = np.random.default_rng(0).normal(size=(12, 5))
NAMES = np.repeat(["ant", "bee", "cat", "dog"], 3)


def written(folder, **arrays):
    path = folder / "mine.npz"
    np.savez(path, **{"features": X, "labels": NAMES} | arrays)
    return path


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", ">f4"])
def test_features_are_split_by_class(tmp_path, dtype):
    x = X.astype(dtype)
    path = written(tmp_path, features=x)
    train, test = (load("features", split, path) for split in ("train", "test"))
    assert {*train.class_names, *test.class_names} == set(NAMES)
    for images in (train, test):
        assert images.images.shape == (6, 5, 1, 1)
        rows = np.flatnonzero(np.isin(NAMES, images.class_names))
        np.testing.assert_array_equal(images.images[:, :, 0, 0], x[rows].astype(np.float32))
    assert load("features", "val", path, validation=True).num_classes == 1


def test_splits_visits_and_paths(tmp_path):
    parts = np.repeat(["Train", "train", "validation", "validation"], 3)
    paths = np.array([f"{i}.jpg" for i in range(12)])
    more = {"visits": np.arange(12) % 3, "labels": np.repeat([7, 3, 10, 9], 3), "paths": paths}
    path = written(tmp_path, split=parts, **more)
    test = load("features", "test", path)
    assert test.class_names == ("10", "9")
    assert test.queries.tolist() == [False, False, True] * 2
    assert test.attributes["path"].tolist() == paths[6:].tolist()
    assert load("features", "train", path).queries is None


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"features": X[:, 0]}, r"features must be floats \(N, F\), but are float64 \(12,\)"),
        ({"features": X.astype(int)}, "but are int64"),
        ({"features": X[:, :0]}, r"but are float64 \(12, 0\)"),
        ({"labels": NAMES[:, None]}, r"one entry for each of 12 features: {'labels': \(12, 1\)}"),
        ({"features": X * 1e25}, "12 of 12 features are not finite, or too large for float32"),
        ({"labels": np.full(12, np.nan)}, r"texts or whole numbers \(N,\), but are float64"),
        ({"labels": NAMES[:5]}, r"one entry for each of 12 features: {'labels': \(5,\)}"),
        ({"labels": NAMES.astype(object)}, "no .npz of plain arrays .*dtype=str"),
        ({"split": np.repeat("dev", 12)}, "split must be of train, .* not {'dev'}"),
        ({"features": np.where(X[3, 1] == X, np.nan, X)}, "1 of 12 features are not .* row 3"),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=message):
        load("features", "train", written(tmp_path, **arrays))


def test_other_files_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", features=X)
    (tmp_path / "y.npz").write_text("features")
    np.save(tmp_path / "x.npy", X)
    for name, message in (
        *(("x.npz", "without labels"), ("y.npz", "no .npz"), ("", "is a folder")),
        ("x.npy", "no .npz of plain arrays .File is not a zip file"),
    ):
        with pytest.raises(ValueError, match=message):
            load("features", "train", tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load("features", "train", tmp_path / "z.npz")


def test_what_is_not_as_it_seems_is_told(tmp_path):
    names = np.repeat(["Ant", "ant ", "A\u0308", "\u00c4"], 3)
    path = written(tmp_path, labels=names, splits=names)
    with (
        pytest.warns(UserWarning, match=r"arrays of .* that are not used: 1 \(splits\)"),
        pytest.warns(UserWarning, match=r"hyphens alone: 1 \(Ant and ant \); join=True"),
    ):
        train = load("features", "train", path, test_share=0)
    assert train.class_names == ("Ant", "ant ", "\u00c4")
    joined = load("features", "train", path, test_share=0, join=True)  # the rest is said
    assert joined.class_names == ("Ant", "\u00c4")
