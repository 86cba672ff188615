"""The force of a loss: minus its gradient, on points on a circle or on a sample against its class.

Training moves an embedding x along −∂L/∂x, as a force would. Lessons, the poster, the atlas and the
playground show these forces, and all compute them here.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

from dmlkit.losses.table import build


def value_and_forces(
    loss: nn.Module, points: Tensor, labels: Tensor, **parameters: Tensor
) -> tuple[Tensor, ...]:
    """L, −∂L/∂x at the points (B, d), and −∂L/∂w at each parameter w that is given by its name.

    The loss is as before afterwards: what it remembers of a batch is forgotten.

    >>> from dmlkit import losses
    >>> x, y = torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0])
    >>> value, force = value_and_forces(losses.ContrastiveLoss(), x, y)
    >>> value, force[0] @ (x[1] - x[0]) > 0  # two of one class: √2 apart, each drawn to the other
    (tensor(1.4142), tensor(True))
    """
    moved = [z.detach().requires_grad_() for z in (points, *parameters.values())]
    state = {name: buffer.clone() for name, buffer in loss.named_buffers()}
    state |= dict(zip(parameters, moved[1:], strict=True))
    value = torch.func.functional_call(loss, state, (moved[0], labels))
    gradients = torch.autograd.grad(value, moved, allow_unused=True, materialize_grads=True)
    return value.detach(), *(-gradient.detach() for gradient in gradients)


def turning_force(
    loss: nn.Module,
    batch: Tensor,
    labels: Tensor,
    i: int,
    own: Tensor,
    other: Tensor,
    degrees: float,
) -> float:
    """Force on sample i of a batch, turned from its class towards another: above 0, back to it.

    x_i = r (cos θ u + sin θ v), F = −∂L/∂x_i · (sin θ u − cos θ v), with orthonormal axes u of its
    ``own`` class and v of the ``other`` (d,), and r the sample's norm in the batch (B, d).
    """
    angle = math.radians(degrees)
    x = batch.clone()
    x[i] = batch[i].norm() * (math.cos(angle) * own + math.sin(angle) * other)
    back = math.sin(angle) * own - math.cos(angle) * other
    return float((value_and_forces(loss, x, labels)[1][i] * back).sum())


def axes(count: int, dim: int) -> Tensor:
    """Orthonormal axes (count, dim) that look alike in every ``count`` dimensions, in float64.

    So losses that look at parts or at a prefix of an embedding see the same picture.

    >>> axes(2, 8) @ axes(2, 8).T
    tensor([[1., 0.],
            [0., 1.]], dtype=torch.float64)
    """
    found = torch.eye(count, dtype=torch.float64).repeat(1, dim // count)
    return found / found.norm(dim=1, keepdim=True)


def build_at(name: str, centers: Tensor, **arguments: Any) -> nn.Module:
    """A loss by its name, in float64, whose proxies lie at the centers of the classes (C, d).

    >>> build_at("proxy_nca", axes(2, 4)).proxies.data.equal(axes(2, 4))
    True
    """
    loss = build(name, num_classes=len(centers), dim=centers.shape[1], **arguments).double()
    for key, proxies in loss.named_parameters():
        if key.rpartition(".")[2] == "proxies":  # (C, d), (C, centers, d), or of a part of d
            at = centers[:, : proxies.shape[-1]]
            proxies.data.copy_((at if proxies.ndim == 2 else at[:, None]).expand_as(proxies))
    return loss
