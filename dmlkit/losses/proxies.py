"""Proxy losses: each class has a learned point, and a batch is compared with those points only."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.losses.contract import (
    EmbeddingLoss,
    check_dim,
    check_embeddings,
    check_labels,
    masked_logsumexp,
    masked_mean,
    setting,
    state,
)
from dmlkit.losses.table import register


class ProxyLoss(EmbeddingLoss):
    """A loss with a learned point for each class: ``proxies`` (C, d), from the normal distribution.

    Raises:
        ValueError: embeddings of another dimension than the proxies, labels beyond C − 1.
    """

    num_classes: int = setting(low=1)
    dim: int = setting(low=1)
    proxies: nn.Parameter = state()

    def setup(self) -> None:
        self.proxies = nn.Parameter(torch.randn(self.shape()))

    def shape(self) -> tuple[int, ...]:
        """Of the proxies."""
        return self.num_classes, self.dim

    def check(self, embeddings: Tensor, labels: Tensor) -> None:
        super().check(embeddings, labels)
        check_dim(embeddings, self.proxies.shape[-1])
        check_labels(labels, len(self.proxies))

    def on_sphere(self, embeddings: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings (B, d) and proxies (C, ..., d) as unit rows; 0 for a zero row."""
        proxies = geometry.normalize(self.proxies.to(embeddings.dtype))
        return geometry.normalize(embeddings), proxies

    def cosines(self, embeddings: Tensor) -> Tensor:
        """Cosine of every embedding to every proxy: (B, d) -> (B, C), of K centers (B, C, K)."""
        x, p = self.on_sphere(embeddings)
        return (x @ p.flatten(0, -2).T).view(len(x), *p.shape[:-1])

    def logits(self, embeddings: Tensor) -> Tensor:
        """How strongly each class claims an embedding, without margins: (B, d) -> (B, C)."""
        return self.cosines(embeddings)

    @torch.no_grad()
    def predict(self, embeddings: Tensor) -> Tensor:
        """The class whose proxies claim each embedding most: (B, d) -> (B,).

        >>> loss = NormalizedSoftmaxLoss(num_classes=2, dim=2)
        >>> _ = loss.proxies.data.copy_(torch.eye(2))
        >>> loss.predict(torch.tensor([[0.1, 3.0], [2.0, 1.0]]))
        tensor([1, 0])
        """
        check_embeddings(embeddings)
        check_dim(embeddings, self.proxies.shape[-1])
        return self.logits(embeddings).argmax(dim=1)


class SoftmaxLoss(ProxyLoss):
    """The cross-entropy of a batch's logits, whose classes may weigh differently.

    ``class_weights`` (C,), such as 1/n of a class of n images, make it the weighted mean
    Σ_i w_{y_i} L_i / Σ_i w_{y_i} over the samples i of a batch, and 0 where all of these weigh 0.
    """

    class_weights: Sequence[float] | None = setting(default=None, kw_only=True)
    weight_of_class: Tensor | None = state()

    def setup(self) -> None:
        super().setup()
        weights = self.class_weights
        made = None if weights is None else torch.as_tensor(weights, dtype=torch.float32)
        if made is not None:
            fits = len(made) == self.num_classes and (made >= 0).all() and made.isfinite().all()
            if not fits or not made.any():
                raise ValueError(
                    f"class_weights must be {self.num_classes} finite numbers from 0, not all 0, "
                    f"but are {weights}"
                )
        self.register_buffer("weight_of_class", made)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.cross_entropy(self.logits(embeddings), labels)

    def cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The weighted mean of −log softmax(logits)_y: (B, C), (B,) -> scalar."""
        weights = self.weight_of_class
        if weights is None:
            return F.cross_entropy(logits, labels)
        weights = weights.to(logits.dtype)
        total = weights[labels].sum()
        return F.cross_entropy(logits, labels, weights, reduction="sum") / total.where(total > 0, 1)


class TargetSoftmaxLoss(SoftmaxLoss):
    """Softmax of scaled cosines, where a ``target`` stands for the cosine of the own class."""

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        cosine, y = self.cosines(embeddings), labels[:, None]  # (B, C), (B, 1)
        target = self.target(cosine.gather(1, y), y, embeddings)  # (B, 1)
        return self.cross_entropy(self.scaled(cosine.scatter(1, y, target), embeddings), labels)

    def target(self, cos_y: Tensor, y: Tensor, embeddings: Tensor) -> Tensor:
        """What stands for the cosine of the own class y: (B, 1), (B, 1), (B, d) -> (B, 1)."""
        raise NotImplementedError

    def scaled(self, cosines: Tensor, embeddings: Tensor) -> Tensor:
        """Logits of cosines (B, C)."""
        return self.scale * cosines  # type: ignore[operator] # a setting of the subclass

    def logits(self, embeddings: Tensor) -> Tensor:
        return self.scaled(self.cosines(embeddings), embeddings)


@register(
    "proxy_triplet", "proxies", "proxy triplets", 2017,
    r"$\mathrm{mean}_{z\neq y}[D_y^2-D_z^2+m]_+$",
)  # fmt: skip
class ProxyTripletLoss(ProxyLoss):
    """The triplet loss with proxies instead of a positive and a negative sample.

    L = mean over samples and all z ≠ y of [‖x − p̂_y‖² − ‖x − p̂_z‖² + m]₊, with x and p̂ on the
    unit sphere; proxies are (C, d).

    Source: Movshovitz-Attias et al. 2017, "No Fuss Distance Metric Learning using Proxies".

    >>> loss = ProxyTripletLoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).detach()  # [2 − 0 + 1]₊
    tensor(3.)
    """

    margin: float = setting(default=1.0, tune=("linear", 0.1, 2.0))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        D2 = 2 - 2 * self.cosines(embeddings)  # (B, C): ‖x − p̂_z‖²
        D2_y = D2.gather(1, labels[:, None])  # (B, 1): ‖x − p̂_y‖²
        hinge = (D2_y - D2 + self.margin).relu()  # (B, C)
        return masked_mean(hinge, ~_one_hot(labels, D2))


@register(
    "proxy_nca", "proxies", "Proxy-NCA", 2017,
    r"$D_y^2+\mathrm{LSE}_{z\neq y}(-D_z^2)$",
    "on a sphere of radius 3",
)  # fmt: skip
class ProxyNCALoss(ProxyLoss):
    """Be nearer to the own proxy than to a soft minimum over all other proxies.

    L = mean of −log(exp(−D²_y) / Σ_{z≠y} exp(−D²_z)) = mean of D²_y + LSE_{z≠y}(−D²_z), where
    D²_z = ‖s·x − s·p̂_z‖², x and p̂ on the unit sphere and s the scale; proxies are (C, d). The own
    proxy is not in the sum, so the loss may be negative: this is no softmax over classes.

    Source: Movshovitz-Attias et al. 2017, "No Fuss Distance Metric Learning using Proxies".

    >>> loss = ProxyNCALoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([0])).detach()  # 0 − 3²·2
    tensor(-18.)
    """

    scale: float = setting(default=3.0, low=1e-9, tune=("linear", 1.0, 6.0))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        # D²_z = 2s² − 2s²·xᵀp̂_z, whose constant cancels between D²_y and the sum
        near = self.logits(embeddings)  # (B, C): 2s² − D²_z
        own = _one_hot(labels, near)  # (B, C): z = y
        others = masked_logsumexp(near, ~own, dim=1)  # (B,): LSE over z ≠ y
        return masked_mean(others - near.gather(1, labels[:, None])[:, 0], ~own.all(dim=1))

    def logits(self, embeddings: Tensor) -> Tensor:
        return 2 * self.scale**2 * self.cosines(embeddings)


@register(
    "proxy_nca_pp", "proxies", "Proxy-NCA++", 2020,
    r"$-\log\,\mathrm{softmax}(-D^2/\sigma)_y$",
)  # fmt: skip
class ProxyNCAPlusPlusLoss(SoftmaxLoss):
    """Proxy-NCA as a probability: the own proxy is in the sum, and a temperature sharpens it.

    L = mean of −log softmax(−D²/T)_y, where D²_z = ‖x − p̂_z‖², x and p̂ on the unit sphere;
    proxies are (C, d). Since D² = 2 − 2xᵀp̂, it equals the normalized softmax at σ = T/2.

    Source: Teh, DeVries and Taylor 2020, "ProxyNCA++: Revisiting and Revitalizing Proxy
    Neighborhood Component Analysis".

    >>> loss = ProxyNCAPlusPlusLoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[1.0, 0.0]]), torch.tensor([1])).detach()  # log(1 + exp(9·2))
    tensor(18.)
    """

    temperature: float = setting(default=1 / 9, low=1e-9, tune=("log", 0.02, 0.5))

    def logits(self, embeddings: Tensor) -> Tensor:
        D2 = 2 - 2 * self.cosines(embeddings)  # (B, C): ‖x − p̂_z‖²
        return -D2 / self.temperature


@register(
    "normalized_softmax", "proxies", "normalized softmax", 2019,
    r"$-\log\,\mathrm{softmax}(\cos\theta/\sigma)_y$",
)  # fmt: skip
class NormalizedSoftmaxLoss(SoftmaxLoss):
    """Classify by the cosine to each class's proxy, sharpened by a temperature.

    L = mean of −log softmax(xᵀp̂ / σ)_y, with x and p̂ on the unit sphere; proxies are (C, d).

    Source: Zhai and Wu 2019, "Classification is a Strong Baseline for Deep Metric Learning",
    equation 3.

    >>> loss = NormalizedSoftmaxLoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).item() < 1e-6
    True
    """

    temperature: float = setting(default=0.05, low=1e-9, tune=("log", 0.02, 0.5))

    def logits(self, embeddings: Tensor) -> Tensor:
        return self.cosines(embeddings) / self.temperature  # (B, C): xᵀp̂ / σ


@register(
    "cosface", "proxies", "CosFace", 2018,
    r"$-\log\,\mathrm{softmax}(\alpha(\cos\theta_z-m\,[z=y]))_y$",
)  # fmt: skip
class CosFaceLoss(TargetSoftmaxLoss):
    """Normalized softmax whose own class must win by a margin in cosine.

    L = mean of −log softmax(s(cos θ_z − m·[z = y]))_y, θ_z the angle between embedding and proxy;
    proxies are (C, d).

    Source: Wang et al. 2018, "CosFace: Large Margin Cosine Loss for Deep Face Recognition",
    equation 4.

    >>> loss = CosFaceLoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).detach()  # 64·(1 − (0 − 0.35))
    tensor(86.4000)
    """

    margin: float = setting(default=0.35, tune=("linear", 0.0, 0.5))
    scale: float = setting(default=64.0, low=1e-9, tune=("log", 8.0, 64.0))

    def target(self, cos_y: Tensor, y: Tensor, embeddings: Tensor) -> Tensor:
        return cos_y - self.margin


@register(
    "arcface", "proxies", "ArcFace", 2019,
    r"$-\log\,\mathrm{softmax}(\alpha\cos(\theta_z+m\,[z=y]))_y$",
)  # fmt: skip
class ArcFaceLoss(TargetSoftmaxLoss):
    """Normalized softmax whose own class must win by a margin in angle.

    L = mean of −log softmax(s·t)_y, where t_z = cos θ_z for z ≠ y and t_y = cos(θ_y + m), θ_z the
    angle between embedding and proxy. Past θ_y > π − m, where cos(θ_y + m) would rise again,
    t_y = cos θ_y − m·sin m. The margin is in radians; proxies are (C, d). With the images of
    each class, ``class_sizes`` (C,), rare classes have wider margins: m (n_c / min n)^−¼.

    Source: Deng et al. 2019, "ArcFace: Additive Angular Margin Loss for Deep Face Recognition",
    equation 3; the branch is that of the authors' code. Margins by size: Ha et al. 2020, "Google
    Landmark Recognition 2020 Competition Third Place Solution", whose law is a·n^−¼ + b.

    >>> loss = ArcFaceLoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).detach()  # 64·(1 − cos(π/2 + 0.5))
    tensor(94.6832)
    """

    margin: float = setting(default=0.5, low=0, high=math.pi / 2, tune=("linear", 0.0, 0.6))
    scale: float = setting(default=64.0, low=1e-9, tune=("log", 8.0, 64.0))
    class_sizes: Sequence[int] | None = setting(default=None, kw_only=True)
    margin_of_class: Tensor | None = state()

    def setup(self) -> None:
        super().setup()
        sizes = self.class_sizes
        n = None if sizes is None else torch.as_tensor(sizes, dtype=torch.float32)
        if n is not None and not (
            len(n) == self.num_classes and (n >= 1).all() and n.isfinite().all()
        ):
            raise ValueError(
                f"class_sizes must be {self.num_classes} whole numbers from 1, but are {sizes}"
            )
        margins = None if n is None else self.margin * (n / n.min()) ** -0.25
        self.register_buffer("margin_of_class", margins)

    def target(self, cos_y: Tensor, y: Tensor, embeddings: Tensor) -> Tensor:
        sin_y = geometry.safe_sqrt(1 - cos_y * cos_y)  # acos has an infinite gradient at ±1
        m: Any = self.margin
        if self.margin_of_class is not None:
            m = self.margin_of_class[y].to(cos_y.dtype)  # (B, 1)
        cos_m, sin_m = (m.cos(), m.sin()) if isinstance(m, Tensor) else (math.cos(m), math.sin(m))
        return torch.where(
            cos_y >= -cos_m,  # θ_y ≤ π − m
            cos_y * cos_m - sin_y * sin_m,  # cos(θ_y + m)
            cos_y - m * sin_m,
        )


@register(
    "subcenter_arcface", "proxies", "sub-center ArcFace", 2020,
    r"$-\log\,\mathrm{softmax}(\alpha\cos(\theta_z+m\,[z=y]))_y,\ \theta_z=\min_k\theta_{zk}$",
    studied=False,
)  # fmt: skip
class SubCenterArcFaceLoss(ArcFaceLoss):
    """ArcFace with several centers for each class, of which the nearest counts.

    L = that of ``ArcFaceLoss`` with cos θ_c = max_k xᵀŵ_ck, so that wrong or odd images of a class
    gather at a center of their own; the centers are the proxies, (C, K, d).

    Source: Deng, Guo, Liu, Gong and Zafeiriou 2020, "Sub-center ArcFace: Boosting Face Recognition
    by Large-Scale Noisy Web Faces", equation 3, with K = 3.

    >>> loss = SubCenterArcFaceLoss(num_classes=2, dim=2, centers=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2)[:, None])  # each class's centers are one
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).detach()  # as ArcFace's
    tensor(94.6832)
    """

    centers: int = setting(default=3, low=1)

    def shape(self) -> tuple[int, ...]:
        return self.num_classes, self.centers, self.dim

    def cosines(self, embeddings: Tensor) -> Tensor:
        return super().cosines(embeddings).amax(dim=2)  # (B, C)


@register(
    "sphereface", "proxies", "SphereFace", 2017,
    r"$-\log\,\mathrm{softmax}(\|f\|\,\psi_z)_y,\ \psi_y\approx\cos(m\theta_y)$",
)  # fmt: skip
class SphereFaceLoss(TargetSoftmaxLoss):
    """Softmax of the embedding's own length, whose own class must win m times over in angle.

    L = mean of −log softmax(‖f‖·t)_y, where t_z = cos θ_z for z ≠ y and
    t_y = (λ cos θ_y + ψ(θ_y)) / (1 + λ), with ψ(θ) = (−1)^k cos(mθ) − 2k on kπ/m ≤ θ ≤ (k + 1)π/m,
    which falls monotonically. Proxies are (C, d), and only their directions count.

    Training starts near the plain softmax: λ = max(λ_min, λ_max / (1 + γ·step)) falls with the
    number of calls in training mode, ``step``, part of the state. Without ``anneal``, λ = 0.

    Source: Liu et al. 2017, "SphereFace: Deep Hypersphere Embedding for Face Recognition"; the
    schedule's numbers are those of the authors' code.

    >>> loss = SphereFaceLoss(num_classes=2, dim=2, anneal=False)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).detach()  # log(1 + exp(2·(1 + 3)))
    tensor(8.0003)
    """

    margin: int = setting(default=4, low=1, high=100)  # it multiplies the angle
    anneal: bool = True
    lambda_max: float = setting(default=1000.0, low=0)
    lambda_min: float = setting(default=5.0, low=0, tune=("log", 1.0, 100.0))
    gamma: float = setting(default=0.12, low=0)
    step: Tensor = state(dtype=torch.int64)

    def target(self, cos_y: Tensor, y: Tensor, embeddings: Tensor) -> Tensor:
        if not self.anneal:
            return self.psi(cos_y)
        if self.training:
            self.step = self.step + 1  # in place, a compiled backward would see the next step's λ
        step = self.step.to(cos_y.dtype)  # a tensor: the counter never leaves the device
        weight = (self.lambda_max / (1 + self.gamma * step)).clamp_min(self.lambda_min)  # λ
        return (weight * cos_y + self.psi(cos_y)) / (1 + weight)

    def scaled(self, cosines: Tensor, embeddings: Tensor) -> Tensor:
        return geometry.norms(embeddings, keepdim=True) * cosines

    def psi(self, cosine: Tensor) -> Tensor:
        """ψ(θ) as a polynomial of cos θ; k is constant on each piece, and has no gradient."""
        below, multiple = torch.ones_like(cosine), cosine  # cos(0·θ), cos(1·θ)
        for _ in range(self.margin - 1):  # cos((j + 1)θ) = 2 cos θ cos(jθ) − cos((j − 1)θ)
            below, multiple = multiple, 2 * cosine * multiple - below
        theta = cosine.detach().clamp(-1, 1).acos()
        k = (self.margin / math.pi * theta).floor()
        return (1 - 2 * (k % 2)) * multiple - 2 * k


@register(
    "proxy_anchor", "proxies", "Proxy-Anchor", 2020,
    r"$\mathrm{mean}_{p}\log(1+\sum_{x\in p}e^{-\alpha(s-\delta)})$",
    r"$+\,\mathrm{mean}_{p}\log(1+\sum_{x\notin p}e^{\alpha(s+\delta)})$",
)  # fmt: skip
class ProxyAnchorLoss(ProxyLoss):
    """Each proxy gathers its own class's samples and drives off all others, hard ones first.

    L = 1/|P⁺| Σ_{p∈P⁺} log(1 + Σ_{x∈X⁺_p} exp(−α(s(x, p) − δ)))
    + 1/C Σ_p log(1 + Σ_{x∈X⁻_p} exp(α(s(x, p) + δ))),
    where s is the cosine, X⁺_p and X⁻_p are the batch's samples of p's class and of all others,
    and P⁺ are the proxies whose class is in the batch; proxies are (C, d).

    Source: Kim et al. 2020, "Proxy Anchor Loss for Deep Metric Learning", equation 4.

    >>> loss = ProxyAnchorLoss(num_classes=2, dim=2)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([0])).detach()  # 0 + log(1 + exp(3.2)) / 2
    tensor(1.6200)
    """

    margin: float = setting(default=0.1, tune=("linear", 0.0, 0.4))
    alpha: float = setting(default=32.0, low=1e-9, tune=("log", 8.0, 64.0))

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        s = self.cosines(embeddings)  # (B, C)
        own = _one_hot(labels, s)  # (B, C): x ∈ X⁺_p
        gather = masked_logsumexp(-self.alpha * (s - self.margin), own, dim=0)  # (C,)
        drive_off = masked_logsumexp(self.alpha * (s + self.margin), ~own, dim=0)  # (C,)
        one = s.new_zeros(())  # logaddexp(0, L) = log(1 + exp L)
        pull, push = torch.logaddexp(one, gather), torch.logaddexp(one, drive_off)
        return masked_mean(pull, own.any(dim=0)) + push.mean()

    def logits(self, embeddings: Tensor) -> Tensor:
        return self.alpha * self.cosines(embeddings)


@register(
    "soft_triple", "proxies", "SoftTriple", 2019,
    r"$-\log\,\mathrm{softmax}(\alpha(S-\delta\,[z=y]))_y$",
    r"$S_z=\sum_k\mathrm{softmax}_k(s_{zk}/\gamma)\,s_{zk}$",
)  # fmt: skip
class SoftTripleLoss(SoftmaxLoss):
    """Classify by a soft nearest of several centers for each class, and let spare centers merge.

    S_c = Σ_k softmax_k(xᵀŵ_ck / γ) xᵀŵ_ck,
    L = mean of −log softmax(λ(S − δ·[c = y]))_y + τ/(CK(K−1)) Σ_c Σ_{j<k} ‖ŵ_cj − ŵ_ck‖,
    with x and the centers ŵ on the unit sphere. Here λ is ``scale``, γ ``temperature``, δ
    ``margin`` and τ ``regularization``. The centers are the proxies, (C, K, d).

    Source: Qian et al. 2019, "SoftTriple Loss: Deep Metric Learning Without Triplet Sampling".

    >>> loss = SoftTripleLoss(num_classes=2, dim=2, centers=3)
    >>> _ = loss.proxies.data.copy_(torch.eye(2)[:, None])  # each class's centers have merged
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([1])).detach()  # 20·(1 − (0 − 0.01))
    tensor(20.2000)
    """

    centers: int = setting(default=10, low=1)
    scale: float = setting(default=20.0, low=1e-9, tune=("log", 8.0, 40.0))
    temperature: float = setting(default=0.1, low=1e-9, tune=("log", 0.03, 0.3))
    margin: float = 0.01
    regularization: float = setting(default=0.2, low=0)

    def shape(self) -> tuple[int, ...]:
        return self.num_classes, self.centers, self.dim

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        C, K, _ = self.proxies.shape
        x, w = self.on_sphere(embeddings)  # (B, d), (C, K, d)
        S, y = self._similarities(x, w), labels[:, None]  # (B, C), (B, 1)
        logits = self.scale * S.scatter(1, y, S.gather(1, y) - self.margin)
        D = geometry.safe_sqrt(2 - 2 * (w @ w.mT))  # (C, K, K): ‖ŵ_cj − ŵ_ck‖
        spread = D.triu(diagonal=1).sum() / max(C * K * (K - 1), 1)
        return self.cross_entropy(logits, labels) + self.regularization * spread

    def logits(self, embeddings: Tensor) -> Tensor:
        return self.scale * self._similarities(*self.on_sphere(embeddings))

    def _similarities(self, x: Tensor, w: Tensor) -> Tensor:
        """S, the soft nearest of each class's centers: (B, d), (C, K, d) -> (B, C)."""
        cosine = (x @ w.flatten(0, 1).T).view(-1, *w.shape[:2])  # (B, C, K): xᵀŵ
        return ((cosine / self.temperature).softmax(dim=2) * cosine).sum(dim=2)


@register(
    "meta_class", "ensembles", "meta-classes", 2018,
    r"$-\log\,\mathrm{softmax}(f)_{m(y)}$",
    "m: random handfuls of classes",
    tuned=False,
)  # fmt: skip
class MetaClassLoss(EmbeddingLoss):
    """Classify into ``dim`` meta-classes, each a random handful of the classes.

    L = mean of −log softmax(f)_{m(y)}, with the raw embedding f (B, dim) itself as the logits. The
    map m, drawn from ``map_seed``, is balanced: the numbers of classes in two meta-classes differ
    by at most one. It is part of the state, as ``meta_classes`` (num_classes,).

    Source: Xuan, Souvenir and Pless 2018, "Deep Randomized Ensembles for Metric Learning"; raw
    logits as in the authors' code.

    >>> loss = MetaClassLoss(num_classes=4, dim=2)
    >>> loss.meta_classes.bincount()
    tensor([2, 2])
    >>> f = torch.tensor([[2.0, 0.0], [0.0, 2.0]])  # log(1 + e⁻²) if both are right
    >>> loss(f, torch.stack([(loss.meta_classes == k).int().argmax() for k in (0, 1)]))
    tensor(0.1269)
    """

    num_classes: int = setting(low=1)
    dim: int = setting(low=1)
    map_seed: int = setting(default=0, low=0)
    meta_classes: Tensor = state()

    def setup(self) -> None:
        generator = torch.Generator().manual_seed(self.map_seed)
        shuffled = torch.randperm(self.num_classes, generator=generator)
        self.register_buffer("meta_classes", shuffled % self.dim)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        check_dim(embeddings, self.dim)
        check_labels(labels, len(self.meta_classes))
        return F.cross_entropy(embeddings, self.meta_classes[labels])


def _one_hot(labels: Tensor, cosines: Tensor) -> Tensor:
    """Which of the (B, C) columns is the row's own class."""
    return torch.zeros_like(cosines, dtype=torch.bool).scatter(1, labels[:, None], True)
