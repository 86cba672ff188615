"""Checking evidence: a few of its rows are trained anew, other ones at each commit."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from studies.rules import Arm, Protocol, arms, protocol
from studies.search import trial
from studies.trainings import METRICS, Plan, Table, baseline, baselines, repeated, tables, trained

_LAST_DIGIT = 1.5e-6  # of a score as it is kept
_FALSE_ALARM = 1e-4  # of one score of one row that is trained anew elsewhere


def planned(rules: Protocol, table: Table) -> list[Plan]:
    """The trainings that the rules, as they are now, ask for in the place of each row of a study's
    trials or evidence."""
    known = arms(rules)
    return [_planned(rules, known, row) for row in table.rows.values()]


def _planned(rules: Protocol, known: Mapping[str, Arm], row: Mapping[str, Any]) -> Plan:
    name = row["arm"]
    if "settings" in row:
        settings, note = json.loads(row["settings"]), json.loads(row["widened"])
        place = (row["search"], row["stage"], row["candidate"])
        return trial(rules, known[name], *place, settings, note)
    if name not in known and name in baselines(rules):
        return baseline(rules, name, row["repetition"])
    return repeated(rules, known[name], row["repetition"], json.loads(row["recipe"]))


def asked_for(rules: Protocol, evidence: Table) -> pd.DataFrame:
    """The rows of the evidence that the rules, as they are now, ask for: not those of arms that are
    gone, of other repetitions, or made of another Experiment."""
    known, rows = arms(rules), []
    for row in evidence.rows.values():
        with suppress(ValueError, TypeError, KeyError):  # a recipe that it cannot have any more
            plan = _planned(rules, known, row)
            if row["repetition"] < rules.repetitions.count and evidence.found(plan):
                rows.append(row)
    return pd.DataFrame(rows)


def sample(name: str, n: int, key: str, device: str = "auto") -> pd.DataFrame:
    """Train n rows of a study's evidence anew, and compare: see ``trained_anew``. Its second pass
    is ``NAME_further``."""
    return trained_anew(protocol(name.removesuffix("_further")), tables(name)[1], n, key, device)


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
        ValueError: the rules now ask for other trainings than those of the evidence.
    """
    plans, frame, found = planned(rules, evidence), evidence.frame(), []
    if others := [dict(plan.facts) for plan in plans if evidence.found(plan) is None]:
        raise ValueError(f"the rules ask for another training than the evidence's of {others[0]}")
    texts = [f"{key} {plan.facts['arm']} {plan.hash}" for plan in plans]
    digests = [hashlib.sha256(text.encode()).digest() for text in texts]
    for i in sorted(range(len(plans)), key=digests.__getitem__)[:n]:
        then, now = evidence.rows[evidence.place(plans[i].facts)], trained(plans[i], device)
        for metric in METRICS:
            bound, both = _bound(frame, then["arm"], metric), (then[metric], now[metric])
            neither = bool(np.isnan(both).all())  # pixels have no spread
            exact = neither or bool(abs(both[1] - both[0]) <= _LAST_DIGIT)
            agrees = exact or bool(abs(both[1] - both[0]) <= bound)
            found.append((then["arm"], then["repetition"], metric, *both, bound, exact, agrees))
    columns = ["arm", "repetition", "score", "then", "now", "bound", "exact", "agrees"]
    return pd.DataFrame(found, columns=columns)


def _bound(frame: pd.DataFrame, arm: str, metric: str) -> float:
    """How far two trainings of an arm with other seeds may be apart, from its repetitions."""
    wide = frame.pivot(index="repetition", columns="arm", values=metric)
    rest = (wide[arm] - wide.mean(axis=1)).dropna()
    if len(rest) < 3:
        return float("inf")  # nothing tells the spread
    t = stats.t.ppf(1 - _FALSE_ALARM / 2, len(rest) - 1)
    return float(t * np.sqrt(2) * rest.std())
