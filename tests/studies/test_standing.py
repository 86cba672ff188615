"""The rule calls a loss better by chance in at most 5 of 100 cases, and mostly sees 3 points."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from studies import standing as rule

FAMILIES = {f"loss {i}": ("pairs" if i % 2 else "proxies") for i in range(12)}


def evidence(seed, luck=0.0, spread=0.0, n=12, noise=0.015):
    """Scores of a dozen losses, whose repetitions share an effect three times the noise."""
    rng = np.random.default_rng(seed)
    A = len(FAMILIES)
    means = 0.7 + spread * rng.standard_normal(A)
    scores = means + 0.045 * rng.standard_normal((n, 1)) + noise * rng.standard_normal((n, A))
    scores += luck * rng.standard_normal((2, A))[np.arange(n) % 2]
    rows = [(a, k, k % 2, scores[k, i]) for i, a in enumerate(FAMILIES) for k in range(n)]
    return pd.DataFrame(rows, columns=["arm", "repetition", "search", "recall_at_1"])


def rows_of(frame, arm, gain=0.0):
    own = frame[frame["arm"] == arm]
    return own.assign(recall_at_1=own["recall_at_1"] + gain)


def test_the_t_test_and_its_interval_are_those_of_scipy_where_there_is_no_luck():
    frame = evidence(0)
    frame["search"] = 0
    at = rule.standing(rows_of(frame, "loss 0", 0.01), frame, FAMILIES, "proxies")
    wide = frame.pivot(index="repetition", columns="arm", values="recall_at_1")
    d = wide["loss 0"] + 0.01 - wide["loss 3"]
    theirs = stats.ttest_1samp(d, 0)
    low, high = theirs.confidence_interval()
    row = at.arms.loc["loss 3"]
    assert row["p"] == pytest.approx(theirs.pvalue)
    assert (row["difference_low"], row["difference_high"]) == pytest.approx((low, high))
    rest = wide["loss 0"] + 0.01 - wide.mean(axis=1)
    assert at.mean["p"] == pytest.approx(stats.ttest_1samp(rest, 0).pvalue)


def test_shared_test_classes_widen_the_interval_as_nadeau_and_bengio_say():
    frame = evidence(0)
    frame["search"] = 0
    rows = rows_of(frame, "loss 0", 0.01)
    found = [rule.standing(rows, frame, FAMILIES, "proxies", r) for r in (0.0, 0.2)]
    errors = [at.arms.loc[at.best, "error"] for at in found]
    assert errors[1] / errors[0] == pytest.approx(np.sqrt((1 / 12 + 0.25) / (1 / 12)))


def test_better_than_the_best_is_better_than_each():
    frame = evidence(3)
    at = rule.standing(rows_of(frame, "loss 1", 0.1), frame, FAMILIES, "pairs")
    assert at.p_best == at.arms["p"].max() < 0.05
    assert at.family_best is not None
    assert FAMILIES[at.family_best] == "pairs"
    same = rule.standing(rows_of(frame, at.best), frame, FAMILIES, "pairs")
    assert same.p_best == 1, "its own copy is not beaten"
    assert at.verdict(at.p_best) == "holds here"
    assert at.verdict(0.06) != "holds here", "not every rival is beaten"
    worse = rule.standing(rows_of(frame, "loss 1", -0.1), frame, FAMILIES, "pairs")
    assert worse.verdict(1.0) == "reversed here"


def test_what_is_no_rival_has_no_say():
    frame = evidence(4)
    rows = rows_of(frame, "loss 1", 0.1)
    known = FAMILIES | {"loss 2": None}
    at = rule.standing(rows, rows_of(frame, "loss 2", 0.5).pipe(lambda f: pd.concat(
        [frame[frame["arm"] != "loss 2"], f])), known, "pairs")  # fmt: skip
    assert at.best != "loss 2" == at.arms.index[0]
    assert at.p_best < 0.05


def test_holm_counts_regimes_that_were_not_judged():
    frame = evidence(5)
    at = rule.standing(rows_of(frame, "loss 1", 0.1), frame, FAMILIES, "pairs")
    one = rule.questions({"scratch": at}, ["scratch"])
    two = rule.questions({"scratch": at}, ["scratch", "transfer"])
    assert len(two) == 4
    smallest = min(at.p_best, at.p_family)
    assert one["holm"].min() == pytest.approx(2 * smallest)
    assert two["holm"].min() == pytest.approx(4 * smallest)
    assert two.loc[("transfer", "best"), "p"] == 1


@pytest.mark.parametrize("luck", [0.0, 0.02])
def test_copies_are_called_better_at_most_as_often_as_said(luck):
    """Where all are equal but for one, which is copied, chance has the most to gain."""
    studies = {name: evidence(seed, luck) for seed, name in enumerate(("scratch", "transfer"))}
    for frame in studies.values():
        frame.loc[frame["arm"] == "loss 0", "recall_at_1"] += 0.2
    found = rule.alarms(studies, FAMILIES, 1000, of="best")
    assert found["comparisons"] == 1000
    assert found["share"] <= 0.05
    assert 0 < found["high"] <= 0.07
    assert found["low"] <= found["share"] == found["better"] / 1000


def test_copies_of_any_loss_are_called_better_at_most_as_often_as_said():
    studies = {name: evidence(seed, spread=0.03) for seed, name in enumerate(("one", "other"))}
    assert rule.alarms(studies, FAMILIES, 1000)["high"] <= 0.05


def test_choosing_the_rival_by_its_mean_and_testing_it_alone_would_not_have_been_enough():
    """The largest p counts, since the loss that looks best need not be the hardest to beat."""
    frame = evidence(6)
    lucky = frame["arm"] == "loss 0"
    frame.loc[lucky, "recall_at_1"] += 0.05
    noisy = (frame["arm"] == "loss 3") & (frame["repetition"] % 2 == 0)
    frame.loc[noisy, "recall_at_1"] += 0.1
    at = rule.standing(rows_of(frame, "loss 0", 0.02), frame, FAMILIES, "proxies")
    assert at.p_best == at.arms["p"].where(at.arms["difference"] > 0, 1).max()
    assert at.p_best > at.arms.loc["loss 0", "p"]


def test_three_points_are_mostly_found():
    studies = {name: evidence(seed, spread=0.03) for seed, name in enumerate(("one", "other"))}
    found = rule.alarms(studies, FAMILIES, 200, of="best", gain=0.03)
    assert found["share"] > 0.9
    assert rule.alarms(studies, FAMILIES, 200, of="best", gain=-0.03)["share"] == 0
