"""Proxy losses against plain loops from the formulas, and against the library."""

import torch
from pytorch_metric_learning import losses as pml

from dmlkit import losses
from tests.losses.oracles import assert_same, batch


def test_normalized_softmax_equals_the_library(generator):
    x, y = batch(generator)
    ours = losses.NormalizedSoftmaxLoss(6, 8).double()
    theirs = pml.NormalizedSoftmaxLoss(6, 8, temperature=0.05).double()
    theirs.W.data = ours.proxies.data.T.clone()
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x)
    gradients = [
        torch.autograd.grad(f(x, y), w)[0] for f, w in ((ours, ours.proxies), (theirs, theirs.W))
    ]
    torch.testing.assert_close(gradients[0], gradients[1].T)
