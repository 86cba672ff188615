"""Where a training runs: on one device, or on several, each with a process of its own."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import as_completed
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import faiss
import torch
from joblib.externals import loky
from lightning_fabric.plugins.environments.lightning import find_free_network_port


def device_type(device: str) -> str:
    """``cuda`` or ``cpu``: ``auto`` is CUDA where there is a GPU. Raises ValueError for others.

    >>> device_type("cpu")
    'cpu'
    """
    there = torch.cuda.is_available()
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"unknown device {device!r}; there are auto, cpu, cuda")
    if device == "cuda" and not there:
        raise ValueError("device 'cuda' was asked for, but torch sees no CUDA GPU; use 'cpu'")
    return "cuda" if there and device != "cpu" else "cpu"


def in_group() -> bool:
    """Whether torchrun, or ``spawn``, has started this process as one of several."""
    return torch.distributed.is_torchelastic_launched()


def seed(number: int) -> None:
    """Seed torch's default random states, those of GPUs only where they are in use.

    ``torch.manual_seed`` would note a stack trace for each kind of GPU that may come into use
    later, which would take longer than the rest of a small step.
    """
    if torch.cuda.is_initialized():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)


def restored_random_state() -> AbstractContextManager[None]:
    """Inside, torch's default random states may be seeded; afterwards they are as they were."""
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


@contextmanager
def repeatable_numerics(threads: int) -> Iterator[None]:
    """The same sums in the same order at every repeat; the caller's random state stays its own."""
    threads_of_torch, threads_of_faiss = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    deterministic = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
    try:
        with restored_random_state(), deterministic:
            yield
    finally:
        torch.set_num_threads(threads_of_torch)
        faiss.omp_set_num_threads(threads_of_faiss)


def spawn(processes: int, function: Callable[..., Any], *work: Any) -> list[Any]:
    """Call ``function(*work)`` in a new group of processes on this machine: what each returns.

    Each finds the environment that torchrun gives. What the first of them raises is raised here.
    Not by Fabric's launcher, which refuses notebooks.
    """
    environment = {
        "TORCHELASTIC_RUN_ID": "dmlkit",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(find_free_network_port()),
        "WORLD_SIZE": str(processes),
    }
    pool = loky.ProcessPoolExecutor(processes)
    try:
        group = [pool.submit(_member, r, environment, function, work) for r in range(processes)]
        for member in as_completed(group):
            member.result()
        return [member.result() for member in group]
    finally:  # one that is left may wait for one that has gone
        pool.shutdown(kill_workers=True)


def _member(
    rank: int, environment: dict[str, str], function: Callable[..., Any], work: tuple[Any, ...]
) -> Any:
    os.environ |= environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    return function(*work)
