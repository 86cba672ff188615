"""What lesson 10 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, Wedge

from dmlkit import figures


def rings(aged: np.ndarray, same: np.ndarray, steps: Sequence[int]) -> Figure:
    """The memory as a ring of batches at three steps: how far the entries of each have moved.

    ``aged`` (T, K) is how far entries have moved by step and age, today's batch, of age 0, first;
    ``same`` (T,) the distance of two images of one character.
    """
    fig, panels = plt.subplots(1, len(steps), figsize=(6.5, 2.6))
    fig.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0)
    size = aged.shape[1]
    for axes, step in zip(panels, (min(each, len(aged) - 1) for each in steps), strict=True):
        for place in range(size):
            age = (step - place) % size
            far, held = aged[step, age], age <= step
            ink = figures.WRONG if far > same[step] else figures.RIGHT
            ends = 90 - (place + 1) * 360 / size + 1.5, 90 - place * 360 / size - 1.5
            look: dict[str, Any] = {"fc": ink, "alpha": 0.7 - 0.5 * age / (size - 1)}
            if not held:
                look = {"fc": "0.9"}
            axes.add_patch(Wedge((0, 0), 1, *ends, width=0.56, lw=0, **look))
            if held and age == 0:
                axes.add_patch(Wedge((0, 0), 1, *ends, width=0.56, fill=False, ec="k", lw=2))
            turn = np.deg2rad(sum(ends) / 2)
            across, up = 0.72 * np.cos(turn), 0.72 * np.sin(turn)
            if held:
                axes.text(across, up, f"{far:.2f}", ha="center", va="center", fontsize=8)
            if age == size - 1:
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
        box: Any = {"fill": False, "ec": figures.WRONG, "lw": 2, "zorder": 4}
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
    found: Mapping[str, np.ndarray], floors: Mapping[str, float], gain: Mapping[str, np.ndarray],
    at: Sequence[int], oldest: np.ndarray, same: np.ndarray,
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """Levels of Recall@1 above their floors, and how entries age; right, the differences.

    ``found`` and ``gain`` are by name (networks,), the rule's difference first; ``oldest``, how far
    the oldest entries have moved, and ``same`` are (networks, steps ``at``).
    """
    fig, axes = plt.subplot_mosaic(
        [["level", "gain"], ["moved", "gain"]],
        figsize=(7.2, 4.3), width_ratios=(1, 1.35), height_ratios=(1.35, 1), layout="constrained",
    )  # fmt: skip
    level, right, below = axes["level"], axes["gain"], axes["moved"]
    ink = figures.look("xbm").color
    for place, (name, values) in enumerate(found.items()):
        color = ink if name == "old" else "0.35"
        level.plot(values, [place] * len(values), "o", ms=3, color=color, alpha=0.35, mew=0)
        level.plot(values.mean(), place, "D", ms=6, color=color)
        level.text(values.mean(), place - 0.22, f"{values.mean():.0f}", ha="center", va="bottom",
                   fontsize=9, color=color)  # fmt: skip
    pixels = floors["raw pixels"]
    level.axvline(pixels, color="0.75", lw=1.2, zorder=0)
    level.text(pixels + 0.5, len(found) - 0.05, f"raw pixels {pixels:.0f}", fontsize=8, color="0.4",
               va="center")  # fmt: skip
    level.text(pixels - 0.5, len(found) - 0.05, f"untrained {floors['untrained']:.0f} ←",
               fontsize=8, color="0.4", ha="right", va="center")  # fmt: skip
    level.set_yticks(range(len(found)), [*found], fontsize=9)
    level.set(ylim=(len(found) + 0.5, -0.75))
    every = np.concatenate([[pixels], *found.values()])
    level.set_xlim(every.min() - 0.75 * np.ptp(every), every.max() + 2)
    level.grid(False)
    level.set_title("Recall@1 (%)", loc="left", fontsize=9, weight="bold")
    below.plot(at, oldest.T, color=figures.WRONG, lw=0.7, alpha=0.35)
    below.plot(at, oldest.mean(axis=0), color=figures.WRONG, lw=2.2)
    below.plot(at, same.mean(axis=0), color="0.4", lw=1.6)
    top = float(same.mean(axis=0).max())
    below.text(at[-1], 1.08 * top, "two of a character", fontsize=8, color="0.3", ha="right")
    below.text(at[0], 0.09 * top, "oldest entries", fontsize=8, color=figures.WRONG, weight="bold")
    below.set(ylim=(0, 1.45 * top), xlabel="step", xticks=at[::2])
    below.grid(False)
    below.set_title("entries have moved by", loc="left", fontsize=9, weight="bold")
    rows = figures.gains(right, gain)
    right.set_title("difference (points)", loc="left", fontsize=9, weight="bold")
    moved = {f"{step}": figures.summary(each) for step, each in zip(at, oldest.T, strict=True)}
    return fig, {"gain": rows, "oldest": moved, "same": figures.sample(same)}


def push(ring: Any, batches: Sequence[int], each: int) -> Figure:
    """A ring's places after some batches have been pushed, with the number of the batch in each.

    ``ring`` () makes an empty memory of 256 places; a batch takes ``each`` of them.
    """
    fig, panels = plt.subplots(1, len(batches), figsize=(6.5, 1.75))
    fig.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=0)
    for axes, many in zip(panels, batches, strict=True):
        memory = ring()
        for number in range(1, many + 1):
            memory.push(torch.zeros(each, 1), torch.full((each,), number))
        held = memory.labels[::each].tolist()
        for place, number in enumerate(held):
            ends = 90 - (place + 1) * 360 / len(held) + 1.5, 90 - place * 360 / len(held) - 1.5
            look: dict[str, Any] = {"fc": "0.9"}
            if number > 0:
                look = {"fc": figures.RIGHT, "alpha": 0.7 - 0.07 * (many - number)}
            axes.add_patch(Wedge((0, 0), 1, *ends, width=0.5, lw=0, **look))
            if number == many:
                axes.add_patch(Wedge((0, 0), 1, *ends, width=0.5, fill=False, ec="k", lw=2))
            turn = np.deg2rad(sum(ends) / 2)
            if number > 0:
                axes.text(0.75 * np.cos(turn), 0.75 * np.sin(turn), f"{number}", ha="center",
                          va="center", fontsize=10, weight="bold")  # fmt: skip
        axes.text(0, 0, f"after\n{many}", ha="center", va="center", fontsize=9)
        axes.set(xlim=(-1.3, 1.3), ylim=(-1.1, 1.1), aspect="equal")
        axes.set_axis_off()
    return fig
