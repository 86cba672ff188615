"""The training loop, which knows no loss by name."""

import functools
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import pandas as pd
import torch
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor, nn
from tqdm.auto import tqdm

from dmlkit import data, geometry, retrieval
from dmlkit.data import glyphs
from dmlkit.files import write_whole
from dmlkit.training import devices
from dmlkit.training.build import build_optimizer, build_sampler, lr_factor, split_parameters
from dmlkit.training.devices import open_fabric, pinned_numerics
from dmlkit.training.experiment import Experiment

CHECKPOINT_SECONDS = 10.0
CHECK_EVERY = 25  # steps between looks at the record: each look makes the host wait for the device
_DEVICE_STRIDE = 1_000_000_007  # between the seeds of two devices, far above that of two steps
HISTORY = ("loss", "norm_mean", "norm_spread", "gradient_norm")


class DivergedError(FloatingPointError):
    """The loss is no longer a finite number."""


class Trainer:
    """The state of a training: what a step changes, what a checkpoint holds.

    Every random choice of a step is a function of (seed, step), so that a training which goes on
    from a checkpoint is the unbroken one, bit for bit.

    On W devices each embeds every W-th image of the batch, and gathers all embeddings. So each
    computes the objective of the whole batch, with the same random numbers, memories and proxies,
    and has its whole gradient: that of the objective's own parameters as it is, that of its own
    embeddings to take back through the model.
    """

    def __init__(
        self,
        experiment: Experiment,
        model: nn.Module,
        objective: nn.Module,
        train: data.ImageSet,
        fabric: lightning_fabric.Fabric,
    ) -> None:
        self.experiment, self.fabric = experiment, fabric
        device, seed = fabric.device, experiment.seed
        self.share = slice(fabric.global_rank, None, fabric.world_size)  # of every batch
        self.labels = torch.from_numpy(train.labels).to(device)
        self.sampler = build_sampler(experiment, train)
        self.images = (  # all on the device, to be indexed there; or files, decoded ahead of a step
            train.images.to(device)
            if isinstance(train.images, Tensor)
            else train.images.stream(self.sampler, seed, experiment.steps, device, self.share)
        )
        model = model.to(memory_format=torch.channels_last)
        self.objective = objective.to(device)
        optimizer = build_optimizer(experiment, model.to(device), self.objective)
        self.resting = split_parameters(model)[0]  # during frozen_steps
        if experiment.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.record = torch.full((experiment.steps, len(HISTORY)), torch.nan, device=device)
        self.monitored: dict[str, dict[int, float]] = {}
        self.step = 0
        self.mid_step = False  # whether a step has begun and not ended

    def advance(self) -> None:
        """One step: batch, embeddings, objective, gradient, update, record."""
        experiment, step = self.experiment, self.step
        self.mid_step = True
        seed = experiment.seed * 1_000_003 + step
        own_seed = seed + self.fabric.global_rank * _DEVICE_STRIDE
        images, labels = self._batch(own_seed)
        factor = lr_factor(step, experiment.steps, experiment.lr_decay)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        devices.seed(own_seed)  # for dropout
        embeddings = self._gathered(self.model(images))  # (B, d)
        devices.seed(seed)  # for losses that sample, alike on every device
        value = self.objective(embeddings, labels)
        self.optimizer.zero_grad()
        self.fabric.backward(value)
        self._settle_gradients()
        with torch.no_grad():
            norm = geometry.norms(embeddings.float())
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            gradient_norm = torch.nn.utils.get_total_norm(gradients)
            spread = norm.std(correction=0) / norm.mean()
            self.record[step] = torch.stack([value, norm.mean(), spread, gradient_norm])
        self.optimizer.step()
        self.step += 1
        self.mid_step = False

    def _batch(self, seed: int) -> tuple[Tensor, Tensor]:
        """This device's share of the step's images (B/W, C, H, W), and all of its labels (B,)."""
        index = torch.from_numpy(self.sampler(self.step))
        if self.fabric.device.type == "cuda":
            index = index.pin_memory()  # else the copy would wait for the device
        index = index.to(self.fabric.device, non_blocking=True)
        images = (
            self.images[index[self.share]]
            if isinstance(self.images, Tensor)
            else self.images(self.step)
        )
        images = (
            glyphs.jitter(images, torch.Generator().manual_seed(seed))
            if self.experiment.augment
            else to_float(images)
        )
        return images.contiguous(memory_format=torch.channels_last), self.labels[index]

    def _gathered(self, embeddings: Tensor) -> Tensor:
        """The whole batch's embeddings, in its order: (B/W, d) on each of W devices -> (B, d).

        Going back, each device's own rows of ∂L/∂embeddings, which all devices have in full, go
        through its model. One process would sum over all rows; DDP takes the mean over the devices
        of their sums, hence the factor W. Fabric's gather would send the gradients around as well.
        """
        W = self.fabric.world_size
        if W == 1:
            return embeddings
        shares = [torch.empty_like(embeddings) for _ in range(W)]
        torch.distributed.all_gather(shares, embeddings.detach().contiguous())
        embeddings.register_hook(lambda gradient: gradient * W)
        shares[self.fabric.global_rank] = embeddings
        return torch.stack(shares, dim=1).flatten(0, 1)  # row i of device r is row i·W + r

    def _settle_gradients(self) -> None:
        if self.step < self.experiment.frozen_steps:
            for parameter in self.resting:
                parameter.grad = None  # the optimizer passes over it, and its averages stay empty
        if self.fabric.world_size > 1:
            for parameter in self.objective.parameters():
                if parameter.grad is not None:  # equal but for the last bits of GPUs, which add up
                    torch.distributed.broadcast(parameter.grad, 0)

    def embed(self, images: data.ImageSet) -> np.ndarray:
        """Raw embeddings as ``embed`` gives them, under the training's precision."""
        with self.fabric.autocast():
            return embed(self.model.module, images)  # not DDP's, whose forward waits for the others

    def check_finite(self) -> float:
        """The last loss, or an error naming the first step at which it was not finite."""
        values = self.record[: self.step, 0].cpu()
        bad = (~torch.isfinite(values)).nonzero()
        if len(bad):
            first = int(bad[0])
            raise DivergedError(
                f"the loss became {values[first].item()} at step {first} of "
                f"{self.experiment.steps} (loss {self.experiment.loss!r}, optimizer "
                f"{self.experiment.optimizer!r}, lr {self.experiment.lr}): lower lr, or the weight "
                f"of a constraint"
            )
        return float(values[-1])

    def history(self) -> pd.DataFrame:
        """One row a step so far."""
        frame = pd.DataFrame(self.record[: self.step].cpu().double().numpy(), columns=list(HISTORY))
        frame.insert(0, "step", np.arange(1, self.step + 1))
        for split, recalls in self.monitored.items():
            frame[f"{split}_recall_at_1"] = frame["step"].map(recalls)
        return frame

    def state(self) -> dict[str, Any]:
        """All that the remaining steps depend on."""
        return {
            "model": self.model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "record": self.record,
            "monitored": self.monitored,
            "step": self.step,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state that ``state`` gave."""
        self.model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.record.copy_(state["record"])
        self.monitored, self.step = state["monitored"], state["step"]

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        write_whole({path: functools.partial(torch.save, self.state())})


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
    every few seconds, and when interrupted between two steps; a state found there is gone on from.

    Several ``devices`` have a process each. Under torchrun these are there, and each calls this;
    else they are started here, are given all arguments, and import the module of a loss of your
    own: so it cannot be defined in a notebook, and a script needs ``if __name__ == "__main__"``.

    Raises:
        DivergedError: the loss is no longer finite.
        ValueError: unknown sampler, optimizer or device, or devices that cannot share a batch.

    >>> from dmlkit import data, losses, models
    >>> train = data.load("glyphs")
    >>> model = models.build("convnet", dim=8, image=train[0])
    >>> history = fit(model, losses.TripletLoss(), train, Experiment(steps=2), progress=False)
    >>> list(history.columns)
    ['step', 'loss', 'norm_mean', 'norm_spread', 'gradient_norm']
    """
    experiment = experiment or Experiment()
    if experiment.devices == 1 or devices.in_group():
        options = device, monitor or {}, checkpoint, progress
        return _fit(model, loss, train, experiment, *options).history()
    build_sampler(experiment, train)  # refuses here what every process would
    with tempfile.TemporaryDirectory() as folder:  # a checkpoint brings home what they trained
        checkpoint, work = checkpoint or Path(folder) / "checkpoint", Path(folder) / "work"
        options = device, monitor or {}, checkpoint, progress
        torch.save((model, loss, train, experiment, *options), work)
        devices.spawn(experiment.devices, _fit_in_group, work, checkpoint)
        alone = replace(experiment, devices=1)
        return fit(model, loss, train, alone, device=device, checkpoint=checkpoint, progress=False)


def _fit_in_group(work: Path, checkpoint: Path) -> None:
    trainer = _fit(*torch.load(work, weights_only=False))
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
    fabric = open_fabric(experiment, device)
    if not fabric.is_global_zero:  # the first alone evaluates, writes and shows
        monitor, checkpoint, progress = {}, None, False
    with pinned_numerics(experiment.threads):
        trainer = Trainer(experiment, model, loss, train, fabric)
        state = None if fabric.world_size == 1 else move_data_to_device(trainer.state(), "cpu")
        if checkpoint is not None and checkpoint.exists():
            state = torch.load(checkpoint, map_location="cpu")
        state = fabric.broadcast(state)  # all begin with the first one's, the loss's state too
        if state is not None:
            trainer.restore(state)
        try:
            _train(trainer, monitor, checkpoint, progress)
        except KeyboardInterrupt:
            if checkpoint is not None and not trainer.mid_step:
                trainer.save(checkpoint)
            raise
        return trainer


def _train(
    trainer: Trainer,
    monitor: Mapping[str, data.ImageSet],
    checkpoint: Path | None,
    progress: bool,
) -> None:
    experiment, saved = trainer.experiment, time.monotonic()
    bar = tqdm(
        total=experiment.steps, initial=trainer.step, desc=experiment.loss, unit="step",
        disable=not progress, leave=False,
    )  # fmt: skip
    with bar:
        while trainer.step < experiment.steps:
            trainer.advance()
            step, last = trainer.step, trainer.step == experiment.steps
            look = last or step % experiment.monitor_every == 0
            if look or step % CHECK_EVERY == 0:
                bar.set_postfix(loss=f"{trainer.check_finite():.3f}")
                bar.update(step - bar.n)
            if look:
                for split, images in monitor.items():
                    recall = retrieval.recall_at_k(
                        **images.retrieval_sets(trainer.embed(images)),
                        ks=[1],
                        metric=experiment.metric,
                    )
                    trainer.monitored.setdefault(split, {})[step] = recall[1]
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                trainer.check_finite()
                trainer.save(checkpoint)
                saved = time.monotonic()


def to_float(images: Tensor) -> Tensor:
    """Pixels as a network sees them: uint8 0..255 -> float32 0..1.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return images.float() / 255


def embed(model: nn.Module, images: data.ImageSet, batch_size: int = 256) -> np.ndarray:
    """Raw embeddings of all images: (N, dim) float32, in evaluation mode, in the set's order.

    They are computed on the model's device, in its parameters' dtype (or as an autocast around
    this says).
    """
    like = next(model.parameters())
    training = model.training
    model.eval()
    with torch.inference_mode():
        parts = []
        for part in images.images.split(batch_size):
            pixels = to_float(part.to(like.device)).to(like.dtype)
            parts.append(model(pixels.contiguous(memory_format=torch.channels_last)))
    model.train(training)
    return torch.cat(parts).float().cpu().numpy()
