"""Contrast without labels: the kept evidence is whole, and what is cheap in it comes out again."""

import json

import numpy as np
import pandas as pd
import pytest

from dmlkit import data
from studies import views


def test_so_many_photographs_of_each_class_are_drawn_of_the_gallery():
    images = data.load("grocery64", "test", fold=0, side=32)
    rows = views.drawn(images, 5, seed=1)
    assert not images.queries[rows].any()
    assert np.bincount(images.labels[rows]).tolist() == [5] * images.num_classes
    assert len(views.drawn(images, 0, seed=1)) == (~images.queries).sum()


def test_the_kept_table_is_whole_and_starts_as_it_did():
    kept = pd.read_csv(views.PATH)
    counts = kept.groupby("arm").size()
    assert counts.drop("labels alone").eq(16).all()
    assert counts["labels alone"] == 12
    assert [*views.ARMS] == [arm for arm in kept["arm"].unique() if arm in views.ARMS]
    means = [np.mean([*json.loads(each).values()]) for each in kept["by_class"]]
    assert kept["mean"].tolist() == pytest.approx(means, abs=1e-4)
    again = next(views.rows_of("color histogram", fold=0))
    same = kept[(kept["arm"] == "color histogram") & (kept["fold"] == 0)]
    assert json.loads(same["by_class"].iloc[0]) == pytest.approx(again["by_class"], abs=1e-4)
