"""Tuning on validation classes, in stages, with the same numbers of trainings for every arm.

Settings to try are the defaults and points of a scrambled Sobol sequence, then points near the best
so far, in ranges that widen where the best lies at an end. ``data/studies/scratch.toml`` gives the
reasons.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from scipy.stats import qmc

from dmlkit import losses
from dmlkit.losses.contract import Range
from dmlkit.recipes import merged
from dmlkit.training import Experiment
from dmlkit.training.build import objective_for
from studies.rules import Arm, Fields, Protocol, choices_of, experiment, is_set, searching
from studies.trainings import Plan, Table, work_off

_OFF_SHARE = 1 / 8  # of candidates, in which an addition has the weight 0
_MOST_SETTINGS = 16  # coordinates that an arm's points are drawn with

# Settings to try ------------------------------------------------------------------------------


def space(rules: Protocol, arm: Arm) -> dict[str, Range]:
    """What is tuned of an arm: the study's rates that it does not fix, and its own settings.

    >>> from studies import arms, protocol
    >>> list(space(protocol("scratch"), arms()["proxy_nca"]))
    ['lr', 'loss_lr_factor', 'loss_args.scale']
    """
    rates = {
        key: bounds
        for key, bounds in rules.ranges.items()
        if (arm.learns or key != "loss_lr_factor") and not is_set(arm.fields, key)
    }
    return rates | dict(arm.space)


def candidates(rules: Protocol, arm: Arm, search: int) -> list[Fields]:
    """Settings to try, the second pass last: defaults and points of a scrambled Sobol sequence.

    >>> from studies import arms, protocol
    >>> rules = protocol("scratch")
    >>> candidates(rules, arms()["triplet_semihard"], search=0)[0]
    {'batch': '32 x 4', 'lr': 0.005, 'loss_args.margin': 0.2}
    """
    found = [_defaults(rules, arm)]
    for point in _points(arm, search, rules.tuning.candidates + rules.tuning.further - 1):
        shares = iter(point.tolist())
        settings: Fields = {}
        for key, names in choices_of(rules, arm).items():
            settings[key] = list(names)[int(next(shares) * len(names))]
        for key, bounds in space(rules, arm).items():
            settings[key] = _drawn(bounds, next(shares), key in arm.off)
        found.append(settings)
    return found


def near(
    rules: Protocol,
    arm: Arm,
    search: int,
    best: Mapping[str, Any],
    ranges: Mapping[str, Range],
    number: int,
) -> tuple[list[Fields], dict[str, Range]]:
    """Settings to try in round ``number``, in a box around the best so far, and the ranges, those
    widened at whose end the best lies. Raises ValueError where the loss refuses nearly all."""
    wide = {key: _widened(rules, arm, best, key, bounds) for key, bounds in ranges.items()}
    found: list[Fields] = []
    for point in _points(arm, search, 8 * rules.tuning.extra, number + 1):
        settings = dict(best)
        for share, (key, bounds) in zip(point, wide.items(), strict=False):
            settings[key] = _nearby(ranges[key], bounds, best[key], rules.tuning.reach, share)
        if len(found) < rules.tuning.extra and _is_accepted(rules, arm, settings):
            found.append(settings)
    if len(found) < rules.tuning.extra:
        raise ValueError(f"{arm.name}: the loss refuses nearly all settings near {dict(best)}")
    return found, wide


def widened(bounds: Range, value: float, edge: float, reach: float) -> Range:
    """The range, longer by the share ``reach`` on the side at whose end the value lies, if any.

    0 in a logarithmic range is an addition that is left out, and no end of it.
    """
    scale, low, high = bounds
    if scale == "log" and value == 0:
        return bounds
    share = _place(bounds, value)
    if share < edge:
        low = _between(bounds, -reach)
        low = max(low, 0.0) if scale == "linear" else low  # no margin or weight is negative
    elif share > 1 - edge:
        high = _between(bounds, 1 + reach)
    return scale, low, high


def _widened(rules: Protocol, arm: Arm, best: Mapping[str, Any], key: str, bounds: Range) -> Range:
    """As ``widened``, but for an end beyond which the loss refuses every value."""
    wide = widened(bounds, best[key], rules.tuning.edge, rules.tuning.reach)
    far = next((v for v, old in zip(wide[1:], bounds[1:], strict=True) if v != old), None)
    accepted = far is not None and _is_accepted(rules, arm, {**best, key: far})
    return wide if accepted else bounds


def _is_accepted(rules: Protocol, arm: Arm, settings: Mapping[str, Any]) -> bool:
    try:
        objective_for(experiment(rules, arm, settings, 1, {}), num_classes=64)
    except (ValueError, TypeError):
        return False
    return True


def _points(arm: Arm, search: int, count: int, start: int = 0) -> np.ndarray:
    """Points of the unit cube; arms with the same ``points`` share their first coordinates."""
    seed = zlib.crc32(f"{arm.points} {search} {start}".encode())
    sobol = qmc.Sobol(_MOST_SETTINGS, seed=seed)
    points: np.ndarray = sobol.random_base2((max(count, 1) - 1).bit_length())[:count]
    return points


def _defaults(rules: Protocol, arm: Arm) -> Fields:
    """What the settings are where nobody tunes them, written out."""
    known = merged(asdict(Experiment()), rules.base, {"loss_args": {}}, arm.fields)
    found: Fields = {key: next(iter(names)) for key, names in choices_of(rules, arm).items()}
    for key in space(rules, arm):
        *path, last = key.split(".")
        inner = reduce(lambda table, part: table.get(part, {}), path, known)
        if last in inner:
            found[key] = inner[last]
        else:
            name = known["loss"] if len(path) == 1 else known["loss_args"]["loss"]
            found[key] = losses.signature(name)[last].default
    return found


def _drawn(bounds: Range, share: float, may_be_off: bool) -> float:
    if may_be_off:
        if share < _OFF_SHARE:
            return 0.0
        share = (share - _OFF_SHARE) / (1 - _OFF_SHARE)
    return _short(_between(bounds, share))


def _nearby(bounds: Range, wide: Range, best: float, reach: float, share: float) -> float:
    """A value within ``reach`` of the best, in shares of the range before it was widened."""
    if bounds[0] == "log" and best == 0:  # off: it stays
        return best
    place, low, high = (_place(bounds, value) for value in (best, *wide[1:]))
    low, high = max(low, place - reach), min(high, place + reach)
    return _short(_between(bounds, low + (high - low) * share))


def _between(bounds: Range, share: float) -> float:
    """What lies at a share of a range: 0 at its low end, 1 at its high one."""
    scale, low, high = bounds
    if scale == "log":
        return float(np.exp((1 - share) * np.log(low) + share * np.log(high)))
    return (1 - share) * low + share * high


def _place(bounds: Range, value: float) -> float:
    """Where in a range a value lies: 0 at its low end, 1 at its high one."""
    scale, low, high = bounds
    if scale == "log":
        low, value, high = np.log([low, value, high])
    return float((value - low) / (high - low))


def _short(value: float) -> float:
    """Four digits, which a table shows and no training feels."""
    return float(f"{value:.4g}")


# The stages -----------------------------------------------------------------------------------


def search(
    rules: Protocol,
    chosen: Sequence[Arm],
    table: Table,
    before: pd.DataFrame | None = None,
    **how: Any,
) -> pd.DataFrame:
    """Tune arms on validation classes: one row for each training, of every search and stage.

    With the trials of the pass ``before``, it is the second pass. Columns: arm, search, stage
    (``short``, ``full``, then ``extra 1`` and so on), candidate, settings (JSON), widened (JSON:
    the ranges that were), and those of ``trained``. A training that diverged scores 0.
    """
    tuning = rules.tuning
    first = range(tuning.candidates)
    numbers = first if before is None else range(len(first), len(first) + tuning.further)
    mark = "" if before is None else "further "
    both = [(arm, s) for arm in chosen if not arm.recipe_of for s in range(len(rules.searches))]
    plans = [
        trial(rules, arm, s, f"{mark}short", i, settings)
        for arm, s in both
        for i, settings in enumerate(candidates(rules, arm, s))
        if i in numbers
    ]
    frames = [work_off(plans, table, **how)]
    plans = [
        trial(rules, arm, s, f"{mark}full", row.candidate, json.loads(row.settings))
        for arm, s in both
        for row in _of(frames[0], arm, s)
        .sort_values("recall_at_1", ascending=False, kind="stable")
        .head(tuning.finalists)
        .itertuples()
    ]
    frames.append(work_off(plans, table, **how))
    known = [] if before is None else [before]
    rounds = range(tuning.rounds * len(known), tuning.rounds * (len(known) + 1))
    ranges = {(arm.name, s): _ranges(rules, arm, s, *known) for arm, s in both}
    for r in rounds:
        best, plans = recipes(pd.concat([*known, *frames], ignore_index=True)), []
        for arm, s in both:
            narrow = ranges[arm.name, s]
            found, wide = near(rules, arm, s, best[arm.name, s], narrow, r)
            ranges[arm.name, s] = wide
            note = {key: wide[key] for key in wide if wide[key] != narrow[key]}
            stage = f"extra {r + 1}"
            plans += [trial(rules, arm, s, stage, i, x, note) for i, x in enumerate(found)]
        frames.append(work_off(plans, table, **how))
    return pd.concat(frames, ignore_index=True)


def _ranges(rules: Protocol, arm: Arm, number: int, *before: pd.DataFrame) -> dict[str, Range]:
    """The ranges of an arm's settings, as the rounds of trials widened them."""
    ranges = space(rules, arm)
    for trials in before:
        for text in _of(trials, arm, number).sort_values("stage")["widened"]:
            ranges |= {key: tuple(bounds) for key, bounds in json.loads(text).items()}
    return ranges


def trial(
    rules: Protocol,
    arm: Arm,
    number: int,
    stage: str,
    candidate: int,
    settings: Mapping[str, Any],
    widened: Mapping[str, Any] | None = None,
) -> Plan:
    """The training of a candidate in a stage of a search."""
    facts = {
        "arm": arm.name, "search": number, "stage": stage, "candidate": candidate,
        "settings": json.dumps(settings), "widened": json.dumps(widened or {}),
    }  # fmt: skip
    steps = rules.tuning.short_steps if stage.endswith("short") else rules.tuning.steps
    where = searching(rules, number)
    made = experiment(rules, arm, settings, steps, where)
    return Plan(facts, made, arm.members, sealed=rules.sealed)


def _of(trials: pd.DataFrame, arm: Arm, number: int) -> pd.DataFrame:
    return trials[(trials["arm"] == arm.name) & (trials["search"] == number)]


# What it found --------------------------------------------------------------------------------


def best(trials: pd.DataFrame) -> pd.DataFrame:
    """The best training in full of each arm and search; of equals, the one planned first."""
    full = trials[~trials["stage"].str.endswith("short")].reset_index(drop=True)
    first = full.assign(stage=full["stage"].replace("full", ""))  # before "extra 1"
    order = ["arm", "search", "recall_at_1", "stage", "candidate"]
    first = first.sort_values(order, ascending=[True, True, False, True, True])
    return full.loc[first.index].drop_duplicates(["arm", "search"])


def recipes(trials: pd.DataFrame) -> dict[tuple[str, int], Fields]:
    """The best settings of each arm in each search, among those trained in full."""
    if not len(trials):
        return {}
    rows = best(trials).itertuples()
    return {(row.arm, row.search): json.loads(row.settings) for row in rows}


def ends(rules: Protocol, chosen: Sequence[Arm], trials: pd.DataFrame) -> list[str]:
    """Recipes that lie at an end of a range, even as it was widened: the rule that was not met."""
    found, told = recipes(trials), []
    for arm, number in [(arm, s) for arm in chosen for s in range(len(rules.searches))]:
        if best := found.get((arm.name, number)):
            ranges = _ranges(rules, arm, number, trials)
            told += [
                f"{arm.name}, search {number}: {key} = {best[key]:g} is at an end of "
                f"{bounds[1]:.3g} to {bounds[2]:.3g}"
                for key, bounds in ranges.items()
                if _widened(rules, arm, best, key, bounds) != bounds
            ]
    return told


def agreement(trials: pd.DataFrame, draws: int = 2000, level: float = 0.95) -> pd.Series:
    """Kendall's τ between the orders in which the first two searches put the arms, on validation.

    An arm's place is that of its best training in full. The interval is the percentile bootstrap's
    over arms. NaN for fewer than three arms.
    """
    wide = best(trials).pivot(index="arm", columns="search", values="recall_at_1").dropna()
    n = len(wide)
    if n < 3 or wide.shape[1] < 2:
        return pd.Series({"tau": np.nan, "low": np.nan, "high": np.nan, "n": float(n)})
    x = wide.iloc[:, :2].to_numpy()
    rng = np.random.default_rng(0)
    taus = [
        stats.kendalltau(*each.T).statistic
        for each in (x, *(x[rng.integers(n, size=n)] for _ in range(draws)))
    ]
    low, high = np.nanquantile(taus[1:], [(1 - level) / 2, (1 + level) / 2])
    return pd.Series({"tau": taus[0], "low": low, "high": high, "n": float(n)})
