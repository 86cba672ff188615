"""Groceries at 64 pixels: the file in the package, beside what is known of the archive."""

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from dmlkit import data, recipes, retrieval, training
from dmlkit.data import features, grocery, grocery64
from dmlkit.data.pictures import Pictures

PUBLISHED = Path(os.environ.get("DMLKIT_DATA", "")) / "grocery"


def load(split="test", **args):
    return data.load("grocery64", split, **args)


@pytest.mark.parametrize(
    "args",
    [
        {"fold": 0},
        {"split": "train", "fold": 1},
        {"split": "val", "fold": 2, "validation": True, "class_split": 3},
        {"split": "train", "fold": 2, "validation": True, "class_split": 3},
        {"fold": None, "gallery": "all"},
    ],
    ids=str,
)
def test_it_is_split_as_the_archive(args):
    """By the list of all photographs that was kept with their features."""
    args = {"split": "test"} | args
    small, kept = load(**args), data.load("grocery", features="tf_efficientnet_lite0@128", **args)
    for part in ("labels", "groups", "class_names", "queries"):
        np.testing.assert_array_equal(getattr(small, part), getattr(kept, part))
    np.testing.assert_array_equal(small.attributes["list"], kept.attributes["list"])
    assert small.images.shape == (len(kept), 3, 64, 64)
    assert small.images.dtype == torch.uint8


def test_a_smaller_side_is_the_mean_of_four_pixels_and_gray_one_channel():
    large, small, gray = (load(**args).images[::50] for args in ({}, {"side": 32}, {"gray": True}))
    for i, j in np.ndindex(5, 5):
        four = large[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].double().mean(dim=(2, 3))
        assert (four - small[:, :, i, j]).abs().max() <= 0.5
    light = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)
    exact = (large.double().permute(0, 2, 3, 1) @ light)[:, None]
    assert (exact - gray).abs().max() <= 0.501
    assert load(side=32, gray=True).images.shape[1:] == (1, 32, 32)
    for args, said in (({"side": 48}, "64, 32, but is 48"), ({"gallery": "catalog"}, "visit, all")):
        with pytest.raises(ValueError, match=said):
            load(**args)


def test_what_is_written_is_read(tmp_path):
    every, pixels = grocery64.read()
    path = tmp_path / "few.npz"
    first = np.arange(len(every.ids)) < 1030  # more than a sheet
    grocery64.write(path, every.subset(first), pixels[:1030])
    again, seen = grocery64.read(check=False, path=path)
    for column, kept in zip(every, again, strict=True):
        np.testing.assert_array_equal(column[:1030], kept)
    apart = (seen.double() - pixels[:1030]).abs().mean(dim=(1, 2, 3))
    assert seen.shape == (1030, 3, 64, 64)
    assert apart.max() < 8  # another photograph is some 60 away
    with pytest.raises(ValueError, match=r"few\.npz is not the published file: its MD5 is"):
        grocery64.read(path=path)


def test_what_a_score_is_read_beside(monkeypatch, tmp_path):
    """Color alone finds more than half; Recall@1 as docs/grocery64.md has it, by product."""
    experiment = recipes.load("grocery64")
    images, found = load(), training.untrained(experiment, "cpu")
    recalls = {
        name: 100 * retrieval.by_query(**images.retrieval_sets(x), metric="cosine")
        .groupby("label").mean()["recall_at_1"].mean()
        for name, x in found.items()
    }  # fmt: skip
    assert list(recalls) == [
        "raw pixels", "color histogram", "untrained network",
        "chance", "coarse class alone", "untouched Lite0",
    ]  # fmt: skip
    assert recalls["raw pixels"] == pytest.approx(21.1, abs=0.1)
    assert recalls["color histogram"] == pytest.approx(54.1, abs=0.1)
    assert recalls["untouched Lite0"] == pytest.approx(69.3, abs=0.1)
    assert recalls["chance"] == pytest.approx(100 / 21, abs=2)
    own, gallery = (images.labels[rows] for rows in (images.queries, ~images.queries))
    kin = images.groups[images.queries][:, None] == images.groups[~images.queries]
    share = ((own[:, None] == gallery) & kin).sum(axis=1) / kin.sum(axis=1)
    expected = 100 * np.mean([share[own == label].mean() for label in range(images.num_classes)])
    assert recalls["coarse class alone"] == pytest.approx(expected, abs=2)
    monkeypatch.setattr(features, "FOLDER", tmp_path)
    monkeypatch.setenv("DMLKIT_CACHE", str(tmp_path))
    args = {"data_args": {"gray": True, "side": 32}}
    small = training.untrained(replace(experiment, **args), "cpu")
    assert not {"color histogram", "untouched Lite0"} & small.keys()


@pytest.mark.skipif(not PUBLISHED.is_dir(), reason="$DMLKIT_DATA names no folder of photographs")
def test_photographs_are_those_of_the_archive():
    every, pixels = grocery64.read()
    folder = grocery.located(PUBLISHED)
    rows = np.arange(0, len(every.paths), 100)
    paths = [folder / path for path in every.paths[rows]]
    exact = Pictures(paths, crop=64, resize=64, keep_aspect=True)[:]
    apart = (exact.double() - pixels[rows].double()).abs().mean(dim=(1, 2, 3))
    assert apart.max() < 12
