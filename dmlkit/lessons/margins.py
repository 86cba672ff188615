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

INKS = {"none": "0.15", "margin": figures.RIGHT}
EXPECTED = figures.WRONG  # the loss without a margin, at a larger rate
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
    titles = {8: "α = 8: twice the rate comes near", 64: "α = 64: no rate moves the cliff"}
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.9), sharey=True, layout="constrained")
    drawn: dict[str, Any] = {}
    for axes, (scale, title) in zip(panels, titles.items(), strict=True):
        none, margin = settings[0.0, scale], settings[0.5, scale]
        for values, ink, style in (
            (none, INKS["none"], "-"),
            (margin, INKS["margin"], "-"),
            (2 * none, EXPECTED, "--"),
        ):
            axes.plot(lead, values, style, color=ink, lw=2.2)
        axes.set_title(title, weight="bold", loc="left", fontsize=10.5)
        axes.set(xlabel="lead (degrees)", ylim=(-0.06, 1.72), xlim=(-10.5, 61))
        for name, values in (("none", none), ("margin", margin), ("factor", margin / none)):
            at = {f"{d}": values[lead == d].item() + 0.0 for d in (0, 30)}
            drawn.setdefault(name, {})[f"{scale}"] = at
    word: dict[str, Any] = {"weight": "bold", "fontsize": 9.5, "va": "center"}
    panels[0].text(59, 0.27, "no margin", color=INKS["none"], ha="right", **word)
    panels[0].text(59, 1.1, "margin, 0.5 rad", color=INKS["margin"], ha="right", **word)
    panels[0].text(0, 1.5, "no margin, twice the rate", color=EXPECTED, **word)
    panels[0].set_ylabel(r"pull, $\partial L / \partial \theta_y$ over α")
    return fig, drawn


def answer(
    found: Mapping[str, Any],
    live: Mapping[str, Any],
    best: Mapping[str, float],
    longer: Mapping[str, Any],
    lengths: Mapping[str, int],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 over the learning rate at two scales; below, over the steps, at the best rates.

    ``found`` and the reader's ``live`` have "rates" by scale and "recall", (runs, networks, rates)
    by loss and scale, and of the start (runs, networks); ``best`` is the rate of each, by
    validation characters. ``longer`` has "steps" and at scale 64 "recall" by loss, (networks,
    steps); ``lengths`` is the best of each loss.
    """
    fig, panels = plt.subplots(2, 2, figsize=(6.5, 5.8), layout="constrained")
    level = {name: each.mean(axis=0) for name, each in found["recall"].items()}  # over runs
    drawn: dict[str, Any] = {"level": {}}
    top = {}
    for scale, axes in zip(("8", "64"), panels[0], strict=True):
        rates = found["rates"][scale]
        for name, ink in INKS.items():
            each = f"{name} at {scale}"
            axes.plot(rates, level[each].mean(axis=0), "o-", color=ink, lw=2.4, ms=6)
            axes.plot(rates, live["recall"][each].mean(axis=(0, 1)), "x", color=ink, ms=7)
            top[each] = level[each][:, [*rates].index(best[each])]
            drawn["level"][each] = figures.summary(top[each])
        axes.axhline(top[f"none at {scale}"].mean(), color=EXPECTED, ls="--", lw=1.8, zorder=1)
        axes.set(xscale="log", xlabel="learning rate")
        axes.set_xticks(rates, [f"{r:g}" for r in rates])
        axes.minorticks_off()
    drawn["earlier"] = {
        scale: figures.summary(top[f"margin at {scale}"] - top[f"none at {scale}"])
        for scale in ("8", "64")
    }
    drawn["none at 8 − margin at 64"] = figures.summary(top["none at 8"] - top["margin at 64"])
    drawn["start"] = figures.summary(level["start"])
    _words(panels[0], level)
    drawn |= _longer(panels[1], longer, lengths)
    return fig, drawn


def _words(panels: np.ndarray, level: Mapping[str, np.ndarray]) -> None:
    """Titles of the sweeps over the rate, and what their lines are."""
    start = level["start"].mean()
    for axes, title in zip(panels, ("α = 8: no higher top", "α = 64: a higher top"), strict=True):
        axes.axhline(start, color="0.55", ls=":", lw=1.3, zorder=0)
        axes.text(0.98, start - 0.3, "start", transform=axes.get_yaxis_transform(), fontsize=9,
                  color="0.4", ha="right", va="top")  # fmt: skip
        axes.set(ylim=(start - 3.5, level["none at 8"].mean(0).max() + 2.5))
        axes.set_title(title, loc="left", weight="bold")
    left, right = panels
    left.set_ylabel("Recall@1 (%)")
    right.tick_params(labelleft=False)
    word: dict[str, Any] = {"weight": "bold", "fontsize": 9.5}
    said = "expected, if only a rate:\nno point above the dashes"
    left.text(0.97, start + 2.5, said, transform=left.get_yaxis_transform(), ha="right",
              color=EXPECTED, **word)  # fmt: skip
    right.text(0.56, 62.6, "margin", color=INKS["margin"], ha="right",
               transform=right.get_yaxis_transform(), **word)  # fmt: skip
    right.text(0.34, 47.2, "none", color=INKS["none"], ha="left",
               transform=right.get_yaxis_transform(), **word)  # fmt: skip


def _longer(
    panels: np.ndarray, longer: Mapping[str, Any], lengths: Mapping[str, int]
) -> dict[str, Any]:
    """Levels over the steps at scale 64, and the margin's lead; each loss at its best rate.

    The last lead is that of each loss at its own length.
    """
    left, right = panels
    steps, recall = longer["steps"], longer["recall"]
    ticks = [f"{n:,}" for n in steps]
    own = {name: recall[name][:, steps.index(n)] for name, n in lengths.items()}
    lead = dict(zip(ticks, (recall["margin"] - recall["none"]).T, strict=True))
    lead["best of\neach"] = own["margin"] - own["none"]
    drawn: dict[str, Any] = {"longer": {}, "gain": {}}
    for name, ink in INKS.items():
        left.plot(ticks, recall[name].mean(axis=0), "o-", color=ink, lw=2.4, ms=6)
        levels = zip(steps, recall[name].T, strict=True)
        drawn["longer"][name] = {f"{n}": figures.summary(each) for n, each in levels}
    for place, (label, each) in enumerate(lead.items()):
        row = figures.summary(each)
        drawn["gain"][label.replace("\n", " ").replace(",", "")] = row
        ink = "0.35" if place == len(steps) else INKS["margin"]
        right.plot([place] * 2, [row["low"], row["high"]], color=ink, lw=6, alpha=0.4)
        right.plot([place] * len(each), each, ".", color=ink, ms=4, alpha=0.6, mew=0)
        right.plot(place, row["mean"], "o", color=ink, ms=8)
        said = f"{row['mean']:+.1f}".replace("-", "−")
        right.text(place + 0.14, row["mean"], said, ha="left", va="center", color=ink,
                   weight="bold", fontsize=9.5)  # fmt: skip
    right.axhline(0, color="0.3", lw=1, zorder=1)
    right.set_xticks(range(len(lead)), [*lead])
    right.set_yticks(range(-8, 9, 4))
    right.set(xlim=(-0.4, len(steps) + 0.85), ylabel="margin − none (points)", xlabel="steps")
    left.set(xlabel="steps", ylabel="Recall@1 (%)")
    left.set_title("α = 64: the margin falls back", loc="left", weight="bold")
    right.set_title("α = 64: ahead early, then open", loc="left", weight="bold")
    return drawn
