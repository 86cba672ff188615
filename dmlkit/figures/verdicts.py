"""The figure that ends every lesson: what papers print beside all that was found here.

``data/verdicts.csv`` has the rows; ``python -m studies.lessons`` makes it from the evidence. A
lesson adds what it trained itself, as a demonstration, which has no word.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from dmlkit import ROOT, statistics
from dmlkit.figures.drawing import RIGHT, WIDTH, WRONG, sample

#: Where the rows of all lessons are.
FILE = ROOT / "data" / "verdicts.csv"
#: What a lesson's own run is: too few trainings, of one recipe, to say more.
LIVE = "this page's run"
_AMBER = "#a05a00"
#: The color of a word by what it begins with; of any other, and of all that does not stand, gray.
_COLORS = {
    "holds": RIGHT, "smaller": "#3388bb", "above 0": "#3388bb", "too small": _AMBER,
    "printed size": _AMBER, "reversed": WRONG, "fails": WRONG,
}  # fmt: skip
_CAPTION = (
    "Every condition of our studies that can answer, beside what papers print. The luck of "
    "searches is counted in all intervals."
)
_GRAY, _FAINT = "0.42", "0.62"
_ROW, _HEAD = 0.215, 0.34  # inches
_HEADING: dict[str, Any] = {
    "weight": "bold", "fontsize": 8.5, "zorder": 5,
    "bbox": {"facecolor": "white", "edgecolor": "none", "pad": 1.2},
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One row of a verdict: an effect in the ``unit`` of its axis, its interval and its word.

    ``kind`` is "printed" (a size that a paper prints), "study" (an own study) or "live".
    """

    of: str  # what is compared: the heading of its rows
    kind: str
    label: str  # where: material and training, or data set
    effect: float
    low: float = math.nan
    high: float = math.nan
    n: str = ""
    word: str = ""
    stands: bool = False  # after Holm's correction
    margin: float = math.nan  # the smallest effect that would matter
    unit: str = "points of Recall@1"
    values: tuple[float, ...] = field(default=(), repr=False)  # of each live training


def findings(lesson: str, file: Path = FILE) -> list[Finding]:
    """What the evidence has for a lesson, in the order in which it is shown; maybe nothing.

    >>> findings("09_margins")[0].kind
    'printed'
    """
    frame = pd.read_csv(file, dtype={"n": str}, keep_default_na=False, na_values={"low": "",
                        "high": "", "margin": "", "effect": ""})  # fmt: skip
    mine = frame[frame["lesson"] == lesson].drop(columns="lesson")
    return [Finding(**row) for row in mine.to_dict("records")]


def here(of: str, label: str, values: ArrayLike, unit: str = Finding.unit) -> Finding:
    """What a lesson's own trainings found: differences (n,), one for each seed.

    >>> here("SEC", "photographs, 200 steps", [1.0, 2.0, 3.0]).n
    '3 seeds'
    """
    mean, low, high, n = statistics.interval(np.asarray(values, float))
    seeds = tuple(np.asarray(values, float).tolist())
    said = f"{n:.0f} seed" + "s" * (n > 1)
    return Finding(of, "live", label, mean, low, high, said, LIVE, unit=unit, values=seeds)


def verdict(
    lesson: str,
    live: Mapping[str, Mapping[str, ArrayLike]] | None = None,
    unit: str = Finding.unit,
    file: Path = FILE,
) -> tuple[Figure, dict[str, Any], str, str]:
    """The verdict of a lesson: figure, numbers, alt text and caption, for ``figures.save``.

    ``live`` holds what the lesson itself trained: {heading: {label: differences (n,)}}, in the
    ``unit``. Its rows stand below those of the studies that have the same heading.

    Raises ValueError where there is nothing to show, or rows are of several units.

    >>> _, drawn, *_ = verdict("09_margins", {"SEC": {"photographs": [1.0, 2.0]}})
    >>> drawn["SEC"]["photographs"]["values"]
    [1.0, 2.0]
    """
    rows = findings(lesson, file)
    for of, mine in (live or {}).items():
        rows += [here(of, label, values, unit) for label, values in mine.items()]
    if not rows:
        raise ValueError(f"nothing is known for {lesson!r}: give what it trained as live")
    if len(units := sorted({row.unit for row in rows})) > 1:
        raise ValueError(f"one verdict has one unit, but these are {', '.join(units)}")
    groups = {row.of: [each for each in rows if each.of == row.of] for row in rows}
    numbers = {of: _numbers(mine) for of, mine in groups.items()}
    return _draw(groups, units[0]), numbers, _alt(groups), _CAPTION


def _alt(groups: Mapping[str, Sequence[Finding]]) -> str:
    """Every row in words."""
    said = [
        f"{of}: "
        + ", ".join(
            f"{row.label} {_signed(row.effect)}" + f" ({row.word})" * bool(row.word) for row in rows
        )
        for of, rows in groups.items()
    ]
    return "; ".join(said) + "."


def _numbers(rows: Sequence[Finding]) -> dict[str, Any]:
    about = ("kind", "effect", "low", "high", "n", "word", "stands")
    return {
        row.label: sample(row.values)
        if row.kind == "live"
        else {k: None if v != v else v for k, v in asdict(row).items() if k in about}
        for row in rows
    }


# Drawing --------------------------------------------------------------------------------------


def _draw(groups: Mapping[str, Sequence[Finding]], unit: str) -> Figure:
    lines = {of: _lines(rows) for of, rows in groups.items()}
    height = sum(_HEAD + _ROW * len(each) for each in lines.values())
    fig = Figure(figsize=(WIDTH, height + 0.72))
    fig.set_layout_engine("none")  # that of all figures cannot place these axes
    left, right = 0.385, 0.755  # of the width
    axes = fig.add_axes((left, 0.6 / (height + 0.72), right - left, height / (height + 0.72)))
    axes.set(xlim=_reach(groups), ylim=(height, 0), yticks=[])
    axes.axvline(0, color="0.25", lw=1, zorder=1)
    y, across = 0.0, axes.get_yaxis_transform()
    for of, mine in lines.items():
        y += _HEAD
        place = (0.005 - left) / (right - left)
        axes.text(place, y - 0.08, of, transform=across, va="center", **_HEADING)
        _smallest(axes, groups[of], y + 0.02, _ROW * len(mine))
        for row in mine:
            y += _ROW
            _row(axes, y - _ROW / 2 + 0.02, row)
    every = [row for rows in groups.values() for row in rows]
    about = f"gain in {unit}; lines: 95 % intervals"
    about += "; shaded: too small to matter" * any(row.margin > 0 for row in every)
    if any(row.kind == "study" for row in every):
        about += "\na gray word does not stand after the correction for many tests"
    axes.set_xlabel(about, fontsize=8, va="top")
    axes.xaxis.set_label_coords((0.5 - left) / (right - left), -0.25 / height)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(visible=False, axis="y")
    axes.spines[["left", "top", "right"]].set_visible(False)
    return fig


def _lines(rows: Sequence[Finding]) -> list[list[Finding]]:
    """Printed sizes share one line; every other row has its own."""
    printed = [row for row in rows if row.kind == "printed"]
    return [printed] * bool(printed) + [[row] for row in rows if row.kind != "printed"]


def _reach(groups: Mapping[str, Sequence[Finding]]) -> tuple[float, float]:
    """The ends of the axis: all effects, and the intervals of studies; a live one may be cut."""
    every = [row for rows in groups.values() for row in rows]
    ends = [row.effect for row in every] + [row.margin for row in every]
    kinds = {"study"} if any(row.kind == "study" for row in every) else {"live"}
    ends += [end for row in every if row.kind in kinds for end in (row.low, row.high)]
    ends += [value for row in every for value in row.values]
    known = [0.0, *(end for end in ends if math.isfinite(end))]
    pad = 0.06 * (max(known) - min(known) or 1.0)
    return min(known) - pad, max(known) + pad


def _smallest(axes: Axes, rows: Sequence[Finding], top: float, tall: float) -> None:
    margin = max((row.margin for row in rows if math.isfinite(row.margin)), default=0.0)
    axes.barh(top, 2 * margin, tall, -margin, align="edge", color="0.5", alpha=0.16, lw=0, zorder=0)


def _row(axes: Axes, y: float, rows: Sequence[Finding]) -> None:
    row, across = rows[0], axes.get_yaxis_transform()
    color = _color(row)
    style: dict[str, Any] = {"transform": across, "va": "center", "fontsize": 8}
    if row.kind == "printed":
        sizes = [each.effect for each in rows]
        said = ", ".join(f"{each.label} {_signed(each.effect)}" for each in rows)
        if len(rows) > 2:
            ends = f"{_signed(min(sizes))} to {_signed(max(sizes))}"
            said = f"{ends}, {len(rows)} data sets"
        axes.plot(sizes, [y] * len(rows), "D", mfc="white", mec="black", ms=5, zorder=4)
        axes.text(-0.03, y, "printed by " + row.n, ha="right", **style)
        axes.text(1.03, y, said, **style)
        return
    if math.isfinite(row.low):
        low, high = axes.get_xlim()
        shown = [max(row.low, low), min(row.high, high)]
        look: dict[str, Any] = {"lw": 1.2, "ls": (0, (3, 1.5))} if row.values else {"lw": 2.6}
        axes.plot(shown, [y, y], color=color, alpha=0.55, solid_capstyle="butt", zorder=2, **look)
        cut = [(low, "<")] * bool(row.low < low) + [(high, ">")] * bool(row.high > high)
        for end, mark in cut:
            axes.plot(end, y, mark, color=color, ms=4, clip_on=False)
    axes.plot(row.values, [y] * len(row.values), ".", color=_FAINT, ms=4, zorder=3)
    if math.isfinite(row.effect):
        face = "white" if row.values else color
        axes.plot(row.effect, y, "o", mfc=face, mec=color, ms=5, zorder=4)
    axes.text(-0.03, y, f"{row.label}, {row.n}" if row.n else row.label, ha="right", **style)
    axes.text(1.03, y, row.word, color=color, **style)


def _signed(size: float) -> str:
    return f"{size:+.1f}".replace("-", "−")


def _color(row: Finding) -> str:
    known = [color for start, color in _COLORS.items() if row.word.startswith(start)]
    return known[0] if known and row.stands else _GRAY
