"""Which triplets and pairs of a batch count."""

import torch
from torch import Tensor


def semihard_negatives(D: Tensor, negative: Tensor) -> Tensor:
    """For every anchor a and positive p, the nearest negative farther than p, else the farthest.

    n*(a, p) = argmin over n with D_an > D_ap of D_an, else argmax over n of D_an.
    Distances (B, B) and the mask of negatives (B, B) -> indices (B, B); entries of (a, p) that are
    no positive pair, and rows without a negative, mean nothing. Each row is sorted once, so the
    cost is O(B² log B) time and O(B²) memory, not the B³ of all triplets.

    Source: Schroff, Kalenichenko and Philbin 2015, "FaceNet", section 3.2.

    >>> D = torch.tensor([[0.0, 1.0, 3.0, 2.0]])
    >>> semihard_negatives(D, torch.tensor([[False, False, True, True]]))[0, 1]
    tensor(3)
    """
    order_of_negatives = torch.where(negative, D, torch.inf)
    ascending, index = order_of_negatives.sort(dim=1)  # (B, B), negatives first
    farther = torch.searchsorted(ascending, D.contiguous(), right=True)  # first one beyond p
    farthest = (negative.sum(dim=1, keepdim=True) - 1).clamp_min(0)
    return index.gather(1, torch.minimum(farther, farthest))
