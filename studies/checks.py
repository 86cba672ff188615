"""Checking evidence: a few of its rows are trained anew, other ones at each commit."""

import hashlib
import json
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from studies.arms import arms
from studies.protocol import Protocol
from studies.repetitions import baseline, baselines, repeated
from studies.trainings import METRICS, Plan, Table, trained

_LAST_DIGIT = 1.5e-6  # of a score as it is kept
_FALSE_ALARM = 1e-4  # of one score of one row that is trained anew elsewhere


def trained_anew(
    rules: Protocol, evidence: Table, n: int, key: str, device: str = "auto"
) -> pd.DataFrame:
    """Train n rows of the evidence anew, drawn by a key (a commit's hash), and compare each score.

    On the machine that made the evidence a score is ``exact``, the same to the six digits that are
    kept. Another processor may round a last bit otherwise, even with the same instructions, and is
    then like another seed. So a score ``agrees`` if the difference is within the bound t·√2·s, s
    the spread of the arm over repetitions, without what all arms share of them, and t such that one
    score in 10,000 is not.

    One row for each score: arm, repetition, score, then, now, bound, exact, agrees.

    Raises:
        ValueError: there is no evidence, or the rules now ask for other trainings than its.
    """
    plans, frame, found = planned(rules, evidence), evidence.frame(), []
    for i in _drawn(plans, n, key):
        plan, then = plans[i], evidence.rows[evidence.place(plans[i].facts)]
        with tempfile.TemporaryDirectory() as folder:
            now = trained(plan, device, Path(folder))
        for metric in METRICS:
            bound, both = _bound(frame, then["arm"], metric), (then[metric], now[metric])
            neither = bool(np.isnan(both).all())  # pixels have no spread
            exact = neither or bool(abs(both[1] - both[0]) <= _LAST_DIGIT)
            agrees = exact or bool(abs(both[1] - both[0]) <= bound)
            found.append((then["arm"], then["repetition"], metric, *both, bound, exact, agrees))
    columns = ["arm", "repetition", "score", "then", "now", "bound", "exact", "agrees"]
    return pd.DataFrame(found, columns=columns)


def _drawn(plans: list[Plan], n: int, key: str) -> list[int]:
    """The places of n plans, by hashes of the key and what names them."""
    texts = [f"{key} {plan.facts['arm']} {plan.hash}" for plan in plans]
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    return sorted(range(len(plans)), key=digests.__getitem__)[:n]


def planned(rules: Protocol, evidence: Table) -> list[Plan]:
    """The trainings of all rows that the evidence has, from their recipes.

    Raises ValueError where the rules ask for other ones than it was made of.
    """
    if not evidence.rows:
        raise ValueError(f"the study {rules.name!r} has no evidence yet: {evidence.path}")
    known, plans = arms(rules), []
    for row in evidence.rows.values():
        name, k = row["arm"], row["repetition"]
        if name in known:
            plan = repeated(rules, known[name], k, json.loads(row["recipe"]))
        elif name in baselines(rules):
            plan = baseline(rules, name, k)
        else:
            raise ValueError(f"the evidence has an arm {name!r}; there are {', '.join(known)}")
        if evidence.found(plan) is None:
            raise ValueError(
                f"the rules ask for another training than the evidence's of {name}, repetition "
                f"{k}: {plan.hash}, not {row['hash']}"
            )
        plans.append(plan)
    return plans


def asked_for(rules: Protocol, evidence: Table) -> pd.DataFrame:
    """The rows of the evidence that the rules, as they are now, ask for: not those of arms that are
    gone, of other repetitions, or made of another Experiment."""
    known, rows = arms(rules), []
    for row in evidence.rows.values():
        name, k = row["arm"], row["repetition"]
        if k >= rules.repetitions.count:
            continue
        if name in baselines(rules):
            rows.append(row)
        elif name in known:
            with suppress(ValueError, TypeError, KeyError):  # a recipe that it cannot have any more
                if evidence.found(repeated(rules, known[name], k, json.loads(row["recipe"]))):
                    rows.append(row)
    return pd.DataFrame(rows)


def _bound(frame: pd.DataFrame, arm: str, metric: str) -> float:
    """How far two trainings of an arm with other seeds may be apart, from its repetitions."""
    wide = frame.pivot(index="repetition", columns="arm", values=metric)
    rest = (wide[arm] - wide.mean(axis=1)).dropna()
    if len(rest) < 3:
        return float("inf")  # nothing tells the spread
    t = stats.t.ppf(1 - _FALSE_ALARM / 2, len(rest) - 1)
    return float(t * np.sqrt(2) * rest.std())
