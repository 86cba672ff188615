"""What is wrong with a loss, in words, before anything is trained with it."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from dmlkit import losses

_CLASSES, _EACH, _DIM, _BATCHES = 16, 4, 32, 4
_CLEAR = 0.1  # a cosine in that many dimensions that is no chance: known losses have 0.3 and more


def noticed(name: str, loss_args: Mapping[str, Any] | None = None) -> list[str]:
    """Sentences about a loss that descends the wrong way, sees other samples' labels, or has
    proxies that stay where they are; none for a sound one.

    >>> noticed("contrastive"), noticed("proxy_anchor")
    ([], [])
    """
    torch.manual_seed(0)
    loss = losses.build(name, num_classes=_CLASSES, dim=_DIM, **(loss_args or {}))
    generator, turns = torch.Generator().manual_seed(0), []
    y = torch.arange(_CLASSES).repeat_interleave(_EACH)
    for _ in range(_BATCHES):
        y = y[torch.randperm(len(y), generator=generator)]
        x = torch.randn(len(y), _DIM, generator=generator).requires_grad_()
        (down,) = torch.autograd.grad(-loss(x * 1.0, y), x)
        turns.append([_cosine(down, _towards(x, y.roll(k))) for k in (0, 1, -1)])
    own, *shifted = torch.tensor(turns).mean(0).tolist()
    found = list(_at_rest(loss, y))
    if own < -_CLEAR:
        found.append(
            "A step down its gradient drives samples of one class apart and those of others "
            f"together (cosine {own:+.2f}): is its sign flipped?"
        )
    elif own < _CLEAR < max(shifted):
        found.append(
            "A step down its gradient brings together what has the labels of the batch shifted by "
            f"one (cosine {max(shifted):+.2f}, with the right labels {own:+.2f})."
        )
    elif own < _CLEAR:  # only proxies tell it what a class is
        found += _by_proxies(loss, y)
    return found


def _towards(x: Tensor, y: Tensor) -> Tensor:
    """Where the mean cosine within classes rises most above that between them."""
    z = nn.functional.normalize(x)
    same, itself = y[:, None] == y, torch.eye(len(y), dtype=torch.bool)
    cosines = z @ z.T
    gap = cosines[same & ~itself].mean() - cosines[~same].mean()
    return torch.autograd.grad(gap, x)[0]


def _cosine(a: Tensor, b: Tensor) -> float:
    return float(nn.functional.cosine_similarity(a.flatten(), b.flatten(), dim=0))


def _at_rest(loss: nn.Module, y: Tensor) -> Iterator[str]:
    """What looks like proxies, one row a class, and gets no gradient."""
    shape = (_CLASSES, _DIM)
    loss(torch.randn(len(y), _DIM, requires_grad=True) * 1.0, y).backward()
    for name, part in loss.named_parameters():
        if part.shape == shape and (part.grad is None or not part.grad.any()):
            yield f"Its parameter {name} {shape}, one row a class, gets no gradient: it stays."
    tensors: dict[str, Tensor] = dict(loss.named_buffers()) | {
        name: value for name, value in vars(loss).items() if isinstance(value, Tensor)
    }
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and tensor.shape == shape:
            yield f"Its {name} {shape}, one row a class, is no nn.Parameter: it stays."


@torch.no_grad()
def _by_proxies(loss: nn.Module, y: Tensor) -> Iterator[str]:
    """Whether a sample is better off at its own proxy than at another class's."""
    proxies = [p for p in loss.parameters() if p.shape == (_CLASSES, _DIM)]
    if not proxies:
        return
    at = proxies[0].clone()
    own = float(loss(at[y], y))
    nexts = {
        "the next class": (y + 1) % _CLASSES,
        "the class before": (y - 1) % _CLASSES,
        "the sample before": y.roll(1),
    }
    others = {which: float(loss(at[classes], y)) for which, classes in nexts.items()}
    lowest = min(others, key=others.__getitem__)
    if own <= others[lowest]:
        return
    usual = sorted(others.values())[1]
    if own - others[lowest] < 2 * abs(own - usual):  # the others are all as low
        yield (
            "It is lower where samples lie at other classes' proxies than at their own "
            f"({others[lowest]:.3g}, {own:.3g}): is its sign flipped?"
        )
    else:
        yield (
            f"It is lower where samples lie at the proxy of {lowest} than at their own "
            f"({others[lowest]:.3g}, {own:.3g}): are its labels shifted by one?"
        )
