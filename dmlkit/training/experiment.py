"""Experiment: data that names a Run."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, get_args

import numpy as np
import torch

from dmlkit import data, losses, retrieval
from dmlkit.checks import check_choice, check_count, check_range
from dmlkit.data import batches
from dmlkit.losses import imported

SAMPLERS: dict[str, Callable[..., Callable[[int], np.ndarray]]] = {
    "pk": batches.PK,
    "pairs": batches.PairBatches,
    "neighbors": batches.Neighbors,
    "episodic": batches.Episodic,
    "uniform": batches.Uniform,
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "rmsprop": torch.optim.RMSprop,
}
SCHEDULES = ("linear", "cosine")


def _number(default: float, low: float, high: float = math.inf) -> Any:
    """A field that is a number of a range."""
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a Run, as JSON literals; the hash of it names the Run.

    The default is the course's ``ci`` setting: Glyphs, a small ConvNet, 32 classes × 4 images.
    ``steps`` is fixed in advance, and the model after the last one is the one reported, or with
    ``keep_best`` the best on the validation classes, which are monitored for it.

    Several ``devices`` train as one does on the whole batch, whatever the loss, but for two things:
    each draws its own dropout and jitter, and BatchNorm takes its statistics from a device's own
    share of the batch, and keeps those of the first. A frozen BatchNorm has none to take.

    Raises:
        TypeError: a field is no JSON literal (NumPy's integers and arrays become such), or of
            another type than its default.
        ValueError: a number is out of its range, or a name is unknown.

    >>> Experiment(seed=1).hash() == Experiment(seed=1).hash() != Experiment(seed=2).hash()
    True
    """

    loss: str = "triplet_semihard"
    loss_args: Mapping[str, Any] = field(default_factory=dict)
    loss_lr_factor: float = _number(10.0, 0)  # proxies see few gradients each: they learn faster
    constraint: Mapping[str, Any] | None = None  # arguments of SphericalConstraint
    data: str = "glyphs"
    data_args: Mapping[str, Any] = field(default_factory=dict)
    split: str = "test"  # scored once, at the end; tuning says "val"
    augment: bool = False  # a fresh light jitter of every image at every step: it pays in long runs
    sampler: str = "pk"
    sampler_args: Mapping[str, Any] = field(default_factory=lambda: {"classes": 32, "per_class": 4})
    model: str = "convnet"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    dim: int = _number(64, 1)
    metric: retrieval.Metric = "cosine"  # of retrieval: angles, whatever the norms
    optimizer: str = "adam"
    optimizer_args: Mapping[str, Any] = field(default_factory=dict)
    lr: float = _number(5e-3, 0)
    backbone_lr_factor: float = _number(1.0, 0)  # a pretrained one should move less than its head
    frozen_steps: int = _number(0, 0)  # first ones, where the backbone rests: a new head misleads
    lr_decay: float = _number(0.3, 0, 1)  # share of the steps, at the end, over which lr falls to 0
    steps: int = _number(280, 1)
    seed: int = _number(0, 0, 2**32 - 1)
    monitor: tuple[str, ...] = ()  # splits whose Recall@1 the history follows
    monitor_every: int = _number(50, 1)  # steps
    precision: str = "32-true"  # as Lightning Fabric names it
    compile: bool = False  # the model, by torch.compile: faster after a slow start, other last bits
    devices: int = _number(1, 1)  # GPUs, or processes on a CPU: each embeds its share of a batch
    threads: int = _number(1, 1)  # on a CPU; sums depend on it in the last bit: part of the Run
    warmup: int = _number(0, 0)  # first steps, over which lr rises to its value
    schedule: str = "linear"  # the shape of lr's fall, or cosine; lr_decay=0 keeps lr constant
    clip: float = _number(0.0, 0)  # the norm that the whole gradient is scaled down to; 0: never
    keep_best: bool = False  # the monitored step of the best Recall@1 on val, and not the last
    color: float = _number(0.0, 0, 1)  # how far each image's brightness, contrast, saturation go
    mirror: bool = False  # each image, half of the time: of photographs, as letters are none then
    blend: float = _number(1.0, 0, 1)  # share of what was learned in the weights that are kept

    def __post_init__(self) -> None:
        for f in fields(self):
            value, kind = _literal(f.name, getattr(self, f.name)), type(_default(f))
            object.__setattr__(self, f.name, value)
            if "range" in f.metadata:
                low, high = f.metadata["range"]
                if f.type is int:
                    check_count(low, **{f.name: value})
                check_range(low, high, **{f.name: value})
            elif not isinstance(value, kind) and f.name not in ("constraint", "metric"):
                raise TypeError(f"{f.name} must be a {kind.__name__}, but is {value!r}")
        metric = self.metric.get("name") if isinstance(self.metric, Mapping) else self.metric
        check_choice(get_args(get_args(retrieval.Metric)[0]), metric=metric)
        check_choice(SAMPLERS, sampler=self.sampler)
        check_choice(OPTIMIZERS, optimizer=self.optimizer)
        check_choice(SCHEDULES, schedule=self.schedule)
        for split in (self.split, *self.monitor):
            check_choice(data.SPLITS, split=split)
        if self.keep_best and "val" not in self.monitor:
            raise ValueError(f"keep_best needs 'val' in monitor, but that is {self.monitor!r}")
        if self.keep_best and self.blend < 1:
            raise ValueError("keep_best keeps weights as they are: blend must be 1 with it")
        if imported.is_imported(self.loss):
            imported.check_name(self.loss)  # it is read when it is built: this is only data
        else:
            check_choice(losses.names(), loss=self.loss)

    def hash(self) -> str:
        """Twelve hexadecimal digits of all that is not as by default.

        So a field that is added later renames nothing; nor does a 1 that is written 1.0.
        """
        every = {f.name: (_plain(getattr(self, f.name)), _plain(_default(f))) for f in fields(self)}
        said = {name: value for name, (value, default) in every.items() if value != default}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def _default(f: Field[Any]) -> Any:
    return f.default if f.default_factory is MISSING else f.default_factory()


def _literal(name: str, value: Any) -> Any:
    """A copy as JSON keeps it, but with tuples for lists and arrays."""

    def tuples(literal: Any) -> Any:
        if isinstance(literal, dict):
            return {key: tuples(value) for key, value in literal.items()}
        return tuple(map(tuples, literal)) if isinstance(literal, list) else literal

    if type(value) in (str, bool, int):  # most fields, and a study has thousands of Experiments
        return value
    try:
        return tuples(json.loads(json.dumps(value, allow_nan=False, default=_listed)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be what JSON can hold, but is {value!r}: {error}") from error


def _listed(value: Any) -> Any:
    if isinstance(value, np.integer | np.bool_ | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")


def _plain(literal: Any) -> Any:
    """The same with integers for all numbers that are whole."""
    if isinstance(literal, dict):
        return {key: _plain(value) for key, value in literal.items()}
    if isinstance(literal, tuple):
        return [_plain(value) for value in literal]
    return int(literal) if isinstance(literal, float) and literal.is_integer() else literal
