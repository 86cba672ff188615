"""Many experiments: sweeps over axes and seeds, paired differences, ranks, intervals."""

import functools
import itertools
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from dataclasses import asdict, fields, replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
from scipy import stats
from tqdm.auto import tqdm

from dmlkit import training
from dmlkit.training import Experiment

ANSWER_SECONDS = 10  # that a Dask scheduler may take to answer
_LOST = ConnectionError("cancelled: the cluster was lost; what was finished will be loaded")
_START = (
    "Start workers with `dask worker ADDRESS --nthreads 1 --memory-limit 0`, in this environment, "
    "from this project's folder (or with this DMLKIT_CACHE), on a shared file system."
)


def default_executor() -> Executor:
    """One process a core; or the Dask cluster whose address ``$DMLKIT_SCHEDULER`` holds."""
    address = os.environ.get("DMLKIT_SCHEDULER")
    if not address:
        return _local_executor()
    from dmlkit.extras import cluster  # an extra: Dask is not there unless it is asked for

    return cluster.cluster_executor(address)


@functools.cache
def _local_executor() -> ProcessPoolExecutor:
    """Kept for the whole session, so that each process imports torch only once."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["dmlkit.training"])
    return ProcessPoolExecutor(joblib.cpu_count(), mp_context=context)


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
    Any ``concurrent.futures.Executor`` will do, as ``client.get_executor(pure=False)`` of a Dask
    client; see ``default_executor`` for the default. Runs that are already on disk are loaded. If
    one fails, the others are finished first.

    Raises:
        ValueError: an axis that is no field and no mapping, or an empty one.
        RuntimeError: some Runs failed; the first one's error is its cause.
    """
    grid = _grid(base, axes)
    executor = executor or default_executor()
    futures = {
        executor.submit(_row, experiment, device): i for i, (_, experiment) in enumerate(grid)
    }
    rows: dict[int, dict[str, Any]] = {}
    errors: list[tuple[dict[str, Any], BaseException]] = []
    try:
        for future in tqdm(
            as_completed(futures), total=len(grid), desc="runs", unit="run",
            disable=not progress, leave=False,
        ):  # fmt: skip
            point = grid[futures[future]][0]
            if error := _LOST if future.cancelled() else future.exception():
                errors.append((point, error))
            else:
                rows[futures[future]] = point | future.result()
    except KeyboardInterrupt:
        for future in futures:
            future.cancel()
        raise
    if errors:
        point, error = errors[0]
        raise RuntimeError(
            f"{len(errors)} of {len(grid)} Runs failed; the first, at {point}: {error}"
        ) from error
    return pd.DataFrame([rows[i] for i in range(len(grid))])


def train(
    experiments: Sequence[Experiment],
    executor: Executor | None = None,
    *,
    device: str = "auto",
    progress: bool = True,
) -> list[training.Run | None]:
    """The Runs of Experiments, in their order; None for one whose training diverged.

    Trained side by side as by ``sweep``; what is on disk is loaded.
    """
    axis = {str(i): asdict(experiment) for i, experiment in enumerate(experiments)}
    try:
        sweep(Experiment(), executor, device=device, progress=progress, experiment=axis)
    except RuntimeError as error:  # the others are finished, and stored
        if not isinstance(error.__cause__, training.DivergedError):
            raise
    return [_run_or_none(experiment, device) for experiment in experiments]


def _run_or_none(experiment: Experiment, device: str) -> training.Run | None:
    try:
        return training.run(experiment, device=device, wait=True, progress=False)
    except training.DivergedError:
        return None


def _grid(base: Experiment, axes: Mapping[str, Any]) -> list[tuple[dict[str, Any], Experiment]]:
    known = {f.name for f in fields(Experiment)}
    for name, values in axes.items():
        if name not in known and not isinstance(values, Mapping):
            raise ValueError(
                f"axis {name!r} is no field of Experiment ({', '.join(sorted(known))}); an axis of "
                f"your own is a mapping of names to fields, but this is {values!r}"
            )
        if not len(values):
            raise ValueError(f"axis {name!r} is empty")
    points = []
    for combination in itertools.product(*axes.values()):
        point = dict(zip(axes, combination, strict=True))
        changes: dict[str, Any] = {}
        for name, value in point.items():
            changes |= axes[name][value] if isinstance(axes[name], Mapping) else {name: value}
        points.append((point, replace(base, **changes)))
    return points


def _row(experiment: Experiment, device: str) -> dict[str, Any]:
    """What a worker sends back: small facts; the Run itself stays on disk."""
    done = training.run(experiment, device=device, wait=True, progress=False)
    return done.scores | {"seconds": done.seconds, "run": done.path.name, "loaded": done.loaded}


def interval(values: Sequence[float] | np.ndarray | pd.Series, level: float = 0.95) -> pd.Series:
    """Mean and t-interval of independent values: mean ± t · s / √n (no width is known at n = 1).

    >>> interval([1.0, 2.0, 3.0]).round(2).to_dict()
    {'mean': 2.0, 'low': -0.48, 'high': 4.48, 'n': 3.0}
    """
    x = np.asarray(values, dtype=float)
    n = len(x)
    half = stats.t.ppf((1 + level) / 2, n - 1) * stats.sem(x) if n > 1 else np.nan
    mean = x.mean() if n else np.nan
    return pd.Series({"mean": mean, "low": mean - half, "high": mean + half, "n": float(n)})


def compare(
    frame: pd.DataFrame,
    axis: str,
    baseline: Any,
    metric: str = "recall_at_1",
    pair: Sequence[str] = ("seed",),
) -> pd.DataFrame:
    """Paired differences to a baseline: for every other value of an axis, its mean metric less the
    baseline's with the same ``pair`` columns (seed, class split, …), and the 95 % t-interval.

    Raises:
        ValueError: a value lacks a partner, or has two rows for one pair.

    >>> frame = pd.DataFrame({"loss": list("aabb"), "seed": [0, 1, 0, 1], "r": [.5, .6, .6, .8]})
    >>> compare(frame, "loss", "a", "r").round(2)
          mean   low  high    n
    loss
    b     0.15 -0.49  0.79  2.0
    """
    wide = _wide(frame, axis, metric, pair)
    if baseline not in wide:
        raise ValueError(f"no {axis} {baseline!r}; there are {', '.join(map(str, wide))}")
    differences = wide.drop(columns=baseline).sub(wide[baseline], axis=0)
    return differences.apply(interval).T


def ranks(
    frame: pd.DataFrame, axis: str, metric: str = "recall_at_1", pair: Sequence[str] = ("seed",)
) -> pd.DataFrame:
    """Rank of every value of an axis (1 = highest metric; ties share the mean), with t-interval.

    >>> frame = pd.DataFrame({"loss": list("aabb"), "seed": [0, 1, 0, 1], "r": [.5, .6, .6, .8]})
    >>> ranks(frame, "loss", "r")["mean"].to_dict()
    {'a': 2.0, 'b': 1.0}
    """
    return _wide(frame, axis, metric, pair).rank(axis=1, ascending=False).apply(interval).T


def _wide(frame: pd.DataFrame, axis: str, metric: str, pair: Sequence[str]) -> pd.DataFrame:
    """One row a pair, one column a value of the axis."""
    wide = frame.pivot(index=list(pair), columns=axis, values=metric)
    if wide.isna().any(axis=None):
        missing = wide.isna().stack()
        raise ValueError(f"no {metric} for {missing[missing].index.tolist()}: nothing to pair with")
    return wide
