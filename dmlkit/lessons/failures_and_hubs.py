"""What lesson 23 draws."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dmlkit import figures
from dmlkit.figures import RIGHT, WRONG

Numbers = NDArray[Any]
#: Our gallery, and two worlds beside it: a color and a name for each, and for a control.
WORLDS = {
    "planted": (WRONG, "20 labels wrong"), "ours": (RIGHT, "ours"), "noise": ("0.45", "noise"),
    "most used": ("#cc79a7", "ours, the most\nused deleted"),
}  # fmt: skip


def tile(
    axes: Axes, picture: Any, name: str, wrong: bool = False, mark: str = "", wide: int = 16
) -> None:
    """One photograph with its product's name below; a wrong answer has a frame."""
    axes.imshow(picture.permute(1, 2, 0).numpy())
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.set_xlabel(textwrap.fill(name, wide), fontsize=9, labelpad=3)
    axes.spines[:].set(visible=wrong, color=WRONG, linewidth=2.5)
    box = {"fc": "white", "ec": "none", "pad": 1.5, "alpha": 0.9}
    axes.text(0.05, 0.95, mark, bbox=box if mark else None, ha="left", va="top",
              fontweight="bold", transform=axes.transAxes)  # fmt: skip


def hubs(pictures: Any, names: Sequence[str], hubs: Numbers, took: Sequence[Numbers]) -> Figure:
    """Photographs of the gallery; beside each, six of the queries whose answer it is."""
    high = 1.3 * len(hubs)
    fig, panels = plt.subplots(len(hubs), 7, figsize=(6.5, high), width_ratios=[1.25, *6 * [1.0]])
    for hub, who, row in zip(hubs, took, panels, strict=True):
        right = names[hub] == names[who[0]]
        said = f"{len(who)} right" if right else f"took {len(who)}"
        tile(row[0], pictures[np.array([hub])][0], names[hub], wrong=True, mark=said)
        row[0].spines[:].set_color(RIGHT if right else WRONG)
        for axes, i in zip(row[1:], who, strict=False):
            tile(axes, pictures[np.array([i])][0], names[i], wide=12)
    return fig


def hub(
    queries: Sequence[tuple[float, float]],
    own: Sequence[tuple[float, float]],
    other: Sequence[tuple[float, float]],
    place: tuple[float, float],
) -> tuple[Figure, dict[str, Any]]:
    """One photograph in the plane: the answers with it, and once it is deleted; and the counts."""
    q, fixed = np.array(queries), np.array([*own, *other])
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.5))
    counts = {}
    for axes, name, there in zip(
        panels, ("with the hub", "the hub deleted"), ([*fixed, place], fixed), strict=True
    ):
        photographs = np.array(there)
        first = ((q[:, None] - photographs) ** 2).sum(axis=2).argmin(axis=1)
        wrong = first >= len(own)
        for i, j in enumerate(first):
            ink = WRONG if wrong[i] else RIGHT
            axes.plot(*np.transpose([q[i], photographs[j]]), color=ink, lw=1.5, zorder=1)
        axes.plot(*fixed[: len(own)].T, "s", color=RIGHT, ms=9)
        axes.plot(*fixed[len(own) :].T, "s", color=WRONG, ms=9)
        axes.plot(*q.T, "o", mfc="white", mec=RIGHT, mew=1.8, ms=7)
        if len(photographs) > len(fixed):
            axes.plot(*place, "s", mfc=WRONG, mec="black", mew=1.8, ms=12)
            counts["taken"] = int((first == len(fixed)).sum())
        counts[name] = int(wrong.sum())
        axes.set_title(f"{name}: {counts[name]} of {len(q)} fail", loc="left", fontsize=10)
        axes.set(xlim=(-1.3, 1.2), ylim=(-0.8, 0.9), xticks=[], yticks=[], aspect="equal")
        axes.grid(False)
    return fig, counts


def blamed(first: Numbers, right: Numbers, n: int) -> tuple[list[int], int, float]:
    """The two most blamed of n photographs and a hub that is never wrong; what ten took; chance.

    Chance is what ten would take if any answer were wrong equally often.
    """
    blame, draws = np.bincount(first[~right], minlength=n), np.random.default_rng(0)
    spared = np.bincount(first[blame[first] == 0], minlength=n).argmax()
    drawn = [draws.choice(first, (~right).sum(), replace=False) for _ in range(1000)]
    ten = [np.sort(np.bincount(each, minlength=n))[-10:].sum() for each in (*drawn, first[~right])]
    two = np.argsort(-blame, kind="stable")[:2]
    return [*two.tolist(), int(spared)], int(ten[-1]), float(np.mean(ten[:-1]))


def share(first: Numbers, right: Numbers, n: int) -> list[float]:
    """What the ten most used of n photographs answer, in %; if by chance; wrong; all wrong."""
    votes, draws = np.bincount(first, minlength=n), np.random.default_rng(0)
    there = np.isin(first, np.argsort(-votes, kind="stable")[:10])
    drawn = [np.bincount(draws.integers(n, size=len(first)), minlength=n) for _ in range(100)]
    chance = np.mean([np.sort(each)[-10:].sum() for each in drawn]) / len(first)
    return [100 * float(x) for x in (there.mean(), chance, (~right)[there].mean(), (~right).mean())]


def points(labels: Numbers, asked: Numbers, before: Numbers, after: Numbers) -> float:
    """Points of Recall@1, the mean of products, from one answer (Q,) to another."""
    gained = (labels[after] == asked) * 100.0 - (labels[before] == asked) * 100.0
    return float(np.mean([gained[asked == c].mean() for c in np.unique(asked)]))


def suspects(x: Numbers, labels: Numbers, k: int = 5) -> Numbers:
    """Photographs (N, d), those first of whose k nearest others most have another label."""
    near = np.argsort(-(x @ x.T - 3 * np.eye(len(x))), axis=1)[:, :k]
    return np.argsort(-(labels[near] != labels[:, None]).mean(axis=1), kind="stable")


def answer(
    counts: Sequence[int],
    gains: Mapping[str, Any],
    used: Mapping[str, Any],
    rows: Mapping[str, Any],
) -> tuple[Figure, dict[str, Any]]:
    """Hubs of three worlds; what deleting gains by how many; and the differences at forty."""
    fig, panels = plt.subplot_mosaic(
        [["hubs", "cure"], ["rule", "rule"]], figsize=(6.5, 6.2), width_ratios=[1, 1.9],
        height_ratios=[1.25, 1],
    )  # fmt: skip
    hubs, cure, rule = (panels[name] for name in ("hubs", "cure", "rule"))
    of = {name: np.array(each) for name, each in used.items()}  # (4, 4)
    bars = {"by chance": ("0.8", of["ours"][:, 1])} | {
        WORLDS[name][1]: (WORLDS[name][0], of[name][:, 0]) for name in ("ours", "planted", "noise")
    }
    for place, (ink, each) in enumerate(bars.values()):
        hubs.bar(place, each.mean(), color=ink, width=0.7)
        hubs.text(place, each.mean() + 0.3, f"{each.mean():.0f}", ha="center", fontsize=9)
    hubs.set_xticks(range(len(bars)), [name.replace(" ", "\n") for name in bars], fontsize=8)
    top = max(each.mean() for _, each in bars.values())
    hubs.set(ylabel="queries (%)", ylim=(0, 1.15 * top), yticks=range(0, int(1.15 * top) + 1, 5))
    hubs.grid(False, axis="x")
    hubs.set_title("Ten hubs answer", loc="left", fontweight="bold", fontsize=11)
    for name, (ink, said) in WORLDS.items():
        mean = np.mean(gains[name], axis=0)
        cure.plot(counts, mean, "o-", color=ink, lw=2.5, ms=5)
        beside = {"ours": "top", "noise": "bottom"}.get(name, "center")
        cure.text(counts[-1] + 3, mean[-1], said, color=ink, va=beside, fontsize=9)
    cure.axhline(0, color="black", lw=0.8)
    cure.axvline(40, color="0.7", lw=1, ls=":")
    cure.set(xlabel="photographs deleted", ylabel="gain in Recall@1 (points)", xlim=(0, 118))
    cure.set_xticks(range(0, 81, 20))
    cure.set_title("Deleting repairs wrong labels", loc="left", fontweight="bold", fontsize=11)
    found = figures.gains(rule, rows, "points of Recall@1, 40 photographs deleted")
    rule.set_title("Ours beside the two worlds", loc="left", fontweight="bold", fontsize=11)
    shares = {name: figures.summary(each[:, 0]) for name, each in of.items()}
    shares |= {"chance": figures.summary(of["ours"][:, 1])}
    wrong = figures.summary(of["ours"][:, 2] - of["ours"][:, 3])
    curves = {name: np.mean(each, axis=0).tolist() for name, each in gains.items()}
    fails = {name: figures.summary(each[:, 3]) for name, each in of.items()}
    return fig, {"rows": found, "share": shares, "hubs wrong": wrong, "fail": fails,
                 "curves": curves}  # fmt: skip
