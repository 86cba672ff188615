"""A loss of parts of an embedding: of its leading dimensions, or of several joined embeddings."""

import copy
import math
from collections.abc import Sequence
from dataclasses import InitVar
from numbers import Integral

import torch
from torch import Tensor, nn
from torch.func import functional_call

from dmlkit.checks import listed
from dmlkit.losses.contract import EmbeddingLoss, PairLoss, Pairs, check_dim, of_pairs, setting
from dmlkit.losses.table import register


@register(
    "matryoshka", "sizes", "Matryoshka", 2022,
    r"$\sum_m \mathrm{SupCon}(f_{1\ldots m})$",
    "m = 8, 16, 32, …",
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

    >>> from dmlkit.losses import SupConLoss
    >>> loss = MatryoshkaLoss(SupConLoss(temperature=1.0), dim=2, sizes=[1, 2])
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> loss(x, torch.tensor([5, 5, 6, 6]))  # 0.6163 + 0.8943
    tensor(1.5106)
    """

    loss: nn.Module = setting()
    dim: int = setting(low=1)
    sizes: Sequence[int] | int | None = None
    weights: Sequence[float] | float | None = None
    reduction: str = setting(default="sum", choices=("sum", "mean"))

    def setup(self) -> None:
        if self.sizes is None:
            powers = (2**i for i in range(3, self.dim.bit_length()))
            self.sizes = [*(m for m in powers if m < self.dim), self.dim]
        self.sizes = listed(self.sizes)
        whole = all(isinstance(m, Integral) and 1 <= int(m) <= self.dim for m in self.sizes)
        if not self.sizes or not whole or len(set(self.sizes)) < len(self.sizes):
            raise ValueError(
                f"sizes must be distinct whole numbers from 1 to dim = {self.dim}, "
                f"but are {self.sizes}"
            )
        self.sizes = list(map(int, self.sizes))
        weights = [1.0] * len(self.sizes) if self.weights is None else listed(self.weights)
        if len(weights) != len(self.sizes) or not all(0 < w < math.inf for w in weights):
            raise ValueError(f"weights must be {len(self.sizes)}, above 0, but are {weights}")
        total = 1.0 if self.reduction == "sum" else sum(weights)
        self.terms = [(m, w / total) for m, w in zip(self.sizes, weights, strict=True)]
        if any(isinstance(module, MatryoshkaLoss) for module in self.loss.modules()):
            raise TypeError("loss has prefixes already: it must not contain a MatryoshkaLoss")
        for name, p in self._cut().items():
            if p.shape[-1] != self.dim:
                have = tuple(p.shape)
                raise ValueError(f"{name} must have dim = {self.dim} dimensions, but are {have}")
        kept = self.loss.state_dict().keys() - dict(self.loss.named_parameters()).keys()
        buffers = self.loss.named_buffers()
        kept -= {name for name, b in buffers if b.ndim == 0 and b.dtype == torch.int64}
        if kept:
            raise TypeError(
                f"loss must keep no state besides counts, as it would be of one size alone, but "
                f"it keeps {', '.join(sorted(kept))}; a wrapper goes around MatryoshkaLoss"
            )

    @property
    def proxies(self) -> Tensor:
        """The wrapped loss's own, at full size."""
        return self.loss.proxies  # type: ignore[return-value]

    def _cut(self) -> dict[str, Tensor]:
        """The parameters that go by dimension."""
        every = self.loss.named_parameters()
        return {name: p for name, p in every if name.rpartition(".")[2] == "proxies"}

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if isinstance(self.loss, PairLoss):
            return super().equation(embeddings, labels)
        check_dim(embeddings, self.dim)
        proxies, counts = self._cut(), dict(self.loss.named_buffers())
        total = embeddings.new_zeros(())
        for m, weight in self.terms:
            state = {name: p[..., :m] for name, p in proxies.items()}
            if (m, weight) != self.terms[-1]:  # a count moves once a batch
                state |= {name: count.clone() for name, count in counts.items()}
            value = functional_call(self.loss, state, (embeddings[:, :m], labels))
            total = total + weight * value
        return total

    def of(self, pairs: Pairs) -> Tensor:
        check_dim(pairs.x, self.dim)
        total = pairs.x.new_zeros(())
        for m, weight in self.terms:
            total = total + weight * of_pairs(self.loss, pairs.prefix(m))
        return total


@register(
    "multi_scale", "sizes", "multi-scale", 2019,
    r"$\sum_h \mathrm{ranked\ list}(f_h)$",
    "h: three parts",
    wraps="ranked_list", tuned=False,
)  # fmt: skip
class MultiScaleLoss(EmbeddingLoss):
    """The sum of one loss for each part of an embedding that is several, joined.

    L = Σ_h loss_h(f_h, y), with f = [f_1, …, f_H] (B, d) cut into ``parts`` H parts of equal size;
    where d is no multiple of H, the first are larger by one. Each part has a copy of ``loss``, with
    its own parameters and state: one with proxies must be made for the size of a part.

    Source: Wang et al. 2019, "Ranked List Loss for Deep Metric Learning" (RLL-(L, M, H)), as in the
    authors' code.

    >>> from dmlkit.losses import ContrastiveLoss
    >>> loss = MultiScaleLoss(ContrastiveLoss(), parts=2)
    >>> x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 1.0]])
    >>> loss(x, torch.tensor([5, 5]))  # 2 + √2
    tensor(3.4142)
    """

    loss: InitVar[nn.Module]
    parts: int = setting(default=3, low=1)

    def __post_init__(self, loss: nn.Module) -> None:
        super().__post_init__()
        self.losses = nn.ModuleList(copy.deepcopy(loss) for _ in range(self.parts))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        H, d = len(self.losses), embeddings.shape[1]
        if d < H:
            raise ValueError(f"embeddings have {d} dimensions, which are not {H} parts")
        total = embeddings.new_zeros(())
        for loss, part in zip(self.losses, embeddings.tensor_split(H, dim=1), strict=True):
            total = total + loss(part, labels)
        return total
