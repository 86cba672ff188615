"""A backbone and an embedding head: images in, raw embeddings out."""

import inspect
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor, nn


class ConvNet(nn.Sequential):
    """A small convolutional network: a strided convolution, then per width a 3 × 3 convolution and
    2 × 2 max-pool, each followed by BatchNorm and ReLU, and the head.

    Images (B, channels, size, size) -> raw embeddings (B, dim). Only the first layer, whose output
    is the largest, is strided instead of pooled, and pooling comes before BatchNorm and ReLU: those
    layers are bound by memory on a CPU, and generalise as well this way.

    Raises:
        ValueError: the image is too small to be halved once per width, or the head is unknown.

    >>> ConvNet(dim=64)(torch.zeros(2, 1, 32, 32)).shape
    torch.Size([2, 64])
    """

    def __init__(
        self,
        dim: int,
        widths: Sequence[int] = (8, 16, 32, 96),
        head: str = "linear",
        channels: int = 1,
        size: int = 32,
    ) -> None:
        side = size // 2 ** len(widths)
        if side < 1:
            raise ValueError(
                f"{len(widths)} halvings need images of at least {2 ** len(widths)} pixels a side, "
                f"but these have {size}"
            )
        layers: list[nn.Module] = [
            nn.Conv2d(channels, widths[0], 4, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(inplace=True),
        ]
        for before, after in pairwise(widths):
            layers += [
                nn.Conv2d(before, after, 3, padding=1, bias=False),
                nn.MaxPool2d(2),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
        super().__init__(*layers, nn.Flatten(), *build_head(head, widths[-1] * side**2, dim))


def build_head(name: str, features: int, dim: int) -> list[nn.Module]:
    """The last layers: ``linear``, or ``layer_norm`` (a linear map of features normalised without
    learnt scale and shift, as Zhai and Wu 2019 use before a normalised softmax).

    >>> build_head("layer_norm", 128, 64)
    [LayerNorm((128,), ...elementwise_affine=False...), Linear(in_features=128, ...)]
    """
    heads: dict[str, list[nn.Module]] = {
        "linear": [],
        "layer_norm": [nn.LayerNorm(features, elementwise_affine=False)],
    }
    if name not in heads:
        raise ValueError(f"unknown head {name!r}; there are {', '.join(heads)}")
    return [*heads[name], nn.Linear(features, dim)]


_TABLE: dict[str, Callable[..., nn.Module]] = {"convnet": ConvNet}


def build(name: str, dim: int, image: Tensor, **args: Any) -> nn.Module:
    """Make a backbone with its head by name, for images shaped like ``image`` (C, H, W).

    Raises:
        ValueError: unknown name.
        TypeError: an argument that the model does not take.

    >>> type(build("convnet", dim=64, image=torch.zeros(1, 32, 32))).__name__
    'ConvNet'
    """
    if name not in _TABLE:
        raise ValueError(f"unknown model {name!r}; there are {', '.join(_TABLE)}")
    accepted = inspect.signature(_TABLE[name]).parameters
    if unknown := sorted(set(args) - set(accepted)):
        raise TypeError(f"model {name!r} takes {', '.join(accepted)}; not {', '.join(unknown)}")
    channels, size = image.shape[0], image.shape[-1]
    return _TABLE[name](dim=dim, **({"channels": channels, "size": size} | args))
