"""Max-Mahalanobis centers: constant points as far apart as can be, of which SEE's are a case."""

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.checks import check_count, check_positive, check_range
from dmlkit.losses.spherical import simplex


def max_mahalanobis_centers(
    classes: int, dim: int, norm: float = 1.0, steps: int = 1000, seed: int = 0
) -> Tensor:
    """GenerateOptMeans: L centers of one norm whose largest cosine is least: int, int -> (L, d).

    These are the means of the Max-Mahalanobis Distribution, a mixture of Gaussians with identity
    covariance whose means lie as far apart as can be. With L = ``classes`` and d = ``dim``:

    - L <= d + 1: the regular simplex, ⟨μ_i, μ_j⟩ = −C²/(L − 1), C the ``norm``; the table is
      ``simplex(L − 1)`` with columns of 0;
    - L <= 2d: some of the axes ±e_j; by Rankin no L > d + 1 points have all cosines below 0;
    - else: a local minimum of the largest cosine, found from random points by ``steps`` steps of
      Adam, in O(L²d) each. It depends on ``seed`` alone; torch's default generator is not used.

    Source: Pang, Du and Zhu 2018, "Max-Mahalanobis Linear Discriminant Analysis Networks",
    algorithm GenerateOptMeans, in the authors' code, whose L > d + 1 takes 10,000 steps on the
    largest cosine alone; Rankin 1955, "The Closest Packing of Spherical Caps in n Dimensions".

    Raises:
        ValueError: fewer than two classes, no dimension or step, or a norm that is not above 0.

    >>> max_mahalanobis_centers(classes=3, dim=3)
    tensor([[ 1.0000,  0.0000,  0.0000],
            [-0.5000,  0.8660,  0.0000],
            [-0.5000, -0.8660,  0.0000]])
    """
    check_count(classes=classes, dim=dim, steps=steps)
    check_range(2, classes=classes)
    check_count(0, seed=seed)
    check_positive(norm=norm)
    if classes <= dim + 1:
        centers = F.pad(simplex(classes - 1), (0, dim - classes + 1))
    elif classes <= 2 * dim:
        centers = torch.cat([torch.eye(dim), -torch.eye(dim)])[:classes]
    else:
        centers = _spread(classes, dim, steps, seed)
    return norm * centers


def _spread(points: int, dim: int, steps: int, seed: int) -> Tensor:
    """Unit rows whose largest cosine is small, a local minimum: (points, dim).

    The largest of all cosines moves one pair a step; log Σ e^{βs}/β, which is it for β → ∞, moves
    all that are nearly as large, fewer as β rises.
    """
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randn(points, dim, generator=generator, dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adam([raw], lr=0.1)
    itself = torch.eye(points, dtype=torch.bool)
    for step in range(steps):
        progress = step / steps
        beta = 10 ** (1 + 3 * progress)
        optimizer.param_groups[0]["lr"] = 10 ** (-1 - 3 * progress)
        x = geometry.normalize(raw)
        cosines = (x @ x.T).masked_fill(itself, -torch.inf)
        raw.grad = torch.autograd.grad((beta * cosines).flatten().logsumexp(0) / beta, raw)[0]
        optimizer.step()
    return geometry.normalize(raw.detach()).to(torch.get_default_dtype())
