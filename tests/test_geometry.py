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


@pytest.mark.parametrize("shape", [(5,), (4, 5), (2, 3, 5)])
def test_rows_are_the_last_dimension_whatever_stands_before_it(generator, shape):
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    expected = x.square().sum(dim=-1).sqrt()
    torch.testing.assert_close(geometry.norms(x), expected)
    torch.testing.assert_close(geometry.norms(x, keepdim=True), expected[..., None])
    torch.testing.assert_close(geometry.normalize(x), x / expected[..., None])


def test_a_zero_row_stays_zero_with_a_finite_gradient():
    x = torch.zeros(2, 3, requires_grad=True)
    geometry.normalize(x).sum().backward()
    assert torch.equal(geometry.normalize(x), torch.zeros(2, 3))
    assert torch.isfinite(x.grad).all()


def test_the_root_has_finite_derivatives_everywhere():
    x = torch.tensor([4.0, 0.25, 0.0, -1e-9], dtype=torch.float64, requires_grad=True)
    root = geometry.safe_sqrt(x)
    assert root.tolist() == [2, 0.5, 0, 0]
    (first,) = torch.autograd.grad(root.sum(), x, create_graph=True)
    assert first.tolist() == [0.25, 1, 0, 0]
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, torch.tensor([-1 / 32, -2, 0, 0], dtype=torch.float64))


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=8))
def test_every_pair_is_the_same_row_or_the_same_label_or_different(values):
    labels = torch.tensor(values)
    same, different = geometry.same_label(labels), geometry.different_label(labels)
    eye = torch.eye(len(labels), dtype=torch.bool)
    assert torch.equal(same.int() + different.int() + eye.int(), torch.ones_like(eye).int())
    assert torch.equal(same | eye, torch.tensor([[a == b for b in values] for a in values]))


def test_large_labels_are_not_merged():
    assert geometry.different_label(torch.tensor([2**24, 2**24 + 1]))[0, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_stays_so(generator, bad):
    x = torch.randn(5, 3, generator=generator)
    x[1, 2] = bad
    others = torch.tensor([0, 2, 3, 4])
    for D in (geometry.distances(x), geometry.squared_distances(x), geometry.distances(x, x[2:])):
        assert not D[1].isfinite().any()
    assert geometry.normalize(x)[1].isnan().all()
    assert geometry.normalize(x)[others].isfinite().all()
    assert not geometry.norms(x)[1].isfinite()
    assert geometry.safe_sqrt(torch.tensor(float("nan"))).isnan()


@pytest.mark.parametrize("scale", [1e-37, 1e-20, 1e19, 1e25, 3e37])
def test_norms_neither_overflow_nor_underflow(generator, scale):
    x = torch.randn(6, 4, generator=generator)
    x = (scale * x / x.abs().amax(dim=1, keepdim=True)).requires_grad_()
    exact = x.detach().double().requires_grad_()
    w = torch.randn(6, 4, generator=generator)
    torch.testing.assert_close(geometry.norms(x).double(), exact.norm(dim=1), rtol=1e-6, atol=0)
    ours, theirs = geometry.normalize(x), exact / exact.norm(dim=1, keepdim=True)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-6, atol=1e-7)
    gradient = torch.autograd.grad((w * ours).sum(), x)[0].double()
    expected = torch.autograd.grad((w * theirs).sum(), exact)[0]
    torch.testing.assert_close(gradient * scale, expected * scale, rtol=1e-5, atol=1e-6)
    assert gradient.count_nonzero() == 24


CLOUDS = {
    "around the origin": lambda x: x,
    "tight on the sphere": lambda x: torch.ones_like(x) / 8 + 0.001 * x / 8,
    "far from the origin": lambda x: x + 1e4,
    "very far from the origin": lambda x: x + 1e6,
    "norms from 1 to 1e6": lambda x: x * torch.logspace(0, 6, len(x))[:, None],
}


@pytest.mark.parametrize("batch", [16, 48])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_distances_are_as_precise_as_their_inputs(generator, cloud, batch):
    """torch.cdist loses them in rounding beyond 25 rows; here they lose less than 2e-7."""
    x = CLOUDS[cloud](torch.randn(batch, 64, generator=generator)).requires_grad_()
    exact = x.detach().double().requires_grad_()
    off = ~torch.eye(batch, dtype=torch.bool)
    D = geometry.distances(x)[off]
    expected = (exact[:, None] - exact[None, :])[off].norm(dim=1)
    torch.testing.assert_close(D.double(), expected, rtol=2e-7, atol=0)
    gradient = torch.autograd.grad(D.sum(), x)[0].double()
    truth = torch.autograd.grad(expected.sum(), exact)[0]
    assert ((gradient - truth).norm(dim=1) <= 1e-5 * truth.norm(dim=1)).all()


@pytest.mark.parametrize("d", [16, 4096])
def test_what_counts_as_rounding_grows_with_the_dimension_and_no_faster(generator, d):
    """Seen from a third row, equal ones are at 0, and near ones are not taken for equal."""
    u, v = geometry.normalize(torch.randn(2, 20, d, generator=generator, dtype=torch.float64))
    x = torch.cat([torch.zeros_like(u[:1]), u, u, u + 3e-7 * v])
    D = geometry.distances(x)[1:21]
    assert (D[:, 21:41].diagonal() == 0).all()
    torch.testing.assert_close(
        D[:, 41:].diagonal(), torch.full_like(u[:, 0], 3e-7), rtol=0.03, atol=0
    )


def test_second_derivatives(generator):
    x = torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    y = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(geometry.distances, (x, y))
    assert torch.autograd.gradgradcheck(geometry.distances, (x,))
    assert torch.autograd.gradgradcheck(geometry.squared_distances, (x,))
    assert torch.autograd.gradgradcheck(geometry.normalize, (x,))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_in_half_precision_out(generator, dtype):
    x = torch.randn(5, 3, generator=generator).to(dtype)
    D = geometry.distances(x)
    assert D.dtype == dtype
    torch.testing.assert_close(D, geometry.distances(x.double()).to(dtype))
