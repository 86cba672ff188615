"""What lesson 24 draws."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dmlkit import figures
from dmlkit.lessons.kinds import by_kinds
from dmlkit.statistics import interval

#: A fold tests a quarter of the products, and shares most training products with the others.
OVERLAP = 1 / 4
#: A photograph: its row, left, top, side, and whether it is right (None: a query).
Tile = tuple[int, int, int, int, bool | None]
#: Words: left, top, text and color.
Words = tuple[int, int, str, str]
Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]


def draw(
    pictures: Tensor,
    names: NDArray[np.str_],
    tiles: Sequence[Tile],
    words: Sequence[Words],
    wide: int,
    high: int,
) -> Figure:
    """Photographs with their names, and words, placed in 0.8 pixels."""
    fig = plt.figure(figsize=(wide / 120, high / 120), layout="none")
    for row, left, top, side, right in tiles:
        photograph = Image.fromarray(pictures[row].permute(1, 2, 0).numpy())
        axes = fig.add_axes((left / wide, 1 - (top + side) / high, side / wide, side / high))
        axes.imshow(photograph.resize((side * 5 // 4,) * 2), interpolation="nearest")
        name = textwrap.fill(names[row], side // 8, max_lines=2, placeholder=" …")
        axes.set_xlabel(name, fontsize=8, labelpad=2.5)
        ink = "0.4" if right is None else figures.RIGHT if right else figures.WRONG
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(visible=True, color=ink, lw=1 if right is None else 2)
        if right is not None:
            box = {"boxstyle": "square,pad=0.15", "fc": ink, "ec": "none"}
            axes.text(0.96, 0.95, "✓" if right else "✗", transform=axes.transAxes, ha="right",
                      va="top", fontsize=7.5, color="white", bbox=box)  # fmt: skip
    for left, top, text, color in words:
        fig.text(left / wide, 1 - top / high, text, color=color, fontsize=10, weight="bold",
                 va="top")  # fmt: skip
    return fig


def one_query(
    pictures: Tensor, names: NDArray[np.str_], query: int, near: Mapping[str, tuple[Rows, Flags]]
) -> Figure:
    """A query, and its three nearest by each network: rows (3,), and which are right (3,)."""
    tiles: list[Tile] = [(query, 4, 34, 120, None)]
    words: list[Words] = [(4, 2, "query", "black")]
    for top, (kind, (found, ok)) in zip((34, 242), near.items(), strict=False):
        hits = ok.tolist()
        tiles += [(int(found[k]), 164 + 128 * k, top, 120, hit) for k, hit in enumerate(hits)]
        ink = figures.RIGHT if all(hits) else figures.WRONG
        words.append((164, top - 32, f"{kind}: {sum(hits)} of {len(hits)} right", ink))
    return draw(pictures, names, tiles, words, 548, 204 * len(near))


def trap(curves: Mapping[str, Sequence[float]], own: Sequence[float]) -> Figure:
    """Recall@1 by photographs of the query's own visit; beside each, of the own visit alone."""
    fig, axes = plt.subplots(figsize=(5.8, 3.3), layout="constrained")
    inks = "black", "#0072b2"
    for (name, curve), alone, ink, va in zip(
        curves.items(), own, inks, ("center", "center"), strict=True
    ):
        axes.plot(curve, "o-", color=ink, ms=4)
        axes.plot(12, alone, "D", color=ink, ms=6)
        axes.text(12.3, alone, f"{alone:.0f} %", va=va, color=ink, fontsize=9)
        axes.text(2.2, curve[2] - 3, name, va="top", color=ink, fontsize=9, weight="bold")
        axes.text(-0.15, curve[0] - 2, f"{curve[0]:.0f} %", va="top", color=ink, fontsize=9)
    axes.axvline(11, color="0.7", lw=0.8)
    axes.set_xticks([*range(11), 12], [*map(str, range(11)), "own visit\nalone"])
    axes.set(xlim=(-0.4, 13.4), ylim=(50, 103), ylabel="Recall@1 (%)")
    axes.set_xlabel("photographs of each product from the query's own visit, besides another visit")
    axes.grid(False, axis="x")
    return fig


def near_copies(
    pictures: Tensor,
    names: NDArray[np.str_],
    labels: NDArray[np.int64],
    lines: Sequence[tuple[int, int, int]],
) -> Figure:
    """Queries, each with its nearest of the same and of another visit: rows."""
    heads = "query", "same visit", "another visit"
    words: list[Words] = [(4 + 206 * k, 2, text, "black") for k, text in enumerate(heads)]
    tiles: list[Tile] = []
    for line, own in enumerate(lines):
        for k, i in enumerate(own):
            right = bool(labels[i] == labels[own[0]]) if k else None
            tiles.append((i, 4 + 206 * k, 34 + 240 * line, 190, right))
    return draw(pictures, names, tiles, words, 610, 34 + 240 * len(lines))


def gains(
    gain: pd.Series, kinds: Mapping[str, pd.Series], groups: pd.Series,
    names: NDArray[np.str_], px: str,
) -> Figure:  # fmt: skip
    """What each product gains from the whole network over the head, by what it is."""
    spread = np.random.default_rng(0).uniform(-0.25, 0.25, len(gain))
    fig, axes = plt.subplots(figsize=(6.5, 2.5), layout="constrained")
    for row, own in enumerate(kinds.values()):
        its = gain[own[gain.index]]
        inks = np.where(its < 0, figures.WRONG, np.where(its > 0, "#7fb2d6", "0.7"))
        axes.scatter(its, row + spread[its.index], s=12, c=inks, lw=0)
        for end in {gain.idxmin(), gain.idxmax()} & {*its.index}:
            said = f"{names[end].replace('-', ' ')}\n{its[end]:+.0f}".replace("-", "−")
            axes.text(its[end], row + spread[end] + 0.09, said, ha="center", va="top", fontsize=8.5)
        ends = interval(by_kinds(its, groups))
        axes.plot(ends[["low", "high"]], [row, row], color="black", lw=2)
        axes.plot(ends["mean"], row, "D", color="black", ms=5)
    axes.axvline(0, color="0.3", lw=1)
    axes.set_yticks(range(len(kinds)), list(kinds))
    axes.set(ylim=(len(kinds) - 0.5, -0.5))
    axes.set_xlabel(f"whole network minus head, {px} pixels (points of Recall@1)")
    axes.grid(False, axis="y")
    up, down = (gain > 0).sum(), (gain < 0).sum()
    axes.set_title(f"{up} products gain, {down} lose", loc="left", fontweight="bold")
    return fig


def neighbors(
    pictures: Tensor,
    names: NDArray[np.str_],
    labels: NDArray[np.int64],
    near: Mapping[str, NDArray[np.int64]],
    asked: Sequence[int],
) -> Figure:
    """Some queries (rows), each with its two nearest before and after: near maps to (Q', 2)."""
    tiles: list[Tile] = []
    words: list[Words] = [(4, 2, "query", "black"), (138, 2, "untouched", "black"),
                          (386, 2, "fine-tuned", "black")]  # fmt: skip
    for line, query in enumerate(asked):
        top = 34 + 166 * line
        tiles.append((query, 4, top, 110, None))
        for left, found in zip((138, 386), near.values(), strict=True):
            for k, i in enumerate(found[line]):
                tiles.append((int(i), left + 118 * k, top, 110, bool(labels[i] == labels[query])))
    return draw(pictures, names, tiles, words, 626, 34 + 166 * len(asked))


#: What the right side of the answer says of a difference.
_PAIRS = {
    "whole minus head": "whole − head",
    "head minus untouched": "head − untouched",
}


def steps(
    by_step: Mapping[str, Mapping[str, Sequence[float]]], answer: Mapping[str, Mapping[str, Any]]
) -> Figure:
    """Recall@1 of each fold at each step, at the first resolution; differences at all."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.6, 3.5), layout="constrained", width_ratios=(1, 1.05)
    )
    main, *_ = by_step
    found, ink = by_step[main], figures.RIGHT
    left.plot(range(len(found)), [*found.values()], "-", color="0.8", lw=1, zorder=0)
    for x, values in enumerate(found.values()):
        mean = float(np.mean(values))
        left.plot([x] * len(values), values, "o", color=ink, ms=4, alpha=0.5, mew=0)
        left.plot([x - 0.25, x + 0.25], [mean] * 2, color=ink, lw=2.5)
        left.text(x, max(values) + 1, f"{mean:.1f}", ha="center", va="bottom", color=ink,
                  fontsize=10, fontweight="bold")  # fmt: skip
    left.set_xticks(range(len(found)), [*found], fontsize=9)
    low = min(min(values) for values in found.values())
    left.set(xlim=(-0.5, len(found) - 0.5), ylim=(low - 6, 101), ylabel="Recall@1 (%)")
    left.set_title(f"unseen products, {main} pixels", loc="left", fontsize=10, fontweight="bold")
    left.grid(False, axis="x")
    rows = {
        f"{said}\n{px} pixels": answer[px][name]["values"]
        for px in answer
        for name, said in _PAIRS.items()
        if name in answer[px]
    }
    figures.gains(right, rows, overlap=OVERLAP)
    return fig


def leads(pairs: Mapping[str, pd.DataFrame], found: Mapping[str, Mapping[str, float]]) -> Figure:
    """Proxy-Anchor minus other losses: each repetition, and the interval over folds."""
    fig, axes = plt.subplots(figsize=(6, 2.4))
    for row, (loss, ends) in enumerate(found.items()):
        axes.plot([ends["low"], ends["high"]], [row, row], color="0.35", lw=2)
        each = pairs[loss].mean(axis=1)
        axes.plot(each, np.full(len(each), row + 0.25), ".", color="0.6")
        axes.plot(ends["mean"], row, "D", color="black", ms=5)
        lead = f"{round(ends['mean'], 1) + 0.0:.1f}".replace("-", "−")
        axes.text(8.4, row, lead, va="center", ha="right", weight="bold")
    axes.axvline(0, color="0.3", lw=1)
    axes.set_yticks(range(len(found)), [f"minus {figures.look(loss).name}" for loss in found])
    axes.set(ylim=(len(found) - 0.4, -0.5), xlim=(-4.5, 8.5))
    axes.set_xlabel("Proxy-Anchor's lead (points of Recall@1)")
    axes.set_title("over four folds every interval contains 0", loc="left", fontweight="bold")
    axes.grid(False, axis="y")
    return fig
