"""Distances, norms and masks: exact on known points, accurate far from the origin, safe at zero."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dmlkit import geometry


def test_distances_equal_the_difference_of_rows(generator):
    x, y = (torch.randn(n, 7, generator=generator, dtype=torch.float64) for n in (9, 5))
    expected = (x[:, None] - y[None, :]).norm(dim=-1)
    torch.testing.assert_close(geometry.distances(x, y), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(geometry.squared_distances(x, y), expected**2)


def test_equal_rows_are_at_distance_exactly_zero(generator):
    for scale in (1e-6, 1.0, 1e6):
        x = torch.randn(6, 64, generator=generator).mul_(scale).repeat(2, 1)
        D = geometry.distances(x)
        assert torch.equal(D.diagonal(), torch.zeros(12))
        assert torch.equal(D[:6, 6:].diagonal(), torch.zeros(6))
        assert (D[:6, :6] + torch.eye(6) > 0).all()


def test_a_shift_of_all_points_hardly_moves_their_distances(generator):
    x = torch.randn(50, 16, generator=generator)
    D = geometry.distances(x)
    torch.testing.assert_close(geometry.distances(x + 1000), D, rtol=1e-3, atol=1e-3)


def test_gradients_are_right_and_finite_where_the_distance_is_zero(generator):
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(geometry.distances, (x, y))
    assert torch.autograd.gradcheck(geometry.normalize, (x,))
    same = torch.ones(4, 3, requires_grad=True)
    geometry.distances(same).sum().backward()
    assert torch.equal(same.grad, torch.zeros(4, 3))


@pytest.mark.parametrize("norm", [1e-6, 1.0, 1e6])
def test_normalized_rows_have_norm_one(generator, norm):
    x = torch.randn(8, 5, generator=generator)
    x = x / x.norm(dim=1, keepdim=True) * norm
    torch.testing.assert_close(geometry.norms(geometry.normalize(x)), torch.ones(8))


def test_a_zero_row_stays_zero_with_a_finite_gradient():
    x = torch.zeros(2, 3, requires_grad=True)
    geometry.normalize(x).sum().backward()
    assert torch.equal(geometry.normalize(x), torch.zeros(2, 3))
    assert torch.isfinite(x.grad).all()


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=8))
def test_every_pair_is_the_same_row_or_the_same_label_or_different(values):
    labels = torch.tensor(values)
    same, different = geometry.same_label(labels), geometry.different_label(labels)
    eye = torch.eye(len(labels), dtype=torch.bool)
    assert torch.equal(same.int() + different.int() + eye.int(), torch.ones_like(eye).int())
    assert torch.equal(same | eye, geometry.same_label(labels, labels))


def test_large_labels_are_not_merged():
    assert geometry.different_label(torch.tensor([2**24, 2**24 + 1]))[0, 1]
