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


#: The differences of the verdict: what is compared, and the key.
ROWS = {
    "place": ("place: nearest,\nthinned − random", "nearest, thinned", "random"),
    "part": ("random −\naround r = 1", "random", "r = 1"),
    "number": ("number: nearest,\nall − thinned", "nearest", "nearest, thinned"),
    "lead": ("nearest −\nrandom", "nearest", "random"),
    "claim": ("paper's draw\n− semi-hard", "the paper's draw", "semi-hard"),
}
FIRST = "thinned minus r = 1"
_MORE = {
    FIRST: ("nearest, thinned", "r = 1"),
    "draw minus random": ("the paper's draw", "random"),
    "draw minus nearest": ("the paper's draw", "nearest"),
    "nearest minus semi-hard": ("nearest", "semi-hard"),
    "nearest minus 0.7": ("nearest", "r = 0.7"),
    "0.7 minus 0.85": ("r = 0.7", "r = 0.85"),
}
#: Of 400 characters 67 are held out, so that two repetitions share so many of them.
OVERLAP = 67 / 400
#: Of each choice in the picture of the verdict: its words, ink, and where they stand, in points.
_MARKS: dict[str, tuple[str, str, tuple[int, int], str]] = {
    "r = 1": ("around r = 1", figures.WRONG, (9, -4), "left"),
    "random": ("random", figures.WRONG, (10, 0), "left"),
    "nearest, thinned": ("nearest,\nthinned", figures.WRONG, (-10, -8), "right"),
    "nearest": ("nearest", figures.RIGHT, (-10, -4), "right"),
}
_DIAL = ("r = 0.7", "r = 0.85")
Kept = Mapping[str, Mapping[str, Sequence[float]]]


def verdict(
    kept: Kept, live: Mapping[str, Sequence[float]], floor: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the distance of the negatives that teach, and two arrows, place and number.

    ``kept`` has "recall", "teach" (%) and "far" of each choice, by repetition; ``live`` the scores
    of this run, which repeats the first.
    """
    fig, axes = plt.subplots(figsize=(6.0, 3.9), layout="constrained")
    mean = {part: {k: float(np.mean(v)) for k, v in of.items()} for part, of in kept.items()}
    at = {name: (mean["far"][name], mean["recall"][name]) for name in mean["recall"]}
    for name in _DIAL:
        axes.plot(*at[name], "o", color="0.65", ms=7)
        said = f"around {name} ({mean['teach'][name]:.0f} %)"
        axes.annotate(said, at[name], (9, -3), textcoords="offset points", color="0.45", fontsize=9)
    ways = (("r = 1", "nearest, thinned", "place"), ("nearest, thinned", "nearest", "number"))
    for start, end, said in ways:
        ink = figures.WRONG if said == "place" else figures.RIGHT
        look: dict[str, Any] = {"arrowstyle": "-|>", "color": ink, "lw": 2.4}
        look |= {"shrinkA": 8, "shrinkB": 8, "mutation_scale": 16}
        axes.annotate("", at[end], at[start], arrowprops=look, zorder=3)
        middle = (at[start][0] + at[end][0]) / 2, (at[start][1] + at[end][1]) / 2
        off = (0, -14) if said == "place" else (10, -4)
        axes.annotate(said, middle, off, textcoords="offset points", color=ink, weight="bold",
                      ha="right" if said == "place" else "left", fontsize=11)  # fmt: skip
    for name, (said, ink, off, side) in _MARKS.items():
        axes.plot(*at[name], "o", color=ink, ms=9, zorder=4)
        words = f"{said} ({mean['teach'][name]:.0f} %)"
        axes.annotate(words, at[name], off, textcoords="offset points", ha=side, color=ink,
                      fontsize=9.5)  # fmt: skip
        if name in live:
            own = at[name][0], np.mean(live[name])
            axes.plot(*own, "o", mfc="none", mec="0.15", ms=14, mew=1, zorder=5)
    axes.axhline(floor["raw pixels"], color="0.6", ls=":", lw=1.3, zorder=0)
    said = f"raw pixels {floor['raw pixels']:.0f} (untrained {floor['untrained']:.0f})"
    axes.text(0.31, floor["raw pixels"] + 0.5, said, color="0.4", fontsize=8.5)
    axes.set(xlim=(0.3, 1.25), xticks=(0.5, 0.6, 0.7, 0.8, 0.9, 1), ylim=(36, 67))
    axes.set(xlabel="distance ÷ mean (r) of the negatives that teach", ylabel="Recall@1 (%)")
    axes.set_title("in brackets: how many triplets teach", loc="left", fontsize=10, weight="bold")
    axes.grid(False)
    drawn = _differences(kept)
    for part, of in kept.items():
        drawn[part] = {name: figures.sample(values) for name, values in of.items()}
    drawn["live"] = {name: figures.sample(values) for name, values in live.items()}
    drawn["floor"] = figures.example(dict(floor))
    return fig, drawn


def _differences(kept: Kept) -> dict[str, Any]:
    """Each difference with its interval, from the scores by repetition."""
    pairs = {key: (plus, minus) for key, (_, plus, minus) in ROWS.items()}
    return {
        key: figures.summary(np.subtract(kept["recall"][plus], kept["recall"][minus]), OVERLAP)
        for key, (plus, minus) in (_MORE | pairs).items()
    }


def differences(kept: Kept, live: Mapping[str, Sequence[float]]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of every choice, and the differences the verdict tells, with this run's."""
    size: dict[str, Any] = {"figsize": (7.4, 4.2), "width_ratios": (1, 1.1)}
    fig, (left, right) = plt.subplots(1, 2, layout="constrained", **size)
    order = ("r = 1", "r = 0.85", "r = 0.7", "semi-hard", "the paper's draw", "nearest",
             "nearest, thinned", "random")  # fmt: skip
    scores = {}
    for row, name in enumerate(order):
        each = kept["recall"][name]
        left.plot(each, [row] * len(each), "o", color=figures.RIGHT, alpha=0.35, ms=4, mew=0)
        left.plot([np.mean(each)] * 2, [row - 0.25, row + 0.25], color=figures.RIGHT, lw=2.5)
        scores[name] = figures.sample(each)
    left.set_yticks(range(len(order)), order)
    left.set(ylim=(len(order) - 0.5, -0.5), xlabel="Recall@1 (%)")
    left.grid(False, axis="y")
    drawn = _differences(kept)
    named = {"place: nearest,\nthinned − around 1": (FIRST, "nearest, thinned", "r = 1")}
    named |= {said: (key, plus, minus) for key, (said, plus, minus) in ROWS.items()}
    figures.spans(right, {said: drawn[key] for said, (key, *_) in named.items()}, "points")
    for place, (_, plus, minus) in enumerate(named.values()):
        if plus in live and minus in live:
            mine = np.subtract(live[plus], live[minus])
            right.plot(mine, [place + 0.36] * len(mine), "o", mfc="none", mec="0.15", ms=5, mew=0.8)
    right.set_title("differences", fontweight="bold", loc="left", fontsize=10)
    return fig, {"gain": {key: drawn[key] for key, *_ in named.values()}, "scores": scores}


#: The verdict's picture in words.
VERDICT_ALT = (
    "Recall@1 by the relative distance of the negatives that teach. Where about 30 percent of the "
    "triplets teach, it rises from 41 percent around the mean distance over the random draw to the "
    "nearest, thinned, an arrow named place. A second arrow, number, leads up to the nearest, of "
    "which 94 percent teach. Two gray points, around 0.85 and 0.7, lie between."
)
