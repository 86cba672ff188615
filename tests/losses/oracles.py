"""What the tests of losses share: batches, loops over pairs, and the comparison of gradients."""

import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.module import register_module_forward_hook
from torch.utils._python_dispatch import TorchDispatchMode

from dmlkit.losses import EmbeddingLoss

RECORD = os.environ.get("DMLKIT_DIFFERENCES", "")


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
    called: list[nn.Module] = []
    with watched(called):
        value = ours(x)
    expected = oracle(z)
    torch.testing.assert_close(value, expected, rtol=tolerance, atol=tolerance)
    assert expected != 0, "an oracle of value 0 shows nothing"
    gradient, theirs = torch.autograd.grad(value, x)[0], torch.autograd.grad(expected, z)[0]
    torch.testing.assert_close(gradient, theirs, rtol=tolerance, atol=tolerance)
    record(called, (value - expected).abs().item(), (gradient - theirs).abs().max().item())


@contextmanager
def watched(called: list[nn.Module]) -> Iterator[None]:
    """Note the modules that return, the outermost last, where differences are asked for."""
    if not RECORD:
        yield
        return
    watch = register_module_forward_hook(lambda module, *_: called.append(module))
    try:
        yield
    finally:
        watch.remove()


def record(called: list[nn.Module], value: float, gradient: float) -> None:
    """Keep a difference for ``python -m benchmarks oracles``, where it has asked for it."""
    names = [type(module).__name__ for module in called if isinstance(module, EmbeddingLoss)]
    if names:
        row = {"class": names[-1], "value": value, "gradient": gradient}
        row["test"] = os.environ["PYTEST_CURRENT_TEST"].partition("::")[2]
        with Path(RECORD).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")


class LargestTensor(TorchDispatchMode):
    """Elements of the largest tensor that an operation returns while this is on."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


def assert_same_in_both(
    ours: nn.Module,
    oracle: Callable[[Tensor, Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    tolerance: float = 1e-10,
) -> None:
    """Value, gradient of the embeddings and gradient of the proxies: oracle(x, y, proxies)."""
    w = ours.proxies.detach()
    assert_same(lambda z: ours(z, y), lambda z: oracle(z, y, w), x, tolerance)
    of_proxies = lambda p: functional_call(ours, {"proxies": p}, (x, y))  # noqa: E731
    assert_same(of_proxies, lambda p: oracle(x, y, p), w, tolerance)


def golden() -> tuple[Tensor, Tensor]:
    """Four points of two classes, for which values were computed by independent loops."""
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return x, torch.tensor([0, 0, 1, 1])


def unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True)


def wide_batch(
    generator: torch.Generator, proxies: Tensor, lengths: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """A batch whose angles to the own proxy run evenly over (0, π), each at a length of its own."""
    x, y = batch(generator, len(proxies))
    p = unit(proxies.detach()[y] if proxies.ndim == 2 else proxies.detach()[y, 0])
    r = unit(x - (x * p).sum(1, keepdim=True) * p)
    theta = math.pi * (torch.arange(len(x), dtype=x.dtype)[:, None] + 0.5) / len(x)
    n = x.norm(dim=1, keepdim=True) if lengths is None else lengths[:, None]
    return n * (theta.cos() * p + theta.sin() * r), y


def positives(y: Tensor, a: int) -> list[int]:
    return [j for j in range(len(y)) if j != a and y[j] == y[a]]


def negatives(y: Tensor, a: int) -> list[int]:
    return [j for j in range(len(y)) if y[j] != y[a]]


def positive_pairs(y: Tensor) -> Iterator[tuple[int, int]]:
    return ((a, p) for a in range(len(y)) for p in positives(y, a))


def mean_of_active(terms: list[Tensor]) -> Tensor:
    values = torch.stack(terms).relu()
    return values.sum() / max(int((values > 0).sum()), 1)
