"""The hyperbolic loss against the literal Möbius formulas, the authors' form, and NT-Xent."""

import math

import pytest
import torch
import torch.nn.functional as F
from pytorch_metric_learning import losses as pml
from torch import Tensor

from dmlkit.losses.hyperbolic import HyperbolicLoss, exponential_map, poincare_distances
from tests.losses.oracles import assert_same, batch


def moebius_distance(x: Tensor, y: Tensor, c: float) -> Tensor:
    """(2/√c) artanh(√c‖−x ⊕ y‖), Möbius addition written out: (d,), (d,) -> ()."""
    x = -x
    xy, xx, yy = x @ y, x @ x, y @ y
    top = (1 + 2 * c * xy + c * yy) * x + (1 - c * xx) * y
    return 2 / c**0.5 * torch.atanh(c**0.5 * (top / (1 + 2 * c * xy + c**2 * xx * yy)).norm())


def points(x: Tensor, c: float, clip: float) -> list[Tensor]:
    """Each row clipped, then tanh(√c‖u‖) u / (√c‖u‖)."""
    clipped = [
        u * min(1.0, clip / u.norm().item()) if u.norm() < clip else u / u.norm() * clip for u in x
    ]
    return [torch.tanh(c**0.5 * u.norm()) * u / (c**0.5 * u.norm()) for u in clipped]


def loop(x: Tensor, y: Tensor, c: float, tau: float, clip: float) -> Tensor:
    z, B, terms = points(x, c, clip), range(len(x)), []
    e = {(i, j): torch.exp(-moebius_distance(z[i], z[j], c) / tau) for i in B for j in B if i != j}
    for a in B:
        negatives = sum(e[a, n] for n in B if y[n] != y[a])
        terms += [-torch.log(e[a, p] / (e[a, p] + negatives)) for p in B if p != a and y[p] == y[a]]
    return torch.stack(terms).mean()


@pytest.mark.parametrize(("c", "clip"), [(0.1, 2.3), (1.0, 1.2), (0.5, 100.0)])
def test_ball_equals_the_loop(generator, c, clip):
    x, y = batch(generator, classes=4, per_class=3)
    ours = HyperbolicLoss(c=c, clip=clip)
    assert_same(lambda z: ours(z, y), lambda z: loop(z, y, c, 0.2, clip), x)


@pytest.mark.parametrize("c", [0.0, 0.5])
def test_a_point_is_at_distance_0_of_itself(generator, c):
    x = torch.rand(3, 4, generator=generator)
    assert (poincare_distances(x, x, c).diagonal() == 0).all()


def test_ball_equals_the_authors_form_for_two_per_class(generator):
    """Cross-entropy of one view against the other, beside the first view without itself."""
    x, c, tau = torch.randn(6, 2, 5, generator=generator, dtype=torch.float64), 0.1, 0.2

    def of_views(z0, z1):
        across, within = (-poincare_distances(z0, z, c) / tau for z in (z1, z0))
        within = within.masked_fill(torch.eye(6, dtype=torch.bool), -1e9)
        return F.cross_entropy(torch.cat([across, within], dim=1), torch.arange(6))

    def authors(x):
        z = exponential_map(x.flatten(0, 1), c, 2.3).view(6, 2, 5)
        return (of_views(z[:, 0], z[:, 1]) + of_views(z[:, 1], z[:, 0])) / 2

    labels = torch.arange(6).repeat_interleave(2)
    assert_same(lambda z: HyperbolicLoss()(z.flatten(0, 1), labels), authors, x)


@pytest.mark.parametrize("per_class", [2, 4])
def test_sphere_equals_the_library(generator, per_class):
    x, y = batch(generator, per_class=per_class)
    theirs = pml.NTXentLoss(temperature=0.2)
    assert_same(lambda z: HyperbolicLoss(c=0.0)(z, y), lambda z: theirs(z, y), x)


@pytest.mark.parametrize("c", [0.01, 0.1, 1.0, 4.0])
def test_distances_equal_the_moebius_form(generator, c):
    x, y = (
        exponential_map(0.5 * torch.randn(5, 3, generator=generator).double(), c) for _ in range(2)
    )
    expected = torch.stack([torch.stack([moebius_distance(a, b, c) for b in y]) for a in x])
    torch.testing.assert_close(poincare_distances(x, y, c), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("c", [0.1, 1.0])
def test_exponential_map_keeps_the_length_from_the_origin(generator, c):
    """d(0, exp₀ u) = 2‖u‖."""
    u = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    d = poincare_distances(torch.zeros(1, 4).double(), exponential_map(u, c), c)
    torch.testing.assert_close(d[0], 2 * u.norm(dim=1), rtol=1e-10, atol=0)


def test_flat_limit(generator):
    x, y = torch.randn(2, 6, 3, generator=generator, dtype=torch.float64)
    expected = 2 * torch.cdist(x, y)
    torch.testing.assert_close(poincare_distances(x, y, 1e-9), expected, rtol=1e-7, atol=0)
    torch.testing.assert_close(poincare_distances(x, y, 0.0), expected)


def test_clip_shortens_only_what_is_longer():
    u = torch.tensor([[0.6, 0.8], [30.0, 40.0]])
    torch.testing.assert_close(
        exponential_map(u, 0.0, clip=2.0), torch.tensor([[0.6, 0.8], [1.2, 1.6]])
    )
    assert (exponential_map(1e6 * u, c=4.0).norm(dim=1) <= 0.5).all()


def test_single_precision_near_the_edge(generator):
    """artanh of the Möbius norm in float32 is infinite there; the arsinh form keeps its digits."""
    directions = F.normalize(torch.randn(12, 3, generator=generator, dtype=torch.float64))
    x = directions * (1 - torch.logspace(-1, -4, 12, dtype=torch.float64))[:, None]
    exact = poincare_distances(x, x, 1.0)
    torch.testing.assert_close(
        poincare_distances(x.float(), x.float(), 1.0).double(), exact, rtol=1e-4, atol=1e-3
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_edge_and_beyond_stay_finite(dtype):
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [2.0, 0.0], [0.0, 0.0], [0.0, 0.0]], dtype=dtype)
    x.requires_grad_()
    d = poincare_distances(x, x, 1.0)
    d.sum().backward()
    assert d.isfinite().all()
    assert x.grad.isfinite().all()
    assert d[0, 1] > 30  # far apart: 2 · 2 artanh(1 − 10⁻⁷)


def test_exponential_map_has_slope_one_at_the_origin():
    u = torch.zeros(3, dtype=torch.float64)
    J = torch.autograd.functional.jacobian(lambda u: exponential_map(u[None], 0.1, 2.3)[0], u)
    torch.testing.assert_close(J, torch.eye(3, dtype=torch.float64))


@pytest.mark.parametrize("c", [0.0, 0.1])
def test_gradients(generator, c):
    x, y = batch(generator, classes=3, per_class=2, dim=3)
    loss = HyperbolicLoss(c=c)
    assert torch.autograd.gradcheck(lambda z: loss(z, y), x.requires_grad_())
    assert torch.autograd.gradgradcheck(lambda z: loss(z, y), x)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_batch_with_a_bad_row_gives_no_finite_loss_in_flat_space(generator, bad):
    x, y = batch(generator)
    x[3, 1] = bad
    assert not HyperbolicLoss(c=0.0)(x, y).isfinite()
    assert not HyperbolicLoss(c=0.0)(x.index_fill(0, torch.tensor([3]), bad), y).isfinite()
