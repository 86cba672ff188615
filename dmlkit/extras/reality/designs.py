"""Studies of single questions: arms made of another study's, and contrasts of their scores."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from dmlkit.extras.reality.protocol import Arm, Protocol, merged

_KEYS = ("of", "fields", "choices", "ranges", "steps_factor", "members", "recipe_of", "factors")


def designed(rules: Protocol, known: Mapping[str, Arm]) -> dict[str, Arm]:
    """The arms of rules that have their own: each is ``of`` a known one, but for what it says.

    Its ``fields`` are put on top; a setting that they fix is not tuned. ``ranges`` replace those of
    the same setting, ``choices`` those of the same name. ``recipe_of`` another arm, or "defaults":
    it is not tuned, and a number of that recipe is multiplied by its ``factors``.

    Raises:
        ValueError: it is of no arm, or has a key that no arm has.
    """
    found = {}
    for name, told in rules.arms.items():
        if unknown := sorted(set(told) - set(_KEYS)):
            raise ValueError(f"the arm {name!r} has no key {', '.join(unknown)}: {_KEYS}")
        if told.get("of") not in known:
            raise ValueError(f"the arm {name!r} is of no arm of the study: {told.get('of')!r}")
        found[name] = _derived(name, known[told["of"]], told)
    return found


def _derived(name: str, base: Arm, told: Mapping[str, Any]) -> Arm:
    fields = told.get("fields", {})
    space = {key: bounds for key, bounds in base.space.items() if not _is_set(fields, key)}
    space |= {key: tuple(bounds) for key, bounds in told.get("ranges", {}).items()}
    return replace(
        base,
        name=name,
        fields=merged(base.fields, fields),
        space=space,
        steps_factor=base.steps_factor * told.get("steps_factor", 1.0),
        members=told.get("members", base.members),
        choices=told.get("choices", {}),
        recipe_of=told.get("recipe_of"),
        factors=told.get("factors", {}),
    )


def _is_set(fields: Mapping[str, Any], setting: str) -> bool:
    """Whether fields say what a setting, as "loss_args.margin", is."""
    first, _, rest = setting.partition(".")
    inner = fields.get(first)
    return inner is not None and (not rest or _is_set(inner, rest))


def contrast(rules: Protocol, claim: str, *evidence: pd.DataFrame) -> pd.Series:
    """A claim's measure, one value for each repetition that has all arms: a sum of their scores.

    The weights are ``contrasts.CLAIM.effect``, the score its ``metric`` (``recall_at_1`` unless
    given). An arm may lie in any table of evidence.

    Raises:
        ValueError: there is no such contrast, or no evidence of an arm.
    """
    if claim not in rules.contrasts:
        raise ValueError(f"no contrast {claim!r}; there are {', '.join(rules.contrasts)}")
    told = rules.contrasts[claim]
    rows = pd.concat([table for table in evidence if len(table)], ignore_index=True)
    wide = rows.pivot(index="repetition", columns="arm", values=told.get("metric", "recall_at_1"))
    if missing := [arm for arm in told["effect"] if arm not in wide]:
        raise ValueError(f"no evidence yet of {', '.join(missing)}")
    scores = wide[list(told["effect"])].dropna()
    return (scores * pd.Series(told["effect"])).sum(axis=1)
