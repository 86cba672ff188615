"""Regularizers, added to a loss: KoLeo spreads a batch, TCM gives all classes one threshold."""

import torch
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.losses.contract import PairLoss, Pairs, of_pairs, setting
from dmlkit.losses.pairs import ContrastiveLoss
from dmlkit.losses.table import register


def koleo(embeddings: Tensor, epsilon: float = 1e-4) -> Tensor:
    """Push every point of a batch off its nearest neighbor, whatever the labels: (B, d) -> scalar.

    L = −(1/B) Σ_i log max(ρ_i, ε), ρ_i = min_{j≠i} ‖x_i − x_j‖ on the unit sphere: the
    Kozachenko-Leonenko estimate of the batch's entropy, up to sign and constants. One sample alone
    gives 0.

    Source: Sablayrolles, Douze, Schmid and Jégou 2019, "Spreading Vectors for Similarity Search";
    theirs has log(Bρ), which differs by a constant.

    >>> koleo(torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]]))
    tensor(0.1703)
    """
    x = geometry.normalize(embeddings)  # (B, d)
    B = len(x)
    if B == 1:
        return 0 * x.sum()
    with torch.no_grad():
        itself = torch.eye(B, dtype=torch.bool, device=x.device)
        nearest = (x @ x.T).masked_fill(itself, -2).argmax(dim=1)  # (B,); no cosine is below −1
    # Of the difference itself: √(2 − 2s) loses the digits of a short distance.
    rho = geometry.norms(x - x.index_select(0, nearest))  # (B,)
    return -rho.clamp_min(epsilon).log().mean()


@register(
    "irt", "pairs", "IRT", 2021,
    r"$\sum_p(1-s_p)+\sum_n[s_n-\beta]_+$",
    "+ KoLeo, which spreads nearest neighbors",
    tuned=("koleo_weight", "negative_margin"),
)  # fmt: skip
class IRTLoss(PairLoss):
    """Contrastive loss on cosines, with KoLeo against the collapse of dimensions.

    L = (1/B) Σ_i [Σ_p (1 − s_ip) + Σ_n [s_in − β]₊] + λ L_KoLeo, β the ``negative_margin``. With
    ``reduction="mean"`` the sums over pairs are two means, each over its non-zero pairs. Against a
    memory only the pairs count, since KoLeo is of the batch.

    Source: El-Nouby, Neverova, Laptev and Jégou 2021, "Training Vision Transformers for Image
    Retrieval" (IRT_R), equation 1 and section 3.4, with β 0.5 and λ 0.7.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> IRTLoss(0.5, 0.7)(x, torch.tensor([0, 0, 1, 1]))  # 0.85 + 0.7 · 0.1703
    tensor(0.9692)
    """

    negative_margin: float = setting(default=0.85, tune=("linear", 0.4, 0.95))
    koleo_weight: float = setting(default=0.05, low=0, tune=("log", 0.01, 1.0))
    reduction: str = setting(default="sum", choices=("sum", "mean"))

    def setup(self) -> None:
        self.contrastive = ContrastiveLoss(1.0, self.negative_margin, "cosine", self.reduction)

    def of(self, pairs: Pairs) -> Tensor:
        contrastive = self.contrastive.of(pairs)
        if pairs.y is not pairs.x:
            return contrastive
        return contrastive + self.koleo_weight * koleo(pairs.x)


# Triplets compare distances with each other, and say nothing of a threshold: what TCM adds.
@register(
    "tcm", "pairs", "TCM", 2024,
    "semi-hard triplets",
    r"$+\,\mathrm{mean}^{+}[m_+-s]_+ + \mathrm{mean}^{-}[s-m_-]_+$",
    wraps="triplet_semihard",
)  # fmt: skip
class ThresholdConsistentMarginLoss(PairLoss):
    """TCM: any loss, plus one threshold of the cosine for positives and one for negatives.

    L = L_inner + λ₊ mean⁺ [m₊ − s]₊ + λ₋ mean⁻ [s − m₋]₊, each mean over its non-zero pairs: what
    ``ContrastiveLoss(m₊, m₋, "cosine")`` is. ``loss`` is any loss, a module. Where it is a
    ``PairLoss``, the whole can be compared with a memory (``CrossBatchMemory``).

    Source: Zhang et al. 2024, "Threshold-Consistent Margin Loss for Open-World Deep Metric
    Learning"; form and values as in pytorch-metric-learning, the paper's text was not read.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> base = ContrastiveLoss(1.0, 0.5, "cosine")
    >>> ThresholdConsistentMarginLoss(base)(x, torch.tensor([0, 0, 1, 1]))  # 1 + 0.6 + 0.3
    tensor(1.9000)
    """

    loss: nn.Module = setting()
    positive_weight: float = setting(default=1.0, low=0, tune=("log", 0.1, 10.0))
    negative_weight: float = setting(default=1.0, low=0, tune=("log", 0.1, 10.0))
    positive_margin: float = 0.9
    negative_margin: float = 0.5

    def setup(self) -> None:
        self.thresholds = ContrastiveLoss(self.positive_margin, self.negative_margin, "cosine")

    def equation(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        base: Tensor = self.loss(embeddings, labels)  # which need not be a loss of pairs
        return base + self._margins(Pairs.of_batch(embeddings, labels))

    def of(self, pairs: Pairs) -> Tensor:
        return of_pairs(self.loss, pairs) + self._margins(pairs)

    def _margins(self, pairs: Pairs) -> Tensor:
        pull, push = self.thresholds.pull_and_push(pairs)
        return self.positive_weight * pull + self.negative_weight * push
