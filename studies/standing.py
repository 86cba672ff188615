"""Where a new loss stands among those of a study, by a rule that the choice of a rival cannot bend.

**Better than the best.** The loss with the highest mean is in part the luckiest. So no rival is
chosen: a loss is better than the best if it is better than *every* one of them, each by its own
test, and its p-value is the largest of these (an intersection-union test, which needs no correction
for the number of rivals).

**One test** compares two losses by their differences in the same repetitions, d₁ … dₙ, and takes
the larger of two p-values. The sign-flip test is exact. The t-test adds what repetitions cannot
show: Var(mean d) = s² (1/n + r/(1 − r)) + τ² (1/S + 1/S'), with s the spread of d, r the share of
test classes that two repetitions have in common (Nadeau and Bengio 2003), S and S' the number of
searches, and τ the luck of a recipe, estimated from all losses of the study.

**Many questions** are asked of one loss: in each regime, whether it beats the best and the best of
its family. Holm's correction holds the chance of any false "better" at 5 %, all questions together;
a regime that has not been judged counts as a p-value of 1. ``alarms`` measures that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit.study import interval

LEVEL = 0.05
MARGIN = 0.01  # of Recall@1: a difference of one point either way is none
_EXACT = 14  # repetitions: beyond, signs are drawn


@dataclass(frozen=True)
class Standing:
    """A loss among the arms of one study, by Recall@1 in the same n repetitions.

    ``arms`` has one row for each arm, best first: family (None: no rival, as raw pixels), mean,
    low, high (its score and 95 % t-interval), difference, difference_low, difference_high (the loss
    minus the arm, at 95 %), flip and p_t (two-sided p-values) and p, the larger one. ``own`` is the
    loss's score; ``error`` the standard error against ``best``.
    """

    arms: pd.DataFrame
    own: pd.Series
    best: str
    family_best: str | None
    p_best: float  # of "better than every rival"
    p_family: float  # of "better than every rival of its family"
    p_worse: float  # of "worse than some rival", by Bonferroni's correction over all of them
    luck: float  # τ
    error: float
    n: int

    def verdict(self, adjusted_p: float) -> str:
        """In a word against the best, with the p-value of ``p_best`` after Holm's correction."""
        if adjusted_p <= LEVEL:
            return "better"
        if self.p_worse <= LEVEL:
            return "worse"
        half = stats.t.ppf(0.95, self.n - 1) * self.error  # two one-sided tests at 5 %
        within = abs(self.arms.loc[self.best, "difference"]) + half < MARGIN
        return "no difference" if within else "undecided"


def standing(
    rows: pd.DataFrame,
    evidence: pd.DataFrame,
    families: Mapping[str, str | None],
    family: str,
    overlap: float = 0.0,
) -> Standing:
    """Where the loss whose ``rows`` these are stands among the arms of the ``evidence``.

    Both have columns repetition, search and recall_at_1, and the evidence also arm; arms without a
    score in each of the repetitions of ``rows`` are left out. ``families`` tells that of each arm,
    None where it is no rival; ``overlap`` is r above.
    """
    mine = rows.set_index("repetition").sort_index()
    new, searches = mine["recall_at_1"], mine["search"].to_numpy()
    wide = evidence.pivot(index="repetition", columns="arm", values="recall_at_1")
    wide = wide.reindex(new.index).dropna(axis=1)
    rivals = [arm for arm in wide if families.get(arm)]
    luck = tuning_luck(wide[rivals].to_numpy(), searches)
    d, correction = new.to_numpy()[:, None] - wide.to_numpy(), overlap / (1 - overlap)
    tests = paired(d, correction, luck, len(np.unique(searches)))
    arms = wide.apply(interval).T[["mean", "low", "high"]].join(tests.set_index(wide.columns))
    arms.insert(0, "family", [families.get(arm) for arm in arms.index])
    arms = arms.sort_values("mean", ascending=False, kind="stable")
    others = arms.loc[arms.index.isin(rivals)]
    relatives = others[others["family"] == family]
    worse = others.loc[others["difference"] < 0, "p"]
    return Standing(
        arms=arms.drop(columns="error"),
        own=interval(new),
        best=str(others.index[0]),
        family_best=str(relatives.index[0]) if len(relatives) else None,
        p_best=_beats_all(others),
        p_family=_beats_all(relatives) if len(relatives) else np.nan,
        p_worse=min(1.0, float(len(others) * worse.min())) if len(worse) else 1.0,
        luck=luck,
        error=float(others["error"].iloc[0]),
        n=len(new),
    )


def questions(found: Mapping[str, Standing], regimes: Sequence[str]) -> pd.DataFrame:
    """All questions that are asked of a loss: index (regime, against), columns p and holm.

    A regime without a standing, and a family without a rival, count as a p-value of 1.
    """
    p = {}
    for regime in regimes:
        at = found.get(regime)
        p[regime, "best"] = at.p_best if at else 1.0
        p[regime, "family"] = at.p_family if at and at.family_best else 1.0
    frame = pd.DataFrame({"p": pd.Series(p)}).rename_axis(["regime", "against"])
    return frame.assign(holm=holm(frame["p"].tolist()))


# The tests ------------------------------------------------------------------------------------


def _beats_all(rivals: pd.DataFrame) -> float:
    """The p-value of being better than each: the largest, and 1 where one is not beaten at all."""
    return float(rivals["p"].where(rivals["difference"] > 0, 1.0).max())


def paired(d: np.ndarray, correction: float, luck: float = 0.0, searches: int = 1) -> pd.DataFrame:
    """Differences (n, A) in the same repetitions -> one row for each arm; r/(1 − r) corrects."""
    n, mean = len(d), d.mean(0)
    of_recipes = 2 * luck**2 / searches  # both sides have searches of their own
    error = np.sqrt(d.var(0, ddof=1) * (1 / n + correction) + of_recipes)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_t = 2 * stats.t.sf(np.abs(mean) / error, n - 1)
    p_t = np.where(error > 0, p_t, np.where(mean == 0, 1.0, 0.0))
    flip, half = sign_flip(d), stats.t.ppf(0.975, n - 1) * error
    return pd.DataFrame({
        "difference": mean, "difference_low": mean - half, "difference_high": mean + half,
        "flip": flip, "p_t": p_t, "p": np.maximum(flip, p_t), "error": error,
    })  # fmt: skip


def sign_flip(d: np.ndarray) -> np.ndarray:
    """Two-sided p-values of mean differences (n, A) being 0, by flipping signs: (A,).

    The share of all 2ⁿ choices of signs that give a mean at least as far from 0; beyond 14
    repetitions, of 16,384 that are drawn.

    >>> sign_flip(np.array([[1.0], [2.0], [3.0]]))
    array([0.25])
    """
    found = np.abs(_signs(len(d)) @ d)
    return (found >= np.abs(d.sum(0)) * (1 - 1e-12) - 1e-15).mean(0)


@cache
def _signs(n: int) -> np.ndarray:
    """Half of all choices of n signs, as all have an opposite; or many drawn, and no flip."""
    if n <= _EXACT:
        return 1.0 - 2.0 * (np.arange(2 ** (n - 1))[:, None] >> np.arange(n) & 1)
    drawn = np.random.default_rng(0).choice([-1.0, 1.0], (2**_EXACT, n))
    drawn[0] = 1.0
    return drawn


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's adjusted p-values: one that is at most 5 % stands, all questions taken together.

    With p₍₁₎ ≤ … ≤ p₍ₘ₎: the i-th becomes max over j ≤ i of (m − j + 1) p₍ⱼ₎, at most 1.

    >>> holm([0.01, 0.04, 1.0, 0.02])
    array([0.04, 0.08, 1.  , 0.06])
    """
    x = np.asarray(p, dtype=float)
    adjusted = np.maximum.accumulate(np.sort(x) * np.arange(len(x), 0, -1)).clip(max=1.0)
    return adjusted[np.argsort(np.argsort(x, kind="stable"))]


def tuning_luck(scores: np.ndarray, searches: np.ndarray) -> float:
    """τ: how far recipes of equal searches bring an arm apart, from scores (n, A) of all arms.

    With m the mean of an arm over the repetitions of one search, without what all arms share in a
    repetition: τ² = Var_searches(m) − s²/(repetitions of a search), at least 0. Of both terms the
    median over arms counts, as a few of them fail with one of their recipes altogether.

    >>> scores = np.array([[0.5, 0.5], [0.7, 0.5], [0.5, 0.5], [0.7, 0.5]])
    >>> round(tuning_luck(scores, np.array([0, 1, 0, 1])), 3)
    0.148
    """
    between, within = _variances(scores, searches)
    return float(np.sqrt(max(0.0, between - within)))


def _variances(scores: np.ndarray, searches: np.ndarray) -> tuple[float, float]:
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


# False alarms ---------------------------------------------------------------------------------


class Model:
    """What the scores of a study's rivals are made of, with which more such studies can be drawn.

    A score is its arm's mean + what all arms share in the repetition + the luck of the arm's recipe
    in that search + a rest. The last two are scaled up, since means were taken off them. Lucks are
    those of the better half of the arms: where training fails with some recipes, luck is another
    thing.
    """

    def __init__(self, evidence: pd.DataFrame, families: Mapping[str, str | None]) -> None:
        wide = evidence.pivot(index="repetition", columns="arm", values="recall_at_1")
        wide = wide[[arm for arm in wide if families.get(arm)]]
        by_repetition = evidence.drop_duplicates("repetition").set_index("repetition")["search"]
        (n, A), scores = wide.shape, wide.to_numpy()
        self.names = [str(name) for name in wide]
        self.searches = by_repetition.reindex(wide.index).to_numpy()
        self.means, self.shared = scores.mean(0), scores.mean(1) - scores.mean()
        rest = scores - self.means - self.shared[:, None]
        self.lucks, taken = np.zeros(1), 1
        if luck := tuning_luck(scores, self.searches):
            names = np.unique(self.searches)
            taken = len(names)
            each = np.stack([rest[self.searches == name].mean(0) for name in names])  # (S, A)
            rest = rest - each[np.searchsorted(names, self.searches)]
            part = luck / np.sqrt(_variances(scores, self.searches)[0])  # the rest: repetitions
            part *= np.sqrt(taken / (taken - 1) * A / (A - 1))
            self.lucks = part * each[:, self.means >= np.median(self.means)].ravel()
        self.rests = rest * np.sqrt(n / (n - taken) * A / (A - 1))

    def draw(self, rng: np.random.Generator, twin: int) -> tuple[np.ndarray, np.ndarray]:
        """Another study (n, A), and the scores (n,) of a copy of one arm with seeds of its own.

        Rests are drawn with replacement, those of one repetition together, as losses may find the
        same test classes hard; lucks for each arm and search, with either sign.
        """
        n, A = self.rests.shape
        place = np.unique(self.searches, return_inverse=True)[1]  # (n,)
        luck = rng.choice(self.lucks, (place.max() + 1, A + 1))  # the copy comes last
        luck *= rng.choice([-1.0, 1.0], luck.shape)
        rests = self.rests[rng.integers(n, size=n)]  # (n, A)
        own = self.rests[rng.integers(n, size=n), twin]  # (n,)
        arms = np.r_[np.arange(A), twin]
        scores = self.means[arms] + self.shared[:, None] + luck[place] + np.c_[rests, own]
        return scores[:, :A], scores[:, A]


def alarms(
    studies: Mapping[str, pd.DataFrame],
    families: Mapping[str, str | None],
    comparisons: int = 1000,
    *,
    of: str | None = None,
    overlaps: Mapping[str, float] | None = None,
    gain: float = 0.0,
    seed: int = 0,
) -> pd.Series:
    """How often a copy of a known loss under another name is called better: in each of many
    comparisons a study is drawn anew for every regime (see ``Model``), with a copy of one arm.

    ``studies`` maps each regime to its evidence. ``of`` names the arm that is copied, ``"best"``
    the one with the highest mean in each regime, the hardest case; without it, each comparison
    draws one. ``gain`` is added to the copy's scores: with it, the share is the rule's power.

    Index: share, low, high (Clopper and Pearson's 95 % interval), better, comparisons.
    """
    rng = np.random.default_rng(seed)
    models = {regime: Model(frame, families) for regime, frame in studies.items()}
    common = sorted(set.intersection(*(set(each.names) for each in models.values())))
    better = 0
    for _ in range(comparisons):
        drawn = of if of not in (None, "best") else str(rng.choice(common))
        p = []
        for regime, each in models.items():
            arm = each.names[int(each.means.argmax())] if of == "best" else drawn
            scores, own = each.draw(rng, each.names.index(arm))
            how = tuning_luck(scores, each.searches), len(np.unique(each.searches))
            d, r = own[:, None] + gain - scores, (overlaps or {}).get(regime, 0.0)
            mine = [families[name] == families[arm] for name in each.names]
            for rivals in (d, d[:, mine]):
                p.append(1.0)
                if rivals.mean(0).min() > 0:  # else no test is needed
                    p[-1] = _beats_all(paired(rivals, r / (1 - r), *how))
        better += bool((holm(p) <= LEVEL).any())
    ends = stats.binomtest(better, comparisons).proportion_ci(method="exact")
    return pd.Series({
        "share": better / comparisons, "low": ends.low, "high": ends.high,
        "better": better, "comparisons": comparisons,
    })  # fmt: skip
