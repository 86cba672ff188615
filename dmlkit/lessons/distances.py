"""What lesson 04 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from numpy.typing import ArrayLike
from torch import Tensor

from dmlkit import figures

EDGES = np.linspace(0, 2, 41)
#: Where the dial stands, in mean distances.
PLACES = (1, 0.85, 0.7, 0.55)


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


#: The differences of the verdict, {key: (its words, plus, minus)}, and others of the text.
ROWS = {
    "place": ("place: as few,\n0.55 − 1", "r = 0.55, as few", "r = 1"),
    "number": ("number: 0.55,\nall − as few", "r = 0.55", "r = 0.55, as few"),
    "control": ("control: largest\nlosses, 0.55 − 1", "r = 0.55, few largest", "r = 1"),
    "semi-hard": ("paper's draw\n− semi-hard", "the paper's draw", "semi-hard"),
}
_ALSO = {
    "lead": ("", "r = 0.55", "r = 1"),
    "paper": ("", "the paper's draw", "random"),
    "last step": ("", "r = 0.55, as few", "r = 0.7, as few"),
    "from 0.85": ("", "r = 0.55, as few", "r = 0.85, as few"),
    "plateau": ("", "r = 0.7", "r = 0.55"),
    "number at 0.7": ("", "r = 0.7", "r = 0.7, as few"),
    "number at 0.85": ("", "r = 0.85", "r = 0.85, as few"),
}
#: Of 400 characters 67 are held out, so that two repetitions share so many of them.
OVERLAP = 67 / 400
#: Of each curve: how its choices' names end, its words, ink, and where they stand, in points.
CURVES = (
    (", as few", "as few as at r = 1", figures.WRONG, (-48, -34)),
    ("", "all that teach", figures.RIGHT, (9, 4)),
)
#: What is drawn beside the curves, and where its name stands, in points.
BESIDE = {"random": (9, 8), "semi-hard": (21, -15), "the paper's draw": (-8, -1)}
Kept = Mapping[str, Mapping[str, Any]]


def fading(teach: Mapping[str, ArrayLike]) -> tuple[Figure, dict[str, Any]]:
    """How many triplets teach (%), by step, in steps of 4, at each place: (repetitions, steps)."""
    fig, axes = plt.subplots(figsize=(5.6, 2.5), layout="constrained")
    shown = {}
    for r, ink in zip(PLACES, plt.get_cmap("viridis")((0.82, 0.55, 0.3, 0.0)), strict=True):
        share = np.asarray(teach[f"r = {r:g}"], float)
        share = share[:, : share.shape[1] // 4 * 4].reshape(len(share), -1, 4).mean(axis=-1)
        at = 4 * np.arange(share.shape[1]) + 2
        axes.plot(at, share.mean(axis=0), color=ink, lw=2.2)
        axes.text(at[-1] + 1.5, share[:, -1].mean(), f"r = {r:g}", color=ink, va="center")
        shown[f"r = {r:g}"] = figures.sample(share)
    axes.set(xlim=(0, at[-1] + 14), ylim=(0, 102), yticks=(0, 50, 100), xlabel="step")
    axes.set_title(
        "far away, fewer and fewer triplets teach (%)", loc="left", fontsize=10, weight="bold"
    )
    axes.grid(False)
    return fig, shown


def differences(kept: Kept) -> dict[str, Any]:
    """Each difference with its interval, as far as its two choices were trained."""
    found = kept["recall"]
    return {
        key: figures.summary(np.subtract(found[plus], found[minus]), OVERLAP)
        for key, (_, plus, minus) in (ROWS | _ALSO).items()
        if plus in found and minus in found
    }


def verdict(
    kept: Kept, live: Mapping[str, Sequence[float]], floor: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the place of the negatives, all that teach and as few; and the rule's rows.

    ``kept`` has "recall", "teach" (%) and "far" of each choice, by repetition; ``live`` the scores
    of this run, which repeats the first.
    """
    size: dict[str, Any] = {"figsize": (7.6, 4.0), "width_ratios": (1.35, 1)}
    fig, (left, right) = plt.subplots(1, 2, layout="constrained", **size)
    at = {name: (np.mean(kept["far"][name]), np.mean(of)) for name, of in kept["recall"].items()}
    for end, said, ink, offset in CURVES:
        names = ["r = 1", *(f"r = {r:g}{end}" for r in PLACES[1:])]
        left.plot(*zip(*map(at.get, names), strict=True), "-o", color=ink, lw=2.2, ms=6, zorder=3)
        for name in names:
            each = kept["far"][name], kept["recall"][name]
            left.plot(*each, ".", color=ink, alpha=0.3, ms=5, mew=0)
        left.annotate(said, at[names[2]], offset, textcoords="offset points", color=ink,
                      weight="bold", fontsize=9.5)  # fmt: skip
    _steps(left, [at[name] for name in ("r = 1", "r = 0.55, as few", "r = 0.55")])
    for name, offset in BESIDE.items():
        left.plot(*at[name], "D", color="0.5", ms=5.5, zorder=4)
        look: dict[str, Any] = {
            "textcoords": "offset points",
            "color": "0.35",
            "fontsize": 9,
            "ha": "right",
        }
        left.annotate(name.removeprefix("the "), at[name], offset, **look)
    for name, scores in live.items():
        left.plot(at[name][0], np.mean(scores), "o", mfc="none", mec="0.15", ms=12, zorder=5)
    left.axhline(floor["raw pixels"], color="0.6", ls=":", lw=1.3, zorder=0)
    said = f"raw pixels {floor['raw pixels']:.0f} (untrained {floor['untrained']:.0f})"
    left.text(0.38, floor["raw pixels"] - 0.4, said, color="0.4", fontsize=8.5, va="top")
    left.set(xlim=(0.37, 1.03), xticks=(0.4, 0.6, 0.8, 1))
    left.set(xlabel="r of the negatives that teach")
    left.set_title("Recall@1 (%): place and number gain", loc="left", fontsize=10, weight="bold")
    left.grid(False)
    drawn = differences(kept)
    figures.spans(right, {said: drawn[key] for key, (said, *_) in ROWS.items()}, "points")
    right.set_title("differences", loc="left", fontsize=10, weight="bold")
    for part, of in kept.items():
        drawn[part] = {name: figures.sample(values) for name, values in of.items()}
    drawn["live"] = {name: figures.sample(values) for name, values in live.items()}
    return fig, drawn | {"floor": figures.example(dict(floor))}


def _steps(axes: Axes, points: Sequence[tuple[Any, Any]]) -> None:
    """Arrows beside the curves, from the first point's height to the second's and the third's."""
    for (x, y), (_, high), name in zip(points, points[1:], ("place", "number"), strict=False):
        arrow: dict[str, Any] = {"arrowstyle": "-|>", "color": "0.25", "lw": 1.6}
        axes.annotate("", (0.55, high), (0.55, y), arrowprops=arrow | {"shrinkA": 0, "shrinkB": 0})
        said: dict[str, Any] = {"color": "0.25", "weight": "bold", "fontsize": 11}
        axes.text(0.535, (y + high) / 2, name, ha="right", va="center", **said)
        axes.plot((0.55, x), (y, y), color="0.75", lw=0.8, zorder=0)
    axes.plot((0.55, points[-1][0]), (high, high), color="0.75", lw=0.8, zorder=0)


#: The verdict's picture in words.
VERDICT_ALT = (
    "Recall@1 by the relative distance of the negatives that teach: two curves start in one point "
    "around the mean distance. Left of it, nearer, the curve of all that teach rises above the "
    "curve of as few. Two arrows: place, and above it number. Beside it differences with intervals."
)
