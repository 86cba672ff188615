"""Forces of a loss are minus its gradients, and to measure them leaves the loss as it is."""

import copy

import pytest
import torch

from dmlkit import losses
from dmlkit.losses.forces import axes, build_at, turning_force, value_and_forces


@pytest.mark.parametrize("name", ["xbm", "adaface", "heated_up_softmax", "spherical_expansion"])
def test_a_loss_is_as_before(name: str, generator: torch.Generator) -> None:
    loss = losses.build(name, num_classes=3, dim=12)
    before = copy.deepcopy(loss.state_dict())
    points, labels = torch.randn(6, 12, generator=generator), torch.tensor([0, 0, 1, 1, 2, 2])
    torch.manual_seed(0)
    first = value_and_forces(loss, points, labels)
    torch.manual_seed(0)
    again = value_and_forces(loss, points, labels)
    assert all(map(torch.equal, first, again))
    assert all(torch.equal(before[key], value) for key, value in loss.state_dict().items())


def test_forces_are_minus_the_gradients_of_points_and_proxies(generator: torch.Generator) -> None:
    loss = losses.build("cosface", num_classes=2, dim=4).double()
    x = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    labels, w = torch.tensor([0, 0, 1, 1]), loss.proxies.data.clone()
    value, force, of_proxies = value_and_forces(loss, x, labels, proxies=w)
    loss(x.requires_grad_(), labels).backward()
    assert torch.equal(value, loss(x, labels).detach())
    torch.testing.assert_close((force, of_proxies), (-x.grad, -loss.proxies.grad))


def test_every_center_of_a_class_lies_at_its_place() -> None:
    at = axes(2, 8)
    assert (build_at("subcenter_arcface", at).proxies == at[:, None]).all()


def test_axes_have_the_dimension_that_is_asked_for() -> None:
    assert axes(2, 8).shape == (2, 8)


def test_a_turning_force_is_a_difference_quotient_along_the_circle() -> None:
    at = axes(2, 4)
    loss = build_at("normalized_softmax", at, temperature=0.5)
    batch, labels, step = 3 * at, torch.tensor([0, 1]), 1e-4

    def value(degrees: float) -> float:
        angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
        x = batch.clone()
        x[0] = 3 * (angle.cos() * at[0] + angle.sin() * at[1])
        return loss(x, labels).item()

    slope = (value(40 + step) - value(40 - step)) / (2 * step * torch.pi / 180)
    force = turning_force(loss, batch, labels, 0, at[0], at[1], 40)
    assert force == pytest.approx(slope / 3, rel=1e-6)  # an arc is three times its angle
