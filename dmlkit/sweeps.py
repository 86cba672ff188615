"""Many experiments: trained side by side, swept over axes, and timed."""

import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from dmlkit import training, workers
from dmlkit.training import Experiment, Run
from dmlkit.workers import default_executor as default_executor


def train(
    experiments: Sequence[Experiment],
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
) -> list[Run | None]:
    """The Runs of Experiments, in their order; None for one whose training diverged.

    Runs that are on disk are loaded here, and a training that is known to diverge is not repeated.
    The others are trained side by side by any ``concurrent.futures.Executor``, as
    ``client.get_executor(pure=False)`` of a Dask client; see ``default_executor`` for the default.
    If one fails, the others are finished first. If this is interrupted, the next call goes on from
    the checkpoints.

    Raises:
        RuntimeError: some Runs failed; the first one's error is its cause.

    >>> train([])
    []
    """
    found = _outcomes(training.run, experiments, executor, device, progress)
    runs = [None if isinstance(each, training.DivergedError) else each for each in found]
    _raise_failures(runs, [f"experiments[{i}]" for i in range(len(runs))])
    return runs


def sweep(
    base: Experiment,
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
    **axes: Sequence[Any] | Mapping[str, Mapping[str, Any]],
) -> pd.DataFrame:
    """Run the base Experiment at every point of a grid; one tidy row a Run, in the grid's order.

    An axis is a field of Experiment with its values (``seed=range(3)``), or a name of your own
    with named sets of fields (``method={"none": {}, "SEC": {"constraint": {"weight": 0.1}}}``).
    The columns are the axes, the scores, ``seconds``, ``run`` (its folder's name) and ``loaded``.
    Trained as by ``train``, but that here a Run that diverges is one that failed.

    Raises:
        ValueError: an axis that is no field and no mapping, or an empty one.
        RuntimeError: some Runs failed; the first one's error is its cause.
    """
    places, experiments = zip(*grid(base, axes), strict=True)
    rows = _outcomes(_facts, experiments, executor, device, progress)
    _raise_failures(rows, places)
    return pd.DataFrame([place | row for place, row in zip(places, rows, strict=True)])


def _facts(experiment: Experiment, **how: Any) -> dict[str, Any]:
    """What a sweep, which may have many Runs, tells of one."""
    run = training.run(experiment, **how)
    return run.scores | {"seconds": run.seconds, "run": run.path.name, "loaded": run.loaded}


def _outcomes(
    work: Callable[..., Any],
    experiments: Sequence[Experiment],
    executor: Executor | None,
    device: str,
    progress: bool,
) -> list[Any]:
    """What ``work`` gives for each Experiment, or the error that came instead."""
    work = partial(work, device=device, progress=False)
    found = [_outcome(work, each, train=False) for each in experiments]
    first = [i for i, each in enumerate(found) if isinstance(each, training.NotTrainedError)]
    waiting = first
    if not waiting:
        return found
    steps = sum(experiments[i].steps for i in waiting)
    bar = tqdm(total=steps, desc="training", unit="step", disable=not progress, leave=False)

    def end(i: int, outcome: Any) -> None:
        found[i] = outcome
        if not isinstance(outcome, BrokenExecutor):
            bar.update(experiments[i].steps)

    with bar:
        if executor is None and workers.is_alone():
            for i in waiting:
                end(i, _outcome(work, experiments[i], wait=True))
            return found
        while waiting:
            jobs = {i: (experiments[i],) for i in waiting}
            for i, outcome in workers.outcomes(partial(work, wait=True), jobs, executor):
                end(i, outcome)
            killed = [i for i in waiting if isinstance(found[i], BrokenExecutor)]
            # Perhaps by one that began early: those come last, and are not tried a third time.
            waiting = killed[::-1] if executor is None and waiting is first else []
    return found


def _outcome(work: Callable[..., Any], *args: Any, **how: Any) -> Any:
    """What some work gives, or the error that came instead: the others come first."""
    try:
        return work(*args, **how)
    except Exception as error:
        return error


def _raise_failures(found: Sequence[Any], names: Sequence[Any]) -> None:
    failed = [pair for pair in zip(names, found, strict=True) if isinstance(pair[1], BaseException)]
    if failed:
        name, error = failed[0]
        raise RuntimeError(
            f"{len(failed)} of {len(found)} Runs failed; the first, at {name}: {error}"
        ) from error


def grid(base: Experiment, axes: Mapping[str, Any]) -> list[tuple[dict[str, Any], Experiment]]:
    """Every point of a grid, as ``sweep`` tells, with its Experiment. Raises as ``sweep`` does.

    >>> [point for point, _ in grid(Experiment(), {"seed": [0, 1], "dim": [8]})]
    [{'seed': 0, 'dim': 8}, {'seed': 1, 'dim': 8}]
    """
    known = {f.name for f in fields(Experiment)}
    for name, values in axes.items():
        if name not in known and not isinstance(values, Mapping):
            raise ValueError(
                f"axis {name!r} is no field of Experiment ({', '.join(sorted(known))}); an axis of "
                f"your own is a mapping of names to fields, but this is {values!r}"
            )
        several = isinstance(values, Collection) and not isinstance(values, str | bytes)
        if not several or not len(values):
            raise ValueError(f"axis {name!r} must be values, one or more, but is {values!r}")
    places = []
    for combination in itertools.product(*axes.values()):
        place = dict(zip(axes, combination, strict=True))
        changes: dict[str, Any] = {}
        for name, value in place.items():
            changes |= axes[name][value] if isinstance(axes[name], Mapping) else {name: value}
        places.append((place, replace(base, **changes)))
    return places


def step_times(
    steps: Mapping[str, Callable[[], object]],
    rounds: int,
    warm_up: int = 2,
    *,
    clock: Callable[[], float] = time.process_time,
) -> pd.DataFrame:
    """Seconds that each of several functions takes: one row a round, one column a function.

    All are called in turn in each round, so that whatever slows the machine for a while slows all
    alike; ``warm_up`` rounds come first and are not counted. Torch and faiss have one thread, and
    the clock is the processor time of this process: other programs do not count. On a GPU, give
    functions that end with ``torch.cuda.synchronize()``, and ``clock=time.perf_counter``.

    Compare by the median of the ratios of a row, or by each column's least.

    >>> step_times({"short": lambda: sum(range(9)), "long": lambda: sum(range(9999))}, 3).shape
    (3, 2)
    """
    taken = []
    with training.repeatable_numerics(threads=1):
        for _ in range(warm_up + rounds):
            row = {}
            for name, step in steps.items():
                began = clock()
                step()
                row[name] = clock() - began
            taken.append(row)
    return pd.DataFrame(taken[warm_up:])
