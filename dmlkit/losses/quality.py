"""Softmax losses whose margin follows the embedding's norm, as a sign of the image's quality."""

import math

import torch
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import moved_average, setting, state
from dmlkit.losses.proxies import TargetSoftmaxLoss
from dmlkit.losses.table import register


@register(
    "adaface", "proxies", "AdaFace", 2022,
    r"$-\log\,\mathrm{softmax}(\alpha(\cos(\theta_y-mz)-m(1+z)))_y$",
    "z: the norm, standardized",
)  # fmt: skip
class AdaFaceLoss(TargetSoftmaxLoss):
    """A margin that stresses hard samples where the norm is large, and easy ones where it is small.

    L = mean of −log softmax(s·t)_y, where t_j = cos θ_j for j ≠ y and
    t_y = cos(θ_y − m·z) − m(1 + z), with θ_y − m·z clipped to 0 ... π, θ_j the angle between
    embedding and proxy, and z = clip(h(n − μ)/(σ + 10⁻³), −1, 1), n = clip(‖f‖, 10⁻³, 100). No
    gradient reaches the norm. The proxies are (C, d), the margin is in radians, and h is
    ``concentration``.

    μ and σ are moving averages, μ ← (1 − ρ)μ + ρ·mean(n) and likewise of the standard deviation
    (B − 1 in its denominator; 0 for a single sample), ρ the ``momentum``: see ``moved_average``.

    Source: Kim, Jain and Liu 2022, "AdaFace: Quality Adaptive Margin for Face Recognition", whose
    averages start at 20 and 100, and whose code clips at 10⁻³ and π − 10⁻³.

    >>> loss = AdaFaceLoss(num_classes=2, dim=2, scale=1)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> x = torch.tensor([[1.0, 0.0], [1.2, 1.6], [0.0, 3.0], [-4.0, 0.0]])  # norms 1, 2, 3, 4
    >>> loss(x, torch.tensor([0, 0, 1, 1])).detach()
    tensor(0.5786)
    """

    margin: float = setting(default=0.4, low=0, high=math.pi / 2, tune=("linear", 0.0, 0.6))
    concentration: float = setting(default=0.333, low=0)
    scale: float = setting(default=16.0, low=1e-9, tune=("log", 8.0, 64.0))
    momentum: float = setting(default=0.01, low=0, high=1)
    average: Tensor = state(2, dtype=torch.float32)  # μ and σ
    started: Tensor = state(dtype=torch.bool)

    def target(self, cos_y: Tensor, y: Tensor, embeddings: Tensor) -> Tensor:
        z = self._quality(embeddings)  # (B, 1)
        turn = self.margin * z
        target = _turned(cos_y, -turn)  # cos(θ_y − m·z)
        target = torch.where((turn > 0) & (cos_y > turn.cos()), 1.0, target)  # θ_y − m·z < 0
        target = torch.where((turn < 0) & (cos_y < -turn.cos()), -1.0, target)  # θ_y − m·z > π
        return target - self.margin * (1 + z)

    def _quality(self, embeddings: Tensor) -> Tensor:
        """z of every sample, (B, d) -> (B, 1), once the averages have moved."""
        n = geometry.norms(embeddings.detach(), keepdim=True).clamp(1e-3, 100)
        deviation = n.std() if len(n) > 1 else n.new_zeros(())
        mu, sigma = moved_average(self, torch.stack([n.mean(), deviation]), self.momentum).unbind()
        return (self.concentration * (n - mu) / (sigma + 1e-3)).clamp(-1, 1)


@register(
    "magface", "proxies", "MagFace", 2021,
    r"$-\log\,\mathrm{softmax}(\alpha\cos(\theta_y+m(\|f\|)))_y$",
    r"$+\,\lambda\,(1/\|f\|+\|f\|/u^2)$",
)  # fmt: skip
class MagFaceLoss(TargetSoftmaxLoss):
    """A margin that grows with the norm, and a regularizer that rewards a large norm.

    L = mean of −log softmax(s·t)_y + λ·mean of (1/a + a/u²), where t_j = cos θ_j for j ≠ y,
    t_y = cos(θ_y + m(a)) where cos θ_y > 0, else cos θ_y, with a = clip(‖f‖, l, u) and m(a) linear
    from ``lower_margin`` at a = l (``lower_norm``) to ``upper_margin`` at a = u (``upper_norm``),
    in radians. Gradients reach a; outside l ... u the norm has none. λ is ``norm_weight``, and
    proxies are (C, d). Without ``easy_margin``, t_y = cos(θ_y + m(a)) up to θ_y = π − m(a), and
    past it cos θ_y − m(a)·sin m(a).

    Source: Meng, Zhao, Huang and Zhou 2021, "MagFace: A Universal Representation for Face
    Recognition and Quality Assessment"; the two branches are those of the authors' code.

    >>> loss = MagFaceLoss(num_classes=2, dim=2, scale=1)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> x = torch.tensor([[1.0, 0.0], [1.2, 1.6], [0.0, 3.0], [-4.0, 0.0]])  # norms 1, 2, 3, 4
    >>> loss(x, torch.tensor([0, 0, 1, 1])).detach()  # 0.5119 + 5·0.5218
    tensor(3.1209)
    """

    lower_norm: float = setting(default=1.0, low=1e-9)
    upper_norm: float = 51.0
    lower_margin: float = setting(default=0.45, low=0, high=math.pi / 2)
    upper_margin: float = setting(default=1.0, low=0, high=math.pi / 2, tune=("linear", 0.45, 1.2))
    scale: float = setting(default=16.0, low=1e-9, tune=("log", 8.0, 64.0))
    norm_weight: float = setting(default=5.0, low=0)
    easy_margin: bool = True

    def setup(self) -> None:
        super().setup()
        if self.upper_norm <= self.lower_norm or self.upper_margin < self.lower_margin:
            raise ValueError("upper_norm must be above lower_norm, and upper_margin lower_margin")

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosine, y = self.cosines(embeddings), labels[:, None]  # (B, C), (B, 1)
        cos_y = cosine.gather(1, y)  # (B, 1)
        a = geometry.norms(embeddings, keepdim=True).clamp(self.lower_norm, self.upper_norm)
        slope = (self.upper_margin - self.lower_margin) / (self.upper_norm - self.lower_norm)
        m = self.lower_margin + slope * (a - self.lower_norm)  # (B, 1): m(a)
        target = _turned(cos_y, m)
        if self.easy_margin:
            target = torch.where(cos_y > 0, target, cos_y)
        else:
            target = torch.where(cos_y >= -m.cos(), target, cos_y - m * m.sin())  # θ_y ≤ π − m
        regularizer = (1 / a + a / self.upper_norm**2).mean()
        entropy = self.cross_entropy(self.scale * cosine.scatter(1, y, target), labels)
        return entropy + self.norm_weight * regularizer


def _turned(cosine: Tensor, angle: Tensor) -> Tensor:
    """cos(θ + angle) from cos θ, of the same shape; acos has an infinite gradient at ±1."""
    return cosine * angle.cos() - geometry.safe_sqrt(1 - cosine * cosine) * angle.sin()
