"""Evidence of one condition: its scores, its failed searches, and the luck of what it compares."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from dmlkit import losses, statistics
from dmlkit.statistics import NO_LUCK, Luck
from studies import claims
from studies.rules import DEFAULTS, Arm, arms

#: What training begins with: the first of these that a condition has a score of.
START = ("untrained network", "pretrained network", "random head", "untouched features")
UNTRAINED = "below what training began with"


def untrained(means: pd.Series) -> list[str]:
    """Of the means of arms, those below what training began with (``START``): they did not train.

    Not raw pixels: these have another score, which depends on the pictures, and a network may be
    on its way to it.
    """
    start = next((means[name] for name in START if name in means), -math.inf)
    return [arm for arm in means.index if means[arm] < start]


def plain(names: Iterable[str]) -> list[str]:
    """Of a study's arms, those that are a loss of the table, or DREML, with nothing added."""
    known = {entry.name for entry in losses.entries()} | {"dreml"}
    return [name for name in names if name in known]


def arm_of(term: str) -> str:
    """The arm of a sum's term, "arm" or "arm @ metric"."""
    return term.partition(" @ ")[0]


def metric_of(term: str, usual: str) -> str:
    """The metric of a sum's term."""
    return term.partition(" @ ")[2] or usual


@dataclass(frozen=True)
class Condition:
    """Evidence of one condition, by plain names of arms, and what the one test must know of it.

    ``rows`` has the columns arm, repetition, search and the scores; ``made`` tells what an arm is
    made of; ``better`` which restriction of an arm validates better than the arm itself in a
    search, and by how much; ``borrowed`` which searches failed where recipes are from elsewhere.
    """

    name: str
    rows: pd.DataFrame
    overlap: float
    made: Mapping[str, Arm]
    better: Mapping[tuple[str, int], tuple[str, float]] = field(default_factory=dict)
    borrowed: Mapping[tuple[str, int], str] = field(default_factory=dict)
    _wide: dict[str, pd.DataFrame] = field(default_factory=dict, init=False, repr=False)

    def wide(self, metric: str = "recall_at_1") -> pd.DataFrame:
        """A score of all arms, (repetitions, arms)."""
        if metric not in self._wide:  # most rows of the ledger ask for the same ones
            self._wide[metric] = self.rows.pivot(index="repetition", columns="arm", values=metric)
        return self._wide[metric].copy()

    def rivals(self, metric: str = "recall_at_1") -> pd.DataFrame:
        """As ``wide``, for comparing losses: no loss loses to its own restriction. Where that one
        validates better, its repetitions of that search are the loss's. (An addition is compared
        with its loss as searched: both with equally many candidates.)"""
        wide, searches = self.wide(metric), self.searches
        for (arm, search), (restricted, _) in self.better.items():
            mine = searches[searches == search].index
            wide.loc[mine, arm] = wide.loc[mine, restricted]
        return wide

    @cached_property
    def searches(self) -> pd.Series:
        """The search of each repetition."""
        return self.rows.drop_duplicates("repetition").set_index("repetition")["search"]

    def source(self, arm: str) -> str:
        """The arm whose recipes an arm has: its own, or another's."""
        made = self.made.get(arm)
        return (made and made.recipe_of) or arm

    def base(self, arm: str) -> str:
        """The loss whose candidates an arm shares."""
        made = self.made.get(arm)
        return (made and made.points) or arm

    def luck(self, metric: str = "recall_at_1") -> Luck:
        """That of a difference between two losses, without those that ``failed``."""
        return self._luck(self.wide(metric), self._broken())

    def _luck(self, wide: pd.DataFrame, lost: Collection[str]) -> Luck:
        known = wide[plain(wide)].dropna(axis=1)
        return statistics.luck(known.to_numpy(), self._of(wide), known.columns.isin(lost))

    @cached_property
    def failed(self) -> dict[tuple[str, int], str]:
        """The searches that failed, and why: all of an arm that did not train (``untrained``), far
        below the arm's other searches (by Recall@1, see ``statistics.failed``), or its restriction
        validates better, by twice the luck of a difference or more."""
        wide = self.wide().dropna(axis=1)
        tuned = [arm for arm in wide if arm in self.made and self.source(arm) == arm]
        names = [int(name) for name in np.unique(self._of(wide))]
        lost = {*untrained(wide.mean())} & {*tuned}
        found = {(arm, name): UNTRAINED for arm in lost for name in names}
        sound = wide[[arm for arm in tuned if arm not in lost]]
        far = np.argwhere(statistics.failed(sound.to_numpy(), self._of(wide)))
        found |= {(sound.columns[arm], names[s]): "far below its twin" for s, arm in far}
        edge = 2 * self._luck(wide, {arm for arm, _ in found}).sd
        below = {
            k: f"validates {100 * by:.1f} points below {part}, {100 * edge:.1f} may be luck"
            for k, (part, by) in self.better.items()
            if by > edge
        }
        return {**self.borrowed, **found, **below}

    def _broken(self) -> set[str]:
        return {arm for arm, _ in self.failed}

    def lost(self, names: Iterable[str]) -> list[str]:
        """Of these arms, those of which a search failed, or one whose recipe they have."""
        broken = self._broken()
        return [arm for arm in names if {arm, self.source(arm)} & broken]

    def sum_of(self, terms: Mapping[str, float], metric: str) -> pd.Series:
        """A sum of scores in each repetition, of weights by "arm" or "arm @ metric"."""
        wide = {at: self.wide(at) for at in {metric_of(term, metric) for term in terms}}
        each = [w * wide[metric_of(term, metric)][arm_of(term)] for term, w in terms.items()]
        return sum(each[1:], each[0])

    def kind(self, groups: Mapping[str, Mapping[str, float]], metric: str) -> tuple[Luck, float]:
        """The luck of a sum of scores, and the sum of squared weights of its pairs.

        ``groups`` holds the weights of terms ("arm" or "arm @ metric") by the loss whose candidates
        they share. Three kinds are told apart: the same recipe on both sides; a loss against itself
        with an addition (SEC, L2, SEE), each group a pair; and any others, two losses that were
        tuned apart. Pairs of one loss have luck of their own, by their own metrics, which is shrunk
        to their kind's, and that to the last one. One recipe has that of its kind alone.
        """
        own: dict[str, dict[str, float]] = {}
        for base, weights in groups.items():
            for term, weight in weights.items():
                if (source := self.source(arm_of(term))) != DEFAULTS:  # which no search found
                    mine = own.setdefault(base, {})
                    mine[source] = mine.get(source, 0.0) + weight
        sizes = {base: sum(w**2 for w in mine.values()) / 2 for base, mine in own.items()}
        if not own:
            return NO_LUCK, 0.0
        if sum(sizes.values()) < 1e-12:  # one recipe, of two trainings or of two readings of one
            of = [sum(w**2 for w in groups[base].values()) / 2 for base in own]
            return self._same(metric), sum(of)
        metrics = {metric_of(term, metric) for weights in groups.values() for term in weights}
        wide = sum(map(self.wide, sorted(metrics))) / len(metrics)
        broken = self._broken()  # what failed tells nothing of luck
        common, pairs = self._luck(wide, broken), sum(sizes.values())
        if any(abs(sum(mine.values())) > 1e-9 for mine in own.values()):
            return common, pairs
        each = {
            base: self.sum_of(groups[base], metric) / math.sqrt(sizes[base])
            for base in own
            if not broken & {*map(arm_of, groups[base])}
        }
        added = any(self._is_addition(arm) for mine in own.values() for arm in mine)
        kind = self._additions(wide, common) if added else common
        kept = pd.DataFrame(each).dropna(axis=1)
        return statistics.pair_luck(kept.to_numpy(), self._of(kept), kind), pairs

    def _of(self, wide: pd.DataFrame) -> np.ndarray:
        return self.searches[wide.index].to_numpy()

    def _is_addition(self, arm: str) -> bool:
        made = self.made.get(arm)
        return bool(made and (made.off or made.per_step))

    def _additions(self, wide: pd.DataFrame, common: Luck) -> Luck:
        """The luck of losses against themselves with SEC, L2 or SEE."""
        wide, failed = wide.dropna(axis=1), self._broken()
        known = arms()  # no other setting of theirs is another
        pairs = {a: self.base(a) for a in wide if a in known and self._is_addition(a)}
        pairs = {a: b for a, b in pairs.items() if b in wide and not {a, b} & failed}
        d = np.array([wide[a] - wide[b] for a, b in pairs.items()]).T
        return statistics.pair_luck(d, self._of(wide), common, list(pairs.values()))

    def _same(self, metric: str) -> Luck:
        """The luck of two trainings that have one recipe: what they differ in may suit it."""
        wide, failed = self.wide(metric).dropna(axis=1), self._broken()
        pairs = {a: self.source(a) for a in wide if self.source(a) in wide and self.source(a) != a}
        d = np.array([wide[a] - wide[b] for a, b in pairs.items() if b not in failed]).T
        return statistics.pair_luck(d, self._of(wide))

    def measured(
        self, values: pd.Series, groups: Mapping[str, Mapping[str, float]], metric: str
    ) -> claims.Measured:
        """Values in each repetition that are a sum of scores, for the one test."""
        luck, pairs = self.kind(groups, metric)
        of = self.searches[values.index].to_numpy()
        return claims.Measured(values.to_numpy(), self.overlap, luck, of, pairs)
