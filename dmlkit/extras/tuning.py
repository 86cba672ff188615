"""Tuning with equal budgets: the same number of trials and steps for every loss, on validation."""

import json
from collections.abc import Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

try:
    import optuna
    from optuna.storages.journal import JournalFileBackend
except ImportError as error:
    raise ImportError("tuning needs Optuna: pip install --editable '.[tune]'") from error

from dmlkit import losses, study, training, workers
from dmlkit.extras.recipes import nested
from dmlkit.losses.table import Range, entries
from dmlkit.training import Experiment

_LR: dict[str, Range] = {"lr": ("log", 1e-3, 2e-2)}
_PROXY_LR: dict[str, Range] = _LR | {"loss_lr_factor": ("log", 1.0, 100.0)}


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
    Optuna's tree-structured Parzen estimator chooses, seeded by the trial's number alone, so that
    one worker for each loss repeats the very same search. ``storage`` is a file, or the URL of a
    database, which several machines may share. A search that was interrupted goes on; what is done
    is not repeated. A training that diverges scores 0.

    Raises:
        ValueError: a loss without a search space.
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
        for trial in optuna.load_study(study_name=name, storage=opened).trials:
            if trial.state.is_finished():
                facts = {"loss": name, "trial": trial.number, "settings": json.dumps(trial.params)}
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
    search = optuna.create_study(
        study_name=base.loss, storage=_open(storage), direction="maximize", load_if_exists=True
    )
    space: dict[str, optuna.distributions.BaseDistribution] = {
        name: optuna.distributions.FloatDistribution(low, high, log=scale == "log")
        for name, (scale, low, high) in spaces()[base.loss].items()
    }
    if not search.trials:
        search.enqueue_trial(_defaults(base))
    while sum(trial.state.is_finished() for trial in search.trials) < trials:
        search.sampler = optuna.samplers.TPESampler(seed=len(search.trials), n_startup_trials=8)
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
    return optuna.storages.JournalStorage(JournalFileBackend(storage))
