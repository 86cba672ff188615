"""What lesson 10 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, Wedge

from dmlkit import figures


def rings(aged: np.ndarray, same: np.ndarray, steps: Sequence[int]) -> Figure:
    """The memory as a ring of batches at three steps: how far the entries of each have moved.

    ``aged`` (T, K) is how far entries have moved by step and age, the newest first; ``same`` (T,)
    the distance of two images of one character.
    """
    fig, panels = plt.subplots(1, len(steps), figsize=(6.5, 2.6))
    fig.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0)
    size = aged.shape[1]
    for axes, step in zip(panels, (min(each, len(aged) - 1) for each in steps), strict=True):
        for place in range(size):
            age = (step - place - 1) % size + 1
            far, held = aged[step, age - 1], age <= step
            ink = figures.WRONG if far > same[step] else figures.RIGHT
            ends = 90 - (place + 1) * 360 / size + 1.5, 90 - place * 360 / size - 1.5
            look: dict[str, Any] = {"fc": ink, "alpha": 0.7 - 0.5 * (age - 1) / (size - 1)}
            if not held:
                look = {"fc": "0.9"}
            axes.add_patch(Wedge((0, 0), 1, *ends, width=0.56, lw=0, **look))
            if held and age == 1:
                axes.add_patch(Wedge((0, 0), 1, *ends, width=0.56, fill=False, ec="k", lw=2))
            turn = np.deg2rad(sum(ends) / 2)
            across, up = 0.72 * np.cos(turn), 0.72 * np.sin(turn)
            if held:
                axes.text(across, up, f"{far:.2f}", ha="center", va="center", fontsize=8)
            if age == size:
                out = {"arrowstyle": "-|>", "color": "k", "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
                at = np.array([np.cos(turn), np.sin(turn)])
                axes.annotate("", 1.04 * at, 1.34 * at, arrowprops=out)
        axes.text(0, 0, f"step\n{step}", ha="center", va="center", weight="bold")
        axes.text(0, -1.45, f"two of a character: {same[step]:.2f}", ha="center", va="center",
                  fontsize=9)  # fmt: skip
        axes.set(xlim=(-1.4, 1.4), ylim=(-1.6, 1.4), aspect="equal")
        axes.set_axis_off()
    return fig


def search(
    tried: Mapping[str, Sequence[float]], rates: Sequence[float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, as a heat map; a box around the best.

    A setting is of a kind, its first word: none, old or fresh. Cells without a number are empty.
    """
    table = np.array([*tried.values()], dtype=float)
    kinds = np.array([name.partition(",")[0] for name in tried])
    fig, axes = plt.subplots(figsize=(6.5, 0.9 + 0.28 * len(tried)))
    axes.imshow(table, cmap="Blues", vmin=np.nanmin(table) - 5, vmax=np.nanmax(table) + 15,
                aspect="auto")  # fmt: skip
    tops = {}
    for kind in dict.fromkeys(kinds):
        rows = np.flatnonzero(kinds == kind)
        row, column = np.unravel_index(np.nanargmax(table[rows]), table[rows].shape)
        tops[str(kind)] = float(table[rows][row, column])
        box: Any = {"fill": False, "ec": figures.WRONG, "lw": 2}
        axes.add_patch(Rectangle((column - 0.47, rows[row] - 0.44), 0.94, 0.88, **box))
        if rows[0]:
            axes.axhline(rows[0] - 0.5, color="white", lw=4)
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=9)
    axes.set_xticks(range(len(rates)), [f"{lr:g}" for lr in rates])
    axes.set_yticks(range(len(tried)), [*tried])
    axes.set_xlabel("learning rate")
    axes.grid(False)
    for edge in axes.spines.values():
        edge.set_visible(False)
    axes.set_title("Recall@1 on validation characters (%)", loc="left", fontsize=10, weight="bold")
    return fig, {"best": figures.example(tops)}


def answer(
    gain: Mapping[str, np.ndarray], at: Sequence[int], oldest: np.ndarray, same: np.ndarray,
    cost: np.ndarray,
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """Differences of Recall@1 with 95 % intervals, the rule's first; beside them, age by step.

    ``gain`` is by name (networks,); ``oldest``, how far the oldest entries have moved, ``same``
    and ``cost``, fresh minus old, are (networks, steps ``at``).
    """
    fig, axes = plt.subplot_mosaic(
        [["gain", "moved"], ["gain", "cost"]],
        figsize=(6.8, 3.9), width_ratios=(1.55, 1), layout="constrained",
    )  # fmt: skip
    left, above, below = axes["gain"], axes["moved"], axes["cost"]
    ink, rows = figures.look("xbm").color, {}
    for place, (name, values) in enumerate(gain.items()):
        each = rows[name.replace("\n", " ")] = _row(values)
        big = place == 0
        left.plot([each["low"], each["high"]], 2 * [place], color=ink, lw=5 if big else 2,
                  solid_capstyle="butt", alpha=0.55 if big else 1)  # fmt: skip
        left.plot(each["mean"], place, "o", color=ink, ms=11 if big else 6)
        left.text(each["mean"], place - (0.24 if big else 0.15),
                  f"{each['mean']:+.1f}".replace("-", "−"), ha="center", va="bottom", color=ink,
                  fontsize=15 if big else 10, weight="bold" if big else "normal")  # fmt: skip
    left.axvline(0, color="0.3", lw=1, zorder=0)
    left.set_yticks(range(len(gain)), [*gain])
    left.get_yticklabels()[0].set_fontweight("bold")
    left.margins(x=0.14)
    left.set(ylim=(len(gain) - 0.5, -0.75), xlabel="difference in Recall@1 (points)")
    left.grid(False, axis="y")
    above.plot(at, oldest.mean(axis=0), "o-", color=figures.WRONG, lw=2)
    above.plot(at, same.mean(axis=0), "--", color="0.4", lw=1.4)
    above.text(at[-1], same.mean(axis=0)[-1] + 0.02, "two of a character", fontsize=8,
               color="0.3", ha="right", va="bottom")  # fmt: skip
    above.set(ylim=(0, 1.25 * max(oldest.mean(axis=0).max(), same.mean(axis=0).max())))
    above.set_title("the oldest entries moved by", loc="left", fontsize=9, weight="bold")
    ends = [_row(each) for each in cost.T]
    below.axhline(0, color="0.3", lw=1)
    for step, each in zip(at, ends, strict=True):
        below.plot(2 * [step], [each["low"], each["high"]], color=figures.RIGHT, lw=2)
    below.plot(at, [each["mean"] for each in ends], "o-", color=figures.RIGHT, lw=1, ms=5)
    below.set_title("fresh − old (points)", loc="left", fontsize=9, weight="bold")
    below.set(xlabel="step")
    for panel in (above, below):
        panel.set(xticks=at, xlim=(min(at) - 12, max(at) + 12))
    drawn = {"gain": rows, "cost": {f"{step}": each for step, each in zip(at, ends, strict=True)}}
    moved = {f"{step}": _row(each) for step, each in zip(at, oldest.T, strict=True)}
    return fig, drawn | {"oldest": moved, "same": figures.sample(same)}


def _row(values: np.ndarray) -> dict[str, Any]:
    """The values with their mean and its 95 % interval."""
    return figures.differences(Figure().subplots(), {"x": values})["x"]
