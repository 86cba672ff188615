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


def hub(
    queries: Sequence[tuple[float, float]],
    own: Sequence[tuple[float, float]],
    other: Sequence[tuple[float, float]],
    place: tuple[float, float],
) -> tuple[Figure, dict[str, Any]]:
    """One photograph in the plane: the answers with it, and once it is deleted; and the counts."""
    q, fixed = np.array(queries), np.array([*own, *other])
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5))
    counts = {}
    for axes, name, there in zip(
        panels, ("with the photograph", "deleted"), ([*fixed, place], fixed), strict=True
    ):
        photographs = np.array(there)
        first = ((q[:, None] - photographs) ** 2).sum(axis=2).argmin(axis=1)
        wrong = first >= len(own)
        for i, j in enumerate(first):
            ink = WRONG if wrong[i] else RIGHT
            axes.plot(*np.transpose([q[i], photographs[j]]), color=ink, lw=1.5, zorder=1)
        axes.plot(*fixed[: len(own)].T, "s", color=RIGHT, ms=9)
        axes.plot(*fixed[len(own) :].T, "s", color=WRONG, ms=9)
        axes.plot(*q.T, "o", mfc="white", mec=RIGHT, mew=1.8, ms=7)
        if len(photographs) > len(fixed):
            axes.plot(*place, "s", mfc=WRONG, mec="black", mew=1.8, ms=12)
            counts["taken"] = int((first == len(fixed)).sum())
        counts[name] = int(wrong.sum())
        axes.set_title(f"{name}: {counts[name]} of {len(q)} fail", loc="left", fontsize=10)
        axes.set(xlim=(-1.3, 1.2), ylim=(-0.8, 0.9), xticks=[], yticks=[], aspect="equal")
        axes.grid(False)
    return fig, counts


def chosen(
    shares: Sequence[float],
    rates: Sequence[float],
    deleted: Numbers,
    trained: Numbers,
    best: tuple[Sequence[float], Sequence[float]],
) -> Figure:
    """Gains on validation products: by the share deleted, and by the head's learning rate."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), sharey=True)
    knobs = (shares, deleted, best[0], "photographs deleted (%)", WRONG), (
        rates, trained, best[1], "learning rate of the head", RIGHT,
    )  # fmt: skip
    for axes, (x, gains, taken, label, ink) in zip(panels, knobs, strict=True):
        for each, own in zip(gains, taken, strict=True):
            axes.plot(x, each, color=ink, lw=1, alpha=0.45)
            axes.plot(own, each[list(x).index(own)], "o", color=ink, ms=6, alpha=0.8, mew=0)
        axes.plot(x, np.mean(gains, axis=0), color=ink, lw=3)
        axes.axhline(0, color="black", lw=0.8)
        axes.set(xscale="log", xlabel=label)
        axes.set_xticks(x, [f"{100 * each:g}" if x is shares else f"{each:g}" for each in x])
        axes.minorticks_off()
    panels[0].set_ylabel("gain in Recall@1 (points)")
    panels[0].set_title("delete", loc="left", color=WRONG, fontweight="bold")
    panels[1].set_title("train", loc="left", color=RIGHT, fontweight="bold")
    return fig


def answer(
    leads: Mapping[str, Mapping[str, float]], arms: Mapping[str, tuple[float, float]]
) -> Figure:
    """Training minus deleting, with its interval, in three galleries; beside it both gains."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.0), width_ratios=(2.1, 1), sharey=True)
    for row, (name, lead) in enumerate(leads.items()):
        ink = "0.45" if lead["low"] < 0 < lead["high"] else RIGHT if lead["low"] > 0 else WRONG
        left.plot([lead["low"], lead["high"]], [row, row], color=ink, lw=9, alpha=0.4,
                  solid_capstyle="butt")  # fmt: skip
        left.plot(lead["mean"], row, "o", color=ink, ms=12)
        said = "{mean:+.1f} [{low:.1f}, {high:.1f}]".format(**lead).replace("-", "−")
        left.text(lead["mean"], row - 0.27, said, color=ink, ha="center", va="center",
                  fontweight="bold", fontsize=12)  # fmt: skip
        for gain, color in zip(arms[name], (WRONG, RIGHT), strict=True):
            right.plot(gain, row, "o", color=color, ms=8, alpha=0.9, mew=0)
    for axes in (left, right):
        axes.axvline(0, color="black", lw=0.9)
        axes.grid(False, axis="y")
    left.set_yticks(range(len(leads)), list(leads))
    left.set(
        ylim=(len(leads) - 0.6, -0.95), xlim=(-14, 10), xlabel="training minus deleting (points)"
    )
    left.text(0.4, -0.75, "the embedding →", color=RIGHT, fontweight="bold")
    left.text(-0.4, -0.75, "← photographs", color=WRONG, fontweight="bold", ha="right")
    right.set(xlabel="gain of each (points)", xlim=(-1, 15))
    right.text(14.6, -0.75, "train", color=RIGHT, fontweight="bold", ha="right")
    right.text(3.4, -0.75, "delete", color=WRONG, fontweight="bold", ha="left")
    return fig
