"""KoLeo, IRT and TCM against plain loops, the library, and in a cross-batch memory."""

import pytest
import torch
from pytorch_metric_learning import distances as pml_distances
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit import losses
from dmlkit.losses.memory import CrossBatchMemory
from dmlkit.losses.pairs import ContrastiveLoss, TripletLoss
from dmlkit.losses.proxies import ProxyAnchorLoss
from dmlkit.losses.regularizers import IRTLoss, ThresholdConsistentMarginLoss, koleo
from tests.losses.oracles import (
    assert_same,
    batch,
    mean_of_active,
    negatives,
    positive_pairs,
    unit,
)

# KoLeo


def koleo_loop(x: Tensor) -> Tensor:
    u = unit(x)
    nearest = [
        torch.stack([(u[i] - u[j]).norm() for j in range(len(u)) if j != i]).min()
        for i in range(len(u))
    ]
    return -torch.stack(nearest).log().mean()


def test_koleo_equals_the_loop(x_and_y):
    x, _ = x_and_y
    assert_same(koleo, koleo_loop, x)


@pytest.mark.parametrize("row", [[0.3, -2.0, 0.5, 1.0], [1.0, -1.0, 2.0, -2.0]])
def test_koleo_of_one_sample_is_0_with_a_gradient(row):
    """Also where its coordinates cancel."""
    x = torch.tensor([row]).requires_grad_()
    koleo(x).backward()
    assert koleo(x) == 0
    assert (x.grad == 0).all()


def test_koleo_of_opposite_points_is_that_of_the_diameter():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    torch.testing.assert_close(koleo(x), -torch.tensor(2.0).log())


def test_koleo_of_duplicates_is_that_of_the_smallest_distance():
    """Below ε a pair has no gradient, above it 1/ρ at both of its ends."""
    for gap, expected in ((0.0, 0.0), (5e-5, 0.0), (2e-4, 2 / 3 / 2e-4)):
        x = torch.eye(3, dtype=torch.float64)[[0, 0, 1]]
        x[1, 2] = gap
        x.requires_grad_()
        value = koleo(x, epsilon=1e-4)
        (gradient,) = torch.autograd.grad(value, x)
        assert value.isfinite()
        assert gradient[1, 2].abs().item() == pytest.approx(expected, rel=1e-6)


def test_koleo_keeps_the_digits_of_a_short_distance(generator):
    """Neighbors 0.001 apart in float32, where √(2 − 2s) would have three digits at most."""
    x = torch.randn(8, 1, 64, generator=generator)
    x = x / x.norm(dim=2, keepdim=True)
    x = (x + 0.001 / 8 * torch.randn(8, 2, 64, generator=generator)).flatten(0, 1)
    gradients = []
    for dtype in (torch.float32, torch.float64):
        z = x.to(dtype).requires_grad_()
        gradients.append(torch.autograd.grad(koleo(z), z)[0].double())
    assert (gradients[0] - gradients[1]).norm() < 1e-3 * gradients[1].norm()


# IRT


@pytest.mark.parametrize("beta", [0.5, 0.85, -0.1])
def test_irt_equals_the_loop(x_and_y, beta):
    """Equation 1, which sums over pairs."""
    x, y = x_and_y

    def loop(z: Tensor) -> Tensor:
        u = unit(z)
        pull = sum(1 - u[i] @ u[j] for i, j in positive_pairs(y))
        push = sum((u[i] @ u[j] - beta).relu() for i in range(len(y)) for j in negatives(y, i))
        return (pull + push) / len(y) + 0.7 * koleo_loop(z)

    ours = IRTLoss(beta, 0.7)
    assert_same(lambda z: ours(z, y), loop, x)


def test_irt_of_means_equals_the_library(x_and_y):
    x, y = x_and_y
    theirs = pml.ContrastiveLoss(1, 0.5, distance=pml_distances.CosineSimilarity())
    ours = IRTLoss(0.5, koleo_weight=0.3, reduction="mean")
    assert_same(lambda z: ours(z, y), lambda z: theirs(z, y) + 0.3 * koleo_loop(z), x)


# TCM


def margins_loop(x: Tensor, y: Tensor, weights: tuple[float, float] = (1, 1)) -> Tensor:
    u = unit(x)
    pull = [0.9 - u[i] @ u[j] for i, j in positive_pairs(y)]
    push = [u[i] @ u[j] - 0.5 for i in range(len(y)) for j in negatives(y, i)]
    return weights[0] * mean_of_active(pull) + weights[1] * mean_of_active(push)


@pytest.mark.parametrize("weights", [(1.0, 1.0), (0.3, 2.0), (0.0, 1.0)])
def test_tcm_equals_the_loop_and_the_library(x_and_y, weights):
    x, y = x_and_y
    inner = TripletLoss(mining="all")
    ours = ThresholdConsistentMarginLoss(inner, *weights)
    assert_same(lambda z: ours(z, y), lambda z: inner(z, y) + margins_loop(z, y, weights), x)
    theirs = pml.ThresholdConsistentMarginLoss(*weights)
    assert_same(lambda z: ours(z, y), lambda z: inner(z, y) + theirs(z, y), x)


def test_tcm_without_weight_is_the_inner_loss(x_and_y):
    x, y = x_and_y
    inner = ProxyAnchorLoss(12, 8).double()
    ours = ThresholdConsistentMarginLoss(inner, 0.0, 0.0)
    assert_same(lambda z: ours(z, y), lambda z: inner(z, y), x)


def test_tcm_adds_to_a_loss_with_proxies_and_trains_them(x_and_y):
    x, y = x_and_y
    ours = losses.build("tcm", num_classes=12, dim=8, loss="proxy_anchor").double()
    assert_same(lambda z: ours(z, y), lambda z: ours.loss(z, y) + margins_loop(z, y), x)
    ours(x, y).backward()
    assert ours.loss.proxies.grad.abs().sum() > 0


# In a cross-batch memory


def batches(generator: torch.Generator) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    return batch(generator, dim=5), batch(generator, dim=5)


def test_irt_meets_a_memory_with_its_pairs_alone(generator):
    """The published form: the sum over pairs with the memory, KoLeo of the batch."""
    (x0, y0), (x, y) = batches(generator)
    memory = CrossBatchMemory(IRTLoss(0.5, 0.7), dim=5, size=48).double()
    memory(x0, y0)

    def loop(z: Tensor) -> Tensor:
        u, stored = unit(z), unit(torch.cat([x0, x]))
        total = z.new_zeros(())
        for i in range(len(y)):
            for j in range(48):
                same = y[i] == torch.cat([y0, y])[j]
                if j != 24 + i:  # its own copy
                    s = u[i] @ stored[j]
                    total = total + (1 - s if same else (s - 0.5).relu())
        return IRTLoss(0.5, 0.7)(z, y) + total / len(y)

    assert_same(lambda z: memory(z, y), loop, x)


def test_tcm_meets_a_memory_where_its_inner_loss_does(generator):
    (x0, y0), (x, y) = batches(generator)
    inner = ContrastiveLoss(0.1, 1.2)
    both, base = (  # the same memory, with and without
        CrossBatchMemory(loss, dim=5, size=48).double()
        for loss in (ThresholdConsistentMarginLoss(inner, 0.5, 2.0), inner)
    )
    both(x0, y0), base(x0, y0)

    def loop(z: Tensor) -> Tensor:
        u, stored, labels = unit(z), unit(torch.cat([x0, x])), torch.cat([y0, y])
        pull, push = [], []
        for i in range(len(y)):
            for j in range(48):
                s = u[i] @ stored[j]
                if y[i] != labels[j]:
                    push.append(s - 0.5)
                elif j != 24 + i:
                    pull.append(0.9 - s)
        margins = margins_loop(z, y, (0.5, 2.0))
        return base(z, y) + margins + 0.5 * mean_of_active(pull) + 2.0 * mean_of_active(push)

    assert_same(lambda z: both(z, y), loop, x)


def test_tcm_of_a_proxy_loss_is_refused_by_a_memory(generator):
    (x, y), _ = batches(generator)
    inner = ThresholdConsistentMarginLoss(ProxyAnchorLoss(6, 5))
    memory = CrossBatchMemory(inner, dim=5, size=48).double()
    with pytest.raises(TypeError, match=r"must be a PairLoss, .* but is ProxyAnchorLoss"):
        memory(x, y)
