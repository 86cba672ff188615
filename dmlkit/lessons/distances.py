"""What lesson 04 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor, nn

from dmlkit import figures, geometry

PAYS, PAYS_NOT = figures.WRONG, figures.RIGHT
EDGES = np.linspace(0, 2, 41)
KINDS = ("nearest", "chosen", "all", "is the nearest")


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
        axes.bar(D, p, 0.015, color=figures.RIGHT, lw=0)
        axes.plot(D, 0 * D - 4, ".", color="0.2", ms=3, clip_on=False)
        axes.set(xlim=(0, 1.5), ylim=(-7, 100), xticks=(0, 0.5, 1, 1.4))
        axes.set_title(f"mean distance {size}")
        axes.grid(False, axis="x")
        shown[f"{size}"] = {"nearest": p[0], "relative": (p * D).sum() / 100 / D.mean()}
    panels[0].set_ylabel("drawn (%)")
    fig.supxlabel("distance from the anchor", fontsize=9)
    return fig, shown


def answer(
    found: Mapping[str, Sequence[float]],
    films: Mapping[str, Tensor],
    floor: Mapping[str, float],
    record: Mapping[str, Any],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the relative distance of the chosen: this page's runs, and recorded draws.

    ``films`` (R, steps, 4) have the KINDS of each step.
    """
    size: dict[str, Any] = {"figsize": (figures.WIDTH, 3.9), "width_ratios": (1.6, 1)}
    fig, (left, right) = plt.subplots(1, 2, sharey=True, **size)
    at = {name: (f[:, -10:, 1] / f[:, -10:, 2]).mean(dim=1).tolist() for name, f in films.items()}
    for end, ink, shape in (("relative", PAYS_NOT, "D"), ("plain", PAYS, "o")):
        names = [name for name in found if name.startswith("r ") and name.endswith(end)]
        middle = [(np.mean(at[name]), np.mean(found[name])) for name in names]
        left.plot(*zip(*middle, strict=True), color=ink, lw=2.2, zorder=2)
        for name in names:
            left.plot(at[name], found[name], shape, color=ink, ms=4.5, alpha=0.45, mew=0)
    for name, shape in (("cutoff 0.5", "s"), ("semi-hard", "^")):
        if name in found:
            left.plot(at[name], found[name], shape, color="0.1", ms=5.5, alpha=0.6, mew=0)
    recorded = {"0.001": "no cutoff", "1.4": "any", "semi-hard": "semi-hard"}
    drawn: dict[str, Any] = {"recorded": {}}
    for name, scores in record["recall"]["scores"].items():
        along = record["along"][name]
        ratio = (along["chosen"] / along["all"])[:, -1]
        shape = {"semi-hard": "^", "0.001": "o"}.get(name, "s")
        right.plot(ratio, scores, shape, color="0.1", ms=4.5, alpha=0.4, mew=0)
        said = recorded.get(name, name)
        drawn["recorded"][said] = {"ratio": figures.sample(ratio), "recall": figures.sample(scores)}
    for axes, lines in ((left, floor), (right, record["recall"]["floor"])):
        for name, value in lines.items():
            axes.axhline(value, color="0.5", ls=":", lw=1.3, zorder=0)
            axes.text(0.51, value + 1, name, fontsize=8, color="0.35")
        axes.set(xlim=(0.5, 1.06), ylim=(0, 80))
        axes.grid(False, axis="x")
    words = (
        (0.74, 66, "relative loss:\nshrinking pays nothing", PAYS_NOT),
        (0.85, 24, "plain loss:\nthe cloud shrinks", PAYS),
        (0.52, 48.5, "plain loss:\n■ cutoff 0.5\n▲ semi-hard", "0.1"),
    )
    for x, y, said, ink in words:
        left.text(x, y, said, color=ink, fontsize=9, va="center")
    named = (
        (0.52, 74, "0.3  0.5  0.7\n▲ semi-hard"),
        (0.74, 64, "0.9"),
        (0.96, 61, "any"),
        (0.72, 21, "no cutoff"),
    )
    for x, y, said in named:
        right.text(x, y, said, fontsize=9, va="center")
    fig.supxlabel("distance of the chosen, in mean distances of all negatives", fontsize=10)
    left.set_ylabel("Recall@1 (%)")
    left.set_title("this page", weight="bold", loc="left")
    right.set_title("recorded: the paper's draw", weight="bold", loc="left")
    pairs = {
        "nearest minus mean, relative": ("r 0 relative", "r 1 relative"),
        "nearest minus mean, plain": ("r 0 plain", "r 1 plain"),
        "cutoff minus nearest": ("cutoff 0.5", "r 0 plain"),
        "cutoff minus mean": ("cutoff 0.5", "r 1 plain"),
        "cutoff minus semi-hard": ("cutoff 0.5", "semi-hard"),
        "relative nearest minus semi-hard": ("r 0 relative", "semi-hard"),
        "relative nearest minus cutoff": ("r 0 relative", "cutoff 0.5"),
    }
    drawn["gain"] = {
        name: figures.sample(np.subtract(found[plus], found[minus]))
        for name, (plus, minus) in pairs.items()
        if plus in found and minus in found
    }
    if "cutoff 0.5" in films:
        drawn["first"] = {"nearest": figures.sample(films["cutoff 0.5"][:, 0, 3].tolist())}
    drawn["ratio"] = {name: figures.sample(each) for name, each in at.items()}
    drawn["recall"] = {name: figures.sample(each) for name, each in found.items()}
    drawn["floor"] = figures.example(dict(floor))
    return fig, drawn


def bands(films: Mapping[str, Tensor], titles: Mapping[str, str]) -> tuple[Figure, dict[str, Any]]:
    """By step the chosen, between the nearest and the mean of all: films (R, steps, 4)."""
    fig, panels = plt.subplots(1, len(titles), figsize=(figures.WIDTH, 2.8), sharey=True)
    drawn: dict[str, Any] = {}
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        nearest, chosen, mean, _ = films[name].mean(dim=0).T.numpy()  # (steps,) each
        when = np.arange(1, len(mean) + 1)
        axes.fill_between(when, nearest, mean, color="0.85", lw=0)
        axes.plot(when, chosen, color="0.1", lw=2)
        axes.set(xlim=(1, len(mean)), ylim=(0, 1.25), xlabel="step")
        axes.set_title(title, fontsize=10, loc="left", weight="bold")
        ends = films[name][:, [0, len(mean) // 4, -1]]
        drawn[name] = {kind: figures.sample(ends[..., k].tolist()) for k, kind in enumerate(KINDS)}
    panels[0].set_ylabel("distance of negatives")
    for word, share, y in (
        ("mean of all", 0.45, 0.76),
        ("chosen", 0.62, 0.5),
        ("nearest", 0.4, 0.26),
    ):
        panels[1].text(share * len(mean), y, word, fontsize=9, color="0.1")
    return fig, drawn


def batch(
    stages: Mapping[str, nn.Module],
    images: Tensor,
    labels: Tensor,
    log_q: Callable[[Tensor, int], Tensor],
) -> tuple[Figure, dict[str, Any]]:
    """Distances of a batch's negatives beside the density that the draw assumes."""
    fig, axes = plt.subplots(figsize=(4.4, 1.5))
    span = torch.linspace(0, 2, 401, dtype=torch.float64)[1:-1]
    q = log_q(span, 64).exp()
    axes.plot(span, q / q.sum() * 200, color="0.35")
    axes.text(1.5, 3.9, "q", color="0.35", fontsize=8)
    drawn: dict[str, Any] = {}
    for (when, model), ink in zip(stages.items(), (figures.WRONG, figures.RIGHT), strict=True):
        with torch.no_grad():
            D = geometry.distances(F.normalize(model(images)))[geometry.different_label(labels)]
        style: dict[str, Any] = {"density": True, "histtype": "step", "color": ink, "lw": 1.5}
        heights, _, _ = axes.hist(D.cpu().numpy(), EDGES.tolist(), **style)
        x = D.mean().item() if when == "untrained" else 1.72
        axes.text(x, np.max(heights) + 0.3, when, color=ink, fontsize=8, ha="center")
        drawn[when] = {"mean": D.mean(), "deviation": D.std()}
    axes.set(xlim=(0, 2), ylim=(0, 5.5), yticks=[], xticks=(0, 0.5, 1, 1.5, 2), xlabel="distance")
    return fig, drawn


def every(
    found: Mapping[str, Sequence[float]], floor: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each setting, side by side."""
    fig, axes = plt.subplots(figsize=(figures.WIDTH, 2.8))
    drawn = figures.sweep(axes, found, floor, "0.4", "")
    labels = ["\n".join(name.rsplit(" ", 1)) for name in found]
    axes.set_xticks(range(len(found)), labels, fontsize=8)
    axes.set(ylim=(0, 80), ylabel="Recall@1 (%)")
    return fig, drawn
