"""What lesson 10 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, Wedge

from dmlkit import figures


def aging(aged: np.ndarray, same: np.ndarray, start: int) -> Figure:
    """How far entries of some ages have moved, by training step.

    ``aged`` (T, K) is how far entries have moved by step and age, today's batch, of age 0, first;
    ``same`` (T,) the distance of two images of one character; from step ``start`` entries teach.
    """
    fig, axes = plt.subplots(figsize=(6.5, 2.7))
    steps, size = aged.shape
    ages = {1: "0.6", 3: "#e69f00", size - 1: figures.WRONG}
    axes.axvspan(0, start, color="0.93", lw=0, zorder=0)
    axes.plot(same, color="0.25", lw=1.8)
    axes.text(steps + 2, same[-1], "two images\nof a character", fontsize=8.5, va="center",
              color="0.25")  # fmt: skip
    for age, ink in ages.items():
        at = np.arange(age, steps)  # earlier there is no such entry
        axes.plot(at, aged[age:, age], color=ink, lw=2.2 if age == size - 1 else 1.4)
        said = f"{age} batch{'es' * (age > 1)} old" + " (oldest)" * (age == size - 1)
        axes.plot([], [], color=ink, lw=2, label=said)
    axes.legend(loc="upper right", bbox_to_anchor=(1, 0.92), frameon=False, fontsize=8.5)
    axes.set(xlim=(0, steps), ylim=(0, 1.25), xlabel="step", xticks=range(0, steps + 1, 40))
    axes.set_title("entries have moved by", loc="left", fontsize=10, weight="bold")
    axes.grid(False, axis="x")
    return fig


def search(
    tried: Mapping[str, Mapping[str, float]], rates: Sequence[float], taken: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, as a heat map; boxes: what is taken.

    ``tried`` is {setting: {rate: Recall@1}}; cells that were not tried are empty.
    """
    table = np.array([[each.get(f"{rate:g}", np.nan) for rate in rates]
                      for each in tried.values()])  # fmt: skip
    fig, axes = plt.subplots(figsize=(6.5, 0.9 + 0.28 * len(tried)))
    axes.imshow(table, cmap="Blues", vmin=np.nanmin(table) - 5, vmax=np.nanmax(table) + 15,
                aspect="auto")  # fmt: skip
    for (row, column), value in np.ndenumerate(table):
        if np.isfinite(value):
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=9)
        if taken.get([*tried][row]) == rates[column]:
            axes.add_patch(Rectangle((column - 0.47, row - 0.44), 0.94, 0.88, fill=False,
                                     ec=figures.WRONG, lw=2, zorder=4))  # fmt: skip
    names = {"none": "none", "memory": "with a memory"}
    said = [(size, names[kind]) for kind, size in map(str.split, tried)]
    axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axes.set_yticks(range(len(tried)), [f"{size}, {name}" for size, name in said])
    axes.set_xlabel("learning rate")
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title("Recall@1 on validation characters (%)", loc="left", fontsize=10, weight="bold")
    return fig, {"validation": {name: dict(each) for name, each in tried.items()}}


def answer(
    found: Mapping[str, np.ndarray], mine: Mapping[str, np.ndarray],
    gain: Mapping[str, np.ndarray], images: int, overlap: float,
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """Recall@1 by batch, with and without a memory; right, the differences.

    ``found`` is Recall@1 (networks,) of "none 8", "memory 8", …, and ``mine`` that of the reader's
    networks; ``gain`` is by name, the rule's difference first; each training saw ``images``.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.7), width_ratios=(1.35, 1),
                                      layout="constrained")  # fmt: skip
    fig.set_layout_engine("constrained", wspace=0.1)
    sizes = [int(name.split()[1]) for name in found if name.startswith("none")]
    level = {name: figures.summary(each, overlap) for name, each in found.items()}
    for kind, ink, shift in (("none", "0.35", 0.04), ("memory", figures.RIGHT, -0.04)):
        each = [level[f"{kind} {B}"] for B in sizes]
        place, means = np.arange(len(sizes)) + shift, [row["mean"] for row in each]
        ends = [[row["mean"] - row["low"] for row in each],
                [row["high"] - row["mean"] for row in each]]  # fmt: skip
        left.errorbar(place, means, ends, fmt="o-", color=ink, ms=6, lw=1.8, elinewidth=3,
                      ecolor=(*to_rgb(ink), 0.35))  # fmt: skip
        yours = [mine[f"{kind} {B}"].mean() for B in sizes]
        left.plot(place, yours, "x", color=ink, ms=6, mew=1.6, zorder=4)
    like = _arrow(left, level, sizes)
    left.set_xticks(range(len(sizes)), [f"{B}\n{images // B:,}" for B in sizes])
    left.set_xlabel("batch, and its steps")
    left.set_title("Recall@1 of unseen characters (%)", loc="left", fontsize=9, weight="bold")
    left.grid(False, axis="x")
    rows = figures.gains(right, gain, overlap=overlap)
    right.set_title("difference (points)", loc="left", fontsize=9, weight="bold")
    return fig, {"gain": rows, "level": level, "like": like}


def _arrow(axes: Axes, level: Mapping[str, Mapping[str, Any]], sizes: Sequence[int]) -> float:
    """Which batch without a memory finds as much as the smallest with one; words on the curves."""
    none, memory = ([level[f"{kind} {B}"]["mean"] for B in sizes] for kind in ("none", "memory"))
    place = float(np.interp(memory[0], none, range(len(sizes))))
    like = sizes[0] * 2**place
    look: dict[str, Any] = {"arrowstyle": "->", "color": figures.WRONG, "lw": 1.6}
    axes.annotate("", (place, memory[0]), (0, memory[0]), arrowprops=look)
    axes.annotate(f"what {like:.0f} find\nwithout", (place, memory[0]), (26, -8), va="top",
                  textcoords="offset points", color=figures.WRONG, fontsize=8.5)  # fmt: skip
    axes.axhline(none[-1], color="0.5", ls=":", lw=1.2, zorder=0)
    said = "if only comparisons\ncounted: at least here"
    axes.text(-0.42, none[-1], said, fontsize=8, color="0.35", va="bottom", zorder=0)
    low, high = axes.get_ylim()
    axes.set(xlim=(-0.45, len(sizes) - 0.7), ylim=(low, high + 0.12 * (high - low)))
    axes.plot([], [], "o-", color=figures.RIGHT, label="with a memory")
    axes.plot([], [], "o-", color="0.35", label="without")
    axes.plot([], [], "x", color="0.35", label="yours")
    axes.legend(loc="upper left", ncols=3, frameon=False, fontsize=8, handlelength=1.4,
                columnspacing=1)  # fmt: skip
    return like


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
