"""What lesson 23 draws."""

import textwrap
from collections import Counter
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
    fig, panels = plt.subplots(2, 5, figsize=(6.5, 4.5))
    for hub, who, axes in zip(hubs, took, panels.ravel(), strict=True):
        axes.imshow(pictures[np.array([hub])][0].permute(1, 2, 0).numpy())
        axes.set(xticks=[], yticks=[])
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set_title(textwrap.fill(names[hub], 16), fontsize=9, fontweight="bold")
        (asked, _), *others = Counter(names[i] for i in who).most_common()
        more = "\N{NO-BREAK SPACE}…" if others else ""  # not alone in a line
        said = textwrap.fill(f"took {len(who)}: {asked}{more}", 16)
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


def takes(near: Numbers, y_q: Numbers, y_g: Numbers) -> tuple[Numbers, float]:
    """How many queries each of the 40 most blamed takes wrongly; the share of queries that fail."""
    wrong = y_g[near[:, 0]] != y_q
    return np.sort(np.bincount(near[wrong, 0], minlength=40))[-40:], float(wrong.mean())


def share(near: Numbers, y_q: Numbers, y_g: Numbers) -> list[float]:
    """What the ten most used photographs answer, in % of the queries; and if by chance."""
    draws, n = np.random.default_rng(0), len(y_g)
    drawn = [draws.integers(n, size=len(y_q)) for _ in range(100)]
    most = [np.sort(np.bincount(each, minlength=n))[-10:].sum() for each in (near[:, 0], *drawn)]
    return [100 * most[0] / len(y_q), 100 * float(np.mean(most[1:])) / len(y_q)]


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
    fig, axes = plt.subplots(figsize=(6.5, 4.6))
    ours, cloud = gains.mean(axis=2)
    level, x = figures.summary(gains[0, 0]), np.array([-23.0, 21.0])
    axes.axhspan(level["low"], level["high"], color=RIGHT, alpha=0.13, lw=0)
    axes.plot(x, fit[0] * x + fit[1], color="0.35", lw=2)
    for dots, mean, ink, mark, shift in (
        (galleries[1], cloud, "0.35", "o", -0.7), (galleries[0], ours, RIGHT, "s", 0.7)
    ):  # fmt: skip
        for at, each in zip(planted, dots, strict=True):
            axes.plot([at + shift] * len(each), each, ".", color=ink, ms=4, alpha=0.3, mew=0)
        axes.plot(planted[:-1], mean[:-1], mark, color=ink, ms=8, mec="white", zorder=4)
        axes.plot(planted[-1] + 2 * shift, mean[-1], mark, color=ink, ms=7, mfc="white", zorder=4)
    axes.plot(planted[:-1], ours[:-1], color=RIGHT, lw=1.5)
    cut, floor = worth["mean"], -1.3
    axes.plot([cut, planted[0]], [level["mean"]] * 2, color=RIGHT, lw=1.2, ls="--")
    axes.annotate("", (cut, floor + 0.2), (cut, level["mean"]),
                  arrowprops={"arrowstyle": "->", "color": RIGHT, "lw": 1.5})  # fmt: skip
    axes.plot([worth["low"], worth["high"]], [floor] * 2, color=RIGHT, lw=8, alpha=0.45)
    axes.plot(cut, floor, "o", color=RIGHT, ms=9)
    said = "{mean:.1f} [{low:.1f}, {high:.1f}]".format(**worth).replace("-", "−")
    bold: dict[str, Any] = {"va": "center", "fontweight": "bold", "fontsize": 10}
    axes.text(11.5, floor, f"w* = {said} labels", color=RIGHT, **bold)
    axes.plot([10, 10], [floor - 0.5, floor + 0.5], color="0.2", lw=1.5)
    axes.text(10, floor + 0.6, "a quarter of 40", fontsize=9, color="0.2", ha="center")
    axes.text(41.5, level["mean"], "our 40 most blamed,\nnothing planted", color=RIGHT,
              fontsize=9, va="center", ha="right")  # fmt: skip
    axes.text(-21, 5.4, "● noise, w labels wrong,\nand its line", color="0.35", **bold)
    axes.text(-21, 4.5, "■ ours, w more labels wrong", color=RIGHT, **bold)
    side = "below" if worth["high"] < 10 else "above" if worth["low"] > 10 else "around"
    figures.letter(axes, f"Our gain cuts the line {side} a quarter of the 40")
    axes.set(xlabel="w, wrong labels planted", ylabel="gain of deleting 40 (points)",
             xlim=(-23, 42.5), ylim=(-1.9, 7.9), xticks=(-20, -10, *planted))  # fmt: skip
    return fig, {
        "worth": worth, "ours": level, "noise": figures.summary(gains[1, 0]),
        "ours − noise": figures.summary(gains[0, 0] - gains[1, 0]),
        "curves": {"ours": ours.tolist(), "noise": cloud.tolist()},
    }  # fmt: skip
