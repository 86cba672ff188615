"""What every test and doctest may take for granted."""

import atexit
import contextlib
import functools
import gc
import multiprocessing
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest

import dmlkit  # sets the instruction set that NumPy and torch are to use, before either is loaded
from dmlkit.checks import warn_once
from tests.commands import Commands

if TYPE_CHECKING:
    import torch


# Doctests of what needs the extra "site" are those of a machine that has it.
collect_ignore_glob = ["course/site/conf.py" if find_spec("myst_nb") else "course/site/*"]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Where tests run; the process that only hands them out need not import torch."""
    if session.config.pluginmanager.hasplugin("dsession"):  # that of pytest-xdist
        return
    # Tests run on both cores as processes; inside one, a single thread is quicker and repeatable.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")  # UMAP would set torch's threads to all cores
    gc.disable()  # until all is collected: what is imported stays

    import torch
    from hypothesis import settings

    torch.set_num_threads(1)
    if not torch.cuda.is_available():
        # torch.manual_seed keeps its caller's stack for each kind of GPU that is not there: 2 ms.
        vars(torch)["manual_seed"] = torch.default_generator.manual_seed
    # The same examples every time; HYPOTHESIS_PROFILE=nightly looks further, each time elsewhere.
    settings.register_profile(
        "ci", max_examples=100, deadline=None, derandomize=True, database=None
    )
    settings.register_profile("nightly", max_examples=2000, deadline=None)
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True)
def _names_of_doctests(doctest_namespace: dict) -> None:
    import numpy as np
    import torch

    doctest_namespace["np"] = np
    doctest_namespace["torch"] = torch


@pytest.fixture(autouse=True)
def _environment() -> Iterator[None]:
    """What a test changes in the environment, the command line's --root too, ends with it, and so
    does a working folder of its own; what was said once may be said again."""
    warn_once.cache_clear()
    with mock.patch.dict(os.environ), contextlib.chdir(Path.cwd()):
        yield


@pytest.fixture
def generator() -> "torch.Generator":
    """A fixed stream of random numbers."""
    import torch

    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def commands() -> Iterator[Commands]:
    """Runs commands of the project in processes of their own that need not import torch."""
    with contextlib.closing(Commands()) as found:
        yield found


@pytest.fixture(scope="session")
def forks() -> BaseContext:
    """Processes that are forked from one that has imported torch, not begun anew each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["dmlkit.training"])
    return context


@pytest.fixture(scope="session")
def spawn(forks: BaseContext) -> Callable[..., list[Any]]:
    """``training.devices.spawn``, but that its processes need not import torch."""
    from dmlkit.training import devices

    pool = functools.partial(devices.loky.ProcessPoolExecutor, context=forks)
    real = devices.spawn

    def spawned(*work: Any) -> list[Any]:
        with mock.patch.object(devices.loky, "ProcessPoolExecutor", pool):
            return real(*work)

    return spawned


@pytest.fixture(scope="session")
def committed_figures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """figures/ as it was committed: `make figures` may have made others since."""
    folder = tmp_path_factory.mktemp("committed")
    command = ["git", "archive", "--output", str(folder / "figures.zip"), "HEAD", "figures"]
    try:
        subprocess.run(command, cwd=dmlkit.ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no git checkout: which figures were committed is not known")
    shutil.unpack_archive(folder / "figures.zip", folder)
    return folder / "figures"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first, so that no core waits for one of them at the end."""
    long = ("build/", "tests/course/", "tests/training/")
    items.sort(key=lambda item: not item.nodeid.startswith(long))


def pytest_collection_finish(session: pytest.Session) -> None:
    """From here on what was imported and collected stays: no search for garbage looks at it."""
    gc.freeze()
    gc.enable()
    if hasattr(session.config, "workerinput"):  # one of pytest-xdist's workers
        atexit.register(os._exit, 0)  # it has told all; to take down its modules takes seconds
    else:
        atexit.register(gc.unfreeze)  # else libraries report it as leaked
