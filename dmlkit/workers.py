"""The processes of this machine that train Runs: kept for a session, replaced when one dies."""

import functools
import multiprocessing.util
import os
import signal
import sys
import threading
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path

import joblib


def default_executor() -> Executor:
    """One process a core; or the Dask cluster whose address ``$DMLKIT_SCHEDULER`` holds.

    The processes are kept for the session, so that each imports torch only once. They ignore
    Jupyter's Stop, which reaches every process of a kernel, and end when this process does. If one
    of them was killed, all are replaced.

    Raises RuntimeError in a script that would start itself again in each of these processes.
    """
    address = os.environ.get("DMLKIT_SCHEDULER")
    if address:
        from dmlkit import cluster  # an extra: Dask is not there unless it is asked for

        return cluster.cluster_executor(address)
    _check_script()
    try:
        _pool()[0].submit(int)  # a broken pool refuses whatever it is given
    except BrokenExecutor:
        stop()
    return _pool()[0]


def is_alone() -> bool:
    """Whether there is one core and no cluster: a process beside this one would only take turns."""
    return joblib.cpu_count() == 1 and not os.environ.get("DMLKIT_SCHEDULER")


def _check_script() -> None:
    """Each process imports the script that runs, which must not train on being imported."""
    main = sys.modules["__main__"]
    file = Path(getattr(main, "__file__", None) or "")
    module = getattr(
        getattr(main, "__spec__", None), "name", ""
    )  # python -m: a package's is not imported again
    if file.suffix != ".py" or module.endswith("__main__") or not file.is_file():
        return
    if "__main__" not in file.read_text(encoding="utf-8", errors="replace"):
        raise RuntimeError(
            f"{file} trains in other processes, which import it, and it would begin anew in each: "
            """put what it does below a line `if __name__ == "__main__":`"""
        )


def stop() -> None:
    """End the local processes at once, with what they train: its checkpoints stay."""
    if _pool.cache_info().currsize:
        pool, lifeline = _pool()
        _pool.cache_clear()
        lifeline.close()
        pool.shutdown(wait=False, cancel_futures=True)


@functools.cache
def _pool() -> tuple[ProcessPoolExecutor, Connection]:
    """The local processes, and the end of a pipe that keeps them alive while it is open."""
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["dmlkit.training"])
    far_end, lifeline = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        joblib.cpu_count(), mp_context=context, initializer=_begin, initargs=(far_end,)
    )
    # A process that multiprocessing has started waits for its children before the pool ends them.
    multiprocessing.util.Finalize(None, stop, exitpriority=0)
    return pool, lifeline


def _begin(far_end: Connection) -> None:
    """In a new process: no Stop ends it, but the end of its parent does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(far_end,), daemon=True).start()


def _end_with_parent(far_end: Connection) -> None:
    far_end.poll(None)  # nothing is ever sent: it returns when the parent closes its end, or dies
    os._exit(1)
