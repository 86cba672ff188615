"""Verification: is this pair of one class? Thresholds, their errors, and whom a threshold serves.

A pair of two images is *genuine* if they share a class, else an *impostor*; it is accepted if its
score, the cosine or minus the distance, lies above a threshold. Every pair counts once; with a
gallery, every query is paired with every item of it but itself (``own``); or the pairs are listed.
Scores are computed in float64 and compared as float32, in blocks: memory does not grow with the
number of pairs unless they are listed, and no threshold is interpolated.

Intervals hold 95 % of the rates that a bootstrap over classes gives: classes are drawn again, with
all their images, and a pair of two of them counts as often as both together were drawn. Pairs are
never drawn, for they share images and are not independent. The threshold is held as it is given.
Of simulated sets of 20 and 100 classes, six images each, such intervals held the true FMR of 1 % in
99 and 100 % (they are too wide), the true FNMR in 91 and 93 %, and in 87 and 92 % if the threshold
was chosen on the same set.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import Tensor

from dmlkit.arrays import Array, as_tensor, labels_of_both
from dmlkit.checks import check_gallery, listed
from dmlkit.geometry import norms
from dmlkit.neighbors import (
    BLOCK_ENTRIES,
    Euclidean,
    Metric,
    as_matrix,
    as_sets,
    metric_of,
)

_LISTED = 64  # pairs of a list that are compared at a time, all with all
_DRAWN = 2**12  # class pairs whose weights in every draw are held at a time
_DIGIT = 2**16  # a float32's bits are two digits of this size
_NO_PAIR = 0xFF80  # the upper digit of −∞


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
    fmr: Sequence[float] | float = (1e-3, 1e-2),
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "cosine",
    seed: int = 0,
    draws: int = 1000,
    own: Array | None = None,
) -> Verification:
    """The threshold for each false match rate, the errors there, and the equal error rate.

    For an FMR f and |I| impostor pairs, k = ⌊f |I|⌋, and the threshold t is the (k+1)-th largest
    score of an impostor: accepted is s > t, so that at most k impostors are, ties or not. The equal
    error rate is where the ROC, its points joined by straight lines, crosses FMR = FNMR.

    Embeddings (N, d), labels (N,); gallery (M, d), gallery_labels (M,); own (N,), the gallery's
    rows that are the queries themselves, −1 for none. ``rates`` is what ``error_rates`` gives,
    indexed by the FMR asked. It says how well t separates *these* classes, on which it was chosen:
    for other classes, give its thresholds to ``error_rates``.

    Raises ValueError for an FMR below 1/|I|, of which so few pairs say nothing, or from 1 on, and
    for labels without a genuine or an impostor pair.

    Source: ISO/IEC 19795-1 (FMR, FNMR); the crossing as in scikit-learn's ROC with ``brentq``.

    >>> found = verification([[0.0], [1.0], [9.0], [11.0]], np.array([0, 0, 1, 1]),
    ...                      fmr=[0.25], metric="euclidean")
    >>> found.rates[["threshold", "fmr", "fnmr"]].values, found.eer
    (array([[9.  , 0.25, 0.  ]]), 0.0)
    """
    pairs, fmr = _pair(embeddings, labels, gallery, gallery_labels, metric, own), listed(fmr)
    scores, eer = _thresholds_and_eer(pairs, fmr)
    rates = _error_rates(pairs, scores, seed, draws).set_index(pd.Index(fmr, name="asked"))
    return Verification(rates, eer, pairs.genuine, pairs.impostors)


def error_rates(
    embeddings: Array,
    labels: Array,
    thresholds: Sequence[float] | float,
    gallery: Array | None = None,
    gallery_labels: Array | None = None,
    metric: Metric = "cosine",
    seed: int = 0,
    draws: int = 1000,
    own: Array | None = None,
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
    pairs = _pair(embeddings, labels, gallery, gallery_labels, metric, own)
    return _error_rates(pairs, [pairs.metric.sign * t for t in listed(thresholds)], seed, draws)


def pair_scores(embeddings: Array, pairs: Array, metric: Metric = "cosine") -> Array:
    """Cosines or distances of a list of pairs: (N, d), (P, 2) rows -> (P,) float32.

    >>> pair_scores(np.array([[0.0], [1.0], [9.0]]), [[0, 1], [0, 2]], "euclidean")
    array([1., 9.], dtype=float32)
    """
    found = metric_of(metric).sign * _scores_of(embeddings, pairs, metric)
    return found if isinstance(embeddings, Tensor) else found.numpy()


def verify_pairs(
    embeddings: Array,
    pairs: Array,
    same: Array,
    fmr: Sequence[float] | float = (1e-3, 1e-2),
    metric: Metric = "cosine",
) -> Verification:
    """``verification`` of a list of pairs, as the protocol of LFW has one.

    A pair is two rows of embeddings (N, d); pairs (P, 2), and same (P,): 1 or True for a genuine
    pair, 0 or False for an impostor. ``rates`` is what ``pair_error_rates`` gives.

    Source: Huang et al. 2007, "Labeled Faces in the Wild".

    >>> x, pairs = [[0.0], [1.0], [9.0], [11.0]], [[0, 1], [2, 3], [0, 2], [1, 3]]
    >>> found = verify_pairs(x, pairs, [1, 1, 0, 0], fmr=[0.5], metric="euclidean")
    >>> found.rates.values, found.eer
    (array([[10. ,  0.5,  0. ]]), 0.0)
    """
    found, fmr = _listed(embeddings, pairs, same, metric), listed(fmr)
    scores, eer = _thresholds_and_eer(found, fmr)
    rates = _listed_rates(found, scores).set_index(pd.Index(fmr, name="asked"))
    return Verification(rates, eer, found.genuine, found.impostors)


def pair_error_rates(
    embeddings: Array,
    pairs: Array,
    same: Array,
    thresholds: Sequence[float] | float,
    metric: Metric = "cosine",
) -> pd.DataFrame:
    """What thresholds, fixed on other pairs, do on a list of pairs: one row for each.

    Columns ``threshold``, ``fmr`` and ``fnmr``, as in ``error_rates``, without intervals: a list
    names no classes to be drawn. Shapes as in ``verify_pairs``.

    >>> x = [[0.0], [1.0], [9.0]]
    >>> pair_error_rates(x, [[0, 1], [0, 2]], [1, 0], [0.5, 2.0], "euclidean")
       threshold  fmr  fnmr
    0        0.5  0.0   1.0
    1        2.0  0.0   0.0
    """
    found = _listed(embeddings, pairs, same, metric)
    return _listed_rates(found, [found.sign * t for t in listed(thresholds)])


# Pairs, in blocks


class _Pairs(NamedTuple):
    """Two sets, or one with itself, and how a pair of them is scored."""

    x: Tensor  # (N, d) float64
    y: Tensor  # (M, d); x itself: the pairs i < j of x
    of_x: Tensor  # (N,) classes in 0..C-1
    of_y: Tensor
    own: Tensor | None  # (N,) rows of y that are those of x, −1 for none
    metric: Euclidean
    sizes: tuple[Tensor, Tensor]  # how many of x, and of y, each class has, (C,)
    of_class: Tensor  # (C,) genuine pairs
    genuine: int
    impostors: int

    def blocks(self) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Scores (b, m) float32, −∞ for what is no pair; same class (b, m); classes (b,), (m,)."""
        start = 0
        while start < len(self.x):
            first = start if self.y is self.x else 0
            size = max(1, BLOCK_ENTRIES // (len(self.of_y) - first))
            x, of_x, of_y = self.x[start:][:size], self.of_x[start:][:size], self.of_y[first:]
            S = self.metric.likeness(x, self.y[first:]).float()
            same = of_x[:, None] == of_y
            if self.y is self.x:
                no_pair = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).tril()
                S[:, : len(x)].masked_fill_(no_pair, -torch.inf)
                same[:, : len(x)].masked_fill_(no_pair, False)
            if self.own is not None:
                own = self.own[start:][:size]
                itself = (own >= 0).nonzero()[:, 0], own[own >= 0]
                S[itself], same[itself] = -torch.inf, False
            yield S, same, of_x, of_y
            start += len(x)


class _Listed(NamedTuple):
    """Pairs of a list."""

    x: Tensor  # (1, P) float32 scores
    same: Tensor  # (1, P)
    sign: int
    genuine: int
    impostors: int

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See ``_Pairs``."""
        yield self.x, self.same


def _pair(
    embeddings: Array,
    labels: Array,
    gallery: Array | None,
    gallery_labels: Array | None,
    metric: Metric,
    own: Array | None,
) -> _Pairs:
    check_gallery(embeddings, gallery, own)
    x, y, rows = as_sets(embeddings, gallery, metric, own)
    _check_sizes(x, y)
    both = labels_of_both(labels, gallery_labels, x, y, rows)
    classes, codes = torch.cat(both).unique(return_inverse=True)
    of_x, of_y = codes.split([len(x), len(y)])
    n, m = sizes = of_x.bincount(minlength=len(classes)), of_y.bincount(minlength=len(classes))
    of_class, total = n * m, len(x) * len(y)
    if y is x:  # each with itself is no pair, and (i, j) is (j, i)
        of_class, total = (of_class - n) // 2, (total - len(x)) // 2
    if rows is not None:
        itself = of_x[rows >= 0]
        of_class, total = of_class - itself.bincount(minlength=len(n)), total - len(itself)
    genuine = int(of_class.sum())
    _check_pairs("labels", genuine, total)
    kind = metric_of(metric)
    return _Pairs(x, y, of_x, of_y, rows, kind, sizes, of_class, genuine, total - genuine)


def _listed(embeddings: Array, pairs: Array, same: Array, metric: Metric) -> _Listed:
    scores = _scores_of(embeddings, pairs, metric)
    genuine = as_tensor(same, "same").to(scores.device)
    if genuine.shape != scores.shape or not ((genuine == 0) | (genuine == 1)).all():
        raise ValueError(
            f"same: expected 0 or 1 for each of the {len(scores)} pairs, got shape "
            f"{tuple(genuine.shape)} and {genuine.unique().tolist()[:5]}"
        )
    count = int(genuine.sum())
    _check_pairs("same", count, len(scores))
    sign = metric_of(metric).sign  # −1: a threshold is a distance
    return _Listed(scores[None], genuine[None] == 1, sign, count, len(scores) - count)


def _scores_of(embeddings: Array, pairs: Array, metric: Metric) -> Tensor:
    """Of pairs (P, 2), the higher the more alike: (P,) float32."""
    x = as_matrix(embeddings, "embeddings", metric)
    _check_sizes(x)
    rows = as_tensor(pairs, "pairs").to(x.device)
    if rows.ndim != 2 or rows.shape[1] != 2 or rows.is_floating_point() or not len(rows):
        raise ValueError(
            "pairs: expected two rows of embeddings for each pair, integers of shape (pairs, 2), "
            f"got {rows.dtype} of shape {tuple(rows.shape)}"
        )
    low, high = int(rows.min()), int(rows.max())
    if low < 0 or high >= len(x):
        raise ValueError(f"pairs: expected rows from 0 to {len(x) - 1}, got {low} to {high}")
    a, b = (part.split(_LISTED) for part in rows.long().T)
    likeness = metric_of(metric).likeness  # of all with all, of which the diagonal is asked
    return torch.cat([likeness(x[i], x[j]).diagonal() for i, j in zip(a, b, strict=True)]).float()


def _check_sizes(*sets: Tensor) -> None:
    if max(norms(x).max() for x in sets) > 1e38:  # else a score may be −∞, which is no pair
        raise ValueError("embeddings: expected distances below 2e38, in float32; divide them")


def _check_pairs(name: str, genuine: int, total: int) -> None:
    if not 0 < genuine < total:
        raise ValueError(
            f"{name}: expected pairs of one class and pairs of two, "
            f"got {genuine} and {total - genuine}"
        )


# Errors at thresholds


def _error_rates(pairs: _Pairs, scores: Sequence[float], seed: int, draws: int) -> pd.DataFrame:
    """See ``error_rates``; the thresholds are scores."""
    scores = _as_float32(scores)
    (n, m), genuine = (z.double() for z in pairs.sizes), pairs.of_class.double()  # (C,)
    C = len(genuine)
    # How often a draw has each class: (C, 1 + draws), the first column the set as it is.
    W = torch.ones(C, 1 + draws, dtype=torch.float64)
    drawn = np.random.default_rng(seed).multinomial(C, np.full(C, 1 / C), size=draws)
    W[:, 1:] = torch.from_numpy(drawn.T)
    W = W.to(n.device)
    impostors = (n @ W) * (m @ W) - (n * m) @ W.square()  # (1 + draws,): pairs of two classes
    impostors = impostors / 2 if pairs.y is pairs.x else impostors
    matched = torch.zeros(len(scores), C, dtype=torch.float64, device=n.device)
    false_matches = torch.zeros(len(scores), W.shape[1], dtype=torch.float64, device=n.device)
    for S, same, of_x, of_y in pairs.blocks():
        above = S.gt(min(scores))
        own, others = (above & same).nonzero(as_tuple=True), (above & ~same).nonzero(as_tuple=True)
        its_class, both = of_x[own[0]], C * of_x[others[0]] + of_y[others[1]]
        s_own, s_others = S[own], S[others]
        for row, t in enumerate(scores):
            matched[row] += its_class[s_own > t].bincount(minlength=C)
            two, count = both[s_others > t].unique(return_counts=True)
            for part, times in zip(two.split(_DRAWN), count.split(_DRAWN), strict=True):
                false_matches[row] += times.double() @ (W[part // C] * W[part % C])
    some = genuine > 0
    own_rate = torch.where(some, 1 - matched / genuine, 0)  # (T, C)
    rates = {
        "fmr": false_matches / impostors,
        "fnmr": 1 - (matched @ W) / (genuine @ W),
        "fnmr_macro": (own_rate @ W) / (some.double() @ W),
    }
    columns = {"threshold": [pairs.metric.sign * t for t in scores]}
    for name, values in rates.items():  # (T, 1 + draws)
        ends = np.nanpercentile(values[:, 1:].cpu(), [2.5, 97.5], axis=1)
        columns |= {name: values[:, 0].tolist(), f"{name}_low": ends[0], f"{name}_high": ends[1]}
    return pd.DataFrame(columns)


def _listed_rates(pairs: _Listed, scores: Sequence[float]) -> pd.DataFrame:
    """See ``pair_error_rates``; the thresholds are scores."""
    rows = []
    for t in _as_float32(scores):
        above = pairs.x > t
        fmr = int((above & ~pairs.same).sum()) / pairs.impostors
        fnmr = int((~above & pairs.same).sum()) / pairs.genuine
        rows.append({"threshold": pairs.sign * t, "fmr": fmr, "fnmr": fnmr})
    return pd.DataFrame(rows)


def _as_float32(scores: Sequence[float]) -> list[float]:
    """Thresholds as they count."""
    counted: list[float] = torch.tensor(scores, dtype=torch.float32).tolist()
    if not np.isfinite(counted or [np.nan]).all():
        raise ValueError(f"thresholds: expected one or more finite numbers, got {counted}")
    return counted


# Thresholds: scores are counted by the upper half of their bits, then by the lower half, so that
# none is kept.


def _thresholds_and_eer(pairs: _Pairs | _Listed, fmr: Sequence[float]) -> tuple[list[float], float]:
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

    def rank(above: Tensor, k: int) -> int:
        return int(torch.searchsorted(above[0], k, right=True)) - 1

    def crossing(above: Tensor) -> int:
        return int(((above / totals).sum(dim=0) >= 1).int().argmax()) - 1  # FMR + 1 − FNMR

    coarse = _count(pairs, [])[0]  # (2, 2^16 + 1)
    upper = [*(rank(coarse, k) for k in ks), crossing(coarse)]
    fine = _count(pairs, upper) + coarse[:, upper].T[:, :, None]  # (F + 1, 2, 2^16 + 1)
    digits = zip(upper, map(rank, fine, ks), strict=False)
    at = crossing(fine[-1])
    (fmr0, fmr1), (tmr0, tmr1) = (fine[-1, :, at : at + 2] / totals).tolist()
    below, beyond = 1 - fmr0 - tmr0, fmr1 + tmr1 - 1  # |FMR − FNMR| before the crossing, and after
    return [_score_of(*two) for two in digits], fmr0 + (fmr1 - fmr0) * below / (below + beyond)


def _count(pairs: _Pairs | _Listed, upper: list[int]) -> Tensor:
    """How many impostors and genuine pairs have a smaller digit: (·, 2, 2^16 + 1).

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
    return F.pad(tables.cumsum(dim=2), (1, 0))


def _codes(S: Tensor) -> Tensor:
    """int32 that fall as float32 scores rise, and are equal for equal ones."""
    bits = (S + 0.0).view(torch.int32)  # −0 is 0
    return (bits >> 31).bitwise_and_(0x7FFFFFFF).bitwise_xor_(bits).bitwise_not_()


def _score_of(upper: int, lower: int) -> float:
    """The score whose code has these digits."""
    order = ~torch.tensor((upper - _DIGIT // 2) * _DIGIT + lower, dtype=torch.int32)
    return ((order >> 31) & 0x7FFFFFFF ^ order).view(torch.float32).item()
