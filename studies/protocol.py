"""The rules of a study as its file has them, and Experiments that follow from them."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import reduce
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dmlkit import ROOT, data
from dmlkit.checks import check_count, check_range
from dmlkit.losses.table import Range
from dmlkit.training import Experiment

FOLDER = ROOT / "data" / "studies"
Fields = dict[str, Any]
Choices = Mapping[str, Mapping[str, Mapping[str, Any]]]
DEFAULTS = "defaults"  # the recipe of candidate 0
Made = TypeVar("Made")


@dataclass(frozen=True)
class Tuning:
    """Numbers of a search, equal for all arms: see ``data/studies/scratch.toml``."""

    candidates: int
    short_steps: int
    steps: int
    finalists: int
    rounds: int
    extra: int
    edge: float
    reach: float


@dataclass(frozen=True)
class Search:
    """Fields of a search's trainings, and of those repetitions that have its recipes."""

    fields: Mapping[str, Any]
    repetitions: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Repetitions:
    """How many, their fields, those that are the repetition's number, shared test classes."""

    count: int
    numbered: Sequence[str]
    overlap: float
    fields: Mapping[str, Any]

    @property
    def correction(self) -> float:
        """r / (1 − r) of the ``overlap`` r, which intervals take (Nadeau and Bengio, 2003).

        >>> Repetitions(12, (), 0.2, {}).correction
        0.25
        """
        return self.overlap / (1 - self.overlap)


@dataclass(frozen=True)
class Protocol:
    """The rules of a study, as they stand in its file: see ``data/studies``.

    A study ``like`` another has that one's rules. It may set fields on top of that one's ``base``,
    and have ``arms`` and ``contrasts`` of its own (see ``studies.designs``).
    """

    name: str
    base: Mapping[str, Any]
    ranges: Mapping[str, Range]
    choices: Choices
    tuning: Tuning
    searches: Sequence[Search]
    repetitions: Repetitions
    like: str | None = None
    arms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    contrasts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Arm:
    """What a study compares: a loss, or a loss with an addition, and what is tuned of it.

    ``fields`` are those of Experiment; ``space`` maps a setting, as ``"loss_args.margin"``, to its
    range. ``learns`` says that the loss has parameters, and so a rate, of its own. Arms with the
    same ``points`` draw the same candidates in the settings that they share. Settings in ``off``
    are 0 in some candidates. ``per_step`` is a setting that is the number of steps; a training has
    ``steps_factor`` times the study's. An ensemble has several ``members``. ``choices``
    replace the study's of the same name. An arm with ``recipe_of`` another is not tuned: it has
    that one's recipes, whose numbers are multiplied by ``factors``, or the defaults.
    """

    name: str
    fields: Mapping[str, Any]
    space: Mapping[str, Range]
    learns: bool = False
    points: str = ""
    off: tuple[str, ...] = ()
    per_step: str | None = None
    steps_factor: float = 1.0
    members: int = 1
    choices: Choices = field(default_factory=dict)
    recipe_of: str | None = None
    factors: Mapping[str, float] = field(default_factory=dict)


# Reading --------------------------------------------------------------------------------------


def protocol(name: str, folder: Path = FOLDER) -> Protocol:
    """The rules of a study by its name.

    Raises:
        ValueError: there is no such study, or its file has a key that no rule has, lacks one, or
            has a number that is out of range.
        TypeError: a field is none of Experiment's, or has a value that it cannot have.

    >>> protocol("scratch").repetitions.count
    12
    """
    path = folder / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in folder.glob("*.toml")))
        raise ValueError(f"no study {name!r} in {folder}; there are {there}")
    read = tomllib.loads(path.read_text(encoding="utf-8"))
    if "like" in read:
        return _like(path, read)
    try:
        rules = _made(Protocol, "the file", {"name": name, **read})
        rules = replace(
            rules,
            ranges={key: checked_range(key, bounds) for key, bounds in rules.ranges.items()},
            tuning=_made(Tuning, "[tuning]", rules.tuning),
            searches=[_made(Search, "[[searches]]", table) for table in rules.searches],
            repetitions=_made(Repetitions, "[repetitions]", rules.repetitions),
        )
        _check(rules)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {error}") from error
    return rules


def _like(path: Path, read: Mapping[str, Any]) -> Protocol:
    """The rules of another study, with arms and contrasts of this file, and fields of its base."""
    own = {"arms": read.get("arms", {}), "contrasts": read.get("contrasts", {})}
    base = read.get("base", {})
    if unknown := sorted(set(read) - {"like", "base", *own}):
        raise ValueError(f"{path}: beside like, the file has no key {', '.join(unknown)}")
    if not own["arms"] and not base:
        raise ValueError(f"{path}: a study like another lacks arms or a base of its own")
    for kind, tables in own.items():
        for key, table in tables.items():
            if not isinstance(table, Mapping):
                raise ValueError(f"{path}: {kind}.{key} must be a table, but is {table!r}")
    if read["like"] == path.stem:
        raise ValueError(f"{path}: a study cannot be like itself")
    other = protocol(read["like"], path.parent)
    if other.like:
        raise ValueError(f"{path}: {other.name} is itself like {other.like}: say like that one")
    rules = replace(other, name=path.stem, like=other.name, base=merged(other.base, base), **own)
    try:
        _check(rules)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{path}: {error}") from error
    return rules


def _made(cls: type[Made], where: str, table: Any) -> Made:
    """A dataclass of a table, each of whose keys is known and has no other name."""
    known = {f.name: f for f in fields(cls)}  # type: ignore[arg-type]
    needed = {n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING}
    keys = ", ".join(name for name in known if name != "name")
    if not isinstance(table, Mapping):
        raise ValueError(f"{where} must be a table of {keys}, but is {table!r}")
    if unknown := sorted(set(table) - set(known)):
        raise ValueError(f"{where} has no key {', '.join(unknown)}: it has {keys}")
    if missing := sorted(needed - set(table)):
        raise ValueError(f"{where} lacks {', '.join(missing)}")
    return cls(**table)


def checked_range(setting: str, bounds: Any) -> Range:
    """A range as a file has it. Raises ValueError for what is none."""
    scale, low, high = bounds if len(bounds) == 3 else ("", 0, 0)
    if scale not in ("log", "linear") or not low < high or (scale == "log" and low <= 0):
        raise ValueError(
            f'{setting} must be ["log" or "linear", lowest, highest], but is {bounds!r}'
        )
    return scale, float(low), float(high)


def _check(rules: Protocol) -> None:
    """Refuse numbers out of range, and fields that Experiment or the data set does not have."""
    tuning, repetitions = rules.tuning, rules.repetitions
    counts = ("candidates", "short_steps", "steps", "finalists", "extra")
    check_count(count=repetitions.count, **{key: getattr(tuning, key) for key in counts})
    check_range(0, rounds=tuning.rounds)
    check_range(0, 0.5, edge=tuning.edge, reach=tuning.reach)
    check_range(0, 1, overlap=repetitions.overlap)
    if not rules.searches or tuning.finalists > tuning.candidates:
        raise ValueError("there must be a search, and no more finalists than candidates")
    for chosen in rules.choices.values():
        for changes in chosen.values():
            _experiment(rules.base, changes)
    for search in rules.searches:
        _experiment(rules.base, search.fields)
    for k in range(min(repetitions.count, len(rules.searches))):
        _experiment(rules.base, repetition(rules, k))
    for setting in rules.ranges:
        _experiment(rules.base, set_at({setting: rules.ranges[setting][1]}))


def _experiment(*parts: Mapping[str, Any]) -> Experiment:
    """An Experiment of fields put together; names those that it does not have."""
    together, known = merged(*parts), [f.name for f in fields(Experiment)]
    if unknown := sorted(set(together) - set(known)):
        raise TypeError(f"Experiment has no field {', '.join(unknown)}; it has {', '.join(known)}")
    return Experiment(**together)


# Fields ---------------------------------------------------------------------------------------


def merged(*parts: Mapping[str, Any]) -> Fields:
    """Fields of Experiment put together: later ones win, mappings within them are merged, but the
    arguments of another sampler or optimizer start anew.

    >>> merged({"seed": 1, "data_args": {"level": "hard"}}, {"data_args": {"seed": 2}})
    {'seed': 1, 'data_args': {'level': 'hard', 'seed': 2}}
    """

    def add(below: Fields, above: Mapping[str, Any]) -> Fields:
        for name in ("sampler", "optimizer"):
            if above.get(name, below.get(name)) != below.get(name):
                below = {key: value for key, value in below.items() if key != f"{name}_args"}
        nested = {
            key: add(below[key], value)
            for key, value in above.items()
            if isinstance(value, Mapping) and isinstance(below.get(key), Mapping)
        }
        return {**below, **above, **nested}

    return reduce(add, parts, {})


def set_at(settings: Mapping[str, Any]) -> Fields:
    """``{"loss_args.margin": m}`` -> ``{"loss_args": {"margin": m}}``, at any depth.

    >>> set_at({"lr": 0.1, "loss_args.margin": 0.2})
    {'lr': 0.1, 'loss_args': {'margin': 0.2}}
    """
    nested = [
        reduce(lambda inner, key: {key: inner}, reversed(name.split(".")), value)
        for name, value in settings.items()
    ]
    return merged(*nested)


def is_set(fields: Mapping[str, Any], setting: str) -> bool:
    """Whether fields say what a setting, as "loss_args.margin", is.

    >>> is_set({"loss_args": {"margin": 0.1}}, "loss_args.margin")
    True
    """
    first, _, rest = setting.partition(".")
    inner = fields.get(first)
    return inner is not None and (not rest or is_set(inner, rest))


def experiment(
    rules: Protocol, arm: Arm, settings: Mapping[str, Any], steps: int, where: Mapping[str, Any]
) -> Experiment:
    """One training of an arm at its settings, in a search or a repetition (``where``).

    Of an ensemble, it is what each member is made of.
    """
    steps = max(1, round(steps * arm.steps_factor))
    choices = choices_of(rules, arm)
    chosen = [choices[key][settings[key]] for key in choices]
    tuned = {key: value for key, value in settings.items() if key not in choices}
    own_steps = set_at({arm.per_step: steps}) if arm.per_step else {}
    parts = ({"steps": steps}, arm.fields, *chosen, own_steps, set_at(tuned), where)
    return _experiment(rules.base, *parts)


def choices_of(rules: Protocol, arm: Arm) -> Choices:
    """What is tuned by name of an arm."""
    return {**rules.choices, **arm.choices}


def searching(rules: Protocol, number: int) -> Fields:
    """The fields of a search's trainings: they are scored on validation classes."""
    return {**rules.searches[number].fields, "split": "val"}


def repetition(rules: Protocol, k: int) -> Fields:
    """The fields of repetition k: what all have in common, what those of its search have, and k
    where a number is asked for."""
    numbers = dict.fromkeys(rules.repetitions.numbered, k)
    own = rules.searches[k % len(rules.searches)].repetitions
    return merged(rules.repetitions.fields, own, set_at(numbers), {"split": "test"})


def overlap(rules: Protocol) -> float:
    """The mean share of test classes that two repetitions have in common, from the images.

    It is what ``repetitions.overlap`` states.
    """
    tested = []
    for k in range(rules.repetitions.count):
        made = _experiment(rules.base, repetition(rules, k))
        tested.append(set(data.load(made.data, made.split, **made.data_args).class_names))
    shares = [
        len(one & other) / min(len(one), len(other))
        for i, one in enumerate(tested)
        for other in tested[:i]
    ]
    return float(np.mean(shares)) if shares else 0.0
