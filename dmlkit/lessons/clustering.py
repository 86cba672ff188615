"""What lesson 07 draws, and the triplets that it compares with."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import dmlkit
from dmlkit import figures
from dmlkit.losses.mining import semihard_negatives

CLASSES = ("#0072b2", "#d55e00", "#009e73")
INK, TRIPLETS = "#a50f5e", "0.25"
#: Of the two panels over the margin: what is seen, and what is measured.
TITLES = ("no margin reaches the triplets", "no margin moves many pairs")
MEASURED = ("Recall@1, unseen characters (%)", "pairs moved in a step, of 2,016")
#: Of the margins in the search, from small to large, and its rates.
SHADES = ("#e69f00", "#d55e00", "#a50f5e", "#3b0f70")
RATES = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
#: Of the explorable's links and arrows: what pushes, and what pulls.
PUSH, PULL = "#c05000", "#0072b2"
RIVAL = "semi-hard triplets"
#: Semi-hard triplets of a third of the positive pairs, drawn anew at each step.
THINNED = "a third of the triplets"
FILE = dmlkit.ROOT / "data" / "evidence" / "07_clustering.csv"
#: A network is tested on a twelfth of the new characters, and shares a part of those it learns.
OVERLAP = 1 / 12


def triplets(D: Tensor, y: Tensor, share: float = 1.0) -> Tensor:
    """Semi-hard triplets of a random share of the positive pairs: (B, B), (B,) -> scalar.

    >>> y = torch.tensor([0, 0, 1])
    >>> triplets(torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]), y)
    tensor(0.1000)
    """
    same, D2 = y[:, None] == y, D.square()
    n = semihard_negatives(D2.detach(), ~same)
    positive = same & ~torch.eye(len(y), dtype=torch.bool) & (torch.rand(D.shape) < share)
    hinge = (D2 - D2.gather(1, n) + 0.2).relu()[positive]
    return hinge.sum() / max(len(hinge), 1)


def pairs(slope: Tensor) -> int:
    """How many pairs of images a loss moves, from its derivative by their distances (B, B).

    >>> pairs(torch.tensor([[0.0, 1.0, 1.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]))
    1
    """
    return int(((slope + slope.T).triu(1) != 0).sum())


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
    """What is left of both clusterings: links that differ, and forces, by margin."""
    fig, panels = _dozen(3, 2.2)
    props = {"arrowstyle": "-|>", "shrinkA": 3, "shrinkB": 0, "mutation_scale": 11, "color": "k"}
    for axes, (gamma, chosen) in zip(panels, nearest.items(), strict=True):
        force = np.zeros_like(x)
        for i, (n, o) in enumerate(zip(chosen, own, strict=True)):
            if n == o:
                axes.plot(*x[[i, n]].T, color="0.7", lw=1.2, ls=":", zorder=1)
                continue
            for color, j, sign in ((PUSH, n, 1), (PULL, o, -1)):
                axes.plot(*x[[i, j]].T, color=color, lw=1.8, alpha=0.75, zorder=1)
                way = sign * (x[i] - x[j]) / max(float(np.linalg.norm(x[i] - x[j])), 1e-12)
                force[i] += way
                force[j] -= way
        moving = np.linalg.norm(force, axis=1) > 1e-9
        for at, way in zip(x[moving], force[moving], strict=True):
            axes.annotate("", at + 0.26 * way, at, arrowprops=props | {"lw": 1.6}, zorder=4)
        _points(axes, x, f"γ = {gamma:g}: {moving.sum()} of 12 move")
    return fig


def answer(
    kept: Mapping[str, np.ndarray], mine: Mapping[str, np.ndarray], ground: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 and pairs moved over the margin, beside the triplets, and the differences.

    ``kept`` has the recorded run by setting, Recall@1, pairs and distance of each network (n, 3);
    ``mine`` likewise that of this page, ``ground`` Recall@1 of what needs no training.
    """
    fig = plt.figure(figsize=(7.4, 5.4), layout="constrained")
    halves: Any = fig.subfigures(2, 1, height_ratios=(1.8, 1))
    margins = [name for name in kept if name.startswith("γ")]
    for place, axes in enumerate(halves[0].subplots(1, 2)):
        floor, unit = (dict(ground), " %") if place == 0 else ({}, "")
        values = {name.removeprefix("γ = "): kept[name][:, place] for name in margins}
        figures.sweep(axes, values, floor, INK, unit)
        for at, name in enumerate(margins):
            axes.plot([at + 0.3] * len(mine[name]), mine[name][:, place], "x", color="k", ms=5)
        for name, ls, said in ((RIVAL, "-", "triplets"), (THINNED, "--", "a third")):
            mean = kept[name][:, place].mean()
            axes.axhline(mean, color=TRIPLETS, ls=ls, lw=1.8, zorder=0)
            axes.text(len(margins) - 0.42, mean, f"{said}\n{mean:.0f}{unit}", va="center",
                      fontsize=9, color=TRIPLETS, weight="bold")  # fmt: skip
        axes.set(xlabel="margin γ of structured clustering", ylabel=MEASURED[place], ylim=(0, None))
        axes.set_title(TITLES[place], loc="left", weight="bold", fontsize=10)
    recall = {name: each[:, 0] for name, each in kept.items()}
    best, few, all_of_them = recall["γ = 5"], recall[THINNED], recall[RIVAL]
    rows = {"γ = 5 − all triplets": best - all_of_them,
            "a third − all triplets": few - all_of_them, "γ = 5 − a third": best - few}  # fmt: skip
    gain = figures.gains(halves[1].subplots(), rows, overlap=OVERLAP)
    others = {name: figures.summary(recall[name] - all_of_them, OVERLAP) for name in margins}
    drawn = {"gain": gain, "each margin − all triplets": others, "ground": figures.example(ground),
             "shortfall": figures.summary(all_of_them - best, OVERLAP)}  # fmt: skip
    for place, what in enumerate(("recall", "pairs", "distance")):
        of = {name: figures.summary(each[:, place], OVERLAP) for name, each in kept.items()}
        drawn[what] = of
    drawn["kept"] = {name: figures.sample(each) for name, each in kept.items()}
    return fig, drawn


def search() -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, in percent."""
    table = pd.read_csv(FILE)
    found = 100 * table.pivot_table(index="loss", columns="lr", values="Recall@1")
    rows = [*(f"γ = {margin}, with swaps" for margin in (1, 5, 25, 125)), RIVAL, THINNED]
    best = {name: float(found.loc[name].idxmax()) for name in rows}
    fig, axes = plt.subplots(figsize=(6.5, 3.1), layout="constrained")
    for name, ink, ls in zip(rows, (*SHADES, TRIPLETS, "0.55"), (*4 * "-", "-", "--"), strict=True):
        line = found.loc[name].dropna()
        axes.plot(range(len(RATES)), found.loc[name, list(RATES)], "o", ls=ls, color=ink, ms=4)
        axes.plot(RATES.index(best[name]), line.max(), "o", ms=11, mfc="none", mec=ink, mew=1.5)
        last = RATES.index(line.index[-1])
        axes.text(last + 0.2, line.iloc[-1], name.removesuffix(", with swaps"), color=ink,
                  va="center", fontsize=9, weight="bold")  # fmt: skip
    axes.set_xticks(range(len(RATES)), [f"{rate:g}" for rate in RATES])
    axes.set(xlabel="learning rate", xlim=(-0.3, len(RATES) + 0.6))
    axes.set_title("Recall@1 on validation characters (%)", loc="left", weight="bold", fontsize=10)
    axes.grid(False, axis="x")
    kept = {name: {f"{lr:g}": round(v, 2) for lr, v in found.loc[name].dropna().items()}
            for name in rows}  # fmt: skip
    return fig, {"recall": figures.example(kept), "best rate": figures.example(best)}
