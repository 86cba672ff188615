"""Losses that contrast all cosines of an anchor at once: SupCon, Circle, contextual similarity."""

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit import geometry
from dmlkit.losses.contract import (
    EmbeddingLoss,
    PairLoss,
    Pairs,
    masked_logsumexp,
    masked_mean,
    setting,
)
from dmlkit.losses.pairs import ContrastiveLoss
from dmlkit.losses.table import register


@register(
    "supcon", "pairs", "SupCon", 2020,
    r"$\mathrm{LSE}_{j}\,(s_j/\sigma)-\mathrm{mean}_p\,(s_p/\sigma)$",
)  # fmt: skip
class SupConLoss(PairLoss):
    """Classify each of an anchor's positives among all other samples of the batch.

    With z = s/T, s the cosine, and Y_i the positives of anchor i, the mean over anchors that have
    a positive of

    - ``side="out"``: LSE_{j≠i} z_ij − (1/|Y_i|) Σ_{j∈Y_i} z_ij, the sum outside the log;
    - ``side="in"``: LSE_{j≠i} z_ij − LSE_{j∈Y_i} z_ij + log|Y_i|, the sum inside it.

    Source: Khosla et al. 2020, "Supervised Contrastive Learning", equations 2 and 3.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> SupConLoss(side="out")(x, torch.tensor([5, 5, 5, 6]))
    tensor(2.7100)
    >>> SupConLoss(side="in")(x, torch.tensor([5, 5, 5, 6]))
    tensor(0.6933)
    """

    temperature: float = setting(default=0.1, low=1e-9, tune=("log", 0.02, 0.5))
    side: str = setting(default="out", choices=("out", "in"))

    def of(self, pairs: Pairs) -> Tensor:
        x, y = pairs.on_sphere()
        z = x / self.temperature @ y.T  # (B, N)
        n = pairs.positive.to(z.dtype).sum(dim=1)  # (B,): |Y_i|
        total = masked_logsumexp(z, pairs.positive | pairs.negative, dim=1)  # (B,)
        if self.side == "out":
            own = torch.where(pairs.positive, z, 0).sum(dim=1) / n.clamp_min(1)
        else:
            own = masked_logsumexp(z, pairs.positive, dim=1) - n.clamp_min(1).log()
        return masked_mean(total - own, n > 0)


@register(
    "circle", "pairs", "circle loss", 2020,
    r"$\log(1+\sum_n e^{\gamma a_n(s_n-m)}\sum_p e^{-\gamma a_p(s_p-1+m)})$",
    r"$a_n=[s_n+m]_+,\ a_p=[1+m-s_p]_+$",
)  # fmt: skip
class CircleLoss(PairLoss):
    """Pull and push each similarity the more, the farther it is from its own optimum.

    L = mean over anchors with a positive and a negative of
    log(1 + Σ_n e^{γ a_n (s_n − m)} Σ_p e^{−γ a_p (s_p − 1 + m)}), s the cosine, with the weights
    a_p = [1 + m − s_p]₊ and a_n = [s_n + m]₊, through which no gradient passes.

    Source: Sun et al. 2020, "Circle Loss: A Unified Perspective of Pair Similarity Optimization",
    equation 6.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> CircleLoss(gamma=1.0)(x, torch.tensor([5, 5, 6, 6]))
    tensor(1.4917)
    """

    margin: float = setting(default=0.4, low=0, high=1, tune=("linear", 0.1, 0.6))
    gamma: float = setting(default=80.0, low=1e-9, tune=("log", 16.0, 256.0))

    def of(self, pairs: Pairs) -> Tensor:
        x, y = pairs.on_sphere()
        s, m = x @ y.T, self.margin  # (B, N)
        with torch.no_grad():
            a_p, a_n = (1 + m - s).relu(), (s + m).relu()
            slope = self.gamma * torch.where(pairs.positive, -a_p, a_n)  # (B, N): of exponents
            boundary = m + (1 - 2 * m) * pairs.positive.to(s.dtype)  # 1 − m or m
        z = slope * (s - boundary)
        both = pairs.positive.any(dim=1) & pairs.negative.any(dim=1)  # (B,)
        total = masked_logsumexp(z, pairs.negative, dim=1) + masked_logsumexp(
            z, pairs.positive, dim=1
        )
        # Where one sum is empty, the lowest number stands for −∞, and must not count.
        return masked_mean(F.softplus(torch.where(both, total, 0), threshold=40), both)


@register(
    "contextual", "pairs", "contextual similarity", 2023,
    r"$\lambda\,\mathrm{mean}(1_{y_i=y_j}-J_{ij})^2+\gamma\,(\bar{s}-\mu)^2$",
    "+ contrastive; J: shared neighbors",
    tuned=("weight", "epsilon"),
)  # fmt: skip
class ContextualLoss(EmbeddingLoss):
    """Make two samples share their nearest neighbors if, and only if, they share a class.

    L = λ · (1/B²) Σ_{i≠j} (1[y_i = y_j] − J_ij)² + γ (mean(S) − μ)² + (1 − λ − γ) · contrastive,
    S the cosines (B, B), the diagonal among them; J is a soft Jaccard similarity of neighborhoods.
    With D² = 2 − 2S, N_i = {j: D²_ij ≤ D²_i(k) + ε} the k nearest of i and those about as near, i
    itself among them, M (B, B) their indicator, and R that of the k/2 nearest,

        W_ij = ½ (|N_i ∩ N_j| / |N_i| + |N̄_i ∩ N̄_j| / |N̄_i|) M_ij,
        Q = R ∘ Rᵀ,  V_ij = Σ_l Q_il W_lj / Σ_l Q_il,  J = ½ (V + Vᵀ).

    Backward, each indicator is a line: a gradient g at it is −``slope``·g at D², and no gradient
    passes through the k-th distance or through |N_i| and |N̄_i|. The contrastive part is
    ``ContrastiveLoss`` of cosines.

    λ is ``weight``, γ ``regularization``, μ ``mean_similarity``, and k is at most B.

    Source: Liao, Tsiligkaridis and Kulis 2023, "Supervised Metric Learning to Rank for Retrieval
    via Contextual Similarity Optimization", in the form of the authors' code.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> y = torch.tensor([5, 5, 6, 6])
    >>> ContextualLoss(neighbors=2, weight=1.0, regularization=0.0)(x, y)
    tensor(0.2656)
    """

    neighbors: int = setting(default=4, low=2)
    epsilon: float = setting(default=0.05, low=0, tune=("log", 0.01, 0.2))
    weight: float = setting(default=0.4, low=0, high=1, tune=("linear", 0.05, 0.6))
    regularization: float = setting(default=0.1, low=0, high=1)
    mean_similarity: float = setting(default=0.25, low=-1, high=1)
    positive_margin: float = 0.75
    negative_margin: float = 0.6
    slope: float = setting(default=10.0, low=1e-9)

    def setup(self) -> None:
        if self.weight + self.regularization > 1:
            raise ValueError("weight and regularization must together be at most 1")
        self.contrastive = ContrastiveLoss(self.positive_margin, self.negative_margin, "cosine")

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        if len(labels) == 1:  # no other sample, and so nothing that a mean of S could say
            return 0 * embeddings.sum()
        x = geometry.normalize(embeddings)  # (B, d)
        S = x @ x.T  # (B, B)
        positive, negative = geometry.same_label(labels), geometry.different_label(labels)
        error = (positive.to(S.dtype) - self.similarities(2 - 2 * S)).square()
        context = torch.where(positive | negative, error, 0).mean()
        spread = (S.mean() - self.mean_similarity).square()
        contrastive = self.contrastive.of(Pairs(x, x, labels, positive, negative))
        rest = 1 - self.weight - self.regularization
        return self.weight * context + self.regularization * spread + rest * contrastive

    def similarities(self, D2: Tensor) -> Tensor:
        """J, the contextual similarities of samples with squared distances D2 (B, B) -> (B, B)."""
        B = len(D2)
        k = min(self.neighbors, B)
        nearest = D2.detach().topk(k, largest=False).values  # (B, k)
        M, R = self._within(D2, nearest[:, k - 1 :]), self._within(D2, nearest[:, k // 2 - 1, None])
        n = M.sum(dim=1, keepdim=True)  # (B, 1): |N_i|
        common = M @ M.T  # (B, B): |N_i ∩ N_j|
        neither = B - n - n.T + common  # |N̄_i ∩ N̄_j|, without another product
        sizes = n.detach()
        W = (common / sizes + neither / (B - sizes).clamp_min(1)) / 2 * M
        Q = R * R.T
        V = Q @ W / Q.sum(dim=1, keepdim=True)
        return (V + V.T) / 2

    def _within(self, D2: Tensor, radius: Tensor) -> Tensor:
        """1 where D² ≤ radius + ε, else 0, with the slope of a line: (B, B), (B, 1) -> (B, B)."""
        room = radius + self.epsilon - D2
        return room.ge(0).to(D2.dtype) + self.slope * (room - room.detach())
