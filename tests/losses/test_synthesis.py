"""Embedding expansion and symmetrical synthesis against plain loops, and what they can do."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners, reducers
from torch import Tensor

from dmlkit import losses
from dmlkit.losses import EmbeddingExpansionLoss, SymmetricalSynthesisLoss
from dmlkit.losses.synthesis import interpolate, reflect
from tests.losses.conftest import UNEVEN
from tests.losses.oracles import LargestTensor, assert_same, batch, unit

F64 = torch.float64


@pytest.fixture(params=["PK", "pairs", "uneven"])
def x_and_y(request: pytest.FixtureRequest, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = batch(generator, per_class=2 if request.param == "pairs" else 4)
    return (x[: len(UNEVEN)], UNEVEN) if request.param == "uneven" else (x, y)


# Embedding expansion


def expansion_loop(x: Tensor, y: Tensor, points: int, margin: float, soft: bool) -> Tensor:
    u = unit(x)
    made = []  # of each sample: itself, and its synthetic points
    for i in range(len(y)):
        own = [j for j in range(len(y)) if y[j] == y[i]]
        partner = own[(own.index(i) + 1) % len(own)]
        made.append([u[i]])
        for k in range(1, points + 1) if len(own) > 1 else ():
            made[i].append(unit((k * u[partner] + (points + 1 - k) * u[i]) / (points + 1)))
    terms = []
    for i in range(len(y)):
        far = [(u[i] - u[p]).norm() for p in range(len(y)) if p != i and y[p] == y[i]]
        others = [b for j in range(len(y)) if y[j] != y[i] for b in made[j]]
        near = [(a - b).norm() for a in made[i] for b in others]
        if far:
            gap = torch.stack(far).max() - torch.stack(near).min()
            terms.append((1 + gap.exp()).log() if soft else (gap + margin).relu())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("points", [0, 1, 2, 3])
@pytest.mark.parametrize("soft", [False, True])
def test_expansion_equals_the_loop(x_and_y, points, soft):
    x, y = x_and_y
    ours = EmbeddingExpansionLoss(points, margin=0.3, soft=soft)
    assert_same(lambda z: ours(z, y), lambda z: expansion_loop(z, y, points, 0.3, soft), x)


def test_expansion_without_points_is_the_librarys_hardest_triplets(generator):
    x, y = batch(generator)
    theirs = pml.TripletMarginLoss(margin=0.2, reducer=reducers.MeanReducer())
    mine = miners.BatchHardMiner()
    ours = EmbeddingExpansionLoss(points=0)
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y, mine(z, y)), x)


@pytest.mark.parametrize("points", [1, 2, 3, 8])
def test_synthetic_points_never_make_a_triplet_easier(points, x_and_y):
    x, y = x_and_y
    assert EmbeddingExpansionLoss(points)(x, y) >= EmbeddingExpansionLoss(0)(x, y) - 1e-12


def test_partners_follow_each_other_within_a_class_in_any_order_of_the_batch():
    x = torch.arange(8.0)[:, None]
    middle = interpolate(x, torch.tensor([5, 6, 5, 7, 6, 5, 5, 8]), points=1)[1]
    partner = 2 * middle - x
    assert partner.squeeze().tolist() == [2, 4, 5, 3, 1, 6, 0, 7]


def test_points_of_two_samples_are_made_twice_and_those_of_more_once(generator):
    """With classes of two, half of the search is repeated; in a longer circle no segment is."""
    x, y = batch(generator, classes=1, per_class=2)
    z = interpolate(x, y, points=3)  # (4, 2, d)
    torch.testing.assert_close(z[1:, 0], z[1:, 1].flip(0))
    x, y = batch(generator, classes=1, per_class=3)
    assert torch.pdist(interpolate(x, y, points=3).flatten(0, 1)).min() > 1e-3


def share_won(measure: str, generator: torch.Generator, cases: int = 1000) -> float:
    """How often, of two classes of two samples, the closest pair of points is not a real one."""
    y = torch.arange(2 * cases).repeat_interleave(2)
    x = unit(torch.randn(len(y), 5, generator=generator, dtype=F64))
    x = x * torch.rand(len(y), 1, generator=generator, dtype=F64)
    if measure == "cosine":
        x = unit(x)
    z = interpolate(x, y, points=2)
    if measure == "cosine":
        z = unit(z)
    one, other = z.unflatten(1, (cases, 2, 2)).unbind(2)  # (3, cases, 2, 5): points of a class
    one, other = (p.transpose(0, 1).flatten(1, 2) for p in (one, other))  # (cases, 6, 5)
    closeness = -torch.cdist(one, other) if measure == "distance" else one @ other.mT
    real = closeness[:, :2, :2].amax(dim=(1, 2))
    return (closeness.amax(dim=(1, 2)) > real + 1e-12).double().mean().item()


def test_by_a_raw_dot_product_no_synthetic_point_can_win(generator):
    """A bilinear form on two segments is largest at ends; a distance, or the sphere, is not flat.

    So N-pairs on raw embeddings would never choose a synthetic point, if it may choose the real.
    """
    assert share_won("dot product", generator) == 0
    assert share_won("cosine", generator) > 0.05
    assert share_won("distance", generator) > 0.05


def test_expansion_holds_a_square_buffer_however_many_points(generator):
    x, y = batch(generator, classes=40, dim=2)
    with LargestTensor() as seen:
        EmbeddingExpansionLoss(points=8)(x.requires_grad_(), y).backward()
    assert seen.elements == len(y) ** 2


# Symmetrical synthesis


def synthesis_loop(x: Tensor, y: Tensor, l2_weight: float) -> Tensor:
    pairs = []
    for c in y.unique():
        own = (y == c).nonzero().squeeze(1)
        if len(own) > 1:
            pairs.append((x[own[0]], x[own[1]]))
    total = torch.zeros((), dtype=x.dtype)
    points = []
    for f, g in pairs:
        mirror_g = 2 * (g @ f) / (f @ f) * f - g
        mirror_f = 2 * (f @ g) / (g @ g) * g - f
        points.append((f, g, mirror_g, mirror_f))
    for c, mine in enumerate(points):
        logits = []
        for theirs in points:
            chosen = [mine[a] @ theirs[b] for a in range(4) for b in range(a + 1, 4)]
            logits.append(torch.stack(chosen).amax())
        f, g = pairs[c]
        total = total - F.log_softmax(torch.stack(logits), dim=0)[c]
        total = total + l2_weight * (f @ f + g @ g)
    return total / len(pairs)


@pytest.mark.parametrize("l2_weight", [0.0, 5e-4, 0.1])
def test_synthesis_equals_the_loop(x_and_y, l2_weight):
    x, y = x_and_y
    ours = SymmetricalSynthesisLoss(l2_weight)
    assert_same(lambda z: ours(z, y), lambda z: synthesis_loop(z, y, l2_weight), x)


def test_reflection_keeps_norm_and_angle_and_adds_angles(generator):
    f, g = torch.randn(2, 50, 6, generator=generator, dtype=F64)
    s, t = reflect(g, f), reflect(f, g)
    torch.testing.assert_close(s.norm(dim=1), g.norm(dim=1))
    torch.testing.assert_close(reflect(s, f), g)
    theta = F.cosine_similarity(f, g).acos()
    for multiple, one, other in ((1, f, s), (1, g, t), (2, f, t), (2, g, s), (3, s, t)):
        torch.testing.assert_close(F.cosine_similarity(one, other), (multiple * theta).cos())
    torch.testing.assert_close((f * s).sum(dim=1), (f * g).sum(dim=1))  # the tie on the diagonal
    assert torch.equal(reflect(g, torch.zeros_like(f)), -g)


def at_angles(degrees: list[float], norms: list[float]) -> Tensor:
    return torch.tensor(
        [
            [r * math.cos(math.radians(a)), r * math.sin(math.radians(a))]
            for a, r in zip(degrees, norms, strict=True)
        ],
        dtype=F64,
    )


def test_opposite_positives_count_as_equal_ones():
    """A trap: f's mirror image at g = −f is f itself, and the maximum takes it as f's positive."""
    y = torch.tensor([0, 0, 1, 1])
    equal, opposite = (at_angles([0, a, 90, 90 + a], [2, 2, 2, 2]) for a in (0, 180))
    symmetric, n_pairs = SymmetricalSynthesisLoss(0.0), losses.NPairsLoss()
    torch.testing.assert_close(symmetric(opposite, y), symmetric(equal, y))
    assert n_pairs(opposite, y) > 100 * n_pairs(equal, y)


def test_length_is_rewarded_where_the_norms_of_a_pair_differ():
    """‖f‖² cos 2θ can be above fᵀg, so that one embedding gains by growing."""
    pair = at_angles([0, 30], [3, 1])
    x = torch.block_diag(pair, pair)  # two classes in planes of their own: other dot products are 0
    M = 3**2 * math.cos(math.radians(60))
    assert pair[0] @ pair[1] < M
    loss = SymmetricalSynthesisLoss(0.0)(x, torch.tensor([0, 0, 1, 1]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-M)))
