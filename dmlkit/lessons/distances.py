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
        axes.vlines(D, 0, p, color=figures.RIGHT, lw=0.9)
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
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of validation characters, by what is chosen and by the rate.

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
    return fig, drawn


PLACES = ("nearest", "r = 0.7", "r = 0.85", "r = 1")
_DRAWS = {"random": "X", "semi-hard": "^", "the paper's draw": "*"}
#: The rows of the verdict: what is compared, and the color.
ROWS = {
    "all of nearest\n− all of r = 1": ("nearest", "r = 1", "0.35"),
    "nearest − r = 1,\nas few teach": ("nearest, thinned", "r = 1", figures.WRONG),
    "nearest:\nall − as few": ("nearest", "nearest, thinned", figures.RIGHT),
    "paper's draw\n− random": ("the paper's draw", "random", "0.35"),
    "paper's draw\n− semi-hard": ("the paper's draw", "semi-hard", "0.35"),
}
_KEYS = ("lead", "place", "number", "draw minus random", "draw minus semi-hard")


def verdict(
    kept: Mapping[str, Mapping[str, Sequence[float]]],
    live: Mapping[str, Sequence[float]],
    floor: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the measured distance, how many teach, and the differences the rule asks for.

    ``kept`` has "recall", "teach" (%) and "far" of each choice, by repetition; ``live`` the scores
    of this run, which repeats the first.
    """
    fig = plt.figure(figsize=(figures.WIDTH, 4.6))
    grid = fig.add_gridspec(2, 2, width_ratios=(1.05, 1), height_ratios=(2.3, 1))
    top, low, right = (fig.add_subplot(grid[at]) for at in ((0, 0), (1, 0), (slice(None), 1)))
    mean = {part: {k: float(np.mean(v)) for k, v in of.items()} for part, of in kept.items()}
    thinned = [*(f"{name}, thinned" for name in PLACES[:3]), "r = 1"]
    lines = (
        (PLACES, figures.RIGHT, "-", "all that teach"),
        (thinned, figures.WRONG, "--", "as few as at r = 1"),
    )
    for axes, part in ((top, "recall"), (low, "teach")):
        for names, ink, line, said in lines:
            x, y = ([mean[of][name] for name in names] for of in ("far", part))
            axes.plot(x, y, line, marker="o", color=ink, ms=6, lw=1.8, label=said)
        for name, mark in _DRAWS.items():
            size = 11 if mark == "*" else 7
            axes.plot(mean["far"][name], mean[part][name], mark, color="0.35", ms=size, lw=0,
                      label=name)  # fmt: skip
        axes.set(xlim=(1.08, 0.5), xticks=(1, 0.9, 0.8, 0.7, 0.6))
    for (name, value), line in zip(floor.items(), (":", "-."), strict=True):
        top.axhline(value, color="0.6", ls=line, lw=1.3, zorder=0, label=name)
    top.set(ylim=(0, 70))
    top.tick_params(labelbottom=False)
    top.set_title("Recall@1 (%)", fontweight="bold", loc="left", fontsize=10)
    look: dict[str, Any] = {"fontsize": 7.5, "ncols": 2, "handlelength": 1.8, "columnspacing": 0.8}
    top.legend(
        loc="lower right",
        bbox_to_anchor=(1.02, 0.1),
        frameon=True,
        framealpha=1,
        edgecolor="none",
        **look,
    )
    low.set(ylim=(0, 105), yticks=(0, 50, 100), xlabel="distance ÷ mean (r), nearer →")
    low.set_title("triplets that teach (%)", fontweight="bold", loc="left", fontsize=10)
    drawn: dict[str, Any] = {}
    for place, (key, (plus, minus, ink)) in enumerate(zip(_KEYS, ROWS.values(), strict=True)):
        values = np.subtract(kept["recall"][plus], kept["recall"][minus])
        mine = np.subtract(live[plus], live[minus])
        right.plot(values, [place + 0.24] * len(values), ".", color=ink, alpha=0.45, ms=6)
        right.plot(mine, [place + 0.24] * len(mine), "o", mfc="none", mec="0.15", ms=7, mew=0.9)
        middle, least, most, _ = statistics.interval(values)
        right.errorbar(middle, place, xerr=[[middle - least], [most - middle]], color=ink, fmt="o",
                       ms=8, lw=3.5)  # fmt: skip
        drawn[key] = figures.sample(values)
    right.axvline(0, color="0.3", lw=1)
    right.set(yticks=range(len(ROWS)), yticklabels=[*ROWS], ylim=(len(ROWS) - 0.5, -0.5))
    right.set(xlabel="difference in Recall@1 (points)")
    right.grid(False, axis="y")
    right.set_title("differences", fontweight="bold", loc="left", fontsize=10)
    more = {
        "nearest minus 0.7": ("nearest", "r = 0.7"),
        "0.7 minus 0.85": ("r = 0.7", "r = 0.85"),
        "0.7 thinned minus 1": ("r = 0.7, thinned", "r = 1"),
        "nearest minus semi-hard": ("nearest", "semi-hard"),
        "draw minus nearest": ("the paper's draw", "nearest"),
        "random minus r = 1": ("random", "r = 1"),
        "nearest minus 0.7, thinned": ("nearest, thinned", "r = 0.7, thinned"),
        "0.7 minus 0.85, thinned": ("r = 0.7, thinned", "r = 0.85, thinned"),
    }
    for key, (plus, minus) in more.items():
        drawn[key] = figures.sample(np.subtract(kept["recall"][plus], kept["recall"][minus]))
    for part, of in kept.items():
        drawn[part] = {name: figures.sample(values) for name, values in of.items()}
    drawn["live"] = {name: figures.sample(values) for name, values in live.items()}
    drawn["floor"] = figures.example(dict(floor))
    return fig, drawn


#: The verdict's picture in words.
VERDICT_ALT = (
    "Top left: Recall@1 by the measured relative distance of the chosen negatives. It rises from "
    "38 percent at r = 1 to more than 60 at 0.7 and nearer; where as few triplets teach as at "
    "r = 1, it rises to 51. Bottom left: the share of triplets that teach rises from 28 to 94 "
    "percent, or stays at 28. Right: five differences with their intervals, all above 0."
)
