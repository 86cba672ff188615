"""Pair and triplet losses against plain loops from the formulas, and against the library."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml
from pytorch_metric_learning import miners as pml_miners
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.losses import Pairs, mining, n_pairs, pairs, regularizers
from tests.losses.oracles import (
    LargestTensor,
    assert_same,
    batch,
    mean_of_active,
    negatives,
    positive_pairs,
    positives,
    unit,
)

# Contrastive


@pytest.mark.parametrize("margins", [(0.0, 0.5), (0.3, 1.4)])
def test_contrastive_equals_the_loop_and_the_library(x_and_y, margins):
    x, y = x_and_y
    near, far = margins

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        pull = [(u[i] - u[j]).norm() - near for i, j in positive_pairs(y)]
        push = [far - (u[i] - u[j]).norm() for i in range(len(y)) for j in negatives(y, i)]
        return mean_of_active(pull) + mean_of_active(push)

    ours = pairs.ContrastiveLoss(*margins)
    assert_same(lambda z: ours(z, y), loop, x)
    theirs = pml.ContrastiveLoss(pos_margin=near, neg_margin=far)
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x)


COSINE_MARGINS = [(0.9, 0.5), (0.9, 0.6), (0.75, 0.6), (1.0, -0.2)]


@pytest.mark.parametrize("margins", COSINE_MARGINS)
def test_contrastive_of_cosines_equals_the_loop_and_the_library(x_and_y, margins):
    x, y = x_and_y
    high, low = margins

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        pull = [high - u[i] @ u[j] for i, j in positive_pairs(y)]
        push = [u[i] @ u[j] - low for i in range(len(y)) for j in negatives(y, i)]
        return mean_of_active(pull) + mean_of_active(push)

    ours = pairs.ContrastiveLoss(*margins, similarity="cosine")
    assert_same(lambda z: ours(z, y), loop, x)
    theirs = pml.ContrastiveLoss(high, low, distance=pml_distances.CosineSimilarity())
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x)


@pytest.mark.parametrize("similarity, margins", [("cosine", (0.9, 0.1)), ("distance", (0.3, 1.4))])
def test_contrastive_sum_equals_the_loop(x_and_y, similarity, margins):
    x, y = x_and_y

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        total = z.new_zeros(())
        for i in range(len(y)):
            for j in range(len(y)):
                if similarity == "cosine":
                    pull, push = margins[0] - u[i] @ u[j], u[i] @ u[j] - margins[1]
                elif i != j:
                    D = (u[i] - u[j]).norm()
                    pull, push = D - margins[0], margins[1] - D
                if i != j:
                    total = total + (pull if y[i] == y[j] else push).relu()
        return total / len(y)

    ours = pairs.ContrastiveLoss(*margins, similarity, "sum")
    assert_same(lambda z: ours(z, y), loop, x)


def test_contrastive_margin_of_positives_is_that_they_coincide():
    for similarity in ("distance", "cosine"):
        loss = pairs.ContrastiveLoss(similarity=similarity)
        x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], dtype=torch.float64)
        assert loss(x, torch.tensor([0, 0, 1, 1])) == 0
        assert loss(x[[0, 2]], torch.tensor([0, 0])) > 0


# Triplet


def semihard_loop(x: Tensor, y: Tensor, margin: float) -> Tensor:
    """FaceNet, section 3.2, word by word."""
    u = unit(x)
    terms = []
    for a in range(len(x)):
        D = {j: (u[a] - u[j]).square().sum() for j in range(len(x))}
        for p in positives(y, a):
            farther = [n for n in negatives(y, a) if D[n] > D[p]]
            n = min(farther, key=D.get) if farther else max(negatives(y, a), key=D.get)
            terms.append((D[p] - D[n] + margin).relu())
    return torch.stack(terms).mean()


def hard_loop(x: Tensor, y: Tensor, margin: float) -> Tensor:
    u = unit(x)
    terms = []
    for a in range(len(x)):
        if positives(y, a):
            p = max((u[a] - u[p]).square().sum() for p in positives(y, a))
            n = min((u[a] - u[n]).square().sum() for n in negatives(y, a))
            terms.append((p - n + margin).relu())
    return torch.stack(terms).mean()


def all_loop(x: Tensor, y: Tensor, margin: float) -> Tensor:
    u = unit(x)
    terms = [
        (u[a] - u[p]).square().sum() - (u[a] - u[n]).square().sum() + margin
        for a, p in positive_pairs(y)
        for n in negatives(y, a)
    ]
    return mean_of_active(terms)


@pytest.mark.parametrize("margin", [0.05, 0.2, 1.0])
@pytest.mark.parametrize(
    "kind, loop", [("semihard", semihard_loop), ("hard", hard_loop), ("all", all_loop)]
)
def test_triplet_equals_the_loop(x_and_y, kind, loop, margin):
    x, y = x_and_y
    ours = pairs.TripletLoss(margin, kind)
    assert_same(lambda z: ours(z, y), lambda z: loop(z, y, margin), x)


def test_all_triplets_equal_the_loop_where_samples_coincide(generator):
    x, y = batch(generator, classes=3)
    x = torch.cat([x, x, x[:3]])  # the same point in several classes, and twice in one
    y = torch.cat([y, y.roll(1), y[:3]])
    ours = pairs.TripletLoss(0.2, "all")(x, y)
    torch.testing.assert_close(ours, all_loop(x, y, 0.2), rtol=1e-10, atol=1e-10)


def test_all_triplets_equal_the_library(x_and_y):
    x, y = x_and_y
    theirs = pml.TripletMarginLoss(margin=0.2, distance=pml_distances.LpDistance(power=2))
    ours = pairs.TripletLoss(0.2, "all")
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x)


def drawn(x: Tensor, y: Tensor, seed: int) -> list[tuple[int, int, int]]:
    """The triplets that distance-weighted mining draws from this seed."""
    D = geometry.distances(geometry.normalize(x))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        n = mining.distance_weighted_negatives(D, geometry.different_label(y), x.shape[1])
    return [(a, p, int(n[a, p])) for a, p in positive_pairs(y)]


def seeded(loss: nn.Module, y: Tensor, seed: int) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return loss(x, y)

    return call


def test_distance_weighted_triplet_equals_the_loop(x_and_y):
    x, y = x_and_y
    triplets = drawn(x, y, seed=3)
    assert all(y[a] != y[n] for a, _, n in triplets)

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        terms = [
            (u[a] - u[p]).square().sum() - (u[a] - u[n]).square().sum() + 0.7
            for a, p, n in triplets
        ]
        return torch.stack(terms).relu().mean()

    assert_same(seeded(pairs.TripletLoss(0.7, "distance"), y, seed=3), loop, x)


# Lifted structure


def test_an_anchor_without_a_negative_among_others_is_left_out(generator):
    """Of anchors 0, 0, 1 and others 0, 0, 0 only the last has a negative, and no positive."""
    x, others = torch.randn(2, 3, 5, generator=generator, dtype=torch.float64)
    y = torch.tensor([0, 0, 1])
    positive = y[:, None] == torch.zeros(3)
    pairs_of = Pairs(x, others, y, positive, ~positive)
    for loss in (pairs.TripletLoss(), pairs.MarginLoss(2).double()):
        assert loss.of(pairs_of) == 0


def test_all_triplets_are_0_where_none_is_active(generator):
    x = torch.eye(4, dtype=torch.float64)[[0, 0, 1, 1]].requires_grad_()
    value = pairs.TripletLoss(mining="all")(x, torch.tensor([5, 5, 7, 7]))
    value.backward()
    assert value == 0
    assert x.grad.abs().max() == 0


def test_ranked_list_counts_the_positives_of_its_own_anchor(generator):
    """Against others that are not the anchors, the means are over rows."""
    x, others = (F.normalize(torch.randn(n, 5, generator=generator), dim=1) for n in (2, 3))
    positive = torch.tensor([[True, True, True], [True, False, False]])
    loss = pairs.RankedListLoss(negative_weight=0.0)
    pull = ((x[:, None] - others).norm(dim=2) - (loss.alpha - loss.margin)).relu()
    rows = [row[chosen & (row > 0)] for row, chosen in zip(pull, positive, strict=True)]
    expected = sum(row.mean() if len(row) else 0 for row in rows) / 2
    value = loss.of(Pairs(x, others, torch.arange(2), positive, ~positive))
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("margin", [1.0, 3.0])
def test_lifted_structure_equals_the_loop_and_the_library(x_and_y, margin):
    x, y = x_and_y

    def loop(z: Tensor) -> Tensor:
        terms = []
        for i, j in positive_pairs(y):
            if i < j:
                push = sum((margin - (z[i] - z[k]).norm()).exp() for k in negatives(y, i))
                push = push + sum((margin - (z[j] - z[k]).norm()).exp() for k in negatives(y, j))
                terms.append((push.log() + (z[i] - z[j]).norm()).relu().square())
        return torch.stack(terms).sum() / (2 * len(terms))

    ours = pairs.LiftedStructureLoss(margin)
    assert_same(lambda z: ours(z, y), loop, x)
    raw = pml_distances.LpDistance(normalize_embeddings=False)
    theirs = pml.LiftedStructureLoss(neg_margin=margin, distance=raw)
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x)


# Multi-similarity


@pytest.mark.parametrize("epsilon", [0.1, -0.2])
def test_multi_similarity_equals_the_loop_and_the_library(x_and_y, epsilon):
    x, y = x_and_y
    alpha, beta, base = 2.0, 50.0, 0.5

    def loop(z: Tensor) -> Tensor:
        s = unit(z) @ unit(z).T
        terms = []
        for a in range(len(y)):
            P, N = positives(y, a), negatives(y, a)
            pull = [p for p in P if s[a, p] - epsilon < max(s[a, n] for n in N)]
            push = [n for n in N if P and s[a, n] + epsilon > min(s[a, p] for p in P)]
            pull_sum = sum([(-alpha * (s[a, p] - base)).exp() for p in pull], s.new_zeros(()))
            push_sum = sum([(beta * (s[a, n] - base)).exp() for n in push], s.new_zeros(()))
            terms.append((1 + pull_sum).log() / alpha + (1 + push_sum).log() / beta)
        return torch.stack(terms).mean()

    ours = pairs.MultiSimilarityLoss(alpha, beta, base, epsilon)
    assert_same(lambda z: ours(z, y), loop, x)
    theirs = pml.MultiSimilarityLoss(alpha, beta, base)
    miner = pml_miners.MultiSimilarityMiner(epsilon)
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y, miner(z, y)), x)


def test_multi_similarity_does_not_overflow_at_a_sharp_scale():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    value = pairs.MultiSimilarityLoss(alpha=500.0, beta=1000.0)(x, torch.tensor([0, 0, 1]))
    # Anchor 0: s⁺ = −1, s⁻ = 1; anchor 1: s⁺ = s⁻ = −1; anchor 2 has no positive.
    torch.testing.assert_close(value, torch.tensor((1.5 + 0.5 + 1.5 + 0.0 + 0.0) / 3))


def test_multi_similarity_keeps_the_digits_of_a_small_term():
    """Anchors 0 and 1 have a positive and a negative, each of the term log(1 + e^{−20})/40."""
    loss = pairs.MultiSimilarityLoss(alpha=40.0, beta=40.0, epsilon=2.0)
    value = loss(torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]))
    torch.testing.assert_close(value, torch.tensor(-20.0).exp() * 4 / 40 / 3, rtol=1e-5, atol=0)


# Ranked list


@pytest.mark.parametrize("temperature, weight", [(10.0, 0.5), (0.0, 0.3), (1000.0, 0.5)])
def test_ranked_list_equals_the_loop(x_and_y, temperature, weight):
    x, y = x_and_y
    alpha, margin = 1.2, 0.4

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        terms = []
        for a in range(len(y)):
            pull = [(u[a] - u[p]).norm() - (alpha - margin) for p in positives(y, a)]
            push = [alpha - (u[a] - u[n]).norm() for n in negatives(y, a)]
            push = torch.stack([v for v in push if v > 0] or [z.new_zeros(())])
            L_N = (F.softmax(temperature * push, dim=0) * push).sum()
            L_P = mean_of_active(pull) if pull else 0
            terms.append((1 - weight) * L_P + weight * L_N)
        return torch.stack(terms).mean()

    ours = pairs.RankedListLoss(alpha, margin, temperature, weight)
    assert_same(lambda z: ours(z, y), loop, x)


def test_ranked_list_equals_the_library(x_and_y):
    """It adds 1e-5 per sample to each sum of weights: hence the tolerance."""
    x, y = x_and_y
    with pytest.warns(UserWarning, match="temperature values may lead to overflow"):
        theirs = pml.RankedListLoss(margin=0.4, Tn=10, alpha=1.2, imbalance=0.5)
    ours = pairs.RankedListLoss()
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x, tolerance=3e-4)


# Margin


def margin_loss(num_classes: int, generator: torch.Generator) -> pairs.MarginLoss:
    loss = pairs.MarginLoss(num_classes).double()
    loss.beta.data = 1.0 + 0.5 * torch.rand(num_classes, generator=generator, dtype=torch.float64)
    return loss


def test_margin_equals_the_loop_and_the_library_on_the_same_triplets(x_and_y, generator):
    x, y = x_and_y
    y = y + 40  # no label is an index into this batch
    ours = margin_loss(60, generator)
    triplets = drawn(x, y, seed=5)

    def loop(z: Tensor, beta: Tensor) -> Tensor:
        u = unit(z)
        terms = []
        for a, p, n in triplets:
            terms.append(0.2 + (u[a] - u[p]).norm() - beta[y[a]])
            terms.append(0.2 + beta[y[a]] - (u[a] - u[n]).norm())
        return mean_of_active(terms)

    assert_same(seeded(ours, y, seed=5), lambda z: loop(z, ours.beta), x)
    theirs = pml.MarginLoss(margin=0.2, learn_beta=True, num_classes=60).double()
    theirs.beta.data = ours.beta.data.clone()
    tuples = tuple(torch.tensor(indices) for indices in zip(*triplets, strict=True))
    assert_same(seeded(ours, y, seed=5), lambda z: theirs(z, y, tuples), x)

    gradient = torch.autograd.grad(seeded(ours, y, seed=5)(x), ours.beta)[0]
    torch.testing.assert_close(gradient, torch.autograd.grad(loop(x, ours.beta), ours.beta)[0])
    torch.testing.assert_close(gradient, torch.autograd.grad(theirs(x, y, tuples), theirs.beta)[0])
    absent = [c for c in range(60) if c not in y]
    assert gradient.count_nonzero() > 1
    assert gradient[absent].count_nonzero() == 0


def test_margin_draws_anew_from_the_default_generator(generator):
    x, y = batch(generator, classes=12, dim=3)
    loss = pairs.MarginLoss(12)
    values = [seeded(loss, y, seed)(x).item() for seed in (0, 0, 1)]
    assert values[0] == values[1] != values[2]


# All of them

EVERY: dict[str, Callable[[], nn.Module]] = {
    "contrastive": lambda: pairs.ContrastiveLoss(0.1, 1.4),
    **{kind: lambda kind=kind: pairs.TripletLoss(0.9, kind)
       for kind in ("semihard", "hard", "all", "distance")},
    "lifted_structure": pairs.LiftedStructureLoss,
    "contrastive_cosine": lambda: pairs.ContrastiveLoss(0.9, 0.2, "cosine"),
    "contrastive_sum": lambda: pairs.ContrastiveLoss(0.9, 0.2, "cosine", "sum"),
    "n_pairs": lambda: n_pairs.NPairsLoss(0.01),
    "n_pairs_both": lambda: n_pairs.NPairsLoss(0.01, "both", scale=2),
    "angular": lambda: n_pairs.AngularLoss(40, n_pairs_weight=0.5),
    "irt": regularizers.IRTLoss,
    "tcm": lambda: regularizers.ThresholdConsistentMarginLoss(pairs.ContrastiveLoss(0.1, 1.4)),
    "multi_similarity": pairs.MultiSimilarityLoss,
    "ranked_list": pairs.RankedListLoss,
    "margin": lambda: pairs.MarginLoss(12).double(),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERY)
def test_derivatives_of_both_orders_equal_finite_differences(generator, name):
    x, y = batch(generator, classes=3, per_class=3, dim=4)
    loss = seeded(EVERY[name](), y, seed=1)
    assert torch.autograd.gradcheck(loss, x.requires_grad_())
    assert torch.autograd.gradgradcheck(loss, x)


@pytest.mark.parametrize("name", EVERY)
def test_many_batches_at_once(generator, name):
    """``vmap`` over batches equals a loop, as far as no draw differs."""
    x, y = batch(generator, classes=3, per_class=3, dim=4)
    loss = EVERY[name]()
    stacked = torch.stack([x, x.flip(0), 2 * x])
    together = torch.func.vmap(lambda z: loss(z, y), randomness="different")(stacked)
    assert together.shape == (3,)
    if name not in ("distance", "margin"):
        torch.testing.assert_close(together, torch.stack([loss(z, y) for z in stacked]))


@pytest.mark.parametrize("name", ["contrastive", "ranked_list"])
def test_tight_clusters_keep_their_gradient(generator, name):
    """Pairs 0.001 apart on the sphere, in float32: their distances are not lost in rounding."""
    center = torch.randn(8, 1, 512, generator=generator)
    x = center / center.norm(dim=2, keepdim=True)
    x = (x + 0.001 / 512**0.5 * torch.randn(8, 4, 512, generator=generator)).flatten(0, 1)
    y = torch.arange(8).repeat_interleave(4)
    make = {
        "contrastive": pairs.ContrastiveLoss,
        "ranked_list": lambda: pairs.RankedListLoss(0.5, 0.5),
    }
    gradients = []
    for dtype in (torch.float32, torch.float64):
        z = x.to(dtype).requires_grad_()
        gradients.append(torch.autograd.grad(make[name]()(z, y), z)[0].double())
    error = (gradients[0] - gradients[1]).norm() / gradients[1].norm()
    assert error < 1e-3


def test_lifted_structure_is_precise_when_norms_differ(generator):
    x = torch.randn(48, 16, generator=generator) * torch.logspace(0, 6, 48)[:, None]
    y = torch.arange(48) // 4
    gradients = []
    for dtype in (torch.float32, torch.float64):
        z = x.to(dtype).requires_grad_()
        gradients.append(torch.autograd.grad(pairs.LiftedStructureLoss()(z, y), z)[0].double())
    assert (gradients[0] - gradients[1]).norm() < 1e-6 * gradients[1].norm()
    error = (gradients[0] - gradients[1]).norm(dim=1) / gradients[1].norm(dim=1)
    assert error.max() < 1e-3  # what the float32 of the equation leaves, the library's too


@pytest.mark.parametrize("name", EVERY)
def test_memory_is_quadratic_in_the_batch(name):
    """No tensor of the forward or backward pass has more than a few times B² elements."""
    B = 96
    x = torch.randn(B, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.arange(B) // 8
    with LargestTensor() as seen:
        EVERY[name]()(x, y).backward()
    assert B * B // 4 <= seen.elements <= 2 * B * B
