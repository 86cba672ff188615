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

#: Of the twelve points, whose classes are shapes; colors are forces.
CLASSES = ("0.1", "0.4", "0.6")
INK, TRIPLETS = "#a50f5e", "0.25"
#: Of the margins in the search, from small to large, and its rates.
SHADES = ("#e69f00", "#d55e00", "#a50f5e", "#3b0f70")
RATES = (0.00125, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
#: Where names stand beside their means, in points; the margins lie close together.
BESIDE = {"γ = 5": (-9, 3), "γ = 1": (-9, -9), "γ = 25": (2, 13), "γ = 125": (9, -12),
          "a third": (9, -11)}  # fmt: skip
#: Of the explorable's links and arrows: what pushes, and what pulls.
PUSH, PULL = "#c05000", "#0072b2"
#: Semi-hard triplets of a share of the positive pairs, drawn anew at each step.
SHARES = {
    "semi-hard triplets": 1.0,
    "a third of the triplets": 1 / 3,
    "a ninth of the triplets": 1 / 9,
}
FILE = dmlkit.ROOT / "data" / "evidence" / "07_clustering.csv"
#: A network is tested on a twelfth of the new characters, and shares a part of those it learns.
OVERLAP = 1 / 12


def triplets(D: Tensor, y: Tensor, share: float = 1.0, margin: float = 0.2) -> Tensor:
    """Semi-hard triplets of a random share of the positive pairs: (B, B), (B,) -> scalar.

    >>> y = torch.tensor([0, 0, 1])
    >>> triplets(torch.tensor([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]]), y)
    tensor(0.1000)
    """
    same, D2 = y[:, None] == y, D.square()
    n = semihard_negatives(D2.detach(), ~same)
    positive = same & ~torch.eye(len(y), dtype=torch.bool) & (torch.rand(D.shape) < share)
    hinge = (D2 - D2.gather(1, n) + margin).relu()[positive]
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


def as_many(kept: Mapping[str, np.ndarray], name: str) -> np.ndarray:
    """Recall@1 of triplets that move as many pairs as a setting, network by network: (n,).

    On straight lines over the logarithm of the pairs, between the shares of the triplets.

    >>> places = zip(SHARES, (60, 50, 30), (400, 100, 25), strict=True)
    >>> of = {name: np.array([[recall, 0, pairs]]) for name, recall, pairs in places}
    >>> as_many(of | {"γ = 5": np.array([[0, 0, 50]])}, "γ = 5").round(6)
    array([40.])
    """
    line = np.array([kept[share] for share in SHARES][::-1])  # (3, n, ...), from few pairs to many
    at = np.log(kept[name][:, 2])
    return np.array([
        np.interp(here, np.log(line[:, k, 2]), line[:, k, 0]) for k, here in enumerate(at)
    ])  # fmt: skip


def _over_pairs(
    axes: Axes, kept: Mapping[str, np.ndarray], mine: Mapping[str, np.ndarray], names: Sequence[str]
) -> None:
    """Networks, means and names of the margins, or of the triplets with a line."""
    ink, line = (INK, 0) if names[0].startswith("γ") else (TRIPLETS, 2)
    for name in names:
        axes.plot(*kept[name][:, [2, 0]].T, "o", ms=4, mew=0, alpha=0.3, color=ink, zorder=2)
        axes.plot(*mine[name][:, [2, 0]].T, "x", ms=5, color=ink, zorder=2)
    means = np.array([kept[name].mean(axis=0)[[2, 0]] for name in names])
    axes.plot(*means.T, "o-", ms=9, lw=line, color=ink, mec="w", zorder=3)
    for name, place in zip(names, means, strict=True):
        short = {"semi-hard triplets": "all"}.get(name, name.removesuffix(" of the triplets"))
        right, up = BESIDE.get(short, (9, -3))
        axes.annotate(short, place, (right, up), color=ink, ha="left" if right > 0 else "right",
                      textcoords="offset points", weight="bold", fontsize=9, zorder=4)  # fmt: skip


def answer(
    kept: Mapping[str, np.ndarray], mine: Mapping[str, np.ndarray], ground: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 over the pairs that a step moves, of both losses, and the differences.

    ``kept`` has the recorded run by setting: Recall@1, NMI, pairs and distance of each network
    (n, 4); ``mine`` likewise that of this page, ``ground`` Recall@1 of what needs no training.
    """
    fig, (axes, below) = plt.subplots(
        2, figsize=(6.5, 6), height_ratios=(2, 1), layout="constrained"
    )
    margins = [name for name in kept if name.startswith("γ")]
    for names in ([*SHARES], margins):
        _over_pairs(axes, kept, mine, names)
    axes.axhline(ground["raw pixels"], color="0.5", ls=":", lw=1.5, zorder=0)
    axes.text(0.995, ground["raw pixels"], "raw pixels", ha="right", va="bottom", fontsize=9,
              color="0.35", transform=axes.get_yaxis_transform())  # fmt: skip
    axes.set(xscale="log", xlabel="pairs moved in a step, of 2,016", xlim=(32, 280), ylim=(22, 74),
             ylabel="Recall@1, unseen characters (%)")  # fmt: skip
    axes.text(34, 71, "structured clustering", color=INK, weight="bold")
    axes.text(34, 68, "semi-hard triplets, all and a share", color=TRIPLETS, weight="bold")
    axes.set_xticks([50, 100, 200], ["50", "100", "200"])
    axes.minorticks_off()
    axes.set_title("clustering moves few pairs, and lies above triplets of as few", loc="left",
                   weight="bold", fontsize=10)  # fmt: skip
    best, rivals = kept["γ = 5"], kept["semi-hard triplets"]
    third = best[:, 0] - kept["a third of the triplets"][:, 0]
    rows = {"γ = 5 − all triplets": best[:, 0] - rivals[:, 0],
            "γ = 5 − triplets of\nas many pairs": best[:, 0] - as_many(kept, "γ = 5"),
            "γ = 5 − all triplets,\nby NMI": best[:, 1] - rivals[:, 1]}  # fmt: skip
    drawn: dict[str, Any] = {"gain": figures.gains(below, rows, "points", OVERLAP)}
    for name in margins:
        for what, of in (("all triplets", rivals[:, 0]), ("as many pairs", as_many(kept, name))):
            of_margin = drawn.setdefault(f"each margin − {what}", {})
            of_margin[name] = figures.summary(kept[name][:, 0] - of, OVERLAP)
    for place, what in enumerate(("recall", "NMI", "pairs", "distance")):
        drawn[what] = {
            name: figures.summary(each[:, place], OVERLAP) for name, each in kept.items()
        }
    drawn["γ = 5 − a third"] = figures.summary(third, OVERLAP)
    drawn["ground"] = figures.example(ground)
    drawn["shortfall"] = figures.summary(-rows["γ = 5 − all triplets"], OVERLAP)
    drawn["kept"] = {name: figures.sample(each) for name, each in kept.items()}
    return fig, drawn


def search() -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on validation characters by setting and rate, in percent."""
    table = pd.read_csv(FILE)
    found = 100 * table.pivot_table(index="loss", columns="lr", values="Recall@1")
    rows = [*(f"γ = {margin}, with swaps" for margin in (1, 5, 25, 125)), *SHARES]
    best = {name: float(found.loc[name].idxmax()) for name in rows}
    fig, axes = plt.subplots(figsize=(6.5, 3.1), layout="constrained")
    for name, ink, ls in zip(rows, (*SHADES, *3 * [TRIPLETS]), (*5 * "-", "--", ":"), strict=True):
        line = found.loc[name].dropna()
        axes.plot(range(len(RATES)), found.loc[name, list(RATES)], "o", ls=ls, color=ink, ms=4)
        axes.plot(RATES.index(best[name]), line.max(), "o", ms=11, mfc="none", mec=ink, mew=1.5)
        last = RATES.index(line.index[-1])
        axes.text(last + 0.2, line.iloc[-1], name.removesuffix(", with swaps"), color=ink,
                  va="center", fontsize=9, weight="bold",
                  bbox={"fc": "white", "ec": "none", "pad": 1})  # fmt: skip
    axes.set_xticks(range(len(RATES)), [f"{rate:g}" for rate in RATES])
    axes.set(xlabel="learning rate", xlim=(-0.3, len(RATES) + 0.6))
    axes.set_title("Recall@1 on validation characters (%)", loc="left", weight="bold", fontsize=10)
    axes.grid(False, axis="x")
    kept = {name: {f"{lr:g}": round(v, 2) for lr, v in found.loc[name].dropna().items()}
            for name in rows}  # fmt: skip
    other = {share: {m: float(found.loc[f"{share}, margin {m}"].max()) for m in ("0.1", "0.4")}
             for share in [*SHARES][:2]}  # fmt: skip
    return fig, {"recall": figures.example(kept), "best rate": figures.example(best),
                 "other margins": figures.example(other)}  # fmt: skip
