"""Experiment in, Run out: one plain training loop that knows no loss by name."""

import ast
import functools
import hashlib
import inspect
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import filelock
import lightning_fabric
import numpy as np
import pandas as pd
import torch
from lightning_fabric.utilities import move_data_to_device
from torch import Tensor, nn
from tqdm.auto import tqdm

import dmlkit
from dmlkit import data, devices, geometry, losses, models, retrieval, spherical
from dmlkit.data import batches, glyphs
from dmlkit.devices import open_fabric, own_random_state, pinned_numerics
from dmlkit.files import write_whole

CHECKPOINT_SECONDS = 10.0
CHECK_EVERY = 25  # steps between looks at the record: each look makes the host wait for the device
# Fields that Experiment gained later count for its hash only where they are not at their defaults:
# what was trained before, and is kept as evidence, has the same name as now.
_LATER = ("backbone_lr_factor", "warm_up", "compile", "devices")
_DEVICE_STRIDE = 1_000_000_007  # between the seeds of two devices, far above that of two steps
Module = TypeVar("Module", bound=nn.Module)
HISTORY = ("loss", "norm_mean", "norm_spread", "gradient_norm")


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a Run, as JSON literals; the hash of it names the Run.

    The default is the course's ``ci`` setting: Glyphs, a small ConvNet, 32 classes × 4 images.
    ``steps`` is fixed in advance, and the model after the last one is the one reported.

    Several ``devices`` train as one does on the whole batch, whatever the loss, but for two things:
    each draws its own dropout and jitter, and BatchNorm takes its statistics from a device's own
    share of the batch, and keeps those of the first. A frozen BatchNorm has none to take.

    Raises:
        TypeError: a field is no JSON literal.
        ValueError: a count or rate is not positive.

    >>> Experiment(seed=1).hash() == Experiment(seed=1).hash() != Experiment(seed=2).hash()
    True
    """

    loss: str = "triplet_semihard"
    loss_args: Mapping[str, Any] = field(default_factory=dict)
    loss_lr_factor: float = 10.0  # proxies see few gradients each: they learn faster
    constraint: Mapping[str, Any] | None = None  # arguments of SphericalConstraint
    data: str = "glyphs"
    data_args: Mapping[str, Any] = field(default_factory=dict)
    split: str = "test"  # scored once, at the end; tuning says "val"
    augment: bool = False  # a fresh light jitter of every image at every step: it pays in long runs
    sampler: str = "pk"
    sampler_args: Mapping[str, Any] = field(default_factory=lambda: {"classes": 32, "per_class": 4})
    model: str = "convnet"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    dim: int = 64
    metric: retrieval.Metric = "cosine"  # of retrieval: angles, whatever the norms
    optimizer: str = "adam"
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    lr: float = 5e-3
    backbone_lr_factor: float = 1.0  # a pretrained backbone should move less than its new head
    warm_up: int = 0  # first steps, in which the backbone rests: a new head would only mislead it
    decay: float = 0.3  # share of the steps, at the end, over which lr falls linearly to 0
    steps: int = 280
    seed: int = 0
    monitor: tuple[str, ...] = ()  # splits whose Recall@1 the history follows
    monitor_every: int = 50  # steps
    precision: str = "32-true"  # as Lightning Fabric names it
    compile: bool = False  # the model, by torch.compile: faster after a slow start, other last bits
    devices: int = 1  # GPUs, or processes on a CPU: each embeds its share of every batch
    threads: int = 1  # on a CPU; sums depend on it in the last bit, so it is part of the Run

    def __post_init__(self) -> None:
        literal = json.loads(self._json())  # tuples become lists, as they would in a file
        for f in fields(self):
            value = literal[f.name]
            object.__setattr__(self, f.name, tuple(value) if isinstance(value, list) else value)
        for name in ("dim", "steps", "threads", "monitor_every", "lr", "devices"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")
        for name in ("backbone_lr_factor", "warm_up"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")

    def _json(self) -> str:
        for f in fields(self):
            try:
                json.dumps(getattr(self, f.name), allow_nan=False)
            except (TypeError, ValueError) as error:
                raise TypeError(
                    f"Experiment.{f.name} must be a JSON literal, but is "
                    f"{getattr(self, f.name)!r} ({error})"
                ) from None
        return json.dumps(asdict(self), sort_keys=True)

    def hash(self) -> str:
        """Twelve hexadecimal digits that name this Experiment."""
        literal = json.loads(self._json())
        for f in fields(self):
            if f.name in _LATER and literal[f.name] == f.default:
                del literal[f.name]
        return hashlib.sha256(json.dumps(literal, sort_keys=True).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Run:
    """What training an Experiment gave.

    ``scores`` are fractions (see ``retrieval.evaluate``); ``history`` has one row a step (loss,
    norm_mean, norm_spread = std/mean of the batch's norms, gradient_norm, and SPLIT_recall_at_1
    where monitored); ``embeddings`` (N, dim) and ``labels`` (N,) are of the Experiment's split;
    ``loaded`` tells whether it was found on disk or trained now.
    """

    experiment: Experiment
    scores: dict[str, float]
    history: pd.DataFrame
    embeddings: np.ndarray
    labels: np.ndarray
    seconds: float
    provenance: dict[str, str]
    path: Path
    loaded: bool

    def model(self) -> nn.Module:
        """The trained model, on the CPU, ready to embed."""
        train = data.load(self.experiment.data, "train", **self.experiment.data_args)
        return self._restored(build_model(self.experiment, train), "model.pt")

    def objective(self) -> "Objective":
        """What it was trained with, on the CPU, with its learnt state: proxies, a memory."""
        train = data.load(self.experiment.data, "train", **self.experiment.data_args)
        return self._restored(build_objective(self.experiment, train), "objective.pt")

    def _restored(self, module: Module, file: str) -> Module:
        module.load_state_dict(torch.load(self.path / file, weights_only=True))
        return module.eval()


def baselines(experiment: Experiment, device: str = "auto") -> dict[str, dict[str, float]]:
    """What training must beat: the scores of raw pixels and of the network as it starts.

    Raises ValueError and OSError as ``run`` does.

    >>> list(baselines(Experiment(data_args={"train_classes": 40})))
    ['raw pixels', 'untrained network']
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    with pinned_numerics(experiment.threads):
        model = build_model(experiment, train).to(devices.kind(device))
        start = embed(model, images)
    network = "pretrained" if experiment.model_args.get("pretrained") else "untrained"
    shown = images.images
    small = shown if isinstance(shown, Tensor) else shown.thumbnails()
    pixels = to_float(small).flatten(1).numpy()
    return {
        name: retrieval.evaluate(**images.compared(embeddings), metric=experiment.metric)
        for name, embeddings in (("raw pixels", pixels), (f"{network} network", start))
    }


class RunInProgressError(RuntimeError):
    """Another process is training the same Run."""


class DivergedError(FloatingPointError):
    """The loss is no longer a finite number."""


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
    """The optimiser over backbone, head and the loss's own parameters, each with a rate of its own.

    Raises:
        ValueError: unknown optimizer, or backbone settings for a model without a backbone.
    """
    make = choose(_OPTIMIZERS, "optimizer", experiment.optimizer)
    args = dict(experiment.optimizer_args)
    if "fused" in inspect.signature(make).parameters:
        args.setdefault("fused", True)  # one kernel over all parameters
    backbone, head = split_parameters(model)
    if not backbone and (experiment.backbone_lr_factor != 1 or experiment.warm_up):
        raise ValueError(
            f"backbone_lr_factor and warm_up need a model with a backbone and a head, but "
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
        self.resting = split_parameters(model)[0]  # during warm_up
        if experiment.compile:
            model = torch.compile(model)  # type: ignore[assignment]
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.record = torch.full((experiment.steps, len(HISTORY)), torch.nan, device=device)
        self.monitored: dict[str, dict[int, float]] = {}
        self.step = 0
        self.torn = False  # whether a step has begun and not ended

    def advance(self) -> None:
        """One step: batch, embeddings, objective, gradient, update, record."""
        experiment, step = self.experiment, self.step
        self.torn = True
        seed = experiment.seed * 1_000_003 + step
        own_seed = seed + self.fabric.global_rank * _DEVICE_STRIDE
        images, labels = self._batch(own_seed)
        factor = lr_factor(step, experiment.steps, experiment.decay)
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
        self.torn = False

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
        if self.step < self.experiment.warm_up:
            for parameter in self.resting:
                parameter.grad = None  # the optimiser passes over it, and its averages stay empty
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

    Model and loss are trained in place. The Experiment gives batches, optimiser, steps and seed;
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
            if checkpoint is not None and not trainer.torn:
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
                        **images.compared(trainer.embed(images)), ks=[1], metric=experiment.metric
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


def run(
    experiment: Experiment,
    *,
    device: str = "auto",
    store: Path | None = None,
    wait: bool = False,
    progress: bool = True,
) -> Run:
    """Train an Experiment, go on with it where it was interrupted, or load it where it is done.

    A Run lies in a folder of the ``store`` (data/runs, see ``dmlkit.cache_folder``), named by the
    Experiment's hash and by that of all else that decides it: the sources it executes, its images,
    the pretrained weights it starts from, torch, the kind of device. So what is loaded is what
    training now would give.

    It is scored by the model that it keeps, in its parameters' own precision: under bf16-mixed
    that is float32, as ``Run.model()`` embeds, where the history's monitored scores are bfloat16's.
    Under torchrun every process calls this, the first one keeps the Run, and all are given it; see
    ``fit`` for several ``devices``.

    Raises:
        RunInProgressError: another process trains it now, and ``wait`` is False.
        DivergedError: the loss is no longer finite.
        ValueError: an unknown loss, data set, model, sampler, optimizer or device, or ``devices``
            that are not there or cannot share a batch.

    >>> run(Experiment(steps=0))
    Traceback (most recent call last):
    ValueError: steps must be positive, but is 0
    """
    store = store or dmlkit.cache_folder() / "runs"
    fabric = open_fabric(experiment, device)
    sets = {
        split: data.load(experiment.data, split, **experiment.data_args)
        for split in dict.fromkeys(("train", experiment.split, *experiment.monitor))
    }
    with pinned_numerics(experiment.threads):
        model = build_model(experiment, sets["train"])
        objective = build_objective(experiment, sets["train"])
    provenance = _provenance(experiment, model, objective, sets, fabric.device.type)
    context = hashlib.sha256(json.dumps(provenance, sort_keys=True).encode()).hexdigest()[:12]
    path = store / f"{experiment.hash()}-{context}"
    first = fabric.is_global_zero
    with nullcontext() if path.exists() or not first else _locked(path, wait):
        loaded = fabric.broadcast(path.exists())  # it may have been finished while we waited
        if not loaded:
            began = time.monotonic()
            checkpoint = path.with_suffix(".checkpoint")
            if first:
                _tidy(path)
            history = fit(
                model, objective, sets["train"], experiment, device=device,
                monitor={split: sets[split] for split in experiment.monitor},
                checkpoint=checkpoint, progress=progress,
            )  # fmt: skip
            if first:
                with pinned_numerics(experiment.threads):
                    result = _score(experiment, model, sets[experiment.split])
                seconds = time.monotonic() - began
                states = {"model.pt": model, "objective.pt": objective}
                _publish(path, experiment, states, history, result, provenance, seconds)
                checkpoint.unlink(missing_ok=True)
        run = replace(load_run(path), loaded=loaded) if first else None
        return fabric.broadcast(run)  # type: ignore[return-value] # the others' is replaced


def _locked(path: Path, wait: bool) -> AbstractContextManager[object]:
    """The right to train a Run, which one process at a time can have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return filelock.FileLock(path.with_suffix(".lock")).acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise RunInProgressError(
            f"another process is training Run {path.name} now: wait for it, then load it"
        ) from None


def _tidy(path: Path) -> None:
    """Remove what processes left that were killed while they wrote this Run, which is locked."""
    for leftover in path.parent.glob(f"{path.name}.*"):
        if leftover.is_dir():
            shutil.rmtree(leftover)
        elif leftover.suffix not in (".lock", ".checkpoint"):
            leftover.unlink()


def _score(
    experiment: Experiment, model: nn.Module, images: data.ImageSet
) -> tuple[dict[str, float], np.ndarray, np.ndarray]:
    embeddings = embed(model, images)
    scores = retrieval.evaluate(**images.compared(embeddings), metric=experiment.metric)
    return scores, embeddings, images.labels


def _publish(
    path: Path,
    experiment: Experiment,
    states: Mapping[str, nn.Module],
    history: pd.DataFrame,
    result: tuple[dict[str, float], np.ndarray, np.ndarray],
    provenance: dict[str, str],
    seconds: float,
) -> None:
    """Write the whole folder beside, then rename it: a Run is there complete, or not at all."""
    scores, embeddings, labels = result
    facts = {
        "experiment": asdict(experiment),
        "scores": scores,
        "seconds": seconds,
        "provenance": provenance,
    }
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as beside:
        folder = Path(beside) / "run"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps(facts, indent=1))
        history.to_csv(folder / "history.csv", index=False)
        np.savez(folder / "embeddings.npz", embeddings=embeddings, labels=labels)
        for file, module in states.items():
            state = {name: value.cpu() for name, value in module.state_dict().items()}
            torch.save(state, folder / file)
        folder.rename(path)


def load_run(path: Path) -> Run:
    """The Run that a folder keeps, as ``run`` left it. Raises OSError for any other folder."""
    try:
        facts = json.loads((path / "run.json").read_text())
        with np.load(path / "embeddings.npz") as arrays:
            embeddings, labels = arrays["embeddings"], arrays["labels"]
        history = pd.read_csv(path / "history.csv")
    except (OSError, ValueError, KeyError) as error:
        raise OSError(
            f"Run {path} cannot be read ({error}): delete that folder to train it anew"
        ) from error
    return Run(
        Experiment(**facts["experiment"]), facts["scores"], history, embeddings, labels,
        facts["seconds"], facts["provenance"], path, loaded=True,
    )  # fmt: skip


def _provenance(
    experiment: Experiment,
    model: nn.Module,
    objective: nn.Module,
    sets: Mapping[str, data.ImageSet],
    device: str,
) -> dict[str, str]:
    """What decides a Run besides its Experiment: images, weights, sources, torch, device."""
    modules = {type(m).__module__ for m in (*model.modules(), *objective.modules())}
    modules |= {module.__name__ for module in (data, batches, devices, glyphs, geometry, retrieval)}
    modules |= {type(images.images).__module__ for images in sets.values()}
    modules |= {__name__, "dmlkit.losses.mining"}
    sources = sorted(name for name in modules if name.startswith("dmlkit"))
    facts = {f"images of {split}": images.fingerprint[:12] for split, images in sets.items()}
    if experiment.model_args.get("pretrained"):
        facts["weights"] = _digest(model)
    code = "".join(_code(inspect.getsource(sys.modules[name])) for name in sources)
    return facts | {
        "sources": hashlib.sha256(code.encode()).hexdigest()[:12],
        "torch": torch.__version__,
        "device": device,
    }


def _digest(model: nn.Module) -> str:
    """SHA-256 of weights, whatever file they came from."""
    whole = hashlib.sha256()
    for value in model.state_dict().values():
        whole.update(value.contiguous().numpy())
    return whole.hexdigest()[:12]


@functools.cache  # a Run that is only loaded would spend most of its time here
def _code(source: str) -> str:
    """SHA-256 of a module's code without comments, docstrings, layout: they change no result."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()
