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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from dmlkit import statistics
from studies import claims
from studies.check import asked_for
from studies.condition import Condition, arm_of, metric_of
from studies.rules import DEFAULTS, Protocol, arms, choices_of, is_part, protocol
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
    found: dict[str, Condition] = {}
    for name, (study, rows) in parts.items():
        if len(rows):
            rules = protocol(study)
            made = arms(rules) | (arms(protocol("claims")) if study == "scratch" else {})
            overlap = 0.0 if rules.repetitions.by_class else rules.repetitions.overlap
            better = {}
            if study == "scratch":
                there, passes = set(rows["arm"]), TWICE if name == claims.AGAIN else TWICE[:1]
                better = {k: r for k, r in restricted(*passes).items() if {k[0], r[0]} <= there}
            borrowed = {}
            if name == "trained longer" and "from scratch" in found:
                borrowed = found["from scratch"].failed
            found[name] = Condition(name, rows, overlap, made, better, borrowed)
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
        (row.arm, name, row.search, row.recipe, value)
        for row in told.itertuples()
        for name, value in json.loads(row.by_class).items()
    ]
    by = ["arm", "repetition", "search", "recipe"]  # one recipe in each search
    frame = pd.DataFrame(each, columns=[*by, "recall_at_1"])
    return frame.groupby(by, as_index=False, dropna=False).mean()


# Claims ---------------------------------------------------------------------------------------


def rows(found: Mapping[str, Condition], only: Collection[str] = ()) -> Iterator[claims.Row]:
    """Every row of the ledger that the conditions give, in the claims' order; ``only`` some."""
    contrasts = protocol("claims").contrasts
    for claim in only or claims.table():
        for at in found.values():
            for told in (contrasts[name] for name in contrasts if name.split(", ")[0] == claim):
                yield from _contrast_row(claim, told, at)
            if claim in _EXTREMES:
                yield from _extreme_row(claim, at)


def stronger(evidence: Mapping[str, pd.DataFrame]) -> claims.Row:
    """C8's row: the gain of margin loss by the wider pretrained network, beyond the others'."""
    at = conditions(evidence)["fine-tuned"]
    after, before = (
        scores(protocol(name), evidence[name])[list(SEVEN)] for name in ("wide", "transfer")
    )
    values, gains = beyond(after, before), (after - before).to_numpy()
    of = at.searches[values.index].to_numpy()
    luck = statistics.pair_luck(gains, of, at.luck())
    pairs = 1 + math.pi / 2 / (len(SEVEN) - 1)  # margin loss, and a median of six
    return claims.row(
        "C8", at.name, values, overlap=at.overlap, luck=luck, searches=of, pairs=pairs
    )


Groups = dict[str, dict[str, float]]  # weights of terms by the loss whose candidates they share


def _contrast_row(claim: str, told: Mapping[str, Any], at: Condition) -> Iterator[claims.Row]:
    weights, usual = pd.Series(told["effect"], dtype=float), told.get("metric", "recall_at_1")
    there, metrics = set(at.rows["arm"]), {metric_of(term, usual) for term in weights.index}
    lacking = {_loss(term) for term in weights.index if arm_of(term) not in there}
    if (lacking and not told.get("mean")) or not metrics <= set(at.rows):
        return
    groups: Groups = {}
    for term, weight in weights.items():
        if _loss(term) not in lacking:
            groups.setdefault(at.base(arm_of(str(term))), {})[str(term)] = weight
    if not groups:
        return
    scale = _size(dict(weights)) / sum(map(_size, groups.values()))
    groups = {base: {t: w * scale for t, w in terms.items()} for base, terms in groups.items()}
    failed = [base for base, terms in groups.items() if at.lost(map(arm_of, terms))]
    many = len(groups) > 2 and all(abs(sum(terms.values())) < 1e-9 for terms in groups.values())
    kept = _without(groups, failed) if many else groups

    def measured(mine: Groups) -> claims.Measured:
        terms = {term: w for part in mine.values() for term, w in part.items()}
        return at.measured(at.sum_of(terms, usual), mine, usual)

    whole = measured(kept)
    more = _of_many(kept, measured) if many else {}
    which = ", ".join(dict.fromkeys(_loss(term) for terms in kept.values() for term in terms))
    measure = told.get("measure", claims.table()[claim]["measure"])
    measure += f"; here of {which}" * bool(lacking)
    unequal = _unequal(told, kept, at)
    measure += unequal
    condition = told.get("condition", at.name)
    how = {key: getattr(whole, key) for key in ("overlap", "luck", "searches", "pairs")}
    found = claims.row(
        claim, condition, whole.values, measure=measure, failed=failed, losses=[*kept],
        **more, **how,
    )  # fmt: skip
    if failed and not many:
        found = replace(found, word=claims.FAILED)
    elif _idle([at.sum_of(terms, usual) for terms in kept.values()]):
        found = replace(found, word=claims.IDLE)
    elif unequal:
        found = replace(found, word=claims.UNDECIDED)
    yield found


def _unequal(told: Mapping[str, Any], kept: Groups, at: Condition) -> str:
    """What was searched less on one side of a contrast, for its measure: an arm that borrows
    another's recipe, fewer kinds of batch, or a setting less than half of whose box is in the range
    of its authors (a contrast's ``paper``, by addition: setting, smallest, largest; a single value
    must lie in the middle half of the box)."""
    used = list(dict.fromkeys(arm_of(t) for terms in kept.values() for t in terms))
    borrowed = [arm for arm in used if at.source(arm) not in (arm, DEFAULTS)]
    said = f"; borrowed recipes: {' and '.join(borrowed)}" if borrowed else ""
    usual = protocol("scratch")
    kinds = {a: len(choices_of(usual, at.made[a])["batch"]) for a in used if at.source(a) == a}
    parts = []
    recipes = at.rows.drop_duplicates(["arm", "search"]).set_index("arm")["recipe"]
    if len({*kinds.values()}) > 1:
        chose = {a: sorted({json.loads(text)["batch"] for text in recipes[[a]]}) for a in kinds}
        each = (f"{n} of {a} (chose {', '.join(chose[a])})" for a, n in kinds.items())
        parts.append(f"kinds of batch: {', '.join(each)}")
    for name, (setting, least, most) in told.get("paper", {}).items():
        having = [arm for arm in used if arm.endswith(f" + {name}")]
        _, low, high = at.made[having[0]].space[setting]
        quarter = math.log(high / low) / 4
        fits = math.log(min(high, most) / max(low, least)) >= 2 * quarter
        if least == most:
            fits = min(math.log(least / low), math.log(high / least)) >= quarter
        if not fits:
            found = np.array([json.loads(recipe)[setting] for recipe in recipes[having]])
            inside = (found >= least) & (found <= most)
            parts.append(
                f"{name}'s weights {low:g} to {high:g} and 0, its authors' "
                + f"{least:g} to {most:g}".removesuffix(f" to {least:g}")
                + f": of its recipes {(found == 0).sum()} have weight 0, "
                f"{(found < least)[found > 0].sum()} below, {inside.sum()} in, "
                f"{(found > most).sum()} above"
            )
    return said + f"; unequal search: {'; '.join(parts)}" * bool(parts)


def _idle(differences: Sequence[pd.Series]) -> bool:
    """Whether most differences of both sides, over losses and repetitions, are exactly 0."""
    return float(np.mean(np.abs(differences) < 1e-12)) > 0.5


def _of_many(kept: Groups, measured: Callable[[Groups], claims.Measured]) -> dict[str, Any]:
    """Of a mean over losses: what each gains, the mean without it, and, where all are on one side,
    their median in each repetition."""
    each = {base: measured({base: terms}).values / _size(terms) for base, terms in kept.items()}
    rests = {base: _without(kept, [base]) for base in kept}
    side = {base: 1 if _side(terms) else -1 for base, terms in kept.items()}
    found: dict[str, Any] = {
        "parts": {
            base + claims.AGAINST * (side[base] < 0): side[base] * float(values.mean())
            for base, values in each.items()
        },
        "without": {base: measured(rest) for base, rest in rests.items() if len(rest) > 1},
    }
    if len({*side.values()}) == 1:
        whole, middle = measured(kept), np.median([*each.values()], axis=0)
        found["center"] = replace(whole, values=middle, pairs=whole.pairs * math.pi / 2)
    return found


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
    wide = sign * at.wide(metric)
    known = [arm for arm in ELEVEN if arm in wide]
    if loss in known and len(known) > 2:
        of, failed = at.searches[wide.index], at.lost(known)
        kept = [arm for arm in known if arm == loss or arm not in failed]
        kept = kept if len(kept) > 2 else known
        measure = claims.table()[claim]["measure"]
        measure += f"; of {len(kept) - 1} others" * (len(kept) < len(ELEVEN))
        of_it = [f"its search {s + 1} {why}" for (arm, s), why in at.failed.items() if arm == loss]
        measure += f"; {', '.join(of_it)}" * bool(of_it)
        how = {"overlap": at.overlap, "luck": at.luck(metric), "searches": of.to_numpy()}
        measure += (
            f"; against {' and '.join(dict.fromkeys(_rivals(wide[kept], loss, of).values()))}"
        )
        values = lead(wide[kept], loss, of)
        found = claims.row(claim, at.name, values, measure=measure, failed=failed, **how)
        # Not the worst, or not the best: nothing is shown the other way round.
        word = found.word.replace("reversed", "fails")
        word = claims.FAILED if {*kept} & {*failed} else word
        yield replace(found, word=word)


def _loss(term: str) -> str:
    """The loss of a term, without what is added to it."""
    return arm_of(term).partition(" + ")[0]


def lead(frame: pd.DataFrame, arm: str, searches: pd.Series) -> pd.Series:
    """A score minus that of the best other arm, (n, arms) -> (n,).

    The rival of a repetition is the one in front in the mean of the repetitions of *other*
    searches: one that is chosen by the same recipe owes a part of its place to luck.

    >>> frame = pd.DataFrame({"a": [0.5, 0.5], "b": [0.4, 0.7], "c": [0.6, 0.2]})
    >>> lead(frame, "a", pd.Series([0, 1])).round(1).tolist()
    [0.1, 0.3]
    """
    rivals = _rivals(frame, arm, searches)
    return pd.Series({k: frame.at[k, arm] - frame.at[k, rivals[searches[k]]] for k in frame.index})


def _rivals(frame: pd.DataFrame, arm: str, searches: pd.Series) -> dict[int, str]:
    others = frame.drop(columns=arm)
    return {s: others[searches != s].mean().idxmax() for s in searches.unique()}


def beyond(after: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """The gain of the first arm minus the median gain of the others, (n, arms) twice -> (n,).

    >>> before = pd.DataFrame({"a": [0.5], "b": [0.4], "c": [0.6], "d": [0.3]})
    >>> beyond(before + [0.3, 0.1, 0.0, 0.5], before).round(1).tolist()
    [0.2]
    """
    gains = after - before
    return gains.iloc[:, 0] - gains.iloc[:, 1:].median(axis=1)
