"""The rules of a study: its file, what it compares, and the Experiments that follow from both."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from dmlkit import ROOT, losses
from dmlkit.checks import check_arguments
from dmlkit.losses.contract import Range
from dmlkit.recipes import merged, nested
from dmlkit.training import Experiment

FOLDER = ROOT / "data" / "studies"
DEFAULTS = "defaults"  # the recipe of candidate 0
Fields = dict[str, Any]
Choices = Mapping[str, Mapping[str, Mapping[str, Any]]]
Made = TypeVar("Made")


# The file -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tuning:
    """Numbers of a search, equal for all arms: ``data/studies/scratch.toml`` explains them."""

    candidates: int
    short_steps: int
    steps: int
    finalists: int
    rounds: int
    extra: int
    edge: float
    reach: float
    further: int = 0  # candidates of a second pass
    least: int = 0  # with so many the second part of a sealed study may be opened; 0: with all


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
    by_class: bool = False  # whether Recall@1 of each class is kept


@dataclass(frozen=True)
class Hypothesis:
    """That an addition gains, in the mean of ``losses``: each with the ``addition`` minus itself
    with another one (``against``; "" is none). ``printed`` is the paper's own gain in points."""

    addition: str
    against: str
    losses: Sequence[str]
    printed: float
    source: str


@dataclass(frozen=True)
class Protocol:
    """The rules of a study, as they stand in its file in ``data/studies``.

    A study ``like`` another has that one's rules. It may set fields on top of that one's ``base``,
    and have ``arms`` and ``contrasts`` of its own: ``data/studies/claims.toml`` explains them.

    In a ``sealed`` study a training is scored twice: on validation classes and, out of sight, on
    test classes. Its searches are its repetitions: ``data/studies/grocery64.toml`` explains them.
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
    sealed: bool = False
    margin: float = 0.0  # points: a smaller gain is negligible
    hypotheses: Mapping[str, Hypothesis] = field(default_factory=dict)


@cache
def protocol(name: str, folder: Path = FOLDER) -> Protocol:
    """The rules of a study by its name, read once.

    Raises:
        ValueError: there is no such study, or Experiment refuses a value.
        TypeError: a key is unknown or missing, or Experiment has no such field.

    >>> protocol("scratch").repetitions.count
    12
    """
    path = folder / f"{name}.toml"
    if not path.is_file():
        there = ", ".join(sorted(found.stem for found in folder.glob("*.toml")))
        raise ValueError(f"no study {name!r} in {folder}; there are {there}")
    read = tomllib.loads(path.read_text(encoding="utf-8"))
    if "like" in read:
        check_arguments("a study like another", ("like", "base", "arms", "contrasts"), read)
        other = protocol(read["like"], folder)
        base = merged(other.base, read.get("base", {}))
        own = {key: read.get(key, {}) for key in ("arms", "contrasts")}
        rules = replace(other, name=name, like=other.name, base=base, **own)
    else:
        rules = _made(Protocol, {"name": name, **read})
        rules = replace(
            rules,
            ranges={key: (scale, low, high) for key, (scale, low, high) in rules.ranges.items()},
            tuning=_made(Tuning, rules.tuning),
            searches=[_made(Search, table) for table in rules.searches],
            repetitions=_made(Repetitions, rules.repetitions),
            hypotheses={name: _made(Hypothesis, told) for name, told in rules.hypotheses.items()},
        )
    for told in rules.contrasts.values():
        check_arguments(
            "a contrast", ("effect", "metric", "mean", "condition", "measure", "paper"), told
        )
    for number in range(len(rules.searches)):  # each goes with a repetition
        for where in (searching(rules, number), repetition(rules, number)):
            Experiment(**merged(rules.base, where))
    return rules


def _made(cls: type[Made], table: Any) -> Made:
    known = [f.name for f in fields(cls)]  # type: ignore[arg-type]
    check_arguments(f"[{cls.__name__.lower()}]", known, table)
    return cls(**table)


# Fields of Experiment -------------------------------------------------------------------------


def is_set(fields: Mapping[str, Any], setting: str) -> bool:
    """Whether fields say what a setting, as "loss_args.margin", is."""
    first, _, rest = setting.partition(".")
    inner = fields.get(first)
    return inner is not None and (not rest or is_set(inner, rest))


def searching(rules: Protocol, number: int) -> Fields:
    """The fields of a search's trainings: they are scored on validation classes."""
    return {**rules.searches[number].fields, "split": "val"}


def repetition(rules: Protocol, k: int) -> Fields:
    """The fields of repetition k: what all have in common, what those of its search have, and k
    where a number is asked for."""
    numbers = dict.fromkeys(rules.repetitions.numbered, k)
    own = rules.searches[k % len(rules.searches)].repetitions
    return merged(rules.repetitions.fields, own, nested(numbers), {"split": "test"})


# Arms -----------------------------------------------------------------------------------------

#: Losses that the papers put SEC or SEE on, and normalized softmax.
SEC_ON = (
    *("triplet_all", "triplet_semihard", "n_pairs_normalized", "multi_similarity"),
    "normalized_softmax",
)
SEE_ON = ("normalized_softmax", "cosface", "arcface", "proxy_nca_pp", "proxy_anchor")
#: With as many visits of each proxy as SEE's synthetic points bring.
VISITS_ON = ("normalized_softmax", "proxy_anchor")
_SEE_POINTS, _SEE_END_RATE, _SEE_WEIGHT = 8, 0.4, 0.2  # the authors' scripts
_MEMBERS = 4  # of DREML: together they have the dimensions and the steps of one network
_OF_ARM = (
    *(
        "of",
        "fields",
        "choices",
        "ranges",
        "off",
        "steps_factor",
        "members",
        "recipe_of",
        "factors",
    ),
)

_TAKEN = ("members", "choices", "off", "recipe_of", "factors")  # as they are


@dataclass(frozen=True)
class Arm:
    """What a study compares: a loss, or a loss with an addition, and what is tuned of it."""

    name: str
    fields: Mapping[str, Any]  # of Experiment
    space: Mapping[str, Range]  # of a setting, as "loss_args.margin"
    learns: bool = False  # the loss has parameters, and so a rate, of its own
    points: str = ""  # arms of the same draw the same candidates in the settings that they share
    off: Sequence[str] = ()  # settings that are 0 in some candidates
    per_step: str | None = None  # a setting that is the number of steps
    steps_factor: float = 1.0  # of the study's steps
    members: int = 1  # of an ensemble
    choices: Choices = field(default_factory=dict)  # replace the study's of the same name
    recipe_of: str | None = None  # another arm, or "defaults": then it is not tuned itself
    factors: Mapping[str, float] = field(default_factory=dict)  # of numbers of that recipe


def arms(rules: Protocol | None = None) -> dict[str, Arm]:
    """The arms of a study: those of its own rules, or else every loss of the table that is studied,
    SEC and the L2 penalty on those that SEC's paper has, SEE on those that SEE's has, and DREML.

    SEE is there as the paper writes it (a sum over the points, which reach the network), and as its
    authors' code has it (a mean, and the points reach the proxies alone), both with the curriculum.
    Its points show each proxy more samples: the arms "as many visits" train the plain loss for as
    many steps as show as many real ones. DREML's four members (of the loss ``meta_class``) have
    each a quarter of the steps and of the dimensions of one network.

    >>> arms()["normalized_softmax + SEC"].fields["constraint"]
    {'weight': 0.1, 'target': 'mean'}
    """
    if rules and rules.arms:
        known = _of_table(64)
        return {name: _derived(name, known, told) for name, told in rules.arms.items()}
    return dict(_of_table(rules.base["dim"] if rules else 64))


@cache  # each loss is built for it
def _of_table(dim: int) -> dict[str, Arm]:
    names = [entry.name for entry in losses.entries() if entry.studied]
    plain = {n: loss_arm(n) for n in names if n not in ("spherical_expansion", "meta_class")}
    found = list(plain.values())
    for name in SEC_ON:
        found.append(_constrained(plain[name], "SEC", "mean", 0.1))  # the smallest of its paper
        # n² is some ten times (n - mean n)²: the same force at a tenth of the weight
        found.append(_constrained(plain[name], "L2", 0.0, 0.01))
    for name in SEE_ON:
        found += [_expanded(plain[name], detach) for detach in (False, True)]
    visits = 1 + _SEE_POINTS * _SEE_END_RATE / 2  # the rate's mean is half its end
    for name in VISITS_ON:
        found.append(replace(plain[name], name=f"{name}, as many visits", steps_factor=visits))
    fields = {"loss": "meta_class", "dim": dim // _MEMBERS}
    dreml = Arm("dreml", fields, {}, points="dreml", steps_factor=1 / _MEMBERS, members=_MEMBERS)
    return {arm.name: arm for arm in [*found, dreml]}


def loss_arm(name: str, loss_args: Mapping[str, Any] | None = None) -> Arm:
    """A loss by its name, with nothing added."""
    made = losses.build(name, num_classes=8, dim=16, **(loss_args or {}))
    return Arm(
        name,
        {"loss": name, **({"loss_args": dict(loss_args)} if loss_args else {})},
        {f"loss_args.{key}": bounds for key, bounds in (losses.entry(name).space or {}).items()},
        learns=any(p.requires_grad for p in made.parameters()),
        points=name,
    )


def _constrained(plain: Arm, label: str, target: str | float, start: float) -> Arm:
    key = "constraint.weight"
    return replace(
        plain,
        name=f"{plain.name} + {label}",
        fields={**plain.fields, "constraint": {"weight": start, "target": target}},
        space={**plain.space, key: ("log", start / 100, start * 10)},
        off=(key,),
    )


def _expanded(plain: Arm, detach: bool) -> Arm:
    # The paper sums over the points of a sample where the code takes a mean: n times the weight.
    weight = _SEE_WEIGHT * (1 if detach else _SEE_POINTS)
    args = {
        "loss": plain.name, "points": _SEE_POINTS, "weight": weight, "detach": detach,
        "start_rate": 0.0, "end_rate": _SEE_END_RATE,
    }  # fmt: skip
    inside = {
        key.replace("loss_args.", "loss_args.loss_args."): bounds
        for key, bounds in plain.space.items()
    }
    return replace(
        plain,
        name=f"{plain.name} + SEE, {'code' if detach else 'paper'}",
        fields={"loss": "spherical_expansion", "loss_args": args},
        space={**inside, "loss_args.weight": ("log", weight / 10, weight * 10)},
        per_step="loss_args.steps",
    )


def _derived(name: str, known: Mapping[str, Arm], told: Mapping[str, Any]) -> Arm:
    """An arm that is ``of`` a known one, else of the one of its name, but for what it says.

    Its ``fields`` are put on top; a setting that they fix is not tuned. ``ranges`` replace those of
    the same setting, ``choices`` those of the same name.
    """
    check_arguments(f"the arm {name!r}", _OF_ARM, told)
    base, fields = known[told.get("of", name)], told.get("fields", {})
    own = {key: tuple(bounds) for key, bounds in told.get("ranges", {}).items()}
    kept = {  # in the order of the known arm's, as that is which coordinate a setting draws
        key: bounds for key, bounds in base.space.items() if key in own or not is_set(fields, key)
    }
    return replace(
        base,
        name=name,
        fields=merged(base.fields, fields),
        space=kept | own,
        steps_factor=base.steps_factor * told.get("steps_factor", 1.0),
        **{key: told[key] for key in _TAKEN if key in told},
    )


def is_part(arm: Arm, whole: Arm) -> bool:
    """Whether an arm is another one with fewer choices: what it tries, the other could have."""
    usual = protocol("scratch").choices
    fewer = all(names.items() <= usual[key].items() for key, names in arm.choices.items())
    same = replace(arm, name=whole.name, choices=whole.choices) == whole
    return bool(arm.choices) and fewer and same


def choices_of(rules: Protocol, arm: Arm) -> Choices:
    """What is tuned by name of an arm."""
    return {**rules.choices, **arm.choices}


def experiment(
    rules: Protocol, arm: Arm, settings: Mapping[str, Any], steps: int, where: Mapping[str, Any]
) -> Experiment:
    """One training of an arm at its settings, in a search or a repetition (``where``).

    Of an ensemble, it is what each member is made of.
    """
    steps = max(1, round(steps * arm.steps_factor))
    choices = choices_of(rules, arm)
    chosen = [choices[key][settings[key]] for key in choices]
    tuned = nested({key: value for key, value in settings.items() if key not in choices})
    own_steps = nested({arm.per_step: steps}) if arm.per_step else {}
    parts = ({"steps": steps}, arm.fields, *chosen, own_steps, tuned, where)
    return Experiment(**merged(rules.base, *parts))
