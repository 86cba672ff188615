"""The figure that ends every lesson: what papers print beside all that was found here.

``data/verdicts.csv`` has the rows; ``python -m studies.lessons`` makes it from the evidence. A
lesson adds what it trained itself, as a demonstration, which has no word. A comparison has a
heading, a condition a row: its effect and interval, drawn and in numbers, and its word.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from dmlkit.figures.drawing import WIDTH, sample
from dmlkit.figures.finding import COLORS, FALLS, FILE, LIVE, UNTRAINED, Finding, findings, here

_INK = "0.25"
#: How a row is called on the picture where its key is longer, or of the workshop.
_SAID = {"drawings, searched twice": "drawings, second search"}
#: Words that decide nothing: the picture leaves them out, its numbers and intervals say as much.
_SILENT = ("cannot be decided here", "not separated", "open", "undecided")
#: Of the drawing, in inches: where marks begin and end, and words begin; heights.
_LEFT, _RIGHT, _WORD = 2.45, 3.95, 5.24
_HEAD, _LINE, _AXIS, _FOOT = 0.26, 0.125, 0.34, 0.135


def verdict(
    lesson: str,
    live: Mapping[str, Mapping[str, ArrayLike]] | None = None,
    unit: str = Finding.unit,
    file: Path = FILE,
    each: str = "repetition",
    overlap: float = 0.0,
    run: str = LIVE,
) -> tuple[Figure, dict[str, Any], str, str]:
    """The verdict of a lesson: figure, numbers, alt text and caption, for ``figures.save``.

    ``live`` holds what the lesson itself found: {heading: {label: differences (n,)}}, in the
    ``unit``, one for ``each`` repetition, or product. Its rows stand below those of the studies
    that have the same heading. An ``overlap`` widens their intervals, see ``statistics.interval``;
    ``run`` is what they are called, "recorded" where another run of the page made them.

    Raises ValueError where there is nothing to show, or rows are of several units.

    >>> _, drawn, *_ = verdict("09_margins", {"SEC": {"photographs": [1.0, 2.0]}})
    >>> drawn["SEC"]["photographs"]["values"]
    [1.0, 2.0]
    """
    rows = findings(lesson, file)
    for of, mine in (live or {}).items():
        rows += [
            here(of, label, values, unit, each, overlap, run) for label, values in mine.items()
        ]
    if not rows:
        raise ValueError(f"nothing is known for {lesson!r}: give what it trained as live")
    if len(units := sorted({row.unit for row in rows})) > 1:
        raise ValueError(f"one verdict has one unit, but these are {', '.join(units)}")
    groups = {row.of: [each for each in rows if each.of == row.of] for row in rows}
    numbers = {of: _numbers(mine) for of, mine in groups.items()}
    return _draw(groups), numbers, _alt(groups), _caption(rows)


def _caption(rows: Sequence[Finding]) -> str:
    """What the picture has, and nothing that it has not."""
    kinds = {row.kind for row in rows}
    studies = "Conditions of our studies" * ("study" in kinds)
    shown = [studies, "this page's run" * ("live" in kinds)]
    said = " and ".join(filter(None, shown))
    said += ", beside what papers print" * ("printed" in kinds)
    if studies:
        said += ". Intervals of studies count the luck of searches, where recipes were searched"
        each = "repetitions" if any(row.values for row in rows) else "products"
        said += f"; those of this page's run count its {each} alone" * ("live" in kinds)
    return said[:1].upper() + said[1:] + "."


def _alt(groups: Mapping[str, Sequence[Finding]]) -> str:
    """Every row in words."""
    said = [f"{of}: " + ", ".join(map(_in_words, rows)) for of, rows in groups.items()]
    return "; ".join(said) + "."


def _in_words(row: Finding) -> str:
    about = "; ".join(filter(None, [row.said, row.notes]))
    return f"{_SAID.get(row.label, row.label)} {_signed(row.effect)}" + f" ({about})" * bool(about)


def _numbers(rows: Sequence[Finding]) -> dict[str, Any]:
    about = ("kind", "effect", "low", "high", "n", "word", "planned", "stands")
    return {
        row.label: sample(row.values)
        if row.values
        else {k: None if v != v else v for k, v in asdict(row).items() if k in about}
        | (sample([row.effect]) if row.kind == "live" else {})  # it was trained: another machine's
        for row in rows
    }


# Drawing --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """What stands in one row: a finding, or all sizes that a source prints."""

    cell: Sequence[Finding]

    @cached_property
    def names(self) -> list[str]:
        """Where it was found, or who prints it."""
        first = self.cell[0]
        if first.kind == "printed":
            return [f"printed by {first.n}"]
        return _wrap(_SAID.get(first.label, first.label), 32)

    @cached_property
    def repeated(self) -> str:
        """What was repeated, in small: behind the name where it fits, else below it."""
        return self.cell[0].n * (self.cell[0].kind != "printed")

    @cached_property
    def below(self) -> bool:
        return len(self.names) > 1 or len(self.names[0] + self.repeated) > 44

    @cached_property
    def size(self) -> str:
        """The effect and its interval, or printed sizes."""
        sizes = [each.effect for each in self.cell]
        first = self.cell[0]
        if first.kind == "printed":
            said = ", ".join(f"{each.label} {_signed(each.effect)}" for each in self.cell)
            ends = f"{_signed(min(sizes))} to {_signed(max(sizes))}, {len(sizes)} sizes"
            return said if len(said) < 40 else ends
        ends = f"  [{first.low:.1f}, {first.high:.1f}]".replace("-", "−")
        return _signed(first.effect) + ends * math.isfinite(first.low)

    @cached_property
    def words(self) -> list[str]:
        """Its word, and what else must be known of it."""
        first = self.cell[0]
        said = first.said * (first.word not in _SILENT and first.kind != "printed")
        return _wrap("; ".join(filter(None, [said, first.notes])), 25)

    @cached_property
    def tall(self) -> float:
        lines = max(len(self.names) + (self.below and bool(self.repeated)), len(self.words))
        return _LINE * lines + 0.05


def _rows(findings: Sequence[Finding]) -> list[_Row]:
    """Printed sizes first, those of one source together."""
    cells: dict[str, list[Finding]] = {}
    for row in sorted(findings, key=lambda row: row.kind != "printed"):
        cells.setdefault(row.n if row.kind == "printed" else row.label, []).append(row)
    return list(map(_Row, cells.values()))


def _draw(groups: Mapping[str, Sequence[Finding]]) -> Figure:
    """Comparisons one below the other, on one axis if none reaches four times as far as another."""
    rows = {of: _rows(mine) for of, mine in groups.items()}
    widths = [high - low for low, high in map(_ends, rows.values())]
    shared = max(widths) <= 4 * min(widths)
    panels = [rows] if shared else [{of: mine} for of, mine in rows.items()]
    talls = [sum(_HEAD + sum(row.tall for row in r) for r in panel.values()) for panel in panels]
    foot = _footer([row for mine in groups.values() for row in mine])
    top = height = sum(talls) + _AXIS * len(panels) + _FOOT * len(foot)
    fig = Figure(figsize=(WIDTH, height))
    fig.set_layout_engine("none")  # that of all figures cannot place these axes
    for panel, tall in zip(panels, talls, strict=True):
        top -= tall
        lows, highs = zip(*map(_ends, panel.values()), strict=True)
        pad = 0.06 * (max(highs) - min(lows) or 1.0)
        axes = fig.add_axes(
            (_LEFT / WIDTH, top / height, (_RIGHT - _LEFT) / WIDTH, tall / height),
            xlim=(min(lows) - pad, max(highs) + pad), ylim=(tall, 0), yticks=[],
        )  # fmt: skip
        _panel(axes, panel)
        top -= _AXIS
    for line, said in enumerate(foot):
        fig.text(0.01, (top - _FOOT * line) / height, said, fontsize=7.5, va="top")
    return fig


def _footer(rows: Sequence[Finding]) -> list[str]:
    """What the marks and words mean, of those that are there."""
    studies = [row for row in rows if row.kind == "study"]
    told = {
        f"Gain in {rows[0].unit}": True,
        "Lines: 95 % intervals": any(math.isfinite(row.low) for row in rows),
        "Shaded: too small to matter": any(row.margin > 0 for row in rows),
        "Diamonds: printed sizes": any(row.kind == "printed" for row in rows),
        "Small dots: single repetitions": any(row.values for row in rows),
        "Hollow circles: exploratory, not planned": not all(row.planned for row in studies),
        "Colored words stand in the correction for many tests": any(
            row.decides and row.stands for row in studies
        ),
        f"{FALLS.capitalize()} for many tests: its word may be chance": any(
            row.decides and not row.stands for row in studies
        ),
        "Without a word: not decided": any(row.word in _SILENT for row in studies),
        "Search failed: it found no good settings": any(
            row.word == "search failed" for row in studies
        ),
        "As … new: repetitions on the same test classes tell as much as so many new ones": any(
            " new" in row.n for row in studies
        ),
    }
    return _wrap(". ".join(said for said, there in told.items() if there) + ".", 18 * WIDTH)


def _ends(rows: Sequence[_Row]) -> tuple[float, float]:
    """All effects and the intervals of studies; this page's trainings, unless they would make the
    panel twice as wide."""
    every = [row for each in rows for row in each.cell if row.word != UNTRAINED]
    studied = [row for row in every if row.kind != "live"]
    ends = {0.0, *(end for row in studied for end in (row.low, row.high, row.effect, row.margin))}
    known = {end for end in ends if math.isfinite(end)}
    live = known.union(*(row.values for row in every))
    if not studied:
        live |= {end for row in every for end in (row.low, row.high) if math.isfinite(end)}
    if not studied or max(live) - min(live) <= 2 * (max(known) - min(known)):
        known = live
    return min(known), max(known)


def _panel(axes: Axes, panel: Mapping[str, Sequence[_Row]]) -> None:
    y = 0.0
    for of, rows in panel.items():
        y += _HEAD
        _write(axes, 0.06, y - 0.04, of, va="bottom", fontsize=8.5, weight="bold")
        axes.plot([0, 0], [y, y + sum(row.tall for row in rows)], color=_INK, lw=1, zorder=1)
        for row in rows:
            color = _color(row.cell[0])
            for k, name in enumerate(row.names):
                _write(axes, 0.06, y + 0.025 + _LINE * k, name, fontsize=7.2)
            x, side = (0.06, "left") if row.below else (_LEFT - 0.08, "right")
            below = _LINE * len(row.names) * row.below
            _write(axes, x, y + 0.025 + below, row.repeated, ha=side, fontsize=6.6, color=_INK)
            _write(axes, _RIGHT + 0.08, y + 0.025, row.size, fontsize=7.2, color=color)
            _write(axes, _WORD, y + 0.025, "\n".join(row.words), fontsize=6.9, color=color)
            _strip(axes, y, row.cell)
            y += row.tall
            axes.axhline(y, color="0.9", lw=0.6, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.tick_params(axis="x", labelsize=7.5)
    axes.grid(visible=False)
    axes.spines[["left", "top", "right"]].set_visible(False)


def _write(axes: Axes, x: float, y: float, text: str, va: str = "top", **look: Any) -> None:
    """A text so many inches from the figure's left, and y inches below the panel's top."""
    right = (x - _LEFT) / (_RIGHT - _LEFT)
    axes.text(right, y, text, va=va, transform=axes.get_yaxis_transform(), linespacing=1.05, **look)


def _strip(axes: Axes, top: float, cell: Sequence[Finding]) -> None:
    """The marks of a row, with its zero and the effects that are too small to matter."""
    row, color, y = cell[0], _color(cell[0]), top + _LINE / 2 + 0.025
    margin = row.margin if row.margin > 0 else 0.0
    axes.barh(y, 2 * margin, _LINE, -margin, align="center", color="0.86", lw=0, zorder=0)
    low, high = axes.get_xlim()
    style: dict[str, Any] = {"clip_on": False, "zorder": 4}
    if row.kind == "printed":
        sizes = [each.effect for each in cell]
        axes.plot(sizes, [y] * len(cell), "D", mfc="white", mec="black", ms=4.5, **style)
        return
    if math.isfinite(row.low):
        shown = [max(row.low, low), min(row.high, high)]
        look: dict[str, Any] = {"lw": 1.2, "ls": (0, (3, 1.5))} if row.values else {"lw": 2.4}
        axes.plot(shown, [y, y], color=color, alpha=0.55, solid_capstyle="butt", zorder=2, **look)
    for end, mark, cut in (
        (low, "<", row.low < low or row.effect < low),
        (high, ">", row.high > high or row.effect > high),
    ):
        if cut:
            axes.plot(end, y, mark, color=color, ms=4, **style)
    axes.plot(row.values, [y] * len(row.values), ".", color="0.55", ms=4, zorder=3)
    if low <= row.effect <= high:
        shape = "|" if row.values else "o"
        face = color if row.planned else "white"
        axes.plot(row.effect, y, shape, mfc=face, mec=color, ms=5, mew=1.1, **style)


def _wrap(text: str, wide: float) -> list[str]:
    return textwrap.wrap(text, int(wide), break_on_hyphens=False)


def _signed(size: float) -> str:
    return "0.0" if abs(size) < 0.05 else f"{size:+.1f}".replace("-", "−")


def _color(row: Finding) -> str:
    known = [color for start, color in COLORS.items() if row.word.startswith(start)]
    return known[0] if known and row.stands else _INK
