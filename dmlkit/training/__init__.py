"""Experiment in, Run out: the parts of a training, the loop, and what it leaves on disk."""

from dmlkit.data.images import to_float
from dmlkit.training.build import (
    Objective,
    build_model,
    build_objective,
    build_optimizer,
    build_sampler,
    lr_factor,
    open_fabric,
)
from dmlkit.training.devices import device_type, repeatable_numerics
from dmlkit.training.experiment import Experiment
from dmlkit.training.runs import (
    NotTrainedError,
    Run,
    RunInProgressError,
    baselines,
    load_run,
    run,
    untrained,
)
from dmlkit.training.scoring import DivergedError, embed, frozen
from dmlkit.training.trainer import Trainer, fit

__all__ = [
    "DivergedError", "Experiment", "NotTrainedError", "Objective", "Run", "RunInProgressError",
    "Trainer", "baselines", "build_model", "build_objective", "build_optimizer", "build_sampler",
    "device_type", "embed", "fit", "frozen", "load_run", "lr_factor", "open_fabric",
    "repeatable_numerics", "run", "to_float", "untrained",
]  # fmt: skip
