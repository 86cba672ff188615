"""Losses of ranks: retrieval's own measures, with smooth steps where they count."""

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit.losses.contract import PairLoss, Pairs, Range, masked_mean, setting
from dmlkit.losses.pairs import ContrastiveLoss
from dmlkit.losses.table import register

_TEMPERATURE: Range = ("log", 0.003, 0.1)
#: Differences held at once, 4 MB in float32; but never fewer than one for each pair.
CHUNK = 2**20


@register(
    "smooth_ap", "ranking", "Smooth-AP", 2020,
    r"$1-\mathrm{mean}_i\,R^{+}_i/R_i$",
    r"$R_i=1+\sum_j\mathrm{sig}((s_j-s_i)/\sigma)$",
)  # fmt: skip
class SmoothAPLoss(PairLoss):
    """Raise the average precision of the batch, with a sigmoid for each step of a rank.

    L = 1 − mean over anchors q of mean_{i∈P_q} R⁺_qi / R_qi, with the ranks
    R_qi = 1 + Σ_{j≠i} σ((s_qj − s_qi)/τ), R⁺ the same over positives j only; s is the cosine. An
    anchor without a positive does not count. As published, the anchor is in its own list
    (``include_query``), a positive of cosine 1. With ``max_positives=P`` it is the same loss in
    O(B²P) time, where O(B³) is usual, and an anchor with more positives is an error.

    Source: Brown, Xie, Kalogeiton and Zisserman 2020, "Smooth-AP: Smoothing the Path Towards
    Large-Scale Image Retrieval", in the form of their code.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> SmoothAPLoss()(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.0952)
    """

    temperature: float = setting(default=0.01, low=1e-9, tune=_TEMPERATURE)
    include_query: bool = True
    max_positives: int | None = setting(default=None, low=1)

    def of(self, pairs: Pairs) -> Tensor:
        z = pairs.cosines() / self.temperature  # (B, N)
        query = 1 / self.temperature if self.include_query else None
        own, held = _positives(z, pairs.positive, self.max_positives, query)  # (B, P)
        R_positive = 1 + _count_among(own, held)  # (B, P)
        R = R_positive + soft_counts(own, _only(z, pairs.negative), Sigmoid())
        return masked_mean(1 - _mean_of(R_positive / R, held), pairs.positive.any(dim=1))


@register(
    "sup_ap", "ranking", "SupAP", 2021,
    r"$1-\mathrm{mean}_i\,R^{+}_i/(R^{+}_i+\sum_n h(s_n-s_i))$",
    r"$+\,\mathrm{mean}^{+}[m_+-s]_+ + \mathrm{mean}^{-}[s-m_-]_+$",
)  # fmt: skip
class SupAPLoss(PairLoss):
    """Raise the average precision by an upper bound of its loss, and fix the scale of scores.

    This is ROADMAP: L = L_SupAP + w L_calibration, on cosines s.

    L_SupAP = 1 − mean over anchors q of mean_{i∈P_q} R⁺_qi / (R⁺_qi + Σ_{negatives j} h(s_qj −
    s_qi)). R⁺ is the exact rank among positives (ties count), without a gradient; and
    h(u) = σ(u/τ) for u ≤ 0; start + σ(u/τ) for 0 < u ≤ δ; ρ(u − δ) + offset for u > δ. The default
    offset steps down by 0.05 at δ; ``offset=None`` makes h continuous there.

    L_calibration = mean⁺ [m₊ − s]₊ + mean⁻ [s − m₋]₊ is ``ContrastiveLoss`` of cosines.
    ``include_query`` and ``max_positives`` are those of ``SmoothAPLoss``.

    Source: Ramzi, Thome, Rambour, Audebert and Bitot 2021, "Robust and Decomposable Average
    Precision for Image Retrieval"; form and defaults are those of the authors' code.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> SupAPLoss()(x, torch.tensor([0, 0, 1, 1]))  # 0.2333 + 0.8
    tensor(1.0333)
    """

    temperature: float = setting(default=0.01, low=1e-9, tune=_TEMPERATURE)
    rho: float = setting(default=100.0, low=0)
    delta: float = setting(default=0.05, low=1e-9)
    start: float = setting(default=0.5, low=0)
    offset: float | None = setting(default=1.44, low=0)
    calibration_weight: float = setting(default=1.0, low=0)
    positive_margin: float = 0.9
    negative_margin: float = 0.6
    include_query: bool = True
    max_positives: int | None = setting(default=None, low=1)

    def setup(self) -> None:
        far = self.delta / self.temperature
        if self.offset is None:
            self.offset = self.start + torch.tensor(far, dtype=torch.float64).sigmoid().item()
        self.step = UpperBound(self.start, far, self.rho * self.temperature, self.offset)
        self.calibration = ContrastiveLoss(self.positive_margin, self.negative_margin, "cosine")

    def of(self, pairs: Pairs) -> Tensor:
        z = pairs.cosines() / self.temperature  # (B, N)
        query = 1 / self.temperature if self.include_query else None
        own, held = _positives(z, pairs.positive, self.max_positives, query)  # (B, P)
        R_positive = _exact_ranks_among(own, held)  # (B, P)
        R = R_positive + soft_counts(own, _only(z, pairs.negative), self.step)
        loss = masked_mean(1 - _mean_of(R_positive / R, held), pairs.positive.any(dim=1))
        calibration = self.calibration.of(pairs)
        return loss + self.calibration_weight * calibration


@register(
    "recall_at_k", "ranking", "Recall@k surrogate", 2022,
    r"$1-\mathrm{mean}_k\,\sum_i\mathrm{sig}((k-r_i)/\sigma)\,/\min(k,|P|)$",
    r"$r_i=1+\sum_j\mathrm{sig}((s_j-s_i)/\sigma')$",
)  # fmt: skip
class RecallAtKLoss(PairLoss):
    """Raise Recall@k: one sigmoid smooths the rank of a positive, one asks if it is at most k.

    L = 1 − mean over anchors q and over k of min(Σ_{i∈P_q} σ((k − r_qi)/T), k) / min(k, |P_q|),
    with the rank r_qi = 1 + Σ_{j≠i} σ((s_qj − s_qi)/τ) and s the cosine. P_q are the positives of
    q; an anchor without one does not count. As published, the anchor is in its own list
    (``include_query``) at cosine 1, though not one of its positives. ``max_positives`` is that of
    ``SmoothAPLoss``.

    Source: Patel, Tolias and Matas 2022, "Recall@k Surrogate Loss with Large Batches and Similarity
    Mixup", in the form of the authors' code, without the optional mixup.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> RecallAtKLoss(k=[1, 2])(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.7270)
    """

    k: Sequence[int] = (1, 2, 4, 8, 16)
    temperature: float = setting(default=0.01, low=1e-9, tune=_TEMPERATURE)
    rank_temperature: float = setting(default=1.0, low=1e-9)
    include_query: bool = True
    max_positives: int | None = setting(default=None, low=1)

    def setup(self) -> None:
        if not self.k or not all(isinstance(k, Integral) and k >= 1 for k in self.k):
            raise ValueError(f"k must hold at least one whole number from 1, but is {self.k!r}")
        self.k = tuple(self.k)

    def of(self, pairs: Pairs) -> Tensor:
        z = pairs.cosines() / self.temperature  # (B, N)
        own, held = _positives(z, pairs.positive, self.max_positives)  # (B, P)
        before = _only(z, pairs.negative)
        if self.include_query:
            before = F.pad(before, (0, 1), value=1 / self.temperature)
        r = 1 + _count_among(own, held) + soft_counts(own, before, Sigmoid())  # (B, P)
        total = held.sum(dim=1)  # (B,)
        recalls = []
        for k in self.k:
            within = torch.where(held, ((k - r) / self.rank_temperature).sigmoid(), 0).sum(dim=1)
            recalls.append(within.clamp_max(k) / total.clamp(1, k))
        return masked_mean(1 - torch.stack(recalls).mean(dim=0), pairs.positive.any(dim=1))


@register(
    "fast_ap", "ranking", "FastAP", 2019,
    r"$1-(1/|P|)\,\sum_b h^{+}_b H^{+}_b/H_b$",
    "histograms of squared distances",
)  # fmt: skip
class FastAPLoss(PairLoss):
    """Raise the average precision by histograms of the distances of positives and of all.

    L = mean over anchors that have a positive of 1 − (1/|P|) Σ_b h⁺_b H⁺_b / H_b. D² from 0 to 4 on
    the unit sphere falls into ``bins`` + 1 triangular bins with the width 4/``bins``: h⁺ is the
    histogram of the anchor's positives, H⁺ its cumulated sum, and H that of positives and
    negatives: H_b = Σ_j clamp(b + 1 − D²_j bins/4, 0, 1).

    Source: Cakir, He, Xia, Kulis and Sclaroff 2019, "Deep Metric Learning to Rank".

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0], [-1.0, 0.0]])
    >>> FastAPLoss()(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.2917)
    """

    bins: int = setting(default=10, low=1)

    def of(self, pairs: Pairs) -> Tensor:
        s = pairs.cosines().clamp(-1, 1)  # (B, N)
        near = (s - 1) * self.bins / 2  # −D² in widths of a bin
        edges = -torch.arange(self.bins + 1, device=s.device).to(s).expand(len(s), -1)
        H_positive = soft_counts(edges, _only(near, pairs.positive), Ramp())  # (B, bins + 1)
        H = H_positive + soft_counts(edges, _only(near, pairs.negative), Ramp())
        h_positive = H_positive.diff(dim=1, prepend=torch.zeros_like(H[:, :1]))
        total = h_positive * H_positive / torch.where(H == 0, 1, H)
        positives = pairs.positive.sum(dim=1)  # (B,)
        return masked_mean(1 - total.sum(dim=1) / positives.clamp_min(1), positives > 0)


@dataclass(frozen=True)
class Sigmoid:
    """What a candidate adds to a count by its lead u, 0 at −∞: here σ(u) = 1/(1 + e^−u)."""

    def value(self, u: Tensor) -> Tensor:
        """The step; u may be overwritten."""
        return u.sigmoid_()

    def slope(self, u: Tensor) -> Tensor:
        """Its derivative; u may be overwritten."""
        v = u.sigmoid_()
        return torch.addcmul(v, v, v, value=-1)  # v − v²


@dataclass(frozen=True)
class UpperBound(Sigmoid):
    """SupAP's step: σ(u) up to 0, ``start`` + σ(u) up to ``far``, then a line from ``offset``."""

    start: float
    far: float
    rise: float
    offset: float

    def value(self, u: Tensor) -> Tensor:
        near = u.sigmoid() + self.start * (u > 0)
        return torch.where(u > self.far, self.rise * (u - self.far) + self.offset, near)

    def slope(self, u: Tensor) -> Tensor:
        return torch.where(u > self.far, self.rise, super().slope(u.clone()))


class Ramp(Sigmoid):
    """From 0 at u = −1 to 1 at u = 0: a triangular bin, cumulated."""

    def value(self, u: Tensor) -> Tensor:
        return u.add_(1).clamp(0, 1)

    def slope(self, u: Tensor) -> Tensor:
        return ((u > -1) & (u < 0)).to(u.dtype)


def soft_counts(a: Tensor, b: Tensor, step: Sigmoid, *, but_itself: bool = False) -> Tensor:
    """Count with a smooth step the entries of each row of b that lead an entry of a.

    counts_qi = Σ_j step(b_qj − a_qi): (B, P), (B, N) -> (B, P). An entry −∞ of b counts nothing.
    ``but_itself`` leaves j = i out. Time is O(BPN) and memory O(B(P + N)), as chunks of the steps
    are taken again for the gradient; a second derivative holds all (B, P, N).
    """
    counts: Tensor = _SoftCounts.apply(a, b, step, but_itself)
    return counts


class _SoftCounts(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor, step: Sigmoid, but_itself: bool) -> Tensor:
        counts = [step.value(_leads(a, b, at, but_itself)).sum(dim=2) for at in _chunks(a, b)]
        return torch.cat(counts, dim=1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], _output: Tensor) -> None:
        a, b, ctx.step, ctx.but_itself = inputs
        ctx.save_for_backward(a, b)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        a, b = ctx.saved_tensors
        of_a, of_b = [], torch.zeros_like(b)
        for at in _chunks(a, b):
            slope = ctx.step.slope(_leads(a, b, at, ctx.but_itself))  # (B, c, N)
            g = gradients[0][:, at]  # (B, c)
            of_b = of_b + (g[:, None, :] @ slope).squeeze(1)
            if ctx.needs_input_grad[0]:
                of_a.append(-g * slope.sum(dim=2))
        return torch.cat(of_a, dim=1) if of_a else None, of_b, None, None


def _chunks(a: Tensor, b: Tensor) -> list[slice]:
    """Slices of a's columns that are compared with all of b at once."""
    width = max(1, CHUNK // b.numel())
    return [slice(start, start + width) for start in range(0, a.shape[1], width)]


def _leads(a: Tensor, b: Tensor, at: slice, but_itself: bool) -> Tensor:
    """b_qj − a_qi for the slice of i: (B, c, N)."""
    u = b[:, None, :] - a[:, at, None]
    if but_itself:
        u.diagonal(offset=at.start, dim1=1, dim2=2).fill_(-torch.inf)
    return u


def _only(z: Tensor, mask: Tensor) -> Tensor:
    """A list in which nothing but what the mask holds counts."""
    return z.masked_fill(~mask, -torch.inf)


def _positives(
    z: Tensor, positive: Tensor, most: int | None, query: float | None = None
) -> tuple[Tensor, Tensor]:
    """Places for each anchor's positives, and which are taken: (B, N) -> (B, P), (B, P) bool.

    The labels decide how many positives there are, but may not decide a shape: without a bound
    there is a place for each of the N. The anchor's own score ``query``, if given, is the last.
    """
    if query is not None:
        own, held = _positives(z, positive, most)
        return F.pad(own, (0, 1), value=query), F.pad(held, (0, 1), value=1)
    if most is None or most >= z.shape[1]:
        return z, positive
    count = positive.sum(dim=1)
    rule = f"max_positives is {most}, so that no anchor may have more positives"
    try:
        torch._assert_async((count <= most).all(), rule)  # no wait for the device
    except RuntimeError as error:
        raise ValueError(f"{rule}, but one has {count.max()}") from error
    taken, places = positive.to(torch.uint8).topk(most, dim=1)
    return z.gather(1, places), taken.bool()


def _count_among(own: Tensor, held: Tensor) -> Tensor:
    """For each positive, the smooth count of the anchor's other positives before it: (B, P)."""
    return soft_counts(own, _only(own, held), Sigmoid(), but_itself=True)


@torch.no_grad()
def _exact_ranks_among(own: Tensor, held: Tensor) -> Tensor:
    """For each positive, how many positives of the anchor are not after it, with itself: (B, P)."""
    ordered = _only(own, held).sort(dim=1).values
    ranks = own.shape[1] - torch.searchsorted(ordered, own.contiguous())
    return ranks.clamp_min(1).to(own.dtype)  # a place that is not taken divides 1, not 0


def _mean_of(values: Tensor, held: Tensor) -> Tensor:
    """Mean of each row where the mask holds, else 0: (B, P) -> (B,)."""
    return torch.where(held, values, 0).sum(dim=1) / held.sum(dim=1).clamp_min(1)
