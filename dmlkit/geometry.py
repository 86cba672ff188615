"""The sphere: norms, distances, and which pairs of a batch share a label."""

import torch
from torch import Tensor


def norms(x: Tensor, keepdim: bool = False) -> Tensor:
    """Euclidean norm of every row, ‖x‖: (..., d) -> (...), with zero gradient at a zero row.

    No square overflows or underflows: every finite row has its right norm, up to the largest number
    of the type.

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
    largest = torch.linalg.vector_norm(x.detach(), ord=torch.inf, dim=-1, keepdim=True)
    scale = torch.where(largest == 0, 1, largest)
    return x / scale, scale


def safe_sqrt(squared: Tensor) -> Tensor:
    """√ of numbers that rounding may have left below 0, with a zero gradient where it is 0.

    NaN stays NaN. All derivatives are finite.

    >>> safe_sqrt(torch.tensor([4.0, 0.0, -1e-9]))
    tensor([2., 0., 0.])
    """
    # The gradient of √ at 0 is infinite: the inner ``where`` keeps 0 away from √, the outer one
    # gives it back as a constant. ``clamp_min`` lets NaN pass, which a comparison would not.
    positive = squared > 0
    root = torch.where(positive, squared, 1).sqrt()
    return torch.where(positive, root, squared.detach().clamp_min(0))


def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Squared Euclidean distances between rows, ‖x_i − y_j‖²: (M, d), (N, d) -> (M, N).

    Computed as ‖x‖² + ‖y‖² − 2xᵀy in float64; the result has the type of x. Distances of float32
    rows keep all their digits, where ``torch.cdist``, which multiplies in float32, loses some or
    all (relative errors from 1e-7 to above 1 for rows that are close to each other). What lies
    below the rounding error, distances up to about 1e-7 ‖x‖, is exactly 0, with zero gradient:
    equal rows have distance 0. A pair with a row that is not finite gives NaN.

    Products in float64 took 0.5 ms where float32 took 0.3 (forward and backward, B = 128, d = 64,
    one core), and 32 where it took 17 (B = 1024, d = 128); exact differences took 0.9 and 133.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    return _squared_in_float64(x, y).to(x.dtype)


def distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Euclidean distances between rows, ‖x_i − y_j‖: (M, d), (N, d) -> (M, N).

    Precise as ``squared_distances`` is. The gradient is finite everywhere, and zero where the
    distance is 0.

    >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    """
    return safe_sqrt(_squared_in_float64(x, y)).to(x.dtype)


def _squared_in_float64(x: Tensor, y: Tensor | None) -> Tensor:
    """‖x_i − y_j‖² in float64: (M, d), (N, d) -> (M, N)."""
    y = (x := x.double()) if y is None or y is x else y.double()
    # Seen from the shortest row: near 0 if all are far from the origin, and no row is moved far.
    shortest = torch.linalg.vector_norm(y.detach(), dim=1).argmin(dim=0, keepdim=True)
    origin = y.detach().index_select(0, shortest)  # (1, d)
    x, y = x - origin, y - origin
    x2, y2 = x.square().sum(dim=1), y.square().sum(dim=1)  # (M,), (N,)
    squared = torch.addmm(y2, x, y.T, alpha=-2) + x2[:, None]  # (M, N)
    # Equal rows were seen to leave 4.5 ε (‖x‖² + ‖y‖²) at d = 128, and 27 at d = 4096. Only rows of
    # nearly equal norms cancel, so that ‖x‖² stands for both.
    noise = 2 * max(4, x.shape[1] ** 0.5) * torch.finfo(x.dtype).eps * x2.detach()[:, None]
    return torch.where(squared > noise, squared, 0 * squared.detach())  # 0 · NaN is NaN


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
