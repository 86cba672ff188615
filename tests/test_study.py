"""Sweeps are grids of Runs through any executor; differences are paired; intervals are exact."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from dmlkit import study, training
from tests.training.tiny import TINY


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Glyphs are shared with the other tests; Runs go to a folder of this test's own."""
    real = training.run
    monkeypatch.setattr(
        training, "run", lambda e, **args: real(e, **(args | {"store": tmp_path / "runs"}))
    )


def sweep(**axes):
    with ThreadPoolExecutor(1) as executor:
        return study.sweep(TINY, executor, device="cpu", progress=False, **axes)


def test_sweep_is_one_row_a_run_in_the_order_of_the_grid():
    methods = {"plain": {}, "wide": {"loss": "contrastive", "loss_args": {"negative_margin": 1}}}
    frame = sweep(method=methods, seed=[3, 5])
    assert list(zip(frame["method"], frame["seed"], strict=True)) == [
        ("plain", 3), ("plain", 5), ("wide", 3), ("wide", 5),
    ]  # fmt: skip
    assert frame["run"].nunique() == 4
    assert frame["recall_at_1"].between(0, 1).all()
    assert not frame["loaded"].any()
    again = sweep(method=methods, seed=[3, 5])
    assert again["loaded"].all()
    pd.testing.assert_series_equal(frame["recall_at_1"], again["recall_at_1"])


def test_sweep_finishes_the_others_before_it_reports_a_failure():
    with pytest.raises(RuntimeError, match=r"1 of 2 Runs failed.*'model': 'nope'.*unknown model"):
        sweep(model=["nope", "convnet"], loss=["contrastive"])
    assert sweep(loss=["contrastive"])["loaded"].all()


@pytest.mark.parametrize("axes", [{"color": ["red"]}, {"seed": []}])
def test_sweep_refuses_an_axis_that_means_nothing(axes):
    with pytest.raises(ValueError, match=next(iter(axes))):
        sweep(**axes)


def test_without_a_scheduler_the_default_is_one_pool_of_processes_for_the_session(monkeypatch):
    monkeypatch.setenv("DMLKIT_SCHEDULER", "")
    pool = study.default_executor()
    assert isinstance(pool, ProcessPoolExecutor)
    assert study.default_executor() is pool


def test_compare_pairs_by_seed_as_scipy_does():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(
        [{"loss": name, "seed": s, "split": c, "recall_at_1": random.random()}
         for name in "abc" for s in range(4) for c in range(2)]
    ).sample(frac=1, random_state=1)  # fmt: skip
    result = study.compare(frame, "loss", "a", pair=["seed", "split"])
    assert list(result.index) == ["b", "c"]
    wide = frame.pivot(index=["seed", "split"], columns="loss", values="recall_at_1")
    expected = stats.ttest_rel(wide["b"], wide["a"]).confidence_interval(0.95)
    np.testing.assert_allclose(result.loc["b", ["low", "high"]].astype(float), expected)
    assert result.loc["b", "n"] == 8


def test_compare_refuses_what_has_no_partner():
    frame = pd.DataFrame({"loss": ["a", "b"], "seed": [0, 1], "recall_at_1": [0.5, 0.6]})
    with pytest.raises(ValueError, match="nothing to pair with"):
        study.compare(frame, "loss", "a")
    with pytest.raises(ValueError, match="no loss 'z'; there are a, b"):
        study.compare(pd.concat([frame, frame.assign(seed=[1, 0])]), "loss", "z")


def test_ranks_share_ties():
    frame = pd.DataFrame(
        {"loss": list("abc") * 2, "seed": [0] * 3 + [1] * 3, "r": [0.9, 0.9, 0.1, 0.9, 0.8, 0.1]}
    )
    assert study.ranks(frame, "loss", "r")["mean"].to_dict() == {"a": 1.25, "b": 1.75, "c": 3.0}
