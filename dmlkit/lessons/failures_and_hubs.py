"""What lesson 23 draws."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Polygon, Rectangle
from numpy.typing import NDArray

from dmlkit import figures
from dmlkit.figures import RIGHT, WRONG

Numbers = NDArray[Any]
#: A color for each kind of failure, by its letter.
INK = {"L": "#0072b2", "S": "#009e73", "O": "#e69f00", "T": "#cc79a7", "W": "#d55e00"}


def tile(
    axes: Axes, picture: Any, name: str, wrong: bool = False, mark: str = "", wide: int = 16
) -> None:
    """One photograph with its product's name below; a wrong answer has a frame."""
    axes.imshow(picture.permute(1, 2, 0).numpy(), interpolation="nearest")  # a smaller file
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.set_xlabel(textwrap.fill(name, wide), fontsize=8, labelpad=3)
    axes.spines[:].set(visible=wrong, color=WRONG, linewidth=2.5)
    box = {"fc": "white", "ec": "none", "pad": 1.5, "alpha": 0.9}
    axes.text(0.05, 0.95, mark, bbox=box if mark else None, ha="left", va="top",
              fontweight="bold", transform=axes.transAxes)  # fmt: skip


def failures(pictures: Any, names: Sequence[str], asked: Numbers, answers: Numbers) -> Figure:
    """Nine queries, each beside its wrong answer."""
    widths = [1, 1, 0.08, 1, 1, 0.08, 1, 1]
    fig, panels = plt.subplots(3, 8, figsize=(6.5, 4.1), width_ratios=widths)
    for axes in panels[:, [2, 5]].flat:
        axes.set_axis_off()
    pairs = panels[:, [0, 1, 3, 4, 6, 7]].reshape(9, 2)
    for number, (i, j, (left, right)) in enumerate(zip(asked, answers, pairs, strict=True), 1):
        tile(left, pictures[np.array([i])][0], names[i], mark=str(number))
        tile(right, pictures[np.array([j])][0], names[j], wrong=True)
    return fig


def hubs(pictures: Any, names: Sequence[str], hubs: Numbers, took: Sequence[Numbers]) -> Figure:
    """Two photographs of the gallery, and six queries that each took."""
    fig, panels = plt.subplots(2, 7, figsize=(6.5, 2.6), width_ratios=[1.25, *6 * [1.0]])
    for hub, who, row in zip(hubs, took, panels, strict=True):
        said = f"took {len(who)}"
        tile(row[0], pictures[np.array([hub])][0], names[hub], wrong=True, mark=said)
        for axes, i in zip(row[1:], who, strict=False):
            tile(axes, pictures[np.array([i])][0], names[i], wide=12)
    return fig


def _rows(axes: Axes, kinds: Mapping[str, str]) -> None:
    axes.set(xlim=(-0.2, 25), ylim=(3.6, -0.6), xticks=[], aspect="equal")
    axes.set_yticks(range(len(kinds)), list(kinds))
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)


def kinds(
    kind: Numbers,
    again: Numbers,
    names: Mapping[str, str],
    counted: Mapping[str, Mapping[str, float]],
    failed: int,
) -> Figure:
    """A square for each failure read, its corner in the color of the second reading."""
    fig, axes = plt.subplots(figsize=(6.5, 1.4))
    for row, (name, letter) in enumerate(names.items()):
        for column, i in enumerate(np.flatnonzero(kind == letter)):
            axes.add_patch(Rectangle((column, row - 0.4), 0.8, 0.8, fc=INK[letter], lw=0))
            if again[i] != kind[i]:
                corner = [(column + 0.8, row - 0.4), (column + 0.8, row + 0.4), (column, row + 0.4)]
                axes.add_patch(Polygon(corner, fc=INK[again[i]], ec="white", lw=1))
            if i < 9:
                axes.text(column + 0.37, row, f"{i + 1}", color="white", fontsize=8, ha="center",
                          va="center", fontweight="bold")  # fmt: skip
        one = counted[name]
        said = f"{one['count']:.0f} and {one['second']:.0f}"
        axes.text(25.3, row, said, va="center", color=INK[letter], fontsize=9)
        said = f"{100 * one['low']:.0f} to {100 * one['high']:.0f} %"
        axes.text(29.8, row, said, va="center", color=INK[letter], fontsize=9)
    axes.text(25.3, -1.1, "two readings", va="center", fontsize=8, color="0.35")
    axes.text(30.6, -1.1, f"of the {failed}", va="center", fontsize=8, color="0.35")
    _rows(axes, names)
    axes.set(xlim=(-0.2, 35), ylim=(3.6, -1.5))
    return fig


def clouds(popular: Mapping[str, Numbers]) -> Figure:
    """Votes of all points in order, in three worlds, each with a sketch."""
    titles = ["one cloud:\nhubs", "20 islands:\nno hubs?", "votes for other islands:\nhubs again"]
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.6), sharey=True)
    for axes, (name, found), title in zip(panels, popular.items(), titles, strict=True):
        ink = "0.35" if name == "one cloud" else RIGHT
        axes.fill_between(range(400), np.sort(found)[::-1], step="post", color=ink, lw=0)
        axes.axhline(10, color="black", lw=0.8, ls=":")
        axes.set(xlim=(0, 400), ylim=(0, 115), xticks=[0, 200, 400], xlabel="points, in order")
        axes.set_title(title, loc="left", fontweight="bold", color=ink)
        ten = 100 * np.sort(found)[-10:].sum() / found.sum()
        axes.text(390, 22, f"most: {found.max()}\nten get {ten:.0f} %", ha="right", color=ink,
                  bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip
        _sketch(axes, name, ink)
    panels[0].set_ylabel("votes, $N_{10}$")
    return fig


def _sketch(axes: Axes, name: str, ink: str) -> None:
    """A little picture of how the points lie; an arrow is a vote."""
    spots = np.random.default_rng(0).normal(size=(100, 2))
    if name != "one cloud":
        spots = 0.9 * spots + 5 * np.array([[-1, 1], [1, 1], [-1, -1], [1, -1]])[np.arange(100) % 4]
    box = axes.inset_axes((0.48, 0.5, 0.5, 0.5))
    box.patch.set(facecolor="white", alpha=1)
    box.scatter(spots[:, 0], spots[:, 1], s=2, color=ink, lw=0)
    box.set(aspect="equal", xticks=[], yticks=[])
    box.grid(False)
    box.spines[:].set_visible(False)
    votes = {"islands": [(-3.8, 5.6), (-6.4, 4.4)], "other islands": [(4.4, 4.6), (-4.4, -4.6)]}
    if name in votes:
        arrow = {"arrowstyle": "->", "color": "black", "lw": 1.3}
        box.annotate("", votes[name][0], votes[name][1], arrowprops=arrow)


def nulls(
    observed: Sequence[float],
    by_chance: Sequence[Sequence[float]],
    made: Mapping[str, Sequence[Sequence[float]]],
    fail: Mapping[str, Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """What ten photographs took, beside worlds of three nulls; and the numbers."""
    fig, axes = plt.subplots(figsize=(6.5, 3.6))
    shown = {"answers at random": (by_chance, "0.55", 0.0)}
    shown |= {"noise in classes": (made["noise in classes"], "#56b4e9", -0.17)}
    shown |= {"noise in bursts": (made["noise in bursts"], RIGHT, 0.17)}
    for name, (found, ink, shift) in shown.items():
        for fold, each in enumerate(found):
            low, middle, high = 100 * np.percentile(each, [2.5, 50, 97.5])
            y = fold + shift
            axes.plot([low, high], [y, y], color=ink, lw=8, alpha=0.4, solid_capstyle="butt")
            axes.plot(middle, y, "|", color=ink, ms=9, mew=2)
            if fold == 0 and shift == 0:
                axes.text(1.5, -0.5, name, color="0.4", fontweight="bold")
            elif fold == 0:
                axes.text(high + 1, y, name, color=ink, va="center", fontweight="bold")
    axes.plot(100 * np.array(observed), range(4), "D", color="black", ms=7)
    axes.text(25.5, -0.5, "the photographs", fontweight="bold")
    axes.set_yticks(range(4), [f"fold {fold}" + " (read)" * (fold == 0) for fold in range(4)])
    axes.set(xlim=(0, 85), ylim=(3.5, -0.8), xlabel="wrong answers that ten photographs gave (%)")
    axes.set_title("noise has as many hubs, or more", loc="left", fontweight="bold")
    axes.grid(False, axis="y")
    below = {name: [float(np.mean(np.array(each) < real)) for each, real in
                    zip(found, observed, strict=True)] for name, found in made.items()}  # fmt: skip
    numbers = {"observed": list(observed), "at random": figures.sample(np.transpose(by_chance))}
    numbers |= {name: figures.sample(np.transpose(each)) for name, each in made.items()}
    return fig, numbers | {
        "below": below,
        "fail": {name: list(each) for name, each in fail.items()},
    }


def verdict(
    kind: Numbers,
    names: Mapping[str, str],
    head: Numbers,
    tuned: Numbers,
    bars: Mapping[str, tuple[float, float]],
) -> Figure:
    """The forty by kind and by what repairs them; what each step repairs and breaks of all."""
    fig, (left, right) = plt.subplots(2, 1, figsize=(6.5, 4.4), height_ratios=(1.2, 2.4))
    for row, letter in enumerate(names.values()):
        own = np.flatnonzero(kind == letter)
        order = own[np.lexsort((~head[own], ~tuned[own]))]
        for column, i in enumerate(order):
            look: dict[str, Any] = {
                "fc": INK[letter] if tuned[i] else "white",
                "ec": INK[letter],
                "lw": 1.0,
            }
            left.add_patch(Rectangle((column, row - 0.4), 0.8, 0.8, **look))
            if head[i]:
                ink = "white" if tuned[i] else INK[letter]
                left.plot(column + 0.4, row, "o", color=ink, ms=4, mew=0)
    _rows(left, names)
    said = f"filled: fine-tuning repairs it ({tuned.sum()} of {len(kind)}); "
    said += f"dot: a trained head ({head.sum()})"
    left.set_title(said, loc="left", fontweight="bold", fontsize=10)
    called = {
        "random": "a head at random",
        "head": "a trained head",
        "fine-tuned": "fine-tuned, 128 pixels",
    }
    for row, (repaired, broken) in enumerate(bars.values()):
        right.barh(row, repaired, color=RIGHT, height=0.65)
        right.barh(row, -broken, color=WRONG, height=0.65)
        right.text(repaired + 2, row, f"{repaired:.0f}", va="center", color=RIGHT)
        right.text(-broken - 2, row, f"{broken:.0f}", va="center", ha="right", color=WRONG)
    right.axvline(0, color="black", lw=0.8)
    right.set_yticks(range(len(bars)), [called.get(name, name) for name in bars])
    right.set(xlim=(-120, 145), ylim=(len(bars) - 0.5, -1.1), xlabel="queries")
    right.text(3, -0.75, "repaired", color=RIGHT, fontweight="bold", va="center")
    right.text(-3, -0.75, "broken", color=WRONG, fontweight="bold", va="center", ha="right")
    ticks = range(-100, 101, 50)
    right.set_xticks(ticks, [f"{abs(tick)}" for tick in ticks])
    right.grid(False, axis="y")
    return fig
