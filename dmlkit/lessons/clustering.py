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
    """Recall@1 on validation characters by margin and rate, after the short and the long training.

    Its numbers are means over the trainings of a cell, in percent, and the best rate of each row.
    """
    table = pd.read_csv(FILE).query(
        "`judged by` == 'validation' and not loss.str.endswith('swaps')"
    )
    fig, axes = plt.subplots(1, 2, figsize=(6.5, 2.9), width_ratios=(6, 4))
    drawn: dict[str, Any] = {}
    for panel, (steps, part) in zip(axes, table.groupby("steps"), strict=True):
        found = 100 * part.pivot_table(index="loss", columns="lr", values="Recall@1")
        rows = sorted(found.index, key=lambda each: (each[0] == "s", len(each)))
        found = found.loc[rows]
        panel.imshow(found, cmap="Blues", vmin=25, vmax=85, aspect="auto")
        for y, name in enumerate(rows):
            for x, value in enumerate(found.loc[name]):
                best = value == found.loc[name].max()
                ink = "white" if value > 62 else "0.1"
                weight = "bold" if best else "normal"
                panel.text(x, y, f"{value:.0f}", ha="center", va="center", color=ink, weight=weight)
                if best:
                    frame = Rectangle(
                        (x - 0.47, y - 0.45), 0.94, 0.9, fill=False, ec="#e69f00", lw=2
                    )
                    panel.add_patch(frame)
        panel.set_xticks(range(found.shape[1]), [f"{lr:g}" for lr in found], fontsize=8)
        panel.set_yticks(range(len(rows)), [r.replace(" triplets", "") for r in rows], fontsize=9)
        panel.set(xlabel="learning rate")
        panel.set_title(f"{steps} steps", loc="left", weight="bold")
        panel.grid(False)
        drawn[str(steps)] = {name: found.loc[name].round(2).to_list() for name in rows}
    return fig, {"recall": figures.example(drawn)}


def longer() -> dict[str, np.ndarray]:
    """Recall@1 in percent of the recorded trainings of 600 steps on test characters, (6,) each."""
    table = pd.read_csv(FILE).query("`judged by` == 'test'")
    triplets = table["loss"] == "semi-hard triplets"
    return {
        name: 100 * table.loc[triplets == (name == "semi-hard triplets"), "Recall@1"].to_numpy()
        for name in INKS
    }


def answer(
    short: Mapping[str, np.ndarray], long: Mapping[str, np.ndarray], pixels: float
) -> tuple[Figure, dict[str, Any]]:
    """The difference of both losses after both trainings, and what each finds."""
    fig, (axes, right) = plt.subplots(1, 2, figsize=(6.5, 2.8), width_ratios=(1.5, 1))
    both = {"150 steps,\nyour run": short, "600 steps,\nrecorded": long}
    gain = {name: each["structured clustering"] - each["semi-hard triplets"]
            for name, each in both.items()}  # fmt: skip
    kept = figures.differences(axes, gain, "points of Recall@1, clustering minus triplets")
    drawn: dict[str, Any] = dict(zip(("150", "600"), kept.values(), strict=True))
    axes.plot(PRINTED, 2, "*", color="#e69f00", ms=14)
    axes.set_yticks(range(3), [*gain, "printed,\nbirds"])
    axes.set_ylim(2.6, -0.6)
    axes.set_title("what whole clusterings add", loc="left", weight="bold")
    for name, ink in INKS.items():
        y = [float(each[name].mean()) for each in both.values()]
        right.plot([0, 1], y, "o-", color=ink, ms=7)
        for x, each in enumerate(both.values()):
            right.plot([x] * len(each[name]), each[name], "o", color=ink, ms=3, alpha=0.4, mew=0)
        right.text(1.08, y[1], name.replace(" ", "\n", 1), color=ink, va="center", weight="bold")
    right.axhline(pixels, color="0.5", ls=":", lw=1.4, zorder=0)
    right.text(1.08, pixels, "raw pixels", fontsize=9, color="0.35", va="center")
    right.set_xticks([0, 1], ["150", "600"])
    right.set(xlabel="steps", ylabel="Recall@1 (%)", xlim=(-0.2, 2.1), ylim=(30, 95))
    right.grid(False, axis="x")
    drawn["scores"] = {
        name: {loss: figures.sample(each) for loss, each in its.items()}
        for name, its in zip(("150", "600"), both.values(), strict=True)
    }
    drawn["pixels"] = figures.example(pixels)
    return fig, drawn
