"""Where a training runs: on one device, or on several, each with a process of its own."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import faiss
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import find_free_network_port
from torch.multiprocessing.spawn import ProcessException, start_processes

from dmlkit.training.experiment import Experiment

GRACE_SECONDS = 10.0  # for processes to end by themselves when the one that waits is interrupted


def device_type(device: str) -> str:
    """``cuda`` or ``cpu``: ``auto`` is CUDA where there is a GPU.

    Raises:
        ValueError: unknown device, or ``cuda`` where there is none.

    >>> device_type("cpu")
    'cpu'
    """
    there = torch.cuda.is_available()
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"unknown device {device!r}; there are auto, cpu, cuda")
    if device == "cuda" and not there:
        raise ValueError("device 'cuda' was asked for, but torch sees no CUDA GPU; use 'cpu'")
    return "cuda" if there and device != "cpu" else "cpu"


def open_fabric(experiment: Experiment, device: str = "auto") -> Fabric:
    """Lightning Fabric for an Experiment, on this process's device.

    In a group, which torchrun or ``spawn`` has started, every process has one of the devices; a
    process that is in none is alone, with one device.

    Raises:
        ValueError: unknown device, more GPUs than there are, or a group of another size.
    """
    accelerator, asked = device_type(device), experiment.devices
    processes = int(os.environ["WORLD_SIZE"]) if in_group() else 1
    machines = int(os.environ.get("GROUP_WORLD_SIZE", 1)) if in_group() else 1
    if in_group() and processes != asked:
        raise ValueError(
            f"{processes} processes were started, but the Experiment has devices={asked}: "
            f"set devices={processes}, or start {asked}"
        )
    if accelerator == "cuda" and asked // machines > (there := torch.cuda.device_count()):
        raise ValueError(f"devices={asked} were asked for, but torch sees {there} CUDA GPUs")
    fabric = Fabric(
        accelerator=accelerator,
        strategy="ddp" if processes > 1 else "auto",
        devices=processes // machines,
        num_nodes=machines,
        precision=experiment.precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def in_group() -> bool:
    """Whether torchrun, or ``spawn``, has started this process as one of several.

    >>> in_group()
    False
    """
    return torch.distributed.is_torchelastic_launched()


def seed(number: int) -> None:
    """Seed torch's default random states, those of GPUs only where they are in use.

    ``torch.manual_seed`` would note a stack trace for each kind of GPU that may come into use
    later, which would take longer than the rest of a small step.

    >>> seed(0)
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


def spawn(processes: int, function: Callable[..., object], *work: Any) -> None:
    """Call ``function(*work)`` in a new group of processes on this machine, and wait for all.

    Each finds the environment that torchrun gives. What the first of them raises is raised here.

    Not by Fabric's launcher: it refuses notebooks, and leaves its processes to themselves when
    this one is interrupted.
    """
    environment = {
        "TORCHELASTIC_RUN_ID": "dmlkit",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(find_free_network_port()),
        "WORLD_SIZE": str(processes),
    }
    errors = torch.multiprocessing.get_context("spawn").SimpleQueue()
    args = environment, errors, function, work
    group = start_processes(_member, args, processes, join=False)
    failure = None
    try:
        while not group.join():
            pass
    except ProcessException as error:
        failure = error
    finally:
        for process in group.processes:  # one that is left may wait for one that has gone
            process.join(GRACE_SECONDS)
            process.kill()
            process.join()
    if not errors.empty():
        raise errors.get() from failure
    if failure:
        raise failure


def _member(
    rank: int,
    environment: dict[str, str],
    errors: Any,
    function: Callable[..., object],
    work: tuple[Any, ...],
) -> None:
    os.environ |= environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    try:
        function(*work)
    except BaseException as error:
        errors.put(error)
        raise
