"""What lesson 07 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dmlkit import figures

CLASSES = ("#0072b2", "#d55e00", "#009e73")
#: Of the margins, from small to large.
SHADES = ("#e69f00", "#d55e00", "#a50f5e", "#3b0f70")
TRIPLETS = {"hard triplets": ("0.55", "v"), "semihard triplets": ("0.25", "^")}
#: Where labels of the curves stand.
GAMMAS = {
    "mixed": {1: (0.28, 1.6), 5: (0.6, 0.97), 20: (0.55, 0.6)},
    "sorted": {1: (0.2, 0.04), 5: (0.56, 0.25), 20: (0.55, 0.5)},
}
#: Where labels of the answer stand that would meet others, with their alignment.
LABELS = {
    "γ = 125": ((72.0, 36.0), "center", "top"),
    "hard triplets": ((1.25, 16.0), "left", "center"),
    "semihard triplets": ((112.0, 72.0), "right", "bottom"),
}
SAID = {"hard triplets": "hardest triplets", "semihard triplets": "semi-hard triplets"}


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


def film(
    films: Mapping[str, np.ndarray], pure: Mapping[str, np.ndarray]
) -> tuple[Figure, dict[str, Any]]:
    """Widths of the batches along trainings, (seeds, steps) each, and NMI of unseen characters."""
    fig, (axes, right) = plt.subplots(1, 2, figsize=(6.5, 3.0), width_ratios=(1.5, 1))
    margins = [name for name in films if name.startswith("γ")]
    for name, ink in zip(margins, SHADES, strict=False):
        mean = np.exp(np.log(films[name]).mean(axis=0))
        axes.plot(mean, color=ink, lw=2.2)
        axes.text(1.02 * len(mean), mean[-1], name, color=ink, va="center", weight="bold")
    axes.set_yscale("log")
    axes.set_yticks([2, 5, 10, 20, 50, 90], ["2°", "5°", "10°", "20°", "50°", "90°"])
    axes.minorticks_off()
    steps = len(next(iter(films.values()))[0])
    axes.set(xlabel="step", ylabel="width of the cone", xlim=(0, 1.3 * steps))
    axes.set_xticks([0, steps // 3, 2 * steps // 3, steps])
    axes.set_title("first all shrink, then γ decides", loc="left", weight="bold")
    scores = {name.removeprefix("γ = "): 100 * each for name, each in pure.items()}
    figures.sweep(right, scores, {}, figures.look("structured_clustering").color, "", 0)
    right.set(xlabel="γ", ylabel="NMI (%)")
    right.set_title("unseen characters", loc="left", weight="bold")
    widths = {name: figures.sample(each[:, :: max(steps // 15, 1)]) for name, each in films.items()}
    return fig, {"width of batches": widths}


def answer(
    wide: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray], pixels: float
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by width, all trainings; and γ = 5 minus all others."""
    fig, (axes, right) = plt.subplots(1, 2, figsize=(6.5, 3.7), width_ratios=(1.75, 1))
    margins = [name for name in found if name.startswith("γ")]
    inks = dict(zip(margins, SHADES, strict=False))
    for name, each in found.items():
        ink, mark = TRIPLETS.get(name, (inks.get(name), "o"))
        axes.plot(wide[name], each, mark, color=ink, ms=4, alpha=0.45, mew=0)
        x, y = np.exp(np.log(wide[name]).mean()), each.mean()
        axes.plot(x, y, mark, color=ink, ms=10, mec="white")
        said = f"{SAID.get(name, name)}\n{y:.0f} %"
        where, ha, va = LABELS.get(name, ((x, each.max() + 1.5), "center", "bottom"))
        axes.text(*where, said, color=ink, ha=ha, va=va, fontsize=9, weight="bold")
    axes.axhline(pixels, color="0.5", ls=":", lw=1.4, zorder=0)
    axes.text(0.65, pixels + 0.8, "raw pixels", fontsize=8, color="0.35")
    axes.set_xscale("log")
    axes.set_xticks([1, 2, 5, 10, 20, 50, 90], ["1°", "2°", "5°", "10°", "20°", "50°", "90°"])
    axes.minorticks_off()
    axes.set(xlabel="width of the cone", ylabel="Recall@1, unseen characters (%)")
    axes.set(xlim=(0.6, 120), ylim=(0, 82))
    axes.grid(False, axis="x")
    gain = {name: found["γ = 5"] - each for name, each in found.items() if name != "γ = 5"}
    drawn: dict[str, Any] = {"γ = 5 minus": figures.differences(right, gain, "points of Recall@1")}
    right.set_yticks(
        range(len(gain)),
        [SAID.get(name, name).replace(" ", "\n", 1) if name in SAID else name for name in gain],
    )
    right.set_title("γ = 5 minus …", loc="left", weight="bold")
    drawn["scores"] = {name: figures.sample(each) for name, each in found.items()}
    drawn["width"] = {name: figures.sample(each) for name, each in wide.items()}
    drawn["pixels"] = figures.example(pixels)
    return fig, drawn
