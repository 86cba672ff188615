"""SupCon, Circle and contextual similarity against loops, sets, the library and known values."""

import math

import pytest
import torch
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit import losses
from dmlkit.losses import CircleLoss, ContextualLoss, CrossBatchMemory, Pairs, SupConLoss
from tests.losses.oracles import assert_same, batch

GOLDEN = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
PAIRS = torch.tensor([0, 0, 1, 1])
UNEVEN = torch.tensor([7, 3, 3, 7, 9, 3, 5, 5, 7, 3, 11, 5])  # one to four samples a class


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True)


def positives(y: Tensor, i: int) -> list[int]:
    return [j for j in range(len(y)) if j != i and y[j] == y[i]]


def negatives(y: Tensor, i: int) -> list[int]:
    return [j for j in range(len(y)) if y[j] != y[i]]


@pytest.fixture(params=["PK", "uneven"])
def x_and_y(request: pytest.FixtureRequest, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = batch(generator)
    return (x, y) if request.param == "PK" else (x[: len(UNEVEN)], UNEVEN)


def assert_value(actual: Tensor, expected: float, tolerance: float = 6e-7) -> None:
    assert actual.item() == pytest.approx(expected, abs=tolerance)


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


def test_supcon_known_values():
    uneven = torch.tensor([0, 0, 0, 1])
    assert_value(SupConLoss()(GOLDEN, PAIRS), 2.533149)
    assert_value(SupConLoss(side="in")(GOLDEN, PAIRS), 2.533149)
    assert_value(SupConLoss()(GOLDEN, uneven), 2.710025)
    assert_value(SupConLoss(side="in")(GOLDEN, uneven), 0.693259)


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


def test_anchors_without_a_positive_leave_the_mean(generator):
    x, y = batch(generator, classes=3)
    alone = torch.cat([y, torch.tensor([97, 98])])
    z = torch.cat([x, -x[:2]])
    torch.testing.assert_close(SupConLoss()(z, alone), supcon_loop(z, alone, 0.1, "out"))


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


def test_circle_known_values():
    assert_value(CircleLoss()(GOLDEN, PAIRS), 53.146574)
    assert_value(CircleLoss(gamma=1.0)(GOLDEN, PAIRS), 1.491685)


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
    assert_value(one_anchor(x, y), math.log(2), 1e-9)
    assert_value(one_anchor(x, y, 256.0), math.log(2), 1e-9)
    nearer, _ = at_angles(1 - 0.9 * radius * math.sin(angle), 0.9 * radius * math.cos(angle))
    assert one_anchor(nearer, y) < math.log(2)


def test_no_gradient_passes_through_the_weights_of_circle():
    """At s_n = 0 and s_p = 0 the slopes are γ m and −γ(1 + m), times the sigmoid."""
    s = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    axes = torch.eye(3, dtype=s.dtype)
    x = axes + torch.cat([s.new_zeros(1), s])[:, None] * axes[0]
    L = one_anchor(x, torch.tensor([0, 0, 1]), gamma=1.0)
    exponent = 0.4 * (0 - 0.4) - 1.4 * (0 - 0.6)
    share = 1 / (1 + math.exp(-exponent))
    expected = torch.tensor([-1.4 * share, 0.4 * share], dtype=s.dtype)
    torch.testing.assert_close(torch.autograd.grad(L, s)[0], expected)


# Contextual


def contextual_sets(x: Tensor, y: Tensor, k: int, epsilon: float) -> float:
    """(1/B²) Σ_{i≠j} (same − J)², with neighborhoods as sets of Python."""
    u, B = unit(x), len(x)
    D2 = [[(u[i] - u[j]).square().sum().item() for j in range(B)] for i in range(B)]
    near = [sorted(row) for row in D2]
    N, R = (
        [{j for j in range(B) if D2[i][j] <= near[i][size - 1] + epsilon + 1e-12} for i in range(B)]
        for size in (k, k // 2)
    )
    everyone = set(range(B))

    def weight(i: int, j: int) -> float:
        if j not in N[i]:
            return 0.0
        out_i, out_j = everyone - N[i], everyone - N[j]
        neither = len(out_i & out_j) / len(out_i) if out_i else 0.0
        return (len(N[i] & N[j]) / len(N[i]) + neither) / 2

    def toward(i: int, j: int) -> float:
        mutual = [m for m in R[i] if i in R[m]]
        return sum(weight(m, j) for m in mutual) / len(mutual)

    return (
        sum(
            (float(y[i] == y[j]) - (toward(i, j) + toward(j, i)) / 2) ** 2
            for i in range(B)
            for j in range(B)
            if i != j
        )
        / B**2
    )


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
def test_context_equals_sets_and_the_loop(x_and_y, k):
    x, y = x_and_y[0][:12], x_and_y[1][:12]
    ours = only_context(k)
    assert_value(ours(x, y), contextual_sets(x, y, k, 0.05), 1e-9)
    assert_same(lambda z: ours(z, y), lambda z: contextual_loop(z, y, k, 0.05), x, tolerance=1e-9)


def test_context_where_all_are_neighbors_of_all(x_and_y):
    """Nobody is outside any neighborhood, and nothing is divided by 0."""
    x, y = x_and_y[0][:8], x_and_y[1][:8]
    ours = only_context(8, 4.0)
    assert_value(ours(x, y), contextual_sets(x, y, 8, 4.0), 1e-9)
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


def test_contextual_known_values():
    assert_value(only_context(2)(GOLDEN, PAIRS), 0.265625)
    assert_value(ContextualLoss(weight=0.0, regularization=1.0)(GOLDEN, PAIRS), 0.000625)
    assert_value(ContextualLoss(2)(GOLDEN, PAIRS), 0.4 * 0.265625 + 0.1 * 0.000625 + 0.5 * 0.65)


# All of them


@pytest.mark.parametrize("loss", [SupConLoss(), SupConLoss(side="in"), CircleLoss()], ids=repr)
def test_a_memory_of_the_batch_itself_is_the_batch(generator, loss):
    """What the masks leave out is not seen: a copy of the batch among strangers."""
    x, y = batch(generator, classes=4, per_class=3)
    others = torch.cat([torch.randn(5, 8, generator=generator, dtype=torch.float64), x])
    positive, negative = y[:, None] == y, y[:, None] != y
    masks = [torch.nn.functional.pad(m, (5, 0)) for m in (positive.fill_diagonal_(False), negative)]
    torch.testing.assert_close(loss.of(Pairs(x, others, y, *masks)), loss(x, y))


@pytest.mark.parametrize("name", ["supcon", "circle"])
def test_with_a_memory(generator, name):
    memory = losses.build("xbm", dim=8, loss=name, size=30, weight=0.5).double()
    assert isinstance(memory, CrossBatchMemory)
    (x, y), (z, w) = batch(generator, per_class=2), batch(generator, per_class=2)
    memory(x, y)
    inner = losses.build(name)
    everyone, labels = torch.cat([x, z]), torch.cat([y, w])
    own = torch.arange(12)[:, None] + 12 == torch.arange(24)
    same = w[:, None] == labels
    against = inner.of(Pairs(z, everyone, w, same & ~own, ~same))
    torch.testing.assert_close(memory(z, w), inner(z, w) + 0.5 * against)


def test_contextual_has_no_memory():
    with pytest.raises(TypeError, match="must be a PairLoss"):
        losses.build("xbm", dim=8, loss="contextual")
