"""Losses of pairs and triplets, in the course's order: every pair of the batch is a spring."""

import math

import torch
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.checks import check_choice, check_count, check_positive, check_range
from dmlkit.losses import mining
from dmlkit.losses.contract import PairLoss, check_labels, masked_logsumexp, masked_mean
from dmlkit.losses.table import Range, register

_TRIPLET: dict[str, Range] = {"margin": ("log", 0.05, 0.8)}


@register("contrastive", "pairs", {"negative_margin": ("linear", 0.2, 1.2)})
class ContrastiveLoss(PairLoss):
    """Pull positives closer than one margin, push negatives farther than another.

    L = mean⁺ [D − m₊]₊ + mean⁻ [m₋ − D]₊, each mean over its non-zero pairs; D is the distance on
    the unit sphere. With ``similarity="cosine"``, L = mean⁺ [m₊ − s]₊ + mean⁻ [s − m₋]₊, s the
    cosine: one formula under several names, the threshold-consistent margin (margins 0.9 and 0.5),
    ROADMAP's calibration (0.9 and 0.6) and the contrastive part of the contextual loss (0.75 and
    0.6). With ``reduction="sum"`` each mean is a sum over pairs, divided by the number of anchors.
    ``positive_margin=None`` asks for positives that coincide: 0 as a distance, 1 as a cosine.

    Source: Hadsell, Chopra and LeCun 2006, "Dimensionality Reduction by Learning an Invariant
    Mapping", in the unsquared form of later libraries.

    Raises:
        ValueError: an unknown similarity or reduction, a margin that is negative or not finite, or,
            of cosines, outside −1 to 1.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> ContrastiveLoss()(x, torch.tensor([5, 5]))
    tensor(1.4142)
    >>> ContrastiveLoss(0.9, 0.6, similarity="cosine")(x, torch.tensor([5, 5]))
    tensor(0.9000)
    """

    def __init__(
        self,
        positive_margin: float | None = None,
        negative_margin: float = 0.5,
        similarity: str = "distance",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        check_choice(("distance", "cosine"), similarity=similarity)
        check_choice(("mean", "sum"), reduction=reduction)
        cosine = similarity == "cosine"
        low, high = (-1.0, 1.0) if cosine else (0.0, math.inf)
        if positive_margin is None:
            positive_margin = 1.0 if cosine else 0.0
        check_range(low, high, positive_margin=positive_margin)
        check_range(low, high, negative_margin=negative_margin)
        self.positive_margin = positive_margin
        self.negative_margin = negative_margin
        self.similarity = similarity
        self.reduction = reduction

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        pull, push = self.pull_and_push(anchors, others, positive, negative)
        return pull + push

    def pull_and_push(
        self, anchors: Tensor, others: Tensor, positive: Tensor, negative: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The two terms apart: of the positive pairs, and of the negative."""
        x, y = _on_sphere(anchors, others)
        if self.similarity == "cosine":
            s = x @ y.T  # (B, N)
            too_far, too_near = self.positive_margin - s, s - self.negative_margin
        else:
            D = geometry.distances(x, y)  # (B, N)
            too_far, too_near = D - self.positive_margin, self.negative_margin - D
        return (
            self._reduced(too_far, positive & (too_far > 0)),
            self._reduced(too_near, negative & (too_near > 0)),
        )

    def _reduced(self, violation: Tensor, active: Tensor) -> Tensor:
        if self.reduction == "mean":
            return masked_mean(violation, active)
        return torch.where(active, violation, 0).sum() / len(violation)


@register("triplet_distance", "pairs", _TRIPLET, mining="distance")
@register("triplet_all", "pairs", _TRIPLET, mining="all")
@register("triplet_hard", "pairs", _TRIPLET, mining="hard")
@register("triplet_semihard", "pairs", _TRIPLET, mining="semihard")
class TripletLoss(PairLoss):
    """Bring every positive nearer to its anchor than a negative, by a margin.

    L = mean over triplets (a, p, n) of [D²ap − D²an + m]₊ on the unit sphere. ``mining`` says which
    triplets count:

    - ``"semihard"``: each (a, p) with the nearest negative that is farther than p, else with the
      farthest negative;
    - ``"hard"``: each a with its farthest positive and its nearest negative;
    - ``"all"``: every triplet; the mean is over those whose term is not zero, because a mean over
      all of them fades while training succeeds;
    - ``"distance"``: each (a, p) with a negative drawn by its distance, as in ``MarginLoss``, from
      torch's default generator on the device.

    Source: Schroff, Kalenichenko and Philbin 2015, "FaceNet", equation 3 and section 3.2; hard and
    all: Hermans, Beyer and Leibe 2017, "In Defense of the Triplet Loss for Person
    Re-Identification"; distance: Wu et al. 2017, "Sampling Matters in Deep Embedding Learning".

    Raises:
        ValueError: unknown mining, or a margin that is negative or not finite.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> TripletLoss()(x, torch.tensor([5, 5, 6]))  # mean of [2 − 4 + 0.2]₊ and [2 − 2 + 0.2]₊
    tensor(0.1000)
    """

    def __init__(self, margin: float = 0.2, mining: str = "semihard") -> None:
        super().__init__()
        check_range(0, margin=margin)
        check_choice(("semihard", "hard", "all", "distance"), mining=mining)
        self.margin = margin
        self.mining = mining

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        D2 = geometry.squared_distances(*_on_sphere(anchors, others))  # (B, N)
        if self.mining == "all":
            count = mining.active_triplets(D2.detach(), positive, negative, self.margin)
            N = count.relu().sum()
            return ((count * D2).sum() + self.margin * N) / N.clamp_min(1)
        if self.mining == "hard":
            farthest = torch.where(positive, D2, -torch.inf).max(dim=1).values  # (B,)
            nearest = torch.where(negative, D2, torch.inf).min(dim=1).values  # (B,)
            complete = farthest.isfinite() & nearest.isfinite()
            return masked_mean((farthest - nearest + self.margin).relu(), complete)
        if self.mining == "semihard":
            n = mining.semihard_negatives(D2.detach(), negative)  # (B, N): an index for each (a, p)
        else:
            n = mining.distance_weighted_negatives(
                D2.detach().sqrt(), negative, dim=anchors.shape[1]
            )
        hinge = (D2 - D2.gather(1, n) + self.margin).relu()
        return masked_mean(hinge, positive & _has_negatives(negative))


@register("lifted_structure", "pairs", {"margin": ("linear", 0.2, 2.0)})
class LiftedStructureLoss(PairLoss):
    """Pull each positive pair, and push all negatives of both its ends at once.

    L = 1/(2|P|) Σ over positive pairs {i, j} of
    [log(Σ_{k: y_k≠y_i} e^{m − D_ik} + Σ_{l: y_l≠y_j} e^{m − D_jl}) + D_ij]₊²,
    with D the distance of the raw embeddings (not normalized). Each row's sum is taken once for
    all of its pairs: O(B²).

    Source: Oh Song, Xiang, Jegelka and Savarese 2016, "Deep Metric Learning via Lifted Structured
    Feature Embedding", equation 4.

    Raises:
        ValueError: a margin that is not finite.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> LiftedStructureLoss()(x, torch.tensor([5, 5, 6]))  # ½ [log(e^{1 − 2} + e^{1 − 1}) + 1]₊²
    tensor(0.8623)
    """

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        check_range(margin=margin)
        self.margin = margin

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        D = geometry.distances(anchors, others)  # (B, N)
        push = masked_logsumexp(self.margin - D, negative, dim=1)[:, None]  # (B, 1)
        if others is anchors:
            push_others = push.T
        else:
            push_others = masked_logsumexp(self.margin - D, negative, dim=0)[None, :]  # (1, N)
        term = (torch.logaddexp(push, push_others) + D).relu().square()  # (B, N)
        return masked_mean(term, positive) / 2


@register("multi_similarity", "pairs", {"beta": ("log", 10.0, 80.0), "base": ("linear", 0.2, 0.8)})
class MultiSimilarityLoss(PairLoss):
    """Weight each pair by its similarity, and by the other similarities of its anchor.

    L = mean over anchors of (1/α) log(1 + Σ_p e^{−α(s − λ)}) + (1/β) log(1 + Σ_n e^{β(s − λ)}),
    s the cosine. Of an anchor's positives only those less similar than its most similar negative
    plus ε count, and of its negatives only those more similar than its least similar positive
    minus ε.

    Source: Wang, Han, Huang, Dong and Scott 2019, "Multi-Similarity Loss with General Pair
    Weighting for Deep Metric Learning".

    Raises:
        ValueError: α or β that is not above 0, or an argument that is not finite.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> MultiSimilarityLoss()(x, torch.tensor([5, 6, 5])) > 0.3
    tensor(True)
    """

    def __init__(
        self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float = 0.1
    ) -> None:
        super().__init__()
        check_positive(alpha=alpha)
        check_positive(beta=beta)
        check_range(base=base)
        check_range(epsilon=epsilon)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.epsilon = epsilon

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        x, y = _on_sphere(anchors, others)
        s = x @ y.T  # (B, N)
        most = torch.where(negative, s, -torch.inf).amax(dim=1, keepdim=True)  # (B, 1)
        least = torch.where(positive, s, torch.inf).amin(dim=1, keepdim=True)  # (B, 1)
        pull = positive & (s < most + self.epsilon)  # (B, N)
        push = negative & (s > least - self.epsilon)
        pull_sum = _log1p_sum_exp(-self.alpha * (s - self.base), pull)  # (B,)
        push_sum = _log1p_sum_exp(self.beta * (s - self.base), push)
        return (pull_sum / self.alpha + push_sum / self.beta).mean()


@register("ranked_list", "pairs", {"alpha": ("linear", 0.8, 1.6), "margin": ("linear", 0.1, 0.8)})
class RankedListLoss(PairLoss):
    """Keep all positives inside a hypersphere around the anchor, and all negatives outside it.

    L = mean over anchors of (1 − λ) L_P + λ L_N, with D the distance on the unit sphere;
    L_P = the mean over the anchor's non-trivial positives, D > α − m, of D − (α − m);
    L_N = Σ_n w_n (α − D_n) / Σ_n w_n over its non-trivial negatives, D < α, with
    w_n = exp(T(α − D_n)). The gradient passes through the weights too.

    Source: Wang, Hua, Kodirov, Hu, Garnier and Robertson 2019, "Ranked List Loss for Deep Metric
    Learning".

    Raises:
        ValueError: α that is not above 0, a negative margin or temperature T, a ``negative_weight``
            λ outside 0 to 1, or an argument that is not finite.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> RankedListLoss()(x, torch.tensor([5, 5]))  # ½ (2 − 0.8)
    tensor(0.6000)
    """

    def __init__(
        self,
        alpha: float = 1.2,
        margin: float = 0.4,
        temperature: float = 10.0,
        negative_weight: float = 0.5,
    ) -> None:
        super().__init__()
        check_positive(alpha=alpha)
        check_range(0, margin=margin)
        check_range(0, temperature=temperature)
        check_range(0, 1, negative_weight=negative_weight)
        self.alpha = alpha
        self.margin = margin
        self.temperature = temperature
        self.negative_weight = negative_weight

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        D = geometry.distances(*_on_sphere(anchors, others))  # (B, N)
        pull = torch.where(positive, D - (self.alpha - self.margin), 0).relu()
        push = torch.where(negative, self.alpha - D, 0).relu()
        L_P = pull.sum(dim=1) / pull.count_nonzero(dim=1).clamp_min(1)  # (B,)
        hardest = push.detach().amax(dim=1, keepdim=True)  # (B, 1)
        w = torch.where(push > 0, (self.temperature * (push - hardest)).exp(), 0)
        L_N = (w * push).sum(dim=1) / w.sum(dim=1).clamp_min(0.5)  # (B,); the hardest has w = 1
        return ((1 - self.negative_weight) * L_P + self.negative_weight * L_N).mean()


@register("margin", "pairs", {"beta": ("linear", 0.6, 1.4), "margin": ("log", 0.05, 0.4)})
class MarginLoss(PairLoss):
    """Positives inside a learned radius, negatives outside it, sampled evenly over distances.

    L = Σ over triplets (a, p, n) of [m + D_ap − β]₊ + [m + β − D_an]₊, divided by the number of
    terms that are not zero; D is the distance on the unit sphere, and β = β_c is learned for the
    class c of the anchor. Each positive pair draws one negative, ∝ q(D)⁻¹: see
    ``mining.distance_weighted_negatives``; the draws come from torch's default generator on the
    device. The parameter ``beta`` is (C,); give it a learning rate of its own.

    Raises:
        ValueError: fewer than one class, a margin or β that is negative or not finite, or a cutoff
            and ``farthest`` that are not 0 < cutoff <= farthest < 2; labels that are no class from
            0 to C − 1.

    Source: Wu, Manmatha, Smola and Krähenbühl 2017, "Sampling Matters in Deep Embedding Learning".

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> MarginLoss(num_classes=2)(x, torch.tensor([0, 0, 1])).item()  # 0.2 + 2 − 1.2, and 0 of √2
    1.0
    """

    def __init__(
        self,
        num_classes: int,
        margin: float = 0.2,
        beta: float = 1.2,
        cutoff: float = 0.5,
        farthest: float = 1.4,
    ) -> None:
        super().__init__()
        check_count(num_classes=num_classes)
        check_range(0, margin=margin)
        check_range(0, beta=beta)
        check_positive(cutoff=cutoff)
        check_range(cutoff, 1.99, farthest=farthest)  # at 2, the diameter, q is 0
        self.margin = margin
        self.cutoff = cutoff
        self.farthest = farthest
        self.beta = nn.Parameter(torch.full((num_classes,), float(beta)))

    def pair_loss(
        self, anchors: Tensor, others: Tensor, labels: Tensor, positive: Tensor, negative: Tensor
    ) -> Tensor:
        check_labels(labels, len(self.beta))
        D = geometry.distances(*_on_sphere(anchors, others))  # (B, N)
        n = mining.distance_weighted_negatives(
            D.detach(), negative, anchors.shape[1], self.cutoff, self.farthest
        )
        beta = self.beta[labels][:, None]  # (B, 1), by class label
        pair = positive & _has_negatives(negative)
        pull = torch.where(pair, self.margin + D - beta, 0).relu()
        push = torch.where(pair, self.margin + beta - D.gather(1, n), 0).relu()
        active = pull.count_nonzero() + push.count_nonzero()
        return (pull + push).sum() / active.clamp_min(1)


def _on_sphere(anchors: Tensor, others: Tensor) -> tuple[Tensor, Tensor]:
    """Both sets of embeddings on the unit sphere; one tensor twice if they are one."""
    x = geometry.normalize(anchors)  # (B, d)
    return x, x if others is anchors else geometry.normalize(others)  # (N, d)


def _has_negatives(negative: Tensor) -> Tensor:
    """Which anchors have a negative: (B, N) -> (B, 1)."""
    return negative.any(dim=1, keepdim=True)


def _log1p_sum_exp(z: Tensor, mask: Tensor) -> Tensor:
    """log(1 + Σ e^z) of every row, z where the mask holds: (M, N), (M, N) -> (M,)."""
    z = z.masked_fill(~mask, torch.finfo(z.dtype).min)
    top = z.detach().amax(dim=1).clamp_min(0)  # (M,), taken out so that nothing overflows
    total = (z - top[:, None]).exp().sum(dim=1)
    # Where top is 0 this is log1p, which keeps the digits of a small total.
    return top + torch.log1p(total + torch.expm1(-top))
