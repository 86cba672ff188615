"""Every loss of the field under one call, loss(embeddings, labels); here is the table of names."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from dmlkit.losses.contract import EmbeddingLoss
from dmlkit.losses.pairs import ContrastiveLoss, TripletLoss
from dmlkit.losses.proxies import NormalizedSoftmaxLoss

__all__ = [
    "ContrastiveLoss",
    "EmbeddingLoss",
    "NormalizedSoftmaxLoss",
    "TripletLoss",
    "build",
    "names",
]

_TABLE: dict[str, Callable[..., nn.Module]] = {
    "contrastive": ContrastiveLoss,
    "triplet_semihard": partial(TripletLoss, mining="semihard"),
    "normalized_softmax": NormalizedSoftmaxLoss,
}


def names() -> tuple[str, ...]:
    """Short names of all losses, in the course's order.

    >>> "triplet_semihard" in names()
    True
    """
    return tuple(_TABLE)


def build(
    name: str, num_classes: int | None = None, dim: int | None = None, **args: Any
) -> nn.Module:
    """Make a loss by its short name; ``num_classes`` and ``dim`` reach those that own proxies.

    Raises:
        ValueError: unknown name, or a proxy loss without ``num_classes`` and ``dim``.
        TypeError: an argument that the loss does not take.

    >>> build("normalized_softmax", num_classes=10, dim=4).proxies.shape
    torch.Size([10, 4])
    """
    if name not in _TABLE:
        raise ValueError(f"unknown loss {name!r}; there are {', '.join(_TABLE)}")
    accepted = inspect.signature(_TABLE[name]).parameters
    for argument, value in (("num_classes", num_classes), ("dim", dim)):
        if argument in accepted:
            if value is None:
                raise ValueError(f"loss {name!r} owns proxies: it needs {argument}")
            args[argument] = value
    unknown = sorted(set(args) - set(accepted))
    if unknown:
        raise TypeError(f"loss {name!r} takes {', '.join(accepted)}; not {', '.join(unknown)}")
    return _TABLE[name](**args)
