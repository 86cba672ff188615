"""What every loss promises: loss(embeddings, labels) -> scalar; its settings are fields."""

import math
from dataclasses import MISSING, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, Literal, Self, dataclass_transform

import numpy as np
import torch
from torch import Tensor, nn

from dmlkit import geometry

Range = tuple[str, float, float]  # "log" or "linear", lowest, highest


def setting(
    *,
    default: Any = MISSING,
    low: float | None = None,
    high: float | None = None,
    tune: Range | None = None,
    choices: tuple[str, ...] = (),
    kw_only: bool = False,
) -> Any:
    """A field of a loss: its default, what it may be, and the range in which it is tuned.

    Numbers must be finite, unless ``high`` is infinity.
    """
    about = {"range": (low, high), "tune": tune, "in": choices}
    return field(default=default, kw_only=kw_only, metadata=about)


def state(*shape: int, dtype: torch.dtype | None = None, init: Literal[False] = False) -> Any:
    """A field that is no setting: a buffer of zeros where a type is given, else of ``setup``."""
    return field(init=init, metadata={"buffer": dtype and {"size": shape, "dtype": dtype}})


@dataclass_transform(field_specifiers=(setting, state), eq_default=False)
class Declared(nn.Module):
    """A module whose settings are fields (see ``setting``); ``setup`` makes parameters and buffers.

    Raises:
        ValueError: a setting is out of its range.
    """

    def __init_subclass__(cls) -> None:
        dataclass(cls, eq=False, repr=False)
        for f in fields(cls):  # type: ignore[arg-type] # a dataclass now
            if f.name in vars(cls):  # a default, which would hide a Parameter of that name
                delattr(cls, f.name)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        module = super().__new__(cls)
        nn.Module.__init__(module)  # before fields are set
        return module

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            if buffer := f.metadata.get("buffer"):
                self.register_buffer(f.name, torch.zeros(**buffer))
            if f.init and f.name in vars(self):  # else an __init__ of the class's own sets it later
                value = getattr(self, f.name)
                if isinstance(value, np.generic | np.ndarray):  # only like Python's own numbers
                    setattr(self, f.name, value := value.tolist())
                _check(f.name, value, f.type, f.metadata)
        self.setup()

    def setup(self) -> None:
        """Parameters and buffers, and what follows from several settings."""


class EmbeddingLoss(Declared):
    """A loss of raw embeddings (B, d) and int64 labels (B,), returning a scalar.

    A subclass writes its equation in ``equation``. Half-precision embeddings are computed on in
    float32, whatever the autocast state. A batch without a positive or a negative pair gives a zero
    that still has a gradient path. A batch with NaN or inf gives NaN, whatever the equation.

    Raises:
        ValueError: embeddings are not (B, d), B and d at least 1, or labels are not (B,).
        TypeError: embeddings are no tensor of floating point, or labels none of int64.
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Check the batch, then compute the loss in float32 (float64 stays float64)."""
        self.check(embeddings, labels)
        embeddings = _whole(embeddings)
        with torch.autocast(embeddings.device.type, enabled=False):
            # An equation may pass over a row, as a hinge or a mask does. 0 · NaN and 0 · inf are
            # NaN, so that a training that has diverged shows, without a wait for the device.
            return self.equation(embeddings, labels) + (0 * embeddings.detach()).sum()

    def check(self, embeddings: Tensor, labels: Tensor) -> None:
        """Refuse what is no batch."""
        check_batch(embeddings, labels)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The equation."""
        raise NotImplementedError


def _whole(embeddings: Tensor) -> Tensor:
    """Half precision as float32."""
    half = embeddings.dtype in (torch.float16, torch.bfloat16)
    return embeddings.float() if half else embeddings


def _check(name: str, value: Any, kind: Any, rule: Any) -> None:
    """Refuse a setting that is none of the choices, or no number of its kind and range."""
    if (choices := rule.get("in")) and value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, but is {value!r}")
    hint = kind.__name__ if isinstance(kind, type) else str(kind)  # text, where it is postponed
    what = {"int": "whole number", "float": "finite number"}.get(hint.removesuffix(" | None"))
    if what is None or (value is None and hint.endswith("None")):
        return
    low, high = rule.get("range", (None, None))
    fits = isinstance(value, Integral if what == "whole number" else Real)
    fits = fits and not isinstance(value, bool) and (math.isfinite(value) or value == high)
    if not fits or (low is not None and value < low) or (high is not None and value > high):
        bounds = "" if low is None else f" from {low}"
        bounds += "" if high is None else f" to {high}"
        raise ValueError(f"{name} must be a {what}{bounds}, but is {value!r}")


@dataclass(frozen=True)
class Pairs:
    """Anchors with others, those of the batch itself or of a memory, and which pairs count.

    A pair in neither mask does not count.
    """

    x: Tensor  # anchors (B, d)
    y: Tensor  # others (N, d): x itself, within a batch
    labels: Tensor | None  # classes of the anchors (B,), where pairs are those of classes
    positive: Tensor  # (B, N)
    negative: Tensor  # (B, N)

    @classmethod
    def of_batch(cls, x: Tensor, labels: Tensor) -> "Pairs":
        """All pairs of two different samples of a batch."""
        return cls(x, x, labels, geometry.same_label(labels), geometry.different_label(labels))

    def on_sphere(self) -> tuple[Tensor, Tensor]:
        """Both sets as unit rows, (B, d) and (N, d); one tensor twice if they are one."""
        x = geometry.normalize(self.x)
        return x, x if self.y is self.x else geometry.normalize(self.y)

    def cosines(self) -> Tensor:
        """Of every pair: (B, N)."""
        x, y = self.on_sphere()
        return x @ y.T

    def distances(self) -> Tensor:
        """Of every pair on the unit sphere: (B, N)."""
        return geometry.distances(*self.on_sphere())

    def squared_distances(self) -> Tensor:
        """Of every pair on the unit sphere: (B, N)."""
        return geometry.squared_distances(*self.on_sphere())

    def prefix(self, m: int) -> "Pairs":
        """The same pairs, of the first m dimensions."""
        x = self.x[:, :m]
        return replace(self, x=x, y=x if self.y is self.x else self.y[:, :m])


class PairLoss(EmbeddingLoss):
    """A loss of anchors with other embeddings: a subclass writes its equation in ``of``."""

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        references: Tensor | None = None,
        reference_labels: Tensor | None = None,
        *,
        positive: Tensor | None = None,
        negative: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch by its classes, as of any loss, or of other pairs.

        - ``labels`` (B, C) bool are several labels a sample: pairs that share one are positive.
        - ``references`` (N, d) take the place of the batch as the others; without any labels, row
          i of both is one thing, as two views of an image (self-supervised training).
        - ``positive`` and ``negative`` (B, N) bool name the pairs, as a relation matrix > 0 does;
          without ``negative``, all pairs that are not positive.

        Raises:
            ValueError: masks that are not (B, N), or a batch with neither labels nor pairs.

        >>> from dmlkit.losses import SupConLoss
        >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> tags = torch.tensor([[True, False], [True, True], [False, True]])
        >>> SupConLoss(1.0)(x, tags), SupConLoss(1.0)(x, references=x.flip(1))
        (tensor(0.5022), tensor(1.4768))
        """
        several = isinstance(labels, Tensor) and labels.ndim == 2 and labels.dtype == torch.bool
        if labels is None or several:
            check_embeddings(embeddings)
        elif references is None and positive is None:
            return super().forward(embeddings, labels)
        else:
            check_batch(embeddings, labels)
        x = _whole(embeddings)
        y = x if references is None else _whole(references).to(x.dtype)
        itself = torch.eye(len(x), dtype=torch.bool, device=x.device)
        if positive is None and labels is None and references is not None:
            positive = itself
        elif positive is None:
            others = labels if references is None else reference_labels
            if labels is None or others is None:
                raise ValueError("pairs need labels of both sides, or positive=, or references")
            positive = share_a_label(labels, others)
        negative = ~positive if negative is None else negative
        expected = (len(x), len(y))
        if not positive.shape == negative.shape == expected:
            raise ValueError(
                f"positive and negative must be {expected}, one for each pair, but are "
                f"{tuple(positive.shape)} and {tuple(negative.shape)}"
            )
        if references is None:
            positive, negative = positive & ~itself, negative & ~itself
        classes = None if several else labels
        with torch.autocast(x.device.type, enabled=False):
            watch = (0 * x.detach()).sum() + (0 * y.detach()).sum()
            return self.of(Pairs(x, y, classes, positive, negative)) + watch

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The equation over the pairs of the batch."""
        return self.of(Pairs.of_batch(embeddings, labels))

    def of(self, pairs: Pairs) -> Tensor:
        """The equation over the pairs that count."""
        raise NotImplementedError


def share_a_label(labels: Tensor, others: Tensor) -> Tensor:
    """Of classes (B,) and (N,), or several labels a sample (B, C) and (N, C) bool: (B, N)."""
    if labels.ndim == 1:
        return labels[:, None] == others
    return labels.float() @ others.float().T > 0


def of_pairs(loss: nn.Module, pairs: Pairs) -> Tensor:
    """A wrapped loss of pairs. Raises TypeError for a loss that cannot compare two sets."""
    if not isinstance(loss, PairLoss):
        raise TypeError(f"loss must be a PairLoss, to compare two sets, but is {loss!r}")
    return loss.of(pairs)


def check_embeddings(embeddings: Tensor) -> None:
    """Refuse what is not (B, d) of floating point, B and d at least 1."""
    kind = embeddings.dtype if isinstance(embeddings, Tensor) else type(embeddings)
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise TypeError(f"embeddings must be a tensor of floating point, but are {kind}")
    if embeddings.ndim != 2 or 0 in embeddings.shape:
        raise ValueError(
            f"embeddings must be (B, d), with B and d from 1, but are {tuple(embeddings.shape)}"
        )


def check_dim(embeddings: Tensor, dim: int) -> None:
    """Refuse embeddings of another dimension than a loss was built for."""
    if embeddings.shape[1] != dim:
        raise ValueError(
            f"embeddings have {embeddings.shape[1]} dimensions, but the loss is of {dim}: "
            f"build it with dim={embeddings.shape[1]}"
        )


def check_batch(embeddings: Tensor, labels: Tensor) -> None:
    """Refuse what is not a batch, naming what was expected and what came."""
    check_embeddings(embeddings)
    if isinstance(labels, Tensor) and labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"labels must be ({len(embeddings)},), one for each of the embeddings, but are "
            f"{tuple(labels.shape)}; several labels a sample are for losses of pairs"
        )
    kind = labels.dtype if isinstance(labels, Tensor) else type(labels)
    if kind != torch.int64:
        raise TypeError(f"labels must be a tensor of torch.int64, but are {kind}")


def check_labels(labels: Tensor, num_classes: int) -> None:
    """Refuse labels outside 0..C − 1; on CUDA by an assertion there, for which no step waits."""
    known = ((labels >= 0) & (labels < num_classes)).all()
    rule = f"labels must be from 0 to {num_classes - 1}, as num_classes is {num_classes}"
    try:
        torch._assert_async(known, rule)  # it compiles, and has no public name
    except RuntimeError as error:  # or the device knows no such assertion
        if not known:
            came = f"{labels.min()} to {labels.max()}"
            raise ValueError(f"{rule}, but are from {came}") from error


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of the values where the mask holds, and a zero with a gradient path where it never does.

    >>> masked_mean(torch.tensor([1.0, 2.0, 9.0]), torch.tensor([True, True, False]))
    tensor(1.5000)
    """
    return torch.where(mask, values, 0).sum() / mask.count_nonzero().clamp_min(1)


def moved_average(loss: Any, value: Tensor, momentum: float) -> Tensor:
    """μ ← (1 − ρ)μ + ρ·value, ρ the momentum, of a loss with the buffers ``average``, ``started``.

    The first training batch starts the average; evaluation mode does not change it.
    """
    first = (~loss.started).to(value.dtype)
    momentum = momentum if loss.training else 0.0
    rho = momentum + (1 - momentum) * first  # 1 on the first batch, without a branch
    average: Tensor = (1 - rho) * loss.average + rho * value
    if loss.training:  # not in place: a compiled backward could then see the next state
        loss.average = average.to(loss.average.dtype)
        loss.started = torch.ones_like(loss.started)
    return average


def masked_logsumexp(values: Tensor, mask: Tensor, dim: int) -> Tensor:
    """log Σ exp(value) where the mask holds, and the lowest finite number where it never does.

    A finite fill keeps the gradient of an empty row at 0, where −∞ would make it NaN.

    >>> masked_logsumexp(torch.zeros(2, 2), torch.tensor([[True, True], [True, False]]), dim=1)
    tensor([0.6931, 0.0000])
    """
    return torch.where(mask, values, torch.finfo(values.dtype).min).logsumexp(dim)
