"""The ledger: what becomes of a claim, in a row for each condition that it was tested in.

A claim of ``data/claims.csv`` has one measure and one smallest effect, the same in all conditions.
A row is an effect, its interval by the one test (``dmlkit.statistics.paired``), and a word
(``dmlkit.statistics.word``). Some rows are no evidence, and have other words:

- ``exact``, an identity, or ``code`` that runs: a *check*, which *passed* or *failed*;
- ``table``, about a published table: *holds there* or *fails there*, in the paper's own table;
- what a clock says has no word: another machine has another clock.

A mean over losses has a word only if it keeps it without any one of them; a loss whose search
failed is named and left out; fewer than five effective repetitions decide nothing. An evidence
notebook puts its rows beside the figure that shows them; ``ledger`` reads them from there, and says
which words stand after Holm's correction over all.
"""

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmlkit import ROOT, statistics
from dmlkit.files import StrPath
from dmlkit.statistics import NO_LUCK, Luck
from studies.printed import printed

TABLE = "the paper's own table"
#: What repeats another condition's rows, on the same test classes.
AGAIN = "from scratch, searched twice"
WHOLE = "photographs, fine-tuned"
#: In their order.
CONDITIONS = (
    *("from scratch", AGAIN, "from scratch, equal images", "trained longer", "small batches"),
    *("fine-tuned", "photographs, head", WHOLE, TABLE, "check"),
)
FAILED = "search failed"
#: Where a method left most of its losses' scores exactly as they were: nothing is decided.
IDLE = "hardly moves it here"
UNDECIDED = "cannot be decided here"
#: With fewer effective repetitions no row has a word, and no losses are put into groups.
FEW = 5
#: Trainings of whole networks that a lent GPU had time for, of those planned.
TRAINED = (60, 96)
LEVEL = 0.05
AGAINST = " (against)"  # of a loss whose gain is taken off the others'
#: Of evidence: those that decide, and the others.
DECIDED = (
    *("holds here", "smaller than claimed", "smaller here", "above 0 here"),
    *("too small to see here", "printed size excluded here", "reversed here", "fails here"),
)
WORDS = (*DECIDED, "open", UNDECIDED, FAILED, IDLE)
_COLORS = dict(
    zip(DECIDED, ("#0072b2", *["#3388bb"] * 3, *["#b07000"] * 2, *["#d55e00"] * 2), strict=True)
)


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
    least: float | None = None  # the difference that four of five such studies find
    printed: float | None = None  # the smallest size that its authors print
    #: Of no effect, of the margin or more, of the printed size or more.
    p: tuple[float | None, ...] = (None, None, None)
    values: tuple[float, ...] | None = None  # one for each repetition
    timed: bool = False
    parts: Mapping[str, float] = field(default_factory=dict)  # each loss of a mean
    center: tuple[float, float, float] | None = None  # the median of the losses, and its interval
    without: Mapping[str, float] = field(default_factory=dict)  # the mean without a loss
    carried: tuple[str, ...] = ()  # losses without which the word is another
    failed: tuple[str, ...] = ()  # losses that are left out, as a search failed

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
    another now), known (what was known when this one was written). Besides, ``recipes`` (and the
    loss) that would settle it on the paper's own data sets.

    >>> table()["B2"]["rule"]
    'exact'
    """
    with (ROOT / "data" / "claims.csv").open(encoding="utf-8", newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


@dataclass(frozen=True)
class Measured:
    """A measure in each repetition, and what ``statistics.paired`` must know of it."""

    values: np.ndarray
    overlap: float = 0.0
    luck: Luck = NO_LUCK
    searches: int | np.ndarray = 1
    pairs: float = 1.0

    def test(self, null: float = 0.0) -> pd.Series:
        """The one test."""
        how: Any = {"overlap": self.overlap, "luck": self.luck, "searches": self.searches}
        return statistics.paired(self.values[:, None], null, pairs=self.pairs, **how).iloc[0]

    def ends(self) -> tuple[float, float, float]:
        """The mean and its interval."""
        mean, low, high = self.test()[["difference", "low", "high"]]
        return float(mean), float(low), float(high)


def row(
    claim: str,
    condition: str,
    values: Sequence[float] | np.ndarray | pd.Series,
    *,
    measure: str = "",
    timed: bool = False,
    without: Mapping[str, Measured] | None = None,
    center: Measured | None = None,
    parts: Mapping[str, float] | None = None,
    failed: Sequence[str] = (),
    losses: Sequence[str] = (),
    **how: Any,
) -> Row:
    """A row from the claim's measure in each repetition; ``how`` is of ``statistics.paired``.

    ``measure`` says what was measured where that is not quite what ``data/claims.csv`` has. Of a
    mean over losses: its ``parts``, the mean ``without`` each, their median (``center``), and which
    ``failed`` and are not in it. The printed size is that of the ``losses`` that the row has.
    Raises ValueError for fewer than two values, as nothing tells
    their spread, or for values that are all the same, as a count of none is.

    >>> row("C18", "from scratch", [0.5, 0.6, 0.7, 0.55, 0.6]).word
    'holds here'
    """
    about, x = table()[claim], np.asarray(values, dtype=float)
    if len(x) < 2 or not x.std():
        raise ValueError(f"{claim}: an interval needs values that differ, but these are {x}")
    margin = float(about["smallest"])
    size = min(printed(claim, tuple(losses)).values(), default=None)
    measured = Measured(x, **how)
    at = measured.test()
    found = _word(claim, at, size)
    rests = without or {}
    changed = [name for name, rest in rests.items() if _word(claim, rest.test(), size) != found]
    if found in DECIDED and changed:  # it is carried by one loss
        tops = [rest.test()["high"] for rest in rests.values()]
        excluded = size is not None and max(at["high"], *tops) < size
        found = "printed size excluded here" if excluded else _open(at, size or margin)
    if statistics.effective(len(x), measured.overlap) < FEW:
        found = UNDECIDED
    far = -margin if about["rule"] == "equivalent" and at["difference"] < 0 else margin
    p = [at["p"], measured.test(far)["p"], None if size is None else measured.test(size)["p"]]
    effect, low, high = (float(at[key]) for key in ("difference", "low", "high"))
    return Row(
        claim, condition, measure or about["measure"], effect, low, high, len(x),
        statistics.effective(len(x), measured.overlap), margin, "" if timed else found,
        float(at["least"]), size, tuple(None if each is None else float(each) for each in p),
        tuple(x.tolist()), timed, dict(parts or {}), None if center is None else center.ends(),
        {name: float(rest.values.mean()) for name, rest in rests.items()},
        tuple(changed), tuple(failed),
    )  # fmt: skip


def _word(claim: str, at: pd.Series, size: float | None) -> str:
    about = table()[claim]
    effect, low, high, least = (float(at[key]) for key in ("difference", "low", "high", "least"))
    margin = float(about["smallest"])
    return statistics.word(about["rule"], effect, low, high, margin, size, least)


def _open(at: pd.Series, size: float) -> str:
    return "open" if at["least"] <= size else UNDECIDED


def is_question(claim: str) -> bool:
    """Whether it was asked, and not claimed: it is in no tally, and its title ends with a "?".

    >>> is_question("A6b"), is_question("A1")
    (True, False)
    """
    return table()[claim]["claim"].endswith("?")


def counted(claim: str, against: float, n: int = 1, *, measure: str = "") -> Row:
    """A row of what needs no interval: the largest deviation of an identity, or how many entries of
    a published table, of n, speak against the claim.

    >>> counted("B2", 1e-15).word, counted("B11", 3, n=48).word
    ('passed', 'fails there')
    """
    about = table()[claim]
    exact, margin = about["rule"] in ("exact", "code"), float(about["smallest"])
    good = abs(against) <= margin
    word = ("passed" if good else "failed") if exact else "holds there" if good else "fails there"
    where = "check" if exact else TABLE
    what = measure or about["measure"]
    return Row(claim, where, what, float(against), None, None, n, float(n), margin, word)


def ledger(figures: StrPath | None = None) -> pd.DataFrame:
    """All rows that figures hold, in the claims' order, with figure, notebook, ``holm`` (of a word
    of evidence, the p-value after Holm's correction over all such rows; the larger of two) and
    ``stands``: whether that is at most 5 %.

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
    holm = _holm(frame)
    return frame.assign(holm=holm, stands=holm <= LEVEL)


def _holm(frame: pd.DataFrame) -> np.ndarray:
    found = np.full(len(frame), np.nan)
    at = np.flatnonzero(frame["word"].isin(WORDS).to_numpy())
    if len(at):
        p = np.array([row or [np.nan] * 3 for row in frame["p"].iloc[at]], dtype=float)
        adjusted = statistics.holm(p)
        for i, (place, claim) in enumerate(zip(at, frame["claim"].iloc[at], strict=True)):
            word, positive = frame["word"].iloc[place], table()[claim]["rule"] == "positive"
            asked = {
                "too small to see here": [1],
                "printed size excluded here": [2],
                "smaller than claimed": [0, 2],
                "smaller here": [0, 1],
            }.get(word, [0] if positive else [1])
            if word in DECIDED:
                found[place] = adjusted[i, asked].max()
    return found


# Drawing --------------------------------------------------------------------------------------


def forest(
    rows: Sequence[Row], titles: Mapping[str, str] | None = None, among: Sequence[Row] = ()
) -> Figure:
    """Rows as intervals in points, with the smallest effect as a tick, and the word at the right.

    Small dots are the losses of a mean (open: those whose gain is taken off), the diamond is their
    median, and the ticks below are the mean without each. The gray bar above is the difference that
    four of five such studies find, a red tick the smallest size that the paper prints. What does
    not stand after Holm's correction ``among`` all rows that were asked together is gray.
    ``titles`` gives claims a few words; rows of one claim stand together.
    """
    among = [*rows, *(row for row in among if row not in rows)]
    stands = _holm(pd.DataFrame([row.facts() for row in among])) <= LEVEL
    order = list(dict.fromkeys(row.claim for row in rows))
    height = 1.0 + 0.24 * (len(rows) + 1.2 * len(order))
    fig = Figure(figsize=(7.2, height), layout="constrained")
    ax = fig.subplots()
    y, drawn, across = 0.0, dict[float, Row](), ax.get_yaxis_transform()
    for claim in order:
        y -= 1
        text = f"{claim} · {(titles or {}).get(claim, table()[claim]['claim'])}"
        ax.text(0.01, y, text, transform=across, weight="bold", va="center", fontsize=8)
        mine = [row for row in rows if row.claim == claim]
        for row in sorted(mine, key=lambda row: CONDITIONS.index(row.condition)):
            y -= 1
            drawn[y] = row
            _draw(ax, y, row, _COLORS[row.word] if stands[among.index(row)] else "0.5")
        y -= 0.2
    ax.axvline(0, color="0.6", lw=1, zorder=0)
    ax.set_yticks(list(drawn), [_ticked(row) for row in drawn.values()], fontsize=8)
    ax.set(ylim=(y - 0.5, -0.3))
    about = "95 % interval; black: the smallest effect; gray bar: found in 4 of 5 studies, alone"
    if any(row.printed is not None for row in rows):
        about += "\nred: the smallest printed size (dots: of each loss)"
    if any(row.parts for row in rows):
        about += "\ndots: each loss" + "; open: against" * any(map(_against, rows))
        about += "; diamond: their median; ticks below: the mean without one loss"
    fig.supxlabel(f"points ({about})", fontsize="small")  # wider than the axes
    ax.grid(axis="y", visible=False)
    return fig


def reason(row: Mapping[str, Any]) -> str:
    """Of a row's facts, why it decides nothing whatever its width is.

    >>> reason({"word": UNDECIDED, "measure": "long minus usual; borrowed recipes: long"})
    'borrowed recipes'
    """
    why = re.search(r"; (unequal search|borrowed recipes)", row["measure"])
    return why[1] if why and row["word"] == UNDECIDED else ""


def placed(condition: str) -> str:
    """A condition with its material, and with what was unequal in it.

    >>> placed("from scratch"), placed("photographs, head")
    ('from scratch, on drawings', 'photographs, head')
    """
    return condition + ", on drawings" * (condition in CONDITIONS[:6]) + unequal(condition)


def unequal(condition: str) -> str:
    """What was not the same for all in a condition, in parentheses: it goes beside its numbers."""
    said = " ({} of {} trainings, 1 of 6 candidates by hand)".format(*TRAINED)
    return said * (condition == WHOLE)


def _ticked(row: Row) -> str:
    return placed(row.condition).replace(" (", "\n(")


def _against(row: Row) -> bool:
    return any(name.endswith(AGAINST) for name in row.parts)


def _draw(ax: Axes, y: float, row: Row, color: str) -> None:
    if row.low is not None and row.high is not None:
        ax.plot([100 * row.low, 100 * row.high], [y, y], color=color, lw=2.5, alpha=0.6)
    ax.plot(100 * row.effect, y, "o", color=color, ms=5)
    for name, part in row.parts.items():
        face = "white" if name.endswith(AGAINST) else "0.2"
        ax.plot(100 * part, y, "o", mfc=face, mec="0.2", mew=0.6, ms=2.5)
        for least in sorted(printed(row.claim, (name,)).values())[:1]:
            ax.plot(100 * least, y, ".", color="#d55e00", ms=3)
    for mean in row.without.values():
        ax.plot([100 * mean] * 2, [y - 0.36, y - 0.2], color="0.2", lw=0.8)
    if row.center is not None:
        ax.plot(100 * row.center[0], y, "D", mfc="white", mec="0.2", ms=4)
    if row.least is not None:
        ax.plot([0, 100 * row.least], [y + 0.32] * 2, color="0.75", lw=1.5, zorder=0)
    for size, tick in ((row.margin, "0.2"), (row.printed, "#d55e00")):
        if size is not None:
            ax.plot([100 * size] * 2, [y - 0.3, y + 0.3], color=tick, lw=1.2)
    word = row.word or "a clock: no word"
    said = [reason(row.facts())]
    if row.failed and row.word != FAILED:
        named = row.failed[0] if len(row.failed) == 1 else f"{len(row.failed)} losses"
        said.append("search " * (not said[0]) + f"failed: {named}")
    word += f"\n({'; '.join(filter(None, said))})" * any(said)
    across = ax.get_yaxis_transform()
    ax.text(
        1.01, y, word, transform=across, va="center", color=color, fontsize=7.5, linespacing=1.1
    )
