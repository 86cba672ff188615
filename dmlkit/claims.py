"""The ledger's rule: from a claim, an effect and its interval to a verdict.

Which rule a claim falls under is fixed in ``data/claims.csv`` before anything is run:

- ``positive``: the effect, written so that the claim says it is above 0, is *reproduced* if its
  95 % interval lies wholly above 0, *contradicted* if wholly below, else *inconclusive*;
- ``equivalent``: the claim says that there is no difference. *Reproduced* if the 90 % interval
  lies within ± the margin, which is two one-sided tests at 5 %; *contradicted* if it lies wholly
  outside; else *inconclusive*;
- ``below``: the claim says that a cost stays under a margin. *Reproduced* if the 95 % interval lies
  wholly below it, *contradicted* if wholly above;
- ``exact``: an identity. *Reproduced* if the effect, the largest deviation, is within the margin;
- ``table``: a claim about a published table, which no run of ours can settle.
"""

import csv
import functools
import math
from dataclasses import asdict, dataclass
from typing import Any

from dmlkit import ROOT

#: Of Recall@1: one point either way is no difference.
MARGIN = 0.01


@dataclass(frozen=True)
class Verdict:
    """What our own runs say of one claim, or of one part of it."""

    claim: str
    part: str
    verdict: str
    effect: float
    low: float | None
    high: float | None
    n: int
    rule: str
    text: str

    def facts(self) -> dict[str, Any]:
        """The numbers to keep beside a figure: ``plotting.save(..., data={"claims": [...]})``."""
        return {key: value for key, value in asdict(self).items() if key != "text"}

    def __str__(self) -> str:
        part = f" ({self.part})" if self.part else ""
        interval = "" if self.low is None else f" [{self.low:+.4g}, {self.high:+.4g}]"
        evidence = f"effect {self.effect:+.4g}{interval}, n = {self.n}, rule: {self.rule}"
        return f"{self.claim}{part}: {self.verdict.upper()}. {evidence}\n    {self.text}"

    __repr__ = __str__


@functools.cache
def table() -> dict[str, dict[str, str]]:
    """Every claim by its id: source, where, claim, measure, note, rule.

    >>> table()["B2"]["rule"]
    'exact'
    """
    with (ROOT / "data" / "claims.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def record(
    claim: str,
    effect: float,
    interval: tuple[float, float] | None = None,
    n: int = 1,
    *,
    part: str = "",
    margin: float = MARGIN,
) -> Verdict:
    """Settle a claim by its rule, from an effect, its interval and the number of repeats.

    The interval is the 95 % one for a ``positive`` claim and the 90 % one for an ``equivalent``
    one (see the module); an ``exact`` claim has none. ``part`` names what was measured where a
    claim has several parts. Without an interval (one seed) nothing is decided.

    Raises:
        ValueError: unknown claim, or numbers that are no interval around the effect.

    >>> record("C11", 0.002, (-0.004, 0.008), n=5).verdict
    'reproduced'
    >>> record("C18", -0.02, (-0.03, -0.01), n=5).verdict
    'contradicted'
    """
    if claim not in table():
        raise ValueError(f"unknown claim {claim!r}; there are {', '.join(table())}")
    rule, text = table()[claim]["rule"], table()[claim]["claim"]
    low, high = interval if interval is not None else (None, None)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        low = high = None
    elif not low <= effect <= high:
        raise ValueError(f"{claim}: [{low}, {high}] is no interval around the effect {effect}")
    verdict = _decide(rule, float(effect), low, high, margin)
    return Verdict(claim, part, verdict, float(effect), low, high, int(n), rule, text)


def _decide(rule: str, effect: float, low: float | None, high: float | None, margin: float) -> str:
    if rule == "exact":
        return "reproduced" if abs(effect) <= margin else "contradicted"
    if low is None or high is None:
        return "inconclusive"
    if rule == "positive":
        return "reproduced" if low > 0 else "contradicted" if high < 0 else "inconclusive"
    if rule == "equivalent":
        if -margin < low and high < margin:
            return "reproduced"
        return "contradicted" if low > margin or high < -margin else "inconclusive"
    if rule == "below":
        return "reproduced" if high < margin else "contradicted" if low > margin else "inconclusive"
    raise ValueError(f"a claim of rule {rule!r} is settled by the published tables, not by runs")
