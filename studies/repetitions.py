"""Comparing arms on test classes."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from dmlkit.training import Experiment
from studies.protocol import Arm, Protocol, experiment, merged, repetition
from studies.trainings import How, Plan, Table, work_off

ROW_KEY = ("arm", "repetition")


def compare(
    rules: Protocol,
    chosen: Sequence[Arm],
    found: Mapping[tuple[str, int], Mapping[str, Any]],
    table: Table | None = None,
    how: How | None = None,
) -> pd.DataFrame:
    """Score arms, and what they must beat, on test classes: one row for each arm and repetition.

    Repetition k takes the recipe of search k mod S, of S searches. Columns: arm, repetition,
    search, recipe (JSON), hash, steps, seed, and those of ``trained``. The arms beside the chosen
    are "raw pixels" and the network as training finds it, "untrained network" or "pretrained".

    Raises:
        ValueError: an arm has no recipe.
    """
    searches = len(rules.searches)
    lacking = {arm.name for arm in chosen for s in range(searches) if (arm.name, s) not in found}
    if lacking:
        names = ", ".join(sorted(lacking))
        raise ValueError(f"no recipe of every search for {names}: search first")
    plans = []
    for k in range(rules.repetitions.count):  # so that what is there at any time is balanced
        plans += [baseline(rules, name, k) for name in baselines(rules)]
        plans += [repeated(rules, arm, k, found[arm.name, k % searches]) for arm in chosen]
    return work_off(plans, table or Table(ROW_KEY), how or How())


def repeated(rules: Protocol, arm: Arm, k: int, recipe: Mapping[str, Any]) -> Plan:
    """The training of an arm in repetition k."""
    made = experiment(rules, arm, recipe, rules.base["steps"], repetition(rules, k))
    return Plan(_facts(rules, arm.name, k, recipe), made, arm.members)


def baselines(rules: Protocol) -> tuple[str, str]:
    """What training must beat, as ``training.baselines`` names it."""
    pretrained = rules.base.get("model_args", {}).get("pretrained", False)
    return "raw pixels", "pretrained network" if pretrained else "untrained network"


def baseline(rules: Protocol, name: str, k: int) -> Plan:
    """What is not trained, in repetition k."""
    made = Experiment(**merged(rules.base, repetition(rules, k)))
    return Plan(_facts(rules, name, k, {}), made, baseline=name)


def _facts(rules: Protocol, name: str, k: int, recipe: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"repetition": k, "search": k % len(rules.searches)}
    return {"arm": name, **numbers, "recipe": json.dumps(recipe)}
