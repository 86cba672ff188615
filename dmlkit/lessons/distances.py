"""What lesson 04 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from dmlkit import figures, statistics

EDGES = np.linspace(0, 2, 41)


def spheres() -> tuple[Figure, dict[str, Any]]:
    """Random points of the unit sphere at their true distances from one, in four dimensions."""
    size = {"figsize": (figures.WIDTH, 2.7), "height_ratios": (2.2, 1)}
    fig, panels = plt.subplots(2, 4, **size)  # type: ignore[call-overload]
    numbers: dict[str, Any] = {}
    for (top, low), d in zip(panels.T, (3, 8, 64, 512), strict=True):
        draw = torch.Generator().manual_seed(d)
        points = F.normalize(torch.randn(4000, d, generator=draw, dtype=torch.float64))
        D = (points - torch.eye(d)[0]).norm(dim=1)  # from the anchor, (1, 0, ...)
        for radius, line in ((2, "-"), (math.sqrt(2), ":")):
            top.add_patch(Circle((0, 0), radius, fill=False, ec="0.6", lw=0.8, ls=line))
        turn = 2 * math.pi * torch.rand(130, generator=draw)
        top.scatter(D[:130] * turn.cos(), D[:130] * turn.sin(), s=5, color=figures.RIGHT, lw=0)
        top.plot(0, 0, "*", color="black", ms=7)
        top.set(xlim=(-2.05, 2.05), ylim=(-2.05, 2.05), aspect="equal", title=f"{d} dimensions")
        top.set_axis_off()
        low.hist(D, EDGES, density=True, color=figures.RIGHT, lw=0)
        low.set(xlim=(0, 2), yticks=[])
        low.set_xticks([0, 1, math.sqrt(2), 2], ["0", "1", "√2", "2"])
        numbers[f"{d} dimensions"] = {"mean": D.mean(), "deviation": D.std()}
    fig.supxlabel("distance from the anchor", fontsize=9)
    return fig, numbers


def draws(log_q: Callable[[Tensor, int], Tensor]) -> tuple[Figure, dict[str, Any]]:
    """How probably each of twenty negatives is drawn, in clouds of three sizes."""
    fig, panels = plt.subplots(1, 3, figsize=(figures.WIDTH, 1.9), sharey=True)
    shown = {}
    for axes, size in zip(panels, (1.1, 0.6, 0.4), strict=True):
        D = size * torch.linspace(0.76, 1.24, 20, dtype=torch.float64)
        p = 100 * (-log_q(D.clamp(0.5, 1.4), 64)).softmax(dim=0)
        axes.axvspan(0, 0.5, color="0.92", lw=0, zorder=0)
        axes.bar(D, p, 0.015, color=figures.RIGHT, lw=0)
        axes.plot(D, 0 * D - 4, ".", color="0.2", ms=3, clip_on=False)
        axes.set(xlim=(0, 1.5), ylim=(-7, 100), xticks=(0, 0.5, 1, 1.4))
        axes.set_title(f"mean distance {size}")
        axes.grid(False, axis="x")
        shown[f"{size}"] = {"nearest": p[0], "relative": (p * D).sum() / 100 / D.mean()}
    panels[0].set_ylabel("drawn (%)")
    fig.supxlabel("distance from the anchor", fontsize=9)
    return fig, shown


def search(
    found: Mapping[str, Mapping[str, Sequence[float]]],
) -> tuple[Figure, dict[str, Any], dict[str, float]]:
    """Recall@1 of validation characters, by what is chosen and by the rate; and the best rates.

    ``found`` has the trainings of each choice and each rate.
    """
    names, rates = [*found], [*next(iter(found.values()))]
    table = np.array([[np.mean(found[name][rate]) for rate in rates] for name in names])
    fig, axes = plt.subplots(figsize=(5.4, 2.9))
    axes.imshow(table, cmap="Blues", aspect="auto", vmin=table.min() - 8)
    for (row, column), value in np.ndenumerate(table):
        best = value == table[row].max()
        ink = "white" if value > (table.min() + table.max()) / 2 else "0.15"
        look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9.5, "color": ink}
        axes.text(column, row, f"{value:.0f}", fontweight="bold" if best else "normal", **look)
        if best:
            box: dict[str, Any] = {"fill": False, "ec": figures.WRONG, "lw": 2}
            axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, **box))
    axes.set(xticks=range(len(rates)), xticklabels=rates, xlabel="learning rate")
    axes.set(yticks=range(len(names)), yticklabels=names)
    axes.grid(False)
    drawn = {name: {r: figures.sample(v) for r, v in of.items()} for name, of in found.items()}
    best_of = dict(zip(names, (rates[k] for k in table.argmax(axis=1)), strict=True))
    return fig, drawn, best_of


#: The rows of the verdict, each minus random negatives: color, mark, and where its name stands.
_LOOKS = {
    "nearest": (figures.RIGHT, "D", (7, 4)), "r = 0.7": (figures.RIGHT, "o", (7, 4)),
    "r = 0.85": (figures.RIGHT, "o", (7, 4)), "r = 1": ("0.35", "s", (7, 0)),
    "random, as many teach": (figures.WRONG, "s", (-9, -4)), "random": ("0.35", "X", (7, 0)),
    "semi-hard": ("0.35", "^", (8, -7)), "nearest, as few teach": (figures.RIGHT, "P", (8, -6)),
}  # fmt: skip
ROWS = (
    "nearest, as few teach",
    "nearest",
    "r = 0.7",
    "r = 0.85",
    "r = 1",
    "semi-hard",
    "random, as many teach",
)


def verdict(
    found: Mapping[str, Sequence[float]], films: Mapping[str, Tensor], floor: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the measured distance, and what each choice finds more than random negatives.

    ``films`` (R, steps, 3) have the share that teaches, the gradient's length and the distance.
    """
    size: dict[str, Any] = {"figsize": (figures.WIDTH, 4.3), "width_ratios": (1.1, 1.2)}
    fig, (left, right) = plt.subplots(1, 2, **size)
    distance = {name: film[:, -10:, 2].mean(dim=1).tolist() for name, film in films.items()}
    for name, scores in found.items():
        ink, mark, at = _LOOKS[name]
        x, y = np.mean(distance[name]), np.mean(scores)
        left.plot(distance[name], scores, mark, color=ink, ms=3.5, alpha=0.3, mew=0)
        left.plot(x, y, mark, color=ink, ms=7)
        end: dict[str, Any] = {"ha": "left" if at[0] > 0 else "right", "va": "center"}
        said = name.replace(", as", ",\nas")
        left.annotate(said, (x, y), at, textcoords="offset points", fontsize=8, color=ink, **end)
    for name, value in floor.items():
        left.axhline(value, color="0.5", ls=":", lw=1.3, zorder=0)
        left.text(0.51, value + 0.5, name, fontsize=8, color="0.35")
    left.set(xlim=(0.5, 1.18), xlabel="distance of the chosen ÷ mean distance")
    left.set_title("Recall@1 (%)", fontweight="bold", loc="left", fontsize=10)
    gains = {name: np.subtract(found[name], found["random"]) for name in ROWS}
    for place, (name, values) in enumerate(gains.items()):
        ink, mark, _ = _LOOKS[name]
        right.plot(values, [place + 0.22] * len(values), ".", color=ink, alpha=0.45, ms=6)
        mean, low, high, _ = statistics.interval(values)
        right.errorbar(mean, place, xerr=[[mean - low], [high - mean]], color=ink, fmt=mark,
                       ms=8, lw=3.5)  # fmt: skip
    right.axvline(0, color="0.3", lw=1)
    names = [name.replace(", as", ",\nas") for name in gains]
    right.set(yticks=range(len(gains)), yticklabels=names, ylim=(len(gains) - 0.5, -0.5))
    right.set(xlabel="Recall@1 minus random negatives' (points)")
    right.grid(False, axis="y")
    right.set_title("gain", fontweight="bold", loc="left", fontsize=10)
    drawn: dict[str, Any] = {"gain": {name: figures.sample(v) for name, v in gains.items()}}
    drawn["near"] = figures.sample(gains["nearest, as few teach"])
    equal = np.subtract(found["nearest"], found["random, as many teach"])
    drawn["wide"] = figures.sample(equal)
    drawn["closer"] = figures.sample(np.subtract(found["nearest"], found["r = 0.7"]))
    drawn["recall"] = {name: figures.sample(each) for name, each in found.items()}
    drawn["distance"] = {name: figures.sample(each) for name, each in distance.items()}
    for k, kind in enumerate(("teach", "gradient")):
        of = {name: film[:, :, k].mean(dim=1).tolist() for name, film in films.items()}
        drawn[kind] = {name: figures.sample(each) for name, each in of.items()}
    drawn["floor"] = figures.example(dict(floor))
    return fig, drawn
