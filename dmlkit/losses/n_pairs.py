"""N-pairs and angular loss: pairs of a class among the pairs of all the others."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import EmbeddingLoss, masked_mean, setting
from dmlkit.losses.table import register


@register(
    "n_pairs_normalized", "pairs", "N-pairs, normalized", 2016,
    r"$\log(1+\sum_{c'}\exp(\alpha(s_{cc'}-s_{cc})))$",
    tuned=("scale",), scale=5.0,
)  # fmt: skip
@register(
    "n_pairs", "pairs", "N-pairs", 2016,
    r"$\log(1+\sum_{c'}\exp(f_c^\top f^{+}_{c'}-f_c^\top f^{+}_c))$",
    tuned=("l2_weight",),
)  # fmt: skip
class NPairsLoss(EmbeddingLoss):
    """Classify each class's positive among the positives of all classes, by dot product.

    L = mean over classes c of log(1 + Σ_{c'≠c} exp(f_cᵀf⁺_{c'} − f_cᵀf⁺_c)), plus optionally
    λ mean_c (‖f_c‖² + ‖f⁺_c‖²). f_c is the class's first sample in the batch, f⁺_c its second;
    further samples, and classes of one sample, do not count.

    ``direction`` says what is classified: ``"forward"``, each f_c among the f⁺, as above;
    ``"reversed"``, each f⁺_c among the f; ``"both"``, the mean of the two. With a ``scale`` r the
    dot products are those of r f/‖f‖, so that the logits are r² cosines; without, of the raw
    embeddings. The penalty λ is of the raw embeddings in any case.

    Source: Sohn 2016, "Improved Deep Metric Learning with Multi-class N-pair Loss Objective".
    ``n_pairs_normalized`` (r = 5, forward): Zhang, Li and Zhang 2020, "Deep Metric Learning with
    Spherical Embedding", in their code.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> y = torch.tensor([0, 0, 1, 1])
    >>> NPairsLoss()(x, y)  # mean of log(1 + e^{−1 − 0.6}) and log(1 + e^{0.8 − 0})
    tensor(0.6775)
    >>> NPairsLoss(direction="both")(x, y), NPairsLoss(direction="both", scale=5)(x, y)
    (tensor(0.6166), tensor(6.2517))
    """

    l2_weight: float = setting(default=0.0, low=0, tune=("log", 1e-5, 1e-2))
    direction: str = setting(default="forward", choices=("forward", "reversed", "both"))
    scale: float | None = setting(default=None, low=1e-9, tune=("log", 2.0, 10.0))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        first, second, is_pair = first_two_of_each_class(labels)  # (S,), S slots
        x = embeddings if self.scale is None else self.scale * geometry.normalize(embeddings)
        logits = x.index_select(0, first) @ x.index_select(0, second).T  # (S, S)
        forward, back = [logits], [logits.T]
        ways = {"forward": forward, "reversed": back, "both": forward + back}[self.direction]
        loss = torch.stack([own_entropies(way, is_pair) for way in ways]).mean(dim=0)  # (S,)
        if self.l2_weight == 0:  # squares of the longest embeddings overflow, which cosines do not
            return masked_mean(loss, is_pair)
        n2 = embeddings.square().sum(dim=1)  # (B,)
        penalty = n2.index_select(0, first) + n2.index_select(0, second)
        return masked_mean(loss + self.l2_weight * penalty, is_pair)


@register(
    "angular", "pairs", "angular", 2017,
    r"$\log(1+\sum_n e^{4\kappa(s_{an}+s_{pn})-2(1+\kappa)s_{ap}})$",
)  # fmt: skip
class AngularLoss(EmbeddingLoss):
    """Bound the angle at a negative of the triangle that it forms with a positive pair.

    L = mean over positive pairs (a, p) of
    log(1 + Σ_n exp(4t(a + p)ᵀn − 2(1 + t)aᵀp)) + λ L_N-pairs, with t = tan²α, on the unit sphere;
    the N-pairs term, times λ = ``n_pairs_weight``, is ``NPairsLoss(l2_weight)`` of the raw
    embeddings.

    Source: Wang, Zhou, Wen, Liu and Lin 2017, "Deep Metric Learning with Angular Loss".

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> AngularLoss(45)(x, torch.tensor([5, 5, 6]))  # log(1 + e^{0 − 4})
    tensor(0.0181)
    """

    degrees: float = setting(default=45.0, low=1e-9, high=70, tune=("linear", 30.0, 60.0))
    n_pairs_weight: float = setting(default=0.0, low=0)
    l2_weight: float = 0.0

    def setup(self) -> None:
        self.t = math.tan(math.radians(self.degrees)) ** 2
        self.n_pairs = NPairsLoss(self.l2_weight)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        x = geometry.normalize(embeddings)  # (B, d)
        s = x @ x.T  # (B, B)
        E = torch.where(geometry.different_label(labels), (4 * self.t * s).exp(), 0)
        negatives = E @ E.T  # (B, B): Σ_n exp(4t(a + p)ᵀn)
        term = torch.log1p(negatives * (-2 * (1 + self.t) * s).exp())
        angular = masked_mean(term, geometry.same_label(labels))
        if self.n_pairs_weight == 0:
            return angular
        return angular + self.n_pairs_weight * self.n_pairs.equation(embeddings, labels)


def own_entropies(logits: Tensor, counts: Tensor) -> Tensor:
    """log(1 + Σ exp(other − own)) of every row, over the columns that count: (S, S) -> (S,)."""
    own = torch.arange(len(logits), device=logits.device)
    logits = logits.masked_fill(~counts, torch.finfo(logits.dtype).min)
    return F.cross_entropy(logits, own, reduction="none")


def first_two_of_each_class(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Indices of each class's first and second sample: (B,) -> (S,), (S,), and which slots count.

    There are S = ⌈B/2⌉ slots, as many as a batch may need, so that no shape depends on the labels.
    """
    y, order = labels.sort(stable=True)
    follows = F.pad(y[1:] == y[:-1], (1, 0))  # (B,): same class as the one before
    first = ~follows & follows.roll(-1)  # a class begins, and has a second
    slot = first.int().argsort(descending=True, stable=True)[: (len(labels) + 1) // 2]
    return order[slot], order.roll(-1)[slot], first[slot]
