"""SupCon, Circle and contextual similarity against loops and the library."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit.losses import CircleLoss, ContextualLoss, Pairs, SupConLoss
from tests.losses.oracles import assert_same, batch, negatives, positives, unit

# SupCon


def supcon_loop(x: Tensor, y: Tensor, T: float, side: str) -> Tensor:
    """Equations 2 (out) and 3 (in) of the paper, by anchor and positive."""
    u, terms = unit(x), []
    for i in range(len(y)):
        if P := positives(y, i):
            total = sum((u[i] @ u[j] / T).exp() for j in range(len(y)) if j != i)
            shares = torch.stack([(u[i] @ u[p] / T).exp() / total for p in P])
            terms.append(-shares.log().mean() if side == "out" else -shares.mean().log())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("side", ["out", "in"])
@pytest.mark.parametrize("T", [0.07, 0.5])
def test_supcon_equals_the_loop(x_and_y, T, side):
    x, y = x_and_y
    assert_same(
        lambda z: SupConLoss(T, side)(z, y), lambda z: supcon_loop(z, y, T, side), x, tolerance=1e-9
    )


def test_supcon_equals_the_library_where_every_anchor_has_a_positive(generator):
    x, y = batch(generator)
    assert_same(lambda z: SupConLoss(0.1)(z, y), lambda z: pml.SupConLoss(0.1)(z, y), x, 1e-9)


def test_supcon_with_two_samples_a_class_is_nt_xent(generator):
    x, y = batch(generator, classes=5, per_class=2)
    for side in ("out", "in"):
        loss = SupConLoss(0.2, side)
        assert_same(lambda z, f=loss: f(z, y), lambda z: pml.NTXentLoss(0.2)(z, y), x, 1e-9)


def test_supcon_inside_the_log_is_at_most_outside(generator):
    x, y = batch(generator)
    assert SupConLoss(side="in")(x, y) < SupConLoss(side="out")(x, y)


@pytest.mark.parametrize("side", ["out", "in"])
def test_supcon_of_one_class_is_a_loss(generator, side):
    """Equal to the loop, where the library has 0."""
    x, _ = batch(generator, classes=3, per_class=2)
    y = torch.zeros(6, dtype=torch.int64)
    loss = SupConLoss(0.1, side)
    assert_same(lambda z: loss(z, y), lambda z: supcon_loop(z, y, 0.1, side), x, 1e-9)
    assert pml.SupConLoss(0.1)(x, y) == 0


# Circle


def circle_loop(x: Tensor, y: Tensor, m: float, gamma: float) -> Tensor:
    u, terms = unit(x), []
    for i in range(len(y)):
        P, N = positives(y, i), negatives(y, i)
        if P and N:
            pull = [(-gamma * (1 + m - (s := u[i] @ u[p]).item()) * (s - 1 + m)).exp() for p in P]
            push = [(gamma * max((s := u[i] @ u[n]).item() + m, 0) * (s - m)).exp() for n in N]
            terms.append((1 + sum(push) * sum(pull)).log())
    return torch.stack(terms).mean()


@pytest.mark.parametrize("m, gamma", [(0.4, 80.0), (0.25, 16.0)])
def test_circle_equals_the_loop_and_the_library(x_and_y, m, gamma):
    x, y = x_and_y
    ours, theirs = CircleLoss(m, gamma), pml.CircleLoss(m, gamma)
    theirs.soft_plus = torch.nn.Softplus(threshold=40)  # by default it is off by e⁻²⁰ above 20
    assert_same(lambda z: ours(z, y), lambda z: circle_loop(z, y, m, gamma), x, tolerance=1e-9)
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y), x, tolerance=1e-9)


def at_angles(positive: float, negative: float) -> tuple[Tensor, Tensor]:
    """An anchor with one positive and one negative at these cosines."""
    rows = [[1.0, 0.0], *([s, (1 - s * s) ** 0.5] for s in (positive, negative))]
    return torch.tensor(rows, dtype=torch.float64), torch.tensor([0, 0, 1])


def one_anchor(x: Tensor, y: Tensor, gamma: float = 80.0) -> Tensor:
    positive, negative = torch.tensor([[[False, True, False]], [[False, False, True]]])
    return CircleLoss(gamma=gamma).of(Pairs(x[:1], x, y[:1], positive, negative))


@pytest.mark.parametrize("angle", [0.2, 0.9, 1.3])
def test_the_decision_boundary_is_a_circle(angle):
    """On s_n² + (1 − s_p)² = 2m² both exponents cancel: log 2, whatever γ."""
    radius = math.sqrt(2) * 0.4
    x, y = at_angles(1 - radius * math.sin(angle), radius * math.cos(angle))
    for gamma in (80.0, 256.0):
        assert one_anchor(x, y, gamma).item() == pytest.approx(math.log(2), abs=1e-9)
    nearer, _ = at_angles(1 - 0.9 * radius * math.sin(angle), 0.9 * radius * math.cos(angle))
    assert one_anchor(nearer, y) < math.log(2)


# Contextual


class Step(torch.autograd.Function):
    """1[u ≥ 0], with ten times the gradient of u."""

    @staticmethod
    def forward(ctx, u):
        return (u >= 0).to(u.dtype)

    @staticmethod
    def backward(ctx, gradient):
        return 10 * gradient


def contextual_loop(x: Tensor, y: Tensor, k: int, epsilon: float) -> Tensor:
    """The formula entry by entry, each indicator a Step; sizes of neighborhoods as numbers."""
    u, B = unit(x), len(x)
    D2 = [[2 - 2 * (u[i] @ u[j]) for j in range(B)] for i in range(B)]

    def within(size: int) -> list[list[Tensor]]:
        radii = [sorted(d.item() for d in row)[size - 1] + epsilon for row in D2]
        return [[Step.apply(radii[i] - D2[i][j]) for j in range(B)] for i in range(B)]

    M, R = within(k), within(k // 2)
    n = [sum(m.item() for m in row) for row in M]

    def w(i: int, j: int) -> Tensor:
        both = sum(M[i][m] * M[j][m] for m in range(B))
        neither = sum((1 - M[i][m]) * (1 - M[j][m]) for m in range(B))
        return (both / n[i] + neither / max(B - n[i], 1)) / 2 * M[i][j]

    W = [[w(i, j) for j in range(B)] for i in range(B)]
    Q = [[R[i][j] * R[j][i] for j in range(B)] for i in range(B)]
    V = [[sum(Q[i][m] * W[m][j] for m in range(B)) / sum(Q[i]) for j in range(B)] for i in range(B)]
    error = [
        (float(y[i] == y[j]) - (V[i][j] + V[j][i]) / 2) ** 2
        for i in range(B)
        for j in range(B)
        if i != j
    ]
    return sum(error) / B**2


def only_context(k: int, epsilon: float = 0.05) -> ContextualLoss:
    return ContextualLoss(k, epsilon, weight=1.0, regularization=0.0)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_context_equals_the_loop(x_and_y, k):
    x, y = x_and_y[0][:12], x_and_y[1][:12]
    ours = only_context(k)
    assert_same(lambda z: ours(z, y), lambda z: contextual_loop(z, y, k, 0.05), x, tolerance=1e-9)


def test_context_where_all_are_neighbors_of_all(x_and_y):
    """Nobody is outside any neighborhood, and nothing is divided by 0."""
    x, y = x_and_y[0][:8], x_and_y[1][:8]
    ours = only_context(8, 4.0)
    assert_same(lambda z: ours(z, y), lambda z: contextual_loop(z, y, 8, 4.0), x, tolerance=1e-9)


def test_more_neighbors_than_samples_are_all_samples(generator):
    x, y = batch(generator, classes=3, per_class=2)
    assert torch.equal(only_context(99)(x, y), only_context(6)(x, y))


def test_the_parts_of_contextual_and_their_weights(x_and_y):
    x, y = x_and_y

    def oracle(z: Tensor) -> Tensor:
        S = unit(z) @ unit(z).T
        pull = [0.75 - S[i, j] for i in range(len(y)) for j in positives(y, i)]
        push = [S[i, j] - 0.6 for i in range(len(y)) for j in negatives(y, i)]
        active = [torch.stack([t for t in terms if t > 0]).mean() for terms in (pull, push)]
        context = only_context(4)(z, y)
        return 0.4 * context + 0.1 * (S.mean() - 0.25) ** 2 + 0.5 * sum(active)

    assert_same(lambda z: ContextualLoss()(z, y), oracle, x, tolerance=1e-9)
