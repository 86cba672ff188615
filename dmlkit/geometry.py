"""The sphere: norms, distances, and which pairs of a batch share a label."""

import torch
from torch import Tensor


def norms(x: Tensor, keepdim: bool = False) -> Tensor:
    """Euclidean norm of every row, ‖x‖: (..., d) -> (...), with zero gradient at a zero row.

    >>> norms(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([5., 0.])
    """
    return torch.linalg.vector_norm(x, dim=-1, keepdim=keepdim)


def normalize(x: Tensor) -> Tensor:
    """Project every row onto the unit sphere, x / ‖x‖: (..., d) -> (..., d); a zero row stays zero.

    >>> normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    length = norms(x, keepdim=True)
    return x / torch.where(length > 0, length, 1)


def safe_sqrt(squared: Tensor) -> Tensor:
    """√ of numbers that rounding may have left below 0, with a zero gradient where it is 0.

    >>> safe_sqrt(torch.tensor([4.0, 0.0, -1e-9]))
    tensor([2., 0., 0.])
    """
    # The gradient of √ at 0 is infinite, and that of ``where`` passes none of it.
    return torch.where(squared > 0, squared, 0).sqrt()


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances between rows, ‖x_i − y_j‖²: (M, d), (N, d) -> (M, N).

    Computed as ‖x‖² + ‖y‖² − 2xᵀy after moving both to the mean of y, which leaves distances
    alone and keeps the subtraction accurate far from the origin. What lies below the rounding
    error of that subtraction is exactly 0, with zero gradient: equal rows have distance 0.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    y = x if y is None else y
    center = y.detach().mean(dim=0)
    x, y = x - center, y - center
    total = (x * x).sum(dim=1)[:, None] + (y * y).sum(dim=1)  # (M, N): ‖x‖² + ‖y‖²
    squared = torch.addmm(total, x, y.T, alpha=-2)  # (M, N)
    # Equal rows were seen to leave 4.5 ε (‖x‖² + ‖y‖²) at d = 128, and 27 at d = 4096.
    noise = max(4, x.shape[1] ** 0.5) * torch.finfo(x.dtype).eps
    return torch.where(squared.detach() > noise * total.detach(), squared, 0)


def distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Euclidean distances between rows, ‖x_i − y_j‖: (M, d), (N, d) -> (M, N).

    The gradient is finite everywhere, and zero where the distance is 0.

    >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    """
    # The gradient of √ at 0 is infinite, but squared_distances passes none of it where it gives 0.
    return squared_distances(x, y).sqrt()


def same_label(labels: Tensor, others: Tensor | None = None) -> Tensor:
    """Which pairs share a label, the pair of a row with itself left out: (B,) -> (B, B) bool.

    With ``others`` (N,), the rows of two different sets are compared and nothing is left out.

    >>> same_label(torch.tensor([7, 7, 9]))
    tensor([[False,  True, False],
            [ True, False, False],
            [False, False, False]])
    """
    if others is not None:
        return labels[:, None] == others[None, :]
    same = labels[:, None] == labels[None, :]
    return same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)


def different_label(labels: Tensor, others: Tensor | None = None) -> Tensor:
    """Which pairs have different labels: (B,) -> (B, B), or (B,), (N,) -> (B, N), bool.

    >>> different_label(torch.tensor([7, 7, 9]))
    tensor([[False, False,  True],
            [False, False,  True],
            [ True,  True, False]])
    """
    return labels[:, None] != (labels if others is None else others)[None, :]
