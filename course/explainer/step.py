"""One training step of a small network as formulas: forward, loss, backward, Adam.

All parameters are one vector, so that each part is a function of few tensors. Dimensions that are
not trained in are masked: they stay 0, and the losses of the page are the same as without them. So
one graph serves every dimension.

All numbers are float64. Where a loss mines, training multiplies a difference by some million in 50
steps: what two machines round otherwise in float32, 1e-7, becomes another training; in float64 it
stays below what is seen. The browser's runtime has no convolution of float64, hence ``Patches``.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

#: Pixels of a side, channels, images of a batch, and the largest dimension.
SIDE, CHANNELS, BATCH, DIM = 16, 3, 32, 16
#: Classes that are trained on, and images of each.
CLASSES, IMAGES = 50, 24
#: The network's parameters: three convolutions of 3 x 3 (out, 9 in) with biases, a linear layer.
SHAPES = ((16, 27), (16,), (32, 144), (32,), (32, 288), (32,), (DIM, 128), (DIM,))
SIZES = tuple(math.prod(shape) for shape in SHAPES)
#: All parameters: the network's, then a proxy for each class, which learns so many times as fast.
WEIGHTS, PROXIES = sum(SIZES), CLASSES * DIM
PROXY_RATE = 10.0
#: Of Adam. The exporter takes 1e-8, torch's default, for 0, and leaves it out.
BETAS, EPSILON = (0.9, 0.999), 1e-6
#: Added to the variance of an image, which is divided by its root.
FAINT = 1e-4


# --- Randomness: a function of seed, stream and place, the same in explainer's random.js ----------


def mixed(x: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """A number of 32 bits for each, by Wellons's lowbias32: whoever changes a bit changes half.

    >>> mixed(np.array([1, 2], dtype=np.uint32))
    array([1753845952, 3507691905], dtype=uint32)
    """
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def draws(seed: int, stream: int, count: int) -> NDArray[np.float64]:
    """Uniform numbers in [0, 1): number i of a stream is a function of seed, stream and i."""
    key = mixed(np.array([seed + 0x9E3779B9], dtype=np.uint32))
    key = mixed(key + np.uint32(stream))
    places: NDArray[np.uint32] = np.arange(count, dtype=np.uint32)
    return mixed(key + places) / 2**32


def begin(seed: int, dim: int) -> NDArray[np.float64]:
    """All parameters before the first step, of stream 0; biases are 0."""
    numbers = 2 * draws(seed, 0, WEIGHTS + PROXIES) - 1
    parts = np.split(numbers, np.cumsum(SIZES))
    for part, shape in zip(parts, SHAPES, strict=False):
        part *= math.sqrt(6 / shape[1]) if len(shape) == 2 else 0  # He et al. 2015, uniform
    parts[-1].reshape(CLASSES, DIM)[:, dim:] = 0
    return np.concatenate(parts)


def batch(seed: int, step: int, classes: int, per_class: int) -> tuple[Any, Any]:
    """Labels (B,) and images within their class (B,) of step 1, 2, …: of stream number step.

    The ``classes`` smallest of CLASSES numbers say which, and the smallest of the next numbers
    which of a class's images.
    """
    numbers = draws(seed, step, CLASSES + classes * IMAGES)
    chosen = np.argsort(numbers[:CLASSES], kind="stable")[:classes]
    places = np.argsort(numbers[CLASSES:].reshape(classes, IMAGES), axis=1, kind="stable")
    return chosen.repeat(per_class), places[:, :per_class].ravel()


# --- The parts of a step --------------------------------------------------------------------------


def _read(side: int) -> Tensor:
    """Which pixel each tap of each patch reads; side² stands for what lies beyond the border."""
    at = 2 * torch.arange(side // 2)[:, None] + torch.arange(-1, 2)  # (side / 2, 3)
    y, x = at[:, None, :, None], at[None, :, None, :]
    return torch.where((y >= 0) & (x >= 0), y * side + x, side * side).flatten()


def _readers(side: int) -> Tensor:
    """Which taps, at most four, read each pixel; one beyond the last where there are fewer."""
    read = _read(side)
    order = read.argsort(stable=True)
    count = read.bincount()[: side * side]
    first = count.cumsum(0) - count
    place = torch.arange(4)
    which = (first[:, None] + place).clamp_max(len(order) - 1)
    return torch.where(place < count[:, None], order[which], len(read)).flatten()


_READ, _READERS = ({side**2: of(side) for side in (16, 8, 4)} for of in (_read, _readers))


class Patches(torch.autograd.Function):
    """What a convolution of 3 x 3, stride 2 and padding 1 reads: (B, HW, C) -> (B, 9 HW / 4, C).

    Backward is a choice of places, too, where autograd would add up into them: four times as long.
    """

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return F.pad(x, (0, 0, 0, 1)).index_select(1, _READ[x.shape[1]])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], _: Tensor) -> None:
        ctx.pixels = inputs[0].shape[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        taps = F.pad(gradients[0], (0, 0, 0, 1)).index_select(1, _READERS[ctx.pixels])
        return taps.unflatten(1, (-1, 4)).sum(dim=2)


def forward(p: Tensor, mask: Tensor, x: Tensor) -> Tensor:
    """Embeddings (B, DIM) of images (B, 3, 16, 16) in 0..1, not normalized."""
    parts = p.split(SIZES)
    w = [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]
    x = x - x.mean((1, 2, 3), keepdim=True)
    x = x / (x.square().mean((1, 2, 3), keepdim=True) + p.new_tensor(FAINT)).sqrt()
    x = x.flatten(2).transpose(1, 2)  # (B, HW, C)
    for i in range(0, 6, 2):
        patches = Patches.apply(x).reshape(-1, w[i].shape[1])  # (B HW / 4, 9 C)
        x = (patches @ w[i].T + w[i + 1]).relu().view(len(x), -1, len(w[i]))
    return (x.flatten(1) @ w[6].T + w[7]) * mask


def backward(p: Tensor, mask: Tensor, x: Tensor, forces: Tensor) -> Tensor:
    """The gradient of all parameters of the network, from minus that of its embeddings."""
    q = p.detach().requires_grad_()
    return torch.autograd.grad(forward(q, mask, x), q, -forces)[0]


def adam(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, step: Tensor, lr: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters and both averages after one step of Adam (Kingma and Ba 2015); steps from 1.

    ``lr`` (N,) has a learning rate for each of the parameters.
    """
    a, b = p.new_tensor(BETAS)  # tensors: the exporter keeps a number in float32
    m, v = a * m + (1 - a) * g, b * v + (1 - b) * g * g
    root = v.sqrt() / (1 - b**step).sqrt() + p.new_tensor(EPSILON)
    return p - lr / (1 - a**step) * m / root, m, v
