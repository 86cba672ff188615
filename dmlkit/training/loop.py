"""The training loop: from a model and any loss to a history, with looks and checkpoints."""

import tempfile
import time
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import pandas as pd
import torch
from lightning_fabric.utilities import move_data_to_device
from torch import nn
from tqdm.auto import tqdm

from dmlkit import data, retrieval
from dmlkit.checks import check_flag, check_type
from dmlkit.files import naming_full_disk
from dmlkit.training import devices
from dmlkit.training.build import build_sampler
from dmlkit.training.experiment import Experiment
from dmlkit.training.trainer import Trainer, packed, read_checkpoint

CHECKPOINT_SECONDS = 10.0
CHECK_EVERY = 25  # steps between looks at the record: each look makes the host wait for the device


def fit(
    model: nn.Module,
    loss: nn.Module,
    train: data.ImageSet,
    experiment: Experiment | None = None,
    *,
    device: str = "auto",
    monitor: Mapping[str, data.ImageSet] | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Train a model with any ``loss(embeddings, labels)``, and return its history.

    Model and loss are trained in place. The Experiment gives batches, optimizer, steps and seed;
    its names of model and loss are not used. With a ``checkpoint`` path the state is saved there
    every few seconds, and when interrupted between two steps; a training goes on from a state that
    is there. One that is damaged is named in a warning, and the training begins anew.

    Several ``devices`` have a process each. Under torchrun these are there, and each calls this;
    else they are started here, are given all arguments, and import the module of a loss of your
    own: so it cannot be defined in a notebook, and a script needs ``if __name__ == "__main__"``.

    Raises:
        DivergedError: a loss, norm, gradient, parameter or embedding is no longer finite.
        OSError: no checkpoint can be written.
        TypeError: an argument is of another type.
        ValueError: an unknown device, or devices that cannot share a batch.

    >>> from dmlkit import data, losses, models
    >>> train = data.load("glyphs")
    >>> model = models.build("convnet", dim=8, image=train[0])
    >>> history = fit(model, losses.TripletLoss(), train, Experiment(steps=2), progress=False)
    >>> list(history.columns)
    ['step', 'loss', 'norm_mean', 'norm_spread', 'gradient_norm']
    """
    check_type(nn.Module, model=model, loss=loss)
    check_type(Experiment, NoneType, experiment=experiment)
    check_type(Mapping, NoneType, monitor=monitor)
    shown = {f"monitor[{split!r}]": images for split, images in (monitor or {}).items()}
    check_type(data.ImageSet, train=train, **shown)
    check_type(Path, NoneType, checkpoint=checkpoint)
    check_flag(progress=progress)
    experiment = experiment or Experiment()
    if experiment.devices == 1 or devices.in_group():
        options = device, monitor or {}, checkpoint, progress
        return _fit(model, loss, train, experiment, *options).history()
    build_sampler(experiment, train)  # refuses here what every process would
    with tempfile.TemporaryDirectory() as folder:  # a checkpoint brings home what they trained
        checkpoint, work = checkpoint or Path(folder) / "checkpoint", Path(folder) / "work"
        options = device, monitor or {}, checkpoint, progress
        with naming_full_disk(work):
            work.write_bytes(packed((model, loss, train, experiment, *options)))
        devices.spawn(experiment.devices, _fit_in_group, work, checkpoint)
        alone = replace(experiment, devices=1)
        return fit(model, loss, train, alone, device=device, checkpoint=checkpoint, progress=False)


def _fit_in_group(work: Path, checkpoint: Path) -> None:
    trainer = _fit(*torch.load(work, weights_only=False))  # of our own making, a moment ago
    if trainer.fabric.is_global_zero:
        trainer.save(checkpoint)


def _fit(
    model: nn.Module,
    loss: nn.Module,
    train: data.ImageSet,
    experiment: Experiment,
    device: str,
    monitor: Mapping[str, data.ImageSet],
    checkpoint: Path | None,
    progress: bool,
) -> Trainer:
    """Train in this process, which is alone, or one of a group."""
    fabric = devices.open_fabric(experiment, device)
    if not fabric.is_global_zero:  # the first alone evaluates, writes and shows
        monitor, checkpoint, progress = {}, None, False
    with devices.repeatable_numerics(experiment.threads):
        trainer = Trainer(experiment, model, loss, train, fabric)
        state = _read(checkpoint)
        if state is None and fabric.world_size > 1:
            state = move_data_to_device(trainer.state(), "cpu")
        state = fabric.broadcast(state)  # all begin with the first one's, the loss's state too
        if state is not None:
            trainer.restore(state)
        try:
            _take_steps(trainer, monitor, checkpoint, progress)
        except KeyboardInterrupt:
            if checkpoint is not None and not trainer.within_step:
                trainer.save(checkpoint)
            raise
        trainer.check_last_update()
        return trainer


def _read(checkpoint: Path | None) -> dict[str, Any] | None:
    """The state in a checkpoint, if there is one that can be read."""
    if checkpoint is None or not checkpoint.exists():
        return None
    try:
        return read_checkpoint(checkpoint)
    except (OSError, ValueError) as error:
        warnings.warn(
            f"checkpoint {checkpoint} cannot be read ({error}): training begins anew",
            stacklevel=2,
        )
        return None


def _take_steps(
    trainer: Trainer,
    monitor: Mapping[str, data.ImageSet],
    checkpoint: Path | None,
    progress: bool,
) -> None:
    """Those that remain, with looks at the record, the monitored splits, and checkpoints."""
    experiment, saved = trainer.experiment, time.monotonic()
    bar = tqdm(
        total=experiment.steps, initial=trainer.step, desc=experiment.loss, unit="step",
        disable=not progress, leave=False,
    )  # fmt: skip
    with bar:
        _look(trainer, monitor, bar)  # after the step that a checkpoint is of
        while trainer.step < experiment.steps:
            trainer.advance()
            _look(trainer, monitor, bar)
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                trainer.check_finite()
                trainer.save(checkpoint)
                saved = time.monotonic()


def _look(trainer: Trainer, monitor: Mapping[str, data.ImageSet], bar: tqdm) -> None:
    """At the record and the monitored splits, if it is time; a look that was cut short goes on."""
    experiment, step = trainer.experiment, trainer.step
    if step == 0:
        return
    due = step == experiment.steps or step % experiment.monitor_every == 0
    if due or step % CHECK_EVERY == 0:
        bar.set_postfix(loss=f"{trainer.check_finite():.3f}")
        bar.update(step - bar.n)
    for split, images in monitor.items() if due else ():
        recalls = trainer.monitored.setdefault(split, {})
        if step not in recalls:
            x = images.retrieval_sets(trainer.embed(images))
            recalls[step] = retrieval.recall_at_k(**x, ks=[1], metric=experiment.metric)[1]
