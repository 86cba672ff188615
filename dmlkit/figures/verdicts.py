"""The figure that ends every lesson: what papers print beside all that was found here.

``data/verdicts.csv`` has the rows; ``python -m studies.lessons`` makes it from the evidence. A
lesson adds what it trained itself, as a demonstration, which has no word. A comparison is a panel,
a condition a row; panels that share conditions stand side by side.
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
from dmlkit.figures.finding import COLORS, FALLS, FILE, UNTRAINED, Finding, findings, here

_INK = "0.25"
#: How a row is called on the picture where its key is longer, or of the workshop.
_SAID = {"drawings, searched twice": "drawings, second search"}
#: Words that decide nothing: the picture leaves them out, its numbers and intervals say as much.
_SILENT = ("cannot be decided here", "not separated", "open", "undecided")
#: Of the drawing, in inches.
_LEFT, _GAP, _LINE, _HEAD, _AXIS, _FOOT, _STRIP = 1.62, 0.16, 0.118, 0.125, 0.34, 0.135, 0.15


def verdict(
    lesson: str,
    live: Mapping[str, Mapping[str, ArrayLike]] | None = None,
    unit: str = Finding.unit,
    file: Path = FILE,
    each: str = "repetition",
) -> tuple[Figure, dict[str, Any], str, str]:
    """The verdict of a lesson: figure, numbers, alt text and caption, for ``figures.save``.

    ``live`` holds what the lesson itself found: {heading: {label: differences (n,)}}, in the
    ``unit``, one for ``each`` repetition, or product. Its rows stand below those of the studies
    that have the same heading.

    Raises ValueError where there is nothing to show, or rows are of several units.

    >>> _, drawn, *_ = verdict("09_margins", {"SEC": {"photographs": [1.0, 2.0]}})
    >>> drawn["SEC"]["photographs"]["values"]
    [1.0, 2.0]
    """
    rows = findings(lesson, file)
    for of, mine in (live or {}).items():
        rows += [here(of, label, values, unit, each) for label, values in mine.items()]
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

#: What stands in one row of a panel: a finding, or all sizes that a paper prints.
Cell = list[Finding]
#: A comparison, by the names of its rows.
Cells = dict[str, Cell]


@dataclass(frozen=True)
class _Block:
    """Panels side by side, each ``wide`` inches, by what they compare."""

    panels: Mapping[str, Cells]
    wide: float

    @cached_property
    def names(self) -> list[str]:
        """The rows, each after the one that it follows in its panel."""
        names: list[str] = []
        for cells in self.panels.values():
            at = 0
            for name in cells:
                if name not in names:
                    names.insert(at, name)
                at = names.index(name) + 1
        return names

    def repeated(self, name: str) -> str:
        """What was repeated in a row: that of its first cell."""
        first = next(cells[name][0] for cells in self.panels.values() if name in cells)
        return first.n * (first.kind != "printed")

    def written(self, name: str, cell: Cell) -> tuple[list[str], list[str]]:
        """The lines above an interval: its word, and in small what else must be known of it."""
        row = cell[0]
        if row.kind != "printed":
            notes = [row.n * (row.n != self.repeated(name)), row.notes]
            word, small = row.said * (row.word not in _SILENT), "; ".join(filter(None, notes))
            said = f"{_signed(row.effect)}  {word}"
            return _wrap(said, 19 * self.wide), _wrap(small, 21 * self.wide)
        said = ", ".join(f"{each.label} {_signed(each.effect)}" for each in cell)
        if len(cell) > 3:
            sizes = [each.effect for each in cell]
            said = f"{_signed(min(sizes))} to {_signed(max(sizes))}, {len(cell)} sizes"
        return _wrap(said, 19 * self.wide), []

    @cached_property
    def rows(self) -> list[float]:
        """The height of each row."""
        return [
            max(
                _LINE * sum(map(len, self.written(name, cells[name])))
                for cells in self.panels.values()
                if name in cells
            )
            + _STRIP
            + 0.03
            for name in self.names
        ]

    @cached_property
    def head(self) -> float:
        """The height of the headings."""
        return _HEAD * max(len(_wrap(of, 13.5 * self.wide)) for of in self.panels) + 0.16

    def reach(self, of: str) -> tuple[float, float]:
        """The ends of a panel: those of the block, if none is four times as wide as another."""
        ends = {name: _ends(cells) for name, cells in self.panels.items()}
        widths = [high - low for low, high in ends.values()]
        shared = max(widths) <= 4 * min(widths)
        lows, highs = zip(*(ends.values() if shared else [ends[of]]), strict=True)
        pad = 0.06 * (max(highs) - min(lows) or 1.0)
        return min(lows) - pad, max(highs) + pad


def _blocks(groups: Mapping[str, Sequence[Finding]]) -> list[_Block]:
    """Panels stand side by side, three at most, if they have half of their rows in common."""
    parts: list[dict[str, Cells]] = []
    for of, rows in groups.items():
        cells: Cells = {}
        for row in sorted(rows, key=lambda row: row.kind != "printed"):
            name = f"printed by {row.n}" if row.kind == "printed" else row.label
            cells.setdefault(name, []).append(row)
        first = next(iter(parts[-1].values())) if parts else {}
        mine, its = _conditions(cells), _conditions(first)
        alike = 2 * len(mine & its) >= len(mine | its) if mine else {*cells} <= {*first}
        if first and alike and len(parts[-1]) < 3:
            parts[-1][of] = cells
        else:
            parts.append({of: cells})
    columns = max(map(len, parts))
    wide = (WIDTH - _LEFT - 0.1 - _GAP * (columns - 1)) / columns
    return [_Block(part, wide) for part in parts]


def _conditions(cells: Mapping[str, Cell]) -> set[str]:
    return {name for name, cell in cells.items() if cell[0].kind != "live"}


def _draw(groups: Mapping[str, Sequence[Finding]]) -> Figure:
    blocks = _blocks(groups)
    foot = _footer(blocks)
    height = sum(block.head + sum(block.rows) + _AXIS for block in blocks) + _FOOT * len(foot)
    fig = Figure(figsize=(WIDTH, height))
    fig.set_layout_engine("none")  # that of all figures cannot place these axes
    top = height
    for block in blocks:
        tall = sum(block.rows)
        top -= block.head + tall
        for k, (of, cells) in enumerate(block.panels.items()):
            left = _LEFT + k * (block.wide + _GAP)
            axes = fig.add_axes(
                (left / WIDTH, top / height, block.wide / WIDTH, tall / height),
                xlim=block.reach(of), ylim=(tall, 0), yticks=[],
            )  # fmt: skip
            _panel(axes, of, cells, block)
            if not k:
                _places(axes, block)
        top -= _AXIS
    for line, said in enumerate(foot):
        fig.text(0.01, (top - _FOOT * line) / height, said, fontsize=7.5, va="top")
    return fig


def _footer(blocks: Sequence[_Block]) -> list[str]:
    """What the marks and words mean, of those that are there."""
    panels = [(block, cells) for block in blocks for cells in block.panels.values()]
    rows = [row for _, cells in panels for cell in cells.values() for row in cell]
    studies = [row for row in rows if row.kind == "study"]
    told = {
        f"Gain in {rows[0].unit}": True,
        "Lines: 95 % intervals": any(math.isfinite(row.low) for row in rows),
        "Shaded: too small to matter": any(row.margin > 0 for row in rows),
        "Diamonds: printed sizes": any(row.kind == "printed" for row in rows),
        "Small dots: trainings of this page": any(row.values for row in rows),
        "Empty: not tried": any(len(cells) < len(block.names) for block, cells in panels),
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
        "Worth: repetitions on the same test classes count as fewer": any(
            "worth" in row.n for row in studies
        ),
    }
    return _wrap(". ".join(said for said, there in told.items() if there) + ".", 18 * WIDTH)


def _ends(cells: Mapping[str, Cell]) -> tuple[float, float]:
    """All effects and the intervals of studies; this page's trainings, unless they would make the
    panel twice as wide."""
    every = [row for cell in cells.values() for row in cell if row.word != UNTRAINED]
    studied = [row for row in every if row.kind != "live"]
    ends = {0.0, *(end for row in studied for end in (row.low, row.high, row.effect, row.margin))}
    known = {end for end in ends if math.isfinite(end)}
    live = known.union(*(row.values for row in every))
    if not studied:
        live |= {end for row in every for end in (row.low, row.high) if math.isfinite(end)}
    if not studied or max(live) - min(live) <= 2 * (max(known) - min(known)):
        known = live
    return min(known), max(known)


def _panel(axes: Axes, of: str, cells: Mapping[str, Cell], block: _Block) -> None:
    axes.text(0, -0.07, "\n".join(_wrap(of, 13.5 * block.wide)), fontsize=8.5, weight="bold",
              transform=axes.get_yaxis_transform(), linespacing=1.05)  # fmt: skip
    bottom = 0.0
    for name, tall in zip(block.names, block.rows, strict=True):
        bottom += tall
        axes.axhline(bottom, color="0.88", lw=0.6, zorder=0)
        if name in cells:
            said, small = block.written(name, cells[name])
            _write(axes, bottom - tall, said, small, _color(cells[name][0]))
            _strip(axes, bottom, cells[name])
    axes.xaxis.set_major_locator(MaxNLocator(4, steps=[1, 2, 5, 10]))
    axes.tick_params(axis="x", labelsize=7.5)
    axes.grid(visible=False)
    axes.spines[["left", "top", "right"]].set_visible(False)


def _write(
    axes: Axes, top: float, said: Sequence[str], small: Sequence[str], color: str, x: float = 0.01
) -> None:
    for k, line in enumerate([*said, *small]):
        size, ink = (7.2, color) if k < len(said) else (6.6, _INK)
        axes.text(x, top + 0.02 + _LINE * k, line, transform=axes.get_yaxis_transform(),
                  va="top", fontsize=size, color=ink, zorder=5)  # fmt: skip


def _places(axes: Axes, block: _Block) -> None:
    """The names of the rows, left of the first panel."""
    bottom, x = 0.0, (0.06 - _LEFT) / block.wide
    for name, tall in zip(block.names, block.rows, strict=True):
        said = _wrap(_SAID.get(name, name), 29)
        _write(axes, bottom, said, _wrap(block.repeated(name), 34), "black", x)
        bottom += tall


def _strip(axes: Axes, bottom: float, cell: Cell) -> None:
    """The marks of a row, with its zero and the effects that are too small to matter."""
    row, color, y = cell[0], _color(cell[0]), bottom - _STRIP / 2
    axes.plot([0, 0], [bottom - _STRIP, bottom], color=_INK, lw=1, zorder=1)
    margin = row.margin if row.margin > 0 else 0.0
    axes.barh(y, 2 * margin, _STRIP, -margin, align="center", color="0.86", lw=0, zorder=0)
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
