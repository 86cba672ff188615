"""What lesson 06 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import dmlkit
from dmlkit import figures

#: A network is tested on an eighth of the characters, and shares most of the others with the rest.
OVERLAP = 1 / 8
#: Of the classes of an episode.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")


def episode_of(images: Tensor, query: Tensor) -> tuple[Figure, dict[str, Any]]:
    """A query, five images of each of three characters and their mean, all as they are.

    Images (3, 5, 32, 32) and a query (32, 32), from 0 to 1. Under each stands the squared distance
    of its pixels to the query's.
    """
    shown = torch.cat([images, images.mean(dim=1, keepdim=True)], dim=1)  # (3, 6, 32, 32)
    squares = (shown - query).square().sum(dim=(2, 3))  # (3, 6)
    fig = plt.figure(figsize=(6.5, 3.3))
    grid = fig.add_gridspec(
        3, 9, width_ratios=[1.25, 0.45, 1, 1, 1, 1, 1, 0.5, 1],
        left=0.01, right=0.97, top=0.89, bottom=0.07, wspace=0.1, hspace=0.32,
    )  # fmt: skip
    _photo(fig.add_subplot(grid[1, 0]), query, "black", "query")
    for k, color in enumerate(COLORS[:3]):
        for j in range(6):
            axes = fig.add_subplot(grid[k, 2 + j + (j == 5)])
            _photo(axes, shown[k, j], color, f"{squares[k, j]:.0f}", bold=j == 5)
            if k == 0 and j in (2, 5):
                title = "five known images of each character" if j == 2 else "mean"
                axes.set_title(title, fontsize=10, weight="bold", pad=5)
        arrow = fig.add_subplot(grid[k, 7])
        arrow.set_axis_off()
        arrow.text(0.5, 0.5, "→", ha="center", va="center", fontsize=15, color=color)
    table = {
        "nearest image": squares[:, :5].min().item(), "nearest mean": squares[:, 5].min().item(),
        "probability, T = 10": (-squares[:, 5] / 10).softmax(dim=0)[0].item(),
        "score, T = 10": {f"{k}": -one.item() / 10 for k, one in enumerate(squares[:, 5])},
    }  # fmt: skip
    return fig, {"raw pixels": figures.example(table)}


def _photo(axes: Axes, image: Tensor, color: str, words: str, bold: bool = False) -> None:
    """A picture in a frame of its class, and what stands under it."""
    axes.imshow(1 - image.numpy(), cmap="gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.set_xlabel(words, fontsize=9, labelpad=2, color=color, weight="bold" if bold else None)
    for edge in axes.spines.values():
        edge.set(visible=True, edgecolor=color, linewidth=3 if bold else 1.8)


def force(s: Tensor, f: Tensor, felt: Mapping[str, Sequence[Tensor]]) -> Figure:
    """A query, what each place counts as the width of a line, and the force on it, in two ways."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.9), sharex=True, sharey=True)
    heads = {"mean": "mean: both own images count", "neighbors": "neighbors: the near one counts"}
    props = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 14, "color": "k"}
    for axes, (way, (pull, own, expected, share)) in zip(panels, felt.items(), strict=True):
        at = s.mean(dim=1) if way == "mean" else s.flatten(0, 1)
        for place, part, k in zip(
            at, share, [i * 3 // len(at) for i in range(len(at))], strict=True
        ):
            width = max(16 * float(part), 0.6)
            axes.plot(*torch.stack([f, place]).T, color=COLORS[k], lw=width, alpha=0.3)
        for k in range(3):
            axes.plot(*s[k].T, "-o" if way == "mean" else "o", color=COLORS[k], ms=7, lw=1.2)
            if way == "mean":
                axes.plot(*at[k], "*", color=COLORS[k], ms=14, mec="black", mew=0.7, zorder=5)
        for name, place, shift in zip(
            ("class 0", "class 1", "class 2"), (s[0, 0], s[1, 1], s[2, 1]),
            ((-9, -4), (9, -4), (9, -4)), strict=True,
        ):  # fmt: skip
            side, k = "right" if shift[0] < 0 else "left", int(name[-1])
            axes.annotate(
                name, place.tolist(), shift, textcoords="offset points", color=COLORS[k], ha=side
            )
        dashed = axes.annotate(
            "", own.tolist(), expected.tolist(), zorder=8,
            arrowprops=props | {"ls": "--", "lw": 1.4},
        )  # fmt: skip
        assert dashed.arrow_patch is not None
        axes.annotate(
            "", (f + own - expected).tolist(), f.tolist(), zorder=8, arrowprops=props | {"lw": 2.4}
        )
        assert torch.allclose(pull, 2 * (own - expected))
        axes.plot(*expected, "o", ms=8, mfc="white", mec="black", zorder=9)
        axes.plot(*f, "D", color="black", ms=7)
        axes.annotate("query", f.tolist(), (9, -4), textcoords="offset points")
        axes.annotate(
            "expected", expected.tolist(), (-2, 9), textcoords="offset points", ha="center",
            fontsize=9,
        )  # fmt: skip
        axes.annotate(
            "force × T/2", (f + own - expected).tolist(), (-3, -12), textcoords="offset points",
            ha="center", fontsize=9,
        )  # fmt: skip
        axes.set(aspect="equal", xlim=(-1.1, 3.0), ylim=(-1.1, 2.7))
        axes.set_axis_off()
        axes.set_title(heads[way], fontweight="bold", fontsize=10)
    return fig


Gains = Mapping[str, Mapping[int, np.ndarray]]


def answer(gain: Gains, law: Mapping[int, float]) -> tuple[Figure, dict[str, Any]]:
    """What the mean gains over neighbors by the number of images, and what round clouds foretell.

    ``gain`` has points, {line: {n: (repetitions,)}}: two lines of drawn characters, by network, and
    two of photographs, by product. The first of each is the one that is asked for.
    """
    fig, panels = plt.subplots(1, 2, figsize=(7.4, 3.7), sharey=True, layout="constrained")
    drawn: dict[str, Any] = {name: {} for name in gain}
    for place, (name, each) in enumerate(gain.items()):
        first, axes = place % 2 == 0, panels[place // 2]
        ink = (figures.look("prototypical").color, figures.WRONG, figures.RIGHT, "0.45")[place]
        rows = [figures.summary(x, OVERLAP * (place < 2)) for x in each.values()]
        drawn[name] = {f"{n}": row for n, row in zip(each, rows, strict=True)}
        ends = ("mean", "low", "high")
        mean, low, high = np.array([[row.get(end, row["mean"]) for row in rows] for end in ends])
        at = np.array([*each]) * (1 if first else 1.06)
        style: dict[str, Any] = {"color": ink, "lw": 2.6 if first else 1.6, "zorder": 4 - place % 2}
        axes.plot([1, *at], [0, *mean], **style)
        axes.errorbar(at, mean, (mean - low, high - mean), marker="o", ls="", **style)
        for y in np.flatnonzero(np.array([*each]) == 5)[: int(first)]:
            axes.plot(5, mean[y], "o", ms=12, color=ink, zorder=5)
            said = f"{mean[y]:+.1f}".replace("-", "−")
            look: dict[str, Any] = {"textcoords": "offset points", "color": ink, "weight": "bold"}
            axes.annotate(said, (5, high[y]), (0, 4), ha="center", **look)
    panels[0].plot([1, *law], [0, *law.values()], "--", color="0.35", lw=1.4, zorder=5)
    drawn = {"gain": drawn, "round clouds": figures.example({f"{n}": v for n, v in law.items()})}
    three, most = gain["trained mean"][3], gain["trained mean"][20]
    drawn["fall"] = figures.summary(three - most, OVERLAP)
    _named(panels)
    return fig, drawn


def _named(panels: Sequence[Axes]) -> None:
    """Write what the lines of ``answer`` are, and its axes."""
    inks = (figures.look("prototypical").color, figures.WRONG, figures.RIGHT, "0.4")
    words: tuple[tuple[int, float, float, str, str], ...] = (
        (0, 1.05, 4.1, "trained by\nthe mean", inks[0]),
        (0, 1.05, -3.0, "trained as\nneighbors", inks[1]),
        (0, 7.6, 2.5, "predicted by\nround clouds", "0.35"),
        (1, 1.05, 4.1, "queries of\nanother visit", inks[2]),
        (1, 1.05, -3.0, "queries of\nthe same visit", inks[3]),
    )
    for place, x, y, text, ink in words:
        panels[place].text(x, y, text, color=ink, fontsize=9.5, weight="bold")
    titles = "Drawings: a gain at 2 to 5, a loss at 20", "Photographs: a gain on another visit"
    for axes, title in zip(panels, titles, strict=True):
        axes.axhline(0, color="0.3", lw=1, zorder=1)
        axes.set_xscale("log")
        axes.set_xticks([1, 2, 3, 5, 10, 20], ["1", "2", "3", "5", "10", "20"])
        axes.minorticks_off()
        axes.set(xlim=(0.92, 24), ylim=(-6, 6), xlabel="known images of each class")
        axes.grid(False, axis="x")
        axes.set_title(title, loc="left", weight="bold", fontsize=10)
    panels[0].set_ylabel("mean − neighbors, points right")


def rates() -> tuple[Figure, dict[str, Any]]:
    """Right answers on validation characters by learning rate, each training by its own test."""
    table = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "06_rates.csv")
    fig, axes = plt.subplots(figsize=(5.2, 2.7), layout="constrained")
    drawn: dict[str, Any] = {}
    inks = {"mean": figures.look("prototypical").color, "neighbors": figures.WRONG}
    for way, color in inks.items():
        each = 100 * table[table["trained"] == way].groupby("lr")[way].mean()
        axes.plot(each.index, each, "o-", color=color, lw=2)
        axes.plot(each.idxmax(), each.max(), "o", ms=14, mfc="none", mec=color)
        said = "by the mean" if way == "mean" else "as neighbors"
        axes.text(each.index[-1] * 1.12, each.iloc[-1], said, color=color, va="center", fontsize=9)
        drawn[way] = {"best rate": float(each.idxmax()), "right": each.round(2).to_list()}
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.margins(y=0.15)
    ticks = [0.00125, 0.0025, 0.005, 0.01, 0.02]
    axes.set_xticks(ticks, [f"{lr:g}" for lr in ticks])
    axes.set(xlim=(0.0011, 0.045), xlabel="learning rate", ylabel="right (%)")
    axes.set_title("Trained and tested", loc="left", weight="bold")
    return fig, {way: figures.example(each) for way, each in drawn.items()}
