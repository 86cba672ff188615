"""Losses of pairs and triplets, in the course's order: every pair of the batch is a spring."""

import torch
from torch import Tensor, nn

from dmlkit import geometry
from dmlkit.checks import check_range
from dmlkit.losses import mining
from dmlkit.losses.contract import (
    PairLoss,
    Pairs,
    check_labels,
    masked_logsumexp,
    masked_mean,
    setting,
)
from dmlkit.losses.table import register

_TRIPLET = r"$\mathrm{mean}\,[D_{ap}^2-D_{an}^2+m]_+$"


@register(
    "contrastive", "pairs", "contrastive", 2006, r"$\mathrm{mean}^{+}D+\mathrm{mean}^{-}[m-D]_+$"
)
class ContrastiveLoss(PairLoss):
    """Pull positives closer than one margin, push negatives farther than another.

    L = mean⁺ [D − m₊]₊ + mean⁻ [m₋ − D]₊, each mean over its non-zero pairs; D is the distance on
    the unit sphere. With ``similarity="cosine"``, L = mean⁺ [m₊ − s]₊ + mean⁻ [s − m₋]₊, s the
    cosine. With ``reduction="sum"`` each mean is a sum over pairs, divided by the number of
    anchors. ``positive_margin=None`` asks for positives that coincide: distance 0, cosine 1.

    Source: Hadsell, Chopra and LeCun 2006, "Dimensionality Reduction by Learning an Invariant
    Mapping", in the unsquared form of later libraries.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> ContrastiveLoss()(x, torch.tensor([5, 5]))
    tensor(1.4142)
    >>> ContrastiveLoss(0.9, 0.6, similarity="cosine")(x, torch.tensor([5, 5]))
    tensor(0.9000)
    """

    positive_margin: float | None = None
    negative_margin: float = setting(default=0.5, tune=("linear", 0.2, 1.2))
    similarity: str = setting(default="distance", choices=("distance", "cosine"))
    reduction: str = setting(default="mean", choices=("mean", "sum"))

    def setup(self) -> None:
        cosine = self.similarity == "cosine"
        if self.positive_margin is None:
            self.positive_margin = 1.0 if cosine else 0.0
        margins = {k: getattr(self, k) for k in ("positive_margin", "negative_margin")}
        check_range(*((-1.0, 1.0) if cosine else (0.0,)), **margins)

    def of(self, pairs: Pairs) -> Tensor:
        pull, push = self.pull_and_push(pairs)
        return pull + push

    def pull_and_push(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """The two terms apart: of the positive pairs, and of the negative."""
        positive_margin = self.positive_margin or 0.0
        if self.similarity == "cosine":
            s = pairs.cosines()
            too_far, too_near = positive_margin - s, s - self.negative_margin
        else:
            D = pairs.distances()
            too_far, too_near = D - positive_margin, self.negative_margin - D
        return (
            self._reduced(too_far, pairs.positive & (too_far > 0)),
            self._reduced(too_near, pairs.negative & (too_near > 0)),
        )

    def _reduced(self, violation: Tensor, active: Tensor) -> Tensor:
        if self.reduction == "mean":
            return masked_mean(violation, active)
        return torch.where(active, violation, 0).sum() / len(violation)


@register(
    "triplet_distance", "pairs", "distance-weighted triplets", 2017,
    _TRIPLET, "n: drawn evenly over distances", mining="distance",
)  # fmt: skip
@register(
    "triplet_all", "pairs", "all triplets", 2017, _TRIPLET, "all that are not 0", mining="all"
)
@register(
    "triplet_hard", "pairs", "hard triplets", 2017,
    _TRIPLET, "p: the farthest, n: the nearest", mining="hard",
)  # fmt: skip
@register(
    "triplet_semihard", "pairs", "semi-hard triplets", 2015,
    _TRIPLET, "n: the nearest that is farther than p", mining="semihard",
)  # fmt: skip
class TripletLoss(PairLoss):
    """Bring every positive nearer to its anchor than a negative, by a margin.

    L = mean over triplets (a, p, n) of [D²ap − D²an + m]₊ on the unit sphere. ``mining`` says which
    triplets count:

    - ``"semihard"``: each (a, p) with the nearest negative that is farther than p, else with the
      farthest negative;
    - ``"hard"``: each a with its farthest positive and its nearest negative;
    - ``"all"``: every triplet; the mean is over those whose term is not zero;
    - ``"distance"``: each (a, p) with a negative drawn by its distance, as in ``MarginLoss``, from
      torch's default generator on the device.

    Source: Schroff, Kalenichenko and Philbin 2015, "FaceNet", equation 3 and section 3.2; hard and
    all: Hermans, Beyer and Leibe 2017, "In Defense of the Triplet Loss for Person
    Re-Identification"; distance: Wu et al. 2017, "Sampling Matters in Deep Embedding Learning".

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> TripletLoss()(x, torch.tensor([5, 5, 6]))  # mean of [2 − 4 + 0.2]₊ and [2 − 2 + 0.2]₊
    tensor(0.1000)
    """

    margin: float = setting(default=0.2, low=0, tune=("log", 0.05, 0.8))
    mining: str = setting(default="semihard", choices=("semihard", "hard", "all", "distance"))

    def of(self, pairs: Pairs) -> Tensor:
        D2, positive, negative = pairs.squared_distances(), pairs.positive, pairs.negative  # (B, N)
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
            n = mining.distance_weighted_negatives(D2.detach().sqrt(), negative, pairs.x.shape[1])
        hinge = (D2 - D2.gather(1, n) + self.margin).relu()
        return masked_mean(hinge, positive & negative.any(dim=1, keepdim=True))


@register(
    "lifted_structure", "pairs", "lifted structure", 2016,
    r"$½\,\mathrm{mean}^{+}\,[\log\sum_n(e^{m-D_{in}}+e^{m-D_{jn}})+D_{ij}]_+^2$",
)  # fmt: skip
class LiftedStructureLoss(PairLoss):
    """Pull each positive pair, and push all negatives of both its ends at once.

    L = 1/(2|P|) Σ over positive pairs {i, j} of
    [log(Σ_{k: y_k≠y_i} e^{m − D_ik} + Σ_{l: y_l≠y_j} e^{m − D_jl}) + D_ij]₊²,
    with D the distance of the raw embeddings (not normalized).

    Source: Oh Song, Xiang, Jegelka and Savarese 2016, "Deep Metric Learning via Lifted Structured
    Feature Embedding", equation 4.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> LiftedStructureLoss()(x, torch.tensor([5, 5, 6]))  # ½ [log(e^{1 − 2} + e^{1 − 1}) + 1]₊²
    tensor(0.8623)
    """

    margin: float = setting(default=1.0, tune=("linear", 0.2, 2.0))

    def of(self, pairs: Pairs) -> Tensor:
        D = geometry.distances(pairs.x, pairs.y)  # (B, N)
        push = masked_logsumexp(self.margin - D, pairs.negative, dim=1)[:, None]  # (B, 1)
        if pairs.y is pairs.x:
            push_others = push.T
        else:
            push_others = masked_logsumexp(self.margin - D, pairs.negative, dim=0)[None]  # (1, N)
        term = (torch.logaddexp(push, push_others) + D).relu().square()  # (B, N)
        return masked_mean(term, pairs.positive) / 2


@register(
    "multi_similarity", "pairs", "multi-similarity", 2019,
    r"$(1/\alpha_+)\,\log(1+\sum_p e^{-\alpha_+(s_p-s_0)})$",
    r"$+\,(1/\alpha_-)\,\log(1+\sum_n e^{\alpha_-(s_n-s_0)})$",
)  # fmt: skip
class MultiSimilarityLoss(PairLoss):
    """Weight each pair by its similarity, and by the other similarities of its anchor.

    L = mean over anchors of (1/α) log(1 + Σ_p e^{−α(s − λ)}) + (1/β) log(1 + Σ_n e^{β(s − λ)}),
    s the cosine. Of an anchor's positives only those less similar than its most similar negative
    plus ε count, and of its negatives only those more similar than its least similar positive
    minus ε.

    Source: Wang, Han, Huang, Dong and Scott 2019, "Multi-Similarity Loss with General Pair
    Weighting for Deep Metric Learning".

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> MultiSimilarityLoss()(x, torch.tensor([5, 6, 5])) > 0.3
    tensor(True)
    """

    alpha: float = setting(default=2.0, low=1e-9)
    beta: float = setting(default=50.0, low=1e-9, tune=("log", 10.0, 80.0))
    base: float = setting(default=0.5, tune=("linear", 0.2, 0.8))
    epsilon: float = 0.1

    def of(self, pairs: Pairs) -> Tensor:
        s = pairs.cosines()  # (B, N)
        most = torch.where(pairs.negative, s, -torch.inf).amax(dim=1, keepdim=True)  # (B, 1)
        least = torch.where(pairs.positive, s, torch.inf).amin(dim=1, keepdim=True)  # (B, 1)
        pull = pairs.positive & (s < most + self.epsilon)  # (B, N)
        push = pairs.negative & (s > least - self.epsilon)
        pull_sum = _log1p_sum_exp(-self.alpha * (s - self.base), pull)  # (B,)
        push_sum = _log1p_sum_exp(self.beta * (s - self.base), push)
        return (pull_sum / self.alpha + push_sum / self.beta).mean()


@register(
    "ranked_list", "pairs", "ranked list", 2019,
    r"$½\,\mathrm{mean}_p\,[D_p-(D_0-m)]_+$",
    r"$+\,½\sum_n v_n(D_0-D_n)\,/\sum_n v_n,\ v_n=e^{\alpha(D_0-D_n)}$",
)  # fmt: skip
class RankedListLoss(PairLoss):
    """Keep all positives inside a hypersphere around the anchor, and all negatives outside it.

    L = mean over anchors of (1 − λ) L_P + λ L_N, with D the distance on the unit sphere;
    L_P = the mean over the anchor's non-trivial positives, D > α − m, of D − (α − m);
    L_N = Σ_n w_n (α − D_n) / Σ_n w_n over its non-trivial negatives, D < α, with
    w_n = exp(T(α − D_n)). The gradient passes through the weights too.

    Source: Wang, Hua, Kodirov, Hu, Garnier and Robertson 2019, "Ranked List Loss for Deep Metric
    Learning".

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> RankedListLoss()(x, torch.tensor([5, 5]))  # ½ (2 − 0.8)
    tensor(0.6000)
    """

    alpha: float = setting(default=1.2, low=1e-9, tune=("linear", 0.8, 1.6))
    margin: float = setting(default=0.4, low=0, tune=("linear", 0.1, 0.8))
    temperature: float = setting(default=10.0, low=0)
    negative_weight: float = setting(default=0.5, low=0, high=1)

    def of(self, pairs: Pairs) -> Tensor:
        D = pairs.distances()  # (B, N)
        pull = torch.where(pairs.positive, D - (self.alpha - self.margin), 0).relu()
        push = torch.where(pairs.negative, self.alpha - D, 0).relu()
        L_P = pull.sum(dim=1) / pull.count_nonzero(dim=1).clamp_min(1)  # (B,)
        hardest = push.detach().amax(dim=1, keepdim=True)  # (B, 1)
        w = torch.where(push > 0, (self.temperature * (push - hardest)).exp(), 0)
        L_N = (w * push).sum(dim=1) / w.sum(dim=1).clamp_min(0.5)  # (B,); the hardest has w = 1
        return ((1 - self.negative_weight) * L_P + self.negative_weight * L_N).mean()


@register(
    "margin", "pairs", "margin loss", 2017,
    r"$[m+D_{ap}-\beta]_+ + [m+\beta-D_{an}]_+$", "n: drawn evenly over distances",
    tuned=("beta", "margin"),
)  # fmt: skip
class MarginLoss(PairLoss):
    """Positives inside a learned radius, negatives outside it, sampled evenly over distances.

    L = Σ over triplets (a, p, n) of [m + D_ap − β]₊ + [m + β − D_an]₊, divided by the number of
    terms that are not zero; D is the distance on the unit sphere, and β = β_c is learned for the
    class c of the anchor: the parameter ``beta`` (C,). Each positive pair draws one negative,
    ∝ q(D)⁻¹ (``mining.distance_weighted_negatives``), from torch's default generator.

    Source: Wu, Manmatha, Smola and Krähenbühl 2017, "Sampling Matters in Deep Embedding Learning".

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    >>> MarginLoss(num_classes=2)(x, torch.tensor([0, 0, 1])).item()  # 0.2 + 2 − 1.2, and 0 of √2
    1.0
    """

    num_classes: int = setting(low=1)
    margin: float = setting(default=0.2, low=0, tune=("log", 0.05, 0.4))
    beta: float = setting(default=1.2, low=0, tune=("linear", 0.6, 1.4))
    cutoff: float = setting(default=0.5, low=1e-9)
    farthest: float = setting(default=1.4, low=1e-9, high=1.99)  # at 2, the diameter, q is 0

    def setup(self) -> None:
        first = torch.full((self.num_classes,), float(self.beta))
        self.beta = nn.Parameter(first)  # type: ignore[assignment] # from here on the learned ones

    def of(self, pairs: Pairs) -> Tensor:
        if pairs.labels is None:
            raise ValueError("MarginLoss has a radius for each class: it needs labels (B,)")
        check_labels(pairs.labels, self.num_classes)
        D, m = pairs.distances(), self.margin  # (B, N)
        n = mining.distance_weighted_negatives(
            D.detach(), pairs.negative, pairs.x.shape[1], self.cutoff, self.farthest
        )
        learned: Tensor = self.beta  # type: ignore[assignment]
        beta = learned[pairs.labels][:, None]  # (B, 1), by class label
        pair = pairs.positive & pairs.negative.any(dim=1, keepdim=True)
        pull = torch.where(pair, m + D - beta, 0).relu()
        push = torch.where(pair, m + beta - D.gather(1, n), 0).relu()
        active = pull.count_nonzero() + push.count_nonzero()
        return (pull + push).sum() / active.clamp_min(1)


def _log1p_sum_exp(z: Tensor, mask: Tensor) -> Tensor:
    """log(1 + Σ e^z) of every row, z where the mask holds: (M, N), (M, N) -> (M,)."""
    z = z.masked_fill(~mask, torch.finfo(z.dtype).min)
    top = z.detach().amax(dim=1).clamp_min(0)  # (M,), taken out so that nothing overflows
    total = (z - top[:, None]).exp().sum(dim=1)
    # Where top is 0 this is log1p, which keeps the digits of a small total.
    return top + torch.log1p(total + torch.expm1(-top))
