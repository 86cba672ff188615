"""Mining against plain loops, and the sampler against what it promises."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses import mining
from tests.losses.oracles import batch


def distances_and_masks(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    x, y = batch(generator)
    D = geometry.distances(geometry.normalize(x))
    return D, geometry.same_label(y), geometry.different_label(y)


def tied(D: Tensor) -> Tensor:
    """Distances of a coarse grid, so that many are exactly equal, some of them 0."""
    return (D * 4).round() / 4


# Semi-hard


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("ties", [False, True])
def test_semihard_is_the_nearest_negative_beyond_the_positive(generator, ties, dtype):
    D, positive, negative = distances_and_masks(generator)
    D = (tied(D) if ties else D).to(dtype)
    index = mining.semihard_negatives(D, negative)
    fallbacks = 0
    for a, p in positive.nonzero().tolist():
        candidates = D[a][negative[a]]
        farther = candidates[candidates > D[a, p]]
        fallbacks += len(farther) == 0
        assert negative[a, index[a, p]]
        assert D[a, index[a, p]] == (farther.min() if len(farther) else candidates.max())
    assert 0 < fallbacks < positive.sum(), "both branches must have been taken"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_semihard_sees_the_smallest_difference(dtype):
    """A negative one rounding step farther than the positive, before or after it in the batch."""
    step = 1 + torch.finfo(dtype).eps
    D = torch.tensor([[0.0, step, 1.0, 2.0], [0.0, 1.0, step, 2.0]], dtype=dtype)
    negative = torch.tensor([[False, True, False, True], [False, False, True, True]])
    index = mining.semihard_negatives(D, negative)
    assert index[0, 2] == 1
    assert index[1, 1] == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_semihard_orders_numbers_of_every_size(dtype):
    """Subnormal, tiny and huge ones."""
    info = torch.finfo(dtype)
    values = [0.0, info.tiny / 2, info.tiny, 1e-20, 1.0, 1.0 + info.eps, 1e20, info.max]
    D = torch.tensor(values, dtype=dtype).repeat(len(values), 1)
    negative = ~torch.eye(len(values), dtype=torch.bool)
    index = mining.semihard_negatives(D, negative)  # the "positive" is the diagonal
    following = [*range(1, len(values)), len(values) - 2]
    assert index.diagonal().tolist() == following


def test_semihard_counts_the_negatives_of_the_anchor():
    """Where pairs are no classes, more anchors may have p as a negative than a has negatives."""
    D = torch.tensor([[0.0, 2.0, 1.0]]).expand(3, 3)
    negative = torch.tensor([[False, False, True], [False, True, True], [False, True, True]])
    assert mining.semihard_negatives(D, negative)[0, 1] == 2


def test_semihard_indices_are_valid_without_a_negative():
    index = mining.semihard_negatives(torch.rand(3, 3), torch.zeros(3, 3, dtype=torch.bool))
    assert ((index >= 0) & (index < 3)).all()


# All


@pytest.mark.parametrize("margin", [0.0, 0.25, 1.0])
@pytest.mark.parametrize("ties", [False, True])
def test_active_triplets_are_counted_as_by_a_loop(generator, margin, ties):
    """With ties, many triplets stand exactly at the margin, and are not active."""
    D, positive, negative = distances_and_masks(generator)
    D = tied(D) if ties else D
    expected = torch.zeros_like(D)
    for a, p in positive.nonzero().tolist():
        for n in negative[a].nonzero().flatten().tolist():
            if D[a, p] + margin > D[a, n]:
                expected[a, p] += 1
                expected[a, n] -= 1
    assert expected.relu().sum() > 0
    assert torch.equal(mining.active_triplets(D, positive, negative, margin), expected)


def test_active_triplets_need_both_a_positive_and_a_negative():
    none, every = torch.zeros(4, 4, dtype=torch.bool), ~torch.eye(4, dtype=torch.bool)
    for positive, negative in ((every, none), (none, every)):
        count = mining.active_triplets(torch.rand(4, 4), positive, negative, margin=1.0)
        assert count.count_nonzero() == 0


# Distance-weighted

DRAWS = 40_000


def draw(distances: list[float], dim: int, seed: int = 0) -> Tensor:
    """Many draws for one anchor from negatives at the given distances: (DRAWS,) indices.

    The positives stand on both sides of the negatives.
    """
    half, N = DRAWS // 2, len(distances)
    D = F.pad(torch.tensor([distances]), (half, half))
    negative = F.pad(torch.ones(1, N, dtype=torch.bool), (half, half))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        drawn = mining.distance_weighted_negatives(D, negative, dim)[0] - half
    return torch.cat([drawn[:half], drawn[half + N :]])


@pytest.mark.parametrize("dim", [2, 3, 8, 128])
def test_draws_follow_the_inverse_density(dim):
    distances = [0.1, 0.5, 0.9, 1.0, 1.2, 1.3, 1.39, 1.39, 1.39, 1.45, 1.9, 2.0]
    weights = []
    for D in distances:
        D_cut = max(D, 0.5)
        q = D_cut ** (dim - 2) * abs(1 - D_cut**2 / 4) ** ((dim - 3) / 2) if D <= 1.4 else torch.inf
        weights.append(1 / q)
    expected = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    share = draw(distances, dim).bincount(minlength=len(distances)) / DRAWS
    deviation = (expected * (1 - expected) / DRAWS).sqrt()  # of a binomial share
    assert ((share - expected).abs() <= 4.5 * deviation).all()


def test_draws_spread_evenly_over_distances(generator):
    """Uniform points crowd near √2; the sampler must undo exactly that."""
    x = geometry.normalize(torch.randn(6000, 5, generator=generator))
    D = (x[:1] - x).norm(dim=1)
    drawn = D[draw(D.tolist(), dim=5)]
    share = torch.histc(drawn, bins=4, min=0.6, max=1.4) / DRAWS
    crowd = torch.histc(D, bins=4, min=0.6, max=1.4)
    assert crowd[3] > 3 * crowd[0]
    assert share.max() / share.min() < 1.25


def test_an_anchor_without_a_near_negative_draws_from_all_of_its_negatives():
    share = draw([1.41, 1.5, 1.9, 2.0], dim=512).bincount(minlength=4) / DRAWS
    torch.testing.assert_close(share, torch.full((4,), 0.25), rtol=0, atol=0.03)


@pytest.mark.parametrize("dim", [1, 2, 128, 4096])
def test_draws_are_negatives_at_every_distance_and_dimension(dim):
    for value in (0.0, 1e-30, 1.4, 2.0, 2.0000002):
        index = draw([value, value, 1.2], dim)
        assert ((index >= 0) & (index < 3)).all()


def test_draws_are_valid_indices_without_a_negative():
    index = mining.distance_weighted_negatives(
        torch.rand(3, 3), torch.zeros(3, 3, dtype=torch.bool), dim=8
    )
    assert ((index >= 0) & (index < 3)).all()


def test_each_positive_draws_for_itself_and_a_seed_repeats_the_draws():
    distances = [1.0, 1.0, 1.0, 1.0]
    assert len(draw(distances, dim=8).unique()) == 4
    assert torch.equal(draw(distances, dim=8, seed=1), draw(distances, dim=8, seed=1))
    assert not torch.equal(draw(distances, dim=8, seed=1), draw(distances, dim=8, seed=2))
