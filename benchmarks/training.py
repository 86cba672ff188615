"""What the training loop costs: a step against a bare PyTorch loop, with SEC and with SEE against
without, on the ConvNet and on a ResNet-18, and a default Run in full."""

import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from dmlkit import data, sweeps, training
from dmlkit.data import batches
from dmlkit.training import Experiment

STEPS, ROUNDS = 40, 7

Row = dict[str, str | float]


def bare_steps(
    experiment: Experiment,
    device: torch.device,
    train: data.ImageSet,
    model: nn.Module,
    objective: nn.Module,
) -> Iterator[None]:
    """The loop that one would write by hand: the same batches, model, loss and optimizer."""
    model.to(device).to(memory_format=torch.channels_last)
    parameters = [*model.parameters(), *objective.to(device).parameters()]
    optimizer = torch.optim.Adam(parameters, lr=experiment.lr, fused=True)
    labels, sampler = (
        torch.from_numpy(train.labels).to(device),
        batches.PK(train.labels, seed=0, **experiment.sampler_args),
    )
    half = torch.autocast(device.type, torch.bfloat16, enabled=experiment.precision != "32-true")
    for step in range(experiment.steps):
        index = torch.from_numpy(sampler(step)).to(device, non_blocking=True)
        images = (train.images[index].float() / 255).contiguous(memory_format=torch.channels_last)
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
            with half:
                embeddings = model(images)
            value = objective(embeddings.float(), labels[index])
            optimizer.zero_grad()
            value.backward()
        optimizer.step()
        yield


def our_steps(
    experiment: Experiment,
    device: torch.device,
    train: data.ImageSet,
    model: nn.Module,
    objective: nn.Module,
) -> Iterator[None]:
    """The package's own step, with its record of losses, norms and gradients."""
    fabric = training.open_fabric(experiment, device.type)
    trainer = training.Trainer(experiment, model, objective, train, fabric)
    while trainer.step < experiment.steps:
        trainer.advance()
        yield


def _on_cpu(steps: Callable[..., Iterator[None]], experiment: Experiment) -> Iterator[None]:
    train = data.load(experiment.data)
    made = training.build_model(experiment, train), training.build_objective(experiment, train)
    return steps(experiment, torch.device("cpu"), train, *made)


def step_rows() -> list[Row]:
    """A step of the ConvNet against the bare loop, and what SEC and SEE add to a step."""
    experiment = replace(Experiment(), steps=STEPS * (ROUNDS + 1))
    proxy = replace(experiment, loss="normalized_softmax")
    args = {"loss": "normalized_softmax", "points": 8}
    see = replace(experiment, loss="spherical_expansion", loss_args=args)
    curriculum = {**args, "start_rate": 0.4, "end_rate": 0.4, "steps": 1}
    kinds = {
        "bare PyTorch loop": _on_cpu(bare_steps, experiment),
        "dmlkit": _on_cpu(our_steps, experiment),
        "dmlkit with SEC": _on_cpu(our_steps, replace(experiment, constraint={"weight": 0.1})),
        "dmlkit with jitter": _on_cpu(our_steps, replace(experiment, augment=True)),
    }
    softmaxes = {
        "normalized softmax": proxy,
        "normalized softmax with SEE, 40 % of the batch": replace(see, loss_args=curriculum),
        "normalized softmax with SEE, the whole batch": see,
    }
    proxies = {name: _on_cpu(our_steps, e) for name, e in softmaxes.items()}
    with_sec = {"normalized softmax with SEC": replace(proxy, constraint={"weight": 0.1})}
    resnets = {
        f"ResNet-18, {name}": _on_cpu(
            bare_steps, replace(e, model="resnet18", model_args={"small": True})
        )
        for name, e in (softmaxes | with_sec).items()
    }
    return [*_in_turn(kinds, STEPS), *_in_turn(proxies, STEPS), *_in_turn(resnets, 1)]


def _in_turn(kinds: dict[str, Iterator[None]], count: int) -> list[Row]:
    """Milliseconds of a step of each kind, and the ratio to the first kind, medians over rounds."""
    work = {name: partial(_take, steps, count) for name, steps in kinds.items()}
    times = sweeps.step_times(work, ROUNDS, warm_up=1)
    first = times.columns[0]
    return [
        {
            "what": f"training step, {name}",
            "ms": 1000 * times[name].median() / count,
            "against": first,
            "ratio": (times[name] / times[first]).median(),
        }
        for name in times
    ]


def _take(steps: Iterator[None], count: int) -> None:
    for _ in range(count):
        next(steps)


def run_row() -> Row:
    """Core-seconds of a default Run: training, scoring, writing; process start left out."""
    experiment = Experiment(split="val")
    training.baselines(replace(experiment, data_args={"train_classes": 40}))  # load what it needs
    for split in ("train", "val"):
        data.load(experiment.data, split)
    began = time.process_time()
    with tempfile.TemporaryDirectory() as store:
        done = training.run(experiment, device="cpu", store=Path(store), progress=False)
    spent = time.process_time() - began
    return {
        "what": f"default Run, {experiment.steps} steps, R@1 on validation classes "
        f"{100 * done.scores['recall_at_1']:.1f} %",
        "core-seconds": spent,
        "against": "8 core-seconds",
        "ratio": spent / 8,
    }


def rows() -> list[Row]:
    return [*step_rows(), run_row()]
