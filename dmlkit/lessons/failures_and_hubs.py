"""What lesson 23 draws."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from dmlkit import figures
from dmlkit.figures import RIGHT, WRONG

Numbers = NDArray[Any]
#: A fold tests a quarter of the products, and its heads share most of the others with the rest.
OVERLAP = 1 / 4
#: A color for each kind of failure, by its letter.
INK = {"L": "#0072b2", "S": "#009e73", "O": "#e69f00", "T": "#cc79a7", "W": "#d55e00"}


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


def failures(pictures: Any, names: Sequence[str], asked: Numbers, answers: Numbers) -> Figure:
    """Nine queries, each beside its wrong answer."""
    widths = [1, 1, 0.08, 1, 1, 0.08, 1, 1]
    fig, panels = plt.subplots(3, 8, figsize=(6.5, 4.4), width_ratios=widths)
    for axes in panels[:, [2, 5]].flat:
        axes.set_axis_off()
    pairs = panels[:, [0, 1, 3, 4, 6, 7]].reshape(9, 2)
    for number, (i, j, (left, right)) in enumerate(zip(asked, answers, pairs, strict=True), 1):
        tile(left, pictures[np.array([i])][0], names[i], mark=str(number))
        tile(right, pictures[np.array([j])][0], names[j], wrong=True)
    return fig


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


def kinds(kind: Numbers, pair: Numbers, names: Mapping[str, str], numbered: Numbers) -> Figure:
    """A square for each failure read; those of one pair of products touch."""
    fig, axes = plt.subplots(figsize=(6.5, 1.5))
    for row, (name, letter) in enumerate(names.items()):
        there = np.flatnonzero(kind == letter)
        alike = [there[pair[there] == each] for each in dict.fromkeys(pair[there])]
        x = 0.0
        for some in alike:
            for i in some:
                axes.add_patch(
                    Rectangle((x, row - 0.4), 1, 0.8, fc=INK[letter], ec="white", lw=0.4)
                )
                if i in numbered:
                    axes.text(x + 0.5, row + 0.03, f"{list(numbered).index(i) + 1}", color="white",
                              fontsize=9, ha="center", va="center", fontweight="bold")  # fmt: skip
                x += 1
            x += 0.35
        said = f"{len(there)} failure{'s' * (len(there) > 1)}, {len(alike)} pair" + "s" * (
            len(alike) > 1
        )
        axes.text(x + 0.3, row + 0.03, said, va="center", color=INK[letter], fontsize=9)
        axes.text(-0.5, row + 0.03, name, va="center", ha="right", fontsize=10)
    axes.set(xlim=(-6.4, 38.5), ylim=(len(names) - 0.5, -0.5))
    axes.set_axis_off()
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


def dense(gallery: Numbers, k: int = 10) -> Numbers:
    """Mean cosine of each photograph with the k nearest others: (G, d) of length 1 -> (G,)."""
    return np.sort(gallery @ gallery.T, axis=1)[:, -k - 1 : -1].mean(axis=1)


def skew(votes: Numbers) -> float:
    """Skewness: the third moment over the cube of the standard deviation, (n,) -> scalar."""
    away = votes - votes.mean()
    return float((away**3).mean() / (away**2).mean() ** 1.5)


def chosen(
    shares: Sequence[float],
    rates: Sequence[float],
    deleted: Mapping[str, Numbers],
    trained: Sequence[Numbers],
    best: Sequence[float],
) -> Figure:
    """Gains on validation products: by the share deleted, and by the head's learning rate."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(6.5, 2.9))
    for place, (name, gain) in enumerate(deleted.items()):
        ink = plt.get_cmap("Oranges")(0.45 + 0.13 * place)
        left.plot(shares, gain, color=ink, lw=2)
        top = int(np.argmax(gain))
        left.plot(shares[top], gain[top], "o", color=ink, ms=6)
        said = name if name == "ours" else name.replace(" misfiled", "")
        left.text(shares[-1] * 1.08, gain[-1], said, color=ink, va="center", fontsize=9)
    for gain, own in zip(trained, best, strict=True):
        right.plot(rates, gain, color=RIGHT, lw=1.5, alpha=0.6)
        right.plot(own, gain[list(rates).index(own)], "o", color=RIGHT, ms=7)
    left.set(xscale="log", xlabel="photographs deleted (%)", ylabel="gain in Recall@1 (points)")
    left.set_xticks(shares, [f"{100 * each:g}" for each in shares])
    right.set(xscale="log", xlabel="learning rate of the head")
    right.set_xticks(rates, [f"{each:g}" for each in rates])
    right.tick_params("x", labelsize=8)
    left.set_xlim(shares[0] * 0.9, shares[-1] * 2.4)
    right.set_xlim(rates[0] * 0.7, rates[-1] * 1.5)
    for axes in (left, right):
        axes.axhline(0, color="black", lw=0.8)
        axes.minorticks_off()
    left.set_title("delete, by gallery", loc="left", color=WRONG, fontweight="bold")
    right.set_title("train, by fold", loc="left", color=RIGHT, fontweight="bold")
    return fig


def answer(gains: Mapping[str, Numbers], leads: Mapping[str, Numbers], floor: float) -> Figure:
    """What each remedy gains; and a head minus deleting, in each gallery: by fold."""
    fig, (left, right) = plt.subplots(2, 1, figsize=(6.5, 6.6))
    figures.gains(left, gains, "points of Recall@1, gained over untouched features", OVERLAP)
    left.axvline(floor, color="0.55", lw=1, ls=":")
    left.text(floor + 0.2, 3.5, "random head", color="0.45", fontsize=9, va="center", rotation=90)
    left.set_title("What each gains, our gallery", loc="left", fontweight="bold", fontsize=11)
    figures.gains(
        right, leads, "← deleting gains more      points of Recall@1      a head →", OVERLAP
    )
    right.set_title("A head minus deleting", loc="left", fontweight="bold", fontsize=11)
    return fig
