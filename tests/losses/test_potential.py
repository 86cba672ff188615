"""The potential field: a loop over ordered pairs, the reach of its forces, and its memory."""

import pytest
import torch
import torch.nn.functional as F
from torch.func import functional_call

from dmlkit.losses import PotentialFieldLoss
from tests.losses.oracles import assert_same, assert_same_in_both, batch

C, DIM, M = 6, 8, 3
F64 = torch.float64


def loop(x, y, p, delta, alpha):
    """Every ordered pair of distinct points, as the formula says."""
    points = [row / row.norm() for row in (*x, *p.flatten(0, 1))]
    labels = [*y.tolist(), *(c for c in range(p.shape[0]) for _ in range(p.shape[1]))]
    total = 0.0
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            if i == j:
                continue
            D = (a - b).norm().clamp_min(1e-2 * delta)
            if labels[i] == labels[j]:
                total = total - D.clamp_min(delta) ** -alpha
            else:
                total = total + D.clamp_max(delta) ** -alpha
    return total * delta**alpha / len(points)


@pytest.mark.parametrize("delta, alpha", [(1.2, 2.0), (1.4, 4.0), (1.3, 1.5), (0.2, 4.0)])
def test_equals_the_loop(delta, alpha, generator):
    ours = PotentialFieldLoss(C, DIM, centers=M, delta=delta, alpha=alpha).double()
    x, y = batch(generator, C, per_class=2)
    w = ours.proxies.detach()
    D = torch.cdist(F.normalize(x, dim=1), F.normalize(w.flatten(0, 1), dim=1))
    assert delta < 1 or (0.1 < D.lt(delta).double().mean() < 0.9), "both forces act"
    assert_same_in_both(ours, lambda x, y, p: loop(x, y, p, delta, alpha), x, y)


def test_equals_the_loop_over_several_blocks(generator, monkeypatch):
    monkeypatch.setattr("dmlkit.losses.potential.BLOCK", 100)
    ours = PotentialFieldLoss(C, DIM, centers=M, delta=1.2, alpha=4.0).double()
    x, y = batch(generator, C, per_class=2)
    w = ours.proxies.detach()
    assert_same(lambda f: ours(f, y), lambda f: loop(f, y, w, 1.2, 4.0), x)


def test_gradcheck(generator):
    loss = PotentialFieldLoss(3, 4, centers=2, delta=1.2, alpha=2.0).double()
    x, y = batch(generator, classes=3, per_class=2, dim=4)
    torch.autograd.gradcheck(
        lambda x, p: functional_call(loss, {"proxies": p}, (x, y)),
        (x.requires_grad_(), loss.proxies),
    )


def force(theta: float, label: int, delta: float = 0.5) -> float:
    """How the loss rises with the angle of a sample of this label to the proxy of class 0."""
    loss = PotentialFieldLoss(2, 3, centers=1, delta=delta, alpha=2.0).double()
    loss.proxies.data = torch.tensor([[[1.0, 0, 0]], [[0, 0, 1]]], dtype=F64)
    angle = torch.tensor(theta, dtype=F64, requires_grad=True)
    x = torch.stack([angle.cos(), angle.sin(), torch.zeros_like(angle)])[None]
    return torch.autograd.grad(loss(x, torch.tensor([label])), angle)[0].item()


def test_attraction_fades_with_distance_and_ends_within_delta():
    """A sample on the great circle between two proxies' poles feels one of them alone."""
    far = [force(theta, label=0) for theta in (0.6, 1.2, 2.4)]
    assert far[0] > far[1] > far[2] > 0
    assert force(0.4, label=0) == 0


def test_repulsion_acts_within_delta_alone():
    """The sample of class 1 is drawn to its own proxy at right angles, which does not turn it."""
    near = [force(theta, label=1) for theta in (0.1, 0.2, 0.4)]
    assert near[0] < near[1] < near[2] < 0
    assert force(0.6, label=1) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_points_that_coincide_have_finite_energy_and_no_force(dtype):
    loss = PotentialFieldLoss(2, 2, centers=1, delta=0.2, alpha=4.0).to(dtype)
    loss.proxies.data = torch.eye(2, dtype=dtype)[:, None]
    x = torch.tensor([[1.0, 0.0]], dtype=dtype, requires_grad=True)
    value = loss(x, torch.tensor([1]))  # on the proxy of the other class
    assert value.item() == pytest.approx(2 * 100**4 / 3, rel=1e-4)
    gradient = torch.autograd.grad(value, x)[0]
    expected = 2 * 4 * 0.2**4 / 2 / 2 ** (4 / 2) / 3  # 2αδ^α/D^{α+2}/N along e₂ to its own proxy
    torch.testing.assert_close(gradient, torch.tensor([[0, -expected]], dtype=dtype))


def test_holds_no_block_of_all_pairs(generator):
    """Only rows are saved for the backward pass: (N, d), never (N, N)."""
    loss = PotentialFieldLoss(100, DIM, centers=4).double()
    x, y = batch(generator, classes=C)
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: sizes.append(t.numel()), lambda _: None
    ):
        loss(x.requires_grad_(), y)
    assert max(sizes) <= (len(x) + 400) * DIM
