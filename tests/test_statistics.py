"""Intervals are exact; as many repetitions decide as are said to."""

import numpy as np
import pytest
from scipy import stats

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


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_sign_flips_of_an_interval_of_values_are_exact_to_sixteen_and_drawn_above(alternative):
    x = np.random.default_rng(4).normal(0.4, 1, size=17)
    exact = stats.permutation_test(
        (x[:13],), np.sum, permutation_type="samples", n_resamples=np.inf, alternative=alternative
    ).pvalue
    assert statistics.sign_flips(x[:13], alternative) == pytest.approx(exact)
    every = stats.permutation_test(
        (x,), np.sum, permutation_type="samples", n_resamples=np.inf, vectorized=True,
        alternative=alternative, batch=4096,
    ).pvalue  # fmt: skip
    assert statistics.sign_flips(x, alternative) == pytest.approx(every, abs=5 * 0.5 / 100_000**0.5)
    assert statistics.sign_flips(x, alternative) == statistics.sign_flips(x, alternative)
    assert statistics.sign_flips(np.full(20, 0.1)) == 1e-5  # never 0
    assert statistics.sign_flips([0.1, 0.2, 0.3] * 3) == 2 / 2**9  # though sums are rounded


def test_sign_flips_refuse_what_they_cannot_test():
    with pytest.raises(ValueError, match=r"alternative must be .* but is 'less'"):
        statistics.sign_flips([0.1], "less")
    with pytest.raises(ValueError, match="values must be finite"):
        statistics.sign_flips([0.1, float("nan")])


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


def test_holm_is_that_of_the_pairs_of_which_one_can_be_true():
    """Both of a pair are tested, yet no more than m of the 2m hypotheses are paid for."""
    p = np.array([[0.016, 0.9], [0.9, 0.016], [0.016, np.nan]])
    stands = statistics.holm(p) <= 0.05
    assert stands.tolist() == [[True, False], [False, True], [True, False]]
    assert not (statistics.holm(p * 1.1) <= 0.05).any()
    assert np.isnan(statistics.holm(np.full((2, 2), np.nan))).all()


def test_the_one_test_is_that_of_scipy_and_grows_by_shared_classes_and_the_luck_of_recipes():
    d = np.random.default_rng(2).normal(0.5, 1, size=(12, 3))
    found, theirs = statistics.paired(d, null=0.2), stats.ttest_1samp(d, 0.2)
    np.testing.assert_allclose(found["p_t"], theirs.pvalue)
    np.testing.assert_allclose(found[["low", "high"]].T, theirs.confidence_interval())
    assert found["flips"].tolist() == [statistics.sign_flips(x - 0.2) for x in d.T]
    assert (found["p"] == found[["p_t", "flips"]].max(axis=1)).all()
    wider = statistics.paired(d, overlap=0.2, luck=0.3, searches=2, recipes=1.5)["error"]
    np.testing.assert_allclose(wider**2, d.var(0, ddof=1) * (1 / 12 + 1 / 4) + 0.09 * 1.5 / 2)


def test_the_luck_of_recipes_is_found():
    """Scores of twelve arms in twelve repetitions, which two searches share out."""

    def drawn(seed: int, luck: float) -> float:
        rng = np.random.default_rng(seed)
        scores = 0.045 * rng.standard_normal((12, 1)) + 0.015 * rng.standard_normal((12, 12))
        scores += luck * rng.standard_normal((2, 12))[np.arange(12) % 2]
        return statistics.luck(scores, np.arange(12) % 2)

    none, some = ([drawn(seed, luck) for seed in range(20)] for luck in (0.0, 0.03))
    assert np.sqrt(np.mean(np.square(none))) < 0.008
    assert np.sqrt(np.mean(np.square(some))) == pytest.approx(0.03, rel=0.25)


@pytest.mark.parametrize(
    "rule, interval, expected",
    [
        ("positive", (0.5, 1.5), "holds here"),
        ("positive", (0.1, 0.9), "smaller than claimed"),
        ("positive", (-0.4, 0.8), "fails here"),
        ("positive", (-3.0, -2.0), "fails here"),
        ("positive", (-0.4, 1.2), "open"),
        ("equivalent", (-0.9, 0.8), "holds here"),
        ("equivalent", (1.1, 3.0), "fails here"),
        ("equivalent", (0.5, 3.0), "open"),
        ("below", (-5.0, 0.9), "holds here"),
        ("below", (1.1, 2.0), "fails here"),
        ("below", (0.5, 2.0), "open"),
    ],
)
def test_a_word_follows_from_the_interval_and_the_smallest_effect(rule, interval, expected):
    assert statistics.word(rule, sum(interval) / 2, *interval, margin=1.0) == expected
