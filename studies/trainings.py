"""Trainings that a study asks for, and the table on disk that has a row for each."""

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from tqdm.auto import tqdm

from dmlkit import geometry, numerics, retrieval, study, training, workers
from dmlkit.files import write_whole
from dmlkit.training import Experiment
from studies.dreml import Ensemble, member_experiments

_SCORES = (*(f"recall_at_{k}" for k in (1, 2, 4, 8, 16)), "map_at_r", "nmi")
_OWN = ("recall_at_1_signs", "spread")
#: Of each row: the scores of ``retrieval.evaluate``, Recall@1 of the embeddings' signs alone, and
#: the mean distance between two embeddings on the unit sphere, 0 after a collapse.
METRICS = (*_SCORES, *_OWN)
_WRITE_EVERY = 8  # rows
_TEXTS = ("arm", "hash", "device", "numerics", "torch", "code")  # a hash may be all digits


@dataclass(frozen=True)
class Plan:
    """One row that a study asks for: what names it, what else it tells, and what is trained.

    Of an ensemble, ``experiment`` is what each of several ``members`` is made of; none are trained
    where the arm is a ``baseline``.
    """

    facts: Mapping[str, Any]
    experiment: Experiment
    members: int = 1
    baseline: str | None = None

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
        before = len(self.rows)
        group = len(self.key) - 1
        asked = {self.place(plan.facts) for plan in plans}
        groups = {place[:group] for place in asked}
        self.rows = {p: r for p, r in self.rows.items() if p in asked or p[:group] not in groups}
        if len(self.rows) < before:
            self.write()

    def frame(self) -> pd.DataFrame:
        """All rows, in the order of their names, whenever they came."""
        return pd.DataFrame([self.rows[place] for place in sorted(self.rows)])

    def write(self) -> None:
        """Put the file in place, whole."""
        if self.path is not None and self.rows:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole({self.path: partial(self.frame().to_csv, index=False)})


class OutOfTimeError(Exception):
    """The minutes are over; all that was trained is in the tables."""


@dataclass
class How:
    """With what trainings are done, until when, what shows how far they are, and where their Runs
    are kept, if they are: see ``trained``."""

    executor: Executor | None = None
    device: str = "auto"
    deadline: float = float("inf")  # of time.monotonic()
    bar: Any = field(default_factory=lambda: tqdm(disable=True))
    store: Path | None = None


def trained(plan: Plan, device: str = "auto", store: Path | None = None) -> dict[str, Any]:
    """What a row tells of its training, which is done, or found in the ``store``.

    Without a store nothing is kept but the row: a study has thousands of Runs.
    """
    if store is None:
        with tempfile.TemporaryDirectory() as folder:
            return trained(plan, device, Path(folder))
    made = plan.experiment
    where = {
        "device": training.device_type(device),
        "numerics": numerics.describe(),
        "torch": torch.__version__,
    }
    if where["device"] == "cuda":
        where["numerics"] = torch.cuda.get_device_name()
    if plan.baseline:
        scores = training.baselines(made, device)[plan.baseline]
        return _outcome({**scores, **dict.fromkeys(_OWN, float("nan"))}, 0.0, where, "")
    parts = [made]
    if plan.members > 1:
        parts = member_experiments(made, plan.members, made.dim)
    how: dict[str, Any] = {"device": device, "store": store, "wait": True, "progress": False}
    try:
        runs = tuple(training.run(part, **how) for part in parts)
    except training.DivergedError:  # it found nothing
        return _outcome(dict.fromkeys(METRICS, 0.0), 0.0, where, "", diverged=True)
    found = Ensemble(runs) if plan.members > 1 else runs[0]
    scores = {**found.scores, **_of_embeddings(found.embeddings, found.labels)}
    return _outcome(scores, sum(r.seconds for r in runs), where, runs[0].provenance["code"])


def _of_embeddings(x: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """Recall@1 of the signs alone, and the mean distance of two embeddings on the unit sphere."""
    signs = np.where(x > 0, 1.0, -1.0).astype(np.float32)
    recall = retrieval.recall_at_k(signs, labels, ks=[1])[1]
    return dict(zip(_OWN, (recall, _spread(x)), strict=True))


def _spread(x: np.ndarray) -> float:
    """The mean over pairs, in blocks of rows; in float64, in which rows that are equal are so."""
    z = geometry.normalize(torch.from_numpy(x).double())
    total = sum(float(torch.cdist(rows, z).sum()) for rows in z.split(1024))
    return total / (len(z) * (len(z) - 1))


def _outcome(
    scores: Mapping[str, float],
    seconds: float,
    where: Mapping[str, str],
    code: str,
    diverged: bool = False,
) -> dict[str, Any]:
    rounded = {metric: round(scores[metric], 6) for metric in METRICS}
    return {**where, "code": code, "seconds": round(seconds, 2), "diverged": diverged, **rounded}


def work_off(plans: Sequence[Plan], table: Table, how: How) -> pd.DataFrame:
    """Train what the table lacks, side by side, and enter it; the rows of the plans, in order.

    The table is written after every few rows, and whatever ends this.

    Raises:
        OutOfTimeError: the deadline came; what had begun was finished.
        RuntimeError: some trainings failed; the others were finished first.
    """
    table.forget_others(plans)
    waiting = [plan for plan in plans if table.found(plan) is None]
    failed: list[tuple[Plan, BaseException]] = []
    if waiting:
        if time.monotonic() >= how.deadline:
            raise OutOfTimeError
        pool = how.executor or study.default_executor()
        futures = {pool.submit(trained, plan, how.device, how.store): plan for plan in waiting}
        try:
            for number, (future, plan) in enumerate(_as_completed(futures, how), start=1):
                error = future.exception()
                if isinstance(error, KeyboardInterrupt):
                    raise error
                if error:
                    failed.append((plan, error))
                else:
                    table.enter(plan, future.result())
                    how.bar.update(plan.steps)
                if number % _WRITE_EVERY == 0:
                    table.write()
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            if how.executor is None:
                workers.stop()
            raise
        finally:
            table.write()
    if failed:
        plan, error = failed[0]
        raise RuntimeError(
            f"{len(failed)} of {len(waiting)} trainings failed; the first, "
            f"{dict(plan.facts)}: {error}"
        ) from error
    rows = [table.found(plan) for plan in plans]
    if None in rows:
        raise OutOfTimeError
    return pd.DataFrame(rows)


def _as_completed(
    futures: Mapping[Future[Any], Plan], how: How
) -> Iterator[tuple[Future[Any], Plan]]:
    """Futures as they end; at the deadline, those that have not begun are given up."""
    pending = set(futures)
    while pending:
        left = max(0.0, how.deadline - time.monotonic())
        done, pending = wait(
            pending, None if left == float("inf") or not left else left, FIRST_COMPLETED
        )
        yield from ((future, futures[future]) for future in futures if future in done)
        if time.monotonic() >= how.deadline:
            pending = {future for future in pending if not future.cancel()}
