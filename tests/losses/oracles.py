"""What the tests of losses share: random batches, and the comparison of values and gradients."""

from collections.abc import Callable

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
