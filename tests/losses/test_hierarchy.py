"""HTL beside its formulas, written out image by image, merge by merge and triplet by triplet."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from dmlkit import geometry, losses
from dmlkit.losses.hierarchy import HierarchicalTripletLoss, class_distances, tree_margins
from tests.losses.oracles import assert_same, batch


def training_set(generator, sizes=(5, 3, 1, 4, 2, 6, 1, 3), spread=0.6, dim=4):
    """Classes of unequal sizes around random centers, shuffled."""
    labels = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    centers = torch.randn(len(sizes), dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    order = torch.randperm(len(labels), generator=generator)
    return (centers[labels] + spread * noise)[order], labels[order]


def distances_by_pairs(x: Tensor, y: Tensor, C: int) -> tuple[list[list[float]], list[float]]:
    """Over all pairs of images; NaN where there is none."""
    x = x / x.norm(dim=1, keepdim=True)

    def mean(pairs):
        found = [float((x[i] - x[j]).square().sum()) for i, j in pairs]
        return sum(found) / len(found) if found else math.nan

    of = [(y == c).nonzero().flatten().tolist() for c in range(C)]
    between = [[mean(itertools.product(of[p], of[q])) for q in range(C)] for p in range(C)]
    return between, [mean(itertools.permutations(of[c], 2)) for c in range(C)]


def margins_by_merges(x: Tensor, y: Tensor, C: int, beta: float, levels: int) -> Tensor:
    """The two nearest nodes join, until one is left; a node is the list of its classes."""
    between, within = distances_by_pairs(x, y, C)
    known = [s for s in within if not math.isnan(s)]
    d_0 = sum(known) / max(len(known), 1)
    nodes = [[c] for c in range(C)]
    height = [[0.0] * C for _ in range(C)]
    while len(nodes) > 1:

        def apart(pair):
            each = [between[p][q] for p in pair[0] for q in pair[1]]
            return sum(each) / len(each)

        a, b = min(itertools.combinations(nodes, 2), key=apart)
        for p, q in itertools.product(a, b):
            height[p][q] = height[q][p] = apart((a, b))
        nodes = [node for node in nodes if node not in (a, b)] + [a + b]
    margins = torch.zeros(C, C, dtype=torch.float64)
    for p, q in itertools.permutations(range(C), 2):
        thresholds = [d_0 + level * (4 - d_0) / levels for level in range(levels + 1)]
        joined = next(d for d in thresholds if height[p][q] <= d)
        s_p = d_0 if math.isnan(within[p]) else within[p]
        margins[p, q] = max(0.0, beta + joined - s_p)
    return margins


def test_distances_of_classes_are_means_over_pairs_of_images(generator):
    x, y = training_set(generator)
    between, within = class_distances(3 * x, y, 8)
    expected, expected_within = distances_by_pairs(x, y, 8)
    off = ~torch.eye(8, dtype=torch.bool)
    expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(between[off], expected[off], rtol=1e-12, atol=1e-12)
    expected_within = torch.tensor(expected_within, dtype=torch.float64)
    torch.testing.assert_close(within, expected_within, rtol=1e-12, atol=1e-12, equal_nan=True)
    assert within.isnan().tolist() == [False, False, True, False, False, False, True, False]


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("levels", [1, 4, 16])
@pytest.mark.parametrize("spread", [0.1, 0.6, 3.0])
def test_margins_are_those_of_the_tree(generator, beta, levels, spread):
    x, y = training_set(generator, spread=spread)
    margins = tree_margins(x, y, 8, beta, levels)
    expected = margins_by_merges(x, y, 8, beta, levels)
    torch.testing.assert_close(margins, expected, rtol=1e-9, atol=1e-9)
    assert len(margins.unique()) > 3  # there is more than one margin to be right about


def test_without_two_images_of_a_class_levels_begin_at_0(generator):
    x, y = torch.randn(5, 4, generator=generator), torch.arange(5)
    torch.testing.assert_close(tree_margins(x, y, 5), margins_by_merges(x.double(), y, 5, 0.1, 16))


def test_a_class_wider_than_the_level_has_no_negative_margin():
    """Class 0 is two opposite points, so that s_0 = 4; the others are points."""
    x = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, 1], [0.1, 1], [0.1, 1]])
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    margins = tree_margins(x, y, 3, beta=0.1)
    assert (margins[0] == 0).all()
    assert margins[1, 2] > 1.4  # d_0 = 4/3, and s_1 = 0
    assert (margins >= 0).all()


def loss_by_triplets(x: Tensor, y: Tensor, margins: Tensor) -> Tensor:
    x = x / x.norm(dim=1, keepdim=True)
    terms = []
    for a, p, n in itertools.permutations(range(len(y)), 3):
        if y[a] == y[p] and y[a] != y[n]:
            D_ap, D_an = (x[a] - x[p]).square().sum(), (x[a] - x[n]).square().sum()
            term = D_ap - D_an + margins[y[a], y[n]]
            terms += [term] if term > 0 else []
    return torch.stack(terms).sum() / (2 * len(terms))


def test_loss_is_the_loop_over_triplets(generator):
    loss = HierarchicalTripletLoss(num_classes=6).double()
    x, y = batch(generator)
    without = torch.full((6, 6), 0.1, dtype=torch.float64)
    assert_same(lambda z: loss(z, y), lambda z: loss_by_triplets(z, y, without), x, 1e-6)
    seen = batch(generator, per_class=5)
    loss.refresh(*seen)
    margins = margins_by_merges(*seen, C=6, beta=0.1, levels=16)
    assert not torch.equal(margins, margins.T)  # the anchor's class is the first index
    assert_same(lambda z: loss(z, y), lambda z: loss_by_triplets(z, y, margins), x)


def test_one_margin_for_all_is_the_triplet_loss_halved(generator):
    x, y = batch(generator)
    htl = HierarchicalTripletLoss(6, beta=0.25).double()
    triplets = losses.TripletLoss(margin=0.25, mining="all")
    assert_same(lambda z: htl(z, y), lambda z: triplets(z, y) / 2, x)


DEGENERATE = {
    "one class": ([[1.0, 0], [0, 1.0]], [0, 0]),
    "one image": ([[1.0, 0]], [2]),
    "one image of each class": ([[1.0, 0], [0, 1.0], [-1, 0], [0, -1]], [0, 1, 2, 3]),
    "all in one point": ([[1.0, 0]] * 8, [0, 0, 1, 1, 2, 2, 3, 3]),
    "zero": ([[0.0, 0]] * 8, [0, 0, 1, 1, 2, 2, 3, 3]),
    "opposite pairs": ([[1.0, 0], [-1, 0]] * 4, [0, 0, 1, 1, 2, 2, 3, 3]),
}


@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_training_sets_have_finite_margins(case):
    x, y = (torch.tensor(part) for part in DEGENERATE[case])
    margins = tree_margins(x, y, 4)
    assert margins.isfinite().all()
    assert (margins >= 0).all()
    assert (margins.diagonal() == 0).all()
    if case in ("one class", "one image", "all in one point", "zero"):
        off = ~torch.eye(4, dtype=torch.bool)
        torch.testing.assert_close(margins[off], torch.full((12,), 0.1, dtype=torch.float64))


def test_a_class_without_images_keeps_the_constant_margin(generator):
    x, y = training_set(generator)
    margins = tree_margins(x, 2 * y, 16)  # the odd ones have none
    torch.testing.assert_close(margins[::2, ::2], tree_margins(x, y, 8))
    assert (margins[1, [0, *range(2, 16)]] == 0.1).all()
    assert (margins[[0, *range(2, 16)], 1] == 0.1).all()


def test_the_tree_is_part_of_the_state(generator):
    loss, restored = (HierarchicalTripletLoss(6).double() for _ in range(2))
    x, y = batch(generator)
    before = loss(x, y)
    loss.refresh(*batch(generator))
    restored.load_state_dict(loss.state_dict())
    assert torch.equal(restored(x, y), loss(x, y))
    assert loss(x, y) != before


def test_a_tree_of_the_step_takes_no_gradient(generator):
    x, y = batch(generator)
    loss = HierarchicalTripletLoss(6).double()
    loss.refresh(x.requires_grad_(), y)
    assert not loss.margins.requires_grad
    loss(x, y).backward()
    assert x.grad.isfinite().all()


def test_a_tree_of_labels_that_are_no_class_is_refused():
    with pytest.raises(ValueError, match="labels must be from 0 to 1, as num_classes is 2"):
        HierarchicalTripletLoss(2).refresh(torch.eye(2), torch.tensor([0, 2]))


def test_memory_grows_with_pairs_not_triplets():
    """At B = 600 the triplets of one anchor alone would be 360,000; all, 10⁸ entries or more."""
    x = geometry.normalize(torch.randn(600, 8)).requires_grad_()
    y = torch.arange(600) % 30
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()) or t, lambda t: t
    ):
        HierarchicalTripletLoss(30)(x, y).backward()
    assert max(sizes) == 600 * 600
