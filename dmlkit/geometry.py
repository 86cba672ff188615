"""The sphere: norms, distances, and which pairs of a batch share a label."""

from typing import Any

import torch
from torch import Tensor


def norms(x: Tensor, keepdim: bool = False) -> Tensor:
    """Euclidean norm of every row, ‖x‖: (..., d) -> (...), with zero gradient at a zero row.

    Right for every finite row, however long or short.

    >>> norms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    scaled, scale = _scaled(x)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True) * scale
    return length if keepdim else length.squeeze(-1)


def normalize(x: Tensor) -> Tensor:
    """Project every row onto the unit sphere, x / ‖x‖: (..., d) -> (..., d); a zero row stays zero.

    Right for every finite row, however long or short. A row with NaN or inf becomes NaN.

    >>> normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    scaled, _ = _scaled(x)
    length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)  # 1 to √d, or 0
    return scaled / torch.where(length == 0, 1, length)


def _scaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows divided by their largest magnitude, and that: (..., d) -> (..., d), (..., 1)."""
    largest = x.detach().abs().amax(dim=-1, keepdim=True)  # six times as fast as a norm of ord=inf
    scale = torch.where(largest == 0, 1, largest)
    return x / scale, scale


def float64_of(device: torch.device) -> torch.dtype:
    """float64, or float32 on a device that lacks it, as Apple's GPUs do."""
    return torch.float32 if device.type == "mps" else torch.float64


def safe_sqrt(squared: Tensor) -> Tensor:
    """√ of numbers that rounding may have left below 0, with a zero gradient where it is 0.

    NaN stays NaN. All derivatives are finite.

    >>> safe_sqrt(torch.tensor([4.0, 0.0, -1e-9]))
    tensor([2., 0., 0.])
    """
    zero = squared <= 0  # false for NaN
    # The gradient of √ at 0 is infinite: 0 is kept away from it, and given back as a constant.
    return squared.masked_fill(zero, 1).sqrt().masked_fill(zero, 0)


def distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Euclidean distances between rows, ‖x_i − y_j‖: (M, d), (N, d) -> (M, N).

    Computed as √(‖x‖² + ‖y‖² − 2xᵀy) in float64; the result has the type of x. Distances of float32
    rows keep all their digits, where ``torch.cdist`` loses some or all of rows that are close to
    each other. What lies below the rounding error, distances up to about 1e-7 ‖x‖, is exactly 0
    (on an Apple GPU, which has no float64, 2e-3 ‖x‖). The gradient is finite everywhere, and zero
    where the distance is 0. A pair with a row that is not finite gives NaN or inf.

    >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    """
    D: Tensor = _Distances.apply(x, None if y is x else y)
    return D


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances between rows, ‖x_i − y_j‖²: (M, d), (N, d) -> (M, N).

    Precise as ``distances`` are.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    return distances(x, y).square()


class _Distances(torch.autograd.Function):
    """With a backward pass of its own: one product, where autograd would take two in float64."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, y: Tensor | None) -> Tensor:
        a, b = _from_the_shortest_row(x, y)
        a2, b2 = a.square().sum(dim=1, keepdim=True), b.square().sum(dim=1)  # (M, 1), (N,)
        squared = torch.addmm(b2, a, b.T, alpha=-2).add_(a2)  # (M, N)
        # Equal rows were seen to leave 4.5 ε (‖x‖² + ‖y‖²) at d = 128, and 27 at d = 4096. Only
        # rows of nearly equal norms cancel, so that ‖x‖² stands for both.
        noise = 2 * max(4, x.shape[1] ** 0.5) * torch.finfo(a.dtype).eps * a2
        D = squared.masked_fill_(squared < noise, 0).sqrt_()  # NaN is not below
        return D.to(x.dtype, copy=True)  # else torch 2.11 compiles a gradient of 0 in float64

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor | None]:
        """Σ_j g_ij (x_i − y_j) / D_ij for every x_i, and the like for every y_j."""
        x, y, D = ctx.saved_tensors
        g = gradients[0] / D.masked_fill(D == 0, torch.inf)  # (M, N)
        a, b = (z.to(x.dtype) for z in _from_the_shortest_row(x, y))
        if y is None:
            return _pulled(a, g + g.T, a), None
        return _pulled(a, g, b), _pulled(b, g.T, a)


def _pulled(a: Tensor, g: Tensor, b: Tensor) -> Tensor:
    """Σ_j g_ij (a_i − b_j): (M, d), (M, N), (N, d) -> (M, d)."""
    return g.sum(dim=1, keepdim=True) * a - g @ b


def _from_the_shortest_row(x: Tensor, y: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both sets in float64 with the shortest row of y as the origin: distances stay as they are.

    Rows far from the origin, but near each other, come near it, and no row moves far.
    """
    dtype = float64_of(x.device)
    b = (x if y is None else y).to(dtype)
    shortest = torch.linalg.vector_norm(b.detach(), dim=1).argmin(dim=0, keepdim=True)
    origin = b.detach().index_select(0, shortest)  # (1, d)
    b = b - origin
    return b if y is None else x.to(dtype) - origin, b


def same_label(labels: Tensor) -> Tensor:
    """Which pairs share a label, the pair of a row with itself left out: (B,) -> (B, B) bool.

    >>> same_label(torch.tensor([7, 7, 9]))
    tensor([[False,  True, False],
            [ True, False, False],
            [False, False, False]])
    """
    return (labels[:, None] == labels).fill_diagonal_(False)


def different_label(labels: Tensor) -> Tensor:
    """Which pairs have different labels: (B,) -> (B, B) bool.

    >>> different_label(torch.tensor([7, 7, 9]))
    tensor([[False, False,  True],
            [False, False,  True],
            [ True,  True, False]])
    """
    return labels[:, None] != labels
