"""SEE's synthetic points: two reflections against Gram-Schmidt and against a batched QR."""

import torch
from torch import Tensor

from dmlkit import geometry, sweeps
from dmlkit.losses.spherical import expand, simplex


def alpha(points: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """α of Algorithm 1 by the recursion as printed: int -> (n + 1, n + 1), with its NaN."""
    n = points
    a = torch.zeros(n + 1, n + 1, dtype=dtype)
    a[0, 0] = 1
    for k in range(1, n + 1):
        a[k, 0] = -1 / n
        for j in range(1, k):
            a[k, j] = -(1 + n * (a[k, :j] * a[j, :j]).sum()) / (n * a[j, j])
        a[k, k] = (1 - (a[k, :k] ** 2).sum()).sqrt()
    return a


def gram_schmidt(z: Tensor, w: Tensor, a: Tensor, generator: torch.Generator) -> Tensor:
    """Algorithm 1 for one unit sample and its unit proxy, as printed: (d,), (d,) -> (n, d)."""
    n, d = len(a) - 1, len(z)
    center = (w @ z) * w
    r = z - center
    v = z.new_empty(n + 2, d)
    v[0], v[1] = w, r / r.norm()
    for i in range(2, n + 2):
        x = torch.randn(d, generator=generator, dtype=z.dtype)
        x = x - (v[:i] @ x) @ v[:i]
        v[i] = x / x.norm()
    mu = a @ v[1:]  # (n+1, d)
    return center + r.norm() * mu[1:]


def batched_qr(z: Tensor, w: Tensor, points: int) -> Tensor:
    """The same points from one batched QR decomposition: (B, d), (B, d) -> (B, n, d)."""
    center = (w * z).sum(dim=1, keepdim=True) * w
    r = z - center
    random = torch.randn(len(z), z.shape[1], points - 1)
    q = torch.linalg.qr(torch.cat([w[:, :, None], r[:, :, None], random], dim=2)).Q
    mu = simplex(points)[1:, 1:] @ q[:, :, 2:].mT  # (B, n, d)
    return (center - r / points)[:, None] + geometry.norms(r)[:, None, None] * mu


def rows() -> list[dict[str, float | str]]:
    """One row for each size and each other way, in milliseconds of a forward pass."""
    return [row for size in ((72, 8, 128), (128, 16, 512)) for row in _compare(*size)]


def _compare(batch: int, points: int, dim: int) -> list[dict[str, float | str]]:
    generator = torch.Generator().manual_seed(0)
    z, w = (
        geometry.normalize(torch.randn(batch, dim, generator=generator)) for _ in range(2)
    )  # (B, d)
    a = alpha(points).nan_to_num(0)  # α_{n+1,n+1} is exactly 0
    ways = {
        "ours": lambda: expand(z, w, points),
        "Gram-Schmidt loop": lambda: [gram_schmidt(z[i], w[i], a, generator) for i in range(batch)],
        "batched QR": lambda: batched_qr(z, w, points),
    }
    ours, *others = (1e3 * sweeps.step_times(ways, rounds=10, warm_up=1).min()).items()
    what = f"expand, {batch} x {points} points in {dim}-d"
    return [
        {"what": what, "against": name, "ours_ms": ours[1], "theirs_ms": ms, "ratio": ms / ours[1]}
        for name, ms in others
    ]
