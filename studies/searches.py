"""Tuning on validation classes, in stages, with the same numbers for every arm."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from studies.candidates import at_an_end, candidates, near, space
from studies.protocol import Arm, Fields, Protocol, experiment, searching
from studies.trainings import How, Plan, Table, work_off

TRIAL_KEY = ("arm", "search", "stage", "candidate")


def search(
    rules: Protocol,
    chosen: Sequence[Arm],
    table: Table | None = None,
    how: How | None = None,
) -> pd.DataFrame:
    """Tune arms on validation classes: one row for each training, of every search and stage.

    Columns: arm, search, stage (``short``, ``full``, then ``extra 1`` and so on), candidate,
    settings (JSON), widened (JSON: the ranges that were), and those of ``trained``. A training that
    diverged scores 0. See the protocol for the stages.
    """
    table, how = table or Table(TRIAL_KEY), how or How()
    tuned = [arm for arm in chosen if not arm.recipe_of]
    both = [(arm, number) for arm in tuned for number in range(len(rules.searches))]
    plans = [
        _trial(rules, arm, number, "short", i, settings, rules.tuning.short_steps)
        for arm, number in both
        for i, settings in enumerate(candidates(rules, arm, number))
    ]
    frames = [work_off(plans, table, how)]
    finals = [
        _trial(
            rules, arm, number, "full", row.candidate, json.loads(row.settings), rules.tuning.steps
        )
        for arm, number in both
        for row in _best_first(frames[0], arm, number).head(rules.tuning.finalists).itertuples()
    ]
    frames.append(work_off(finals, table, how))
    ranges = {(arm.name, number): space(rules, arm) for arm, number in both}
    for r in range(rules.tuning.rounds):
        best, plans = recipes(pd.concat(frames[1:], ignore_index=True)), []
        for arm, number in both:
            before = ranges[arm.name, number]
            found, wide = near(rules, arm, number, best[arm.name, number], before, r)
            ranges[arm.name, number] = wide
            note = {key: wide[key] for key in wide if wide[key] != before[key]}
            plans += [
                _trial(rules, arm, number, f"extra {r + 1}", i, settings, rules.tuning.steps, note)
                for i, settings in enumerate(found)
            ]
        frames.append(work_off(plans, table, how))
    return pd.concat(frames, ignore_index=True)


def _trial(
    rules: Protocol,
    arm: Arm,
    number: int,
    stage: str,
    candidate: int,
    settings: Fields,
    steps: int,
    widened: Mapping[str, Any] | None = None,
) -> Plan:
    facts = {
        "arm": arm.name,
        "search": number,
        "stage": stage,
        "candidate": candidate,
        "settings": json.dumps(settings),
        "widened": json.dumps(widened or {}),
    }
    made = experiment(rules, arm, settings, steps, searching(rules, number))
    return Plan(facts, made, arm.members)


def _best_first(trials: pd.DataFrame, arm: Arm, number: int) -> pd.DataFrame:
    """An arm's rows in a search; of equals, the first to have been planned."""
    mine = trials[(trials["arm"] == arm.name) & (trials["search"] == number)]
    return mine.sort_values("recall_at_1", ascending=False, kind="stable")


def _full(trials: pd.DataFrame) -> pd.DataFrame:
    """Trainings with all their steps, the best of each arm and search first; of equals, the one
    that was planned first."""
    full = trials[trials["stage"] != "short"].reset_index(drop=True)
    first = full.assign(stage=full["stage"].replace("full", ""))  # before "extra 1"
    order = ["arm", "search", "recall_at_1", "stage", "candidate"]
    first = first.sort_values(order, ascending=[True, True, False, True, True])
    return full.loc[first.index]


def recipes(trials: pd.DataFrame) -> dict[tuple[str, int], Fields]:
    """The best settings of each arm in each search, among those trained in full."""
    if not len(trials):
        return {}
    best = _full(trials).drop_duplicates(["arm", "search"])
    return {(row.arm, row.search): json.loads(row.settings) for row in best.itertuples()}


def ends(rules: Protocol, chosen: Sequence[Arm], trials: pd.DataFrame) -> list[str]:
    """Recipes that lie at an end of a range, even as it was widened: the rule that was not met."""
    found, told = recipes(trials), []
    for arm in chosen:
        for number in range(len(rules.searches)):
            if (arm.name, number) not in found:
                continue
            ranges = space(rules, arm)
            mine = trials[(trials["arm"] == arm.name) & (trials["search"] == number)]
            for row in mine.sort_values("stage").itertuples():
                ranges |= {k: tuple(bounds) for k, bounds in json.loads(row.widened).items()}
            best = found[arm.name, number]
            told += [
                f"{arm.name}, search {number}: {key} = {best[key]:g} is at an end of "
                f"{ranges[key][1]:.3g} to {ranges[key][2]:.3g}"
                for key in at_an_end(rules, arm, best, ranges)
            ]
    return told


def agreement(trials: pd.DataFrame, draws: int = 2000, level: float = 0.95) -> pd.Series:
    """Kendall's τ between the orders in which the first two searches put the arms, on validation.

    An arm's place is that of its best training in full. The interval is the percentile bootstrap's
    over arms. NaN for fewer than three arms.

    >>> rows = [(a, s, "full", 0, s + p) for s in (0, 1) for a, p in (("a", 1), ("b", 2), ("c", 3))]
    >>> names = ["arm", "search", "stage", "candidate", "recall_at_1"]
    >>> agreement(pd.DataFrame(rows, columns=names), draws=9)["tau"]
    np.float64(1.0)
    """
    best = _full(trials).drop_duplicates(["arm", "search"])
    wide = best.pivot(index="arm", columns="search", values="recall_at_1").dropna()
    n = len(wide)
    if n < 3 or wide.shape[1] < 2:
        return pd.Series({"tau": np.nan, "low": np.nan, "high": np.nan, "n": float(n)})
    x = wide.iloc[:, :2].to_numpy()
    rng = np.random.default_rng(0)
    resampled = [x[rng.integers(n, size=n)] for _ in range(draws)]
    taus = [stats.kendalltau(*each.T).statistic for each in resampled]
    low, high = np.nanquantile(taus, [(1 - level) / 2, (1 + level) / 2])
    return pd.Series(
        {"tau": stats.kendalltau(*x.T).statistic, "low": low, "high": high, "n": float(n)}
    )
