"""Experiment in, Run out: one plain training loop that knows no loss by name."""

import ast
import hashlib
import inspect
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import faiss
import filelock
import lightning_fabric
import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

import dmlkit
from dmlkit import data, geometry, losses, models, retrieval, spherical
from dmlkit.data import batches, glyphs

CHECKPOINT_SECONDS = 10.0
CHECK_EVERY = 25  # steps between looks at the record: each look makes the host wait for the device
Module = TypeVar("Module", bound=nn.Module)
HISTORY = ("loss", "norm_mean", "norm_spread", "gradient_norm")


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a Run, as JSON literals; the hash of it names the Run.

    The default is the course's ``ci`` setting: Glyphs, a small ConvNet, 32 classes × 4 images.
    ``steps`` is fixed in advance, and the model after the last one is the one reported.

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
    decay: float = 0.3  # share of the steps, at the end, over which lr falls linearly to 0
    steps: int = 280
    seed: int = 0
    monitor: tuple[str, ...] = ()  # splits whose Recall@1 the history follows
    monitor_every: int = 50  # steps
    precision: str = "32-true"  # as Lightning Fabric names it
    threads: int = 1  # on a CPU; sums depend on it in the last bit, so it is part of the Run

    def __post_init__(self) -> None:
        literal = json.loads(self._json())  # tuples become lists, as they would in a file
        for f in fields(self):
            value = literal[f.name]
            object.__setattr__(self, f.name, tuple(value) if isinstance(value, list) else value)
        for name in ("dim", "steps", "threads", "monitor_every", "lr"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")

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
        return hashlib.sha256(self._json().encode()).hexdigest()[:12]


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


def baselines(experiment: Experiment) -> dict[str, dict[str, float]]:
    """What learning must beat: the scores of raw pixels and of the untrained network.

    >>> list(baselines(Experiment(data_args={"train_classes": 40})))
    ['raw pixels', 'untrained network']
    """
    train = data.load(experiment.data, "train", **experiment.data_args)
    images = data.load(experiment.data, experiment.split, **experiment.data_args)
    with _pinned_numerics(experiment.threads):
        untrained = embed(build_model(experiment, train), images)
    shown = images.images
    small = shown if isinstance(shown, Tensor) else shown.thumbnails()
    pixels = to_float(small).flatten(1).numpy()
    return {
        name: retrieval.evaluate(**images.compared(embeddings), metric=experiment.metric)
        for name, embeddings in (("raw pixels", pixels), ("untrained network", untrained))
    }


class RunInProgressError(RuntimeError):
    """Another process is training the same Run."""


class DivergedError(FloatingPointError):
    """The loss is no longer a finite number."""


def build_model(experiment: Experiment, train: data.ImageSet) -> nn.Module:
    """The untrained model of an Experiment, the same for the same seed."""
    with torch.random.fork_rng():
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
    with torch.random.fork_rng():
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


def build_optimizer(
    experiment: Experiment, model: nn.Module, objective: nn.Module
) -> torch.optim.Optimizer:
    """The optimiser over the model's parameters and, faster by loss_lr_factor, the loss's own."""
    make = choose(_OPTIMIZERS, "optimizer", experiment.optimizer)
    args = dict(experiment.optimizer_args)
    if "fused" in inspect.signature(make).parameters:
        args.setdefault("fused", True)  # one kernel over all parameters
    groups = [
        {"params": list(model.parameters()), "base_lr": experiment.lr},
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


def open_fabric(experiment: Experiment, device: str = "auto") -> lightning_fabric.Fabric:
    """Lightning Fabric on one device: ``auto`` is a CUDA GPU where there is one, else the CPU.

    Raises:
        ValueError: unknown device, or ``cuda`` where there is none.
    """
    there = torch.cuda.is_available()
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"unknown device {device!r}; there are auto, cpu, cuda")
    if device == "cuda" and not there:
        raise ValueError("device 'cuda' was asked for, but torch sees no CUDA GPU; use 'cpu'")
    accelerator = "cuda" if there and device != "cpu" else "cpu"
    return lightning_fabric.Fabric(
        accelerator=accelerator,
        devices=1,
        precision=experiment.precision,  # type: ignore[arg-type]
    )


@contextmanager
def _pinned_numerics(threads: int) -> Iterator[None]:
    """The same sums in the same order on every repeat, and the caller's random state untouched."""
    before, searching = torch.get_num_threads(), faiss.omp_get_max_threads()
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(threads)
    deterministic = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True)
    try:
        with torch.random.fork_rng(), deterministic:
            yield
    finally:
        torch.set_num_threads(before)
        faiss.omp_set_num_threads(searching)


class Trainer:
    """The state of a training: what a step changes, what a checkpoint holds.

    Every random choice of a step is a function of (seed, step), so that a training which goes on
    from a checkpoint is the unbroken one, bit for bit.
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
        device = fabric.device
        self.labels = torch.from_numpy(train.labels).to(device)
        self.sampler = choose(_SAMPLERS, "sampler", experiment.sampler)(
            train.labels, seed=experiment.seed, **experiment.sampler_args
        )
        self.images = (  # all on the device, to be indexed there; or files, decoded ahead of a step
            train.images.to(device)
            if isinstance(train.images, Tensor)
            else train.images.stream(self.sampler, experiment.seed, experiment.steps, device)
        )
        model = model.to(memory_format=torch.channels_last)
        self.objective = objective.to(device)
        optimizer = build_optimizer(experiment, model.to(device), self.objective)
        self.model, self.optimizer = fabric.setup(model, optimizer)
        self.record = torch.full((experiment.steps, len(HISTORY)), torch.nan, device=device)
        self.monitored: dict[str, dict[int, float]] = {}
        self.step = 0

    def advance(self) -> None:
        """One step: batch, embeddings, objective, gradient, update, record."""
        experiment, step = self.experiment, self.step
        seed = experiment.seed * 1_000_003 + step
        torch.manual_seed(seed)  # for losses that sample
        index = torch.from_numpy(self.sampler(step)).to(self.fabric.device, non_blocking=True)
        images = self.images[index] if isinstance(self.images, Tensor) else self.images(step)
        labels = self.labels[index]
        images = (
            glyphs.jitter(images, torch.Generator().manual_seed(seed))
            if experiment.augment
            else to_float(images)
        )
        factor = lr_factor(step, experiment.steps, experiment.decay)
        for group in self.optimizer.param_groups:
            group["lr"] = group["base_lr"] * factor
        embeddings = self.model(images.contiguous(memory_format=torch.channels_last))  # (B, d)
        value = self.objective(embeddings, labels)
        self.optimizer.zero_grad()
        self.fabric.backward(value)
        with torch.no_grad():
            norm = geometry.norms(embeddings.float())
            gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
            gradient_norm = torch.nn.utils.get_total_norm(gradients)
            spread = norm.std(correction=0) / norm.mean()
            self.record[step] = torch.stack([value, norm.mean(), spread, gradient_norm])
        self.optimizer.step()
        self.step += 1

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
    every few seconds and when interrupted, and a state found there is gone on from.

    Raises:
        DivergedError: the loss is no longer finite.
        ValueError: unknown sampler, optimizer or device.

    >>> from dmlkit import data, losses, models
    >>> train = data.load("glyphs")
    >>> model = models.build("convnet", dim=8, image=train[0])
    >>> history = fit(model, losses.TripletLoss(), train, Experiment(steps=2), progress=False)
    >>> list(history.columns)
    ['step', 'loss', 'norm_mean', 'norm_spread', 'gradient_norm']
    """
    experiment = experiment or Experiment()
    with _pinned_numerics(experiment.threads):
        trainer = Trainer(experiment, model, loss, train, open_fabric(experiment, device))
        if checkpoint is not None and checkpoint.exists():
            trainer.restore(torch.load(checkpoint, map_location=trainer.fabric.device))
        try:
            _train(trainer, monitor or {}, checkpoint, progress)
        except KeyboardInterrupt:
            if checkpoint is not None:
                write_beside(checkpoint, lambda path: torch.save(trainer.state(), path))
            raise
        return trainer.history()


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
                    embeddings = embed(trainer.model, images)
                    recall = retrieval.recall_at_k(
                        **images.compared(embeddings), ks=[1], metric=experiment.metric
                    )
                    trainer.monitored.setdefault(split, {})[step] = recall[1]
            if checkpoint is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                trainer.check_finite()
                write_beside(checkpoint, lambda path: torch.save(trainer.state(), path))
                saved = time.monotonic()


def to_float(images: Tensor) -> Tensor:
    """Pixels as a network sees them: uint8 0..255 -> float32 0..1.

    >>> to_float(torch.tensor([0, 255], dtype=torch.uint8))
    tensor([0., 1.])
    """
    return images.float() / 255


def embed(model: nn.Module, images: data.ImageSet, batch_size: int = 256) -> np.ndarray:
    """Raw embeddings of all images: (N, dim) float32, in evaluation mode, in the set's order."""
    device = next(model.parameters()).device
    training = model.training
    model.eval()
    with torch.inference_mode():
        parts = [
            model(to_float(part.to(device)).contiguous(memory_format=torch.channels_last))
            for part in images.images.split(batch_size)
        ]
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
    torch, the kind of device. So what is loaded is what training now would give.

    Raises:
        RunInProgressError: another process trains it now, and ``wait`` is False.
        DivergedError: the loss is no longer finite.
        ValueError: an unknown loss, data set, model, sampler, optimizer or device.

    >>> run(Experiment(steps=0))
    Traceback (most recent call last):
    ValueError: steps must be positive, but is 0
    """
    store = store or dmlkit.cache_folder() / "runs"
    sets = {
        split: data.load(experiment.data, split, **experiment.data_args)
        for split in dict.fromkeys(("train", experiment.split, *experiment.monitor))
    }
    with _pinned_numerics(experiment.threads):
        model = build_model(experiment, sets["train"])
        objective = build_objective(experiment, sets["train"])
    provenance = _provenance(experiment, model, objective, sets, device)
    context = hashlib.sha256(json.dumps(provenance, sort_keys=True).encode()).hexdigest()[:12]
    path = store / f"{experiment.hash()}-{context}"
    if path.exists():
        return _load(path)
    store.mkdir(parents=True, exist_ok=True)
    checkpoint = path.with_suffix(".checkpoint")
    lock = filelock.FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise RunInProgressError(
            f"another process is training Run {path.name} now: wait for it, then load it"
        ) from None
    with lock:
        if not path.exists():  # it may have been finished while we waited
            began = time.monotonic()
            history = fit(
                model, objective, sets["train"], experiment, device=device,
                monitor={split: sets[split] for split in experiment.monitor},
                checkpoint=checkpoint, progress=progress,
            )  # fmt: skip
            with _pinned_numerics(experiment.threads):
                result = _score(experiment, model, sets[experiment.split])
            seconds = time.monotonic() - began
            states = {"model.pt": model, "objective.pt": objective}
            _publish(path, experiment, states, history, result, provenance, seconds)
            checkpoint.unlink(missing_ok=True)
            return _load(path, loaded=False)
    return _load(path)


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


def _load(path: Path, loaded: bool = True) -> Run:
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
        facts["seconds"], facts["provenance"], path, loaded,
    )  # fmt: skip


def _provenance(
    experiment: Experiment,
    model: nn.Module,
    objective: nn.Module,
    sets: Mapping[str, data.ImageSet],
    device: str,
) -> dict[str, str]:
    """What decides a Run besides its Experiment: images, executed sources, torch, device."""
    modules = {type(m).__module__ for m in (*model.modules(), *objective.modules())}
    modules |= {module.__name__ for module in (data, batches, glyphs, geometry, retrieval)}
    modules |= {type(images.images).__module__ for images in sets.values()}
    modules |= {__name__, "dmlkit.losses.mining"}
    sources = sorted(name for name in modules if name.startswith("dmlkit"))
    facts = {f"images of {split}": images.fingerprint[:12] for split, images in sets.items()}
    return facts | {
        "sources": hashlib.sha256("".join(map(_code, sources)).encode()).hexdigest()[:12],
        "torch": torch.__version__,
        "device": open_fabric(experiment, device).device.type,
    }


def _code(module: str) -> str:
    """A module's code without comments, docstrings and layout, which change no result."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and ast.get_docstring(
            node, clean=False
        ):
            node.body = node.body[1:]
    return ast.dump(tree)


def write_beside(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, never a half."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        write(beside)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
