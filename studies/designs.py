"""Studies of single claims: arms made of another study's, and contrasts of their scores."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from dmlkit.checks import check_count, check_positive
from studies.candidates import candidates, space
from studies.protocol import (
    DEFAULTS,
    Arm,
    Fields,
    Protocol,
    checked_range,
    choices_of,
    experiment,
    is_set,
    merged,
)
from studies.repetitions import baselines

_KEYS = ("of", "fields", "choices", "ranges", "steps_factor", "members", "recipe_of", "factors")
_CONTRAST_KEYS = ("effect", "metric")
_AT = " @ "  # between an arm and the metric that is its own in a contrast


def designed(rules: Protocol, known: Mapping[str, Arm]) -> dict[str, Arm]:
    """The arms of rules that have their own: each is ``of`` a known one, but for what it says.

    Its ``fields`` are put on top; a setting that they fix is not tuned. ``ranges`` replace those of
    the same setting, ``choices`` those of the same name. ``recipe_of`` another arm (one that is
    known, or one of these that is tuned), or "defaults": it is not tuned, and a number of that
    recipe is multiplied by its ``factors``; see ``adapted``.

    Raises:
        ValueError: an arm has a key that no arm has, or is of no arm; it fixes what a choice sets;
            it has the recipe of no arm, or factors of what is not in it; a contrast is of no arm.
        TypeError: a field is none of Experiment's, or has a value that it cannot have.
    """
    found = {}
    for name, told in rules.arms.items():
        try:
            found[name] = _derived(name, _base(told, known), told)
        except (ValueError, TypeError) as error:
            raise type(error)(f"the arm {name!r} {error}") from error
    sources = {**known, **{name: arm for name, arm in found.items() if not arm.recipe_of}}
    for arm in found.values():
        try:
            _check_fields(rules, arm)
            _check_recipe(rules, arm, sources)
        except (ValueError, TypeError) as error:
            raise type(error)(f"the arm {arm.name!r}: {error}") from error
    _check_contrasts(rules, {*known, *found, *baselines(rules)})
    return found


def _base(told: Mapping[str, Any], known: Mapping[str, Arm]) -> Arm:
    if unknown := sorted(set(told) - set(_KEYS)):
        raise ValueError(f"has no key {', '.join(unknown)}: it has {', '.join(_KEYS)}")
    if told.get("of") not in known:
        raise ValueError(f"is of no arm of the study: {told.get('of')!r}")
    return known[told["of"]]


def _derived(name: str, base: Arm, told: Mapping[str, Any]) -> Arm:
    fields = told.get("fields", {})
    own = {key: checked_range(key, bounds) for key, bounds in told.get("ranges", {}).items()}
    kept = {  # in the order of the known arm's, as that is which coordinate a setting draws
        key: bounds for key, bounds in base.space.items() if key in own or not is_set(fields, key)
    }
    return replace(
        base,
        name=name,
        fields=merged(base.fields, fields),
        space=kept | own,
        steps_factor=base.steps_factor * told.get("steps_factor", 1.0),
        members=told.get("members", base.members),
        choices=told.get("choices", {}),
        recipe_of=told.get("recipe_of"),
        factors=told.get("factors", {}),
    )


def _check_fields(rules: Protocol, arm: Arm) -> None:
    """Refuse before any training what would fail in one, or be overruled by a choice."""
    check_count(members=arm.members)
    check_positive(steps_factor=arm.steps_factor)
    for choice, options in choices_of(rules, arm).items():
        if not options:
            raise ValueError(f"the choice {choice!r} is empty")
        for name, changes in options.items():
            if lost := [key for key in _settings(changes) if is_set(arm.fields, key)]:
                raise ValueError(
                    f"its fields set {', '.join(lost)}, which the choice {choice!r}, {name!r}, "
                    f"sets as well: say choices.{choice} instead"
                )
    try:
        first = candidates(rules, arm, 0)[0]
    except KeyError as error:
        raise ValueError(f"its loss has no setting {error}") from error
    experiment(rules, arm, first, rules.base["steps"], {})


def _check_recipe(rules: Protocol, arm: Arm, sources: Mapping[str, Arm]) -> None:
    """Refuse a recipe that no arm has, and what an arm cannot take of it."""
    if arm.recipe_of not in {None, DEFAULTS, *sources}:
        raise ValueError(f"recipe_of {arm.recipe_of!r}, but no such arm is tuned")
    if arm.factors and not arm.recipe_of:
        raise ValueError("factors of no recipe: say recipe_of")
    source = sources.get(arm.recipe_of or "", arm)
    shared = set(space(rules, arm)) & set(space(rules, source))
    if unused := sorted(set(arm.factors) - shared):
        raise ValueError(f"factors of {', '.join(unused)}, which it does not take of a recipe")
    for choice, options in choices_of(rules, arm).items():
        theirs = choices_of(rules, source).get(choice, options)
        if arm.recipe_of and len(options) > 1 and not set(theirs) <= set(options):
            raise ValueError(f"its choice {choice!r} must be one, or have the names of the recipe")


def _settings(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Names of the settings that fields say, as "loss_args.margin"."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{key}.")
        else:
            yield prefix + key


def _check_contrasts(rules: Protocol, known: set[str]) -> None:
    for claim, told in rules.contrasts.items():
        if unknown := sorted(set(told) - set(_CONTRAST_KEYS)):
            raise ValueError(
                f"the contrast {claim!r} has no key {', '.join(unknown)}: it has "
                f"{', '.join(_CONTRAST_KEYS)}"
            )
        if not told.get("effect"):
            raise ValueError(f"the contrast {claim!r} lacks effect, the weights of its arms")
        if unknown := sorted({_arm(term) for term in told["effect"]} - known):
            raise ValueError(f"the contrast {claim!r} is of no arm: {', '.join(unknown)}")


def adapted(rules: Protocol, arm: Arm, recipe: Mapping[str, Any]) -> Fields:
    """The recipe of another as an arm has it that is not tuned itself.

    What the arm fixes stays; what the recipe lacks is as in the defaults; an option that the arm
    has not is the only one that it has; factors multiply.
    """
    choices = choices_of(rules, arm)
    first = candidates(rules, arm, 0)[0]
    taken = {
        key: recipe[key]
        for key in first
        if key in recipe and (key not in choices or recipe[key] in choices[key])
    }
    return {
        key: value * arm.factors[key] if key in arm.factors else value
        for key, value in (first | taken).items()
    }


def contrast(rules: Protocol, claim: str, *evidence: pd.DataFrame) -> pd.Series:
    """A claim's measure, one value for each repetition that has all arms: a sum of their scores.

    The weights are ``contrasts.CLAIM.effect``, the score its ``metric`` (``recall_at_1`` unless
    given), or that of a term "arm @ metric". An arm may lie in any table of evidence; in several,
    the first one counts.

    Raises:
        ValueError: there is no such contrast, or no evidence of an arm, or none of its metric.
    """
    if claim not in rules.contrasts:
        raise ValueError(f"no contrast {claim!r}; there are {', '.join(rules.contrasts)}")
    weights = pd.Series(rules.contrasts[claim]["effect"], dtype=float)
    usual = rules.contrasts[claim].get("metric", "recall_at_1")
    tables = [table for table in evidence if len(table)]
    rows = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame({"arm": []})
    if missing := [arm for arm in map(_arm, weights.index) if arm not in set(rows["arm"])]:
        raise ValueError(f"no evidence yet of {', '.join(missing)}")
    # Every study has rows of the baselines, and may have those of an arm that another has.
    mine = rows.drop_duplicates(["arm", "repetition"]).set_index(["repetition", "arm"])
    scores = {}
    for term in weights.index:
        metric = term.partition(_AT)[2] or usual
        if metric not in mine:
            raise ValueError(f"the evidence has no score {metric!r}")
        scores[term] = mine[metric].xs(_arm(term), level="arm")
    return (pd.DataFrame(scores).dropna() * weights).sum(axis=1)


def terms(rules: Protocol, claim: str) -> list[str]:
    """The arms of a contrast, in its order, once for each term."""
    return [_arm(term) for term in rules.contrasts[claim]["effect"]]


def _arm(term: str) -> str:
    """The arm of a contrast's term, "arm" or "arm @ metric"."""
    return term.partition(_AT)[0]
