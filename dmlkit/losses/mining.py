"""Which triplets and pairs of a batch count."""

import torch
from torch import Tensor


@torch.no_grad()
def semihard_negatives(D: Tensor, negative: Tensor) -> Tensor:
    """For every anchor a and positive p, the nearest negative farther than p, else the farthest.

    n*(a, p) = argmin over n with D_an > D_ap of D_an, else argmax over n of D_an.
    Finite distances (B, B) and the mask of negatives (B, B) -> indices (B, B); entries of
    (a, p) that are no positive pair, and rows without a negative, mean nothing.

    Source: Schroff, Kalenichenko and Philbin 2015, "FaceNet", section 3.2.

    >>> D = torch.tensor([[0.0, 1.0, 3.0, 2.0]])
    >>> semihard_negatives(D, torch.tensor([[False, False, True, True]]))[0, 1]
    tensor(3)
    """
    ordered, order = torch.where(negative, D, torch.inf).sort(dim=1)  # (B, N), negatives first
    near = D.masked_fill(negative, 0)  # no positives: 0 is found soonest
    nearer = torch.searchsorted(ordered, near, right=True)  # how many are not farther than p
    farthest = negative.sum(dim=1, keepdim=True) - 1  # (B, 1)
    return order.gather(1, torch.minimum(nearer, farthest).clamp_min(0))


@torch.no_grad()
def active_triplets(D: Tensor, positive: Tensor, negative: Tensor, margin: float) -> Tensor:
    """In how many active triplets each pair stands: (B, B) three times -> signed counts (B, B).

    A triplet is active where D_ap − D_an + m > 0. The count c of a pair (a, p) is positive, that
    of a pair (a, n) negative, all others are 0, so that over all triplets
    Σ [D_ap − D_an + m]₊ = Σ_ij c_ij D_ij + m N, with N = Σ_ij [c_ij]₊ active triplets.

    >>> D = torch.tensor([[0.0, 1.0, 3.0, 0.5]])
    >>> negative = torch.tensor([[False, False, True, True]])
    >>> active_triplets(D, torch.tensor([[False, True, False, False]]), negative, margin=0.2)
    tensor([[ 0.,  1.,  0., -1.]])
    """
    B = D.shape[1]
    reach, order = torch.where(positive, D + margin, torch.inf).sort(dim=1)  # (B, B)
    positives = torch.searchsorted(reach, torch.full_like(reach[:, :1], torch.inf))  # (B, 1)
    short = torch.searchsorted(reach, torch.where(negative, D, torch.inf), right=True)
    one = torch.ones_like(D[:, :1]).expand_as(D)
    negatives = D.new_zeros(len(D), B + 1).scatter_add(1, short, one)[:, :B].cumsum(dim=1)
    count = D.scatter(1, order, negatives)  # of the positives
    count = torch.where(negative, short.to(D.dtype) - positives, count)
    return torch.where(positive | negative, count, 0)


@torch.no_grad()
def distance_weighted_negatives(
    D: Tensor, negative: Tensor, dim: int, cutoff: float = 0.5, farthest: float = 1.4
) -> Tensor:
    """For every anchor and positive, a negative drawn so that all distances are equally likely.

    P(n | a) ∝ 1 / q(D_an) with q(D) = D^{d−2} (1 − D²/4)^{(d−3)/2}, the density of the distance
    between two uniform points of the unit sphere in d dimensions. A distance below the cutoff
    weighs as much as the cutoff. Nothing is drawn beyond ``farthest``, unless an anchor has no
    nearer negative: then all of its negatives are equally likely. The draws come from torch's
    default generator on the device of D. Shapes as in ``semihard_negatives``.

    Source: Wu, Manmatha, Smola and Krähenbühl 2017, "Sampling Matters in Deep Embedding Learning",
    section 4; the exception as in public code.

    >>> D = torch.tensor([[0.0, 1.0, 1.0, 1.5]])
    >>> distance_weighted_negatives(D, torch.tensor([[False, False, True, True]]), dim=8)[0, 1]
    tensor(2)
    """
    near = D.clamp(cutoff, farthest)
    log_q = (dim - 2) * near.log() + (dim - 3) / 2 * torch.log1p(-near.square() / 4)  # (B, N)
    # Negatives beyond ``farthest`` all weigh alike, D being clamped, and count only if no other is.
    log_weight = torch.where(D.gt(farthest), -1e6, 0) - log_q
    log_weight = log_weight.masked_fill(~negative, torch.finfo(D.dtype).min)
    cumulative = log_weight.softmax(dim=1).cumsum(dim=1)  # (B, N)
    draw = torch.rand(D.shape, dtype=D.dtype, device=D.device) * cumulative[:, -1:]
    draw = draw.masked_fill(negative, 0)  # no positives: 0 is found soonest
    return torch.searchsorted(cumulative, draw, right=True).clamp_max(D.shape[1] - 1)
