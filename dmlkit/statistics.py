"""Statistics of paired repetitions: intervals, the luck of a search, hypotheses tested together,
power."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import stdtr, stdtrit

from dmlkit.checks import check_choice, check_positive, check_range

#: A search failed that brought its arm further below the arm's other searches than this many robust
#: standard deviations (a modified z-score; Iglewicz and Hoaglin 1993).
FAR = 3.5
MANY = 20
#: The common luck counts as much as this many pairs of a comparison's own.
PRIOR = 2


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


# The luck of a search -------------------------------------------------------------------------


class Luck(NamedTuple):
    """τ², the variance that another search brings to a difference of two arms (an unbiased
    estimate, which may be below 0), and the standard error of this estimate.

    >>> Luck(0.0004).sd
    0.02
    """

    variance: float = 0.0
    error: float = 0.0

    @property
    def sd(self) -> float:
        """τ."""
        return math.sqrt(max(0.0, self.variance))


#: Of two trainings that no search came before.
NO_LUCK = Luck()


def luck(scores: np.ndarray, searches: np.ndarray, lost: np.ndarray | None = None) -> Luck:
    """The luck of a difference between two arms that were tuned apart, from the scores (n, A) of
    many arms, without those that are ``lost`` (A,), as a search of theirs ``failed``.

    A score without what all arms share in its repetition has half a difference's luck.

    >>> scores = np.array([[0.5, 0.5, 0.4], [0.7, 0.5, 0.3], [0.5, 0.5, 0.4], [0.7, 0.5, 0.3]])
    >>> round(luck(scores, np.array([0, 1, 0, 1])).sd, 3)
    0.153
    """
    kept = scores[:, ~(failed(scores, searches).any(0) if lost is None else lost)]
    A = kept.shape[1]
    if A < 2:
        return NO_LUCK
    rest = kept - kept.mean(1, keepdims=True)
    return pair_luck(rest * math.sqrt(2 * A / (A - 1)), searches)


def pair_luck(
    d: np.ndarray,
    searches: np.ndarray,
    common: Luck | None = None,
    bases: Sequence[object] | None = None,
) -> Luck:
    """The luck of one kind of comparison, from its own pairs, differences d (n, J).

    In one search the mean of m repetitions has the variance τ² + s²/m, s the spread within
    searches: so τ² = Var_searches − s²/m, the mean over the pairs' ``bases`` (pairs that share an
    arm count once). Few pairs tell little: their estimate is shrunk to ``common``, τ₀², as if that
    were k pairs more:

        τ² = (J τ²_own + k τ₀²) / (J + k),   k = 2 (``PRIOR``)

    A sum at or below 0, as one pair of much scatter may give, is no luck: then τ₀² stands alone.

    The error is that of a mean of J variances between S searches, by their scatter, but no less
    than that of χ² with S − 1 degrees of freedom each.

    >>> d = np.array([[0.0], [3.0], [0.0], [3.0]])
    >>> pair_luck(d, np.array([0, 1, 0, 1]), Luck(1.5)).variance
    2.5
    """
    S = len(np.unique(searches))
    if S < 2 or not d.size or len(d) < 2 * S:
        return common or NO_LUCK
    between, within, m = _nested(d, searches)
    of = np.unique([str(base) for base in bases], return_inverse=True)[1] if bases else None
    each, J = between - within / m, d.shape[1]
    if of is not None:
        each = np.bincount(of, each) / np.bincount(of)
        J = len(each)
    own, least = float(each.mean()), 2 * between.mean() ** 2 / (S - 1)
    error = math.sqrt(max(least, each.var(ddof=1) if J > 1 else 0.0) / J)
    if common is None:
        return Luck(own, error)
    both = np.array([J, PRIOR]) / (J + PRIOR)
    shrunk = float(both @ [own, common.variance])
    if shrunk <= 0:
        return common
    return Luck(shrunk, math.hypot(*(both * [error, common.error])))


def failed(scores: np.ndarray, searches: np.ndarray) -> np.ndarray:
    """Which searches of which arms failed, (S, A), from scores (n, A): those that brought an arm
    more than 3.5 (``FAR``) robust standard deviations below its other searches.

    Of all arms without what they share in a repetition, the median of |mean in a search − mean in
    all| tells that deviation; fewer than 20 (``MANY``) arms tell none.
    """
    names = np.unique(searches)
    if len(names) < 2 or scores.shape[1] < MANY:
        return np.zeros((len(names), scores.shape[1]), dtype=bool)
    rest = scores - np.median(scores, axis=1, keepdims=True)
    means = np.stack([rest[searches == name].mean(0) for name in names])  # (S, A)
    away = means - means.mean(0)
    return away < -FAR * np.median(np.abs(away)) / stats.norm.ppf(0.75)


def _nested(d: np.ndarray, searches: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Of differences d (n, J): variance between the means of searches, variance within searches,
    (J,) each, and the (harmonic) number of repetitions in a search."""
    groups = [d[searches == name] for name in np.unique(searches)]
    counts = np.array([len(group) for group in groups])
    between = np.var([group.mean(0) for group in groups], axis=0, ddof=1)
    squares = sum(((group - group.mean(0)) ** 2).sum(0) for group in groups)
    return between, squares / (len(d) - len(groups)), float(len(counts) / (1 / counts).sum())


# One test -------------------------------------------------------------------------------------


def paired(
    d: np.ndarray,
    null: float = 0.0,
    overlap: float = 0.0,
    luck: Luck = NO_LUCK,
    searches: int | np.ndarray = 1,
    pairs: float = 1.0,
) -> pd.DataFrame:
    """The one test of the studies, of differences d (n, A) in the same n repetitions: A rows.

        Var(mean d) = s² (1/n + r/(1 − r)) + τ² w Σ m²/n²

    Repetitions are nested in ``searches`` (that of each repetition, or their number S, which take
    turns): s is the spread within searches, r the ``overlap`` (see ``interval``), τ² the ``luck``
    of this kind of comparison, m the repetitions of a search, and w, ``pairs``, the sum of the
    squared weights with which pairs of arms enter: 1 for one pair, 1/J for a mean over J, 1/2 for
    one arm.
    s² has n − S degrees of freedom, τ² those of its error; of the sum they are by Satterthwaite
    (1946, Biometrics Bulletin 2:110).

    Columns: difference; low, high (95 %, by Student's t); error (standard) and df; p that the mean
    is ``null`` (two-sided); least, the difference from null that is found (p < 5 %) in four of five
    such studies.

    >>> paired(np.array([[1.0], [2.0], [3.0]])).round(2).iloc[0].to_dict()
    {'difference': 2.0, 'low': -0.48, 'high': 4.48, 'error': 0.58, 'df': 2.0, 'p': 0.07, \
'least': 3.1}
    """
    n, mean = len(d), d.mean(0)
    of = np.arange(n) % searches if np.ndim(searches) == 0 else np.asarray(searches)
    counts = np.unique(of, return_counts=True)[1]
    if len(counts) == n:  # each repetition has a search of its own: its spread is all there is
        of, counts, luck = np.zeros(n), np.array([n]), NO_LUCK
    within = _nested(d, of)[1] if len(counts) > 1 else d.var(0, ddof=1)
    part, factor = within / effective(n, overlap), pairs * (counts**2).sum() / n**2
    variance = np.maximum(part + factor * luck.variance, part / n)
    doubt = 2 * part**2 / (n - len(counts)) + (factor * luck.error) ** 2
    error = np.sqrt(variance)
    with np.errstate(divide="ignore", invalid="ignore"):
        # A luck below 0 narrows the sum, but tells no more of it than one of 0.
        known = part + factor * max(0.0, luck.variance)
        df = np.maximum(2 * known**2 / doubt, max(1, len(counts) - 1))
        p = 2 * stdtr(df, -np.abs(mean - null) / error)
    p = np.where(error > 0, p, np.where(mean == null, 1.0, 0.0))
    t = stdtrit(df, 0.975)
    half, least = t * error, (t + stdtrit(df, 0.8)) * error
    return pd.DataFrame({
        "difference": mean, "low": mean - half, "high": mean + half, "error": error, "df": df,
        "p": p, "least": least,
    })  # fmt: skip


def word(
    rule: str,
    effect: float,
    low: float,
    high: float,
    margin: float,
    printed: float | None = None,
    least: float = 0.0,
) -> str:
    """What an effect with its 95 % interval says of a claim whose smallest effect is the margin m.

    - ``positive``, an effect above 0. If low > 0: *holds here* if effect ≥ m, else *smaller than
      claimed* if high lies below the size that the paper ``printed``, *smaller here* if high < m,
      else *above 0 here*: whether it reaches m is not told. If high ≤ 0: *reversed here*. Else, if
      high < m: *too small to see here*, a gain of m is ruled out and a smaller one is not; if
      high < printed: *printed size excluded here*;
    - ``equivalent``, no difference: *holds here* inside ± m, *fails here* wholly outside;
    - ``below``, something stays under m: *holds here* if high < m, *fails here* if low > m;

    else *open*, or *cannot be decided here* where the ``least`` difference that four of five such
    studies find is larger than the claim: the printed size, or else m.

    >>> word("positive", 2.0, 0.5, 3.5, 1.0), word("positive", -0.1, -0.6, 0.4, 1.0)
    ('holds here', 'too small to see here')
    >>> word("positive", 0.4, -0.8, 1.6, 1.0, least=1.7)
    'cannot be decided here'
    """
    check_choice(("positive", "equivalent", "below"), rule=rule)
    unknown = "open" if least <= (printed or margin) else "cannot be decided here"
    if rule == "positive":
        if low > 0 and effect >= margin:
            return "holds here"
        if low > 0 and printed and high < printed:
            return "smaller than claimed"
        if low > 0:
            return "smaller here" if high < margin else "above 0 here"
        if high <= 0:
            return "reversed here"
        if high < margin:
            return "too small to see here"
        return "printed size excluded here" if printed and high < printed else unknown
    end = -margin if rule == "equivalent" else -math.inf
    if end < low and high < margin:
        return "holds here"
    return "fails here" if low > margin or high < end else unknown


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


def holm(p: Sequence[float] | np.ndarray, most: int | None = None) -> np.ndarray:
    """Holm's adjusted p-values of hypotheses asked together, of any shape: those that are at most
    5 % stand, and any false one among them comes in at most 5 of 100 cases.

    The i-th smallest p is multiplied by the number that is left, itself counted (Holm 1979,
    Scandinavian Journal of Statistics 6:65), but by no more than can be true at once, where that is
    fewer: ``most`` (Shaffer 1986, Journal of the American Statistical Association 81:395). NaN is
    no hypothesis.

    >>> holm([0.01, 0.04, 1.0, 0.02]).tolist()
    [0.04, 0.08, 1.0, 0.06]
    """
    x = np.asarray(p, dtype=float)
    flat = x.ravel()
    order = np.argsort(flat, kind="stable")[: (~np.isnan(x)).sum()]  # NaN come last
    left = np.minimum(most or len(order), np.arange(len(order), 0, -1))
    found = np.full(flat.size, np.nan)
    found[order] = np.maximum.accumulate(np.minimum(1, flat[order] * left))
    return found.reshape(x.shape)
