"""Intervals are exact; as many repetitions decide as are said to."""

import numpy as np
import pytest
from scipy import stats

from benchmarks import coverage
from dmlkit import statistics


def test_an_interval_of_repetitions_that_overlap_is_wider():
    x = np.random.default_rng(1).normal(size=7)
    independent, overlapping = statistics.interval(x), statistics.interval(x, overlap=0.25)
    expected = stats.ttest_1samp(x, 0).confidence_interval(0.95)
    np.testing.assert_allclose(independent[["low", "high"]], expected)
    wider = (overlapping["high"] - x.mean()) / (independent["high"] - x.mean())
    assert wider == pytest.approx(np.sqrt((1 / 7 + 1 / 3) / (1 / 7)))
    with pytest.raises(ValueError, match="overlap must be a number from 0 to 1, but is nan"):
        statistics.interval(x, overlap=float("nan"))


def decided(ratio: float, n: int) -> float:
    """How often an effect of the margin, 1, is found, or one of 0 found to be within ± 1."""
    x = np.random.default_rng(5).normal(size=(4000, n)) * ratio
    error = x.std(1, ddof=1) / np.sqrt(n)
    found = np.abs(x.mean(1) + 1) > stats.t.ppf(0.975, n - 1) * error
    none = np.abs(x.mean(1)) + stats.t.ppf(0.95, n - 1) * error < 1
    return min(found.mean(), none.mean())


@pytest.mark.parametrize("ratio", [0.6, 2.0])
def test_so_many_repetitions_decide_and_one_fewer_do_not(ratio):
    n = statistics.repetitions(sd=ratio, margin=1.0)
    assert decided(ratio, n) > 0.79
    assert decided(ratio, n - 1) < 0.81
    with pytest.raises(ValueError, match="margin must be above 0"):
        statistics.repetitions(ratio, 0.0)


def test_a_luck_that_is_not_above_0_gives_way_to_that_of_its_kind():
    apart = np.array([[0.0], [1.0], [1.0], [0.0]])  # searches agree, repetitions do not
    common, of = statistics.Luck(0.1, 0.02), np.array([0, 0, 1, 1])
    assert statistics.pair_luck(apart, of).variance < 0
    assert statistics.pair_luck(apart, of, common) == common
    assert statistics.pair_luck(apart, of, statistics.Luck(1.0)).variance < 1


def test_holm_pays_for_all_hypotheses_or_for_the_most_that_can_be_true():
    p = np.array([[0.016, 0.9], [0.9, 0.009], [0.016, np.nan]])
    assert (statistics.holm(p) <= 0.05).tolist() == [[False, False], [False, True], [False, False]]
    stands = statistics.holm(p, most=3) <= 0.05
    assert stands.tolist() == [[True, False], [False, True], [True, False]]
    assert not (statistics.holm(p * 1.1, most=2) > statistics.holm(p * 1.1)).any()
    assert np.isnan(statistics.holm(np.full((2, 2), np.nan))).all()


def test_the_one_test_is_that_of_scipy_and_grows_by_shared_classes_and_the_luck_of_searches():
    d = np.random.default_rng(2).normal(0.5, 1, size=(12, 3))
    found, theirs = statistics.paired(d, null=0.2), stats.ttest_1samp(d, 0.2)
    np.testing.assert_allclose(found["p"], theirs.pvalue)
    np.testing.assert_allclose(found[["low", "high"]].T, theirs.confidence_interval())
    lucky = statistics.Luck(0.09, 0.05)
    wider = statistics.paired(d, overlap=0.2, luck=lucky, searches=2, pairs=0.5)
    within = (d[::2].var(0, ddof=1) + d[1::2].var(0, ddof=1)) / 2 * (1 / 12 + 1 / 4)
    luck = 0.5 / 2 * 0.09
    np.testing.assert_allclose(wider["error"] ** 2, within + luck)
    doubt = 2 * within**2 / 10 + (0.5 / 2 * 0.05) ** 2
    np.testing.assert_allclose(wider["df"], 2 * (within + luck) ** 2 / doubt)


def test_searches_of_one_repetition_each_are_an_ordinary_test():
    d = np.random.default_rng(2).normal(size=(9, 1))
    each = statistics.paired(d, luck=statistics.Luck(5.0), searches=9)
    np.testing.assert_allclose(each["p"], stats.ttest_1samp(d, 0).pvalue)


def test_the_luck_of_searches_is_found_and_is_that_of_a_difference():
    """Scores of twelve arms in twelve repetitions, which two searches share out."""

    def drawn(seed: int, luck: float) -> float:
        rng = np.random.default_rng(seed)
        scores = 0.045 * rng.standard_normal((12, 1)) + 0.015 * rng.standard_normal((12, 12))
        scores += luck * rng.standard_normal((2, 12))[np.arange(12) % 2]
        return statistics.luck(scores, np.arange(12) % 2).variance

    none, some = ([drawn(seed, luck) for seed in range(40)] for luck in (0.0, 0.03))
    assert abs(np.mean(none)) < 0.01**2
    assert np.mean(some) == pytest.approx(2 * 0.03**2, rel=0.2)


def test_few_pairs_are_shrunk_to_the_common_luck_and_pairs_of_one_base_count_once():
    rng, of = np.random.default_rng(0), np.arange(12) % 2
    d, common = (
        rng.standard_normal((12, 4)) + 3 * rng.standard_normal((2, 4))[of],
        statistics.Luck(1.0),
    )
    own = statistics.pair_luck(d, of)
    shrunk = statistics.pair_luck(d, of, common)
    assert shrunk.variance == pytest.approx((4 * own.variance + 2) / 6)
    alone = [statistics.pair_luck(d[:, [j]], of).variance for j in range(4)]
    grouped = statistics.pair_luck(d, of, None, ["a", "a", "b", "b"]).variance
    assert grouped == pytest.approx(np.mean(alone))
    unequal = statistics.pair_luck(d, of, None, ["a", "b", "b", "b"]).variance
    assert unequal == pytest.approx((alone[0] + np.mean(alone[1:])) / 2)


def test_a_search_that_failed_is_named_and_tells_nothing_of_luck():
    of, others = np.arange(12) % 2, []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = 0.01 * rng.standard_normal((2, 44))[of] + 0.005 * rng.standard_normal((12, 44))
        sound = statistics.luck(scores[:, 1:], of)
        scores[of == 1, 0] -= 0.3
        found = statistics.failed(scores, of)
        assert found[1, 0]
        others.append(found.sum() - 1)
        if not others[-1]:
            assert statistics.luck(scores, of).variance == pytest.approx(sound.variance)
        assert not statistics.failed(scores[:, :5], of).any()  # too few to tell
    assert np.mean(others) < 0.3


@pytest.mark.parametrize("design", ["drawings", "photographs, heads", "twelve searches"])
def test_false_alarms_are_what_they_are_said_to_be(design):
    """A short run of benchmarks/coverage.py: of losses and of additions."""
    rng = np.random.default_rng(7)
    p = np.array([list(coverage.study(rng, coverage.DESIGNS[design]))[:3:2] for _ in range(300)])
    assert ((p < 0.05).mean(0) > 0.015).all()
    assert ((p < 0.05).mean(0) < 0.095).all()


@pytest.mark.parametrize(
    "rule, interval, more, expected",
    [
        ("positive", (0.5, 1.5), {}, "holds here"),
        ("positive", (0.1, 0.9), {}, "smaller here"),
        ("positive", (0.1, 1.1), {}, "above 0 here"),
        ("positive", (0.1, 1.1), {"printed": 1.2}, "smaller than claimed"),
        ("positive", (0.1, 0.9), {"printed": 1.2}, "smaller than claimed"),
        ("positive", (-0.4, 0.8), {}, "too small to see here"),
        ("positive", (-3.0, -2.0), {}, "reversed here"),
        ("positive", (-0.4, 1.2), {"printed": 2.0}, "printed size excluded here"),
        ("positive", (-0.4, 1.2), {"printed": 1.1}, "open"),
        ("positive", (-0.4, 1.2), {}, "open"),
        ("positive", (-0.4, 1.2), {"least": 1.1}, "cannot be decided here"),
        ("equivalent", (-0.9, 0.8), {}, "holds here"),
        ("equivalent", (1.1, 3.0), {}, "fails here"),
        ("equivalent", (0.5, 3.0), {}, "open"),
        ("below", (-5.0, 0.9), {}, "holds here"),
        ("below", (1.1, 2.0), {}, "fails here"),
        ("below", (0.5, 2.0), {"least": 3.0}, "cannot be decided here"),
    ],
)
def test_a_word_follows_from_the_interval_the_sizes_and_the_power(rule, interval, more, expected):
    assert statistics.word(rule, sum(interval) / 2, *interval, margin=1.0, **more) == expected
