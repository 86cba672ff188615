"""Experiment in, Run out: the parts of a training, the loop, and what it leaves on disk."""

from dmlkit.training.build import (
    Objective,
    build_model,
    build_objective,
    build_optimizer,
    build_sampler,
    lr_factor,
    split_parameters,
)
from dmlkit.training.devices import open_fabric, own_random_state, pinned_numerics
from dmlkit.training.experiment import Experiment
from dmlkit.training.loop import HISTORY, DivergedError, Trainer, embed, fit, to_float
from dmlkit.training.runs import NotTrainedError, Run, RunInProgressError, baselines, load_run, run

__all__ = [
    "HISTORY",
    "DivergedError",
    "Experiment",
    "NotTrainedError",
    "Objective",
    "Run",
    "RunInProgressError",
    "Trainer",
    "baselines",
    "build_model",
    "build_objective",
    "build_optimizer",
    "build_sampler",
    "embed",
    "fit",
    "load_run",
    "lr_factor",
    "open_fabric",
    "own_random_state",
    "pinned_numerics",
    "run",
    "split_parameters",
    "to_float",
]
