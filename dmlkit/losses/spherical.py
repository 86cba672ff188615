"""The sphere: SEC holds norms together, heated-up softmax, SEE's synthetic points, centers."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.checks import check_choice, check_count, check_positive, check_range
from dmlkit.losses.contract import (
    Declared,
    EmbeddingLoss,
    check_embeddings,
    check_labels,
    moved_average,
    setting,
    state,
)
from dmlkit.losses.proxies import SoftmaxLoss
from dmlkit.losses.table import register

DIRECTIONS = ("simplex", "rotated", "random", "none")


class SphericalConstraint(Declared):
    """SEC: hold the norms of the raw embeddings together, as an addition to any loss.

    L = η · mean_i (n_i − μ)², n_i = ‖f_i‖, with μ the batch's mean norm (``target="mean"``), its
    moving average μ ← (1 − ρ)μ + ρ·mean(n) (``"ema"``, ρ the ``momentum``; see ``moved_average``),
    or a fixed norm; ``target=0.0`` is the L2 penalty. With ``relative`` the distances are shares of
    μ, (n_i/μ − 1)²: then the scale of the norms is free. Embeddings are raw, (B, d); labels are
    not used, so that a constraint can be called as a loss is.

    Source: Zhang, Li and Zhang 2020, "Deep Metric Learning with Spherical Embedding"; the L2
    penalty is that of Sohn 2016; the relative one is ours.

    >>> SphericalConstraint(weight=0.5)(torch.tensor([[3.0, 4.0], [0.0, 1.0]]))
    tensor(2.)
    """

    weight: float = setting(default=1.0, low=0)
    target: float | str = "mean"
    momentum: float = setting(default=1.0, low=1e-9, high=1)
    relative: bool = False
    average: Tensor = state(dtype=torch.float32)
    started: Tensor = state(dtype=torch.bool)

    def setup(self) -> None:
        if isinstance(self.target, str):
            check_choice(("mean", "ema"), target=self.target)
        elif self.relative:
            check_positive(target=self.target)
        else:
            check_range(0, target=self.target)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        """The penalty of one batch, in float32 for half precision."""
        check_embeddings(embeddings)
        n = geometry.norms(embeddings.to(torch.promote_types(embeddings.dtype, torch.float32)))
        mu: Any = self.target
        if mu == "mean":
            mu = n.mean()
        elif mu == "ema":
            mu = moved_average(self, n.detach().mean(), self.momentum)
        scale = mu if self.relative else 1.0
        return self.weight * ((n - mu) / scale).square().mean()  # n (B,)


@register(
    "heated_up_softmax", "proxies", "heated-up softmax", 2018,
    r"$-\log\,\mathrm{softmax}(\cos\theta/\sigma)_y$",
    r"$\sigma$ rises late",
)  # fmt: skip
class HeatedUpSoftmaxLoss(SoftmaxLoss):
    """Normalized softmax whose temperature rises late in training, to move the easy samples too.

    L = mean of −log softmax(α xᵀp̂)_y, with x and p̂ on the unit sphere, proxies (C, d), and α the
    inverse temperature: ``alpha`` for the first ``switch_at`` training batches, ``final_alpha``
    after them (never, where ``switch_at`` is None). The count of batches is part of the state.

    Source: Zhang, Yu, Karaman, Zhang and Chang 2018, "Heated-Up Softmax Embedding", which also
    divides the learning rate by 10 at the switch.

    >>> loss = HeatedUpSoftmaxLoss(num_classes=2, dim=2, alpha=2, final_alpha=1, switch_at=1)
    >>> _ = loss.proxies.data.copy_(torch.eye(2))
    >>> x, y = torch.tensor([[3.0, 0.0]]), torch.tensor([0])
    >>> loss(x, y), loss(x, y)  # log(1 + e⁻²), then log(1 + e⁻¹)
    (tensor(0.1269, ...), tensor(0.3133, ...))
    """

    alpha: float = setting(default=16.0, low=1e-9, tune=("log", 4.0, 64.0))
    final_alpha: float = setting(default=4.0, low=1e-9)
    switch_at: int | None = setting(default=None, low=0)
    step: Tensor = state(dtype=torch.int64)

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        logits = self.logits(embeddings)
        if self.training:
            self.step = self.step + 1  # in place, a compiled backward would see the next α
        return self.cross_entropy(logits, labels)

    def logits(self, embeddings: Tensor) -> Tensor:
        cosine = self.cosines(embeddings)  # (B, C): xᵀp̂
        switch_at = math.inf if self.switch_at is None else self.switch_at
        early = (self.step < switch_at).to(cosine.dtype)
        return (self.alpha * early + self.final_alpha * (1 - early)) * cosine


def simplex(points: int, like: Tensor | None = None) -> Tensor:
    """Vertices of the regular simplex of n + 1 points in n dimensions: int -> (n + 1, n).

    Unit rows with ⟨μ_i, μ_j⟩ = −1/n and sum 0, the first of them e₁: row k is μ_k in the basis
    v_1 ... v_n of SEE's Algorithm 1, whose α has the closed form
    α_jj = √((n + 1)(n − j + 1) / (n(n − j + 2))) and α_kj = −α_jj/(n − j + 1) for k > j. ``like``
    gives dtype and device.

    >>> simplex(2)
    tensor([[ 1.0000,  0.0000],
            [-0.5000,  0.8660],
            [-0.5000, -0.8660]])
    """
    n = points
    like = torch.empty(0) if like is None else like
    m = torch.arange(n, 0, -1, dtype=like.dtype, device=like.device)  # (n,): n − j + 1
    diagonal = ((n + 1) / n * (m / (m + 1))).sqrt()  # α_jj
    below = (diagonal / m).expand(n + 1, n).tril(-1)  # −α_kj
    return torch.eye(n + 1, n, dtype=m.dtype, device=m.device) * diagonal - below


def expand(
    embeddings: Tensor,
    proxies: Tensor,
    points: int,
    generator: torch.Generator | None = None,
    directions: str = "simplex",
) -> Tensor:
    """Synthetic points around each sample's proxy, as far apart as can be: (B, d) -> (B, n, d).

    With z and w the embedding and its proxy on the unit sphere (raw rows are normalized here)
    and r = z − ⟨w,z⟩w, the points are z_k = ⟨w,z⟩w + ‖r‖μ_k, k = 2 ... n + 1, on the unit sphere
    and as near to w as z is. {r/‖r‖, μ_2, ..., μ_{n+1}} are the vertices of a regular simplex
    orthogonal to w. At r = 0 the points are the sample itself.

    ``directions`` is ``"simplex"``; ``"rotated"``, the same turned at random about w and r
    (``"simplex"`` with a generator is that too), by one orthogonal matrix for the batch and signs
    of the coordinates for each sample; ``"random"``, n independent directions orthogonal to w; or,
    as a control, ``"none"``, the sample itself n times. What is random comes from the generator, or
    else from torch's default one on the device. Half precision is computed and returned in float32.

    Source: Le and Woo 2024, "SEE: Spherical Embedding Expansion for Improving Deep Metric
    Learning", Algorithm 1 and equation 2, with two reflections in place of Gram-Schmidt.

    Raises:
        ValueError: more points than d − 1, unequal shapes, unknown directions.

    >>> expand(torch.tensor([[0.6, 0.8]]), torch.tensor([[1.0, 0.0]]), points=1)
    tensor([[[ 0.6000, -0.8000]]])
    """
    check_embeddings(embeddings)
    if embeddings.shape != proxies.shape:
        raise ValueError(
            "embeddings and proxies must both be (B, d), the proxy of each sample in its row, "
            f"but are {tuple(embeddings.shape)} and {tuple(proxies.shape)}"
        )
    check_choice(DIRECTIONS, directions=directions)
    check_range(1, embeddings.shape[1] - 1, points=points)  # a simplex needs the dimensions
    dtype = torch.promote_types(embeddings.dtype, torch.float32)  # float64 stays
    z, w = geometry.normalize(embeddings.to(dtype)), geometry.normalize(proxies.to(dtype))  # (B, d)
    if directions == "none":
        return z[:, None].expand(-1, points, -1)
    center = (w * z).sum(dim=1, keepdim=True) * w
    r = z - center
    if directions == "random":
        g = z.new_empty(len(z), points, z.shape[1]).normal_(generator=generator)  # (B, n, d)
        mu = geometry.normalize(g - (g * w[:, None]).sum(dim=2, keepdim=True) * w[:, None])
        return center[:, None] + geometry.norms(r, keepdim=True)[:, None] * mu
    mu = simplex(points, like=z)[1:, 1:]  # (n, n-1): μ_k without its part along r
    center = center - r / points
    if directions == "simplex" and generator is None:
        return _place(mu, w, r, center)
    mu = mu @ random_rows(points - 1, z.shape[1] - 2, z, generator)  # (n, d-2)
    flip = 2 * torch.empty_like(z).bernoulli_(generator=generator) - 1  # (B, d): ±1
    return flip[:, None] * _place(mu, flip * w, flip * r, flip * center)


def _place(mu: Tensor, w: Tensor, r: Tensor, center: Tensor) -> Tensor:
    """center + ‖r‖H₁H₂μ, where H₁e₁ = ±w and H₂e₂ = ±H₁r/‖r‖: (n, <d-1), (B, d) -> (B, n, d).

    H = I − 2uuᵀ/uᵀu = I − uuᵀ/|u_a| takes e_a to ∓v for u = v ± e_a, where uᵀu = 2|u_a|. μ has no
    part along e₁ and e₂, so H₁H₂μ is orthogonal to w and r and keeps μ's inner products. At r = 0
    nothing is divided by 0, and all that is left is the center: the sample itself.
    """
    mu = F.pad(mu, (2, w.shape[1] - 2 - mu.shape[1]))  # (n, d): its coordinates are along e₃ ...
    radius = geometry.norms(r, keepdim=True)  # (B, 1)
    h = r / torch.where(radius > 0, radius, 1)  # r/‖r‖
    u1 = _mirror(w, 0)  # (B, d)
    length1 = u1[:, :1].abs()  # (B, 1): u₁ᵀu₁/2
    H1h = h - (u1 * h).sum(dim=1, keepdim=True) / length1 * u1
    u2 = _mirror(H1h, 1)
    length2 = u2[:, 1:2].abs()
    c2 = u2 @ mu.T / length2  # (B, n): H₂μ = μ − c₂u₂
    c1 = (u1 @ mu.T - c2 * (u1 * u2).sum(dim=1, keepdim=True)) / length1  # H₁H₂μ = H₂μ − c₁u₁
    # center + ‖r‖(μ − c₁u₁ − c₂u₂) as one product, in under half the time of sums of (B, n, d).
    parts = torch.stack([torch.ones_like(c1), -radius * c1, -radius * c2], dim=2)  # (B, n, 3)
    axes = torch.stack([center, u1, u2], dim=1)  # (B, 3, d)
    return torch.baddbmm(radius[:, None] * mu, parts, axes)


def _mirror(v: Tensor, axis: int) -> Tensor:
    """The normal of the mirror that takes v to ∓e_axis, v ± e_axis: (B, d) -> (B, d)."""
    sign = torch.where(v[:, axis : axis + 1] >= 0, 1.0, -1.0)  # (B, 1): that of v, so no part is 0
    e = torch.arange(v.shape[1], device=v.device) == axis  # (d,)
    return v + sign * e


def random_rows(rows: int, dim: int, like: Tensor, generator: torch.Generator | None) -> Tensor:
    """The first rows of a random orthogonal matrix, uniform over all of them: (rows, dim)."""
    gaussian = torch.randn(dim, rows, generator=generator, dtype=like.dtype, device=like.device)
    q, triangle = torch.linalg.qr(gaussian)
    return (q * triangle.diagonal().sign()).T


@register(
    "spherical_expansion", "synthesis", "SEE, as in the paper", 2024,
    r"Proxy-Anchor(real)",
    r"$+\,\lambda\,$Proxy-Anchor(simplex round the proxy)",
    wraps="proxy_anchor", tuned=False,
)  # fmt: skip
class SphericalExpansion(EmbeddingLoss):
    """SEE: any proxy loss on the batch, and again on synthetic points spread around its proxies.

    L = L_ML(real) + λ·L_ML(synthetic), λ the ``weight``, the synthetic points those of
    :func:`expand`, ``points`` a sample, under the sample's label and with its norm, for losses that
    read it. The second term is the wrapped loss's own average over them, as in the authors' code;
    the paper's equation 3 prints a sum over the points of a sample, which is λ·n instead of λ.

    ``loss`` is a module with ``proxies`` (C, d). With ``detach`` the second term reaches the
    proxies alone, never the encoder, as in the authors' code; the paper does not say so.

    Curriculum: only the B·rate samples nearest to their proxies are expanded, where the rate
    rises by half a cosine from ``start_rate`` to ``end_rate`` over ``steps`` training batches and
    stays there (``steps=0``: from the first batch; None: every sample is expanded). The count of
    batches is part of the state. As it decides a shape, ``torch.compile(fullgraph=True)`` needs
    ``steps=None``.

    Source: Le and Woo 2024, equations 3 and 4.

    >>> from dmlkit.losses import NormalizedSoftmaxLoss
    >>> see = SphericalExpansion(NormalizedSoftmaxLoss(num_classes=5, dim=4), points=2)
    >>> see(torch.randn(3, 4), torch.tensor([0, 4, 4])).shape
    torch.Size([])
    """

    loss: nn.Module = setting()
    points: int = 8
    weight: float = setting(default=0.2, low=0)
    detach: bool = False
    directions: str = setting(default="rotated", choices=DIRECTIONS)
    start_rate: float = setting(default=0.0, low=0, high=1)
    end_rate: float = setting(default=0.4, low=0, high=1)
    steps: int | None = setting(default=None, low=0)

    def setup(self) -> None:
        proxies = getattr(self.loss, "proxies", None)
        if not isinstance(proxies, Tensor) or proxies.ndim != 2:
            raise TypeError(f"loss must be a module with proxies (C, d), but is {self.loss!r}")
        check_range(1, proxies.shape[1] - 1, points=self.points)
        self.step = 0  # a Python int: it decides shapes, so the device must never be asked

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        proxies: Tensor = self.loss.proxies  # type: ignore[assignment]  # (C, d)
        check_labels(labels, len(proxies))
        B = len(embeddings)
        k = B
        if self.steps is not None:
            # Decided at each call: as a decorator, this would load the compiler for everyone.
            compiling = torch.compiler.is_compiling()
            k = (torch.compiler.disable(self._expanded) if compiling else self._expanded)(B)
        real = self.loss(embeddings, labels)
        if k == 0:
            return real
        w = proxies[labels]  # (B, d)
        if self.detach:
            embeddings, w = embeddings.detach(), w.detach()
        if k < B:
            with torch.no_grad():
                z, towards = geometry.normalize(embeddings), geometry.normalize(w)
                nearest = (z * towards).sum(dim=1).topk(k).indices  # (k,)
            embeddings, w, labels = embeddings[nearest], w[nearest], labels[nearest]
        synthetic = expand(embeddings, w, self.points, directions=self.directions)  # (k, n, d)
        synthetic = geometry.norms(embeddings, keepdim=True)[:, None] * synthetic
        again = labels.repeat_interleave(self.points)
        return real + self.weight * self.loss(synthetic.flatten(0, 1), again)

    def _expanded(self, batch: int) -> int:
        """How many samples of a batch are expanded now; counts the batch in training mode."""
        progress = min(self.step / self.steps, 1) if self.steps else 1
        rise = (1 - math.cos(math.pi * progress)) / 2
        self.step += self.training
        return round(batch * (self.start_rate + (self.end_rate - self.start_rate) * rise))

    def get_extra_state(self) -> Tensor:
        """The count of training batches, as a tensor for every way of saving a state."""
        return torch.tensor(self.step)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore the count of a saved state."""
        self.step = int(state)


def max_mahalanobis_centers(
    classes: int, dim: int, norm: float = 1.0, steps: int = 1000, seed: int = 0
) -> Tensor:
    """GenerateOptMeans: L centers of one norm whose largest cosine is least: int, int -> (L, d).

    These are the means of the Max-Mahalanobis Distribution, a mixture of Gaussians with identity
    covariance whose means lie as far apart as can be. With L = ``classes`` and d = ``dim``:

    - L <= d + 1: the regular simplex, ⟨μ_i, μ_j⟩ = −C²/(L − 1), C the ``norm``; the table is
      ``simplex(L − 1)`` with columns of 0;
    - L <= 2d: some of the axes ±e_j; by Rankin no L > d + 1 points have all cosines below 0;
    - else: a local minimum of the largest cosine, found from random points, which ``seed`` alone
      decides, by ``steps`` steps of Adam.

    Source: Pang, Du and Zhu 2018, "Max-Mahalanobis Linear Discriminant Analysis Networks",
    algorithm GenerateOptMeans; Rankin 1955, "The Closest Packing of Spherical Caps in n
    Dimensions".

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
