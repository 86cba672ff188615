"""Statistics of paired repetitions: intervals, sign flips, hypotheses tested together, power."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit.checks import check_choice, check_positive, check_range


def interval(
    values: Sequence[float] | np.ndarray | pd.Series, level: float = 0.95, overlap: float = 0.0
) -> pd.Series:
    """Mean and t-interval of values: mean ± t · s · √(1/n + overlap) (no width is known at n = 1).

    Independent values have no ``overlap``. Repetitions whose training or test classes overlap vary
    less between each other than a new one would; Nadeau and Bengio (2003, Machine Learning 52,
    "Inference for the Generalization Error") widen the interval by the ratio n_test/n_train of a
    repetition's test and training classes, which is the overlap to give.

    Raises:
        ValueError: an overlap that is negative or not finite.

    >>> interval([1.0, 2.0, 3.0]).round(2).to_dict()
    {'mean': 2.0, 'low': -0.48, 'high': 4.48, 'n': 3.0}
    >>> interval([1.0, 2.0, 3.0], overlap=100 / 300).round(2)["high"].item()
    5.51
    """
    check_range(0, overlap=overlap)
    check_range(0, 1, level=level)
    x = np.asarray(values, dtype=float)
    n = len(x)
    t = stats.t.ppf((1 + level) / 2, n - 1) if n > 1 else np.nan
    half = t * x.std(ddof=1) * math.sqrt(1 / n + overlap) if n > 1 else np.nan
    mean = x.mean() if n else np.nan
    return pd.Series({"mean": mean, "low": mean - half, "high": mean + half, "n": float(n)})


def sign_flips(
    values: Sequence[float] | np.ndarray | pd.Series, alternative: str = "two-sided"
) -> float:
    """The p-value of a sign-flip test that independent values are symmetric about 0.

    p is the share of the 2ⁿ ways to flip the values' signs whose sum is as extreme as theirs
    (``two-sided``) or as large (``greater``): exact for any symmetric distribution, where the
    t-test wants a normal one (Fisher 1935, "The Design of Experiments", section 21). Above
    n = 16, p is the share of 100,000: the values as they are, and flips drawn with a fixed seed.

    Raises:
        ValueError: another alternative, or values that are not finite.

    >>> sign_flips([0.5, 0.25, 1.0]), sign_flips([0.5, 0.25, 1.0], "greater")
    (0.25, 0.125)
    """
    check_choice(("two-sided", "greater"), alternative=alternative)
    x = np.asarray(values, dtype=float)
    if not np.isfinite(x).all():  # NaN, as no sum is as extreme, would have a p of 0
        raise ValueError(f"values must be finite, but are {x.tolist()}")
    if len(x) <= 16:
        signs = 1 - 2 * (np.arange(2 ** len(x))[:, None] >> np.arange(len(x)) & 1)  # (2ⁿ, n)
    else:
        signs = np.random.default_rng(0).integers(0, 2, (100_000, len(x)), dtype=np.int8) * 2 - 1
        signs[0] = 1
    sums, seen = signs @ x, x.sum()
    if alternative == "two-sided":
        sums, seen = np.abs(sums), abs(seen)
    # Equal sums may be rounded differently.
    return float((sums >= seen - 1e-12 * np.abs(x).sum()).mean())


def repetitions(sd: float, margin: float, power: float = 0.8) -> int:
    """How many repetitions decide whether there is an effect, if values vary by ``sd``.

    The least n with which an effect of ± the margin is found by the two-sided t-test at 5 %, and
    an effect of 0 is found to lie within ± the margin by two one-sided t-tests at 5 % (Schuirmann
    1987), each with the ``power`` asked for.

    Raises:
        ValueError: sd is negative, margin not above 0, or power not between 0.5 and 1.

    >>> repetitions(sd=0.006, margin=0.01), repetitions(sd=0.02, margin=0.01)
    (6, 36)
    """
    check_positive(margin=margin)
    check_range(0, 1e6 * margin, sd=sd)  # beyond that no table of t goes
    check_range(0.5, 0.999, power=power)
    ratio = max(sd, 1e-12 * margin) / margin
    # With known variance; the t-tests need one or more besides.
    least = stats.norm.ppf(0.95) + stats.norm.ppf((1 + power) / 2)
    n = max(2, math.floor((least * ratio) ** 2))
    while _powers(n, math.sqrt(n) / ratio) < power:
        n += 1
    return n


def _powers(n: int, shift: float) -> float:
    """The smaller power of the two tests, where the margin is ``shift`` standard errors."""
    if shift > 30:
        return 1.0
    two_sided = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, shift)
    each = stats.nct.sf(stats.t.ppf(0.95, n - 1), n - 1, shift)
    return float(min(two_sided, 2 * each - 1))


def holm(p: np.ndarray, level: float = 0.05) -> np.ndarray:
    """Which of m pairs of null hypotheses fall when all are tested at once, (m, 2) -> (m, 2).

    The i-th smallest p is compared with α over the most hypotheses that can still be true. Of a
    pair, no difference and a difference of the margin or more, only one can: so it is the smaller
    of m and the number that is left (Shaffer 1986, Journal of the American Statistical Association
    81:395). NaN is no hypothesis.

    >>> holm(np.array([[0.04, np.nan], [0.001, np.nan], [0.03, np.nan]]))[:, 0].tolist()
    [False, True, False]
    >>> holm(np.array([[0.02, 0.9], [0.9, 0.02]])).tolist()
    [[True, False], [False, True]]
    """
    check_range(0, 1, level=level)
    flat, tested = p.ravel(), ~np.isnan(p)
    order = np.argsort(flat)[: tested.sum()]  # NaN come last
    can_be_true = np.minimum(tested.any(1).sum(), np.arange(len(order), 0, -1))
    falls = np.zeros(flat.size, dtype=bool)
    falls[order] = np.logical_and.accumulate(flat[order] <= level / can_be_true)
    return falls.reshape(p.shape)


def compare(
    frame: pd.DataFrame,
    axis: str,
    baseline: Any,
    metric: str = "recall_at_1",
    pair: Sequence[str] = ("seed",),
) -> pd.DataFrame:
    """Paired differences to a baseline: for every other value of an axis, its mean metric minus the
    baseline's, with the same ``pair`` columns (seed, class split, …), and the 95 % t-interval.

    Raises:
        ValueError: a value lacks a partner, or has two rows for one pair.

    >>> frame = pd.DataFrame({"loss": list("aabb"), "seed": [0, 1, 0, 1], "r": [.5, .6, .6, .8]})
    >>> compare(frame, "loss", "a", "r").round(2)
          mean   low  high    n
    loss
    b     0.15 -0.49  0.79  2.0
    """
    wide = _wide(frame, axis, metric, pair)
    if baseline not in list(wide):
        raise ValueError(f"baseline: no {axis} {baseline!r}; there are {', '.join(map(str, wide))}")
    differences = wide.drop(columns=baseline).sub(wide[baseline], axis=0)
    return differences.apply(interval).T


def ranks(
    frame: pd.DataFrame, axis: str, metric: str = "recall_at_1", pair: Sequence[str] = ("seed",)
) -> pd.DataFrame:
    """Rank of every value of an axis (1 = highest metric; ties share the mean), with t-interval.

    >>> frame = pd.DataFrame({"loss": list("aabb"), "seed": [0, 1, 0, 1], "r": [.5, .6, .6, .8]})
    >>> ranks(frame, "loss", "r")["mean"].to_dict()
    {'a': 2.0, 'b': 1.0}
    """
    return _wide(frame, axis, metric, pair).rank(axis=1, ascending=False).apply(interval).T


def _wide(frame: pd.DataFrame, axis: str, metric: str, pair: Sequence[str]) -> pd.DataFrame:
    """One row for each pair, one column for each value of the axis."""
    wide = frame.pivot(index=list(pair), columns=axis, values=metric)
    if wide.isna().any(axis=None):
        missing = wide.isna().stack()
        raise ValueError(f"no {metric} for {missing[missing].index.tolist()}: nothing to pair with")
    return wide
