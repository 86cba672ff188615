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
- ``table``: a claim about a published table, which no run of ours can settle. The effect is the
  number of the table's cells that speak against it: *reproduced* if none.

The evidence is the numbers beside the figures: a notebook puts its verdicts into the figure that
shows them, and ``verdicts`` reads them from there. So many tests make some succeed by chance: it
also says which verdicts stand after Holm's correction over all of them.
"""

import csv
import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from dmlkit import ROOT, study
from dmlkit.files import write_whole

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
    margin: float
    text: str
    kept: bool = False
    values: tuple[float, ...] | None = None  # one for each repetition
    timed: bool = False  # whether a clock gave the values, which another machine does not share

    def facts(self) -> dict[str, Any]:
        """The numbers to keep beside a figure: ``figures.save(..., data={"claims": [...]})``."""
        facts = asdict(self)
        left_out = {"text"} | {key for key in ("kept", "values", "timed") if not facts[key]}
        return {key: value for key, value in facts.items() if key not in left_out}

    def __str__(self) -> str:
        part = f" ({self.part})" if self.part else ""
        interval = "" if self.low is None else f" [{self.low:+.4g}, {self.high:+.4g}]"
        evidence = f"effect {self.effect:+.4g}{interval}, n = {self.n}, rule: {self.rule}"
        return f"{self.claim}{part}: {self.verdict.upper()}. {evidence}\n    {self.text}"

    __repr__ = __str__


@cache
def table() -> dict[str, dict[str, str]]:
    """Every claim by its id: source, where, claim, measure, note, rule, and the ``recipes`` that
    would settle it on the paper's own data sets, where it is about those.

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
    kept: bool = False,
    values: Sequence[float] | np.ndarray | None = None,
    timed: bool = False,
) -> Verdict:
    """Settle a claim by its rule, from an effect, its interval and the number of repetitions.

    ``settle`` does so from the repetitions themselves, and chooses the interval. ``part`` names
    what was measured where a claim has several parts. Without an interval (one seed) nothing is
    decided, but for ``exact`` and ``table``. ``kept`` says that the Runs behind it were trained
    once, and are kept in ``data/evidence``; ``timed``, that a clock gave the effect.

    Raises:
        ValueError: unknown claim, or numbers that are no interval around the effect.

    >>> record("C11", 0.002, (-0.004, 0.008), n=5).verdict
    'reproduced'
    >>> record("C18", -0.02, (-0.03, -0.01), n=5).verdict
    'contradicted'
    """
    rule, effect = _rule(claim), float(effect)
    low, high = interval if interval is not None else (None, None)
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        low = high = None
    elif not low <= effect <= high:
        raise ValueError(f"{claim}: [{low}, {high}] is no interval around the effect {effect}")
    verdict, text = _decide(rule, effect, low, high, margin), table()[claim]["claim"]
    each = None if values is None else tuple(map(float, values))
    facts = (claim, part, verdict, effect, low, high, int(n), rule, margin, text, kept, each, timed)
    return Verdict(*facts)


def settle(
    claim: str,
    values: Sequence[float] | np.ndarray | pd.Series,
    *,
    part: str = "",
    margin: float = MARGIN,
    kept: bool = False,
    timed: bool = False,
) -> Verdict:
    """Settle a claim by its rule, from one effect for each repetition: (n,), which is kept.

    The mean is the effect, with its t-interval at the rule's level: 90 % for ``equivalent``, 95 %
    else. The effect of an ``exact`` claim is the largest deviation, and that of a ``table`` claim
    the sum (give the number of cells that speak against it, or 0 or 1 for each cell). ``part``,
    ``margin``, ``kept`` and ``timed`` are those of ``record``.

    Raises:
        ValueError: unknown claim, no values, or values that are no finite numbers.

    >>> settle("C18", [0.02, 0.03, 0.025]).verdict
    'reproduced'
    """
    rule, x = _rule(claim), np.asarray(values, dtype=float)
    if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise ValueError(
            f"{claim}: values must be finite numbers, one for each repetition, but are {x.tolist()}"
        )
    if rule in ("exact", "table"):
        effect, interval = float(x.sum() if rule == "table" else x[np.abs(x).argmax()]), None
    else:
        effect, *interval = study.interval(x, _level(rule))[["mean", "low", "high"]]
    return record(
        claim, effect, interval, len(x),
        part=part, margin=margin, kept=kept, values=x, timed=timed,
    )  # fmt: skip


def _rule(claim: str) -> str:
    if claim not in table():
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


def _decide(rule: str, effect: float, low: float | None, high: float | None, margin: float) -> str:
    if rule == "exact":
        return "reproduced" if abs(effect) <= margin else "contradicted"
    if rule == "table":
        return "contradicted" if effect else "reproduced"
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
    raise ValueError(f"data/claims.csv: unknown rule {rule!r}")


def verdicts(figures: Path | None = None) -> pd.DataFrame:
    """The ledger: one row for each part of a claim that a figure settles, in the claims' order.

    Columns: claim, part, verdict, effect, low, high, n, rule, margin, kept, figure, notebook,
    profile, device, ``made_with`` (the profile that trained its Runs, ``kept Runs``, or the
    ``paper's table``), ``p`` (two-sided, from the t-interval; of the two one-sided tests where the
    claim is that there is no difference; none for identities and tables) and ``holm``, whether a
    verdict that is not inconclusive stands at 5 % after Holm's correction over all rows with a p.
    """
    rows = []
    for path in sorted((figures or ROOT / "figures").glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        source = {key: kept["provenance"][key] for key in ("notebook", "profile", "device")}
        source["figure"] = path.stem
        rows += [fact | source for fact in kept["numbers"].get("claims", [])]
    order = {claim: i for i, claim in enumerate(table())}
    rows.sort(key=lambda row: (order[row["claim"]], row["figure"]))
    columns = [f for f in Verdict.__dataclass_fields__ if f != "text"]
    frame = pd.DataFrame(rows, columns=[*columns, "figure", "notebook", "profile", "device"])
    frame["made_with"] = [
        "paper's table" if row["rule"] == "table" else "kept Runs" if row.get("kept") else
        row["profile"] for row in rows
    ]  # fmt: skip
    frame["kept"] = frame["kept"].eq(True)
    frame["p"] = [_p_value(row) for row in rows]
    frame["holm"] = _holm(frame["p"].to_numpy(float)) & (frame["verdict"] != "inconclusive")
    return frame


def _p_value(row: dict[str, Any]) -> float:
    """The p-value that a t-interval around a mean of n differences implies."""
    low, high, n = row["low"], row["high"], row["n"]
    if low is None or n < 2 or high <= low:
        return math.nan
    error = (high - low) / 2 / half_width(row["rule"], n)
    effect, margin = row["effect"], row.get("margin", MARGIN)
    beyond = {"positive": effect, "below": effect - margin, "equivalent": abs(effect) - margin}
    tails = 1 if row["rule"] == "equivalent" else 2
    return float(tails * stats.t.sf(abs(beyond[row["rule"]]) / error, n - 1))


def _holm(p: np.ndarray, level: float = 0.05) -> np.ndarray:
    """Which hypotheses fall when all are tested at once: the i-th smallest p against α/(m − i).

    >>> _holm(np.array([0.04, 0.001, np.nan, 0.03])).tolist()
    [False, True, False, False]
    """
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]  # NaN come last
    falls = np.zeros(len(p), dtype=bool)
    falls[order] = np.logical_and.accumulate(p[order] <= level / np.arange(len(order), 0, -1))
    return falls


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One row for each claim: its verdict, ``mixed`` if its parts have several, ``open`` if none.

    Columns: verdict, parts (how many of each verdict), holm (verdicts that stand after Holm's
    correction, of those that were tested and decided), made_with, figures.
    """
    rows = {}
    for claim in table():
        mine = frame[frame["claim"] == claim]
        counts = mine["verdict"].value_counts().to_dict()
        tested = mine[mine["p"].notna() & (mine["verdict"] != "inconclusive")]
        rows[claim] = {
            "verdict": "mixed" if len(counts) > 1 else next(iter(counts), "open"),
            "parts": ", ".join(f"{n} {verdict}" for verdict, n in sorted(counts.items())),
            "holm": f"{int(tested['holm'].sum())} of {len(tested)}" if len(tested) else "",
            "made_with": ", ".join(dict.fromkeys(mine["made_with"])),
            "figures": ", ".join(dict.fromkeys(mine["figure"])),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def markdown(frame: pd.DataFrame) -> str:
    """The summary as a Markdown table, with links to the figures, and the recipes."""
    columns = (
        "", "claim", "verdict", "parts", "after Holm", "made with", "evidence",
        "on the paper's own data",
    )  # fmt: skip
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for name, row in summary(frame).iterrows():
        figures = [f"[{f}](figures/{f}.png)" for f in row["figures"].split(", ") if f]
        claim, recipes = (table()[str(name)][key] for key in ("claim", "recipes"))
        own = ", ".join(f"`{recipe}`" for recipe in recipes.split())
        known = (row["verdict"], row["parts"], row["holm"], row["made_with"])
        cells = (claim, *known, ", ".join(figures), own)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def write_table(page: Path, frame: pd.DataFrame) -> None:
    """Write the summary between the marks ``<!-- claims -->`` and ``<!-- /claims -->`` of a page.

    Raises ValueError for a page without these two lines.
    """
    text = page.read_text(encoding="utf-8")
    pieces = re.split(r"(?<=<!-- claims -->\n).*(?=<!-- /claims -->)", text, flags=re.DOTALL)
    if len(pieces) != 2:
        raise ValueError(
            f"{page} needs a line <!-- claims --> and one <!-- /claims --> below it, found none"
        )
    text = (markdown(frame) + "\n").join(pieces)
    write_whole({page: partial(Path.write_text, data=text)})


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
