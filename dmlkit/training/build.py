"""From an Experiment to what it names: device, model, objective, batches, optimizer."""

import inspect
import math
import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, nn

from dmlkit import data, losses, models
from dmlkit.losses import spherical
from dmlkit.training import devices
from dmlkit.training.experiment import OPTIMIZERS, SAMPLERS, Experiment


class Objective(nn.Module):
    """loss(embeddings, labels), plus a constraint of the raw embeddings where there is one."""

    def __init__(self, loss: nn.Module, constraint: nn.Module | None = None) -> None:
        super().__init__()
        self.loss = loss
        self.constraint = constraint

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The scalar that a step descends."""
        value = self.loss(embeddings, labels)
        return value if self.constraint is None else value + self.constraint(embeddings)


class Refreshed(Protocol):
    """What is shown the whole training set from time to time: trees and clusters come from it.

    A module anywhere within the objective, within a wrapper too, whose state is its buffers; or the
    sampler, which then has ``state_dict`` and ``load_state_dict`` of its own. Before step 0 and
    every ``refresh_every`` steps it is given the model's raw embeddings (N, d) of all training
    images, in evaluation mode, and their labels (N,), both on the CPU.
    """

    refresh_every: int

    def refresh(self, embeddings: Tensor, labels: Tensor) -> None: ...


def refreshed(objective: nn.Module, sampler: object) -> list[Refreshed]:
    """The parts of a training that are to be shown the training set, in a fixed order."""
    parts: list[Any] = [*objective.modules(), sampler]
    return [part for part in parts if hasattr(part, "refresh") and hasattr(part, "refresh_every")]


class Group(DDPStrategy):
    """DDP for models of which a part, or all, has no gradient."""

    def __init__(self) -> None:
        super().__init__(static_graph=True)  # what has no gradient in step 0 has none later

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        learns = any(p.requires_grad for p in module.parameters())
        return super().setup_module(module) if learns else module


def open_fabric(experiment: Experiment, device: str = "auto") -> Fabric:
    """Lightning Fabric for an Experiment, on this process's device.

    In a group, which torchrun or ``devices.spawn`` has started, every process has one of the
    devices; a process that is in none is alone, with one device. Raises ValueError for a group of
    another size than the Experiment says.
    """
    processes = machines = 1
    if devices.in_group():
        processes = int(os.environ["WORLD_SIZE"])
        machines = int(os.environ.get("GROUP_WORLD_SIZE", 1))
        if processes != (asked := experiment.devices):
            raise ValueError(
                f"{processes} processes were started, but the Experiment has devices={asked}: "
                f"set devices={processes}"
            )
    fabric = Fabric(
        accelerator=devices.device_type(device),
        strategy=Group() if processes > 1 else "auto",
        devices=processes // machines,
        num_nodes=machines,
        precision=experiment.precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    return fabric


def build_model(experiment: Experiment, train: data.ImageSet) -> nn.Module:
    """The untrained model of an Experiment, the same for the same seed."""
    return model_for(experiment, train[0])


def model_for(experiment: Experiment, image: Tensor) -> nn.Module:
    """The untrained model for images shaped like one, (C, H, W)."""
    with devices.restored_random_state():
        torch.manual_seed(experiment.seed)
        return models.build(
            experiment.model, dim=experiment.dim, image=image, **experiment.model_args
        )


def between(
    start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float
) -> dict[str, Tensor]:
    """Weights on the line between two states of one model: (1 − s) start + s end.

    Counts, as BatchNorm has one, are those of the end. Source: Wortsman et al. 2022, "Robust
    Fine-Tuning of Zero-Shot Models" (WiSE-FT).

    >>> between({"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}, 0.25)
    {'w': tensor([1.])}
    """
    return {
        name: torch.lerp(start[name], value, share) if value.is_floating_point() else value
        for name, value in end.items()
    }


def build_objective(experiment: Experiment, train: data.ImageSet) -> Objective:
    """The objective of an Experiment, the same for the same seed."""
    return objective_for(experiment, train.num_classes)


def objective_for(experiment: Experiment, num_classes: int) -> Objective:
    """The objective for a number of classes."""
    e = experiment
    with devices.restored_random_state():
        torch.manual_seed(e.seed)
        loss = losses.build(e.loss, num_classes=num_classes, dim=e.dim, **e.loss_args)
    constraint = None if e.constraint is None else spherical.SphericalConstraint(**e.constraint)
    return Objective(loss, constraint)


def build_sampler(experiment: Experiment, train: data.ImageSet) -> Callable[[int], np.ndarray]:
    """The sampler of an Experiment: step -> indices (B,), where B is a multiple of its devices."""
    make = SAMPLERS[experiment.sampler]
    sampler = make(train.labels, seed=experiment.seed, **experiment.sampler_args)
    if (batch := len(sampler(0))) % experiment.devices:
        raise ValueError(
            f"devices={experiment.devices} cannot share a batch of {batch} images equally: change "
            f"devices, or sampler_args ({experiment.sampler_args})"
        )
    return sampler


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The model's backbone and its head: all parameters, where it has no ``head`` of its own."""
    head = list(getattr(model, "head", model).parameters())
    in_head = {id(parameter) for parameter in head}
    return [p for p in model.parameters() if id(p) not in in_head], head


def build_optimizer(
    experiment: Experiment, model: nn.Module, objective: nn.Module
) -> torch.optim.Optimizer:
    """The optimizer over backbone, head and the loss's own parameters, each with a rate of its own.

    Raises ValueError for backbone settings of a model without a backbone, or for nothing to train.
    """
    if not any(p.requires_grad for p in (*model.parameters(), *objective.parameters())):
        loss = type(objective.loss if isinstance(objective, Objective) else objective).__name__
        raise ValueError(
            f"nothing to train: neither the model ({type(model).__name__}) nor the loss ({loss}) "
            "has a parameter that requires a gradient"
        )
    if experiment.lr == 0:
        warnings.warn("lr is 0: no parameter moves (BatchNorm's statistics do)", stacklevel=2)
    make, args, lr = OPTIMIZERS[experiment.optimizer], experiment.optimizer_args, experiment.lr
    if "fused" in inspect.signature(make).parameters:  # one kernel over all parameters
        scaled = experiment.precision == "16-mixed"  # where it would unscale gradients, unseen
        args = {**args, "fused": False} if scaled else {"fused": True, **args}
    backbone, head = split_parameters(model)
    if not backbone and (experiment.backbone_lr_factor != 1 or experiment.frozen_steps):
        raise ValueError(
            f"backbone_lr_factor and frozen_steps need a model with a backbone and a head, but "
            f"{type(model).__name__} has no attribute 'head', or nothing besides it"
        )
    groups = [
        {"params": backbone, "base_lr": lr * experiment.backbone_lr_factor},
        {"params": head, "base_lr": lr},
        {"params": list(objective.parameters()), "base_lr": lr * experiment.loss_lr_factor},
    ]
    return make([g for g in groups if g["params"]], lr=lr, **args)


def lr_factor(
    step: int, steps: int, decay: float, warmup: int = 0, schedule: str = "linear"
) -> float:
    """A rise over the first ``warmup`` steps; at the end, over ``decay`` of all, a fall to 0.

    >>> [round(lr_factor(step, 10, 0.5), 2) for step in (0, 4, 5, 9)]
    [1.0, 1.0, 1.0, 0.2]
    >>> [round(lr_factor(step, 10, 0.5, 2, "cosine"), 2) for step in (0, 1, 2, 6, 9)]
    [0.5, 1.0, 1.0, 0.9, 0.1]
    """
    left = min(1.0, (steps - step) / (decay * steps)) if decay else 1.0
    fall = math.sin(math.pi / 2 * left) ** 2 if schedule == "cosine" else left
    return fall * min(1.0, (step + 1) / warmup) if warmup else fall
