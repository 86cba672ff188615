"""Hyperbolic embeddings: room grows exponentially with the distance from the ball's center."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import PairLoss, Pairs, setting
from dmlkit.losses.table import register


@register(
    "hyperbolic", "hyperbolic", "hyperbolic", 2022,
    r"$-\log\,e^{-d_{ap}/\sigma}/(e^{-d_{ap}/\sigma}+\sum_n e^{-d_{an}/\sigma})$",
    "d: distance in the Poincaré ball",
    tuned=("temperature", "c"),
)  # fmt: skip
class HyperbolicLoss(PairLoss):
    """Tell each positive from the anchor's negatives by their distances in the Poincaré ball.

    L = mean over ordered positive pairs (a, p) of
    −log(e^{−d_ap/τ} / (e^{−d_ap/τ} + Σ_n e^{−d_an/τ})), n over all negatives of a, and d the
    distance on exp₀ of the embeddings, clipped to a radius. With ``c`` 0 the ball becomes the unit
    sphere, and −d the cosine: NT-Xent.

    Source: Ermolov et al. 2022, "Hyperbolic Vision Transformers", section 3, which sums over pairs
    of views: this loss, with two images of a class. Clipping: Guo et al. 2022, "Clipped Hyperbolic
    Classifiers Are Super-Hyperbolic Classifiers".

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]])
    >>> HyperbolicLoss(c=0.0, temperature=1.0)(x, torch.tensor([5, 5, 6]))  # log(1 + e⁻²)
    tensor(0.1269)
    """

    c: float = setting(default=0.1, low=0, tune=("log", 0.01, 1.0))
    temperature: float = setting(default=0.2, low=1e-9, tune=("log", 0.05, 0.5))
    clip: float = setting(default=2.3, low=1e-9, high=math.inf)

    def of(self, pairs: Pairs) -> Tensor:
        s = self._similarities(pairs.x, pairs.y)  # (B, N), divided by τ
        hidden = (~pairs.negative).to(s.dtype) * -1e30  # finite, so that a row may hide everything
        rivals = (s + hidden).logsumexp(dim=1, keepdim=True)  # (B, 1): log Σ_n e^s
        terms = F.softplus(rivals - s, threshold=40)  # (B, N): log(1 + Σ_n e^s / e^s_ap)
        weight = pairs.positive.to(s.dtype)
        return (terms * weight).sum() / weight.sum().clamp_min(1)

    def _similarities(self, anchors: Tensor, others: Tensor) -> Tensor:
        if self.c == 0:
            return geometry.normalize(anchors) / self.temperature @ geometry.normalize(others).T
        x, y = (exponential_map(u, self.c, self.clip) for u in (anchors, others))
        return poincare_distances(x, y, self.c) / -self.temperature


def exponential_map(u: Tensor, c: float, clip: float = float("inf")) -> Tensor:
    """Carry tangent vectors at the origin into the Poincaré ball of radius 1/√c.

    exp₀(u) = tanh(√c‖u‖) u / (√c‖u‖), after shortening u to the length ``clip``:
    (M, d) -> (M, d). c = 0 leaves (shortened) vectors as they are.

    >>> exponential_map(torch.tensor([[3.0, 4.0]]), c=1.0, clip=0.5)  # tanh 0.5 = 0.4621
    tensor([[0.2773, 0.3697]])
    """
    n = geometry.norms(u, keepdim=True)  # (M, 1)
    length = n.clamp_max(clip)
    if c > 0:
        length = torch.tanh(c**0.5 * length) / c**0.5
    return u * torch.where(n > 0, length / torch.where(n > 0, n, 1), 1)


def poincare_distances(x: Tensor, y: Tensor, c: float) -> Tensor:
    """Distances in the Poincaré ball of radius 1/√c: (M, d), (N, d) -> (M, N).

    d_c(x, y) = (2/√c) artanh(√c‖−x ⊕ y‖), computed in the equal form
    (2/√c) arsinh(√c‖x − y‖ / √((1 − c‖x‖²)(1 − c‖y‖²))), which loses no digits near the edge.
    Points on or beyond the edge count as just inside it. At c = 0 this is the limit 2‖x − y‖.
    Gradients are finite everywhere, and zero where the distance is 0.

    Source: Ganea, Bécigneul and Hofmann 2018, "Hyperbolic Neural Networks".

    >>> poincare_distances(torch.zeros(1, 2), torch.tensor([[0.5, 0.0]]), c=1.0)  # 2 artanh 0.5
    tensor([[1.0986]])
    """
    D2 = geometry.squared_distances(x, y)  # (M, N)
    # At a distance of 0 the slope of √ is infinite, and all its derivatives are kept out.
    apart = D2 != 0
    D = torch.where(apart, torch.where(apart, D2, 1).sqrt(), 0)
    if c == 0:
        return 2 * D
    room_x, room_y = (
        (1 - c * z.square().sum(dim=1)).clamp_min(torch.finfo(z.dtype).eps).rsqrt() for z in (x, y)
    )
    return 2 / c**0.5 * torch.asinh(c**0.5 * D * room_x[:, None] * room_y[None, :])
