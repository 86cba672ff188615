"""N-pairs and angular loss against plain loops from the formulas, and against the library."""

import math

import pytest
import torch
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit import losses
from dmlkit.losses import n_pairs
from tests.losses.oracles import (
    assert_same,
    batch,
    negatives,
    positive_pairs,
    positives,
    unit,
)

# N-pairs


def n_pairs_loop(x: Tensor, y: Tensor, l2_weight: float = 0.0) -> Tensor:
    firsts = [y.tolist().index(c) for c in y.unique() if (y == c).sum() > 1]
    firsts = [(a, positives(y, a)[0]) for a in firsts]
    terms = []
    for a, p in firsts:
        others = [(x[a] @ x[q] - x[a] @ x[p]).exp() for _, q in firsts if q != p]
        penalty = x[a].square().sum() + x[p].square().sum()
        terms.append((1 + sum(others)).log() + l2_weight * penalty)
    return torch.stack(terms).mean()


@pytest.mark.parametrize("l2_weight", [0.0, 2e-3 * 0.25])
def test_n_pairs_equals_the_loop(x_and_y, l2_weight):
    x, y = x_and_y
    ours = n_pairs.NPairsLoss(l2_weight)
    assert_same(lambda z: ours(z, y), lambda z: n_pairs_loop(z, y, l2_weight), x)


@pytest.mark.parametrize("per_class", [2, 4])
def test_n_pairs_equals_the_library(generator, per_class):
    x, y = batch(generator, per_class=per_class)
    raw = pml_distances.DotProductSimilarity(normalize_embeddings=False)
    theirs = pml.NPairsLoss(distance=raw)
    assert_same(lambda z: n_pairs.NPairsLoss()(z, y), lambda z: theirs(z, y), x)


def test_n_pairs_rewards_similarity_to_the_positive():
    """A distance in place of the dot product, as printed in the comparison study, would not."""
    y = torch.tensor([0, 0, 1, 1])
    matching = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    crossed = matching[[0, 2, 1, 3]]
    assert n_pairs.NPairsLoss()(matching, y) < n_pairs.NPairsLoss()(crossed, y)


def logits_loop(x: Tensor, y: Tensor, direction: str, scale: float | None) -> Tensor:
    """Each view of a class among the other views of all classes, one exponential at a time."""
    z = x if scale is None else scale * unit(x)
    firsts = [y.tolist().index(c) for c in y.unique() if (y == c).sum() > 1]
    views = [(z[a], z[positives(y, a)[0]]) for a in firsts]
    terms = []
    for way in ("forward", "reversed"):
        if direction in (way, "both"):
            for c, own in enumerate(views):
                query, target = own if way == "forward" else own[::-1]
                others = [v[1] if way == "forward" else v[0] for i, v in enumerate(views) if i != c]
                terms.append((1 + sum((query @ (o - target)).exp() for o in others)).log())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("scale", [None, 2.0, 5])
@pytest.mark.parametrize("direction", ["forward", "reversed", "both"])
def test_n_pairs_directions_and_scales_equal_the_loop(x_and_y, direction, scale):
    x, y = x_and_y
    ours = n_pairs.NPairsLoss(direction=direction, scale=scale)
    assert_same(lambda z: ours(z, y), lambda z: logits_loop(z, y, direction, scale), x)


def test_reversed_n_pairs_exchange_first_and_second(generator):
    x, y = batch(generator, per_class=2)
    forward, back = (n_pairs.NPairsLoss(direction=d) for d in ("forward", "reversed"))
    assert_same(lambda z: forward(z.flip(0), y.flip(0)), lambda z: back(z, y), x)
    assert not torch.isclose(forward(x, y), back(x, y))


def test_normalized_n_pairs_is_cross_entropy_of_25_cosines(generator):
    """The loss on which SEC was shown: SupCon's and NT-Xent's logits at a temperature of 1/25."""
    x, y = batch(generator, per_class=2)
    order = y.argsort(stable=True)

    def cross_entropy(z: Tensor) -> Tensor:
        u = torch.nn.functional.normalize(z[order])
        logits = u[::2] @ u[1::2].T / 0.04
        return torch.nn.functional.cross_entropy(logits, torch.arange(len(logits)))

    ours = losses.build("n_pairs_normalized")
    assert_same(lambda z: ours(z, y), cross_entropy, x)


def test_penalty_of_normalized_n_pairs_is_of_the_raw_lengths(generator):
    x, y = batch(generator, per_class=2)
    with_penalty, without = (n_pairs.NPairsLoss(w, scale=5) for w in (0.01, 0.0))
    torch.testing.assert_close(
        with_penalty(x, y) - without(x, y), 0.01 * 2 * x.square().sum(dim=1).mean()
    )


# Angular


@pytest.mark.parametrize("degrees, n_pairs_weight", [(45, 0.0), (30, 1.0), (60, 2.0)])
def test_angular_equals_the_loop(x_and_y, degrees, n_pairs_weight):
    x, y = x_and_y
    t = math.tan(math.radians(degrees)) ** 2

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        terms = []
        for a, p in positive_pairs(y):
            own = 2 * (1 + t) * (u[a] @ u[p])
            others = sum((4 * t * (u[a] + u[p]) @ u[n] - own).exp() for n in negatives(y, a))
            terms.append((1 + others).log())
        return torch.stack(terms).mean() + n_pairs_weight * n_pairs_loop(z, y)

    ours = n_pairs.AngularLoss(degrees, n_pairs_weight)
    assert_same(lambda z: ours(z, y), loop, x)


def test_angular_equals_the_library_on_the_sphere(x_and_y):
    """It leaves negatives as they come, so that it agrees on normalized input alone."""
    x, y = x_and_y
    x = unit(x)
    ours, theirs = n_pairs.AngularLoss(45)(x, y), pml.AngularLoss(45)(x, y)
    torch.testing.assert_close(ours, theirs, rtol=1e-7, atol=1e-7)  # its angle is float32
    assert not torch.isclose(pml.AngularLoss(45)(3 * x, y), theirs)
    torch.testing.assert_close(n_pairs.AngularLoss(45)(3 * x, y), ours)


def test_angular_is_finite_at_its_largest_angle():
    """A batch that drives every exponent to its extremes, in float32."""
    a = torch.tensor([1.0, 0.0])
    x = torch.stack([a, a, -a, -a, a, -a]).requires_grad_()
    value = n_pairs.AngularLoss(70)(x, torch.tensor([0, 0, 1, 1, 2, 2]))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
