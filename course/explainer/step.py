"""One training step of a small network as formulas: forward, loss, backward, Adam.

All parameters are one vector, so that each part is a function of few tensors. Dimensions that are
not trained in are masked: they stay 0, and the losses of the page are the same as without them. So
one graph serves every dimension.
"""

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
#: Pixels of a side, channels, images of a batch, and the largest dimension.
SIDE, CHANNELS, BATCH, DIM = 16, 3, 32, 16
#: Classes that are trained on, and images of each.
CLASSES, IMAGES = 50, 24
#: The network's parameters: three convolutions of 3 x 3 with their biases, and a linear layer.
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


def begin(seed: int, dim: int) -> NDArray[np.float32]:
    """All parameters before the first step, of stream 0; biases are 0."""
    numbers = 2 * draws(seed, 0, WEIGHTS + PROXIES) - 1
    parts = np.split(numbers, np.cumsum(SIZES))
    for part, shape in zip(parts, SHAPES, strict=False):
        part *= math.sqrt(6 / shape[1]) if len(shape) == 2 else 0  # He et al. 2015, uniform
    parts[-1].reshape(CLASSES, DIM)[:, dim:] = 0
    return np.concatenate(parts).astype(np.float32)


def batch(seed: int, step: int, classes: int, per_class: int) -> tuple[Any, Any]:
    """Labels (B,) and images within their class (B,) of step 1, 2, …: of stream number step.

    The ``classes`` smallest of CLASSES numbers say which, and the smallest of the next numbers
    which of a class's images.
    """
    numbers = draws(seed, step, CLASSES + classes * IMAGES)
    chosen = np.argsort(numbers[:CLASSES], kind="stable")[:classes]
    places = np.argsort(numbers[CLASSES:].reshape(classes, IMAGES), axis=1, kind="stable")
    return chosen.repeat(per_class), places[:, :per_class].ravel()


# --- What ONNX lacks, said by what it has ---------------------------------------------------------


def _convolution_backward(g: Tensor, x: Tensor, w: Tensor, *rest: Any) -> tuple[Any, ...]:
    """The gradients of a convolution are convolutions, too: of input, weight and bias."""
    _, stride, padding, *_, (wanted, *_) = rest
    sides = zip(x.shape[2:], g.shape[2:], stride, padding, strict=True)
    left = [n - (k - 1) * s + 2 * p - 3 for n, k, s, p in sides]
    dx = F.conv_transpose2d(g, w, None, stride, padding, left) if wanted else None
    dw = F.conv2d(x.transpose(0, 1), g.transpose(0, 1), None, 1, padding, stride)
    return dx, dw[:, :, :3, :3].transpose(0, 1), g.sum((0, 2, 3))


class Exportable(TorchDispatchMode):
    """Answers by operations that ONNX has."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.convolution_backward.default:
            return _convolution_backward(*args)
        return func(*args, **(kwargs or {}))


# --- The parts of a step --------------------------------------------------------------------------


def forward(p: Tensor, mask: Tensor, x: Tensor) -> Tensor:
    """Embeddings (B, DIM) of images (B, 3, 16, 16) in 0..1, not normalized."""
    parts = p.split(SIZES)
    w = [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]
    x = x - x.mean((1, 2, 3), keepdim=True)
    x = x / (x.square().mean((1, 2, 3), keepdim=True) + FAINT).sqrt()
    for i in range(0, 6, 2):
        x = F.conv2d(x, w[i].view(-1, x.shape[1], 3, 3), w[i + 1], stride=2, padding=1).relu()
    return (x.flatten(1) @ w[6].T + w[7]) * mask


def backward(p: Tensor, mask: Tensor, x: Tensor, forces: Tensor) -> Tensor:
    """The gradient of all parameters of the network, from minus that of its embeddings."""
    q = p.detach().requires_grad_()
    with Exportable():
        return torch.autograd.grad(forward(q, mask, x), q, -forces)[0]


def adam(
    p: Tensor, m: Tensor, v: Tensor, g: Tensor, step: Tensor, lr: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Parameters and both averages after one step of Adam (Kingma and Ba 2015); steps from 1.

    ``lr`` (N,) has a learning rate for each of the parameters.
    """
    a, b = BETAS
    m, v = a * m + (1 - a) * g, b * v + (1 - b) * g * g
    root = v.sqrt() / (1 - b**step).sqrt() + EPSILON
    return p - lr / (1 - a**step) * m / root, m, v
