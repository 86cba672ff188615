"""Samples and proxies as charges: attraction that fades with distance, repulsion at close range."""

from typing import Any

import torch
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import setting
from dmlkit.losses.proxies import ProxyLoss
from dmlkit.losses.table import register

BLOCK = 2**20  # pairs that are looked at together
_CLOSEST = 1e-2  # of δ: nearer pairs push no harder, as the force is infinite at distance 0


@register(
    "pfml", "proxies", "potential field", 2025,
    r"$-1/\max(D,\delta)^q$ within a class,",
    r"$1/\min(D,\delta)^q$ between two",
)  # fmt: skip
class PotentialFieldLoss(ProxyLoss):
    """Every sample and proxy pulls its class, less from afar, and pushes other classes when near.

    L = δ^α/N · Σ_{i≠j} ψ_ij over all N = B + CM samples of the batch and proxies, as unit rows,
    with ψ_ij = −1/max(D_ij, δ)^α within a class, and 1/min(D_ij, δ)^α between two. The M
    ``centers`` of each class are the proxies, (C, M, d). Repulsion is that of D = δ/100 where D is
    smaller, and there without a gradient.

    To autograd the gradient is a constant: there are no second derivatives.

    Source: Bhatnagar and Ahuja 2025, "Potential Field Based Deep Metric Learning", from two
    independent reimplementations that agree. The factor δ^α/N, which turns no force, is not in the
    source.

    >>> loss = PotentialFieldLoss(num_classes=2, dim=2, centers=1, delta=0.8, alpha=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2)[:, None])
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> loss(x, torch.tensor([0, 0, 1, 1])).detach()  # 18.625·0.8²/6
    tensor(1.9867)
    """

    centers: int = setting(default=4, low=1)
    delta: float = setting(default=0.1, low=1e-9, tune=("log", 0.03, 0.3))
    alpha: float = setting(default=2.0, low=1e-9, tune=("log", 1.0, 6.0))

    def shape(self) -> tuple[int, ...]:
        return self.num_classes, self.centers, self.dim

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        x, p = self.on_sphere(embeddings)  # (B, d), (C, M, d)
        C, M, _ = p.shape
        owners = torch.arange(C, device=labels.device).repeat_interleave(M)
        points = torch.cat([x, p.flatten(0, 1)])  # (N, d)
        U, _ = _Energy.apply(points, torch.cat([labels, owners]), self.delta, self.alpha)
        return U / len(points) + 1  # each point has with itself the constant ψ = −δ^−α

    def logits(self, embeddings: Tensor) -> Tensor:
        return self.cosines(embeddings).amax(dim=2)  # of the nearest


class _Energy(torch.autograd.Function):
    """δ^α Σ_ij ψ_ij, i = j included, and its gradient: (N, d), (N,) -> (), (N, d)."""

    @staticmethod
    def forward(
        points: Tensor, labels: Tensor, delta: float, alpha: float
    ) -> tuple[Tensor, Tensor]:
        energy, gradient = points.new_zeros(()), []
        c = max(1, BLOCK // len(points))
        for rows, own in zip(points.split(c), labels.split(c), strict=True):
            same = own[:, None] == labels  # (c, N)
            D = geometry.distances(rows, points)
            moves = same == D.gt(delta)  # attraction from afar, repulsion from near
            D = torch.where(moves, D.clamp_min(_CLOSEST * delta), delta)
            psi = torch.where(same, -1, 1) * (delta / D) ** alpha
            energy = energy + psi.sum()
            # ∂ψ/∂x_i = −αψ/D²·(x_i − x_j), and each pair is in the sum twice
            pull = torch.where(moves & D.gt(_CLOSEST * delta), 2 * alpha * psi / D.square(), 0)
            gradient.append(pull @ points - pull.sum(dim=1, keepdim=True) * rows)
        return energy, torch.cat(gradient)

    @staticmethod
    def setup_context(ctx: Any, _: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        """The gradient of the energy, which the forward pass has left."""
        return gradients[0] * ctx.saved_tensors[0], None, None, None
