"""Pair and triplet losses against plain loops from the formulas, and against the library."""

import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit import losses
from tests.losses.oracles import assert_same, batch


def test_contrastive_equals_the_library(generator):
    x, y = batch(generator)
    theirs = pml.ContrastiveLoss(pos_margin=0, neg_margin=0.5)
    assert_same(lambda z: losses.ContrastiveLoss()(z, y), lambda z: theirs(z, y), x)


def semihard_loop(x: Tensor, y: Tensor, margin: float) -> Tensor:
    """FaceNet, section 3.2, word by word."""
    u = x / x.norm(dim=1, keepdim=True)
    terms = []
    for a in range(len(x)):
        D = {j: (u[a] - u[j]).square().sum() for j in range(len(x))}
        negatives = [n for n in D if y[n] != y[a]]
        for p in (j for j in D if j != a and y[j] == y[a]):
            farther = [n for n in negatives if D[n] > D[p]]
            n = min(farther, key=D.__getitem__) if farther else max(negatives, key=D.__getitem__)
            terms.append((D[p] - D[n] + margin).relu())
    return torch.stack(terms).mean()


def test_semihard_triplet_equals_the_loop(generator):
    for classes, margin in ((2, 0.2), (6, 0.2), (6, 1.0)):
        x, y = batch(generator, classes)
        ours = losses.TripletLoss(margin=margin)
        assert_same(lambda z: ours(z, y), lambda z: semihard_loop(z, y, margin), x)  # noqa: B023
