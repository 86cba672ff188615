"""Matryoshka: a loss on leading parts of the embedding, so that it can be cut to any size."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dmlkit.losses.contract import PairLoss, Pairs, of_pairs, setting
from dmlkit.losses.table import register


@register(
    "matryoshka", "sizes", "Matryoshka", 2022,
    r"$\sum_m \mathrm{SupCon}(f_{1\ldots m})$"
    "\nm = 8, 16, 32, …",
    wraps="supcon", tuned=False,
)  # fmt: skip
class MatryoshkaLoss(PairLoss):
    """Any loss on the first 8, 16, 32, … dimensions, each as if there were no others.

    L = Σ_m c_m · loss(f[:, :m], y) over the ``sizes`` m, by default the powers of two from 8 that
    are below ``dim``, and ``dim``; c_m are the ``weights``, by default 1. With
    ``reduction="mean"`` the sum is divided by Σ_m c_m. The raw prefixes are given to the loss,
    which normalizes each by itself if it normalizes.

    Parameters of the loss named ``proxies``, (C, ..., dim), are cut as the embeddings are (MRL-E,
    the efficient form of the paper); others serve all sizes. A schedule that counts batches has the
    same count at all sizes of a batch, and moves once. The wrapped loss must keep nothing else, so
    that a memory or an expansion goes around this loss, and not into it.

    Source: Kusupati et al. 2022, "Matryoshka Representation Learning"; there, for classifiers.

    Raises:
        ValueError: proxies or embeddings that have not ``dim`` dimensions.
        TypeError: a loss that keeps a state other than counts, or another ``MatryoshkaLoss``.

    >>> from dmlkit.losses import SupConLoss
    >>> loss = MatryoshkaLoss(SupConLoss(temperature=1.0), dim=2, sizes=[1, 2])
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> loss(x, torch.tensor([5, 5, 6, 6]))  # 0.6163 + 0.8943
    tensor(1.5106)
    """

    loss: nn.Module = setting()
    dim: int = setting(low=1)
    sizes: Sequence[int] | None = None
    weights: Sequence[float] | None = None
    reduction: str = setting(default="sum", choices=("sum", "mean"))

    def setup(self) -> None:
        self.sizes = _sizes_from_8(self.dim) if self.sizes is None else list(self.sizes)
        whole = all(isinstance(m, int) and 1 <= m <= self.dim for m in self.sizes)
        if not self.sizes or not whole or len(set(self.sizes)) < len(self.sizes):
            raise ValueError(
                f"sizes must be distinct whole numbers from 1 to dim = {self.dim}, "
                f"but are {self.sizes}"
            )
        weights = [1.0] * len(self.sizes) if self.weights is None else list(self.weights)
        if len(weights) != len(self.sizes) or not all(0 < w < math.inf for w in weights):
            raise ValueError(f"weights must be {len(self.sizes)}, above 0, but are {weights}")
        total = 1.0 if self.reduction == "sum" else sum(weights)
        self.weights = [weight / total for weight in weights]
        _check_state(self.loss, self.dim)

    @property
    def proxies(self) -> Tensor:
        """The wrapped loss's own, at full size."""
        return self.loss.proxies  # type: ignore[return-value]

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self._check_dim(embeddings)
        if isinstance(self.loss, PairLoss):
            return super().equation(embeddings, labels)
        proxies = {name: p for name, p in self.loss.named_parameters() if _is_cut(name)}
        counts = dict(self.loss.named_buffers())
        total, last = embeddings.new_zeros(()), list(self.sizes or ())[-1]
        for m, weight in self._prefixes():
            state = {name: p[..., :m] for name, p in proxies.items()}
            if m != last:  # a count moves once a batch
                state |= {name: count.clone() for name, count in counts.items()}
            value = functional_call(self.loss, state, (embeddings[:, :m], labels))
            total = total + weight * value
        return total

    def of(self, pairs: Pairs) -> Tensor:
        self._check_dim(pairs.x)
        total = pairs.x.new_zeros(())
        for m, weight in self._prefixes():
            total = total + weight * of_pairs(self.loss, pairs.prefix(m))
        return total

    def _prefixes(self) -> Iterable[tuple[int, float]]:
        return zip(self.sizes or (), self.weights or (), strict=True)

    def _check_dim(self, embeddings: Tensor) -> None:
        if embeddings.shape[1] != self.dim:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} dimensions, but the loss is of prefixes of "
                f"{self.dim}: build it with dim={embeddings.shape[1]}"
            )


def _sizes_from_8(dim: int) -> list[int]:
    """Powers of two from 8 that are below the dimension, and the dimension."""
    return [*(2**i for i in range(3, dim.bit_length()) if 2**i < dim), dim]


def _is_cut(name: str) -> bool:
    """Whether a parameter goes by dimension."""
    return name.rpartition(".")[2] == "proxies"


def _check_state(loss: nn.Module, dim: int) -> None:
    """Refuse a loss whose proxies have another dimension, or that keeps more than counts."""
    if any(isinstance(module, MatryoshkaLoss) for module in loss.modules()):
        raise TypeError("loss has prefixes already: it must not contain a MatryoshkaLoss")
    parameters, buffers = dict(loss.named_parameters()), dict(loss.named_buffers())
    for name, p in parameters.items():
        if _is_cut(name) and p.shape[-1] != dim:
            have = tuple(p.shape)
            raise ValueError(
                f"loss must have {name} of dim = {dim} dimensions, but they are {have}"
            )
    counts = {name for name, b in buffers.items() if b.ndim == 0 and b.dtype == torch.int64}
    kept = sorted(loss.state_dict().keys() - parameters.keys() - counts)
    if kept:
        raise TypeError(
            f"loss must keep no state besides counts, as it would be of one size alone, but "
            f"{type(loss).__name__} keeps {', '.join(kept)}; a wrapper goes around MatryoshkaLoss"
        )
