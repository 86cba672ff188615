"""Many experiments: trained side by side, swept over axes, compared in pairs, and timed."""

import itertools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, wait
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import joblib
import numpy as np
import pandas as pd
from scipy import stats

from dmlkit import training, workers
from dmlkit.checks import as_numbers, check_choice, check_positive, check_range, check_type
from dmlkit.progress import Steps
from dmlkit.training import Experiment, Run
from dmlkit.workers import default_executor as default_executor

_LOST = ConnectionError("cancelled: the cluster was lost; what was finished will be loaded")
_KILLED = BrokenExecutor(
    "the process that trained it, or one beside it, was killed (did memory run out?): call again; "
    "what was finished will be loaded"
)


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
    found = _outcomes(experiments, True, executor, device, progress)
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
    rows = _outcomes(experiments, False, executor, device, progress)
    _raise_failures(rows, places)
    return pd.DataFrame([place | row for place, row in zip(places, rows, strict=True)])


def _outcomes(
    experiments: Sequence[Experiment],
    whole: bool,
    executor: Executor | None,
    device: str,
    progress: bool,
) -> list[Any]:
    """What each Experiment gave (see ``_run``), or the error that came instead."""
    found: dict[int, Any] = {}
    for i, experiment in enumerate(experiments):
        try:
            found[i] = _run(experiment, device, whole, train=False)
        except training.NotTrainedError:
            continue
        except Exception as error:  # of this one: the others come first
            found[i] = error
    waiting = [i for i in range(len(experiments)) if i not in found]
    with Steps(experiments, found, shown=progress and bool(waiting)) as steps:
        for _ in range(2 if executor is None else 1):  # once more, if a process of our own died
            if waiting:
                work = {i: (experiments[i], device, whole) for i in waiting}
                if executor is None and workers.is_alone():
                    found |= _trained_here(work, steps)
                else:
                    found |= _gathered(executor, work, steps)
            lost = [i for i in waiting if isinstance(found[i], BrokenExecutor)]
            begun = joblib.cpu_count() + 1  # one of these may have ended its process: they go last
            waiting = lost[begun:] + lost[:begun]
    return [found[i] for i in range(len(experiments))]


def _trained_here(work: Mapping[int, tuple[Any, ...]], steps: Steps) -> dict[int, Any]:
    """What each piece of work gave, or its error, one after the other in this process."""
    found: dict[int, Any] = {}
    with steps.watched():
        for i, each in work.items():
            try:
                found[i] = _run(*each, wait=True)
            except Exception as error:  # of this one: the others come first
                found[i] = error
            steps.end(i)
    steps.look()
    return found


def _gathered(
    executor: Executor | None, work: Mapping[int, tuple[Any, ...]], steps: Steps
) -> dict[int, Any]:
    """What an executor's processes gave for each piece of work, or the error that came instead."""
    pool, futures = executor or default_executor(), {}
    found: dict[int, Any] = dict.fromkeys(work, _KILLED)  # unless all can be submitted
    try:
        with suppress(BrokenExecutor):  # while the others are being submitted
            for i, each in work.items():
                futures[pool.submit(_run, *each, wait=True)] = i
        waiting = set(futures)
        while waiting:
            ended, waiting = wait(waiting, steps.PAUSE_SECONDS, FIRST_COMPLETED)
            for future in ended:
                error = _LOST if future.cancelled() else future.exception()
                if not isinstance(error, BrokenExecutor):
                    found[futures[future]] = error or future.result()
                    steps.end(futures[future])
            steps.look()
    except KeyboardInterrupt:
        for future in futures:
            future.cancel()
        if executor is None:
            workers.stop()
        raise
    return found


def _run(experiment: Experiment, device: str, whole: bool, **how: Any) -> Run | dict[str, Any]:
    """The whole Run, or small facts, as a sweep may have many."""
    run = training.run(experiment, device=device, progress=False, **how)
    facts = {"seconds": run.seconds, "run": run.path.name, "loaded": run.loaded}
    return run if whole else run.scores | facts


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
    check_type(Experiment, base=base)
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
        for fields_set in values.values() if isinstance(values, Mapping) else ():
            if not isinstance(fields_set, Mapping) or not known.issuperset(fields_set):
                raise ValueError(
                    f"axis {name!r} must name sets of Experiment's fields, but has {fields_set!r}"
                )
    places = []
    for combination in itertools.product(*axes.values()):
        place = dict(zip(axes, combination, strict=True))
        changes: dict[str, Any] = {}
        for name, value in place.items():
            changes |= axes[name][value] if isinstance(axes[name], Mapping) else {name: value}
        places.append((place, replace(base, **changes)))
    return places


def interval(
    values: Sequence[float] | np.ndarray | pd.Series, level: float = 0.95, overlap: float = 0.0
) -> pd.Series:
    """Mean and t-interval of values: mean ± t · s · √(1/n + overlap) (no width is known at n = 1).

    Independent values have no ``overlap``. Repetitions whose training or test classes overlap vary
    less between each other than a new one would; Nadeau and Bengio (2003, Machine Learning 52,
    "Inference for the Generalization Error") widen the interval by the ratio n_test/n_train of a
    repetition's test and training classes, which is the overlap to give.

    Raises:
        ValueError: an overlap that is negative or not finite.

    >>> interval([1.0, 2.0, 3.0]).round(2).to_dict()
    {'mean': 2.0, 'low': -0.48, 'high': 4.48, 'n': 3.0}
    >>> interval([1.0, 2.0, 3.0], overlap=100 / 300).round(2)["high"].item()
    5.51
    """
    check_range(0, overlap=overlap)
    check_range(0, 1, level=level)
    x = as_numbers(values, "values")
    if np.isinf(x).any():
        raise ValueError(f"values must be finite, but are {x.tolist()}")
    n = len(x)
    t = stats.t.ppf((1 + level) / 2, n - 1) if n > 1 else np.nan
    half = t * x.std(ddof=1) * math.sqrt(1 / n + overlap) if n > 1 else np.nan
    mean = x.mean() if n else np.nan
    return pd.Series({"mean": mean, "low": mean - half, "high": mean + half, "n": float(n)})


def sign_flips(
    values: Sequence[float] | np.ndarray | pd.Series, alternative: str = "two-sided"
) -> float:
    """The p-value of a sign-flip test that independent values are symmetric about 0.

    p is the share of the 2ⁿ ways to flip the values' signs whose sum is as extreme as theirs
    (``two-sided``) or as large (``greater``): exact for any symmetric distribution, where the
    t-test wants a normal one (Fisher 1935, "The Design of Experiments", section 21). Above
    n = 16, p is the share of 100,000: the values as they are, and flips drawn with a fixed seed.

    Raises:
        ValueError: another alternative, or values (n,) that are no finite numbers.

    >>> sign_flips([0.5, 0.25, 1.0]), sign_flips([0.5, 0.25, 1.0], "greater")
    (0.25, 0.125)
    """
    x = as_numbers(values, "values")
    check_choice(("two-sided", "greater"), alternative=alternative)
    if not len(x) or not np.isfinite(x).all():
        raise ValueError(f"values must be finite numbers (n,), but are {x.tolist()}")
    if len(x) <= 16:
        signs = 1 - 2 * (np.arange(2 ** len(x))[:, None] >> np.arange(len(x)) & 1)  # (2ⁿ, n)
    else:
        signs = np.random.default_rng(0).integers(0, 2, (100_000, len(x)), dtype=np.int8) * 2 - 1
        signs[0] = 1
    sums, seen = signs @ x, x.sum()
    if alternative == "two-sided":
        sums, seen = np.abs(sums), abs(seen)
    # Equal sums may be rounded differently.
    return float((sums >= seen - 1e-12 * np.abs(x).sum()).mean())


def repetitions(sd: float, margin: float, power: float = 0.8) -> int:
    """How many repetitions decide whether there is an effect, if values vary by ``sd``.

    The least n with which an effect of ± the margin is found by the two-sided t-test at 5 %, and
    an effect of 0 is found to lie within ± the margin by two one-sided t-tests at 5 % (Schuirmann
    1987), each with the ``power`` asked for.

    Raises:
        ValueError: sd is negative, margin not above 0, or power not between 0.5 and 1.

    >>> repetitions(sd=0.006, margin=0.01), repetitions(sd=0.02, margin=0.01)
    (6, 36)
    """
    check_positive(margin=margin)
    check_range(0, 1e6 * margin, sd=sd)  # beyond that no table of t goes
    check_range(0.5, 0.999, power=power)
    ratio = max(sd, 1e-12 * margin) / margin
    # With known variance; the t-tests need one or more besides.
    least = stats.norm.ppf(0.95) + stats.norm.ppf((1 + power) / 2)
    n = max(2, math.floor((least * ratio) ** 2))
    while _powers(n, math.sqrt(n) / ratio) < power:
        n += 1
    return n


def _powers(n: int, shift: float) -> float:
    """The smaller power of the two tests, where the margin is ``shift`` standard errors."""
    if shift > 30:
        return 1.0
    two_sided = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, shift)
    each = stats.nct.sf(stats.t.ppf(0.95, n - 1), n - 1, shift)
    return float(min(two_sided, 2 * each - 1))


def holm(p: np.ndarray, level: float = 0.05) -> np.ndarray:
    """Which of m pairs of null hypotheses fall when all are tested at once, (m, 2) -> (m, 2).

    The i-th smallest p is compared with α over the most hypotheses that can still be true. Of a
    pair, no difference and a difference of the margin or more, only one can: so it is the smaller
    of m and the number that is left (Shaffer 1986, Journal of the American Statistical Association
    81:395). NaN is no hypothesis.

    >>> holm(np.array([[0.04, np.nan], [0.001, np.nan], [0.03, np.nan]]))[:, 0].tolist()
    [False, True, False]
    >>> holm(np.array([[0.02, 0.9], [0.9, 0.02]])).tolist()
    [[True, False], [False, True]]
    """
    check_range(0, 1, level=level)
    p = np.asarray(p)
    if p.ndim != 2 or p.dtype.kind != "f":
        raise ValueError(f"p must be p-values (m, 2), but is {p.dtype} of shape {p.shape}")
    flat, tested = p.ravel(), ~np.isnan(p)
    order = np.argsort(flat)[: tested.sum()]  # NaN come last
    can_be_true = np.minimum(tested.any(1).sum(), np.arange(len(order), 0, -1))
    falls = np.zeros(flat.size, dtype=bool)
    falls[order] = np.logical_and.accumulate(flat[order] <= level / can_be_true)
    return falls.reshape(p.shape)


def compare(
    frame: pd.DataFrame,
    axis: str,
    baseline: Any,
    metric: str = "recall_at_1",
    pair: Sequence[str] = ("seed",),
) -> pd.DataFrame:
    """Paired differences to a baseline: for every other value of an axis, its mean metric minus the
    baseline's, with the same ``pair`` columns (seed, class split, …), and the 95 % t-interval.

    Raises:
        ValueError: a value lacks a partner, or has two rows for one pair.

    >>> frame = pd.DataFrame({"loss": list("aabb"), "seed": [0, 1, 0, 1], "r": [.5, .6, .6, .8]})
    >>> compare(frame, "loss", "a", "r").round(2)
          mean   low  high    n
    loss
    b     0.15 -0.49  0.79  2.0
    """
    wide = _wide(frame, axis, metric, pair)
    if baseline not in list(wide):
        raise ValueError(f"baseline: no {axis} {baseline!r}; there are {', '.join(map(str, wide))}")
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
    """One row for each pair, one column for each value of the axis."""
    if not isinstance(pair, list | tuple) or not pair:
        raise ValueError(f"pair must be names of columns, but is {pair!r}")
    columns = [c for c in frame if isinstance(c, str)] if isinstance(frame, pd.DataFrame) else []
    if not columns:
        raise ValueError(f"frame must be a table with named columns, but is {frame!r}")
    for name, column in (("axis", axis), ("metric", metric), *(("pair", each) for each in pair)):
        if not isinstance(column, str) or column not in columns:
            raise ValueError(f"{name} must be one of {', '.join(columns)}, but is {column!r}")
    wide = frame.pivot(index=list(pair), columns=axis, values=metric)
    if wide.isna().any(axis=None):
        missing = wide.isna().stack()
        raise ValueError(f"no {metric} for {missing[missing].index.tolist()}: nothing to pair with")
    return wide


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

    Raises:
        ValueError: no function, or fewer than one round.

    >>> step_times({"short": lambda: sum(range(9)), "long": lambda: sum(range(9999))}, 3).shape
    (3, 2)
    """
    if not steps or rounds < 1 or warm_up < 0:
        raise ValueError(
            f"expected functions by name, rounds of 1 or more and warm_up of 0 or more, but got "
            f"{list(steps)}, {rounds} and {warm_up}"
        )
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
