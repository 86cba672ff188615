"""Thresholds for false match rates: scores are counted by the upper half of their bits, then by the
lower half, so that none is kept."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Protocol

import torch
from torch import Tensor

_DIGIT = 2**16  # a float32's bits are two digits of this size
_NO_PAIR = 0xFF80  # the upper digit of −∞


class Scored(Protocol):
    """Pairs that give their scores in blocks."""

    @property
    def x(self) -> Tensor:
        """A tensor where the scores are computed."""

    @property
    def genuine(self) -> int:
        """How many pairs are of one class."""

    @property
    def impostors(self) -> int:
        """How many are of two."""

    def blocks(self) -> Iterator[tuple[Tensor, ...]]:
        """Scores (b, m) float32, −∞ for what is no pair; same class (b, m)."""


def thresholds_and_eer(pairs: Scored, fmr: Sequence[float]) -> tuple[list[float], float]:
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


def _count(pairs: Scored, upper: list[int]) -> Tensor:
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
