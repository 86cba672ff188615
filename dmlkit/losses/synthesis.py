"""Synthetic points between and beyond two samples of a class, for losses of pairs."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import EmbeddingLoss, masked_mean, setting
from dmlkit.losses.n_pairs import first_two_of_each_class, own_entropies
from dmlkit.losses.table import register


@register(
    "embedding_expansion", "synthesis", "embedding expansion", 2020,
    r"$[\max_p D_p-\min_{a,b}D_{ab}+m]_+$",
    "a, b: also points between two images",
)  # fmt: skip
class EmbeddingExpansionLoss(EmbeddingLoss):
    """EE: hardest triplets whose negatives may lie between two samples of a class.

    L = mean over anchors i of [max_p D_ip − min_{a,b} D_ab + m]₊, or with ``soft`` of
    log(1 + exp(max_p D_ip − min_{a,b} D_ab)). p runs over the real positives of i, a over x_i and
    its n synthetic points, b over the samples of other classes and their synthetic points; D is the
    distance on the unit sphere, not squared. The synthetic points of a sample are those of
    :func:`interpolate`, n = ``points``, projected onto the sphere; they are negatives only.
    An anchor without a positive or a negative does not count.

    Source: Ko and Gu 2020, "Embedding Expansion: Augmentation in Embedding Space for Deep Metric
    Learning", in the authors' code (HPHN triplet loss), where a sample's partner is its neighbor in
    fixed pairs.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> y = torch.tensor([5, 5, 6, 6])
    >>> EmbeddingExpansionLoss(points=0)(x, y), EmbeddingExpansionLoss(points=2)(x, y)
    (tensor(0.3609), tensor(0.5483))
    """

    points: int = setting(default=2, low=0)
    margin: float = setting(default=0.2, low=0, tune=("log", 0.05, 0.8))
    soft: bool = False

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        z = geometry.normalize(embeddings)  # (B, d)
        z = geometry.normalize(interpolate(z, labels, self.points))  # (n+1, B, d)
        positive, negative = geometry.same_label(labels), geometry.different_label(labels)
        with torch.no_grad():
            p = torch.where(positive, geometry.distances(z[0]), -torch.inf).argmax(dim=1)  # (B,)
            a, b = _nearest_negatives(z, negative)
        z = z.flatten(0, 1)  # ((n+1)B, d)
        farthest = geometry.norms(z[: len(labels)] - z.index_select(0, p))  # (B,)
        nearest = geometry.norms(z.index_select(0, a) - z.index_select(0, b))  # (B,)
        gap = farthest - nearest
        term = F.softplus(gap) if self.soft else (gap + self.margin).relu()
        return masked_mean(term, positive.any(dim=1) & negative.any(dim=1))


def interpolate(embeddings: Tensor, labels: Tensor, points: int) -> Tensor:
    """Each sample, and n points towards the next sample of its class: (B, d) -> (n + 1, B, d).

    z_ki = ((n + 1 − k) x_i + k x_i')/(n + 1), k = 0 … n, where i' follows i among the samples of
    its class in the batch, and the first follows the last. A sample that is alone in its class
    follows itself, and is repeated.

    >>> x = torch.tensor([[0.0], [4.0], [9.0]])
    >>> interpolate(x, torch.tensor([5, 5, 6]), points=1).squeeze(2)
    tensor([[0., 4., 9.],
            [2., 2., 9.]])
    """
    following = embeddings.index_select(0, _next_of_class(labels))  # (B, d)
    k = torch.arange(points + 1, dtype=embeddings.dtype, device=embeddings.device)
    return torch.lerp(embeddings, following, (k / (points + 1))[:, None, None])


def _next_of_class(labels: Tensor) -> Tensor:
    """The next sample of each sample's class, cyclically: (B,) -> indices (B,)."""
    y, order = labels.sort(stable=True)
    begins = F.pad(y[1:] != y[:-1], (1, 0), value=True)  # (B,): a class, in the sorted order
    place = torch.arange(len(y), device=y.device)
    first = torch.where(begins, place, 0).cummax(dim=0).values
    following = torch.where(begins.roll(-1), first, place + 1)  # the last is followed by the first
    return torch.empty_like(order).scatter_(0, order, order[following])


def _nearest_negatives(z: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
    """Which point of each sample is nearest to a point of a negative, and to which one.

    Points (n + 1, B, d) and the mask of negatives (B, B) -> two indices (B,) of the flat points
    ((n + 1)B, d).
    """
    B = len(negative)
    distances, theirs = [], []
    for mine, others in itertools.product(z, z):  # (B, d) each
        D = geometry.distances(mine, others)  # (B, B)
        nearest = D.masked_fill_(~negative, torch.inf).min(dim=1)
        distances.append(nearest.values)
        theirs.append(nearest.indices)
    best = torch.stack(distances).argmin(dim=0)  # (B,): which of the (n + 1)²
    j = torch.stack(theirs).gather(0, best[None]).squeeze(0)  # (B,)
    i = torch.arange(B, device=best.device)
    return best // len(z) * B + i, best % len(z) * B + j


@register(
    "symmetrical_synthesis", "synthesis", "symmetrical synthesis", 2020,
    "N-pairs with the hardest of\nimages and their mirror images",
)  # fmt: skip
class SymmetricalSynthesisLoss(EmbeddingLoss):
    """Symm: N-pairs with the hardest of two samples of a class and their mirror images.

    With f_c and g_c the first two samples of class c in the batch, and their mirror images
    s_c = reflect(g_c; f_c) and t_c = reflect(f_c; g_c) (see :func:`reflect`),

        L = mean over classes c of −log softmax_c'(M_cc')_c + λ(‖f_c‖² + ‖g_c‖²),
        M_cc' = max{f_cᵀg_c', f_cᵀs_c', f_cᵀt_c', g_cᵀs_c', g_cᵀt_c', s_cᵀt_c'}.

    The embeddings are raw; further samples, and classes of one sample, do not count. M is not
    symmetric, and its diagonal takes the maximum too.

    Source: Gu and Ko 2020, "Symmetrical Synthesis for Deep Metric Learning", in the authors' code.
    Whether the paper means all 16 ordered pairs of points, and not these 6, was not verified.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> SymmetricalSynthesisLoss()(x, torch.tensor([5, 5, 6, 6]))
    tensor(1.0996)
    """

    l2_weight: float = setting(default=5e-4, low=0, tune=("log", 1e-5, 1e-2))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        first, second, is_pair = first_two_of_each_class(labels)  # (S,), S slots
        f, g = embeddings.index_select(0, first), embeddings.index_select(0, second)  # (S, d)
        pairs = itertools.combinations((f, g, reflect(g, f), reflect(f, g)), 2)
        rows, columns = zip(*pairs, strict=True)
        # Equal products on the diagonal are one function, so it does not matter whose gradient
        # counts; max keeps an index for it, where amax would keep all six.
        M = (torch.stack(rows) @ torch.stack(columns).mT).max(dim=0).values  # (6, S, S) -> (S, S)
        loss = own_entropies(M, is_pair)  # (S,)
        penalty = f.square().sum(dim=1) + g.square().sum(dim=1)
        return masked_mean(loss + self.l2_weight * penalty, is_pair)


def reflect(points: Tensor, axes: Tensor) -> Tensor:
    """Mirror each point at the line of its axis: 2⟨q, â⟩â − q, â = a/‖a‖: (B, d), (B, d) -> (B, d).

    Its norm and its angle with the axis stay. At the axis 0 the image is −q.

    >>> reflect(torch.tensor([[0.6, 0.8]]), torch.tensor([[2.0, 0.0]]))
    tensor([[ 0.6000, -0.8000]])
    """
    a = geometry.normalize(axes)
    return 2 * (points * a).sum(dim=1, keepdim=True) * a - points
