"""What every test and doctest may take for granted."""

import os

# isort: off
import dmlkit  # noqa: F401  (first: it sets the instruction set that NumPy and torch are to use)

# isort: on
import numpy as np
import pytest
import torch

# Tests run on both cores as processes; inside one, a single thread is quicker and repeatable.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def _names_of_doctests(doctest_namespace: dict) -> None:
    doctest_namespace["np"] = np
    doctest_namespace["torch"] = torch


@pytest.fixture
def generator() -> torch.Generator:
    """A fixed stream of random numbers."""
    return torch.Generator().manual_seed(0)
