"""The last figure of a lesson: what papers print, and what every study of ours says of it."""

from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmlkit import ROOT
from dmlkit.figures.drawing import RIGHT, WIDTH, WRONG

#: In data/evidence; ``python -m studies.verdicts`` makes it.
TABLE = "verdicts.csv"
_INK = {"ahead": RIGHT, "holds here": RIGHT, "behind": WRONG, "reversed here": WRONG}
_CONDITIONS = {
    "from scratch": "drawings, from scratch",
    "from scratch, searched twice": "the same, searched twice",
    "trained longer": "drawings, trained longer",
    "small batches": "drawings, small batches",
    "fine-tuned": "drawings, fine-tuned",
    "photographs, head": "photographs, heads",
    "photographs, fine-tuned": "photographs, whole network",
}


@cache
def _rows() -> pd.DataFrame:
    return pd.read_csv(ROOT / "data" / "evidence" / TABLE)


def verdict(lesson: str) -> tuple[Figure, dict[str, Any], str, str]:
    """What the evidence says to a lesson: figure, numbers, alt text and caption, to be saved.

    One row for each question and condition: the effect in points of Recall@1 with its 95 %
    interval, and a word. A tick is the smallest size that the paper's own table prints.

    Raises ValueError for a lesson without a row.

    >>> fig, numbers, alt, caption = verdict("10_memory")
    >>> list(numbers)
    ['memory − none (contrastive)']
    """
    rows = _rows()[_rows()["lesson"] == lesson]
    if not len(rows):
        raise ValueError(f"data/evidence/{TABLE} has no row for lesson {lesson!r}")
    questions = list(dict.fromkeys(rows["what"]))
    height = 0.7 + 0.27 * (len(rows) + 1.25 * len(questions))
    fig, axes = plt.subplots(figsize=(WIDTH, height))
    numbers: dict[str, Any] = {}
    y, ticks = 0.0, {}
    for what in questions:
        mine = rows[rows["what"] == what]
        y -= 1.1
        axes.text(0, y, what, transform=axes.get_yaxis_transform(), weight="bold", va="center")
        for row in mine.itertuples():
            y -= 1
            ticks[y] = _CONDITIONS.get(str(row.condition), str(row.condition))
            _draw(axes, y, row)
        kept = ["effect", "low", "high", "word"]
        numbers[what] = {row["condition"]: row[kept].to_dict() for _, row in mine.iterrows()}
        y -= 0.15
    axes.axvline(0, color="0.5", lw=1, zorder=0)
    axes.set_yticks(list(ticks), list(ticks.values()))
    axes.set(ylim=(y - 0.6, -0.4), xlabel="points of Recall@1")
    axes.grid(False, axis="y")
    return fig, numbers, _alt(rows), _caption(rows)


def _draw(axes: Axes, y: float, row: Any) -> None:
    effect, low, high, word = (getattr(row, key) for key in ("effect", "low", "high", "word"))
    stands = row.stands in (True, "True") or pd.isna(row.claim)
    ink = _INK.get(word, "0.35") if stands else "0.35"
    if pd.notna(low):
        axes.plot([low, high], [y, y], color=ink, lw=2.5, alpha=0.55, solid_capstyle="butt")
    axes.plot(effect, y, "o", color=ink, ms=5)
    if pd.notna(row.printed):
        axes.plot([row.printed] * 2, [y - 0.35, y + 0.35], color=WRONG, lw=2)
    said = f"{effect:+.1f}  {word}"
    axes.text(1.02, y, said, transform=axes.get_yaxis_transform(), va="center", color=ink)


def _alt(rows: pd.DataFrame) -> str:
    said = [f"{row.what}, {row.condition}: {row.word}" for row in rows.itertuples()]
    return "Intervals by condition. " + "; ".join(said) + "."


def _caption(rows: pd.DataFrame) -> str:
    ticks = " Red ticks: the smallest size that the paper's own table prints."
    return (
        "Every condition of our studies that can answer, recipes searched in each: effect and 95 % "
        "interval, the luck of searches counted, not corrected for their number."
        + ticks
        * bool(rows["printed"].notna().any())
    )
