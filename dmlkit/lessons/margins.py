"""What lesson 09 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from torch import Tensor

from dmlkit import figures


def border() -> Figure:
    """A photograph between two proxies, without a margin and with one."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.2))
    BLUE, ORANGE, GRAY, place = "#9ecae1", "#fdd0a2", "#8c8c8c", 82.0  # of x, in degrees
    titles = "no margin: x is on its side", "a margin of 29°: x is in the wedge"
    for axes, m, title in zip(panels, (0.0, 0.5), titles, strict=True):
        half = math.degrees(m) / 2
        for start, end, ink in (
            (0, 90 - half, BLUE),
            (90 - half, 90 + half, GRAY),
            (90 + half, 180, ORANGE),
        ):
            axes.add_patch(Wedge((0, 0), 1, start, end, color=ink, lw=0))
        for turn, length, ink in (
            (45, 1.0, "black"),
            (135, 1.0, "black"),
            (place, 0.92, figures.RIGHT),
        ):
            tip = length * math.cos(math.radians(turn)), length * math.sin(math.radians(turn))
            arrow = {"arrowstyle": "-|>", "color": ink, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", tip, (0, 0), arrowprops=arrow)
        for turn, name in ((45, r"$\hat p_1$"), (135, r"$\hat p_2$"), (place, "$x$")):
            a, b = math.cos(math.radians(turn)), math.sin(math.radians(turn))
            axes.text(1.12 * a, 1.12 * b, name, ha="center", va="center", fontsize=12)
        axes.set(xlim=(-1.25, 1.25), ylim=(-0.02, 1.25), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontweight="bold")
    for axes in panels:
        for (start, end), r in (((45, place), 0.45), ((place, 135), 0.6)):
            t = np.radians(np.linspace(start, end, 40))
            axes.plot(r * np.cos(t), r * np.sin(t), color="black", lw=1)
            middle = math.radians((start + end) / 2 + (6 if start == place else 0))
            said = f"{end - start:.0f}°"
            axes.text(
                (r + 0.13) * math.cos(middle),
                (r + 0.13) * math.sin(middle),
                said,
                ha="center",
                va="center",
                fontsize=9,
            )
    panels[0].plot([0, 0], [0, 1.0], color="black", lw=1, ls="--")
    for axes, name in zip(panels, ("border", "wedge"), strict=True):
        axes.text(-0.04, 1.07, name, ha="right", fontsize=10)
    return fig


def wedges(
    targets: Mapping[str, Callable[[Tensor], Tensor]],
    wedge: Callable[[float, Callable[[Tensor], Tensor]], float],
) -> tuple[Figure, list[int], dict[str, list[float]]]:
    """Lowered scores, and the width of the wedge by the angle between the proxies."""
    fig, (scores, axes) = plt.subplots(1, 2, figsize=(6.2, 2.4), width_ratios=(2, 3))
    theta, apart = torch.arange(0, 181, 2.0).deg2rad(), [*range(55, 181, 5)]
    scores.plot(theta.rad2deg(), theta.cos(), color="0.1", lw=1.5, ls="--")
    for name in ("cosface", "arcface"):
        scores.plot(theta.rad2deg(), targets[name](theta), color=figures.look(name).color, lw=2)
    scores.text(72, 0.6, "cos θ, no margin", fontsize=9)
    scores.set(xlabel="θ to the own proxy (degrees)", ylabel="own score", xticks=[0, 90, 180])
    scores.set_title("lowered scores", fontweight="bold", loc="left")
    widths = {name: [wedge(a, phi) for a in apart] for name, phi in targets.items()}
    ends = {"cosface": (56, 54), "arcface": (140, 34), "sphereface": (92, 80)}
    for name, width in widths.items():
        look = figures.look(name)
        axes.plot(apart, width, color=look.color, lw=2)
        axes.text(*ends[name], look.name, color=look.color, fontweight="bold")
    axes.set(xlabel="angle between the proxies (degrees)", ylabel="wedge (degrees)", ylim=(0, 112))
    axes.set_title("nearer: CosFace's alone widens", fontweight="bold", loc="left")
    return fig, apart, widths


def answer(
    chosen: Mapping[float, Sequence[float]],
    found: Mapping[str, np.ndarray],
    untouched: float,
    scales: Sequence[float],
    searched: Mapping[tuple[float, float], Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the scale, and the gains of the margin; with the numbers that both draw."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 3.1), width_ratios=(1.15, 1))
    inks = {0.0: "0.15", 0.5: figures.RIGHT}
    base = np.array(searched[0.0, 8.0])
    for m, ink in inks.items():
        paired = np.array([searched[m, alpha] - base for alpha in scales])  # (scales, repetitions)
        left.plot(scales, paired, color=ink, lw=0.7, alpha=0.4)
        left.plot(scales, paired.mean(axis=1), "o-", color=ink, lw=2.4, ms=4.5)
        name = f"{m:g} rad" if m else "none"
        left.text(1.12 * scales[-1], paired[-1].mean(), name, color=ink, va="center", weight="bold")
    left.set_xscale("log", base=2)
    left.set(xticks=scales, xticklabels=[f"{a:g}" for a in scales], xlim=(3.6, 200), xlabel="scale")
    left.set_ylabel("Recall@1 minus that of\nno margin, scale 8 (points)")
    left.grid(False)
    left.minorticks_off()
    left.set_title("validation products", weight="bold", loc="left")
    score = {name: each[:, 1] for name, each in found.items()}
    gain = {
        "each at its\nchosen scale": score["0.5, own scale"] - score["none, own scale"],
        "both at 64": score["0.5 at 64"] - score["none at 64"],
        "0.5 rad at 64,\nnone at 8": score["0.5 at 64"] - score["none at 8"],
    }
    drawn = figures.differences(right, gain, "points of Recall@1")
    drawn = {"gain": {name.replace("\n", " "): each for name, each in drawn.items()}}
    right.set_yticks(range(len(gain)), gain)
    right.plot(2.6, -0.42, "*", color=figures.WRONG, ms=9)
    right.text(2.95, -0.42, "printed", color=figures.WRONG, va="center", fontsize=9)
    right.set_title("unseen products: 0.5 rad − none", weight="bold", loc="right")
    drawn["chosen"] = figures.example({f"{m:g}": each for m, each in chosen.items()})
    drawn["lead"] = {name: figures.sample(each[:, 0]) for name, each in found.items()}
    drawn["recall"] = {name: figures.sample(each) for name, each in score.items()}
    more = gain["both at 64"] - gain["each at its\nchosen scale"]
    drawn["more at 64"] = figures.sample(more)
    drawn["scale alone"] = figures.sample(score["none at 8"] - score["none at 64"])
    drawn["untouched features"] = figures.example(untouched)
    return fig, drawn
