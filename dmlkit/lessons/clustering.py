"""What lesson 07 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

import dmlkit
from dmlkit import figures

CLASSES = ("#0072b2", "#d55e00", "#009e73")
#: Of the margins, from small to large.
SHADES = ("#e69f00", "#d55e00", "#a50f5e", "#3b0f70")
INKS = {"structured clustering": SHADES[2], "semi-hard triplets": "0.25"}
#: Structured clustering minus semi-hard triplets on CUB, in Song et al. 2017: 48.2 − 42.6.
PRINTED = 5.6
FILE = dmlkit.ROOT / "data" / "evidence" / "07_clustering.csv"
#: Where labels of the curves stand.
GAMMAS = {
    "mixed": {1: (0.28, 1.6), 5: (0.6, 0.97), 20: (0.55, 0.6)},
    "sorted": {1: (0.2, 0.04), 5: (0.56, 0.25), 20: (0.55, 0.5)},
}


def four(points: np.ndarray, crossed: np.ndarray) -> Figure:
    """Three clusterings of four points on a line, with their scores."""
    fig, axes = plt.subplots(figsize=(6.5, 2.4))
    _row(axes, points, crossed, 1.5, [0, 1, 1, 1], "medoids 0 and 1", "−9")
    _row(axes, points, crossed, 0.75, [0, 0, 2, 2], "one exchanged: the best", "−2")
    _row(axes, points, crossed, 0, [0, 1, 0, 1], "own medoids: the true one", "−10")
    axes.text(12.6, 2.1, "score", ha="right", fontsize=10)
    axes.text(12.6, -0.62, "loss: −2 − (−10) = 8", ha="right", fontsize=12, weight="bold")
    axes.set(xlim=(-0.6, 12.7), ylim=(-0.75, 2.2))
    axes.set_axis_off()
    for x in points:
        axes.text(x, -0.62, f"{x:g}", ha="center", fontsize=10)
    return fig


def _row(
    axes: Axes, points: np.ndarray, crossed: np.ndarray, high: float, medoid_of: list[int],
    says: str, value: str,
) -> None:  # fmt: skip
    """One row: the points, medoids ringed, and an arc from each point to its medoid."""
    for i, j in enumerate(medoid_of):
        axes.plot(points[i], high, "os"[crossed[i]], color=CLASSES[crossed[i]], ms=9, zorder=3)
        if i == j:
            axes.plot(points[i], high, "o", ms=18, mfc="none", mec="0.2", mew=1.3)
            continue
        arc, half = np.linspace(0, np.pi, 50), abs(points[i] - points[j]) / 2
        x, y = (points[i] + points[j]) / 2 + half * np.cos(arc), np.sin(arc) * (0.15 + 0.08 * half)
        axes.plot(x, high + y, color="0.45", lw=1.5)
    axes.text(7.1, high, says, va="center", fontsize=10)
    axes.text(12.6, high, value, va="center", ha="right", fontsize=12, weight="bold")


def pole(turn: Tensor, shrinks: np.ndarray, costs: Mapping[str, Sequence[float]]) -> Figure:
    """Nine points on their way to the pole, and the loss over the margin by their size."""
    fig, (axes, *panels) = plt.subplots(1, 3, figsize=(6.5, 2.7), width_ratios=(1.35, 1, 1))
    angle, tilt = turn.numpy(), 0.42
    for s in (1.0, 0.65, 0.35):
        z, circle = (1 - s**2) ** 0.5, np.linspace(0, 2 * np.pi, 200)  # z: the height
        axes.plot(s * np.cos(circle), tilt * s * np.sin(circle) + z, color="0.75", lw=1, zorder=0)
        for k in range(3):
            own = angle[3 * k : 3 * k + 3]
            xy = s * np.cos(own), tilt * s * np.sin(own) + z
            axes.plot(*xy, "os^"[k], color=CLASSES[k], ms=4.5)
        axes.text(s + 0.1, z + 0.1 * (s < 0.5), f"× {s:g}", va="center", fontsize=9)
    for each in angle:
        s_all = np.linspace(1, 0.35, 50)
        height = tilt * s_all * np.sin(each) + np.sqrt(1 - s_all**2)
        axes.plot(s_all * np.cos(each), height, ":", color="0.6", lw=1)
    axes.set(aspect="equal", xlim=(-1.1, 1.55), ylim=(-0.5, 1.2))
    axes.set_axis_off()
    axes.set_title("nine images, mixed", weight="bold", loc="left")
    titles = {"mixed": "mixed classes", "sorted": "sorted: γ sets the size"}
    highs = {"mixed": 2.1, "sorted": 0.75}
    for panel, (name, title) in zip(panels, titles.items(), strict=True):
        for gamma, ink in zip((1, 5, 20), SHADES, strict=False):
            panel.plot(shrinks, np.array(costs[f"{name}, {gamma}"]) / gamma, color=ink, lw=2)
            panel.text(*GAMMAS[name][gamma], f"γ = {gamma}", color=ink, fontsize=9, weight="bold")
        panel.set(xlim=(0, 1), ylim=(-0.01 * highs[name], highs[name]), xticks=[0, 0.5, 1])
        panel.set_xlabel("distances × s")
        panel.set_title(title, weight="bold", loc="left", fontsize=9)
    panels[0].set(ylabel="loss / γ", yticks=[0, 1, 2])
    panels[1].set_yticks([0, 0.5])
    return fig


def search() -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by loss, margin and rate, in percent."""
    table = pd.read_csv(FILE)
    table["loss"] = table["loss"].str.replace("semi-hard triplets", "semi-hard\ntriplets")
    swaps = table["loss"].str.endswith("swaps")
    found = 100 * table[~swaps].pivot_table(index="loss", columns="lr", values="Recall@1")
    rows = [f"γ = {margin}" for margin in (1, 5, 25, 125)] + ["semi-hard\ntriplets"]
    found = found.loc[rows]
    fig, axes = plt.subplots(figsize=(5.2, 2.9))
    axes.imshow(found, cmap="Blues", vmin=25, vmax=80, aspect="auto")
    for y, name in enumerate(rows):
        for x, value in enumerate(found.loc[name]):
            best = value == found.loc[name].max()
            ink, weight = "white" if value > 58 else "0.1", "bold" if best else "normal"
            axes.text(x, y, f"{value:.0f}", ha="center", va="center", color=ink, weight=weight)
            if best:
                corner = x - 0.47, y - 0.45
                axes.add_patch(Rectangle(corner, 0.94, 0.9, fill=False, ec="#e69f00", lw=2.5))
    axes.set_xticks(range(found.shape[1]), [f"{lr:g}" for lr in found])
    axes.set_yticks(range(len(rows)), rows)
    axes.set(xlabel="learning rate")
    axes.grid(False)
    kept = {name.replace("\n", " "): found.loc[name].round(2).to_list() for name in rows}
    with_swaps = 100 * float(table.loc[swaps, "Recall@1"].mean())
    return fig, {"recall": figures.example(kept), "γ = 5, with swaps": figures.example(with_swaps)}


def answer(found: Mapping[str, np.ndarray], pixels: float) -> tuple[Figure, dict[str, Any]]:
    """What each loss finds, and the difference with its interval beside the printed one."""
    fig, (axes, right) = plt.subplots(1, 2, figsize=(6.5, 2.6), width_ratios=(1, 1.5))
    for x, (name, ink) in enumerate(INKS.items()):
        axes.plot(x + np.linspace(-0.12, 0.12, len(found[name])), found[name], "o", color=ink,
                  ms=5, alpha=0.6, mew=0)  # fmt: skip
        axes.plot([x - 0.25, x + 0.25], [found[name].mean()] * 2, color=ink, lw=2.5)
    axes.axhline(pixels, color="0.5", ls=":", lw=1.4, zorder=0)
    axes.text(-0.45, pixels + 0.8, "raw pixels", fontsize=8, color="0.35")
    axes.set_xticks(range(2), [name.replace(" ", "\n", 1) for name in INKS])
    axes.set(xlim=(-0.5, 1.5), ylim=(30, 75), ylabel="Recall@1 (%)")
    axes.grid(False, axis="x")
    gain = found["structured clustering"] - found["semi-hard triplets"]
    drawn = figures.differences(right, {"here": gain}, "points of Recall@1")
    right.plot(PRINTED, 1, "*", color="#e69f00", ms=15)
    right.set_yticks(range(2), ["here", "printed,\nbirds"])
    right.set_ylim(1.5, -0.5)
    right.set_title("clustering minus triplets", loc="left", weight="bold")
    drawn["scores"] = {name: figures.sample(each) for name, each in found.items()}
    drawn["pixels"] = figures.example(pixels)
    return fig, drawn
