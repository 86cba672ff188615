"""What lesson 10 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
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
    tried: Mapping[str, Sequence[float]], rates: Sequence[float], taken: tuple[float, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, as a heat map; a box around the best.

    A setting is of a kind, its first word: none, old or fresh. Cells without a number are empty.
    Dashed: the weight and rate that the lesson takes.
    """
    table = np.array([*tried.values()], dtype=float)
    kinds = np.array([name.partition(",")[0] for name in tried])
    fig, axes = plt.subplots(figsize=(6.5, 0.9 + 0.28 * len(tried)))
    axes.imshow(table, cmap="Blues", vmin=np.nanmin(table) - 5, vmax=np.nanmax(table) + 15,
                aspect="auto")  # fmt: skip
    tops, used = {}, {}
    for kind in dict.fromkeys(kinds):
        rows = np.flatnonzero(kinds == kind)
        row, column = np.unravel_index(np.nanargmax(table[rows]), table[rows].shape)
        tops[str(kind)] = float(table[rows][row, column])
        box: Any = {"fill": False, "ec": figures.WRONG, "lw": 2, "zorder": 4}
        axes.add_patch(Rectangle((column - 0.47, rows[row] - 0.44), 0.94, 0.88, **box))
        if rows[0]:
            axes.axhline(rows[0] - 0.5, color="white", lw=4)
        name = kind if kind == "none" else f"{kind}, w = {taken[0]:g}"
        if name in tried and taken[1] in rates:
            y, x = [*tried].index(name), [*rates].index(taken[1])
            used[str(kind)] = float(table[y, x])
            box |= {"ec": "0.15", "lw": 1.6, "ls": "--"}
            axes.add_patch(Rectangle((x - 0.47, y - 0.44), 0.94, 0.88, **box))
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
    return fig, {"best": figures.example(tops), "taken": figures.example(used)}


def answer(
    found: Mapping[str, np.ndarray], mine: Mapping[str, np.ndarray],
    gain: Mapping[str, np.ndarray], overlap: float,
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """What old and fresh entries gain over today's batch, by places; right, the differences.

    ``found`` is Recall@1 (networks,) of "old 32", "old 64", …, "fresh 64", …, and ``mine`` that of
    the reader's networks; ``gain`` is by name, the rule's difference first.
    """
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.7), width_ratios=(1.3, 1),
                                      layout="constrained")  # fmt: skip
    fig.set_layout_engine("constrained", wspace=0.12)
    old, fresh = (
        {name.split()[1]: each - found["old 32"] for name, each in found.items()
         if name.startswith(kind) and name != "old 32"} for kind in ("old", "fresh")
    )  # fmt: skip
    swept = figures.sweep(left, old, {"today's\n batch": 0.0}, unit="", digits=1)
    order, means = [*old], [float(each.mean()) for each in old.values()]
    for text, (place, mean) in zip(left.texts[: len(order)], enumerate(means), strict=True):
        text.remove()  # above the highest dot it would be read as that dot's
        said = f"{mean:+.1f}".replace("-", "−")
        left.text(place, 0.02, said, transform=left.get_xaxis_transform(), fontsize=9,
                  color=figures.RIGHT, weight="bold", ha="center")  # fmt: skip
    left.plot(range(len(order)), means, color=figures.RIGHT, lw=1.6, zorder=1, label="old")
    left.plot([order.index(size) for size in fresh], [each.mean() for each in fresh.values()],
              "D--", ms=7, mfc="white", color="0.3", mew=1.5, lw=1.2, label="fresh")  # fmt: skip
    yours = [(mine[f"old {size}"] - mine["old 32"]).mean() for size in order]
    left.plot(range(len(order)), yours, "x", color=figures.WRONG, ms=7, mew=2, label="your old")
    left.legend(loc="upper left", ncols=3, frameon=False, fontsize=8, handlelength=1.4,
                columnspacing=1)  # fmt: skip
    low, high = left.get_ylim()
    left.set_ylim(low - 0.1 * (high - low), high + 0.12 * (high - low))
    older = [(int(size) / 32 - 1) / 2 for size in order]  # half an image in an earlier batch
    left.set_xticks(range(len(order)), [f"{size}\n({each:.1f})" for size, each in
                                        zip(order, older, strict=True)])  # fmt: skip
    left.set_xlabel("places of the memory\n(older images of the same character)")
    left.set_title("points above today's batch alone", loc="left", fontsize=9, weight="bold")
    rows = figures.gains(right, gain, overlap=overlap)
    right.set_title("difference (points)", loc="left", fontsize=9, weight="bold")
    swept["fresh"] = {size: figures.sample(each) for size, each in fresh.items()}
    return fig, {"gain": rows, "curve": swept}


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
