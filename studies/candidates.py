"""Settings to try: defaults, Sobol points, and points near the best, in ranges that may widen."""

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np
from scipy.stats import qmc

from dmlkit import losses
from dmlkit.losses.table import Range
from dmlkit.training import Experiment
from dmlkit.training.build import objective_for
from studies.protocol import (
    Arm,
    Fields,
    Protocol,
    choices_of,
    experiment,
    is_set,
    merged,
)

_OFF_SHARE = 1 / 8  # of candidates, in which an addition has the weight 0
_MOST_SETTINGS = 16  # coordinates that an arm's points are drawn with


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
    """Settings to try first: the defaults, and points of a scrambled Sobol sequence.

    >>> from studies import arms, protocol
    >>> rules = protocol("scratch")
    >>> candidates(rules, arms()["triplet_semihard"], search=0)[0]
    {'batch': '32 x 4', 'lr': 0.005, 'loss_args.margin': 0.2}
    """
    ranges = space(rules, arm)
    found = [_defaults(rules, arm)]
    for point in _points(arm, search, rules.tuning.candidates - 1):
        shares = iter(point.tolist())
        settings: Fields = {}
        for key, names in choices_of(rules, arm).items():
            settings[key] = list(names)[int(next(shares) * len(names))]
        for key, bounds in ranges.items():
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
    points = _points(arm, search, 8 * rules.tuning.extra, number + 1)
    found: list[Fields] = []
    for point in points:
        settings = dict(best)
        for share, (key, bounds) in zip(point, wide.items(), strict=False):
            settings[key] = _nearby(ranges[key], bounds, best[key], rules.tuning.reach, share)
        if len(found) < rules.tuning.extra and _is_accepted(rules, arm, settings):
            found.append(settings)
    if len(found) < rules.tuning.extra:
        raise ValueError(
            f"{arm.name}: {len(found)} of {rules.tuning.extra} candidates near {dict(best)} are "
            f"accepted by the loss; the ranges are {wide}"
        )
    return found, wide


def at_an_end(
    rules: Protocol, arm: Arm, best: Mapping[str, Any], ranges: Mapping[str, Range]
) -> list[str]:
    """Settings whose best value lies at an end of its range that could be widened."""
    return [key for key, old in ranges.items() if _widened(rules, arm, best, key, old) != old]


def widened(bounds: Range, value: float, edge: float, reach: float) -> Range:
    """The range, longer by the share ``reach`` on the side at whose end the value lies, if any.

    0 in a logarithmic range is an addition that is left out, and no end of it.

    >>> scale, low, high = widened(("log", 0.01, 1.0), 0.9, edge=0.05, reach=0.5)
    >>> scale, low, round(high, 9)
    ('log', 0.01, 10.0)
    >>> widened(("linear", 0.0, 1.0), 0.5, edge=0.05, reach=0.5)
    ('linear', 0.0, 1.0)
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
    if far is None or not _is_accepted(rules, arm, {**best, key: far}):
        return bounds
    return wide


def _is_accepted(rules: Protocol, arm: Arm, settings: Mapping[str, Any]) -> bool:
    try:
        made = experiment(rules, arm, settings, rules.base["steps"], {})
        objective_for(made, num_classes=64)
    except (ValueError, TypeError):
        return False
    return True


def _points(arm: Arm, search: int, count: int, start: int = 0) -> Iterator[np.ndarray]:
    """Points of the unit cube; arms with the same ``points`` share their first coordinates."""
    if count:
        seed = zlib.crc32(f"{arm.points} {search} {start}".encode())
        sobol = qmc.Sobol(_MOST_SETTINGS, seed=seed)
        yield from sobol.random_base2((count - 1).bit_length())[:count]


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
    scale, low, _ = bounds
    if scale == "log" and best == 0:  # off: it stays
        return best
    place = _place(bounds, best)
    low, high = (_place(bounds, end) for end in wide[1:])
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
