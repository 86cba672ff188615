"""What the tests of losses share: batches, loops over pairs, and the comparison of gradients."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def batch(
    generator: torch.Generator, classes: int = 6, per_class: int = 4, dim: int = 8
) -> tuple[Tensor, Tensor]:
    """A shuffled PK batch of raw float64 embeddings with norms spread around 1.5."""
    labels = torch.arange(classes).repeat_interleave(per_class)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    embeddings = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return embeddings * 0.55, labels


def assert_same(
    ours: Callable[[Tensor], Tensor],
    oracle: Callable[[Tensor], Tensor],
    embeddings: Tensor,
    tolerance: float = 1e-10,
) -> None:
    """Both functions of the embeddings have the same value and the same gradient."""
    x, z = (embeddings.clone().requires_grad_() for _ in range(2))
    value, expected = ours(x), oracle(z)
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    assert expected != 0, "an oracle of value 0 shows nothing"
    gradient = torch.autograd.grad(value, x)[0]
    torch.testing.assert_close(
        gradient, torch.autograd.grad(expected, z)[0], rtol=tolerance, atol=tolerance
    )


def golden() -> tuple[Tensor, Tensor]:
    """Four points of two classes, for which values were computed by independent loops."""
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return x, torch.tensor([0, 0, 1, 1])


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=1, keepdim=True)


def positives(y: Tensor, a: int) -> list[int]:
    return [j for j in range(len(y)) if j != a and y[j] == y[a]]


def negatives(y: Tensor, a: int) -> list[int]:
    return [j for j in range(len(y)) if y[j] != y[a]]


def positive_pairs(y: Tensor) -> Iterator[tuple[int, int]]:
    return ((a, p) for a in range(len(y)) for p in positives(y, a))


def mean_of_active(terms: list[Tensor]) -> Tensor:
    values = torch.stack(terms).relu()
    return values.sum() / max(int((values > 0).sum()), 1)
