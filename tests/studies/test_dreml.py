"""An ensemble is its members' Runs: trained as such, found again, and joined side by side."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from dmlkit import data, retrieval, training
from studies import dreml
from tests.data import trees
from tests.training.tiny import TINY


@pytest.fixture(autouse=True)
def _store(tmp_path, monkeypatch):
    """Glyphs are shared with the other tests; Runs go to a folder of this test's own."""
    real = training.run
    monkeypatch.setattr(
        training, "run", lambda e, **args: real(e, **(args | {"store": tmp_path / "runs"}))
    )


def small_ensemble(experiment=TINY, members=3):
    with ThreadPoolExecutor(1) as executor:
        return dreml.dreml(
            experiment, members, 4, executor, device="cpu", progress=False
        )  # fmt: skip


def test_members_are_ordinary_runs_which_differ_in_map_and_seed():
    base = replace(TINY, steps=3, monitor=())
    ensemble = small_ensemble(base)
    experiments = [run.experiment for run in ensemble.runs]
    assert [e.loss_args for e in experiments] == [{"map_seed": member} for member in range(3)]
    assert len({e.seed for e in experiments}) == 3
    same = replace(base, loss="meta_class", dim=4)
    assert all(replace(e, loss_args={}, seed=0) == same for e in experiments)
    others = small_ensemble(replace(base, seed=1), members=1)
    assert others.runs[0].experiment.seed != experiments[0].seed
    larger = small_ensemble(base, members=4)  # finds the three that are there
    assert [run.path for run in larger.runs[:3]] == [run.path for run in ensemble.runs]
    assert training.run(experiments[1], device="cpu").loaded


def test_the_whole_is_its_members_side_by_side():
    ensemble = small_ensemble()
    assert ensemble.embeddings.shape == (len(ensemble.labels), 12)
    units = [
        run.embeddings / np.linalg.norm(run.embeddings, axis=1, keepdims=True)
        for run in ensemble.runs
    ]
    np.testing.assert_allclose(ensemble.embeddings, np.concatenate(units, axis=1), atol=1e-6)
    mean = np.mean([u[:50] @ u[:50].T for u in units], axis=0)
    whole = ensemble.embeddings[:50]
    norms = np.linalg.norm(whole, axis=1)
    np.testing.assert_allclose(whole @ whole.T / np.outer(norms, norms), mean, atol=1e-6)
    recall = retrieval.recall_at_k(ensemble.embeddings, ensemble.labels, [1], metric="cosine")
    assert ensemble.scores["recall_at_1"] == recall[1]


def test_queries_are_scored_against_the_gallery(tmp_path, monkeypatch):
    monkeypatch.setenv("DMLKIT_DATA", str(trees.inshop(tmp_path / "data")))
    base = replace(
        TINY,
        data="inshop",
        data_args={"crop": 32, "resize": 32, "check": False},
        sampler_args={"classes": 2, "per_class": 2},
        steps=1,
        monitor=(),
    )
    ensemble = small_ensemble(base, members=2)
    scores = retrieval.evaluate(
        **data.load("inshop", "test", **base.data_args).retrieval_sets(ensemble.embeddings),
        metric="cosine",
    )
    assert ensemble.scores == scores
    assert dreml.Ensemble(ensemble.runs[:1]).scores == ensemble.runs[0].scores


def test_a_member_that_diverges_ends_the_ensemble(monkeypatch):
    def diverges(experiment, **args):
        raise training.DivergedError("the loss became nan")

    monkeypatch.setattr(training, "run", diverges)
    with pytest.raises(training.DivergedError, match="member 0 of 3 diverged"):
        small_ensemble()


def test_any_members_are_an_ensemble_too():
    ensemble = small_ensemble()
    one, two = (dreml.Ensemble(ensemble.runs[:n]) for n in (1, 2))
    assert one.scores["recall_at_1"] == ensemble.runs[0].scores["recall_at_1"]
    np.testing.assert_array_equal(two.embeddings, ensemble.embeddings[:, :8])
