"""The processes of this machine that train Runs: kept for a session, replaced when one dies.

By the standard library: each process of joblib's loky imports torch anew, where these are forked
from one that has (half the processor time and a sixth of the memory, on two cores).
"""

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    as_completed,
)
from multiprocessing.connection import Connection
from typing import Any

import joblib


def default_executor() -> Executor:
    """One process a core; or the workers of the Dask scheduler at ``$DMLKIT_SCHEDULER``.

    The processes are kept for the session. They ignore Jupyter's Stop, which reaches every process
    of a kernel, and end when this process does. If one of them was killed, all are replaced.
    """
    if address := os.environ.get("DMLKIT_SCHEDULER"):
        return _client(address).get_executor(pure=False)  # each call counts
    try:
        _pool()[0].submit(int)  # a broken pool refuses whatever it is given
    except BrokenExecutor:
        stop()
    return _pool()[0]


def outcomes(
    work: Callable[..., Any], jobs: Mapping[Any, tuple[Any, ...]], executor: Executor | None = None
) -> Iterator[tuple[Any, Any]]:
    """Each job's name with what the work gave, or the error that came instead, as they end.

    What interrupts this cancels the jobs that wait, and ends local processes.
    """
    names: dict[Future[Any], Any] = {}
    try:
        pool = executor or default_executor()
        for name, args in jobs.items():
            names[pool.submit(work, *args)] = name
        for future in as_completed(names):
            error = future.exception()
            yield names[future], error if isinstance(error, Exception) else future.result()
    except BaseException:
        for future in names:
            future.cancel()
        if executor is None:
            stop()
        raise


def is_alone() -> bool:
    """Whether there is one core and no cluster: a process beside this one would only take turns."""
    return joblib.cpu_count() == 1 and not os.environ.get("DMLKIT_SCHEDULER")


def stop() -> None:
    """End the local processes at once, with what they train: its checkpoints stay."""
    if _pool.cache_info().currsize:
        pool, lifeline = _pool()
        _pool.cache_clear()
        lifeline.close()
        pool.shutdown(cancel_futures=True)


@functools.cache
def _pool() -> tuple[ProcessPoolExecutor, Connection]:
    """The local processes, and the end of a pipe that keeps them alive while it is open."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    context.set_forkserver_preload(["dmlkit.training"])
    far_end, lifeline = context.Pipe(duplex=False)
    count = joblib.cpu_count()
    return ProcessPoolExecutor(count, context, _begin, (far_end,)), lifeline


def _begin(far_end: Connection) -> None:
    """In a new process: no Stop ends it, but the end of its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(far_end,), daemon=True).start()


def _end_with_parent(far_end: Connection) -> None:
    far_end.poll(None)  # nothing is ever sent: it returns when the parent closes its end, or dies
    os._exit(1)


@functools.cache
def _client(address: str) -> Any:
    """Of a Dask cluster, whose workers have one thread, this environment and this store."""
    from distributed import Client  # of the extra "cluster"

    return Client(address, set_as_default=False)
