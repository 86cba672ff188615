"""Kept scores: given to who asks for them, made again by the draw of a commit, refused if wrong."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from dmlkit import evidence
from dmlkit.training import Experiment

FIVE = [Experiment(steps=3, seed=k) for k in range(5)]


def recalls(experiments, **how) -> np.ndarray:
    return evidence.measured("toy", experiments, **how)["recall_at_1"].to_numpy()


@pytest.fixture
def trained(tmp_path, monkeypatch) -> list[int]:
    """The seeds that were trained, in order; seed k scores k / 10, and seed 3 diverges."""
    seeds = []

    def train(experiments, device):
        seeds.extend(e.seed for e in experiments)
        runs = [SimpleNamespace(scores={"recall_at_1": e.seed / 10}) for e in experiments]
        return [None if e.seed == 3 else run for e, run in zip(experiments, runs, strict=True)]

    monkeypatch.setattr(evidence.study, "train", train)
    monkeypatch.setattr(evidence.dmlkit, "ROOT", tmp_path)
    monkeypatch.setattr(evidence, "commit", lambda: "a")
    (tmp_path / "data" / "evidence").mkdir(parents=True)
    return seeds


def test_what_is_not_kept_is_trained_and_what_is_kept_is_not(trained, tmp_path):
    expected = [0.0, 0.1, 0.2, np.nan, 0.4]
    np.testing.assert_array_equal(recalls(FIVE), expected)
    assert trained == [0, 1, 2, 3, 4]
    assert not list((tmp_path / "data" / "evidence").iterdir()), "nothing is written unasked"

    np.testing.assert_array_equal(recalls(FIVE[:4], keep=True), expected[:4])
    trained.clear()
    np.testing.assert_array_equal(recalls(FIVE, again=0), expected)
    assert trained == [4]
    np.testing.assert_array_equal(recalls(FIVE[::-1], again=0), expected[::-1])


def test_keeping_more_leaves_the_other_rows_and_replaces_equal_ones(trained, tmp_path):
    path = tmp_path / "data" / "evidence" / "toy.csv"
    recalls(FIVE[:3], keep=True)
    before = path.read_text()
    recalls(FIVE[1:2], keep=True)
    assert path.read_text() == before
    recalls(FIVE[4:], keep=True)
    assert path.read_text().startswith(before)
    assert pd.read_csv(path)["seed"].tolist() == [0, 1, 2, 4]


def test_each_commit_makes_others_again(trained, monkeypatch):
    recalls(FIVE, keep=True)
    drawn = []
    for commit in "abcdefghijklmnop":
        monkeypatch.setattr(evidence, "commit", lambda commit=commit: commit)
        trained.clear()
        recalls(FIVE, again=2)
        assert len(trained) == 2
        drawn.append(tuple(trained))
        trained.clear()
        recalls(FIVE, again=2)
        assert tuple(trained) == drawn[-1], "the same commit draws the same"
    assert {seed for pair in drawn for seed in pair} == set(range(5)), "in time all are checked"


def test_a_score_that_is_not_what_is_kept_is_refused(trained, tmp_path):
    path = tmp_path / "data" / "evidence" / "toy.csv"
    recalls(FIVE, keep=True)
    path.write_text(path.read_text().replace(",0.1\n", ",0.9\n"))
    with pytest.raises(ValueError, match="recall_at_1 of 5 trainings of the evidence"):
        recalls(FIVE, again=5)


def test_every_measure_is_kept_and_checked(trained, tmp_path):
    both = evidence.RECALL | {"percent": (lambda run: 100 * run.scores["recall_at_1"], 2.0)}
    made = evidence.measured("both", FIVE[:3], both, keep=True)
    assert made.to_numpy().tolist() == [[0.0, 0.0], [0.1, 10.0], [0.2, 20.0]]
    trained.clear()
    pd.testing.assert_frame_equal(evidence.measured("both", FIVE[:3], both, again=0), made)
    assert not trained
    path = tmp_path / "data" / "evidence" / "both.csv"
    wider = both | {"count": (lambda run: 1.0, 0.0)}
    with pytest.raises(KeyError, match="count"):
        evidence.measured("both", FIVE[:3], wider, again=0)
    path.write_text(path.read_text().replace(",20.0\n", ",80.0\n"))
    with pytest.raises(ValueError, match="percent of 3 trainings of the evidence"):
        evidence.measured("both", FIVE[:3], both)


def test_a_sweep_is_one_row_a_point_in_the_order_of_the_grid(trained):
    size = {"small": {"dim": 8}, "large": {}}
    frame = evidence.sweep("toy", FIVE[0], keep=True, size=size, seed=[0, 1])
    assert frame["size"].tolist() == ["small", "small", "large", "large"]
    assert frame["seed"].tolist() == [0, 1, 0, 1]
    assert frame["recall_at_1"].tolist() == [0.0, 0.1, 0.0, 0.1]
    trained.clear()
    again = evidence.sweep("toy", FIVE[0], again=0, size=size, seed=[0, 1])
    assert not frame.attrs["kept"]
    assert again.attrs["kept"]
    pd.testing.assert_frame_equal(again, frame)
    assert not trained


def test_the_commit_is_that_of_git_or_nothing(tmp_path, monkeypatch):
    assert len(evidence.commit()) in (0, 40)
    monkeypatch.setattr(evidence.dmlkit, "ROOT", tmp_path)
    assert evidence.commit() == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert evidence.commit() == "", "nor is there any git"
