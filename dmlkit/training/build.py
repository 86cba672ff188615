"""From an Experiment to what it names: model, objective, batches, optimizer."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dmlkit import data, losses, models, spherical
from dmlkit.data import batches
from dmlkit.training.devices import own_random_state
from dmlkit.training.experiment import Experiment

_SAMPLERS: dict[str, Callable[..., Callable[[int], np.ndarray]]] = {
    "pk": batches.PK,
    "episodic": batches.Episodic,
    "uniform": batches.Uniform,
}

_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}


def build_model(experiment: Experiment, train: data.ImageSet) -> nn.Module:
    """The untrained model of an Experiment, the same for the same seed."""
    with own_random_state():
        torch.manual_seed(experiment.seed)
        return models.build(
            experiment.model, dim=experiment.dim, image=train[0], **experiment.model_args
        )


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


def build_objective(experiment: Experiment, train: data.ImageSet) -> Objective:
    """The objective of an Experiment, the same for the same seed."""
    with own_random_state():
        torch.manual_seed(experiment.seed)
        loss = losses.build(
            experiment.loss,
            num_classes=train.num_classes,
            dim=experiment.dim,
            **experiment.loss_args,
        )
    if experiment.constraint is None:
        return Objective(loss)
    return Objective(loss, spherical.SphericalConstraint(**experiment.constraint))


def choose(table: Mapping[str, Any], kind: str, name: str) -> Any:
    """The named entry of a table, or an error that lists what there is."""
    if name not in table:
        raise ValueError(f"unknown {kind} {name!r}; there are {', '.join(table)}")
    return table[name]


def build_sampler(experiment: Experiment, train: data.ImageSet) -> Callable[[int], np.ndarray]:
    """The sampler of an Experiment: step -> indices (B,), where B is a multiple of its devices."""
    make = choose(_SAMPLERS, "sampler", experiment.sampler)
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

    Raises:
        ValueError: unknown optimizer, or backbone settings for a model without a backbone.
    """
    make = choose(_OPTIMIZERS, "optimizer", experiment.optimizer)
    args = dict(experiment.optimizer_args)
    if "fused" in inspect.signature(make).parameters:
        args.setdefault("fused", True)  # one kernel over all parameters
    backbone, head = split_parameters(model)
    if not backbone and (experiment.backbone_lr_factor != 1 or experiment.frozen_steps):
        raise ValueError(
            f"backbone_lr_factor and frozen_steps need a model with a backbone and a head, but "
            f"{type(model).__name__} has no attribute 'head', or nothing besides it"
        )
    groups = [
        {"params": backbone, "base_lr": experiment.lr * experiment.backbone_lr_factor},
        {"params": head, "base_lr": experiment.lr},
        {
            "params": list(objective.parameters()),
            "base_lr": experiment.lr * experiment.loss_lr_factor,
        },
    ]
    return make([g for g in groups if g["params"]], lr=experiment.lr, **args)


def lr_factor(step: int, steps: int, decay: float) -> float:
    """Constant, then a linear fall to 0 over the last ``decay`` of the steps.

    >>> [round(lr_factor(step, 10, 0.5), 2) for step in (0, 4, 5, 9)]
    [1.0, 1.0, 1.0, 0.2]
    """
    return min(1.0, (steps - step) / (decay * steps)) if decay else 1.0
