"""What lesson 09 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from numpy.typing import NDArray
from scipy.stats import gaussian_kde
from torch import Tensor

from dmlkit import figures

Array = NDArray[np.float64]
NONE, MARGIN = "0.15", figures.RIGHT


def border() -> Figure:
    """A photograph between two proxies, without a margin and with one."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5))
    BLUE, ORANGE, GRAY, place = "#9ecae1", "#fdd0a2", "#dedede", 82.0  # of x, in degrees

    def at(turn: float, r: float) -> tuple[float, float]:
        return r * math.cos(math.radians(turn)), r * math.sin(math.radians(turn))

    def arc(axes: Axes, start: float, end: float, r: float, ink: str, lw: float) -> None:
        t = np.radians(np.linspace(start, end, 40))
        axes.plot(r * np.cos(t), r * np.sin(t), color=ink, lw=lw, solid_capstyle="butt")

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
            (place, 0.96, figures.RIGHT),
        ):
            arrow = {"arrowstyle": "-|>", "color": ink, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", at(turn, length), (0, 0), arrowprops=arrow)
        for turn, name in ((45, r"$\hat p_1$"), (135, r"$\hat p_2$"), (place - 2, "$x$")):
            axes.text(*at(turn, 1.12), name, ha="center", va="center", fontsize=12)
        for (start, end), r, out in (((45.0, place), 0.42, 0.12), ((place, 135.0), 0.42, 0.12)):
            arc(axes, start, end, r, "black", 1)
            middle = (start + end) / 2 + (2 if start == place else 0)
            said = f"{end - start:.0f}°"
            axes.text(*at(middle, r + out), said, ha="center", va="center", fontsize=9)
        axes.set(xlim=(-1.2, 1.2), ylim=(-0.25, 1.25), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontweight="bold")
    panels[0].plot([0, 0], [0, 1.0], color="black", lw=1, ls="--")
    panels[0].text(-0.04, 1.07, "border", ha="right", fontsize=9)
    style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 10}
    panels[0].text(0, -0.07, "x leads by 53° − 37° = 16°", color=figures.RIGHT, **style)
    panels[1].text(0, -0.07, "16°, of 29° that are asked", color=figures.RIGHT, **style)
    arc(panels[1], 90 - 14.3, 90 + 14.3, 1.04, "0.35", 3)
    panels[1].text(-0.3, 1.08, "29°", color="0.35", ha="right", fontsize=9)
    return fig


def wedges(
    targets: Mapping[str, Callable[[Tensor], Tensor]],
    wedge: Callable[[float, Callable[[Tensor], Tensor]], float],
) -> tuple[Figure, list[int], dict[str, list[float]]]:
    """The width of the wedge by the angle between the proxies."""
    fig, axes = plt.subplots(figsize=(4.6, 2.5))
    apart = [*range(55, 181, 5)]
    widths = {name: [wedge(a, phi) for a in apart] for name, phi in targets.items()}
    ends = {"cosface": (56, 54), "arcface": (140, 34), "sphereface": (92, 80)}
    for name, width in widths.items():
        look = figures.look(name)
        axes.plot(apart, width, color=look.color, lw=2)
        axes.text(*ends[name], look.name, color=look.color, fontweight="bold")
    axes.set(xlabel="angle between the proxies (degrees)", ylabel="wedge (degrees)", ylim=(0, 112))
    axes.set_title("nearer: CosFace's alone widens", fontweight="bold", loc="left")
    return fig, apart, widths


def pull(lead: Tensor, share: Mapping[str, Tensor]) -> Figure:
    """How hard a photograph is pulled, by its lead (N,): a curve (N,) for each setting."""
    fig, axes = plt.subplots(figsize=(5.6, 2.6))
    spots = {"no margin, 64": (2, 0.88), "0.5 rad, 64": (29.5, 0.72), "no margin, 8": (43, 0.33)}
    for name, values in share.items():
        ink = MARGIN if name.startswith("0.5") else NONE
        axes.plot(lead, values, color=ink, lw=2.2, ls="--" if name.endswith(" 8") else "-")
        axes.text(*spots[name], name, color=ink, fontweight="bold", va="center")
    axes.set(xlabel="lead (degrees)", ylabel=r"pulled by $1 - P_y$", ylim=(-0.03, 1.05))
    axes.set_title("who is still pulled?", fontweight="bold", loc="left")
    return fig


def leads(settings: Mapping[str, Array], asked: float) -> tuple[Figure, dict[str, Any]]:
    """How the leads (degrees) of training photographs are spread, a row for each setting."""
    fig, axes = plt.subplots(figsize=(6.4, 3.4))
    grid = np.linspace(-15, 60, 301)
    for row, (name, lead) in enumerate(settings.items()):
        ink = NONE if name.startswith("none") else MARGIN
        high = gaussian_kde(lead)(grid)
        base = -float(row)
        high = base + 0.82 * high / high.max()
        axes.fill_between(grid, base, high, color=ink, alpha=0.25, lw=0)
        axes.plot(grid, high, color=ink, lw=1.6)
        middle = float(np.median(lead))
        axes.plot([middle] * 2, [base, base + 0.82], color=ink, lw=2)
        axes.text(middle - 0.6, base + 0.06, f"{middle:.0f}°", color=ink, weight="bold", ha="right")
    axes.axvline(0, color="0.3", lw=1)
    axes.axvline(asked, color=figures.WRONG, lw=1.4, ls="--")
    axes.text(asked + 0.5, 0.93, f"{asked:.0f}°, asked by 0.5 rad", color=figures.WRONG, fontsize=9)
    axes.set_yticks([-float(k) + 0.25 for k in range(len(settings))], list(settings))
    axes.set(xlim=(-15, 60), ylim=(-len(settings) + 0.95, 1.1), xlabel="lead (degrees)")
    axes.grid(False, axis="y")
    return fig, {name: figures.example(float(np.median(x))) for name, x in settings.items()}


def medians(
    lead: Mapping[tuple[float, float], Sequence[float]], scales: Sequence[float], asked: float
) -> tuple[Figure, dict[str, Any]]:
    """The median lead of each repetition, by scale, without a margin and with one."""
    fig, panels = plt.subplots(1, 2, figsize=(6.8, 2.6), sharey=True, layout="constrained")
    drawn = {}
    for axes, m, ink in zip(panels, (0.0, 0.5), (NONE, MARGIN), strict=True):
        each = {f"{alpha:g}": lead[m, alpha] for alpha in scales}
        drawn[f"{m:g}"] = figures.sweep(
            axes, each, {f"{asked:.0f}° asked": asked} if m else {}, ink, "°"
        )
        axes.set(xlabel="scale", ylim=(0, 36))
        axes.set_title(f"{m:g} rad" if m else "no margin", weight="bold", loc="left")
    panels[0].set_ylabel("median lead (degrees)")
    return fig, drawn


def answer(
    mean: Mapping[tuple[float, float], Array],
    scales: Sequence[float],
    untouched: float,
    gain: Mapping[str, Array],
    printed: float,
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by kind of unseen product over the scale, and differences of settings."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.8, 3.8), width_ratios=(1.1, 1), layout="constrained"
    )
    for m, ink in ((0.0, NONE), (0.5, MARGIN)):
        line = [mean[m, alpha].mean() for alpha in scales]
        left.plot(scales, line, "o-", color=ink, lw=2.4, ms=6)
        name = f"{m:g} rad" if m else "no margin"
        left.annotate(name, (scales[-1], line[-1]), (8, 0), textcoords="offset points",
                      color=ink, va="center", weight="bold")  # fmt: skip
    left.axhline(untouched, color="0.5", ls=":", lw=1.4, zorder=0)
    left.text(scales[-1] * 3.7, untouched + 0.05, f"untouched, {untouched:.1f} %", va="bottom",
              ha="right", color="0.35", fontsize=9)  # fmt: skip
    left.set_xscale("log", base=2)
    left.set(xticks=scales, xticklabels=[f"{a:g}" for a in scales], xlabel="scale")
    left.set(xlim=(scales[0] / 1.2, scales[-1] * 3.8), ylabel="Recall@1, unseen products (%)")
    left.minorticks_off()
    left.margins(y=0.12)
    left.set_title("what is found", weight="bold", loc="left")
    drawn = figures.dots(right, gain, "", color=MARGIN, ms=7, lw=2.2)
    right.axvline(0, color="0.3", lw=1)
    right.axvline(printed, color=figures.WRONG, ls="--", lw=1.4)
    right.text(printed + 0.1, -0.42, "printed", color=figures.WRONG, va="center", fontsize=9)
    parts = [
        name.partition(", " if name.startswith("0.5 rad − none, ") else " − ") for name in gain
    ]
    names = [f"{a}\n{sign.strip()} {b}".replace("\n, ", ",\n") for a, sign, b in parts]
    right.set_yticks(range(len(gain)), names)
    right.set(xlabel="points of Recall@1", ylim=(len(gain) - 0.5, -0.6))
    right.set_title("differences", weight="bold", loc="left")
    found = {f"{m:g} at {alpha:g}": figures.sample(each) for (m, alpha), each in mean.items()}
    return fig, {"gain": drawn, "found": found, "untouched": untouched}
