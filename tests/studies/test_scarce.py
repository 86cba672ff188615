"""Rare products, late points, few photographs: who is in which half, and what is kept."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from dmlkit import data
from studies import claims, scarce


def test_whole_coarse_classes_are_dealt_to_halves_of_as_many_products():
    images = data.load("grocery64", "train", fold=0, side=32)
    first = scarce.halves(images, seed=1)
    group = np.array([images.groups[images.labels == k][0] for k in range(images.num_classes)])
    assert not {*group[first]} & {*group[~first]}
    assert abs(2 * first.sum() - len(first)) <= 1


def test_few_photographs_of_each_product_stay_and_fewer_are_a_part_of_more():
    images = data.load("grocery64", "train", fold=0, side=32)
    place = scarce.ranks([images.labels], seed=1)
    few = scarce.some(images, place < 3)
    assert np.bincount(few.labels).tolist() == [3] * images.num_classes
    assert (place < 6)[place < 3].all()
    assert sorted(place[images.labels == 0]) == [*range((images.labels == 0).sum())]


def test_points_that_begin_late_change_nothing_before():
    images = data.load("grocery64", "train", fold=0, side=32)

    def end(name: str, late: float) -> np.ndarray:
        way = scarce.CURRICULUM[name]
        model = scarce.trained(replace(scarce.planned(way, 0), steps=4), images, late)
        return next(model.parameters()).detach().numpy()

    never = end("none", 0.0)
    assert np.array_equal(end("middle", 1.0), never)
    assert not np.array_equal(end("middle", 0.5), never)


def test_the_kept_table_is_whole():
    table = pd.read_csv(scarce.PATH)
    assert not table.duplicated(["part", "way", "repetition", "of"]).any()
    asked = {(part, way) for part, way, _ in scarce.parts(0)}
    by = table.groupby("repetition")[["part", "way"]].apply(lambda t: {*map(tuple, t.to_numpy())})
    assert len(by) >= scarce.LEAST
    assert all(each == asked for each in by)
    means = [np.mean([*json.loads(each).values()]) for each in table["by_class"]]
    assert table["mean"].tolist() == pytest.approx(means, abs=1e-4)


def test_each_main_question_has_a_word_of_the_ledger():
    found = scarce.questions(pd.read_csv(scarce.PATH))
    assert [*found.index] == [*scarce.MAIN]
    assert {*found["word"]} <= {*claims.WORDS}
    assert (found["holm"] >= found["p"]).all()
