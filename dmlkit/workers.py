"""The processes of this machine that train Runs: kept for a session, replaced when one dies.

They write how many steps they have done into a file, which whoever waits for them reads.
"""

import functools
import multiprocessing.util
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from multiprocessing.connection import Connection
from pathlib import Path

import joblib
import numpy as np

from dmlkit.training import Trainer

#: The counts of steps, and which of them is that of the training in this thread.
_COUNTED: ContextVar[tuple[np.ndarray, int] | None] = ContextVar("_COUNTED", default=None)


def default_executor() -> Executor:
    """One process a core; or the Dask cluster whose address ``$DMLKIT_SCHEDULER`` holds.

    The processes are kept for the session, so that each imports torch only once. They ignore
    Jupyter's Stop, which reaches every process of a kernel, and end when this process does. If one
    of them was killed, all are replaced.

    Raises RuntimeError in a script that would start itself again in each of these processes.
    """
    address = os.environ.get("DMLKIT_SCHEDULER")
    if address:
        from dmlkit.extras import cluster  # an extra: Dask is not there unless it is asked for

        return cluster.cluster_executor(address)
    _check_script()
    try:
        _pool()[0].submit(int)  # a broken pool refuses whatever it is given
    except BrokenExecutor:
        stop()
    return _pool()[0]


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


@contextmanager
def step_counts(trainings: int) -> Iterator[tuple[Path, np.memmap]]:
    """A file and what it holds: the steps done by each of several trainings (n,), meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "steps"
        np.zeros(trainings, np.int64).tofile(file)  # whole: a full disk is an error here, not there
        yield file, np.memmap(file, np.int64, "r+")


@contextmanager
def counting_steps(file: Path, number: int) -> Iterator[None]:
    """Inside, a training in this thread writes its steps into the counts that a file holds.

    Not where the file is not, as on another machine; nor from the processes of several devices.
    """
    if not file.exists():
        yield
        return
    _watch_steps()
    token = _COUNTED.set((np.memmap(file, np.int64, "r+"), number))
    try:
        yield
    finally:
        _COUNTED.reset(token)


def _watch_steps() -> None:
    """From now on, steps are watched, not changed, so that Runs keep their names: see provenance.

    Where Runs are made, nothing is to be known of this: what is in there names them.
    """
    advance = Trainer.advance
    if hasattr(advance, "counts"):
        return

    @functools.wraps(advance)
    def counted(trainer: Trainer) -> None:
        advance(trainer)
        if found := _COUNTED.get():
            counts, number = found
            counts[number] = trainer.step

    counted.counts = True  # type: ignore[attr-defined]
    Trainer.advance = counted  # type: ignore[method-assign, assignment]
