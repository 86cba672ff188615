"""A Dask cluster as an executor, once its workers are found to train the Runs of this process."""

import functools
import hashlib
import tempfile
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import torch

import dmlkit
from dmlkit.training import devices

ANSWER_SECONDS = 10  # that a Dask scheduler may take to answer
_HOW_TO_START = (
    "Start workers with `dask worker ADDRESS --nthreads 1 --memory-limit 0`, in this environment, "
    "from this project's folder (or with this DMLKIT_CACHE), on a shared file system."
)


def cluster_executor(address: str) -> Executor:
    """The workers of a Dask cluster, once each is found to train the very Runs of this process.

    Scheduler and workers need this environment, and the workers a file system shared with this
    process: what ``dmlkit.cache_folder()`` names there must be the same folder as here. On every
    machine, from the project's folder, with the same ``DMLKIT_CACHE`` and ``DMLKIT_DATA``::

        dask worker ADDRESS --nworkers PROCESSES --nthreads 1 --memory-limit 0

    An Experiment of several ``devices`` needs ``DASK_DISTRIBUTED__WORKER__DAEMON=False`` there too:
    each device has a process, and Dask's workers may else start none.

    The trainings of a worker that dies are taken over by another, from their last checkpoints; the
    lock of a Run keeps two from training it. What has begun when a sweep is interrupted goes on to
    its end; the rest is cancelled.

    Raises:
        ImportError: Dask is not installed.
        ConnectionError: no scheduler answers at the address.
        RuntimeError: it has no workers; or some have several threads, another store, other
            sources, another torch or another kind of device, and so would train other Runs.
    """
    client = connect(address)
    if client.status != "running":  # that scheduler has gone; there may be a new one
        connect.cache_clear()
        client = connect(address)
    store = dmlkit.cache_folder() / "runs"
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=store, prefix=".seen.") as mark:
        found = client.run(_mismatch, what_names_runs(), Path(mark.name).name, on_error="return")
    if not found:
        raise RuntimeError(f"the Dask scheduler at {address} has no workers. {_HOW_TO_START}")
    wrong = [f"{worker}: {reason}" for worker, reason in found.items() if reason]
    if wrong:
        raise RuntimeError(
            f"{len(wrong)} of {len(found)} Dask workers at {address} would not train the Runs of "
            f"this process, whose store is {store}:\n" + "\n".join([*wrong, _HOW_TO_START])
        )
    return client.get_executor(pure=False)  # a training leaves a Run: each call counts


@functools.cache
def connect(address: str) -> Any:
    """The Dask client of a scheduler. Raises ImportError or ConnectionError as above."""
    try:
        import distributed
    except ImportError as error:
        raise ImportError("a cluster needs Dask: pip install --editable '.[cluster]'") from error
    try:
        return distributed.Client(address, timeout=ANSWER_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ConnectionError(
            f"no Dask scheduler answers at {address!r} within {ANSWER_SECONDS} s: start one with "
            f"`dask scheduler`, which prints its address ({error})"
        ) from error


@functools.cache  # a worker may outlive an edit of the sources, and goes on with what it imported
def what_names_runs() -> dict[str, str]:
    """What names the Runs of this process, whatever their Experiments."""
    sources = sorted(Path(dmlkit.__file__).parent.rglob("*.py"))
    return {
        "sources of dmlkit": hashlib.sha256(
            b"".join(path.read_bytes() for path in sources)
        ).hexdigest()[:12],
        "torch": torch.__version__,
        "device": devices.device_type("auto"),
    }


def _mismatch(asker: Mapping[str, str], mark: str, dask_worker: Any) -> str:
    """Why this Dask worker would not train the asker's Runs, or ''."""
    threads, store = dask_worker.state.nthreads, dmlkit.cache_folder() / "runs"
    mine = what_names_runs()
    wrong = [f"{key} {mine[key]}, not {asker[key]}" for key in mine if mine[key] != asker[key]]
    if threads > 1:  # torch's threads and random state belong to a process, not to a thread
        wrong.append(f"{threads} threads, not 1")
    if not (store / mark).exists():
        wrong.append(f"its store {store} is another folder")
    return ", ".join(wrong)
