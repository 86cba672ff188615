"""From the evidence of the studies to the claims: the primary part's value in each repetition.

Most claims are contrasts of ``data/studies/claims.toml``, sums of scores. C1, C3, C4, C5 and C8
are not: they are about an order, the worst, the best and a median, and stand here, as
``data/claims.csv`` says them. A claim is answered when all of its arms have all planned
repetitions, and not before: what is there sooner is no sample that the rules chose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit import ROOT, claims
from studies.check import asked_for
from studies.rules import Protocol, protocol
from studies.trainings import tables

#: Studies that decide claims, and whose evidence each takes: an arm's first one counts.
STUDIES: Mapping[str, tuple[str, ...]] = {
    "scratch": ("scratch",),
    "transfer": ("transfer",),
    "claims": ("claims", "scratch"),
    "wide": ("wide", "transfer"),
}
#: The methods of the study that C1 to C21 are read from, as its tables call them: those that are
#: one loss and one network.
METHODS: Mapping[str, str] = {
    "Triplet Semihard": "triplet_semihard",
    "Lifted Struct": "lifted_structure",
    "Npairs": "n_pairs",
    "N-Pairs": "n_pairs",
    "Struct Clust": "structured_clustering",
    "Margin Loss": "margin",
    "Angular Loss": "angular",
    "Prototype Loss": "prototypical",
    "Proxy-Triplet": "proxy_triplet",
    "Proxy-NCA": "proxy_nca",
    "Proxy-Softmax": "normalized_softmax",
    "Ranked List Loss": "ranked_list",
}
ELEVEN: tuple[str, ...] = tuple(dict.fromkeys(METHODS.values()))
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


def kept() -> dict[str, pd.DataFrame]:
    """The evidence of every study, without rows that its rules do not ask for as they are now."""
    return {name: asked_for(protocol(name), tables(name)[1]) for name in STUDIES}


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


# Claims ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """What a study says of a claim: one value for each repetition, or the arms that it lacks."""

    claim: str
    study: str
    values: pd.Series  # by repetition; empty while arms are missing
    missing: tuple[str, ...]
    overlap: float  # as claims.settle takes it

    def settle(self, part: str = "") -> claims.Verdict:
        """Its verdict, as the primary part unless another name is given. Raises ValueError while
        arms are missing."""
        if self.missing:
            raise ValueError(f"{self.claim} is open: the evidence lacks {', '.join(self.missing)}")
        part = part or claims.table()[self.claim]["primary"]
        return claims.settle(self.claim, self.values, part=part, kept=True, overlap=self.overlap)


def decided(study: str | None = None) -> list[str]:
    """The claims that a study decides, or that any does, as ``data/claims.csv`` has it.

    >>> decided("scratch")
    ['C1', 'C3', 'C4', 'C5']
    """
    where = (study,) if study else tuple(STUDIES)
    return [name for name, row in claims.table().items() if row["decided_in"] in where]


def answer(claim: str, evidence: Mapping[str, pd.DataFrame], study: str | None = None) -> Answer:
    """What the evidence, by study as ``kept`` gives it, says of a claim's measure.

    The study is the one that decides the claim, unless another is named. Nothing is told of a
    claim one of whose arms lacks a planned repetition.

    Raises:
        ValueError: no study decides the claim, or a score is not finite.
    """
    if claim not in decided():
        raise ValueError(f"{claim} is not decided by a study, of {', '.join(STUDIES)}")
    study = study or claims.table()[claim]["decided_in"]
    rules, told = protocol(study), protocol("claims").contrasts.get(claim)
    overlap = rules.repetitions.correction
    frames = [complete(rules, evidence.get(name, pd.DataFrame())) for name in STUDIES[study]]
    trained = [set(frame["arm"]) for frame in frames]
    there = set.intersection(*trained) if claim == "C8" else set.union(*trained)
    of_contrast = dict.fromkeys(_arm(term) for term in told["effect"]) if told else {}
    needed = of_contrast or (SEVEN if claim == "C8" else ELEVEN)
    if missing := tuple(arm for arm in needed if arm not in there):
        return Answer(claim, study, pd.Series(dtype=float), missing, overlap)
    if told:
        values = contrast(told, *frames)
    elif claim == "C8":
        values = beyond(*(scores(rules, frame)[list(SEVEN)] for frame in frames))
    elif claim == "C1":
        taus = nearness(scores(rules, frames[0])).T.groupby(level=1).mean().T
        values = taus["measured"] - taus["reported"]
    else:
        sign, loss, metric = _EXTREMES[claim]
        values = lead(sign * scores(rules, frames[0], metric)[list(ELEVEN)], loss)
    if len(values) != rules.repetitions.count or not np.isfinite(values).all():
        raise ValueError(f"{claim}: not one finite value for each repetition: {values.to_dict()}")
    return Answer(claim, study, values, (), overlap)


def contrast(told: Mapping[str, Any], *evidence: pd.DataFrame) -> pd.Series:
    """A sum of scores of arms, one value for each repetition that has all of them.

    The weights are ``told["effect"]``, the score its ``metric`` (``recall_at_1`` unless given), or
    that of a term "arm @ metric". An arm may lie in any table of evidence; in several, the first
    one counts.
    """
    weights, usual = pd.Series(told["effect"], dtype=float), told.get("metric", "recall_at_1")
    rows = pd.concat([table for table in evidence if len(table)], ignore_index=True)
    mine = rows.drop_duplicates(["arm", "repetition"]).set_index(["repetition", "arm"])
    found = {
        t: mine[t.partition(" @ ")[2] or usual].xs(_arm(t), level="arm") for t in weights.index
    }
    return (pd.DataFrame(found).dropna() * weights).sum(axis=1)


def _arm(term: str) -> str:
    """The arm of a contrast's term, "arm" or "arm @ metric"."""
    return term.partition(" @ ")[0]


def lead(frame: pd.DataFrame, arm: str) -> pd.Series:
    """A score minus that of the best other arm, (n, arms) -> (n,).

    The rival of a repetition is the one in front in the mean of the *other* repetitions: one that
    is chosen in the same repetition owes a part of its place to luck.

    >>> frame = pd.DataFrame({"a": [0.5, 0.5], "b": [0.4, 0.7], "c": [0.6, 0.2]})
    >>> lead(frame, "a").round(1).tolist()
    [0.1, 0.3]
    """
    others = frame.drop(columns=arm)
    rivals = {k: others.drop(index=k).mean().idxmax() for k in frame.index}
    return pd.Series({k: frame.at[k, arm] - frame.at[k, rival] for k, rival in rivals.items()})


def beyond(after: pd.DataFrame, before: pd.DataFrame) -> pd.Series:
    """The gain of the first arm minus the median gain of the others, (n, arms) twice -> (n,).

    >>> before = pd.DataFrame({"a": [0.5], "b": [0.4], "c": [0.6], "d": [0.3]})
    >>> beyond(before + [0.3, 0.1, 0.0, 0.5], before).round(1).tolist()
    [0.2]
    """
    gains = after - before
    return gains.iloc[:, 0] - gains.iloc[:, 1:].median(axis=1)


def published() -> pd.DataFrame:
    """Recall@1 in percent as papers report it (``reported``) and as the study measured it
    (``measured``): one row for each data set and loss that has both, index (dataset, loss)."""
    paths = sorted((ROOT / "data" / "reported").glob("unbiased_*.csv"))
    rows = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    rows = rows.assign(loss=rows["method"].map(METHODS)).dropna(subset=["loss"])
    kinds = {
        "reported": rows["metric"] == "R@1_reported",
        "measured": (rows["metric"] == "R@1") & (rows["backbone"] == "Inception-BN"),
    }
    columns = {
        name: rows[kind].set_index(["dataset", "loss"])["value"].astype(float)
        for name, kind in kinds.items()
    }
    return pd.DataFrame(columns).dropna()


def nearness(recall: pd.DataFrame) -> pd.DataFrame:
    """Kendall's τ of our order in each repetition with the published ones: recall (n, losses).

    Columns (dataset, order), order ``measured`` or ``reported``: of the losses that have both.
    """
    found = {}
    for name, table in published().groupby(level="dataset", sort=False):
        theirs = table.droplevel("dataset")
        for order in theirs:
            found[name, order] = [
                stats.kendalltau(row[theirs.index], theirs[order]).statistic
                for _, row in recall.iterrows()
            ]
    return pd.DataFrame(found, index=recall.index)
