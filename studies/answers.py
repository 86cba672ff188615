"""From the evidence of the studies to the rows of the ledger.

Most claims are contrasts of ``data/studies/claims.toml``, sums of scores. C3, C4, C5 and C8 are
not: they are about the worst, the best and a median, and stand here. A condition is evidence under
plain names: what is trained longer, or in small batches, is there as the loss that it is. A row is
given when all of its arms have all planned repetitions, and not before: what is there sooner is no
sample that the rules chose. But ``photos_whole`` ended with the time of a lent GPU, whatever it had
found: its classes have the mean of the seeds that are there, one or two.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pandas as pd

from dmlkit import statistics
from studies import claims
from studies.check import asked_for
from studies.rules import DEFAULTS, Protocol, arms, is_part, protocol
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


@dataclass(frozen=True)
class Condition:
    """Evidence of one condition, by plain names of arms, and what the one test must know of it.

    ``rows`` has the columns arm, repetition, search and the scores; ``sources`` tells which search
    an arm's recipes are of, where it is not its own; ``better`` which restriction of an arm
    validates better than the arm itself in a search.
    """

    name: str
    rows: pd.DataFrame
    overlap: float
    sources: Mapping[str, str]
    better: Mapping[tuple[str, int], str] = field(default_factory=dict)

    def wide(self, metric: str = "recall_at_1") -> pd.DataFrame:
        """A score of all arms, (repetitions, arms)."""
        return self.rows.pivot(index="repetition", columns="arm", values=metric)

    def rivals(self, metric: str = "recall_at_1") -> pd.DataFrame:
        """As ``wide``, for comparing losses: no loss loses to its own restriction. Where that one
        validates better, its repetitions of that search are the loss's. (An addition is compared
        with its loss as searched: both with equally many candidates.)"""
        wide, searches = self.wide(metric), self.searches()
        for (arm, search), restricted in self.better.items():
            mine = searches[searches == search].index
            wide.loc[mine, arm] = wide.loc[mine, restricted]
        return wide

    def searches(self) -> pd.Series:
        """The search of each repetition."""
        return self.rows.drop_duplicates("repetition").set_index("repetition")["search"]

    def luck(self, metric: str) -> float:
        """τ of that score, over all tuned arms, see ``statistics.luck``."""
        tuned = [arm for arm in self.rows["arm"].unique() if self.sources.get(arm, arm) == arm]
        wide = self.wide(metric)[tuned].dropna(axis=1)
        return statistics.luck(wide.to_numpy(), self.searches()[wide.index].to_numpy())

    def row(self, claim: str, values: pd.Series, metric: str, recipes: float, **more: Any) -> Any:
        """The row of the ledger that a measure's values give."""
        luck, searches = self.luck(metric), self.searches().nunique()
        how = {"overlap": self.overlap, "luck": luck, "searches": searches, "recipes": recipes}
        return claims.row(claim, self.name, values, **how, **more)


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
            of = {name: arm.recipe_of or name for name, arm in arms(rules).items()}
            if study == "scratch":
                ours = arms(protocol("claims")).items()
                of |= {arm: made.recipe_of or arm for arm, made in ours}
            overlap = 0.0 if rules.repetitions.by_class else rules.repetitions.overlap
            better = {}
            if study == "scratch":
                there, passes = set(rows["arm"]), TWICE if name == claims.AGAIN else TWICE[:1]
                better = {k: r for k, r in restricted(*passes).items() if {k[0], r} <= there}
            found[name] = Condition(name, rows, overlap, of, better)
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
    parts = evidence["claims"]["arm"].isin(set(restricted(*TWICE).values()))
    return complete(protocol("scratch"), pd.concat([rows[fits], evidence["claims"][parts]]))


@cache
def restricted(*passes: str) -> dict[tuple[str, int], str]:
    """The arm of ``claims`` that is a part of one from scratch and validates better in a search
    than what these passes found, by the two."""
    whole, rules = arms(), protocol("claims")
    parts = arms(rules)
    trials = pd.concat([tables(name)[0].frame() for name in (*passes, "claims")])
    score = best(trials).set_index(["arm", "search"])["recall_at_1"]
    better: dict[tuple[str, int], str] = {}
    for (part, search), value in score.items():
        arm: Any = rules.arms.get(part, {}).get("of")
        part_of = arm and is_part(parts[part], whole[arm])
        if part_of and value > score[better.get((arm, search), arm), search]:
            better[arm, search] = part
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
    # Two networks, margin loss and, in effect, one other: four recipes.
    return at.row("C8", beyond(after, before), "recall_at_1", 4.0)


def _contrast_row(claim: str, told: Mapping[str, Any], at: Condition) -> Iterator[claims.Row]:
    weights, usual = pd.Series(told["effect"], dtype=float), told.get("metric", "recall_at_1")
    metrics = {term: term.partition(" @ ")[2] or usual for term in weights.index}
    there = set(at.rows["arm"])
    lacking = {_loss(term) for term in weights.index if _arm(term) not in there}
    if lacking and not told.get("mean"):
        return
    known = [term for term in weights.index if _loss(term) not in lacking]
    if not known or not set(metrics.values()) <= set(at.rows):
        return
    kept = weights[known] * weights.clip(lower=0).sum() / weights[known].clip(lower=0).sum()
    wide = {metric: at.wide(metric) for metric in set(metrics.values())}
    values = sum(weight * wide[metrics[term]][_arm(term)] for term, weight in kept.items())
    of: dict[str, float] = {}
    for term, weight in kept.items():
        source = at.sources.get(_arm(term), _arm(term))
        if source != DEFAULTS:  # which no search found
            of[source] = of.get(source, 0.0) + weight
    which = ", ".join(dict.fromkeys(_loss(term) for term in known))
    measure = f"{claims.table()[claim]['measure']}; here of {which}" if lacking else ""
    recipes = sum(weight**2 for weight in of.values())
    yield at.row(claim, values, metrics[known[0]], recipes, measure=measure)


def _extreme_row(claim: str, at: Condition) -> Iterator[claims.Row]:
    sign, loss, metric = _EXTREMES[claim]
    if metric not in at.rows:
        return
    wide = sign * at.rivals(metric)
    known = [arm for arm in ELEVEN if arm in wide]
    if loss in known and len(known) > 2:
        values = lead(wide[known], loss, at.searches()[wide.index])
        measure = (
            ""
            if len(known) == len(ELEVEN)
            else f"{claims.table()[claim]['measure']}; of {len(known) - 1} others"
        )
        yield at.row(claim, values, metric, 2.0, measure=measure)


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
