"""What lesson 07 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dmlkit import figures

#: Of the twelve points, whose classes are shapes; colors are forces.
CLASSES = ("0.1", "0.4", "0.6")
#: Of the explorable's links and arrows: what pushes, and what pulls.
PUSH, PULL = "#c05000", "#0072b2"
#: The lines of the answer: their names, inks and marks.
LINES = {
    "triplets": ("semi-hard triplets", "0.25", "s"),
    "clustering": ("structured clustering", "#a50f5e", "o"),
    "start": ("before either loss", "#7a7a7a", "^"),
}
#: How far the names stand from the right ends of the lines, in points.
BESIDE = {"triplets": 5, "clustering": -4, "start": -12}
#: A network is tested on a twelfth of the characters, and shares a part of those it learns.
OVERLAP = 1 / 12


def _dozen(number: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """Panels for the twelve points."""
    fig, panels = plt.subplots(1, number, figsize=(7.4, height), layout="constrained")
    for axes in panels:
        axes.set(xlim=(-1.7, 1.5), ylim=(-1.15, 1.25), aspect="equal")
        axes.set_axis_off()
    return fig, panels


def _points(axes: Axes, x: np.ndarray, title: str) -> None:
    """Twelve points of three classes (12, 2)."""
    for k in range(3):
        axes.plot(*x[4 * k : 4 * k + 4].T, "os^"[k], color=CLASSES[k], ms=6.5, mew=0, zorder=3)
    axes.set_title(title, loc="left", weight="bold", fontsize=9.5)


def clusterings(x: np.ndarray, to: Mapping[str, Sequence[int]]) -> Figure:
    """Twelve points (12, 2), each with a link to its medoid in the best and the true clustering.

    ``to`` has, by title, the place of each point's medoid.
    """
    fig, panels = _dozen(2, 2.6)
    for axes, color, (title, medoid_of) in zip(panels, (PUSH, PULL), to.items(), strict=True):
        for i, j in enumerate(medoid_of):
            axes.plot(*x[[i, j]].T, color=color, lw=1.8, alpha=0.75, zorder=1)
        axes.plot(*x[[*set(medoid_of)]].T, "o", ms=15, mfc="none", mec=color, mew=1.8)
        _points(axes, x, title)
    return fig


def links(x: np.ndarray, nearest: Mapping[float, Sequence[int]], own: Sequence[int]) -> Figure:
    """Links to the chosen and the own medoids (ringed), and the sum of each point's forces."""
    fig, panels = _dozen(3, 2.6)
    edge = [patheffects.withStroke(linewidth=4, foreground="w")]
    for axes, (gamma, chosen) in zip(panels, nearest.items(), strict=True):
        force = np.zeros_like(x)
        ends: list[set[frozenset[int]]] = [set(), set()]
        for color, far, sign, of in ((PUSH, 17, 1, chosen), (PULL, 13, -1, own)):
            axes.plot(*x[[*set(of)]].T, "o", ms=far, mfc="none", mec=color, mew=1.5, zorder=2)
            for i, j in enumerate(of):
                ends[sign < 0].add(frozenset((i, j)))
                way = sign * (x[i] - x[j]) / max(float(np.linalg.norm(x[i] - x[j])), 1e-12)
                force[[i, j]] += [way, -way]
        for color, pairs in zip(("0.6", PUSH, PULL), _kinds(*ends), strict=True):
            look = {"lw": 1.2, "ls": ":"} if color == "0.6" else {"lw": 1.8, "alpha": 0.6}
            for pair in pairs:
                axes.plot(*x[[*pair]].T, color=color, zorder=1, **look)
        moving = np.linalg.norm(force, axis=1) > 1e-9
        for at, way in zip(x[moving], force[moving], strict=True):
            unit = way / np.linalg.norm(way)
            props = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "mutation_scale": 11,
                     "color": "k", "lw": 1.6, "path_effects": edge}  # fmt: skip
            axes.annotate("", at + (0.1 + 0.28 * np.linalg.norm(way)) * unit, at + 0.1 * unit,
                          arrowprops=props, zorder=4, annotation_clip=False)  # fmt: skip
        _points(axes, x, f"γ = {gamma:g}: {moving.sum()} of 12 feel a force")
    return fig


def _kinds(push: set[frozenset[int]], pull: set[frozenset[int]]) -> tuple[set[frozenset[int]], ...]:
    """Links of both clusterings, which cancel; of the chosen one alone; of the true one alone."""
    return push & pull, push - pull, pull - push


def _by(steps: Sequence[int], values: np.ndarray) -> dict[str, dict[str, Any]]:
    """By steps of pretraining: mean and interval of values (n, P)."""
    return {
        str(step): figures.summary(each, OVERLAP)
        for step, each in zip(steps, values.T, strict=True)
    }


def _levels(
    axes: Axes, kept: Mapping[str, np.ndarray], mine: Mapping[str, np.ndarray], floor: float
) -> None:
    """Recall@1 of ``LINES`` over the steps of pretraining."""
    last = int(kept["steps"][-1])
    for name, (said, ink, mark) in LINES.items():
        mean = kept[name].mean(axis=0)
        dash = "--" if name == "start" else "-"
        axes.plot(kept["steps"], mean, mark, ls=dash, color=ink, ms=7, mec="w", lw=2)
        for each in mine[name]:  # beside the means
            axes.plot(np.array(mine["steps"]) - 25, each, "x", color=ink, ms=5, mew=1.3, zorder=3)
        axes.annotate(said, (last, mean[-1]), (9, BESIDE[name]), color=ink, weight="bold",
                      textcoords="offset points", fontsize=9)  # fmt: skip
    axes.axhline(floor, color="0.5", ls=":", lw=1.5, zorder=0)
    axes.text(last, floor, "raw pixels", ha="right", va="bottom", fontsize=9, color="0.35")
    axes.set_ylabel("Recall@1, new characters (%)")


def answer(
    kept: Mapping[str, Any], mine: Mapping[str, Any], floor: float, titles: tuple[str, str]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 over the steps of pretraining; below, structured clustering minus triplets.

    ``kept`` has the recorded run: Recall@1 (n, P) by the names of ``LINES``, "pairs" that a step
    moves by loss, and "steps" (P,); ``mine`` likewise this page's, ``floor`` what raw pixels find.
    """
    steps, ink = [int(each) for each in kept["steps"]], LINES["clustering"][1]
    gap = kept["clustering"] - kept["triplets"]
    fig, panels = plt.subplots(
        2, sharex=True, figsize=(6.5, 6.2), height_ratios=(2, 3), layout="constrained"
    )
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, loc="left", weight="bold", fontsize=10)
    _levels(panels[0], kept, mine, floor)
    below, rows = panels[1], _by(steps, gap)
    below.axhline(0, color="0.3", lw=1, zorder=1)
    for at, row, each in zip(steps, rows.values(), gap.T, strict=True):
        shift = at - np.linspace(12, 36, len(each))
        below.plot(shift, each, ".", color=ink, ms=4, alpha=0.5, mew=0)
        below.plot([at, at], [row["low"], row["high"]], color=ink, lw=6, alpha=0.4)
        below.plot(at, row["mean"], "o", color=ink, ms=8)
        said = f"{row['mean']:+.1f}\n[{row['low']:.1f}, {row['high']:.1f}]".replace("-", "−")
        below.text(at + 22, row["mean"], said, color=ink, va="center", fontsize=9)
    for each in mine["clustering"] - mine["triplets"]:
        below.plot(mine["steps"], each, "x", color="0.1", ms=5, mew=1.3, zorder=3)
    below.set_xticks(steps, [f"{step:,}" for step in steps])
    below.set(xlabel="steps of pretraining on other characters", xlim=(-60, 1450))
    below.set_ylabel("points of Recall@1")
    drawn: dict[str, Any] = {
        "gap": rows,
        "change": figures.summary(gap[:, -1] - gap[:, 0], OVERLAP),
    }
    drawn["shortfall"] = figures.summary(-gap[:, -1], OVERLAP)
    for name in LINES:
        drawn[name] = _by(steps, kept[name])
    for name, counts in kept["pairs"].items():
        drawn[f"{name} − start"] = _by(steps, kept[name] - kept["start"])
        drawn[f"{name}, pairs"] = _by(steps, counts)
    records = {name: figures.sample(kept[name]) for name in LINES}
    pairs = {name: figures.sample(counts) for name, counts in kept["pairs"].items()}
    drawn["kept"] = records | {"pairs": pairs, "steps": figures.example(steps)}
    return fig, drawn | {"raw pixels": figures.example(floor)}
