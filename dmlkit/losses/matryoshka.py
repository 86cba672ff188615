"""Matryoshka: a loss on leading parts of the embedding, so that it can be cut to any size."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dmlkit.checks import as_numbers, check_count, check_positive
from dmlkit.losses.contract import EmbeddingLoss, PairLoss
from dmlkit.losses.table import register


@register("matryoshka", "sizes", wraps="supcon")
class MatryoshkaLoss(EmbeddingLoss):
    """Any loss on the first 8, 16, 32, … dimensions, each as if there were no others.

    L = Σ_m c_m · loss(f[:, :m], y) over the ``sizes`` m, by default the powers of two from 8 that
    are below ``dim``, and ``dim``; c_m are the ``weights``, by default 1. The sum grows with the
    number of sizes; with ``reduction="mean"`` it is divided by Σ_m c_m. The raw prefixes are given
    to the loss, which normalizes each by itself if it normalizes. A loop over sizes, one after the
    other.

    Parameters of the loss named ``proxies``, (C, ..., dim), are cut as the embeddings are: one set
    of proxies serves all sizes (MRL-E, the efficient form of the paper). Other parameters, such as
    a radius for each class, are the same for all sizes. A schedule that counts batches has the same
    count at all sizes of a batch, and moves once. The wrapped loss must keep nothing else:

    - a memory wraps this loss and not the reverse, ``CrossBatchMemory(MatryoshkaLoss(loss))``: it
      holds full vectors, which are cut. Where ``loss`` is a ``PairLoss``, so is the wrapper;
    - ``SphericalExpansion(MatryoshkaLoss(loss))`` likewise: synthetic points around full proxies
      are cut. ``proxies`` are those of the wrapped loss;
    - moving statistics of the embeddings would be of one size only, and are refused;
    - a ``SphericalConstraint`` beside it acts on full norms.

    Source: Kusupati et al. 2022, "Matryoshka Representation Learning"; there, for classifiers.

    Raises:
        ValueError: sizes that are not distinct whole numbers from 1 to ``dim``, weights that are
            not as many or not above 0, an unknown reduction, proxies or embeddings that have not
            ``dim`` dimensions.
        TypeError: a loss that keeps a state other than counts, or another ``MatryoshkaLoss``.

    >>> from dmlkit.losses import SupConLoss
    >>> loss = MatryoshkaLoss(SupConLoss(temperature=1.0), dim=2, sizes=[1, 2])
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> loss(x, torch.tensor([5, 5, 6, 6]))  # 0.6163 + 0.8943
    tensor(1.5106)
    """

    def __init__(
        self,
        loss: nn.Module,
        dim: int,
        sizes: Sequence[int] | None = None,
        weights: Sequence[float] | None = None,
        reduction: str = "sum",
    ) -> None:
        super().__init__()
        check_count(dim=dim)
        self.sizes = _sizes_from_8(dim) if sizes is None else _checked_sizes(sizes, dim)
        given = [1.0] * len(self.sizes) if weights is None else weights
        weights = as_numbers(given, "weights").tolist()
        if len(weights) != len(self.sizes):
            raise ValueError(f"weights must be {len(self.sizes)}, one a size, but are {weights}")
        for weight in weights:
            check_positive(weights=weight)
        if reduction not in ("sum", "mean"):
            raise ValueError(f"reduction must be 'sum' or 'mean', but is {reduction!r}")
        total = 1.0 if reduction == "sum" else sum(weights)
        self.weights = [weight / total for weight in weights]
        self.dim = dim
        self.inner = loss
        _check_state(loss, dim)
        if isinstance(loss, PairLoss):
            self.__class__ = _MatryoshkaPairLoss

    @property
    def proxies(self) -> Tensor:
        """The wrapped loss's own, at full size."""
        return self.inner.proxies  # type: ignore[return-value]

    def loss(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        self._check_dim(embeddings)
        proxies = {name: p for name, p in self.inner.named_parameters() if _is_cut(name)}
        counts = dict(self.inner.named_buffers())
        total = embeddings.new_zeros(())
        for m, weight in zip(self.sizes, self.weights, strict=True):
            state = {name: p[..., :m] for name, p in proxies.items()}
            if m != self.sizes[-1]:  # a count moves once a batch: before, a copy of it moves
                state |= {name: count.clone() for name, count in counts.items()}
            value = functional_call(self.inner, state, (embeddings[:, :m], labels))
            total = total + weight * value
        return total

    def _check_dim(self, embeddings: Tensor) -> None:
        if embeddings.shape[1] != self.dim:
            raise ValueError(
                f"embeddings have {embeddings.shape[1]} dimensions, but the loss is of prefixes of "
                f"{self.dim}: build it with dim={embeddings.shape[1]}"
            )


class _MatryoshkaPairLoss(MatryoshkaLoss, PairLoss):
    """What a ``MatryoshkaLoss`` of a ``PairLoss`` becomes: it can compare two sets."""

    inner: PairLoss

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        self._check_dim(anchors)
        total = anchors.new_zeros(())
        for m, weight in zip(self.sizes, self.weights, strict=True):
            x = anchors[:, :m]
            y = x if others is anchors else others[:, :m]
            total = total + weight * self.inner.pair_loss(x, y, labels, positive, negative)
        return total


def _sizes_from_8(dim: int) -> list[int]:
    """Powers of two from 8 that are below the dimension, and the dimension."""
    return [*(2**i for i in range(3, dim.bit_length()) if 2**i < dim), dim]


def _checked_sizes(sizes: Sequence[int], dim: int) -> list[int]:
    if not isinstance(sizes, list | tuple):
        raise TypeError(f"sizes must be a list of whole numbers, but are {sizes!r}")
    whole = all(isinstance(m, int) and not isinstance(m, bool) and 1 <= m <= dim for m in sizes)
    if not sizes or not whole or len(set(sizes)) < len(sizes):
        raise ValueError(
            f"sizes must be distinct whole numbers from 1 to dim = {dim}, but are {sizes}"
        )
    return list(sizes)


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
