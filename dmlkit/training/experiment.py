"""Experiment: data that names a Run."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from inspect import signature
from types import UnionType
from typing import Any, NoReturn, get_args

import numpy as np
import torch

from dmlkit import data, losses, retrieval, spherical
from dmlkit.checks import check_arguments, check_count, check_positive, check_range
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
_FILLED_IN = ("labels", "seed", "params", "lr")  # arguments that other fields give
# By a field's annotation: what is expected, in words and as types.
_TYPES: dict[Any, tuple[str, type | UnionType]] = {
    str: ("a string", str),
    bool: ("True or False", bool),
    int: ("a whole number", int),
    float: ("a number", int | float),
    tuple[str, ...]: ("a sequence of names", tuple),
    Mapping[str, Any]: ("a dict", dict),
    Mapping[str, Any] | None: ("a dict or None", dict | None),
    retrieval.Metric: ("a name or a dict", str | dict),
}
# Evidence from before fields were renamed and added is kept under the hash of that time.
FORMER_NAMES = {"lr_decay": "decay", "frozen_steps": "warm_up"}
_ADDED_LATER = ("backbone_lr_factor", "frozen_steps", "compile", "devices")
_FROM_1 = ("dim", "steps", "threads", "monitor_every", "devices")
_FROM_0 = ("backbone_lr_factor", "loss_lr_factor", "frozen_steps")


class FrozenDict(dict[str, Any]):
    """A dict that shows, compares and is written as any other, but cannot be changed."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(
            "an Experiment's settings cannot be changed, since they name its Run: make another "
            "Experiment with dataclasses.replace, or a plain dict with dict(...)"
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return FrozenDict, (dict(self),)


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a Run, as JSON literals; the hash of it names the Run.

    The default is the course's ``ci`` setting: Glyphs, a small ConvNet, 32 classes × 4 images.
    ``steps`` is fixed in advance, and the model after the last one is the one reported.

    Several ``devices`` train as one does on the whole batch, whatever the loss, but for two things:
    each draws its own dropout and jitter, and BatchNorm takes its statistics from a device's own
    share of the batch, and keeps those of the first. A frozen BatchNorm has none to take.

    Raises:
        TypeError: a field is no JSON literal, of another type than it should be, or names an
            argument that its sampler, optimizer or constraint does not take.
        ValueError: a number is out of its range, or a name is unknown.

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
    frozen_steps: int = 0  # first steps, in which the backbone rests: a new head would mislead it
    lr_decay: float = 0.3  # share of the steps, at the end, over which lr falls linearly to 0
    steps: int = 280
    seed: int = 0
    monitor: tuple[str, ...] = ()  # splits whose Recall@1 the history follows
    monitor_every: int = 50  # steps
    precision: str = "32-true"  # as Lightning Fabric names it
    compile: bool = False  # the model, by torch.compile: faster after a slow start, other last bits
    devices: int = 1  # GPUs, or processes on a CPU: each embeds its share of every batch
    threads: int = 1  # on a CPU; sums depend on it in the last bit, so it is part of the Run

    def __post_init__(self) -> None:
        for f in fields(self):
            value, (expected, types) = getattr(self, f.name), _TYPES[f.type]
            try:
                literal = _frozen(json.loads(json.dumps(value, allow_nan=False)))
            except (TypeError, ValueError):
                raise TypeError(
                    f"{f.name} must be {expected} that JSON can hold: no NaN, no infinity, no set, "
                    f"no NumPy number or array; but is {value!r}"
                ) from None
            if not isinstance(literal, types) or isinstance(literal, bool) != (f.type is bool):
                raise TypeError(f"{f.name} must be {expected}, but is {literal!r}")
            object.__setattr__(self, f.name, literal)
        check_count(**{name: getattr(self, name) for name in _FROM_1})
        check_range(0, **{name: getattr(self, name) for name in _FROM_0})
        check_range(0, 1, lr_decay=self.lr_decay)
        check_range(0, 2**32 - 1, seed=self.seed)
        check_positive(lr=self.lr)
        self._check_names()

    def _check_names(self) -> None:
        metric = self.metric.get("name") if isinstance(self.metric, Mapping) else self.metric
        if own := imported.is_imported(self.loss):
            imported.check_name(self.loss)  # it is read when it is built: this is only data
        tables: list[tuple[str, Any, Any]] = [
            ("loss", self.loss, (self.loss,) if own else losses.names()),
            ("sampler", self.sampler, SAMPLERS),
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("metric", metric, get_args(get_args(retrieval.Metric)[0])),
            *(("split", split, data.SPLITS) for split in (self.split, *self.monitor)),
        ]
        for table, name, known in tables:
            if name not in known:
                raise ValueError(f"unknown {table} {name!r}; there are {', '.join(known)}")
        for what, make, given in (
            (f"sampler {self.sampler!r}", SAMPLERS[self.sampler], self.sampler_args),
            (f"optimizer {self.optimizer!r}", OPTIMIZERS[self.optimizer], self.optimizer_args),
            ("constraint", spherical.SphericalConstraint, self.constraint or {}),
        ):
            accepted = [name for name in signature(make).parameters if name not in _FILLED_IN]
            check_arguments(what, accepted, given)

    def hash(self) -> str:
        """Twelve hexadecimal digits that name this Experiment, whether a 1 is written 1 or 1.0."""
        return _digest(_plain(asdict(self)))

    def former_hash(self) -> str:
        """The hash of before ``FORMER_NAMES``: by it, evidence that was kept is found."""
        added = {f.name: f.default for f in fields(self) if f.name in _ADDED_LATER}
        literal = {
            FORMER_NAMES.get(name, name): value
            for name, value in asdict(self).items()
            if name not in added or value != added[name]
        }
        return _digest(literal)


def _digest(literal: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(literal, sort_keys=True).encode()).hexdigest()[:12]


def _frozen(literal: Any) -> Any:
    """The same with FrozenDicts and tuples for dicts and lists."""
    if isinstance(literal, dict):
        return FrozenDict({key: _frozen(value) for key, value in literal.items()})
    return tuple(map(_frozen, literal)) if isinstance(literal, list) else literal


def _plain(literal: Any) -> Any:
    """The same with integers for all numbers that are whole."""
    if isinstance(literal, dict):
        return {key: _plain(value) for key, value in literal.items()}
    if isinstance(literal, tuple):
        return [_plain(value) for value in literal]
    return int(literal) if isinstance(literal, float) and literal.is_integer() else literal
