"""What lesson 22 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import figures, retrieval, statistics

Floats = NDArray[Any]
#: A color for each of twelve classes.
INK = [plt.get_cmap("tab20")(i)[:3] for i in (0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 1, 5)]
#: And for each of three balls.
BALLS = ("#0072b2", "#d55e00", "#009e73")


def framed(y: Floats) -> Floats:
    """A map moved and scaled to lie between -1 and 1: (N, 2)."""
    low, high = y.min(axis=0), y.max(axis=0)
    scaled: Floats = (2 * y - low - high) / (high - low).max()
    return scaled


def turned(y: Floats) -> Floats:
    """A map turned so that it fills its square best, which changes no distance: (N, 2)."""
    best = y
    for angle in np.radians(np.arange(0, 90, 5)):
        now = y @ np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        if np.ptp(now, axis=0).max() < np.ptp(best, axis=0).max():
            best = now
    return framed(best)


def islands(axes: Axes, y: Floats, of: Floats, size: float = 3.5, alpha: float = 1.0) -> None:
    """A map with a color for each class: (N, 2), (N,)."""
    for ink, c in zip(INK, np.unique(of), strict=False):
        axes.plot(*turned(y)[of == c].T, ".", ms=size, color=ink, mew=0, alpha=alpha)
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    figures.bare(axes)


def paper(image: Tensor) -> Floats:
    """A drawing in black on clear paper, without most of its noise: (1, 32, 32) -> (32, 32)."""
    drawn: Floats = 1 - ((image[0].float() - 55) / 100).clamp(0, 1).numpy()
    return drawn


def three_maps(
    maps: Mapping[str, Floats], near: Floats, of: Floats, images: Tensor
) -> tuple[Figure, dict[str, int]]:
    """One query and its true neighbors on each map, and its nearest by each answer."""
    k = near.shape[1]
    placed = {name: turned(y) for name, y in maps.items()}
    on_map = {name: retrieval.nearest_neighbors(y, k)[0] for name, y in maps.items()}
    shares = np.stack([(near[:, :, None] == each[:, None, :]).any(axis=2).sum(axis=1)
                       for each in on_map.values()])  # fmt: skip
    who = int(np.abs(shares - shares.mean(axis=1, keepdims=True)).sum(axis=0).argmin())
    kept = {name: len(set(near[who]) & set(each[who])) for name, each in on_map.items()}
    fig, axes = plt.subplot_mosaic("abc;ddd", figsize=(7.5, 6.0), height_ratios=(2.4, 3.2))
    for place, (name, y) in zip("abc", placed.items(), strict=True):
        islands(axes[place], maps[name], of, size=5)
        for j in near[who]:
            axes[place].plot(*y[[who, j]].T, color="black", lw=0.8)
        axes[place].plot(*y[near[who]].T, "o", ms=5, mfc="none", mec="black", mew=0.9)
        axes[place].plot(*y[who], "*", color="black", ms=12, mec="white", mew=0.8, zorder=5)
        said = f"{name}: {kept[name]} of {k} kept"
        axes[place].set_title(said, fontweight="bold", fontsize=10)
    sheet = axes["d"]
    sheet.imshow(paper(images[who]), cmap="gray", extent=(-1.9, -0.4, 2.05, 3.55), vmin=0, vmax=1)
    sheet.add_patch(Rectangle((-1.9, 2.05), 1.5, 1.5, fill=False, ec="black", lw=1.6))
    sheet.text(-1.15, 3.7, "★ the query", ha="center", fontsize=10, family="DejaVu Sans")
    for r, (name, each) in enumerate({"64 numbers": near, **on_map}.items()):
        sheet.text(1.45, 3.5 - r, name, ha="right", va="center", fontsize=9)
        for c, j in enumerate(each[who][:7]):
            at = (c + 1.57, c + 2.43, 3.07 - r, 3.93 - r)
            sheet.imshow(paper(images[j]), cmap="gray", extent=at, vmin=0, vmax=1)
            style: dict[str, Any] = {"ec": "0.6", "ls": ":"}
            if j in near[who]:
                style = {"ec": figures.RIGHT, "lw": 1.6}
            sheet.add_patch(Rectangle((c + 1.54, 3.04 - r), 0.92, 0.92, fill=False, **style))
    sheet.set(xlim=(-2, 8.6), ylim=(-0.05, 4.05), aspect="equal")
    figures.bare(sheet)
    sheet.spines[:].set_visible(False)
    sheet.grid(False)
    return fig, kept


def shares(counted: Mapping[str, pd.DataFrame], k: int) -> Figure:
    """The neighbors on each map by whether the embedding has them, and by class."""
    fig, left = plt.subplots(figsize=(6.5, 2.4))
    colors = ("#0072b2", "#9ccbe8", "#d55e00", "#f5c09a")
    paints = dict(zip(counted["UMAP"], colors, strict=True))
    for row, table in enumerate(counted.values()):
        begin = 0.0
        for part, ink in paints.items():
            width = 100 * table[part].mean()
            left.barh(row, width, left=begin, color=ink, height=0.7)
            if width > 4:
                shade = "white" if str(part).startswith("kept") else "black"
                left.text(begin + width / 2, row, f"{width:.0f}", ha="center", va="center",
                          color=shade, fontsize=8.5)  # fmt: skip
            begin += width
    left.set_yticks(range(4), list(counted))
    left.set(ylim=(3.5, -0.5), xlim=(0, 100), xlabel=f"of the {k} nearest on the map (%)")
    left.grid(False, axis="y")
    left.set_title("UMAP and t-SNE look cleaner than the embedding", loc="left", fontweight="bold")
    handles = [Rectangle((0, 0), 1, 1, color=ink) for ink in paints.values()]
    fig.legend(handles, [str(part) for part in paints], loc="outside lower center", ncols=4,
               columnspacing=1, handlelength=1)  # fmt: skip
    return fig


def balls(
    shown: Mapping[str, Mapping[str, Floats]],
    measured: Mapping[str, Mapping[str, Sequence[tuple[float, float]]]],
) -> Figure:
    """Three balls as they are, on two maps, and their widths and distances by seed."""
    fig, panels = plt.subplots(4, 4, figsize=(6.5, 7))
    for column, (name, world) in zip(panels.T, shown.items(), strict=True):
        column[0].set_title(name, fontsize=9, fontweight="bold")
        ball = world["ball"]
        for axes, tool in zip(column[:3], measured, strict=True):
            truth = tool == "truth"
            v = world["truth"][:, :2] / 100 if truth else framed(world[tool])
            for b, ink in enumerate(BALLS):
                own = v[ball == b]
                at = own.mean(axis=0)
                spread = 4 if truth and "wide" in name and b == 2 else 1
                r = 0.08 * spread if truth else 1.15 * np.linalg.norm(own - at, axis=1).max()
                if truth:  # a circle at the mean distance from the middle
                    axes.add_patch(Circle(at, r, color=ink, alpha=0.6, lw=0))
                axes.plot(*own.T, "o^s"[b], ms=1.8, mew=0, alpha=0.6, color=ink)
                side = -1 if at[0] + r > (1.2 if truth else 0.75) else 1
                axes.annotate("ABC"[b], (at[0] + side * r, at[1]), (4 * side, 0), color=ink,
                              textcoords="offset points", ha="left" if side > 0 else "right",
                              va="center", fontsize=9, fontweight="bold")  # fmt: skip
            low = -0.7 if truth else -1.3
            high = 4.5 if truth and "far" in name else 1.6 if truth else 1.3
            axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
            if high == 4.5:
                axes.text(4.3, 2, "smaller\nscale", ha="right", fontsize=8, color="0.35")
            figures.bare(axes)
            wide, apart = np.mean(measured[tool][name], axis=0)
            axes.set_xlabel(f"width {wide:.1f}, distance {apart:.1f}", fontsize=7.5, labelpad=2)
        _seeds(column[3], {tool: np.array(each[name]) for tool, each in measured.items()})
        column[3].tick_params(labelleft=name == "all alike")
    for axes, tool in zip(panels[:3, 0], measured, strict=True):
        axes.set_ylabel(tool, fontweight="bold")
    count = len(next(iter(measured["truth"].values())))
    panels[3, 0].set_ylabel(f"{count} draws", fontweight="bold")
    return fig


def _seeds(axes: Axes, found: Mapping[str, Floats]) -> None:
    """Widths and distances of each draw, UMAP filled and t-SNE hollow, over the truth."""
    for j, tool in enumerate(("UMAP", "t-SNE")):
        face = "black" if tool == "UMAP" else "white"
        for place, values in zip((j, j + 3), found[tool].T, strict=True):
            spots = place + np.linspace(-0.3, 0.3, len(values))
            axes.plot(spots, values, "o", color="black", mfc=face, ms=3.2)
    for at, true in zip((0.5, 3.5), found["truth"].mean(axis=0), strict=True):
        axes.plot([at - 1, at + 1], [true] * 2, color=BALLS[1], lw=6, alpha=0.45, zorder=0,
                  solid_capstyle="butt")  # fmt: skip
    axes.set(xlim=(-1, 5), ylim=(0, 4.6), xticks=(0.5, 3.5), yticks=range(5))
    axes.set_xticklabels(("width", "distance"), fontsize=8)


def moving(shown: Mapping[str, Floats], of: Floats) -> Figure:
    """Points as they move: a map for each moment."""
    fig, panels = plt.subplots(1, len(shown), figsize=(6.5, 1.9))
    for axes, (name, y) in zip(panels, shown.items(), strict=True):
        islands(axes, y, of, size=3)
        axes.set_title(name, fontweight="bold", fontsize=10)
    return fig


def answer(
    views: Mapping[str, Floats], of: Floats, right: Mapping[str, Floats], asked: Floats
) -> Figure:
    """Maps of the first group; how often each tool is right; and the difference asked about."""
    fig = plt.figure(figsize=(6.5, 6.0))
    parts: Any = fig.subfigures(2, 1, height_ratios=(1, 1.25))
    titles = ["UMAP", "random start", "random start, cut"]
    inks = dict.fromkeys(right, "0.35") | {"cut": figures.WRONG, "random start": figures.RIGHT}
    for axes, y, name, title in zip(
        parts[0].subplots(1, 3), views.values(), views, titles, strict=True
    ):
        islands(axes, y, of, size=4)
        axes.set_title(title, fontweight="bold", fontsize=10, color=inks[name])
    axes = parts[1].subplots()
    called = {"UMAP": "UMAP", "random start": "UMAP, random start", "cut": "… weights cut",
              "cut, PCA's start": "… cut, PCA's start", "t-SNE": "t-SNE"}  # fmt: skip
    for row, name in enumerate(called):
        found, ends = right[name], statistics.interval(right[name])
        axes.plot(ends[["low", "high"]], [row, row], color=inks[name], lw=8, alpha=0.35,
                  solid_capstyle="butt")  # fmt: skip
        axes.plot(found, np.full(len(found), row), "o", color=inks[name], ms=5, mew=0, alpha=0.8)
        axes.text(99, row, f"{ends['mean']:.0f} %", color=inks[name], va="center", ha="right",
                  fontweight="bold")  # fmt: skip
    ends = statistics.interval(asked)
    said = "{mean:.0f} points [{low:.0f}, {high:.0f}]".format(**ends).replace("-", "−")
    axes.set_title(f"the cut costs {said} more\nthan a random start does", loc="left",
                   fontweight="bold", fontsize=12)  # fmt: skip
    axes.axvline(50, color="black", lw=1, ls=":")
    axes.text(50.4, 4.75, "chance", fontsize=9)
    axes.set_yticks(range(len(called)), list(called.values()))
    axes.set(xlim=(35, 100), ylim=(4.95, -0.6), xlabel="right about the farther pair (%)")
    axes.grid(False, axis="y")
    return fig


def blind(views: Mapping[str, Floats], of: Floats) -> Figure:
    """Five maps with letters only."""
    fig, panels = plt.subplots(2, 3, figsize=(6.5, 4.6))
    panels[1, 2].remove()
    for axes, (letter, place) in zip(panels.flat[:5], views.items(), strict=True):
        islands(axes, place, of)
        axes.set_title(letter, fontweight="bold", fontsize=11)
    return fig


def noise(
    views: Mapping[tuple[str, str], Floats], share: Mapping[tuple[str, str], Sequence[float]]
) -> Figure:
    """An embedding and noise under three settings, without colors."""
    fig, panels = plt.subplots(2, 3, figsize=(6.5, 4.6))
    titles = {
        "embedding": ("3 neighbors: small islands", "15 (default): islands",
                      "min_dist 0.8: islands melt"),
        "noise": ("3 neighbors: clumps", "15: one cloud", "0.8: one cloud"),
    }  # fmt: skip
    settings = [name for source, name in views if source == "noise"]
    for line, (source, said) in zip(panels, titles.items(), strict=True):
        for axes, name, title in zip(line, settings, said, strict=True):
            figures.bare(axes)
            axes.plot(*turned(views[source, name]).T, ".", ms=2.5, mew=0, color="black")
            axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
            axes.set_xlabel(f"keeps {100 * np.mean(share[source, name]):.0f} %", fontsize=9.5)
            axes.set_title(title, fontweight="bold", fontsize=9.5)
        line[0].set_ylabel(source, fontweight="bold")
    return fig
