"""Statistics of paired repetitions: intervals, sign flips, hypotheses tested together, power."""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit.checks import check_choice, check_positive, check_range


def interval(
    values: Sequence[float] | np.ndarray | pd.Series, level: float = 0.95, overlap: float = 0.0
) -> pd.Series:
    """Mean and t-interval of values: mean ± t · s · √(1/n + r/(1 − r)) (none is known at n = 1).

    Independent values have no ``overlap`` r. Repetitions whose classes overlap vary less between
    each other than a new one would: r is the share of test classes that two of them have in common,
    which stands for the correlation of their scores (Nadeau and Bengio 2003, Machine Learning 52,
    "Inference for the Generalization Error").

    Raises:
        ValueError: an overlap that is not from 0 to below 1.

    >>> interval([1.0, 2.0, 3.0]).round(2).to_dict()
    {'mean': 2.0, 'low': -0.48, 'high': 4.48, 'n': 3.0}
    >>> interval([1.0, 2.0, 3.0], overlap=0.25).round(2)["high"].item()
    5.51
    """
    check_range(0, 1, level=level)
    x = np.asarray(values, dtype=float)
    n = len(x)
    half = np.nan
    if n > 1:
        t = stats.t.ppf((1 + level) / 2, n - 1)
        half = t * x.std(ddof=1) / math.sqrt(effective(n, overlap))
    mean = x.mean() if n else np.nan
    return pd.Series({"mean": mean, "low": mean - half, "high": mean + half, "n": float(n)})


def effective(n: int, overlap: float = 0.0) -> float:
    """The effective number of repetitions: 1/n_eff = 1/n + r/(1 − r), r the ``overlap``.

    >>> effective(12), round(effective(12, 0.2174), 2)
    (12.0, 2.77)
    """
    check_range(0, 1, overlap=overlap)
    return 1 / (1 / n + overlap / (1 - overlap))


def sign_flips(
    values: Sequence[float] | np.ndarray | pd.Series, alternative: str = "two-sided"
) -> Any:
    """The p-value of a sign-flip test that independent values (n,) are symmetric about 0; of the
    columns of (n, A), one each.

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
    sums, seen = _signs(len(x)) @ x, x.sum(0)
    if alternative == "two-sided":
        sums, seen = np.abs(sums), np.abs(seen)
    # Equal sums may be rounded differently.
    p = (sums >= seen - 1e-12 * np.abs(x).sum(0)).mean(0)
    return float(p) if x.ndim == 1 else p


@cache
def _signs(n: int) -> np.ndarray:
    """All choices of n signs, or many: (F, n)."""
    if n <= 16:
        return 1.0 - 2.0 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    signs = np.random.default_rng(0).integers(0, 2, (100_000, n), dtype=np.int8) * 2 - 1
    signs[0] = 1
    return signs


# One test -------------------------------------------------------------------------------------


def paired(
    d: np.ndarray,
    null: float = 0.0,
    overlap: float = 0.0,
    luck: float = 0.0,
    searches: int = 1,
    recipes: float = 2.0,
) -> pd.DataFrame:
    """The one test of the studies, of differences d (n, A) in the same n repetitions: A rows.

        Var(mean d) = s² (1/n + r/(1 − r)) + τ² w/S

    s is the spread of d, r the ``overlap`` (see ``interval``), τ the ``luck`` of a recipe (see
    ``luck``), S the number of ``searches`` that the repetitions share out, and w, ``recipes``, the
    sum of the squared weights with which recipes enter: 2 for a difference of two arms that were
    tuned apart, 0 where both sides have the same recipe.

    Columns: difference; low, high (95 %, by Student's t); error (standard); p_t, flips and p, the
    larger of these two, that the mean is ``null`` (two-sided).

    >>> paired(np.array([[1.0], [2.0], [3.0]])).round(2).iloc[0].to_dict()
    {'difference': 2.0, 'low': -0.48, 'high': 4.48, 'error': 0.58, 'p_t': 0.07, 'flips': 0.25, \
'p': 0.25}
    """
    n, mean = len(d), d.mean(0)
    error = np.sqrt(d.var(0, ddof=1) / effective(n, overlap) + recipes * luck**2 / searches)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_t = 2 * stats.t.sf(np.abs(mean - null) / error, n - 1)
    p_t = np.where(error > 0, p_t, np.where(mean == null, 1.0, 0.0))
    flips, half = sign_flips(d - null), stats.t.ppf(0.975, n - 1) * error
    return pd.DataFrame({
        "difference": mean, "low": mean - half, "high": mean + half, "error": error,
        "p_t": p_t, "flips": flips, "p": np.maximum(flips, p_t),
    })  # fmt: skip


def luck(scores: np.ndarray, searches: np.ndarray) -> float:
    """τ: how far recipes of equal searches bring an arm apart, from scores (n, A) of all arms.

    With m the mean of an arm over the repetitions of one search, without what all arms share in a
    repetition: τ² = Var_searches(m) − s²/(repetitions of a search), at least 0. Of both terms the
    median over arms counts, as a few of them fail with one of their recipes altogether.

    >>> scores = np.array([[0.5, 0.5], [0.7, 0.5], [0.5, 0.5], [0.7, 0.5]])
    >>> round(luck(scores, np.array([0, 1, 0, 1])), 3)
    0.148
    """
    between, within = variances(scores, searches)
    return float(np.sqrt(max(0.0, between - within)))


def variances(scores: np.ndarray, searches: np.ndarray) -> tuple[float, float]:
    """The variance of an arm's mean in one search, and how much of it repetitions explain."""
    names, counts = np.unique(searches, return_counts=True)
    S, A = len(names), scores.shape[1]
    if S < 2 or counts.min() < 2 or A < 2:
        return 0.0, 0.0
    rest = scores - scores.mean(1, keepdims=True)
    groups = [rest[searches == name] for name in names]
    between = np.var([group.mean(0) for group in groups], axis=0, ddof=1)  # (A,)
    within = np.mean([group.var(0, ddof=1) / len(group) for group in groups], axis=0)  # (A,)
    # The median of such a variance is below its mean. Without what is shared, A − 1 of A parts of
    # an arm's own variance are left.
    of_mean, kept = stats.chi2.median(S - 1) / (S - 1), 1 - 1 / A
    return float(np.median(between) / of_mean / kept), float(np.median(within) / kept)


def word(rule: str, effect: float, low: float, high: float, margin: float) -> str:
    """What an effect with its 95 % interval says of a claim whose smallest effect is the margin m.

    - ``positive``, an effect above 0: *holds here* if low > 0 and effect ≥ m, *smaller than
      claimed* if low > 0 and effect < m, *fails here* if low ≤ 0 and high < m;
    - ``equivalent``, no difference: *holds here* inside ± m, *fails here* wholly outside;
    - ``below``, something stays under m: *holds here* if high < m, *fails here* if low > m;

    else *open*.

    >>> word("positive", 2.0, 0.5, 3.5, 1.0), word("positive", -0.1, -0.6, 0.4, 1.0)
    ('holds here', 'fails here')
    """
    check_choice(("positive", "equivalent", "below"), rule=rule)
    if rule == "positive":
        if low > 0:
            return "holds here" if effect >= margin else "smaller than claimed"
        return "fails here" if high < margin else "open"
    least = -margin if rule == "equivalent" else -math.inf
    if least < low and high < margin:
        return "holds here"
    return "fails here" if low > margin or high < least else "open"


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


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values of hypotheses asked together, (m,), or of pairs, (m, 2): those that
    are at most 5 % stand, and any false one among them comes in at most 5 of 100 cases.

    The i-th smallest p is multiplied by the most hypotheses that can still be true. Of a pair, no
    effect and an effect of the margin or more, only one can: so that is the smaller of m and the
    number that is left (Shaffer 1986, Journal of the American Statistical Association 81:395). NaN
    is no hypothesis.

    >>> holm([0.01, 0.04, 1.0, 0.02]).tolist()
    [0.04, 0.08, 1.0, 0.06]
    >>> (holm([[0.02, 0.9], [0.9, 0.02]]) <= 0.05).tolist()
    [[True, False], [False, True]]
    """
    x = np.asarray(p, dtype=float)
    flat, tested = x.ravel(), ~np.isnan(x)
    order = np.argsort(flat, kind="stable")[: tested.sum()]  # NaN come last
    most = tested.any(-1).sum() if x.ndim > 1 else len(order)
    can_be_true = np.minimum(most, np.arange(len(order), 0, -1))
    found = np.full(flat.size, np.nan)
    found[order] = np.maximum.accumulate(np.minimum(1, flat[order] * can_be_true))
    return found.reshape(x.shape)
