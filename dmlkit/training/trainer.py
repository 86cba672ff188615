"""The training loop: from a model and any loss to a history, step after step, with checkpoints."""

import copy
import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from lightning_fabric import Fabric
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor, nn
from tqdm.auto import tqdm

from dmlkit import data, geometry
from dmlkit.data import glyphs, pictures
from dmlkit.data.images import to_float
from dmlkit.files import StrPath, told, write_whole
from dmlkit.training import devices
from dmlkit.training.build import (
    Objective,
    between,
    build_optimizer,
    build_sampler,
    lr_factor,
    open_fabric,
    refreshed,
    split_parameters,
)
from dmlkit.training.checkpoints import check_same, described, is_the_longer, read_checkpoint
from dmlkit.training.experiment import Experiment
from dmlkit.training.scoring import (
    DivergedError,
    check_embeddings,
    embed,
    embed_batches,
    embedding_of,
    recall_at_1,
)

CHECKPOINT_SECONDS = 10.0
CHECK_EVERY = 25  # steps between looks at the record: each look makes the host wait for the device
LARGEST_NORM = torch.finfo(torch.float32).max ** 0.5  # 1.8e19
HISTORY = ("loss", "norm_mean", "norm_spread", "gradient_norm")
_DEVICE_STRIDE = 1_000_000_007  # between the seeds of two devices, far above that of two steps


class Trainer:
    """The state of a training: what a step changes, what a checkpoint holds; it knows no loss.

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
        fabric: Fabric,
    ) -> None:
        self.experiment, self.fabric, self.train = experiment, fabric, train
        self.precision = fabric.strategy.precision  # under 16-mixed it has a scale that moves
        device = fabric.device
        self.share = slice(fabric.global_rank, None, fabric.world_size)  # of every batch
        self.labels = torch.from_numpy(train.labels).to(device)
        self.sampler: Any = build_sampler(experiment, train)
        self.images = self._images()
        self.refreshed = refreshed(objective, self.sampler)
        model = model.to(memory_format=torch.channels_last)
        self.objective = objective.to(device)
        optimizer = build_optimizer(experiment, model.to(device), self.objective)
        self.plain_model = model  # neither compiled nor in DDP, which waits for the others
        self.backbone = split_parameters(model)[0]  # which rests during frozen_steps
        if experiment.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.record = torch.full((experiment.steps, len(HISTORY)), torch.nan, device=device)
        self.monitored: dict[str, dict[int, float]] = {}
        self.start = copy.deepcopy(self.plain_model.state_dict()) if experiment.blend < 1 else {}
        self.best: dict[str, Any] | None = None  # see keep_best
        self.step = 0
        self.within_step = False  # begun and not ended: no state to keep

    def advance(self) -> None:
        """One step: batch, embeddings, objective, gradient, update, record."""
        experiment, step = self.experiment, self.step
        self.within_step = True
        self._refresh()
        seed = experiment.seed * 1_000_003 + step
        own_seed = seed + self.fabric.global_rank * _DEVICE_STRIDE
        images, labels = self._batch(own_seed)
        e = experiment
        factor = lr_factor(step, e.steps, e.lr_decay, e.warmup, e.schedule)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        devices.seed(own_seed)  # for dropout
        embeddings = self._gathered(embedding_of(self.model(images)))  # (B, d)
        devices.seed(seed)  # for losses that sample, alike on every device
        value = self.objective(embeddings, labels)
        self.optimizer.zero_grad()
        self.fabric.backward(value)
        self._adjust_gradients()
        self._note(value.detach(), embeddings.detach())
        if e.clip:
            groups: Any = self.optimizer.param_groups
            nn.utils.clip_grad_norm_([p for g in groups for p in g["params"]], e.clip)
        self.optimizer.step()
        self.step += 1
        self.within_step = False

    def _images(self) -> Tensor | Callable[[int], Tensor]:
        """All on the device, to be indexed there; or files, decoded ahead of a step."""
        e, images = self.experiment, self.train.images
        if isinstance(images, Tensor):
            return images.to(self.fabric.device)
        return images.stream(self.sampler, e.seed, e.steps, self.fabric.device, self.share)

    def _refresh(self) -> None:
        """Show the training set to what asks for it at this step: see ``Refreshed``."""
        due = [part for part in self.refreshed if self.step % part.refresh_every == 0]
        if not due:
            return
        first = self.fabric.is_global_zero  # BatchNorm's averages are not alike on all devices
        x = self.fabric.broadcast(self.embed(self.train) if first else None)
        for part in due:
            part.refresh(torch.from_numpy(x), torch.from_numpy(self.train.labels))
        if self.sampler in due and not isinstance(self.images, Tensor):
            self.images = self._images()  # what was decoded ahead is of batches that are no more

    def _note(self, value: Tensor, embeddings: Tensor) -> None:
        """Write the step's row of HISTORY, on the device."""
        norms = geometry.norms(embeddings.float())
        mean = norms.mean()
        tiny = torch.finfo(mean.dtype).tiny
        spread = norms.std(correction=0) / mean.clamp_min(tiny)  # 0 where all norms are 0
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        gradient_norm = torch.nn.utils.get_total_norm(gradients).to(mean.device)  # of none too
        self.record[self.step] = torch.stack([value, mean, spread, gradient_norm])

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
        draws = torch.Generator().manual_seed(seed)
        augment = self.experiment.augment
        images = glyphs.jitter(images, draws) if augment else to_float(images).float()
        if self.experiment.color:
            images = pictures.recolor(images, draws, self.experiment.color)
        if self.experiment.mirror:
            images = pictures.mirror(images, draws)
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
        if embeddings.requires_grad:  # a frozen model's do not
            embeddings.register_hook(lambda gradient: gradient * W)
        shares[self.fabric.global_rank] = embeddings
        return torch.stack(shares, dim=1).flatten(0, 1)  # row i of device r is row i·W + r

    def _adjust_gradients(self) -> None:
        """None for a backbone that rests; the first device's, for what the objective learns; none
        scaled, as half precision scales the loss.
        """
        if self.step < self.experiment.frozen_steps:
            for parameter in self.backbone:
                parameter.grad = None  # the optimizer passes over it, and its averages stay empty
        if self.fabric.world_size > 1:
            for parameter in self.objective.parameters():
                if parameter.grad is not None:  # equal but for the last bits of GPUs, which add up
                    torch.distributed.broadcast(parameter.grad, 0)
        self.precision.unscale_gradients(self.optimizer.optimizer)

    def embed(self, images: data.ImageSet) -> np.ndarray:
        """As ``embed``, under the training's precision; DivergedError where one is not finite."""
        with self.fabric.autocast():
            x = embed(self.plain_model, images)
        check_embeddings(torch.from_numpy(x), self._after_step())
        return x

    def check_finite(self) -> float:
        """The last loss.

        Raises DivergedError, with the first such step, where a number of the record is not finite,
        or the norms are so large that float32 cannot hold their squares.
        """
        rows = self.record[: self.step].cpu()
        # Half precision scales its loss, and passes over a step whose gradient overflows by that.
        watched = rows[:, :3] if self.experiment.precision == "16-mixed" else rows
        bad = ~watched.isfinite()
        bad[:, 1] |= rows[:, 1] > LARGEST_NORM  # gradients have long been 0
        if bad.any():
            first = int(bad.any(dim=1).nonzero()[0])
            columns = zip(HISTORY, rows[first].tolist(), bad[first].tolist(), strict=False)
            names = [f"{name} became {x}" for name, x, is_bad in columns if is_bad]
            raise DivergedError(f"{', '.join(names)} at step {first + 1}{self._settings()}")
        return float(rows[-1, 0])

    def check_last_update(self) -> None:
        """DivergedError where the last update, which no step after it would show, left a parameter
        or an embedding that is not finite.
        """
        for part in (self.model, self.objective):
            for name, parameter in part.named_parameters():
                if not parameter.isfinite().all():
                    raise DivergedError(f"parameter {name} is not finite {self._after_step()}")
        few = self.train.images[:: max(1, len(self.train) // 32)]
        with self.fabric.autocast():
            check_embeddings(embed_batches(self.plain_model, [few]), self._after_step())

    def _after_step(self) -> str:
        return f"after step {self.step}{self._settings()}"

    def _settings(self) -> str:
        e, loss = self.experiment, self.objective
        name = type(loss.loss if isinstance(loss, Objective) else loss).__name__
        return (
            f" of {e.steps} (loss {name}, optimizer {e.optimizer!r}, lr {e.lr}): lower lr, or the "
            "weight of a constraint"
        )

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
            "of": described(self.experiment, self.plain_model, self.objective, self.train),
            "model": self.plain_model.state_dict(),
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.precision.state_dict(),
            "record": self.record,
            "monitored": self.monitored,
            "best": self.best,
            "step": self.step,
            "sampler": self.sampler.state_dict() if self.sampler in self.refreshed else {},
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over a state that ``state`` gave. Raises ValueError for another training's."""
        check_same(state["of"], self.state()["of"])
        if (step := state["step"]) > self.experiment.steps:
            asked = self.experiment.steps
            raise ValueError(f"the checkpoint is of step {step}, but steps is {asked}")
        self.plain_model.load_state_dict(state["model"])
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        if state.get("scaler"):  # of half precision
            self.precision.load_state_dict(state["scaler"])
        self.record[:step] = state["record"][:step]
        self.monitored, self.step = state["monitored"], step
        self.best = state["best"] if self.experiment.keep_best else None  # a blend is made anew
        if self.sampler in self.refreshed:
            self.sampler.load_state_dict(state["sampler"])

    def keep_if_best(self, recall: float) -> None:
        """Remember model and objective where no look has found a higher Recall@1 on val."""
        if self.best is None or recall > self.best["recall"]:
            parts = {"model": self.plain_model, "objective": self.objective}
            states = {name: part.state_dict() for name, part in parts.items()}
            self.best = {"recall": recall, "step": self.step, **copy.deepcopy(states)}

    def keep_blend(self) -> None:
        """Remember the weights between those at the start and those that were learned."""
        if self.start:
            model = between(self.start, self.plain_model.state_dict(), self.experiment.blend)
            self.best = {"model": model, "objective": self.objective.state_dict()}

    def take_best(self) -> None:
        """Make model and objective what is kept of them, on every device: the best, or a blend."""
        if (best := self.fabric.broadcast(self.best)) is not None:
            self.plain_model.load_state_dict(best["model"])
            self.objective.load_state_dict(best["objective"])

    def save(self, path: StrPath) -> None:
        """Write a checkpoint, whole."""
        write_whole({Path(path): partial(torch.save, self.state())})


def _restore(trainer: Trainer, checkpoint: Path | None) -> None:
    """Go on from a checkpoint, if there is one that is whole."""
    state = None
    if checkpoint is not None and checkpoint.exists():
        try:
            state = read_checkpoint(checkpoint)
        except Exception as error:  # a damaged file is refused in many ways
            why = told(error)
            line = f"checkpoint {checkpoint} cannot be read ({why}): training begins anew"
            warnings.warn(line, stacklevel=3)
    if state is None and trainer.fabric.world_size > 1:
        state = move_data_to_device(trainer.state(), "cpu")
    # In a group all begin with the first one's state, that of its loss too.
    if (state := trainer.fabric.broadcast(state)) is not None:
        trainer.restore(state)
        before, now = Experiment(**state["of"]["experiment"]), trainer.experiment
        if before.steps != now.steps and not is_the_longer(before, now, trainer.step):
            warnings.warn(
                f"training goes on from step {trainer.step} of {before.steps}, which differs from "
                f"step {trainer.step} of {now.steps} by the learning rate or the looks so far: it "
                "will not be the training of that many steps (lr_decay=0 keeps the rate)",
                stacklevel=3,
            )


def _look(trainer: Trainer, monitor: Mapping[str, data.ImageSet], bar: tqdm) -> None:
    """At the record and the monitored splits, if it is time; a look that was cut short goes on."""
    experiment, step = trainer.experiment, trainer.step
    if step == 0:
        return
    bar.update(step - bar.n)
    due = step == experiment.steps or step % experiment.monitor_every == 0
    if due or step % CHECK_EVERY == 0:
        bar.set_postfix(loss=f"{trainer.check_finite():.3f}")
    for split, images in monitor.items() if due else ():
        recalls = trainer.monitored.setdefault(split, {})
        if step not in recalls:
            recall = recall_at_1(experiment, images, trainer.embed(images))
            if experiment.keep_best and split == "val":
                trainer.keep_if_best(recall)
            recalls[step] = recall


def _take_steps(
    trainer: Trainer, monitor: Mapping[str, data.ImageSet], checkpoint: Path | None, progress: bool
) -> None:
    """Those that remain, with looks and checkpoints."""
    e, saved = trainer.experiment, time.monotonic()
    how: Any = {"desc": e.loss, "unit": "step", "disable": not progress, "leave": False}
    with tqdm(total=e.steps, initial=trainer.step, **how) as bar:
        try:
            _look(trainer, monitor, bar)  # after the step that a checkpoint is of
            while trainer.step < e.steps:
                trainer.advance()
                _look(trainer, monitor, bar)
                if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    trainer.check_finite()
                    trainer.save(checkpoint)
                    saved = time.monotonic()
        except KeyboardInterrupt:
            if checkpoint is not None and not trainer.within_step:
                trainer.save(checkpoint)
            raise
    trainer.check_last_update()
    trainer.keep_blend()
    if checkpoint is not None:
        trainer.save(checkpoint)  # from which a longer training may go on


def fit(
    model: nn.Module,
    loss: nn.Module,
    train: data.ImageSet,
    experiment: Experiment | None = None,
    *,
    device: str = "auto",
    monitor: Mapping[str, data.ImageSet] | None = None,
    checkpoint: StrPath | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Train a model with any ``loss(embeddings, labels)``, and return its history.

    Model and loss are trained in place. The Experiment gives batches, optimizer, steps and seed;
    its names of model and loss are not used. With a ``checkpoint`` path the state is saved there
    every few seconds, when interrupted between two steps, and at the end; a training goes on from a
    state that is there, with more ``steps`` too, and a warning where that is not the longer
    training. One that is damaged is named in a warning, and the training begins anew.

    Several ``devices`` have a process each. Under torchrun these are there, and each calls this;
    else they are started here, and are given all arguments.

    Raises:
        DivergedError: a loss, norm, gradient, parameter or embedding is no longer finite.
        ValueError: an unknown device, devices that cannot share a batch, nothing to train, or a
            checkpoint of another training.
        TypeError: a model's output that holds no embedding (see ``embedding_of``).

    >>> from dmlkit import data, losses, models
    >>> train = data.load("glyphs")
    >>> model = models.build("convnet", dim=8, image=train[0])
    >>> history = fit(model, losses.TripletLoss(), train, Experiment(steps=2), progress=False)
    >>> list(history.columns)
    ['step', 'loss', 'norm_mean', 'norm_spread', 'gradient_norm']
    """
    experiment, monitor = experiment or Experiment(), monitor or {}
    if experiment.devices > 1 and not devices.in_group():
        build_sampler(experiment, train)  # refuses here what every process would
        options = {"device": device, "monitor": monitor, "checkpoint": checkpoint}
        work = partial(_states, model, loss, train, experiment, **options, progress=progress)
        history, *states = devices.spawn(experiment.devices, work)[0]
        for module, state in zip((model, loss), states, strict=True):
            module.to(devices.device_type(device)).load_state_dict(state)
        return history
    fabric = open_fabric(experiment, device)
    if not fabric.is_global_zero:  # the first alone evaluates, writes and shows
        monitor, checkpoint, progress = {}, None, False
    with devices.repeatable_numerics(experiment.threads):
        trainer = Trainer(experiment, model, loss, train, fabric)
        path = None if checkpoint is None else Path(checkpoint)
        _restore(trainer, path)
        _take_steps(trainer, monitor, path, progress)
        trainer.take_best()
        return trainer.history()


def _states(model: nn.Module, loss: nn.Module, *args: Any, **options: Any) -> list[Any]:
    """In a process of a group: the history, and what model and loss have become."""
    history = fit(model, loss, *args, **options)
    return [history, *move_data_to_device([model.state_dict(), loss.state_dict()], "cpu")]
