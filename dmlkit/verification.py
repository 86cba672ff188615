"""Verification: is this pair of one class? Thresholds, their errors, and whom a threshold serves.

A pair of two images is *genuine* if they share a class, else an *impostor*; it is accepted if its
score, the cosine or minus the distance, lies above a threshold. Every pair counts once; with a
gallery, every query is paired with every item of it. Scores are computed in float64 and compared as
float32, in blocks: memory does not grow with the number of pairs, and no threshold is interpolated.

Intervals hold 95 % of the rates that a bootstrap over classes gives: classes are drawn again, with
all their images, and a pair of two of them counts as often as both together were drawn. Pairs are
never drawn, for they share images and are not independent. The threshold is held as it is given.
Of simulated sets of 20 and 100 classes, six images each, such intervals held the true FMR of 1 % in
99 and 100 % (they are too wide: one pair of classes weighs as much as it was drawn by both ends),
the true FNMR in 91 and 93 %, and in 87 and 92 % if the threshold was chosen on the same set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from dmlkit.geometry import norms
from dmlkit.neighbors import (
    BLOCK_ENTRIES,
    Array,
    Cosine,
    Euclidean,
    Metric,
    as_matrices,
    labels_of_both,
    metric_of,
)

_DIGIT = 2**16  # a float32's bits are two digits of this size
_NO_PAIR = 0xFF80  # the upper digit of −∞
_DRAWN = 2**12  # class pairs whose weights in every draw are held at a time


@dataclass(frozen=True)
class Verification:
    """Errors at thresholds, and how many pairs they rest on."""

    rates: pd.DataFrame  # a row for every FMR that was asked: see ``error_rates``
    eer: float  # in 0..1
    genuine: int  # pairs
    impostors: int


def verification(
    embeddings: Array,
    labels: Array,
    fmr: Sequence[float] = (1e-3, 1e-2),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "cosine",
    seed: int = 0,
    draws: int = 1000,
) -> Verification:
    """The threshold for each false match rate, the errors there, and the equal error rate.

    For an FMR f and |I| impostor pairs, k = ⌊f |I|⌋, and the threshold t is the (k+1)-th largest
    score of an impostor: accepted is s > t, so that at most k impostors are, ties or not. The equal
    error rate is where the ROC, its points joined by straight lines, crosses FMR = FNMR.

    Embeddings (N, d), labels (N,); gallery (M, d), gallery_labels (M,). ``rates`` is what
    ``error_rates`` gives, indexed by the FMR asked. It says how well t separates *these* classes,
    on which it was chosen: for other classes, give its thresholds to ``error_rates``.

    Raises ValueError for an FMR below 1/|I|, of which so few pairs say nothing, or from 1 on, and
    for labels without a genuine or an impostor pair.

    Source: ISO/IEC 19795-1 (FMR, FNMR); the crossing as in scikit-learn's ROC with ``brentq``.

    >>> found = verification([[0.0], [1.0], [9.0], [11.0]], np.array([0, 0, 1, 1]),
    ...                      fmr=[0.25], metric="euclidean")
    >>> found.rates[["threshold", "fmr", "fnmr"]].values, found.eer
    (array([[9.  , 0.25, 0.  ]]), 0.0)
    """
    pairs = _pair(embeddings, labels, gallery, gallery_labels, metric)
    scores, eer = _thresholds_and_eer(pairs, fmr)
    rates = _error_rates(pairs, scores, seed, draws).set_index(pd.Index(fmr, name="asked"))
    return Verification(rates, eer, pairs.genuine, pairs.impostors)


def error_rates(
    embeddings: Array,
    labels: Array,
    thresholds: Sequence[float],
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "cosine",
    seed: int = 0,
    draws: int = 1000,
) -> pd.DataFrame:
    """What thresholds, fixed on one set of classes, do on another: one row for each.

    FMR(t) = |{impostors: s > t}| / |I|, FNMR(t) = |{genuine: s ≤ t}| / |G|. A threshold is a cosine
    (accepted is what lies above) or a distance (below), and counts as float32. Columns:
    ``threshold``, and of ``fmr``, ``fnmr`` and ``fnmr_macro`` (every class's own FNMR, averaged, so
    that large classes do not rule) the rate in 0..1, and ``_low`` and ``_high``, the interval over
    classes. Shapes as in ``verification``.

    Source: ISO/IEC 19795-1; Fogliato et al. 2024, "Confidence intervals for error rates in 1:1
    matching tasks" (why identities are drawn, not pairs).

    >>> x, y = np.array([[0.0], [1.0], [9.0], [12.0]]), np.array([0, 0, 1, 1])
    >>> error_rates(x, y, [2.0], metric="euclidean")[["fmr", "fnmr", "fnmr_macro"]].values
    array([[0. , 0.5, 0.5]])
    """
    pairs = _pair(embeddings, labels, gallery, gallery_labels, metric)
    return _error_rates(pairs, [pairs.sign * t for t in thresholds], seed, draws)


# Pairs, in blocks


class _Pairs(NamedTuple):
    """Two sets, or one with itself, and how a pair of them is scored."""

    x: Tensor  # (N, d) float64
    y: Tensor | None  # (M, d); None: the pairs i < j of x
    of_x: Tensor  # (N,) classes in 0..C-1
    of_y: Tensor
    metric: Euclidean
    genuine: int
    impostors: int

    @property
    def sign(self) -> int:
        """Of a threshold: −1 for a distance."""
        return 1 if isinstance(self.metric, Cosine) else -1

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Scores (b, m) float32, −∞ for what is no pair; same class (b, m); classes (b,), (m,)."""
        start = 0
        while start < len(self.x):
            first = start if self.y is None else 0
            size = max(1, BLOCK_ENTRIES // (len(self.of_y) - first))
            x, of_x, of_y = self.x[start:][:size], self.of_x[start:][:size], self.of_y[first:]
            S = self.metric.likeness(x, self.x[first:] if self.y is None else self.y).float()
            same = of_x[:, None] == of_y
            if self.y is None:
                no_pair = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).tril()
                S[:, : len(x)].masked_fill_(no_pair, -torch.inf)
                same[:, : len(x)].masked_fill_(no_pair, False)
            yield S, same, of_x, of_y
            start += len(x)


def _pair(
    embeddings: Array,
    labels: Array,
    gallery: Array | None,
    gallery_labels: Array | None,
    metric: Metric,
) -> _Pairs:
    kind = metric_of(metric)
    x, y = as_matrices(embeddings, gallery, metric)
    codes = torch.cat(labels_of_both(labels, gallery_labels, x, y)).unique(return_inverse=True)[1]
    of_x, of_y = codes.split([len(x), len(y)])
    n, m = (part.bincount(minlength=int(codes.max()) + 1) for part in (of_x, of_y))
    genuine, total = int((n * m).sum()), len(x) * len(y)
    if gallery is None:  # each with itself is no pair, and (i, j) is (j, i)
        genuine, total = (genuine - len(x)) // 2, (total - len(x)) // 2
    if not 0 < genuine < total:
        raise ValueError(
            "labels: expected pairs of one class and pairs of two, "
            f"got {genuine} and {total - genuine}"
        )
    if max(norms(z).max() for z in (x, y)) > 1e38:
        raise ValueError("embeddings: expected distances below 2e38, in float32; divide them")
    own = None if gallery is None else y
    return _Pairs(x, own, of_x, of_y, kind, genuine, total - genuine)


# Thresholds: scores are counted by the upper half of their bits, then by the lower half


def _thresholds_and_eer(pairs: _Pairs, fmr: Sequence[float]) -> tuple[list[float], float]:
    """The (k+1)-th largest score of an impostor for every FMR, and the equal error rate."""
    least = 1 / pairs.impostors
    if not len(fmr) or not all(least <= f < 1 for f in fmr):
        raise ValueError(
            f"fmr: expected rates from {least:.2g} (one of {pairs.impostors} impostor pairs) to "
            f"below 1, got {fmr}"
        )
    # As the decimal is written: in binary 0.29 * 100 is below 29.
    ks = [int(Fraction(str(float(f))) * pairs.impostors) for f in fmr]
    totals = torch.tensor([[pairs.impostors], [pairs.genuine]], device=pairs.x.device)

    def rank(at_or_above: Tensor, k: int) -> int:
        return int(torch.searchsorted(at_or_above[0], k, right=True))

    def crossing(at_or_above: Tensor) -> int:
        return int(((at_or_above / totals).sum(dim=0) >= 1).int().argmax())  # FMR + 1 − FNMR

    coarse = _count(pairs, [])[0]
    upper = [*(rank(coarse, k) for k in ks), crossing(coarse)]
    fine = _count(pairs, upper)  # (F + 1, 2, 2^16)
    for counts, digit in zip(fine, upper, strict=True):
        if digit:
            counts += coarse[:, digit - 1 : digit]
    thresholds = [
        _score_of(digit, rank(counts, k))
        for k, digit, counts in zip(ks, upper[:-1], fine[:-1], strict=True)
    ]
    start = coarse[:, upper[-1] - 1 : upper[-1]] if upper[-1] else 0 * totals
    steps = torch.cat([start, fine[-1]], dim=1)
    at = crossing(steps)
    (fmr0, fmr1), (tmr0, tmr1) = (steps[:, at - 1 : at + 1] / totals).tolist()
    below, beyond = 1 - fmr0 - tmr0, fmr1 + tmr1 - 1  # |FMR − FNMR| before the crossing, and after
    return thresholds, fmr0 + (fmr1 - fmr0) * below / (below + beyond)


def _count(pairs: _Pairs, upper: list[int]) -> Tensor:
    """How many impostors and genuine pairs have a digit or a smaller one: (·, 2, 2^16).

    Scores fall as the codes of ``_codes`` rise. Counted is the upper digit, or, among those pairs
    that have one of the given upper digits, the lower: a table for each of these.
    """
    tables = torch.zeros(max(1, len(upper)), 2, _DIGIT, dtype=torch.int64, device=pairs.x.device)
    for S, same, *_ in pairs.blocks():
        codes = _codes(S)
        high = (codes >> 16) + _DIGIT // 2
        for row, table in enumerate(tables):
            if upper:
                chosen = high == upper[row]
                digits, own = codes[chosen] & (_DIGIT - 1), same[chosen]
            else:  # no mask: to select nearly all would take longest
                digits, own = high, same
            genuine = digits[own].bincount(minlength=_DIGIT)
            table += torch.stack([digits.flatten().bincount(minlength=_DIGIT) - genuine, genuine])
    if not upper:
        tables[:, :, _NO_PAIR] = 0
    return tables.cumsum(dim=2)


def _codes(S: Tensor) -> Tensor:
    """int32 that fall as float32 scores rise, and are equal for equal ones."""
    bits = (S + 0.0).view(torch.int32)  # −0 is 0
    return (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits).bitwise_not_()


def _score_of(upper: int, lower: int) -> float:
    """The score whose code has these digits."""
    order = ~torch.tensor((upper - _DIGIT // 2) * _DIGIT + lower, dtype=torch.int32)
    return ((order >> 31) & 0x7FFFFFFF ^ order).view(torch.float32).item()


# Errors at thresholds


def _error_rates(pairs: _Pairs, scores: Sequence[float], seed: int, draws: int) -> pd.DataFrame:
    """See ``error_rates``; the thresholds are scores."""
    scores = torch.tensor(scores, dtype=torch.float32).tolist()
    if not np.isfinite(scores or [np.nan]).all():
        raise ValueError(f"thresholds: expected one or more finite numbers, got {scores}")
    C = int(torch.cat([pairs.of_x, pairs.of_y]).max()) + 1
    n, m = (part.bincount(minlength=C).double() for part in (pairs.of_x, pairs.of_y))
    # How often a draw has each class: (C, 1 + draws), the first column the set as it is.
    W = torch.ones(C, 1 + draws, dtype=torch.float64)
    drawn = np.random.default_rng(seed).multinomial(C, np.full(C, 1 / C), size=draws)
    W[:, 1:] = torch.from_numpy(drawn.T)
    W = W.to(n.device)
    genuine = n * (n - 1) / 2 if pairs.y is None else n * m  # (C,)
    impostors = (n @ W) * (m @ W) - (n * m) @ W.square()  # (1 + draws,): pairs of two classes
    impostors = impostors / 2 if pairs.y is None else impostors
    matched = torch.zeros(len(scores), C, dtype=torch.float64, device=n.device)
    false_matches = torch.zeros(len(scores), W.shape[1], dtype=torch.float64, device=n.device)
    for own, its_class, found, a, b in _above(pairs, min(scores)):
        for row, t in enumerate(scores):
            matched[row] += its_class[own > t].bincount(minlength=C)
            two, count = (C * a + b)[found > t].unique(return_counts=True)
            for part, times in zip(two.split(_DRAWN), count.split(_DRAWN), strict=True):
                false_matches[row] += times.double() @ (W[part // C] * W[part % C])
    some = genuine > 0
    own_rate = torch.where(some, 1 - matched / genuine, 0)  # (T, C)
    rates = {
        "fmr": false_matches / impostors,
        "fnmr": 1 - (matched @ W) / (genuine @ W),
        "fnmr_macro": (own_rate @ W) / (some.double() @ W),
    }
    columns = {"threshold": [pairs.sign * t for t in scores]}
    for name, values in rates.items():  # (T, 1 + draws)
        ends = np.nanpercentile(values[:, 1:].cpu(), [2.5, 97.5], axis=1)
        columns |= {name: values[:, 0].tolist(), f"{name}_low": ends[0], f"{name}_high": ends[1]}
    return pd.DataFrame(columns)


def _above(pairs: _Pairs, least: float) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]:
    """In blocks, the pairs above a score: genuine ones, their classes; impostors, both classes."""
    for S, same, of_x, of_y in pairs.blocks():
        above = S.gt(least)
        own, others = (above & same).nonzero(as_tuple=True), above & ~same
        i, j = others.nonzero(as_tuple=True)
        yield S[own], of_x[own[0]], S[i, j], of_x[i], of_y[j]
