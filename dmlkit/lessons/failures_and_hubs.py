"""What lesson 23 draws."""

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dmlkit import figures
from dmlkit.figures import RIGHT, WRONG

Numbers = NDArray[Any]


def ten(pictures: Any, names: Sequence[str], hubs: Numbers, took: Sequence[Numbers]) -> Figure:
    """The photographs with most wrong answers: product, and of what products the queries were."""
    fig, panels = plt.subplots(2, 5, figsize=(6.5, 4.1))
    for hub, who, axes in zip(hubs, took, panels.ravel(), strict=True):
        axes.imshow(pictures[np.array([hub])][0].permute(1, 2, 0).numpy())
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set_title(textwrap.fill(names[hub], 15), fontsize=9, fontweight="bold")
        asked = " or ".join(sorted({names[i] for i in who}))
        said = textwrap.fill(f"took {len(who)}: {asked}", 18)
        axes.set_xlabel(said, fontsize=8.5, labelpad=3, color=WRONG)
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
    """The ten most blamed of n photographs; how many queries they took; how many by chance.

    Chance is what ten would take if any answer were wrong equally often.
    """
    blame, draws = np.bincount(first[~right], minlength=n), np.random.default_rng(0)
    drawn = [draws.choice(first, (~right).sum(), replace=False) for _ in range(1000)]
    taken = [np.sort(np.bincount(each, minlength=n))[-10:].sum() for each in drawn]
    order = np.argsort(-blame, kind="stable")[:10]
    return order.tolist(), int(blame[order].sum()), float(np.mean(taken))


def share(first: Numbers, n: int) -> list[float]:
    """What the ten most used of n photographs answer, in % of the queries; and if by chance."""
    draws = np.random.default_rng(0)
    drawn = [draws.integers(n, size=len(first)) for _ in range(100)]
    most = [np.sort(np.bincount(each, minlength=n))[-10:].sum() for each in (first, *drawn)]
    return [100 * most[0] / len(first), 100 * float(np.mean(most[1:])) / len(first)]


def points(labels: Numbers, asked: Numbers, before: Numbers, after: Numbers) -> float:
    """Points of Recall@1, the mean of products, from one answer (Q,) to another."""
    gained = (labels[after] == asked) * 100.0 - (labels[before] == asked) * 100.0
    return float(np.mean([gained[asked == c].mean() for c in np.unique(asked)]))


def answer(
    planted: Sequence[int],
    gains: Numbers,
    galleries: Numbers,
    fit: Numbers,
    worth: dict[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """The line of planted wrong labels, and where our own gain cuts it.

    ``gains`` are (2, W, 81), of ours and of noise by product, ``galleries`` (2, W, n); ``fit`` is
    slope and start of the line in noise.
    """
    fig, axes = plt.subplots(figsize=(6.5, 4.4))
    ours, cloud = gains.mean(axis=2)
    level, x = figures.summary(gains[0, 0]), np.array([-14.0, 24.0])
    axes.axhspan(level["low"], level["high"], color=RIGHT, alpha=0.13, lw=0)
    axes.axhline(level["mean"], color=RIGHT, lw=1.2, ls="--")
    axes.plot(x, fit[0] * x + fit[1], color="0.35", lw=2)
    for dots, mean, ink, mark, shift in (
        (galleries[1], cloud, "0.35", "o", -0.5), (galleries[0], ours, RIGHT, "s", 0.5)
    ):  # fmt: skip
        for at, each in zip(planted, dots, strict=True):
            axes.plot([at + shift] * len(each), each, ".", color=ink, ms=4, alpha=0.35, mew=0)
        axes.plot(planted, mean, mark, color=ink, ms=8, mec="white")
    axes.plot(planted, ours, color=RIGHT, lw=1.5)
    axes.plot(planted[-2:], cloud[-2:], color="0.35", lw=1, ls=":")
    bottom = min(-1.5, float(galleries.min()) - 0.8)
    axes.plot([worth["mean"]] * 2, [level["mean"], bottom], color="black", lw=1.2, ls=":")
    axes.plot([worth["low"], worth["high"]], [bottom] * 2, color=RIGHT, lw=8, alpha=0.45)
    axes.plot(worth["mean"], bottom, "o", color=RIGHT, ms=9)
    said = "{mean:.1f} [{low:.1f}, {high:.1f}]".format(**worth).replace("-", "−")
    axes.text(max(worth["high"], 10) + 1.5, bottom, f"w* = {said} wrong labels", color=RIGHT,
              va="center", fontweight="bold", fontsize=10)  # fmt: skip
    axes.axvline(10, color="0.6", lw=1, ls=":")
    axes.set(xlabel="wrong labels planted", ylabel="gain in Recall@1 (points)",
             xlim=(-14, 42), ylim=(bottom - 0.8, None), xticks=(-10, *planted))  # fmt: skip
    return fig, {
        "worth": worth, "ours": level, "noise": figures.summary(gains[1, 0]),
        "ours − noise": figures.summary(gains[0, 0] - gains[1, 0]),
        "curves": {"ours": ours.tolist(), "noise": cloud.tolist()},
    }  # fmt: skip
