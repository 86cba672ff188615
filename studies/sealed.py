"""A study in which a training is scored twice: on validation classes and, sealed, on test classes.

The searches are the repetitions. Each has its own fold of test classes, its own third of the others
as validation classes, and its own seed; every candidate of every arm is trained in full and scored
on both by the same network. What the test classes say goes to a file of its own, line by line,
which nothing reads before ``unseal``: no choice, no status and no plan depends on it.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dmlkit import ROOT
from dmlkit.files import write_whole
from studies.rules import Arm, Protocol
from studies.search import candidates, trial
from studies.trainings import EVIDENCE, TRIAL_KEY, TRIALS, Plan, Table, work_off

SEALED = ROOT / "data" / "sealed"
_COLUMNS = ("arm", "search", "candidate", "hash", "hits")


class SealedTable(Table):
    """The trials of a sealed study; what they say of test classes is only ever added to ``sealed``.

    A line is added before its row is kept. So a training that was broken off between the two is
    done again, and has two lines, of which the last counts.
    """

    def __init__(self, path: Path, sealed: Path) -> None:
        super().__init__(TRIAL_KEY, path)
        self.sealed = sealed

    def enter(self, plan: Plan, outcome: Mapping[str, Any]) -> None:
        """Take up what a training gave, and put the sealed part aside."""
        kept = dict(outcome)
        line = [*(plan.facts[name] for name in _COLUMNS[:3]), plan.hash, kept.pop("sealed")]
        self.sealed.parent.mkdir(parents=True, exist_ok=True)
        with self.sealed.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if not file.tell():
                writer.writerow(_COLUMNS)
            writer.writerow(line)
        super().enter(plan, kept)


def table(name: str) -> SealedTable:
    """The trials of a sealed study, as they are kept."""
    return SealedTable(TRIALS / f"{name}.csv", SEALED / f"{name}.csv")


def primary(rules: Protocol) -> list[str]:
    """The arms of the hypotheses, in the order of the study's arms."""
    of = {
        f"{loss}{addition}"
        for h in rules.hypotheses.values()
        for loss in h.losses
        for addition in ("", h.addition, h.against)
    }
    return [name for name in rules.arms if name in of]


def plans(rules: Protocol, chosen: Sequence[Arm]) -> list[Plan]:
    """All trainings, in the order in which they are done: the arms of the hypotheses, then the
    others; of each part all arms have candidate 0 in every search before one has candidate 1."""
    first = set(primary(rules))
    settings = {
        (arm.name, s): candidates(rules, arm, s)
        for arm in chosen
        for s in range(len(rules.searches))
    }
    return [
        trial(rules, arm, s, "full", i, settings[arm.name, s][i])
        for part in (True, False)
        for i in range(rules.tuning.candidates)
        for s in range(len(rules.searches))
        for arm in chosen
        if (arm.name in first) == part
    ]


def follow(rules: Protocol, chosen: Sequence[Arm], trials: Table, **how: Any) -> None:
    """Go on with the trainings: see ``plans`` and ``work_off``."""
    work_off(plans(rules, chosen), trials, **how)


def layers(rules: Protocol, trials: pd.DataFrame) -> dict[str, int]:
    """How many candidates each arm has in every search: the first ones, without a gap."""
    done = {
        (row.arm, row.search, row.candidate) for row in trials.itertuples()
    }  # of the rules as they are
    found = {}
    for arm in rules.arms:
        found[arm] = 0
        while found[arm] < rules.tuning.candidates and all(
            (arm, s, found[arm]) in done for s in range(len(rules.searches))
        ):
            found[arm] += 1
    return found


def unseal(rules: Protocol, trials: Table) -> Path:
    """Break the seal of each part that is complete (the arms of the hypotheses, the others), once:
    write the evidence, a row for each training, to ``data/evidence``.

    The others are complete with all candidates, or with ``tuning.least``: then those count.
    Columns: arm, search, candidate, hash, validation (Recall@1), hits (of each test class, in the
    classes' order). Raises ValueError where the hypotheses' arms lack trainings, where the others
    are open already, or where a training and its sealed line are not of one Experiment.
    """
    there, first, count = layers(rules, trials.frame()), primary(rules), rules.tuning.candidates
    if few := sum(count - there[arm] for arm in first) * len(rules.searches):
        raise ValueError(f"{few} trainings are lacking: first dmlkit study {rules.name}")
    path, others = EVIDENCE / f"{rules.name}.csv", [arm for arm in there if arm not in first]
    if path.is_file() and pd.read_csv(path)["arm"].isin(others).any():
        raise ValueError(f"all of {rules.name} is open: see {path}")
    deep = min((there[arm] for arm in others), default=0)
    counted = dict.fromkeys(first, count)
    if deep >= (rules.tuning.least or count):
        counted |= dict.fromkeys(others, deep)
    read = pd.read_csv(SEALED / f"{rules.name}.csv", dtype={"hash": str}, keep_default_na=False)
    key = ["arm", "search", "candidate"]
    lines = read.drop_duplicates(key, keep="last")
    found = trials.frame()[[*key, "hash", "recall_at_1"]].merge(
        lines, on=[*key, "hash"], how="left"
    )
    found = found[found["candidate"] < found["arm"].map(counted).fillna(0)]
    if found["hits"].isna().any():
        raise ValueError(f"{found['hits'].isna().sum()} trainings have no sealed line of their own")
    kept = found.rename(columns={"recall_at_1": "validation"}).sort_values(key)
    write_whole({path: partial(kept.to_csv, index=False)})
    return path
