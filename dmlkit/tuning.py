"""Tuning with equal budgets: the same number of trials and steps for every loss, on validation."""

import json
import os
from collections.abc import Sequence
from concurrent.futures import BrokenExecutor, Executor, as_completed
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import filelock
import pandas as pd
from tqdm.auto import tqdm

try:
    import optuna
    from optuna.storages.journal import JournalFileBackend
    from optuna.trial import TrialState
except ImportError as error:
    raise ImportError("tuning needs Optuna: pip install --editable '.[tune]'") from error

from dmlkit import losses, study, training, workers
from dmlkit.files import naming_full_disk
from dmlkit.losses.table import Range, entries
from dmlkit.recipes import nested
from dmlkit.training import Experiment

_LR: dict[str, Range] = {"lr": ("log", 1e-3, 2e-2)}
_PROXY_LR: dict[str, Range] = _LR | {"loss_lr_factor": ("log", 1.0, 100.0)}
_DONE = (TrialState.COMPLETE,)


def spaces() -> dict[str, dict[str, Range]]:
    """What is tuned for each loss, and between which bounds: learning rates, and its own arguments.

    Those are what it was registered with; a loss without a space is not tuned. A loss that owns
    proxies (it must be given ``num_classes`` and ``dim``) has a learning rate for them too.

    >>> sorted(spaces()["contrastive"])
    ['loss_args.negative_margin', 'lr']
    """
    found = {}
    for entry in entries():
        if entry.space is not None:
            accepted = losses.signature(entry.name)
            needed = {name for name, p in accepted.items() if p.default is p.empty}
            rates = _PROXY_LR if {"num_classes", "dim"} <= needed else _LR
            own = {f"loss_args.{name}": bounds for name, bounds in entry.space.items()}
            found[entry.name] = rates | own
    return found


def tune(
    storage: Path | str,
    names: Sequence[str] = (),
    trials: int = 24,
    base: Experiment | None = None,
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
) -> pd.DataFrame:
    """Seek good settings of every loss on validation classes; one row for each trial.

    The score is Recall@1 on the validation split of ``base`` (default: the default Experiment).
    Optuna's tree-structured Parzen estimator chooses, seeded by the number of trials so far. Where
    ``storage`` is a file, one worker at a time seeks for each loss: so the search is the very same
    when repeated, and when it was interrupted or killed, and goes on. The URL of a database may be
    shared by several machines. What is done is not repeated. A training that diverges scores 0.

    Raises:
        ValueError: a loss without a search space.
        RuntimeError: a process that tuned was killed.
        OSError: the storage is damaged, or its disk is full.
    """
    tuned = spaces()
    names = tuple(names) or tuple(tuned)
    if unknown := sorted(set(names) - set(tuned)):
        raise ValueError(f"no search space for {', '.join(unknown)}; there are {', '.join(tuned)}")
    base = replace(base or Experiment(), split="val")
    pool = executor or study.default_executor()
    futures = [
        pool.submit(_search, str(storage), replace(base, loss=name), trials, device)
        for name in names
    ]
    with tqdm(total=len(names), desc="losses", disable=not progress, leave=False) as bar:
        try:
            for future in as_completed(futures):
                future.result()
                bar.update()
        except BrokenExecutor as error:
            raise RuntimeError(
                "a process that tuned was killed (did memory run out?): the next call goes on "
                f"from {storage}"
            ) from error
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            if executor is None:
                workers.stop()
            raise
    return table(storage, names)


def table(storage: Path | str, names: Sequence[str] = ()) -> pd.DataFrame:
    """Every finished trial: loss, trial, settings (JSON), score, seconds, Run, device."""
    opened = _open(str(storage))
    there = {summary.study_name for summary in optuna.get_all_study_summaries(opened)}
    rows = []
    for name in names or spaces():
        if name not in there:
            continue
        done = optuna.load_study(study_name=name, storage=opened).get_trials(states=_DONE)
        for number, trial in enumerate(done):
            facts = {"loss": name, "trial": number, "settings": json.dumps(trial.params)}
            rows.append(facts | {"recall_at_1": trial.value} | trial.user_attrs)
    return pd.DataFrame(rows)


def recipes(trials: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """The best settings of each loss, as fields of Experiment; the first of equals.

    >>> rows = [("n_pairs", 0, '{"lr": 0.1}', 0.5), ("n_pairs", 1, '{"loss_args.a": 2}', 0.6)]
    >>> recipes(pd.DataFrame(rows, columns=["loss", "trial", "settings", "recall_at_1"]))
    {'n_pairs': {'loss_args': {'a': 2}}}
    """
    best = trials.sort_values(["recall_at_1", "trial"], ascending=[False, True])
    best = best.drop_duplicates("loss").set_index("loss")["settings"]
    return {name: nested(json.loads(best[name])) for name in spaces() if name in best}


def _search(storage: str, base: Experiment, trials: int, device: str) -> None:
    """Go on with the search of one loss until it has so many finished trials."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with _alone(storage, base.loss):
        _seek(storage, base, trials, device)


def _alone(storage: str, loss: str) -> AbstractContextManager[object]:
    """The right to seek for a loss in a file, which one process at a time can have."""
    if "://" in storage:
        return nullcontext()
    return filelock.FileLock(f"{storage}.{loss}.lock")


def _seek(storage: str, base: Experiment, trials: int, device: str) -> None:
    search = optuna.create_study(
        study_name=base.loss, storage=_open(storage), direction="maximize", load_if_exists=True
    )
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(low, high, log=scale == "log")
        for name, (scale, low, high) in spaces()[base.loss].items()
    }
    if "://" not in storage:  # we are alone: what runs was broken off, and is chosen once more
        for broken in search.get_trials(states=(TrialState.RUNNING,)):
            search.tell(broken.number, state=TrialState.FAIL)
    counted = (*_DONE, TrialState.RUNNING, TrialState.WAITING)
    if not search.get_trials(states=counted):
        search.enqueue_trial(_defaults(base))
    while len(search.get_trials(states=_DONE)) < trials:
        so_far = len(search.get_trials(states=counted))
        search.sampler = optuna.samplers.TPESampler(seed=so_far, n_startup_trials=8)
        trial = search.ask(space)
        experiment = replace(base, **nested(trial.params))
        try:
            done = training.run(experiment, device=device, wait=True, progress=False)
        except training.DivergedError:
            trial.set_user_attr("run", "diverged")
            search.tell(trial, 0.0)
        else:
            facts = {"seconds": done.seconds, "run": done.path.name}
            for name, value in (facts | {"device": done.provenance["device"]}).items():
                trial.set_user_attr(name, value)
            search.tell(trial, done.scores["recall_at_1"])


def _defaults(base: Experiment) -> dict[str, float]:
    """What the search space's settings are where nobody tunes them, within its bounds."""
    signature = losses.signature(base.loss)
    found = {}
    for name, (_, low, high) in spaces()[base.loss].items():
        field, _, argument = name.partition(".")
        value = signature[argument].default if argument else getattr(base, field)
        found[name] = min(max(float(value), low), high)
    return found


def _open(storage: str) -> Any:
    """Optuna's storage in a file, or in the database that a URL names."""
    if "://" in storage:
        return optuna.storages.RDBStorage(storage)
    Path(storage).parent.mkdir(parents=True, exist_ok=True)
    try:
        return optuna.storages.JournalStorage(_Journal(Path(storage)))
    except (ValueError, LookupError, TypeError, AttributeError) as error:  # by a damaged line
        raise OSError(
            f"{storage} cannot be read ({type(error).__name__}: {error}): delete it to tune anew; "
            "the Runs that were trained will be loaded"
        ) from error


class _Journal(JournalFileBackend):
    """Optuna's file of lines, one for whatever is done, which is mended after a fault.

    Its lock is one that ends with the process that holds it: Optuna's own would stay for 30 s.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.guard = path, filelock.FileLock(f"{path}.guard")
        super().__init__(str(path), self.guard)  # type: ignore[arg-type] # it has what is called

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        with self.guard, naming_full_disk(self.path):
            self._cut_half_a_line()
            super().append_logs(logs)

    def _cut_half_a_line(self) -> None:
        """Left by a full disk or a kill: it is not read, and the next would be joined to it."""
        with self.path.open("r+b") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.seek(0)
                    file.truncate(file.read().rfind(b"\n") + 1)
