"""From the evidence of the studies to the rows of the ledger.

Most claims are contrasts of ``data/studies/claims.toml``, sums of scores. C3, C4, C5 and C8 are
not: they are about the worst, the best and a median, and stand here. A condition is evidence under
plain names: what is trained longer, or in small batches, is there as the loss that it is. A row is
given when all of its arms have all planned repetitions, and not before: what is there sooner is no
sample that the rules chose. But ``photos_whole`` ended with the time of a lent GPU, whatever it had
found: its classes have the mean of the seeds that are there, one or two.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dmlkit import losses, statistics
from dmlkit.statistics import NO_LUCK, Luck
from studies import claims
from studies.check import asked_for
from studies.rules import DEFAULTS, Arm, Protocol, arms, is_part, protocol
from studies.search import best, recipes
from studies.trainings import tables

#: Both passes of the searches from scratch; the second has evidence where it changed a recipe.
TWICE = ("scratch", "scratch_further")
STUDIES = (*TWICE, "claims", "transfer", "wide", "photos", "photos_whole")
#: The methods of the study that C1 to C21 are read from that are one loss and one network.
ELEVEN: tuple[str, ...] = (
    *("triplet_semihard", "lifted_structure", "n_pairs", "structured_clustering", "margin"),
    *("angular", "prototypical", "proxy_triplet", "proxy_nca", "normalized_softmax"),
    "ranked_list",
)
# Said to be the worst (-1) or the best (1) of the eleven, by which score.
_EXTREMES: Mapping[str, tuple[int, str, str]] = {
    "C3": (-1, "triplet_semihard", "recall_at_1"),
    "C4": (1, "structured_clustering", "nmi"),
    "C5": (1, "normalized_softmax", "recall_at_1"),
}
#: C8's losses: the gain of the first by a stronger network, beyond the median gain of the others.
SEVEN: tuple[str, ...] = (
    *("margin", "triplet_semihard", "lifted_structure", "contrastive", "n_pairs"),
    *("prototypical", "normalized_softmax"),
)


@cache
def kept() -> dict[str, pd.DataFrame]:
    """The evidence of every study, without rows that its rules do not ask for as they are now."""
    rules = {name: protocol(name.removesuffix("_further")) for name in STUDIES}
    return {name: asked_for(rules[name], tables(name)[1]) for name in STUDIES}


def complete(rules: Protocol, frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of arms that have all planned repetitions, each once."""
    if not len(frame):
        return pd.DataFrame({"arm": [], "repetition": []})
    planned = set(range(rules.repetitions.count))
    mine = frame[frame["repetition"].isin(planned)].drop_duplicates(["arm", "repetition"])
    return mine[mine.groupby("arm")["repetition"].transform("size") == len(planned)]


def scores(rules: Protocol, frame: pd.DataFrame, metric: str = "recall_at_1") -> pd.DataFrame:
    """A score of all arms that are complete: one row for each repetition, one column for each."""
    whole = complete(rules, frame)
    if not len(whole):
        return pd.DataFrame(index=pd.RangeIndex(rules.repetitions.count, name="repetition"))
    return whole.pivot(index="repetition", columns="arm", values=metric)


# Conditions -----------------------------------------------------------------------------------


def plain(names: Iterable[str]) -> list[str]:
    """Of a study's arms, those that are a loss of the table, or DREML, with nothing added."""
    known = {entry.name for entry in losses.entries()} | {"dreml"}
    return [name for name in names if name in known]


@dataclass(frozen=True)
class Condition:
    """Evidence of one condition, by plain names of arms, and what the one test must know of it.

    ``rows`` has the columns arm, repetition, search and the scores; ``made`` tells what an arm is
    made of; ``better`` which restriction of an arm validates better than the arm itself in a
    search, and by how much.
    """

    name: str
    rows: pd.DataFrame
    overlap: float
    made: Mapping[str, Arm]
    better: Mapping[tuple[str, int], tuple[str, float]] = field(default_factory=dict)

    def wide(self, metric: str = "recall_at_1") -> pd.DataFrame:
        """A score of all arms, (repetitions, arms)."""
        return self.rows.pivot(index="repetition", columns="arm", values=metric)

    def rivals(self, metric: str = "recall_at_1") -> pd.DataFrame:
        """As ``wide``, for comparing losses: no loss loses to its own restriction. Where that one
        validates better, its repetitions of that search are the loss's. (An addition is compared
        with its loss as searched: both with equally many candidates.)"""
        wide, searches = self.wide(metric), self.searches()
        for (arm, search), (restricted, _) in self.better.items():
            mine = searches[searches == search].index
            wide.loc[mine, arm] = wide.loc[mine, restricted]
        return wide

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
        """That of a difference between two losses, see ``statistics.luck``."""
        wide = self.wide(metric).dropna(axis=1)
        return statistics.luck(wide[plain(wide)].to_numpy(), self._of(wide))

    @property
    def failed(self) -> dict[tuple[str, int], str]:
        """The searches that failed, and why: far below the arm's other searches (by Recall@1, see
        ``statistics.failed``), or its restriction validates better, by twice the luck of a
        difference or more."""
        wide = self.wide().dropna(axis=1)
        tuned = wide[[arm for arm in wide if arm in self.made and self.source(arm) == arm]]
        names = np.unique(self._of(wide))
        far = np.argwhere(statistics.failed(tuned.to_numpy(), self._of(wide)))
        found = {(tuned.columns[arm], int(names[s])): "far below its twin" for s, arm in far}
        edge = 2 * self.luck().sd
        below = {k: f"below {part}" for k, (part, by) in self.better.items() if by > edge}
        return found | below

    def kind(self, groups: Mapping[str, Mapping[str, float]], metric: str) -> tuple[Luck, float]:
        """The luck of a sum of scores, and the sum of squared weights of its pairs.

        ``groups`` holds the weights of arms by the loss whose candidates they share. Three kinds
        are told apart: the same recipe on both sides; a loss against itself with an addition (SEC,
        L2, SEE), each group a pair; and any others, two losses that were tuned apart. Pairs of one
        loss have luck of their own, which is shrunk to their kind's, and that to the last one.
        """
        own: dict[str, dict[str, float]] = {}
        for base, weights in groups.items():
            for arm, weight in weights.items():
                if (source := self.source(arm)) != DEFAULTS:  # which no search found
                    mine = own.setdefault(base, {})
                    mine[source] = mine.get(source, 0.0) + weight
        sizes = {base: sum(w**2 for w in mine.values()) / 2 for base, mine in own.items()}
        if sum(sizes.values()) < 1e-12:
            whole = sum(sum(w**2 for w in mine.values()) / 2 for mine in groups.values())
            return (self._same(metric), whole) if own else (NO_LUCK, 0.0)
        common, pairs = self.luck(metric), sum(sizes.values())
        if any(abs(sum(mine.values())) > 1e-9 for mine in own.values()):
            return common, pairs
        wide = self.wide(metric)
        each = {
            base: sum(w * wide[arm] for arm, w in groups[base].items()) / math.sqrt(sizes[base])
            for base in own
        }
        added = any(self._is_addition(arm) for mine in own.values() for arm in mine)
        kind = self._additions(metric, common) if added else common
        kept = pd.DataFrame(each).dropna(axis=1)
        return statistics.pair_luck(kept.to_numpy(), self._of(kept), kind), pairs

    def _of(self, wide: pd.DataFrame) -> np.ndarray:
        return self.searches()[wide.index].to_numpy()

    def _is_addition(self, arm: str) -> bool:
        made = self.made.get(arm)
        return bool(made and (made.off or made.per_step))

    def _additions(self, metric: str, common: Luck) -> Luck:
        """The luck of losses against themselves with SEC, L2 or SEE."""
        wide, failed = self.wide(metric).dropna(axis=1), {arm for arm, _ in self.failed}
        known = arms()  # no other setting of theirs is another
        pairs = {a: self.base(a) for a in wide if a in known and self._is_addition(a)}
        pairs = {a: b for a, b in pairs.items() if b in wide and not {a, b} & failed}
        d = np.array([wide[a] - wide[b] for a, b in pairs.items()]).T
        return statistics.pair_luck(d, self._of(wide), common, list(pairs.values()))

    def _same(self, metric: str) -> Luck:
        """The luck of two trainings that have one recipe: what they differ in may suit it."""
        wide, failed = self.wide(metric).dropna(axis=1), {arm for arm, _ in self.failed}
        pairs = {a: self.source(a) for a in wide if self.source(a) in wide and self.source(a) != a}
        d = np.array([wide[a] - wide[b] for a, b in pairs.items() if b not in failed]).T
        return statistics.pair_luck(d, self._of(wide))

    def measured(
        self, values: pd.Series, groups: Mapping[str, Mapping[str, float]], metric: str
    ) -> claims.Measured:
        """Values in each repetition that are a sum of scores, for the one test."""
        luck, pairs = self.kind(groups, metric)
        of = self.searches()[values.index].to_numpy()
        return claims.Measured(values.to_numpy(), self.overlap, luck, of, pairs)


def conditions(evidence: Mapping[str, pd.DataFrame]) -> dict[str, Condition]:
    """Every condition that has evidence, of the studies' tables as ``kept`` gives them."""
    whole = {
        name: complete(protocol(name), frame)
        for name, frame in evidence.items()
        if name != "scratch_further"  # half of an arm's repetitions, where one recipe changed
    }
    own = pd.concat([whole["scratch"], whole["claims"]], ignore_index=True)
    own = own.drop_duplicates(["arm", "repetition"])
    parts = {
        "from scratch": ("scratch", own),
        claims.AGAIN: ("scratch", searched_twice(evidence)),
        "trained longer": ("claims", _renamed(whole["claims"], ", 2,000 steps")),
        "small batches": ("claims", _renamed(whole["claims"], ", 32 images")),
        "fine-tuned": ("transfer", whole["transfer"]),
        "photographs, head": ("photos", by_class(whole["photos"])),
        "photographs, fine-tuned": ("photos_whole", by_class(evidence["photos_whole"])),
    }
    found = {}
    for name, (study, rows) in parts.items():
        if len(rows):
            rules = protocol(study)
            made = arms(rules) | (arms(protocol("claims")) if study == "scratch" else {})
            overlap = 0.0 if rules.repetitions.by_class else rules.repetitions.overlap
            better = {}
            if study == "scratch":
                there, passes = set(rows["arm"]), TWICE if name == claims.AGAIN else TWICE[:1]
                better = {k: r for k, r in restricted(*passes).items() if {k[0], r[0]} <= there}
            found[name] = Condition(name, rows, overlap, made, better)
    return found


def searched_twice(evidence: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The rows of arms from scratch with the recipes that are best of both passes, and of their
    restrictions, searched once, that validate better still.

    Their luck is estimated over fewer arms than that of "from scratch", which has those of
    ``claims``, too.
    """
    if not len(evidence["scratch_further"]):
        return pd.DataFrame()
    tuned = recipes(pd.concat([tables(name)[0].frame() for name in TWICE]))
    rows = pd.concat([evidence[name] for name in TWICE], ignore_index=True)
    fits = [tuned.get((r.arm, r.search)) in (None, json.loads(r.recipe)) for r in rows.itertuples()]
    parts = evidence["claims"]["arm"].isin({part for part, _ in restricted(*TWICE).values()})
    return complete(protocol("scratch"), pd.concat([rows[fits], evidence["claims"][parts]]))


@cache
def restricted(*passes: str) -> dict[tuple[str, int], tuple[str, float]]:
    """The arm of ``claims`` that is a part of one from scratch and validates better in a search
    than what these passes found, and by how much, by the two."""
    whole, rules = arms(), protocol("claims")
    parts = arms(rules)
    trials = pd.concat([tables(name)[0].frame() for name in (*passes, "claims")])
    score = best(trials).set_index(["arm", "search"])["recall_at_1"]
    better: dict[tuple[str, int], tuple[str, float]] = {}
    for (part, search), value in score.items():
        arm: Any = rules.arms.get(part, {}).get("of")
        if arm and is_part(parts[part], whole[arm]):
            by = value - score[arm, search]
            if by > better.get((arm, search), ("", 0.0))[1]:
                better[arm, search] = part, float(by)
    return better


def _renamed(rows: pd.DataFrame, ending: str) -> pd.DataFrame:
    mine = rows.loc[[i for i, arm in rows["arm"].items() if arm.endswith(ending)]]
    return mine.assign(arm=[arm.removesuffix(ending) for arm in mine["arm"]])


def by_class(rows: pd.DataFrame) -> pd.DataFrame:
    """Evidence by repetition as evidence by class: Recall@1 of each class, the mean over seeds. The
    class is the repetition then, and the fold that tests it the search.
    """
    if not len(rows):
        return rows
    told = rows.dropna(subset=["by_class"])
    each = [
        (row.arm, name, row.search, value)
        for row in told.itertuples()
        for name, value in json.loads(row.by_class).items()
    ]
    frame = pd.DataFrame(each, columns=["arm", "repetition", "search", "recall_at_1"])
    return frame.groupby(["arm", "repetition", "search"], as_index=False).mean()


# Claims ---------------------------------------------------------------------------------------


def rows(found: Mapping[str, Condition]) -> Iterator[claims.Row]:
    """Every row of the ledger that the conditions give, in the claims' order."""
    contrasts = protocol("claims").contrasts
    for claim in claims.table():
        for at in found.values():
            if claim in contrasts:
                yield from _contrast_row(claim, contrasts[claim], at)
            elif claim in _EXTREMES:
                yield from _extreme_row(claim, at)


def stronger(evidence: Mapping[str, pd.DataFrame]) -> claims.Row:
    """C8's row: the gain of margin loss by the wider pretrained network, beyond the others'."""
    at = conditions(evidence)["fine-tuned"]
    after, before = (
        scores(protocol(name), evidence[name])[list(SEVEN)] for name in ("wide", "transfer")
    )
    values, gains = beyond(after, before), (after - before).to_numpy()
    of = at.searches()[values.index].to_numpy()
    luck = statistics.pair_luck(gains, of, at.luck())
    pairs = 1 + math.pi / 2 / (len(SEVEN) - 1)  # margin loss, and a median of six
    return claims.row(
        "C8", at.name, values, overlap=at.overlap, luck=luck, searches=of, pairs=pairs
    )


Groups = dict[str, dict[str, float]]  # weights of terms by the loss whose candidates they share


def _contrast_row(claim: str, told: Mapping[str, Any], at: Condition) -> Iterator[claims.Row]:
    weights, usual = pd.Series(told["effect"], dtype=float), told.get("metric", "recall_at_1")
    metrics = {term: term.partition(" @ ")[2] or usual for term in weights.index}
    there, broken = set(at.rows["arm"]), {arm for arm, _ in at.failed}
    lacking = {_loss(term) for term in weights.index if _arm(term) not in there}
    if (lacking and not told.get("mean")) or not set(metrics.values()) <= set(at.rows):
        return
    groups: Groups = {}
    for term, weight in weights.items():
        if _loss(term) not in lacking:
            groups.setdefault(at.base(_arm(term)), {})[str(term)] = weight
    if not groups:
        return
    scale = _size(dict(weights)) / sum(map(_size, groups.values()))
    groups = {base: {t: w * scale for t, w in terms.items()} for base, terms in groups.items()}
    failed = [base for base, terms in groups.items() if broken & {_arm(term) for term in terms}]
    many = len(groups) > 2 and all(abs(sum(terms.values())) < 1e-9 for terms in groups.values())
    kept = _without(groups, failed) if many else groups
    wide = {metric: at.wide(metric) for metric in set(metrics.values())}
    metric = metrics[weights.index[0]]

    def measured(mine: Groups) -> claims.Measured:
        terms = {term: w for part in mine.values() for term, w in part.items()}
        values = sum(w * wide[metrics[term]][_arm(term)] for term, w in terms.items())
        by_arm: Groups = {base: {} for base in mine}
        for base, part in mine.items():
            for term, w in part.items():
                by_arm[base][_arm(term)] = by_arm[base].get(_arm(term), 0.0) + w
        return at.measured(values, by_arm, metric)

    whole = measured(kept)
    more: dict[str, Any] = {}
    if many:
        each = {base: measured({base: terms}) for base, terms in kept.items()}
        share = {base: _size(terms) for base, terms in kept.items()}
        more["parts"] = {base: float(m.values.mean()) / share[base] for base, m in each.items()}
        rests = {base: _without(kept, [base]) for base in kept}
        more["without"] = {base: measured(rest) for base, rest in rests.items() if len(rest) > 1}
        middle = np.median([m.values / share[base] for base, m in each.items()], axis=0)
        if len(set(map(_side, kept.values()))) == 1:
            more["center"] = replace(whole, values=middle, pairs=whole.pairs * math.pi / 2)
    which = ", ".join(dict.fromkeys(_loss(term) for terms in kept.values() for term in terms))
    measure = f"{claims.table()[claim]['measure']}; here of {which}" if lacking else ""
    how = {key: getattr(whole, key) for key in ("overlap", "luck", "searches", "pairs")}
    found = claims.row(claim, at.name, whole.values, measure=measure, failed=failed, **more, **how)
    yield found if many or not failed else replace(found, word=claims.FAILED)


def _size(terms: Mapping[str, float]) -> float:
    return sum(weight for weight in terms.values() if weight > 0)


def _side(terms: Mapping[str, float]) -> bool:
    """Whether a loss enters for or against: the sign of its first term."""
    return next(iter(terms.values())) > 0


def _without(groups: Groups, out: Sequence[str]) -> Groups:
    """Weights without some losses: those of each side are scaled to the sum that the side had;
    nothing where a side has no loss left."""
    kept = {base: terms for base, terms in groups.items() if base not in out}
    total, left = (
        {side: sum(_size(t) for t in some.values() if _side(t) == side) for side in (True, False)}
        for some in (groups, kept)
    )
    if any(total[side] and not left[side] for side in total):
        return {}
    return {
        base: {term: w * total[_side(terms)] / left[_side(terms)] for term, w in terms.items()}
        for base, terms in kept.items()
    }


def _extreme_row(claim: str, at: Condition) -> Iterator[claims.Row]:
    sign, loss, metric = _EXTREMES[claim]
    if metric not in at.rows:
        return
    wide = sign * at.rivals(metric)
    known = [arm for arm in ELEVEN if arm in wide]
    if loss in known and len(known) > 2:
        of = at.searches()[wide.index]
        values = lead(wide[known], loss, of)
        measure = (
            ""
            if len(known) == len(ELEVEN)
            else f"{claims.table()[claim]['measure']}; of {len(known) - 1} others"
        )
        how = {"overlap": at.overlap, "luck": at.luck(metric), "searches": of.to_numpy()}
        yield claims.row(claim, at.name, values, measure=measure, **how)


def _arm(term: str) -> str:
    """The arm of a contrast's term, "arm" or "arm @ metric"."""
    return term.partition(" @ ")[0]


def _loss(term: str) -> str:
    """The loss of a term, without what is added to it."""
    return _arm(term).partition(" + ")[0]


def lead(frame: pd.DataFrame, arm: str, searches: pd.Series) -> pd.Series:
    """A score minus that of the best other arm, (n, arms) -> (n,).

    The rival of a repetition is the one in front in the mean of the repetitions of *other*
    searches: one that is chosen by the same recipe owes a part of its place to luck.

    >>> frame = pd.DataFrame({"a": [0.5, 0.5], "b": [0.4, 0.7], "c": [0.6, 0.2]})
    >>> lead(frame, "a", pd.Series([0, 1])).round(1).tolist()
    [0.1, 0.3]
    """
    others = frame.drop(columns=arm)
    rivals = {s: others[searches != s].mean().idxmax() for s in searches.unique()}
    return pd.Series({k: frame.at[k, arm] - frame.at[k, rivals[searches[k]]] for k in frame.index})


def beyond(after: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """The gain of the first arm minus the median gain of the others, (n, arms) twice -> (n,).

    >>> before = pd.DataFrame({"a": [0.5], "b": [0.4], "c": [0.6], "d": [0.3]})
    >>> beyond(before + [0.3, 0.1, 0.0, 0.5], before).round(1).tolist()
    [0.2]
    """
    gains = after - before
    return gains.iloc[:, 0] - gains.iloc[:, 1:].median(axis=1)
