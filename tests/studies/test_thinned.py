"""Thinned groceries: the kept evidence is whole, and what is cheap in it comes out again."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch

from dmlkit import data
from studies import thinned
from studies.practice import KEPT


def test_so_many_photographs_of_so_many_classes_are_drawn():
    images = data.load("grocery", "train", fold=0, features=KEPT)
    rows = thinned.rows_of(images, 5, 10, seed=1)
    assert np.unique(images.labels[rows], return_counts=True)[1].tolist() == [10] * 5
    assert len(thinned.rows_of(images, 99, 10**6, seed=1)) == len(images)


def test_weights_between_two_networks_lie_on_a_line_and_counts_stay():
    before = {"w": torch.zeros(2), "seen": torch.tensor(3)}
    after = {"w": torch.tensor([4.0, -8.0]), "seen": torch.tensor(5)}
    found = thinned.between(before, after, 0.25)
    assert found["w"].tolist() == [1, -2]
    assert found["seen"] == 3


def test_the_kept_table_is_whole_and_starts_as_it_did():
    kept = pd.read_csv(thinned.PATH)
    assert not kept.duplicated(["arm", "measure", "fold"]).any()
    assert kept.groupby(["arm", "measure"]).size().eq(4).all()
    assert sum(not arm.startswith("whole") for arm in kept["arm"].unique()) == 2 + 4 * 25
    recall = kept.loc[kept["measure"] == "recall_at_1", "by_class"]
    assert all(len(json.loads(each)) in (20, 21) for each in recall)
    means = [np.mean([*json.loads(each).values()]) for each in kept["by_class"]]
    assert kept["mean"].tolist() == pytest.approx(means, abs=1e-4)
    first = kept[(kept["arm"] == "untouched") & (kept["fold"] == 0)].iloc[0]
    assert json.loads(first["by_class"]) == pytest.approx(
        next(thinned.heads(0, turned=False))["by_class"].to_dict(), abs=1e-4
    )


def test_whitening_of_a_cell_comes_out_again():
    kept = pd.read_csv(thinned.PATH)
    row = kept[(kept["arm"] == "whitening, 5 × 10") & (kept["fold"] == 0)].iloc[0]
    load = partial(data.load, "grocery", fold=0, features=KEPT)
    train, test = load("train"), load("test")
    rows = thinned.rows_of(train, 5, 10, seed=0)
    x, z = (torch.nn.functional.normalize(each.images.flatten(1)) for each in (train, test))
    y = torch.from_numpy(np.unique(train.labels[rows], return_inverse=True)[1])
    (layer,) = thinned.whitening(x[rows], y, [row["setting"]], 0)
    found = thinned.scored(layer(z), test)
    assert found.mean() == pytest.approx(row["mean"], abs=0.005)
