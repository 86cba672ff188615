"""The ledger's rules: from a claim, an effect and its interval to a verdict.

Each claim has one *primary* part, fixed in ``data/claims.csv`` before anything is run: the sentence
that it is read from, what is measured, what would count for it and against it, the rule, the
smallest effect of interest (the margin) and the repetitions. Its verdict is the claim's; all other
parts are secondary, and are shown apart.

- ``positive``: the effect, written so that the claim says it is above 0. There is *no effect* if
  its 90 % interval lies within ± the margin, whatever its sign: two one-sided tests at 5 %. Else
  the claim is *reproduced* if the 95 % interval lies wholly above 0, *contradicted* if wholly
  below, and *undecided* if neither;
- ``equivalent``: the claim says that there is no difference. *Reproduced* if the 90 % interval
  lies within ± the margin; *contradicted* if it lies wholly outside; else *undecided*;
- ``below``: the claim says that something, as a cost, stays under the margin. *Reproduced* if the
  95 % interval lies wholly below it, *contradicted* if wholly above; else *undecided*;
- ``exact``: *reproduced* if the effect, the largest deviation, is within the margin. A theorem or
  a count settles it: such an identity is no evidence, and is not counted as such;
- ``table``: a claim about a published table, which no run of ours can settle. The effect is the
  number of the table's entries that speak against it: *reproduced* if none.

The evidence is the numbers beside the figures: a notebook puts its verdicts into the figure that
shows them, and ``verdicts`` reads them from there. So many tests make some succeed by chance: it
also says which primary verdicts stand after Holm's correction over all of them. ``course.ledger``
shows them.
"""

import csv
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from dmlkit import ROOT, statistics
from dmlkit.files import StrPath

#: The smallest effect of interest of a secondary part, if none is given: a point of Recall@1.
MARGIN = 0.01
_COUNTS = np.arange(2, 10_001)  # of repetitions, that might decide what is undecided


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
    margin: float
    text: str
    kept: bool = False
    values: tuple[float, ...] | None = None  # one for each repetition
    timed: bool = False  # whether a clock gave the values, which another machine does not share
    overlap: float = 0.0  # n_test/n_train where repetitions share classes, see statistics.interval

    def facts(self) -> dict[str, Any]:
        """The numbers to keep beside a figure: ``figures.save(..., data={"claims": [...]})``."""
        facts = asdict(self)
        left_out = {"text"} | {
            key for key in ("kept", "values", "timed", "overlap") if not facts[key]
        }
        return {key: value for key, value in facts.items() if key not in left_out}

    def __str__(self) -> str:
        part = f" ({self.part})" if self.part else ""
        interval = "" if self.low is None else f" [{self.low:+.4g}, {self.high:+.4g}]"
        evidence = f"effect {self.effect:+.4g}{interval}, n = {self.n}, rule: {self.rule}"
        return f"{self.claim}{part}: {self.verdict.upper()}. {evidence}\n    {self.text}"

    __repr__ = __str__


@cache
def table() -> dict[str, dict[str, str]]:
    """Every claim by its id, as ``data/claims.csv`` has it.

    Of the source: source, section, sentence (verbatim) and claim (in short). Of the primary part:
    kind (``evidence``, ``identity`` or ``table``), rule, primary (its name), measure, for, against,
    smallest (the margin), unit, repetitions, and decided_in (``scratch``, ``transfer`` or
    ``claims``, which are studies of ``data/studies``; a ``notebook``; or the paper's ``table``).
    Besides, a note, and the ``recipes`` that would settle it on the paper's own data sets, where it
    is about those.

    >>> table()["B2"]["rule"]
    'exact'
    """
    with (ROOT / "data" / "claims.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def is_primary(claim: str, part: str) -> bool:
    """Whether a part is the one that settles the claim: it has the primary's name, or none.

    >>> is_primary("B11", "Recall@1"), is_primary("B11", "all columns"), is_primary("B11", "")
    (True, False, True)
    """
    return part in ("", table()[claim]["primary"])


def record(
    claim: str,
    effect: float,
    interval: tuple[float, float] | None = None,
    n: int = 1,
    *,
    part: str = "",
    margin: float | None = None,
    kept: bool = False,
    values: Sequence[float] | np.ndarray | None = None,
    timed: bool = False,
    overlap: float = 0.0,
) -> Verdict:
    """Settle a claim by its rule, from an effect, its interval and the number of repetitions.

    ``settle`` does so from the repetitions themselves, and chooses the interval. ``part`` names
    what was measured; without a name it is the primary part, whose margin is the smallest effect
    of ``data/claims.csv`` if none is given. Without an interval (one seed) nothing is decided, but
    for ``exact`` and ``table``. ``kept`` says that the Runs behind it were trained once, and are
    kept in ``data/evidence``; ``timed``, that a clock gave the effect; ``overlap``, that the
    interval was widened by so much (see ``statistics.interval``).

    Raises ValueError for an unknown claim, with the list.

    >>> record("C6", 0.002, (-0.004, 0.008), n=5).verdict
    'reproduced'
    >>> record("C5", -0.02, (-0.03, -0.01), n=5).verdict
    'contradicted'
    """
    rule, effect, n = _rule(claim), float(effect), int(n)
    ends = np.array((None, None) if interval is None else interval, dtype=float)
    low, high = (None, None) if np.isnan(ends).any() else ends.tolist()
    if margin is None:
        margin = float(table()[claim]["smallest"]) if is_primary(claim, part) else MARGIN
    verdict, text = _decide(rule, effect, low, high, n, margin), table()[claim]["claim"]
    each = None if values is None else tuple(map(float, values))
    return Verdict(
        claim, part, verdict, effect, low, high, n, rule, margin, text,
        kept=kept, values=each, timed=timed, overlap=overlap,
    )  # fmt: skip


def settle(
    claim: str,
    values: Sequence[float] | np.ndarray | pd.Series,
    *,
    part: str = "",
    margin: float | None = None,
    kept: bool = False,
    timed: bool = False,
    overlap: float = 0.0,
) -> Verdict:
    """Settle a claim by its rule, from one effect for each repetition: (n,), which is kept.

    The mean is the effect, with its t-interval at the rule's level: 90 % for ``equivalent``, 95 %
    else. The effect of an ``exact`` claim is the largest deviation, and that of a ``table`` claim
    the sum (give the number of cells that speak against it, or 0 or 1 for each cell). Where the
    repetitions share classes, ``overlap`` widens the interval, see ``statistics.interval``. All
    others are those of ``record``.

    >>> settle("C5", [0.02, 0.03, 0.025]).verdict
    'reproduced'
    """
    rule, x = _rule(claim), np.asarray(values, dtype=float)
    if rule in ("exact", "table"):
        effect, interval = float(x.sum() if rule == "table" else x[np.abs(x).argmax()]), None
    else:
        effect, *interval = statistics.interval(x, _level(rule), overlap)[["mean", "low", "high"]]
    return record(
        claim, effect, interval, len(x),
        part=part, margin=margin, kept=kept, values=x, timed=timed, overlap=overlap,
    )  # fmt: skip


def _rule(claim: str) -> str:
    if not isinstance(claim, str) or claim not in table():
        raise ValueError(f"unknown claim {claim!r}; there are {', '.join(table())}")
    return table()[claim]["rule"]


def _level(rule: str) -> float:
    return 0.90 if rule == "equivalent" else 0.95


def half_width(rule: str, n: int) -> float:
    """Half a t-interval of a mean of n, n ≥ 2, at a rule's level, in standard errors of the mean.

    >>> round(half_width("positive", 5), 3), round(half_width("equivalent", 5), 3)
    (2.776, 2.132)
    """
    return float(stats.t.ppf((1 + _level(rule)) / 2, n - 1))


def _decide(
    rule: str, effect: float, low: float | None, high: float | None, n: int, margin: float
) -> str:
    if rule == "exact":
        return "reproduced" if abs(effect) <= margin else "contradicted"
    if rule == "table":
        return "contradicted" if effect else "reproduced"
    if low is None or high is None:
        return "undecided"
    if rule == "positive":
        # The interval at 90 % is that much narrower; of one repetition there is none.
        narrower = half_width("equivalent", n) / half_width(rule, n) if n > 1 else 1.0
        if abs(effect) + narrower * max(high - effect, effect - low) < margin:
            return "no effect"
        return "reproduced" if low > 0 else "contradicted" if high < 0 else "undecided"
    if rule == "equivalent":
        if -margin < low and high < margin:
            return "reproduced"
        return "contradicted" if low > margin or high < -margin else "undecided"
    return "reproduced" if high < margin else "contradicted" if low > margin else "undecided"


# The ledger -----------------------------------------------------------------------------------


def verdicts(figures: StrPath | None = None) -> pd.DataFrame:
    """The ledger: one row for each part of a claim that a figure settles, in the claims' order.

    Columns: claim, part, verdict, effect, low, high, n, rule, margin, kept, figure, notebook,
    profile, device; ``primary``; ``made_with`` (the profile that trained its Runs, ``kept Runs``,
    the ``paper's table``, or ``identity``); ``p`` of the t-test behind the verdict and ``p_flips``
    of the sign-flip test (see ``_tests``; none of identities and tables); ``holm``, whether a
    primary verdict stands at 5 % after Holm's correction, which takes the larger of the two; and
    ``needed``, the repetitions that would decide a part that is undecided (see ``_needed``).
    """
    rows = []
    for path in sorted(Path(figures or ROOT / "figures").glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        source = {key: kept["provenance"][key] for key in ("notebook", "profile", "device")}
        source["figure"] = path.stem
        rows += [fact | source for fact in kept["numbers"].get("claims", [])]
    order = {claim: i for i, claim in enumerate(table())}
    rows.sort(key=lambda row: (order[row["claim"]], row["figure"]))
    columns = [f for f in Verdict.__dataclass_fields__ if f != "text"]
    frame = pd.DataFrame(rows, columns=[*columns, "figure", "notebook", "profile", "device"])
    made_with = {"table": "paper's table", "exact": "identity"}
    frame["made_with"] = [
        made_with.get(row["rule"], "kept Runs" if row.get("kept") else row["profile"])
        for row in rows
    ]
    frame["kept"] = frame["kept"].eq(True)
    frame["primary"] = [is_primary(row["claim"], row["part"]) for row in rows]
    tests = [_tests(row) for row in rows]
    own = [_is_equivalence(row) for row in rows]
    frame["p"] = [test["t"][i] for test, i in zip(tests, own, strict=True)]
    frame["p_flips"] = [test["flips"][i] for test, i in zip(tests, own, strict=True)]
    frame["holm"] = _stands(frame, tests, own)
    frame["needed"] = [_needed(row) for row in rows]
    return frame


def _is_equivalence(row: dict[str, Any]) -> bool:
    """Whether it is the test of equivalence that is behind a verdict."""
    if row["rule"] == "equivalent":
        return abs(row["effect"]) < row["margin"]
    return row["verdict"] == "no effect"


def _tests(row: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """The p-values of a difference and of equivalence, by t-tests and by sign flips.

    Of a difference: two-sided from 0 (``positive``) or from the margin (``below``), or one-sided
    from the margin on its side (``equivalent``). Of equivalence: the larger of two one-sided ones.
    The t-tests are those that the interval implies; sign flips need values that are independent.
    """
    low, high, n, rule = row["low"], row["high"], row["n"], row["rule"]
    effect, margin = row["effect"], row["margin"]
    found = {"t": (math.nan, math.nan), "flips": (math.nan, math.nan)}
    if low is None or n < 2 or high <= low:
        return found
    side = 1 if effect >= 0 else -1
    centre = {"positive": 0.0, "below": margin, "equivalent": side * margin}[rule]
    two_sided = rule != "equivalent"
    error = (high - low) / 2 / half_width(rule, n)
    away = abs(effect - centre) if two_sided else side * (effect - centre)
    z = np.array([away, margin - abs(effect)]) / error
    difference, inside = stats.t.sf(z, n - 1) * (1 + two_sided, 1)
    found["t"] = difference, math.nan if rule == "below" else inside
    if row.get("values") is not None and not row.get("overlap"):
        x = np.asarray(row["values"], dtype=float)
        moved = statistics.sign_flips(side * (x - centre), "two-sided" if two_sided else "greater")
        inside = max(statistics.sign_flips(margin + s * x, "greater") for s in (1, -1))
        found["flips"] = moved, math.nan if rule == "below" else inside
    return found


def _stands(
    frame: pd.DataFrame, tests: Sequence[dict[str, tuple[float, float]]], own: Sequence[bool]
) -> np.ndarray:
    """Which rows are primary, decided, and stand after Holm's correction over all primary ones."""
    stands = np.zeros(len(frame), dtype=bool)
    at = np.flatnonzero(frame["primary"])
    if len(at):
        p = np.array([np.fmax(tests[i]["t"], tests[i]["flips"]) for i in at.tolist()])  # (m, 2)
        decided = frame["verdict"].to_numpy()[at] != "undecided"
        which = np.asarray(own, dtype=int)[at]  # of the two tests
        stands[at] = statistics.holm(p)[np.arange(len(at)), which] & decided
    return stands


@cache
def _quantiles(level: float) -> NDArray[np.float64]:
    """Quantiles of t for each of ``_COUNTS``, made once: they take long."""
    return stats.t.ppf(level, _COUNTS - 1)


def _needed(row: dict[str, Any]) -> float:
    """The repetitions that would decide what is undecided, were it as measured, at a power of 80 %.

    Infinite where no number up to 10,000 would, NaN where nothing is undecided.
    """
    low, high, n, rule = row["low"], row["high"], row["n"], row["rule"]
    if row["verdict"] != "undecided" or low is None or n < 2 or high <= low:
        return math.nan
    effect, margin, overlap = row["effect"], row["margin"], row.get("overlap") or 0.0
    sd = (high - low) / 2 / half_width(rule, n) / math.sqrt(1 / n + overlap)
    # How far the effect is from where the verdict would turn, and the level of that test.
    ways = {
        "positive": [(abs(effect), 0.975), (margin - abs(effect), 0.95)],
        "below": [(abs(margin - effect), 0.975)],
        "equivalent": [(abs(margin - abs(effect)), 0.95)],
    }[rule]
    error = sd * np.sqrt(1 / _COUNTS + overlap)
    least = [
        _COUNTS[(_quantiles(level) + _quantiles(0.8)) * error <= distance]
        for distance, level in ways
    ]
    return float(min((each[0] for each in least if len(each)), default=math.inf))


def check_evidence(
    made: pd.DataFrame,
    kept: pd.DataFrame,
    metric: str = "recall_at_1",
    spread: float = 0.012,
    complete: bool = False,
) -> int:
    """Hold trainings made now against kept ones of the same Experiments: how many there were.

    Both have one row a training, with the ``hash`` of its Experiment and its ``metric``, NaN (0
    here) if it diverged. Another processor is another seed: the evidence stands if the mean of the
    n differences is within 6 standard errors of 0, |d̄| ≤ 6 σ √(2/n), where σ is the ``spread`` of
    the metric between two seeds (of a Recall@1 on Glyphs, about 1.2 points).

    Raises:
        ValueError: they differ by more; or some of those made are not in the evidence, which is
            said only if it should be ``complete`` (a shorter training is another Experiment).

    >>> kept = pd.DataFrame({"hash": ["a", "b"], "recall_at_1": [0.82, 0.91]})
    >>> check_evidence(pd.DataFrame({"hash": ["b", "c"], "recall_at_1": [0.9, 0.7]}), kept)
    1
    """
    now, before = (f.drop_duplicates("hash").set_index("hash")[metric] for f in (made, kept))
    if complete and (missing := sorted(set(now.index) - set(before.index))):
        raise ValueError(
            f"{len(missing)} of {len(now)} trainings are not in the evidence, which other recipes "
            f"have made: {', '.join(missing)}"
        )
    both = now.index.intersection(before.index)
    moved = now[both].fillna(0).to_numpy(float) - before[both].fillna(0).to_numpy(float)
    bound = 6 * spread * math.sqrt(2 / max(1, len(moved)))
    if len(moved) and not abs(moved.mean()) <= bound:
        raise ValueError(
            f"{metric} of {len(moved)} trainings of the evidence, made again, is different by "
            f"{moved.mean():+.3g} on average: expected at most {bound:.3g}"
        )
    return len(moved)
