"""Where a new loss stands among those of a study, by a rule that the choice of a rival cannot bend.

**Better than the best.** The loss with the highest mean is in part the luckiest. So no rival is
chosen: a loss is better than the best if it is better than *every* one of them, each by its own
test, and its p-value is the largest of these (an intersection-union test, which needs no correction
for the number of rivals).

**One test** compares two losses by their differences in the same repetitions:
``dmlkit.statistics.paired``, with the luck of a recipe estimated from all losses of the study.

**Many questions** are asked of one loss: in each regime, whether it beats the best and the best of
its family. Holm's correction holds the chance of any false "better" at 5 %, all questions together;
a regime that has not been judged counts as a p-value of 1. ``alarms`` measures that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit.statistics import holm, interval, luck, paired, word
from studies.condition import untrained

LEVEL = 0.05
MARGIN = 0.01  # of Recall@1: a difference of one point either way is none


@dataclass(frozen=True)
class Standing:
    """A loss among the arms of one study, by Recall@1 in the same n repetitions.

    ``arms`` has one row for each arm, best first: family (None: no rival, as raw pixels), mean,
    low, high (its score and 95 % t-interval), difference, difference_low, difference_high (the loss
    minus the arm, at 95 %), and error, df, p of ``statistics.paired``. ``own`` is the loss's score;
    ``mean`` the test of the loss against the mean of all rivals.
    """

    arms: pd.DataFrame
    own: pd.Series
    best: str
    family_best: str | None
    p_best: float  # of "better than every rival"
    p_family: float  # of "better than every rival of its family"
    luck: float  # τ of one loss
    mean: pd.Series
    n: int

    def verdict(self, adjusted_p: float) -> str:
        """What becomes of "better than the best", with its p-value after Holm's correction: in the
        words of ``statistics.word``, but that it holds only where every rival is beaten."""
        d, low, high = self.arms.loc[self.best, ["difference", "difference_low", "difference_high"]]
        return word("positive", d, low if adjusted_p <= LEVEL else min(low, 0.0), high, MARGIN)


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
    None where it is no rival, as is one that did not train; ``overlap`` is r above.
    """
    mine = rows.set_index("repetition").sort_index()
    new, searches = mine["recall_at_1"], mine["search"].to_numpy()
    wide = evidence.pivot(index="repetition", columns="arm", values="recall_at_1")
    wide = wide.reindex(new.index).dropna(axis=1)
    families = {**families, **dict.fromkeys(untrained(wide.mean()))}
    rivals = [arm for arm in wide if families.get(arm)]
    lucky, d = luck(wide[rivals].to_numpy(), searches), new.to_numpy()[:, None] - wide.to_numpy()
    how: Any = {"overlap": overlap, "luck": lucky, "searches": searches}
    tests = paired(d, **how)
    of_all = (new - wide[rivals].mean(axis=1)).to_numpy()[:, None]
    tests = tests.rename(columns={"low": "difference_low", "high": "difference_high"})
    own = wide.apply(interval, overlap=overlap).T[["mean", "low", "high"]]
    arms = own.join(tests.set_index(wide.columns))
    arms.insert(0, "family", [families.get(arm) for arm in arms.index])
    arms = arms.sort_values("mean", ascending=False, kind="stable")
    others = arms.loc[arms.index.isin(rivals)]
    relatives = others[others["family"] == family]
    return Standing(
        arms=arms,
        own=interval(new, overlap=overlap),
        best=str(others.index[0]),
        family_best=str(relatives.index[0]) if len(relatives) else None,
        p_best=_beats_all(others),
        p_family=_beats_all(relatives) if len(relatives) else np.nan,
        luck=lucky.sd / np.sqrt(2),
        mean=paired(of_all, pairs=(1 + 1 / len(rivals)) / 2, **how).iloc[0],
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
    return frame.assign(holm=holm(frame["p"].to_numpy()))


# The tests ------------------------------------------------------------------------------------


def _beats_all(rivals: pd.DataFrame) -> float:
    """The p-value of being better than each: the largest, and 1 where one is not beaten at all."""
    return float(rivals["p"].where(rivals["difference"] > 0, 1.0).max())


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
        if tau := luck(scores, self.searches).sd / np.sqrt(2):  # of one arm
            names = np.unique(self.searches)
            taken = len(names)
            each = np.stack([rest[self.searches == name].mean(0) for name in names])  # (S, A)
            rest = rest - each[np.searchsorted(names, self.searches)]
            better = each[:, self.means >= np.median(self.means)].ravel()
            self.lucks = tau * better / np.sqrt(np.mean(better**2))  # repetitions move means, too
        self.rests = rest * np.sqrt(n / (n - taken) * A / (A - 1))

    def draw(self, rng: np.random.Generator, twin: int) -> tuple[np.ndarray, np.ndarray]:
        """Another study (n, A), and the scores (n,) of a copy of one arm with seeds of its own.

        Rests are drawn with replacement, those of one repetition together, as losses may find the
        same test classes hard; lucks for each arm and search, with either sign.
        """
        n, A = self.rests.shape
        place = np.unique(self.searches, return_inverse=True)[1]  # (n,)
        lucks = rng.choice(self.lucks, (place.max() + 1, A + 1))  # the copy comes last
        lucks *= rng.choice([-1.0, 1.0], lucks.shape)
        rests = self.rests[rng.integers(n, size=n)]  # (n, A)
        own = self.rests[rng.integers(n, size=n), twin]  # (n,)
        arms = np.r_[np.arange(A), twin]
        scores = self.means[arms] + self.shared[:, None] + lucks[place] + np.c_[rests, own]
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
            how: Any = {
                "luck": luck(scores, each.searches), "searches": each.searches,
                "overlap": (overlaps or {}).get(regime, 0.0),
            }  # fmt: skip
            d = own[:, None] + gain - scores
            mine = [families[name] == families[arm] for name in each.names]
            each_p = np.ones(len(mine))
            if (d.mean(0) > 0)[mine].all():  # else no test is needed
                each_p = np.where(d.mean(0) > 0, paired(d, **how)["p"], 1.0)
            p += [each_p.max(), each_p[mine].max()]
        better += bool((holm(p) <= LEVEL).any())
    ends = stats.binomtest(better, comparisons).proportion_ci(method="exact")
    return pd.Series({
        "share": better / comparisons, "low": ends.low, "high": ends.high,
        "better": better, "comparisons": comparisons,
    })  # fmt: skip
