"""What lesson 09 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
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
REMOVED = figures.WRONG  # no margin, at the settings of the margin
INKS = {"none": NONE, "margin": MARGIN}
SHADES = {0.0: NONE, 0.1: "#56a0d3", 0.5: MARGIN}
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
    titles = {4: "α = 4: nearly a factor", 8: "α = 8", 64: "α = 64: a cliff"}
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.5), sharey=True, layout="constrained")
    for axes, (scale, title) in zip(panels, titles.items(), strict=True):
        for m, ink in SHADES.items():
            axes.plot(lead, settings[m, scale], color=ink, lw=2.2)
        axes.set_title(title, weight="bold", loc="left")
        axes.set(xlabel="lead (degrees)", ylim=(-0.04, 1.12), xlim=(-10.5, 61))
    for (m, ink), y in zip(SHADES.items(), (0.64, 0.86, 1.05), strict=True):
        said = f"{m:g} rad" if m else "no margin"
        panels[0].text(60, y, said, color=ink, ha="right", va="center", weight="bold", fontsize=9)
    panels[0].set_ylabel(r"pull, $\partial L / \partial \theta_y$ over α")
    at = {
        f"{m:g} at {alpha}": {f"{d}": values[lead == d].item() + 0.0 for d in (0, 30, 60)}
        for (m, alpha), values in settings.items()
    }
    return fig, {"pull": at}


def answer(
    found: Mapping[str, np.ndarray], steps: Sequence[int], live: Sequence[float], raw: float
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the steps of a training, with a margin and without; below, the difference.

    ``found`` has Recall@1 by loss (networks, 2, steps), of "removed", the margin's settings without
    it, at the first length; ``live`` what the reader's own trainings gain at the first lengths.
    The placebo, run minus run, is scaled to the scatter of a mean of two.
    """
    fig, (top, low) = plt.subplots(
        2, 1, figsize=(6.5, 5.4), height_ratios=(1, 1.15), sharex=True, layout="constrained"
    )
    mean = {name: each.mean(axis=1) for name, each in found.items()}
    _levels(top, {name: each.mean(axis=0) for name, each in mean.items()}, raw)
    gain = mean["margin"] - mean["none"]
    change = {
        "gain": gain,
        "placebo": np.diff(found["none"], axis=1)[:, 0] / math.sqrt(2),
        "shared": mean["margin, shared"] - mean["none, shared"],
        "removed": mean["margin"][:, :1] - mean["removed"],
        "rate": mean["removed"] - mean["none"][:, :1],
        "own − shared": mean["none"][:, : len(live)] - mean["none, shared"],
    }
    drawn: dict[str, Any] = {"level": {}, "first − last": figures.summary(gain[:, 0] - gain[:, -1])}
    for kept, group in ((drawn, change), (drawn["level"], mean)):
        for name, each in group.items():
            rows = zip(steps, each.T, strict=False)
            kept[name] = {f"{n}": figures.summary(row) for n, row in rows}
    low.axhline(0, color="0.3", lw=1, zorder=1)
    for name, shift, ink, lw, mark, ms in (
        ("placebo", 0.13, "0.75", 6, "_", 1),
        ("removed", 0.25, REMOVED, 2.4, "D", 6),
        ("gain", 0, MARGIN, 2.4, "o", 8),
    ):
        for place, row in enumerate(drawn[name].values()):
            ends = [row["low"], row["high"]]
            low.plot([place + shift] * 2, ends, color=ink, lw=lw, solid_capstyle="butt")
            low.plot(place + shift, row["mean"], mark, color=ink, ms=ms)
    _words(low, drawn["gain"], live)
    low.set_xticks(range(len(steps)), [*map(str, steps[:-1]), f"{steps[-1]}\n(settings of 400)"])
    low.set(xlabel="steps of the training", xlim=(-0.6, len(steps) - 0.35))
    return fig, drawn


def _words(axes: Axes, gain: Mapping[str, Mapping[str, Any]], live: Sequence[float]) -> None:
    """What the marks of the differences are, their numbers, and the reader's own."""
    for place, row in enumerate(gain.values()):
        at = [round(row[end], 1) + 0.0 for end in ("mean", "low", "high")]  # no −0
        said = f"{at[0]:+.1f}\n[{at[1]:.1f}, {at[2]:.1f}]".replace("-", "−")
        style: dict[str, Any] = {"ha": "right", "va": "center", "fontsize": 9}
        axes.text(place - 0.09, row["mean"], said, color=MARGIN, **style)
    axes.plot(range(len(live)), live, "x", ms=8, color="black", mew=1.6)
    axes.text(-0.09, live[0], "your run", color="black", **style)
    style |= {"ha": "left", "weight": "bold"}
    axes.text(0.31, -1.5, "both at the\nmargin's\nsettings", color=REMOVED, **style)
    axes.text(len(gain) - 0.81, 1.9, "none\n− none", color="0.45", **style)
    axes.set_title("Margin minus none: early, a gain", loc="left", weight="bold")
    axes.set_ylabel("points of Recall@1")


def _levels(axes: Axes, mean: Mapping[str, np.ndarray], raw: float) -> None:
    """Curves of Recall@1 by place, and the loss without a margin at the margin's settings."""
    for name, ink in INKS.items():
        axes.plot(range(len(mean[name])), mean[name], "o-", color=ink, lw=2.2, ms=7)
    words: dict[str, Any] = {"textcoords": "offset points", "weight": "bold", "va": "center"}
    last, above = len(mean["none"]) - 1, mean["margin"][-1] > mean["none"][-1]
    for name, y in (("margin", 6 if above else -7), ("none", -7 if above else 6)):
        axes.annotate(name, (last, mean[name][-1]), (9, y), color=INKS[name], **words)
    (same,) = mean["removed"]
    axes.plot(0.09, same, "D", color=REMOVED, ms=6, zorder=3)
    said = "none, at the margin's settings"
    axes.annotate(said, (0.09, same), (26, -4), color=REMOVED, fontsize=9, **words)
    axes.axhline(raw, color="0.6", lw=1.4, ls=":", zorder=0)
    axes.text(last + 0.6, raw, "raw pixels", color="0.35", va="bottom", ha="right", fontsize=9)
    axes.set_title(
        "New characters: both losses find most after 400 steps", loc="left", weight="bold"
    )
    axes.set_ylabel("Recall@1 (%)")


def tight(found: Mapping[str, np.ndarray], steps: Sequence[int]) -> tuple[Figure, dict[str, Any]]:
    """Medians of training images by the steps of a training: their lead and their own angle.

    ``found`` has both in degrees by loss: (networks, steps, 2).
    """
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.8), layout="constrained")
    drawn: dict[str, Any] = {}
    names = {"lead": "The lead grows past that of none", "own angle": "The own angle stays smaller"}
    for place, (axes, (what, said)) in enumerate(zip(panels, names.items(), strict=True)):
        for name, label in (("none", "no margin"), ("margin", "margin")):
            values = found[name][:, :, place]
            figures.curve(axes, range(len(steps)), values, label, color=INKS[name], lw=2.2)
            rows = {f"{n}": figures.summary(values[:, k]) for k, n in enumerate(steps)}
            drawn.setdefault(what, {})[name] = rows
        change = found["margin"][:, :, place] - found["none"][:, :, place]
        for sign, title in ((1, f"{what}, margin − none"), (-1, f"none − margin, {what}")):
            drawn[title] = {
                f"{n}": figures.summary(sign * change[:, k]) for k, n in enumerate(steps)
            }
        axes.set_xticks(range(len(steps)), [f"{n}" for n in steps])
        axes.set_title(said, loc="left", weight="bold")
        axes.set_xlabel("steps of the training")
    panels[0].set_ylabel("degrees")
    panels[0].legend(frameon=False, loc="lower right")
    return fig, drawn


def search(tried: Sequence[Sequence[float]]) -> tuple[Figure, dict[str, Any]]:
    """Validation Recall@1 by learning rate: rows of steps, margin, scale, rate, network, score."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.8), sharey=True, layout="constrained")
    inks = {0.0: NONE, 0.1: "#9ecae1", 0.3: "#56a0d3", 0.5: MARGIN}
    drawn: dict[str, Any] = {}
    for axes, steps in zip(panels, (100, 200, 400), strict=True):
        for m, ink in inks.items():
            scores: dict[float, dict[float, list[float]]] = {}
            for n, margin, scale, rate, _, score in tried:
                if (n, margin) == (steps, m):
                    scores.setdefault(rate, {}).setdefault(scale, []).append(score)
            best = {r: max(np.mean(v) for v in scores[r].values()) for r in sorted(scores)}
            label = f"{m:g} rad" if m else "no margin"
            axes.plot([*best], [*best.values()], "o-", color=ink, lw=2, ms=5, label=label)
            drawn[f"{m:g} rad, {steps} steps"] = {f"{r:g}": float(v) for r, v in best.items()}
        axes.set_xscale("log")
        axes.set_xticks([0.0025, 0.01, 0.04], ["0.0025", "0.01", "0.04"])
        axes.set_xlim(0.0009, 0.12)
        axes.minorticks_off()
        axes.set_title(f"{steps} steps", loc="left", weight="bold")
        axes.set_xlabel("learning rate")
    panels[0].set_ylabel("Recall@1 (%)")
    panels[2].legend(frameon=False, loc="lower right", fontsize=8.5)
    return fig, drawn
