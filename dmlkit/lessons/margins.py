"""What lesson 09 draws."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Wedge
from torch import Tensor

from dmlkit import figures

NONE, MARGIN = "0.15", figures.RIGHT
INKS = {"none": NONE, "ArcFace": MARGIN, "CosFace": "#56a0d3"}
BLUE, ORANGE, GRAY = "#9ecae1", "#fdd0a2", "#dedede"


def border() -> Figure:
    """An image between two proxies, without a margin and with one."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5))
    place = 82.0  # of x, in degrees

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
            middle = (start + end) / 2 + (8 if start == place else -2)
            said = f"{end - start:.0f}°"
            axes.text(*at(middle, r + out), said, ha="center", va="center", fontsize=9)
        axes.set(xlim=(-1.2, 1.2), ylim=(-0.25, 1.28), aspect="equal")
        axes.set_axis_off()
        axes.set_title(title, fontweight="bold")
    panels[0].plot([0, 0], [0, 1.0], color="black", lw=1, ls="--")
    panels[0].text(-0.04, 1.07, "border", ha="right", fontsize=9)
    style: dict[str, Any] = {"ha": "center", "va": "top", "fontsize": 10}
    panels[0].text(0, -0.07, "x leads by 53° − 37° = 16°", color=figures.RIGHT, **style)
    panels[1].text(0, -0.07, "16°, of 29° that are asked", color=figures.RIGHT, **style)
    arc(panels[1], 90 - 14.3, 90 + 14.3, 1.04, "0.35", 3)
    panels[1].text(-0.06, 1.08, "29°", color="0.35", ha="center", fontsize=10, weight="bold")
    return fig


def wedges(
    targets: Mapping[str, Callable[[Tensor], Tensor]],
    content: Callable[[Tensor, float, Callable[[Tensor], Tensor]], tuple[Tensor, Tensor]],
    wedge: Callable[[float, Callable[[Tensor], Tensor]], float],
) -> tuple[Figure, dict[str, dict[str, float]]]:
    """Between two proxies, 90° and 60° apart: where each class is content, and where none."""
    fig, rows = plt.subplots(2, len(targets), figsize=(6.5, 3.3))
    widths: dict[str, dict[str, float]] = {name: {} for name in targets}
    for apart, line in zip((90.0, 60.0), rows, strict=True):
        for axes, (name, phi) in zip(line, targets.items(), strict=True):
            turn = torch.linspace(0, apart, 721, dtype=torch.float64)
            first, second = (each.numpy() for each in content(turn, apart, phi))
            angle = np.radians(90 - apart / 2 + turn.numpy())
            for held, ink in ((first, BLUE), (second, ORANGE), (~(first | second), GRAY)):
                ends = np.radians([90 - apart / 2, 90 + apart / 2])
                if held.any():
                    ends = angle[held][[0, -1]]
                axes.add_patch(Wedge((0, 0), 1, *np.degrees(ends), color=ink, lw=0))
            for k, end in enumerate((angle[0], angle[-1])):
                tip = math.cos(end), math.sin(end)
                arrow = {
                    "arrowstyle": "-|>",
                    "color": "black",
                    "lw": 1.4,
                    "shrinkA": 0,
                    "shrinkB": 0,
                }
                axes.annotate("", tip, (0, 0), arrowprops=arrow)
                axes.text(
                    1.13 * tip[0], 1.1 * tip[1], rf"$\hat p_{k + 1}$", ha="center", va="center"
                )
            widths[name][f"{apart:.0f}"] = width = wedge(apart, phi)
            axes.text(
                0, 1.06, f"{width:.0f}°", ha="center", va="bottom", fontsize=11, weight="bold"
            )
            axes.set(xlim=(-1.05, 1.05), ylim=(-0.03, 1.25), aspect="equal")
            axes.set_axis_off()
            if apart == 90:
                axes.set_title(figures.look(name).name, weight="bold", pad=12)
        line[0].text(-1.12, 0.45, f"{apart:.0f}°\napart", ha="right", va="center", fontsize=10)
    return fig, widths


def pull(
    lead: Tensor, settings: Mapping[tuple[float, float], Tensor]
) -> tuple[Figure, dict[str, Any]]:
    """How hard an image is pulled, by its lead (N,): curves (N,) by margin and scale."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), sharey=True, layout="constrained")
    looks: dict[float, tuple[str, float]] = {64: ("-", 2.2), 8: ("-", 2.2), 4: ("--", 1.8)}
    spots: dict[tuple[float, float], tuple[float, float, str]] = {
        (0.0, 64): (3, 0.42, "left"), (0.5, 64): (31, 0.62, "left"),
        (0.5, 8): (60, 0.87, "right"), (0.5, 4): (60, 1.04, "right"),
        (0.0, 4): (60, 0.63, "right"), (0.0, 8): (60, 0.31, "right"),
    }  # fmt: skip
    for (m, alpha), values in settings.items():
        axes = panels[0 if alpha == 64 else 1]
        ink = MARGIN if m else NONE
        axes.plot(lead, values, color=ink, ls=looks[alpha][0], lw=looks[alpha][1])
        x, y, side = spots[m, alpha]
        said = f"{f'{m:g} rad' if m else 'no margin'}" + f", α = {alpha}" * (alpha != 64)
        axes.text(x, y, said, color=ink, ha=side, va="center", weight="bold", fontsize=9)
    for axes, title in zip(panels, ("α = 64", "α = 4 and 8"), strict=True):
        axes.set_title(title, weight="bold", loc="left")
        axes.set(xlabel="lead (degrees)", ylim=(-0.04, 1.12), xlim=(-10.5, 61))
    panels[0].set_ylabel(r"pull, $\partial L / \partial \theta_y$ over α")
    at = {
        f"{m:g} at {alpha}": {f"{d}": values[lead == d].item() + 0.0 for d in (0, 30, 60)}
        for (m, alpha), values in settings.items()
    }
    return fig, {"pull": at}


def answer(
    swept: Mapping[str, Mapping[float, np.ndarray]],
    choice: Mapping[str, float],
    raw: float,
    gain: Mapping[str, np.ndarray],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by scale on validation characters; differences with intervals, the rule's first.

    ``swept`` has Recall@1 by loss and scale (networks,), ``choice`` the scale that a loss takes,
    ``raw`` what raw pixels find, ``gain`` differences by name (networks,).
    """
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.0, 3.4), width_ratios=(1, 1.2), layout="constrained"
    )
    fig.set_layout_engine("constrained", wspace=0.08)
    shown = {"none": "no margin", "ArcFace": "ArcFace", "CosFace": "CosFace"}
    for name, said in shown.items():
        scales = [*swept[name]]
        means = np.array([each.mean() for each in swept[name].values()])
        style: dict[str, Any] = {"color": INKS[name], "lw": 2, "marker": "o", "ms": 5}
        left.plot(range(len(scales)), means, label=said, **style)
        at = scales.index(choice[name])
        left.plot(at, means[at], "o", ms=12, mfc="none", mec=INKS[name], mew=1.6)
    left.axhline(raw, color="0.6", lw=1.4, ls=":", zorder=0)
    left.text(0, raw + 0.4, "raw pixels", color="0.35", va="bottom", fontsize=8)
    left.set_xticks(range(len(scales)), [f"{alpha:g}" for alpha in scales])
    left.set(xlabel="scale α", xlim=(-0.3, len(scales) - 0.7))
    left.set_title("validation characters: Recall@1 (%)", loc="left", fontsize=9, weight="bold")
    left.legend(loc="center right", bbox_to_anchor=(1, 0.4), frameon=False, fontsize=8.5)
    labels = {"ArcFace": "ArcFace − none", "placebo": "placebo: none − none",
              "CosFace": "CosFace − none", "angle": "ArcFace − CosFace",
              "validation": "ArcFace − none,\nvalidation characters"}  # fmt: skip
    figures.gains(right, {said: gain[name] for name, said in labels.items()})
    right.set_title("new characters: difference", loc="left", fontsize=9, weight="bold")
    rows = {name: figures.summary(values) for name, values in gain.items()}
    left.grid(False, axis="x")
    kept = {loss: {f"{a}": figures.sample(each) for a, each in of.items()}
            for loss, of in swept.items()}  # fmt: skip
    return fig, {"gain": rows, "raw": figures.example(raw), "validation": kept}


def leads(found: Mapping[str, np.ndarray]) -> tuple[Figure, dict[str, Any]]:
    """Where training images stand, with the margin and without.

    ``found`` has each image's lead and own angle by loss: (networks, runs, 2, images).
    """
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5), sharey=True, layout="constrained")
    asked = math.degrees(0.5)
    bins = np.arange(-48.0, 61.0, 4.0), np.arange(8.0, 85.0, 4.0)
    for place, axes in enumerate(panels):
        for name, label in (("none", "no margin"), ("ArcFace", "0.5 rad")):
            every = found[name][:, :, place].ravel()
            share = 100 * np.histogram(every, bins[place])[0] / len(every)
            axes.stairs(share, bins[place], color=INKS[name], lw=2, label=label)
        axes.grid(False, axis="x")
    panels[0].axvline(asked, color="0.6", lw=1.2, ls=":", zorder=0)
    panels[0].set(xlabel="lead (degrees)", xticks=[-30, 0, 29], xlim=(-45, 55))
    panels[0].set_ylabel("images (%)")
    panels[1].set(xlabel="angle to the own proxy (degrees)", xlim=(10, 80))
    panels[1].legend(loc="upper right", frameon=False, fontsize=9, handlelength=1.2)
    drawn: dict[str, Any] = {}
    for what, place in (("lead", 0), ("own angle", 1)):
        of = {name: np.median(each[:, :, place], axis=(1, 2)) for name, each in found.items()}
        drawn[what] = {name: figures.sample(each) for name, each in of.items()}
        drawn[f"{what}, ArcFace − none"] = figures.summary(of["ArcFace"] - of["none"])
        drawn[f"none − ArcFace, {what}"] = figures.summary(of["none"] - of["ArcFace"])
    tail = {name: 100 * (each[:, :, 0] > asked).mean(axis=(1, 2)) for name, each in found.items()}
    drawn["beyond"] = {name: figures.sample(each) for name, each in tail.items()}
    drawn["beyond, ArcFace − none"] = figures.summary(tail["ArcFace"] - tail["none"])
    return fig, drawn
