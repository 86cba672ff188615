"""Experiment: data that names a Run."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from dmlkit import retrieval

# Fields that Experiment gained later count for its hash only where they are not at their defaults:
# what was trained before, and is kept as evidence, has the same name as now.
_LATER = ("backbone_lr_factor", "frozen_steps", "compile", "devices")


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
    frozen_steps: int = (
        0  # first steps, in which the backbone rests: a new head would only mislead it
    )
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
        literal = json.loads(self._json())  # tuples become lists, as they would in a file
        for f in fields(self):
            value = literal[f.name]
            object.__setattr__(self, f.name, tuple(value) if isinstance(value, list) else value)
        for name in ("dim", "steps", "threads", "monitor_every", "lr", "devices"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive, but is {getattr(self, name)}")
        for name in ("backbone_lr_factor", "frozen_steps"):
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
