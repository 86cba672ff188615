"""Trainings that a study asks for, the table on disk that has a row for each, and repetitions."""

import json
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from dmlkit import ROOT, data, geometry, numerics, retrieval, training, workers
from dmlkit.backbones import is_published
from dmlkit.data import ImageSet
from dmlkit.files import write_whole
from dmlkit.recipes import merged
from dmlkit.training import Experiment
from dmlkit.training.scoring import score
from studies.dreml import Ensemble, member_experiments
from studies.rules import Arm, Protocol, experiment, repetition

_SCORES = (*(f"recall_at_{k}" for k in (1, 2, 4, 8, 16)), "map_at_r", "nmi")
_OWN = ("recall_at_1_signs", "spread")
#: Of each row: the scores of ``retrieval.evaluate``, Recall@1 of the embeddings' signs alone, and
#: the mean distance between two embeddings on the unit sphere, 0 after a collapse.
METRICS = (*_SCORES, *_OWN)
TRIAL_KEY, ROW_KEY = ("arm", "search", "stage", "candidate"), ("arm", "repetition")
TRIALS, EVIDENCE = ROOT / "data" / "tuning", ROOT / "data" / "evidence"
_WRITE_EVERY = 8  # rows
_TEXTS = ("arm", "hash", "device", "numerics", "torch", "code")  # a hash may be all digits

# Rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """One row that a study asks for: what names it, what else it tells, and what is trained.

    Of an ensemble, ``experiment`` is what each of several ``members`` is made of; none are trained
    where the arm is a ``baseline``. A ``sealed`` one is scored on test classes too: see ``sealed``.
    """

    facts: Mapping[str, Any]
    experiment: Experiment
    members: int = 1
    baseline: str | None = None
    by_class: bool = False
    sealed: bool = False

    @property
    def hash(self) -> str:
        """Of the Experiment, and of how many members there are."""
        return self.experiment.hash() + (f"x{self.members}" if self.members > 1 else "")

    @property
    def steps(self) -> int:
        """Those of all members together."""
        return 0 if self.baseline else self.experiment.steps * self.members


class Table:
    """Rows by what names them, and the CSV file that keeps them; without a path, nothing does."""

    def __init__(self, key: Sequence[str], path: Path | None = None) -> None:
        self.key, self.path = tuple(key), path
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        if path is not None and path.is_file():
            texts = dict.fromkeys(_TEXTS, str)
            unknown = {metric: [""] for metric in _OWN}  # of a baseline
            read = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values=unknown)
            for row in read.to_dict("records"):
                self.rows[self.place(row)] = {str(name): value for name, value in row.items()}

    def place(self, facts: Mapping[str, Any]) -> tuple[Any, ...]:
        """What names a row."""
        return tuple(facts[name] for name in self.key)

    def found(self, plan: Plan) -> dict[str, Any] | None:
        """The row of a plan, if it is there and was made of the same Experiment."""
        row = self.rows.get(self.place(plan.facts))
        return row if row and row["hash"] == plan.hash else None

    def enter(self, plan: Plan, outcome: Mapping[str, Any]) -> None:
        """Take up what a training gave."""
        facts = {"hash": plan.hash, "steps": plan.steps, "seed": plan.experiment.seed}
        self.rows[self.place(plan.facts)] = {**plan.facts, **facts, **outcome}

    def forget_others(self, plans: Sequence[Plan]) -> None:
        """Drop rows that other rules asked for: those of the same arm (and search and stage)."""
        before, asked = len(self.rows), {self.place(plan.facts) for plan in plans}
        groups = {place[:-1] for place in asked}
        self.rows = {p: row for p, row in self.rows.items() if p in asked or p[:-1] not in groups}
        if len(self.rows) < before:
            self.write()

    def frame(self) -> pd.DataFrame:
        """All rows, in the order of their names, whenever they came."""
        return pd.DataFrame([self.rows[place] for place in sorted(self.rows)])

    def write(self) -> None:
        """Put the file in place, whole."""
        if self.path is not None and self.rows:
            write_whole({self.path: partial(self.frame().to_csv, index=False)})


def tables(name: str) -> tuple[Table, Table]:
    """The trials and the evidence of a study, as they are kept."""
    return Table(TRIAL_KEY, TRIALS / f"{name}.csv"), Table(ROW_KEY, EVIDENCE / f"{name}.csv")


# One training ---------------------------------------------------------------------------------


def trained(plan: Plan, device: str = "auto", store: Path | None = None) -> dict[str, Any]:
    """What a row tells of its training, which is done, or found in the ``store``.

    Without a store nothing is kept but the row: a study has thousands of Runs.
    """
    if store is None:
        with tempfile.TemporaryDirectory() as folder:
            return trained(plan, device, Path(folder))
    made, where = plan.experiment, training.device_type(device)
    told: dict[str, Any] = {
        "device": where,
        "numerics": torch.cuda.get_device_name() if where == "cuda" else numerics.describe(),
        "torch": torch.__version__,
        "code": "", "seconds": 0.0, "diverged": False,
    }  # fmt: skip
    images = data.load(made.data, made.split, **made.data_args)
    if plan.baseline:
        x = training.untrained(made, device)[plan.baseline]
        scores = score(made, images, x)
        told |= _rounded({**scores, **dict.fromkeys(_OWN, float("nan"))})
        return told | (_by_class(made, images, x) if plan.by_class else {})
    parts = member_experiments(made, plan.members, made.dim) if plan.members > 1 else [made]
    how: dict[str, Any] = {"device": device, "store": store, "wait": True, "progress": False}
    try:
        runs = tuple(training.run(part, **how) for part in parts)
    except training.DivergedError:  # it found nothing
        nothing = {"hits": "", "sealed": ""} if plan.sealed else {}
        return told | {"diverged": True} | _rounded(dict.fromkeys(METRICS, 0.0)) | nothing
    found = Ensemble(runs) if plan.members > 1 else runs[0]
    told |= {"code": runs[0].provenance["code"], "seconds": round(sum(r.seconds for r in runs), 2)}
    told |= _rounded({**found.scores, **_of_embeddings(images, found.embeddings)})
    if plan.sealed:  # the same networks, on classes that no choice sees
        tests = data.load(made.data, "test", **made.data_args)
        told |= {"hits": _hits(made, images, found.embeddings)}
        told |= {"sealed": _hits(made, tests, _embedded(runs, tests))}
    return told | (_by_class(made, images, found.embeddings) if plan.by_class else {})


def _rounded(scores: Mapping[str, float]) -> dict[str, float]:
    return {metric: round(scores[metric], 6) for metric in METRICS}


def _of_embeddings(images: ImageSet, x: np.ndarray) -> dict[str, float]:
    """Recall@1 of the signs alone, and the mean distance of two embeddings on the unit sphere, in
    float64, in which rows that are equal are so."""
    signs = np.where(x > 0, 1.0, -1.0).astype(np.float32)
    recall = retrieval.recall_at_k(**images.retrieval_sets(signs), ks=[1])[1]
    z = geometry.normalize(torch.from_numpy(x).double())
    total = sum(float(torch.cdist(rows, z).sum()) for rows in z.split(1024))
    return dict(zip(_OWN, (recall, total / (len(z) * (len(z) - 1))), strict=True))


def _embedded(runs: Sequence[training.Run], images: ImageSet) -> np.ndarray:
    """What a Run, or the members of an ensemble, make of other images than those of their split."""
    with training.repeatable_numerics(runs[0].experiment.threads):
        parts = [training.embed(run.model(), images) for run in runs]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([geometry.normalize(torch.from_numpy(x)).numpy() for x in parts], axis=1)


def _hits(made: Experiment, images: ImageSet, x: np.ndarray) -> str:
    """How many queries of each class found their class first, in the classes' order."""
    sets = images.retrieval_sets(x)
    each = retrieval.by_query(**sets, scores=["recall_at_1"], metric=made.metric)["recall_at_1"]
    return " ".join(map(str, each.groupby("label").sum().astype(int)))


def _by_class(made: Experiment, images: ImageSet, x: np.ndarray) -> dict[str, str]:
    """Recall@1 of each class by its name, as JSON."""
    sets = images.retrieval_sets(x)
    each = retrieval.by_query(**sets, scores=["recall_at_1"], metric=made.metric)["recall_at_1"]
    mean = each.groupby("label").mean().round(4)
    return {"by_class": json.dumps({images.class_names[k]: value for k, value in mean.items()})}


# Many trainings -------------------------------------------------------------------------------


def work_off(
    plans: Sequence[Plan],
    table: Table,
    executor: Executor | None = None,
    device: str = "auto",
    store: Path | None = None,
    progress: bool = False,
) -> pd.DataFrame:
    """Train what the table lacks, side by side, and enter it; the rows of the plans, in order.

    The table is written after every few rows, and whatever ends this. Raises RuntimeError where
    some trainings failed; the others were finished first.
    """
    table.forget_others(plans)
    waiting = [plan for plan in plans if table.found(plan) is None]
    failed: list[tuple[Plan, Exception]] = []
    title = waiting[0].facts.get("stage", "repetitions") if waiting else ""
    jobs = {number: (plan, device, store) for number, plan in enumerate(waiting)}
    with tqdm(total=len(jobs), desc=title, disable=not (progress and jobs)) as bar:
        try:
            for number, outcome in workers.outcomes(trained, jobs, executor) if jobs else ():
                bar.update()
                if isinstance(outcome, Exception):
                    failed.append((waiting[number], outcome))
                else:
                    table.enter(waiting[number], outcome)
                if bar.n % _WRITE_EVERY == 0:
                    table.write()
        finally:
            table.write()
    if failed:
        plan, first = failed[0]
        of = f"{len(failed)} of {len(waiting)} trainings failed"
        raise RuntimeError(f"{of}; the first, {dict(plan.facts)}: {first}") from first
    return pd.DataFrame([table.found(plan) for plan in plans])


# Repetitions ----------------------------------------------------------------------------------


def compare(
    rules: Protocol,
    chosen: Sequence[Arm],
    recipes: Mapping[tuple[str, int], Mapping[str, Any]],
    table: Table,
    **how: Any,
) -> pd.DataFrame:
    """Score arms, and what they must beat, on test classes: one row for each arm and repetition.

    Repetition k takes the recipe of search k mod S, of S searches. Columns: arm, repetition,
    search, recipe (JSON), hash, steps, seed, and those of ``trained``. ``how`` is of ``work_off``.
    """
    plans, S = [], len(rules.searches)
    for k in range(rules.repetitions.count):  # so that what is there at any time is balanced
        plans += [baseline(rules, name, k) for name in baselines(rules)]
        plans += [repeated(rules, arm, k, recipes[arm.name, k % S]) for arm in chosen]
    return work_off(plans, table, **how)


def repeated(rules: Protocol, arm: Arm, k: int, recipe: Mapping[str, Any]) -> Plan:
    """The training of an arm in repetition k."""
    made = experiment(rules, arm, recipe, rules.base["steps"], repetition(rules, k))
    by_class = rules.repetitions.by_class
    return Plan(_facts(rules, arm.name, k, recipe), made, arm.members, by_class=by_class)


def baselines(rules: Protocol) -> tuple[str, str]:
    """What training must beat, as ``training.baselines`` names it."""
    pretrained = rules.base.get("model_args", {}).get("pretrained", False)
    if pretrained and is_published(rules.base["model"]):
        return "raw pixels", "untouched features"
    if "features" in rules.base.get("data_args", {}):
        return "untouched features", "random head"
    return "raw pixels", "pretrained network" if pretrained else "untrained network"


def baseline(rules: Protocol, name: str, k: int) -> Plan:
    """What is not trained, in repetition k."""
    made = Experiment(**merged(rules.base, repetition(rules, k)))
    by_class = rules.repetitions.by_class
    return Plan(_facts(rules, name, k, {}), made, baseline=name, by_class=by_class)


def _facts(rules: Protocol, name: str, k: int, recipe: Mapping[str, Any]) -> dict[str, Any]:
    numbers = {"repetition": k, "search": k % len(rules.searches)}
    return {"arm": name, **numbers, "recipe": json.dumps(recipe)}
