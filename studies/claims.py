"""The ledger: what becomes of a claim, in a row for each condition that it was tested in.

A claim of ``data/claims.csv`` has one measure and one smallest effect, the same in all conditions.
A row is an effect, its interval by the one test (``dmlkit.statistics.paired``), and a word
(``dmlkit.statistics.word``). Some rows are no evidence, and have other words:

- ``exact``, an identity: a *check*, which *passed* or *failed*;
- ``table``, about a published table: *holds there* or *fails there*, in the paper's own table;
- what a clock says has no word: another machine has another clock.

An evidence notebook puts its rows beside the figure that shows them; ``ledger`` reads them from
there, and says which words stand after Holm's correction over all that were asked.
"""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from dmlkit import ROOT, statistics
from dmlkit.files import StrPath

TABLE = "the paper's own table"
#: What repeats another condition's rows, on the same test classes.
AGAIN = "from scratch, searched twice"
#: In their order.
CONDITIONS = (
    *("from scratch", AGAIN, "trained longer", "small batches", "fine-tuned"),
    *("photographs, head", "photographs, fine-tuned", TABLE, "check"),
)
#: Of evidence.
WORDS = ("holds here", "smaller than claimed", "fails here", "open")
_COLORS = dict(zip(WORDS, ("#0072b2", "#3388bb", "#d55e00", "0.5"), strict=True))


@dataclass(frozen=True)
class Row:
    """What one condition says of a claim."""

    claim: str
    condition: str
    measure: str
    effect: float
    low: float | None
    high: float | None
    n: int
    effective: float  # repetitions, see statistics.effective
    margin: float  # the smallest effect
    word: str
    p: tuple[float | None, float | None] = (None, None)  # of no effect, of the margin or more
    values: tuple[float, ...] | None = None  # one for each repetition
    timed: bool = False

    def facts(self) -> dict[str, Any]:
        """The numbers to keep beside a figure: ``figures.save(..., data={"claims": [...]})``."""
        return asdict(self)

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:+.3g}, {self.high:+.3g}]"
        n = f"n = {self.n}" + (f", effective {self.effective:.1f}" * (self.effective < self.n))
        said = self.word or "a clock, no word"
        effect = f"against it: {self.effect:g}" * (self.condition == TABLE) or f"{self.effect:+.3g}"
        return f"{self.claim}, {self.condition}: {said} ({effect}{interval}, {n})"


@cache
def table() -> dict[str, dict[str, str]]:
    """Every claim by its id, as ``data/claims.csv`` has it.

    Of the source: source, section, sentence (verbatim) and claim (in short). Of the test: rule,
    measure, smallest (effect) and unit. Of its history: before (the rule that was), why (it is
    another now), known (what was known when this one was written). Besides, ``recipes`` that would
    settle it on the paper's own data sets.

    >>> table()["B2"]["rule"]
    'exact'
    """
    with (ROOT / "data" / "claims.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def row(
    claim: str,
    condition: str,
    values: Sequence[float] | np.ndarray | pd.Series,
    *,
    measure: str = "",
    overlap: float = 0.0,
    luck: float = 0.0,
    searches: int = 1,
    recipes: float = 2.0,
    timed: bool = False,
) -> Row:
    """A row from the claim's measure in each repetition; see ``statistics.paired``.

    ``measure`` says what was measured where that is not quite what ``data/claims.csv`` has. Raises
    ValueError for fewer than two values, as nothing tells their spread, or for values that are all
    the same, as a count of none is.

    >>> row("C18", "from scratch", [0.5, 0.6, 0.7, 0.55, 0.6]).word
    'holds here'
    """
    about, x = table()[claim], np.asarray(values, dtype=float)
    if len(x) < 2 or not x.std():
        raise ValueError(f"{claim}: an interval needs values that differ, but these are {x}")
    margin, n = float(about["smallest"]), len(x)
    how = {"overlap": overlap, "luck": luck, "searches": searches, "recipes": recipes}
    at = statistics.paired(x[:, None], **how).iloc[0]  # type: ignore[arg-type]
    far = -margin if about["rule"] == "equivalent" and at["difference"] < 0 else margin
    edge = statistics.paired(x[:, None], null=far, **how).iloc[0]["p"]  # type: ignore[arg-type]
    effect, low, high = (float(at[key]) for key in ("difference", "low", "high"))
    word = "" if timed else statistics.word(about["rule"], effect, low, high, margin)
    return Row(
        claim, condition, measure or about["measure"], effect, low, high, n,
        statistics.effective(n, overlap), margin, word, (float(at["p"]), float(edge)),
        tuple(x.tolist()), timed,
    )  # fmt: skip


def counted(claim: str, against: float, n: int = 1, *, measure: str = "") -> Row:
    """A row of what needs no interval: the largest deviation of an identity, or how many entries of
    a published table, of n, speak against the claim.

    >>> counted("B2", 1e-15).word, counted("B11", 3, n=48).word
    ('passed', 'fails there')
    """
    about = table()[claim]
    exact, margin = about["rule"] == "exact", float(about["smallest"])
    good = abs(against) <= margin
    word = ("passed" if good else "failed") if exact else "holds there" if good else "fails there"
    where = "check" if exact else TABLE
    what = measure or about["measure"]
    return Row(claim, where, what, float(against), None, None, n, float(n), margin, word)


def ledger(figures: StrPath | None = None) -> pd.DataFrame:
    """All rows that figures hold, in the claims' order, with figure, notebook and ``stands``:
    whether a word of evidence stands at 5 % after Holm's correction over all such rows.

    Raises ValueError where two figures say something of one claim in one condition.
    """
    found = []
    for path in sorted(Path(figures or ROOT / "figures").glob("*.json")):
        kept = json.loads(path.read_text(encoding="utf-8"))
        source = {"figure": path.stem, "notebook": kept["provenance"]["notebook"]}
        found += [fact | source for fact in kept["numbers"].get("claims", [])]
    order = {claim: i for i, claim in enumerate(table())}
    found.sort(key=lambda row: (order[row["claim"]], CONDITIONS.index(row["condition"])))
    columns = [*Row.__dataclass_fields__, "figure", "notebook"]
    frame = pd.DataFrame(found, columns=columns)
    twice = frame[frame.duplicated(["claim", "condition", "measure"])]
    if len(twice):
        row = twice.iloc[0]
        raise ValueError(f"{row['claim']}, {row['condition']}: {row['figure']} says it once more")
    return frame.assign(stands=_stand(frame))


def _stand(frame: pd.DataFrame) -> np.ndarray:
    stands = np.zeros(len(frame), dtype=bool)
    at = np.flatnonzero(frame["word"].isin(WORDS).to_numpy())
    if len(at):
        p = np.array([row or (np.nan, np.nan) for row in frame["p"].iloc[at]], dtype=float)
        holds = frame["word"].iloc[at].isin(WORDS[:2]).to_numpy()
        rules = [table()[claim]["rule"] for claim in frame["claim"].iloc[at]]
        of_margin = ~holds | np.array([rule != "positive" for rule in rules])
        adjusted = statistics.holm(p)[np.arange(len(at)), of_margin.astype(int)]
        stands[at] = (adjusted <= 0.05) & (frame["word"].iloc[at] != "open").to_numpy()
    return stands


# Drawing --------------------------------------------------------------------------------------


def forest(rows: Sequence[Row], titles: Mapping[str, str] | None = None) -> Figure:
    """Rows as intervals in points, with the smallest effect as a tick, and the word at the right.
    Shaded is the claim's side of the smallest effect.

    ``titles`` gives claims a few words; rows of one claim stand together.
    """
    order = list(dict.fromkeys(row.claim for row in rows))
    height = 0.9 + 0.21 * (len(rows) + 1.2 * len(order))
    fig = Figure(figsize=(6.5, height), layout="constrained")
    ax = fig.subplots()
    y, drawn, across = 0.0, dict[float, Row](), ax.get_yaxis_transform()
    for claim in order:
        y -= 1
        text = f"{claim} · {(titles or {}).get(claim, table()[claim]['claim'])}"
        ax.text(0.01, y, text, transform=across, weight="bold", va="center", fontsize=8)
        mine = [row for row in rows if row.claim == claim]
        for row in sorted(mine, key=lambda row: CONDITIONS.index(row.condition)):
            y -= 1
            drawn[y], color = row, _COLORS.get(row.word, "0.5")
            if row.low is not None and row.high is not None:
                ax.plot([100 * row.low, 100 * row.high], [y, y], color=color, lw=2.5, alpha=0.6)
            ax.plot(100 * row.effect, y, "o", color=color, ms=5)
            ax.plot([100 * row.margin] * 2, [y - 0.3, y + 0.3], color="0.2", lw=1.2)
            word = row.word or "a clock: no word"
            ax.text(1.01, y, word, transform=across, va="center", color=color, fontsize=8)
        y -= 0.2
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    ax.set_yticks(list(drawn), [row.condition for row in drawn.values()], fontsize=8)
    left, right = ax.get_xlim()
    for height, row in drawn.items():
        rule, margin = table()[row.claim]["rule"], 100 * row.margin
        low = {"positive": margin, "equivalent": -margin}.get(rule, left)
        low, high = max(low, left), right if rule == "positive" else margin
        ax.barh(height, high - low, 0.8, low, color="#0072b2", alpha=0.08, lw=0, zorder=0)
    about = "black tick: the smallest effect; shaded: the claim's side of it"
    ax.set(xlim=(left, right), ylim=(y - 0.5, -0.3))
    fig.supxlabel(f"points (95 % interval; {about})", fontsize="medium")  # wider than the axes
    ax.grid(axis="y", visible=False)
    return fig
