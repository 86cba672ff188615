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

from dmlkit import figures

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


#: The rows of the verdict: what is compared, and the color.
ROWS = {
    "lead": ("nearest\n− random", "nearest", "random", "0.35"),
    "number": ("of it number:\nall − thinned", "nearest", "nearest, thinned", figures.RIGHT),
    "place": ("of it place:\nthinned − random", "nearest, thinned", "random", figures.WRONG),
    "part": ("random\n− around r = 1", "random", "r = 1", "0.35"),
    "claim": ("paper's draw\n− semi-hard", "the paper's draw", "semi-hard", "0.35"),
}
_MORE = {
    "draw minus random": ("the paper's draw", "random"),
    "draw minus nearest": ("the paper's draw", "nearest"),
    "nearest minus semi-hard": ("nearest", "semi-hard"),
    "nearest minus 0.7": ("nearest", "r = 0.7"),
    "0.7 minus 0.85": ("r = 0.7", "r = 0.85"),
    "thinned minus r = 1": ("nearest, thinned", "r = 1"),
}
#: Of 400 characters 67 are held out, so that two repetitions share so many of them.
OVERLAP = 67 / 400
_DIAL = ("r = 1", "r = 0.85", "r = 0.7")
#: Of each choice beside the dial: mark, color, and where its name stands, in points.
_MARKS: dict[str, tuple[str, str, tuple[int, int], str]] = {
    "nearest": ("o", figures.RIGHT, (-9, -3), "right"),
    "nearest, thinned": ("o", figures.WRONG, (-9, -5), "right"),
    "random": ("X", "0.35", (8, -4), "left"),
    "semi-hard": ("^", "0.35", (15, -18), "center"),
    "the paper's draw": ("*", "0.35", (-4, 11), "center"),
}


def verdict(
    kept: Mapping[str, Mapping[str, Sequence[float]]],
    live: Mapping[str, Sequence[float]],
    floor: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the measured distance, how many teach, and the differences the rule asks for.

    ``kept`` has "recall", "teach" (%) and "far" of each choice, by repetition; ``live`` the scores
    of this run, which repeats the first.
    """
    fig = plt.figure(figsize=(figures.WIDTH, 4.8))
    grid = fig.add_gridspec(2, 2, width_ratios=(1.25, 1), height_ratios=(2.4, 1))
    top, low, right = (fig.add_subplot(grid[at]) for at in ((0, 0), (1, 0), (slice(None), 1)))
    mean = {part: {k: float(np.mean(v)) for k, v in of.items()} for part, of in kept.items()}
    for axes, part in ((top, "recall"), (low, "teach")):
        x, y = ([mean[of][name] for name in _DIAL] for of in ("far", part))
        axes.plot(x, y, "-", marker="o", color="0.6", ms=6, lw=1.8)
        for name, (mark, ink, off, side) in _MARKS.items():
            at = mean["far"][name], mean[part][name]
            axes.plot(*at, mark, color=ink, ms=12 if mark == "*" else 8, lw=0, zorder=4)
            if axes is top:
                said = {"nearest, thinned": "thinned"}.get(name, name)
                axes.annotate(said, at, off, textcoords="offset points", ha=side, color=ink,
                              fontsize=9)  # fmt: skip
        axes.set(xlim=(0.36, 1.18), xticks=(0.5, 0.6, 0.7, 0.8, 0.9, 1))
    for name in _DIAL:
        at, side = ((8, 3), "left") if name != "r = 1" else ((-8, -4), "right")
        top.annotate(f"around {name[4:]}", (mean["far"][name], mean["recall"][name]), at,
                     textcoords="offset points", ha=side, color="0.4", fontsize=9)  # fmt: skip
    ways = (("random", "nearest, thinned"), ("nearest, thinned", "nearest"))
    for (start, end), ink in zip(ways, (figures.WRONG, figures.RIGHT), strict=True):
        to, origin = ((mean["far"][name], mean["recall"][name]) for name in (end, start))
        look: dict[str, Any] = {"arrowstyle": "-|>", "color": ink, "lw": 2}
        look |= {"shrinkA": 7, "shrinkB": 7}
        top.annotate("", to, origin, arrowprops=look, zorder=3)
    half = (mean["recall"]["nearest"] + mean["recall"]["nearest, thinned"]) / 2
    here: dict[str, Any] = {"fontsize": 9.5, "weight": "bold"}
    top.text(0.565, half, "number", color=figures.RIGHT, ha="right", va="center", **here)
    middle = (mean["recall"]["random"] + mean["recall"]["nearest, thinned"]) / 2
    top.text(0.73, middle - 0.6, "place", color=figures.WRONG, va="top", ha="center", **here)
    top.axhline(floor["raw pixels"], color="0.6", ls=":", lw=1.3, zorder=0)
    top.text(0.365, floor["raw pixels"] + 0.5, "raw pixels", color="0.4", fontsize=8.5)
    top.text(0.365, 31, f"untrained: {floor['untrained']:.0f}", color="0.4", fontsize=8.5)
    top.set(ylim=(30, 68))
    top.tick_params(labelbottom=False)
    top.set_title("Recall@1 (%)", fontweight="bold", loc="left", fontsize=10)
    low.set(ylim=(0, 105), yticks=(0, 50, 100), xlabel="distance ÷ mean (r)")
    low.set_title("triplets that teach (%)", fontweight="bold", loc="left", fontsize=10)
    pairs = {key: (plus, minus) for key, (_, plus, minus, _) in ROWS.items()}
    drawn: dict[str, Any] = {
        key: figures.summary(np.subtract(kept["recall"][plus], kept["recall"][minus]), OVERLAP)
        for key, (plus, minus) in (pairs | _MORE).items()
    }
    named = {said: drawn[key] for key, (said, *_) in ROWS.items()}
    figures.spans(right, named, "difference in Recall@1 (points)")
    for place, (_, plus, minus, ink) in enumerate(ROWS.values()):
        right.get_yticklabels()[place].set_color(ink)
        if plus in live and minus in live:
            mine = np.subtract(live[plus], live[minus])
            right.plot(mine, [place + 0.24] * len(mine), "o", mfc="none", mec="0.15", ms=7, mew=0.9)
    right.set_title("differences", fontweight="bold", loc="left", fontsize=10)
    for part, of in kept.items():
        drawn[part] = {name: figures.sample(values) for name, values in of.items()}
    drawn["live"] = {name: figures.sample(values) for name, values in live.items()}
    drawn["floor"] = figures.example(dict(floor))
    return fig, drawn


#: The verdict's picture in words.
VERDICT_ALT = (
    "Top left: Recall@1 by the measured relative distance of the chosen negatives. On the dial it "
    "rises from little above raw pixels, around the mean, to the nearest, semi-hard and the "
    "paper's draw near 60 percent. From random to the nearest, two arrows: a flat one, the place, "
    "to the nearest thinned, and a steep one, the number. Bottom left: the share of triplets that "
    "teach is high for the nearest, and about 30 percent for random, thinned and around the mean. "
    "Right: five differences with their intervals; those of place and of the claim hold 0."
)
