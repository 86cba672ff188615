"""Max-Mahalanobis centers: Pang's recursion as printed, its place in SEE, and known optima."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from dmlkit.losses.spherical import expand, max_mahalanobis_centers, simplex

F64 = torch.float64


def recursion(classes, dtype):
    """GenerateOptMeans as in the authors' file, with its absolute value: int -> (L, L)."""
    L = classes
    mu = np.zeros((L, L), dtype)
    mu[0, 0] = 1
    for k in range(1, L):
        for j in range(k):
            mu[k, j] = -(dtype(1 / (L - 1)) + mu[k] @ mu[j]) / mu[j, j]
        mu[k, k] = np.sqrt(np.abs(dtype(1) - mu[k] @ mu[k]))
    return torch.from_numpy(mu)


def largest_cosine(centers):
    x = F.normalize(centers.double(), dim=1)
    return (x @ x.T - 3 * torch.eye(len(x))).max().item()


def test_centers_are_the_recursion_and_the_simplex_without_its_zero_column():
    for n in (*range(1, 17), 33, 64):
        printed = recursion(n + 1, np.float64)
        torch.testing.assert_close(simplex(n, like=printed), printed[:, :n], rtol=0, atol=1e-13)
        assert (printed[:n, n] == 0).all()
        assert printed[n, n] < 1e-7, "the root of a rounding error, and 0 but for that"
        centers = max_mahalanobis_centers(n + 1, n + 1).double()
        torch.testing.assert_close(centers, printed, rtol=0, atol=1e-6)


def test_the_absolute_value_keeps_the_recursion_finite_in_single_precision():
    for n in range(1, 65):
        printed = recursion(n + 1, np.float32)
        assert printed.isfinite().all()
        torch.testing.assert_close(printed[:, :n], simplex(n), rtol=0, atol=1e-5)


@pytest.mark.parametrize("n, d", [(1, 3), (2, 4), (5, 6), (8, 20), (16, 64)])
def test_sees_points_are_the_centers_in_a_basis_of_their_own(n, d, generator):
    z, w = F.normalize(torch.randn(2, 3, d, generator=generator, dtype=F64), dim=2)
    made = expand(z, w, n)  # (3, n, d)
    center = (z * w).sum(dim=1, keepdim=True) * w
    r = z - center
    vertices = torch.cat([z[:, None], made], dim=1) - center[:, None]
    vertices = vertices / r.norm(dim=1)[:, None, None]  # (3, n+1, d): μ_1 ... μ_{n+1}
    table = recursion(n + 1, np.float64)[:, :n]  # (n+1, n)
    V = torch.linalg.pinv(table) @ vertices  # (3, n, d): the basis, if there is one
    torch.testing.assert_close(table @ V, vertices)
    torch.testing.assert_close(V @ V.mT, torch.eye(n, dtype=F64).expand(3, n, n))
    torch.testing.assert_close(V[:, 0], F.normalize(r, dim=1))
    assert (V @ w[:, :, None]).abs().max() < 1e-12


@pytest.mark.parametrize("classes, dim, norm", [(2, 1, 1.0), (3, 2, 10.0), (10, 256, 10.0)])
def test_centers_of_a_simplex_are_equally_far_apart(classes, dim, norm):
    centers = max_mahalanobis_centers(classes, dim, norm)
    assert centers.shape == (classes, dim)
    apart = torch.pdist(centers)
    expected = norm * math.sqrt(2 * classes / (classes - 1))
    torch.testing.assert_close(apart, torch.full_like(apart, expected))
    torch.testing.assert_close(centers.norm(dim=1), torch.full((classes,), norm))


@pytest.mark.parametrize(
    "classes, dim, best, tolerance",
    [
        (4, 2, 0.0, 0.0),  # a square
        (6, 4, 0.0, 0.0),  # half of a cross-polytope and more
        (6, 3, 0.0, 0.0),  # an octahedron
        (10, 2, math.cos(math.tau / 10), 1e-5),  # a regular decagon
        (12, 3, 5**-0.5, 1e-5),  # an icosahedron
        (7, 3, math.cos(math.radians(77.86954)), 1e-3),  # Tammes' problem for 7 points
    ],
)
def test_more_centers_than_a_simplex_has_reach_the_known_optimum(classes, dim, best, tolerance):
    centers = max_mahalanobis_centers(classes, dim, norm=2.0)
    torch.testing.assert_close(centers.norm(dim=1), torch.full((classes,), 2.0))
    assert best - 1e-6 <= largest_cosine(centers) <= best + tolerance


def test_search_for_centers_hangs_on_its_seed_alone():
    state = torch.get_rng_state()
    made = [max_mahalanobis_centers(9, 4, steps=9, seed=seed) for seed in (5, 5, 6)]
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"classes": 1}, "classes"),
        ({"classes": 2.5}, "classes"),
        ({"dim": 0}, "dim"),
        ({"norm": 0.0}, "norm"),
        ({"norm": math.inf}, "norm"),
        ({"steps": 0}, "steps"),
        ({"seed": -1}, "seed"),
    ],
)
def test_centers_name_a_bad_argument(arguments, name):
    with pytest.raises(ValueError, match=name):
        max_mahalanobis_centers(**{"classes": 3, "dim": 2, **arguments})
