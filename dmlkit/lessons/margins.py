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
from torch import Tensor

from dmlkit import figures
from dmlkit.lessons import proxies
from dmlkit.lessons.proxies import row as row

Array = NDArray[np.float64]
NONE, MARGIN = "0.15", figures.RIGHT


def border() -> Figure:
    """An image between two proxies, without a margin and with one."""
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
    """How hard an image is pulled, by its lead (N,): a curve (N,) for each setting."""
    fig, axes = plt.subplots(figsize=(5.6, 2.6))
    spots = {"no margin, 64": (2, 0.88), "0.5 rad, 64": (29.5, 0.72), "no margin, 8": (43, 0.33)}
    for name, values in share.items():
        ink = MARGIN if name.startswith("0.5") else NONE
        axes.plot(lead, values, color=ink, lw=2.2, ls="--" if name.endswith(" 8") else "-")
        axes.text(*spots[name], name, color=ink, fontweight="bold", va="center")
    axes.set(xlabel="lead (degrees)", ylabel=r"pulled by $1 - P_y$", ylim=(-0.03, 1.05))
    axes.set_title("who is still pulled?", fontweight="bold", loc="left")
    return fig


def search(
    tried: Mapping[str, Sequence[float]], rates: Sequence[float], leads: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, beside it the median leads."""
    names = {
        name: ("no margin" if name.startswith("0 ") else f"{name.split()[0]} rad")
        + f", α = {name.split()[-1]}"
        for name in tried
    }
    renamed = {names[name]: line for name, line in tried.items()}
    sides = {names[name]: leads[name] for name in tried}
    fig, _ = proxies.search(renamed, rates, sides, "{}", ("median\nlead", "°"), (15, 75))
    tops = {name: {"best": max(line), "lead": leads[name]} for name, line in tried.items()}
    return fig, {"validation": tops}


def answer(
    found: Mapping[str, np.ndarray],
    floors: Mapping[str, np.ndarray],
    gain: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Differences of Recall@1 with 95 % intervals, the rule's first; beside it what is found.

    ``found`` has Recall@1 by setting, ``floors`` that of what needs no training, ``gain``
    differences by name; all (networks,). A line, not a dot, marks the first mean: its interval is
    narrow.
    """
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.8, 3.5), width_ratios=(1.75, 1), layout="constrained"
    )
    ink = figures.look("normalized_softmax").color
    rows = {}
    for place, (name, values) in enumerate(gain.items()):
        each = rows[name] = row(values)
        big = place == 0
        left.plot([each["low"], each["high"]], 2 * [place], color=ink,
                  lw=14 if big else 2,
                  solid_capstyle="butt", alpha=0.55 if big else 1)  # fmt: skip
        left.plot(each["mean"], place, "|" if big else "o", color=ink,
                  ms=22 if big else 6, mew=3 if big else 1)  # fmt: skip
        left.text(each["mean"], place - (0.27 if big else 0.2),
                  f"{each['mean']:+.1f}".replace("-", "−"), ha="center", va="bottom", color=ink,
                  fontsize=15 if big else 9, weight="bold" if big else "normal")  # fmt: skip
    left.axvline(0, color="0.3", lw=1, zorder=0)
    left.set_yticks(range(len(gain)), [*gain])
    left.get_yticklabels()[0].set_fontweight("bold")
    left.margins(x=0.12)
    left.set(ylim=(len(gain) - 0.5, -0.75), xlabel="difference in Recall@1 (points)")
    left.grid(False, axis="y")
    levels = {name: float(each.mean()) for name, each in floors.items()}
    floor = figures.sweep(right, found, levels, ink)["floor"]
    right.set(ylim=(0, 1.2 * max(map(np.max, found.values()))), ylabel="Recall@1 (%)")
    for text in right.texts[-len(floors) :]:  # the names of floors, within the panel
        text.set(x=-0.45, ha="left", va="bottom")
    return fig, {"gain": rows, "floor": floor}
