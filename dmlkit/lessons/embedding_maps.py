"""What lesson 22 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import figures, retrieval, statistics

Floats = NDArray[Any]
#: Six colors that color-blind readers tell apart, and a mark for each half of twelve classes.
INK = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9")
MARKS = "ox"
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


def islands(
    axes: Axes, y: Floats, of: Floats, size: float = 3.5, alpha: float = 1.0, numbers: float = 0
) -> None:
    """A map with a color and a mark for each class, and maybe its number: (N, 2), (N,)."""
    places, marks = turned(y), []
    for i, c in enumerate(np.unique(of)):
        mark = MARKS[i // len(INK)]
        wide: dict[str, Any] = (
            {"ms": 0.62 * size, "mew": 0.7} if mark == "x" else {"ms": 0.55 * size, "mew": 0}
        )
        ink = INK[i % len(INK)]
        axes.plot(*places[of == c].T, mark, color=ink, alpha=alpha, **wide)
        middle = np.median(places[of == c], axis=0)
        tight = np.ptp(places[of == c], axis=0).max() < 0.2  # the number would hide it
        side = 1 if middle[0] < -0.8 else -1  # within the frame
        marks.append([middle[0] + 0.17 * tight * side, middle[1]])
    for i, (x, y_) in enumerate(_spaced(np.array(marks)) if numbers else ()):
        axes.text(x, y_, f"{i + 1}", fontsize=numbers, zorder=7, ha="center", va="center",
                  fontweight="bold",
                  path_effects=[withStroke(linewidth=2.5, foreground="white")])  # fmt: skip
    axes.set(xlim=(-1.1, 1.1), ylim=(-1.1, 1.1), aspect="equal")
    figures.bare(axes)


def _spaced(at: Floats, gap: float = 0.24) -> Floats:
    """Places of numbers, moved until none hides another: (C, 2)."""
    for _ in range(100):
        away = at[:, None] - at  # (C, C, 2)
        far = np.linalg.norm(away, axis=2)[..., None] + 1e-9
        at = at + (0.25 * away / far * np.maximum(gap - far, 0)).sum(axis=1)
    return at


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
    fig, axes = plt.subplot_mosaic("abc;ddd", figsize=(7.5, 5.6), height_ratios=(2.5, 2.9))
    for place, (name, y) in zip("abc", placed.items(), strict=True):
        islands(axes[place], maps[name], of, size=5, numbers=9)
        for j in near[who]:
            axes[place].plot(*y[[who, j]].T, color="black", lw=0.8)
        axes[place].plot(*y[near[who]].T, "o", ms=5, mfc="none", mec="black", mew=0.9, zorder=6)
        axes[place].plot(*y[who], "*", color="black", ms=12, mec="white", mew=1, zorder=8)
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
    measured: Mapping[str, Mapping[str, Sequence[float]]],
    luck: Sequence[float],
) -> Figure:
    """Three balls as they are and on UMAP's map; and what maps make of a truth of four times."""
    fig = plt.figure(figsize=(6.9, 3.6))
    grid = fig.add_gridspec(2, 4, height_ratios=(1.25, 1))
    for column, (name, world) in enumerate(shown.items()):
        for row, (tool, v) in enumerate((("truth", world["truth"]), ("UMAP", world["UMAP"]))):
            axes, ball = fig.add_subplot(grid[0, 2 * column + row]), world["ball"]
            v = v[:, :2] / 100 if tool == "truth" else framed(v)
            _three(axes, v, ball, tool == "truth", 4 if "wide" in name else 1)
            low = -0.6 if tool == "truth" else -1.4
            high = (4.9 if "far" in name else 1.9) if tool == "truth" else 1.4
            axes.set(xlim=(low, high), ylim=(low, high), aspect="equal")
            figures.bare(axes)
            axes.set_title(f"{name}:\n{tool}", fontsize=9.5, fontweight="bold")
    axes = fig.add_subplot(grid[1, :])
    axes.axvline(4, color=BALLS[1], lw=5, alpha=0.5, zorder=0)
    axes.plot([min(luck), max(luck)], [1.28] * 2, color="0.6", lw=6, solid_capstyle="butt")
    axes.text(max(luck) + 0.12, 1.28, "rounding alone", fontsize=8.5, va="center", color="0.35")
    for tool, lift, face in (("UMAP", -0.12, "black"), ("t-SNE", 0.06, "white")):
        for row, found in enumerate(measured[tool].values()):
            axes.plot(found, [row + lift] * len(found), "o", color="black", mfc=face, ms=6)
    axes.text(3.85, 0.5, "truth", color=BALLS[1], ha="right", va="center", fontweight="bold")
    axes.set_yticks((0, 1), ("width of C", "distance of C"))
    axes.set(xlim=(0, 4.4), ylim=(1.6, -0.5), xticks=range(5), xlabel="times that of A (or of B)")
    axes.set_title("on the map", loc="left", fontweight="bold", fontsize=10.5)
    axes.grid(False, axis="y")
    dots: Any = [
        Line2D([], [], marker="o", ls="", color="black", mfc=c) for c in ("black", "white")
    ]
    axes.legend(dots, ["UMAP", "t-SNE"], loc="upper right", bbox_to_anchor=(0.72, 1.0), fontsize=9)
    return fig


def _three(axes: Axes, v: Floats, ball: Floats, truth: bool, wide: float) -> None:
    """Balls A, B and C with their letters: as discs of their true radius, or as points."""
    for b, ink in enumerate(BALLS):
        own = v[ball == b]
        at = own.mean(axis=0)
        r = 0.08 * (wide if b == 2 else 1) if truth else 1.1 * np.abs(own - at).max()
        if truth:
            axes.add_patch(Circle(at, r, color=ink, alpha=0.7, lw=0))
        else:
            axes.plot(*own.T, "o^s"[b], ms=2, mew=0, alpha=0.6, color=ink)
        side = -1 if not truth and at[0] + r > 0.75 else 1
        axes.annotate("ABC"[b], (at[0] + side * r, at[1]), (3 * side, 0), color=ink,
                      textcoords="offset points", ha="left" if side > 0 else "right",
                      va="center", fontsize=9, fontweight="bold")  # fmt: skip


def moving(shown: Mapping[str, Floats], of: Floats) -> Figure:
    """Points as they move: a map for each moment."""
    fig, panels = plt.subplots(1, len(shown), figsize=(6.5, 1.9))
    for axes, (name, y) in zip(panels, shown.items(), strict=True):
        islands(axes, y, of, size=3)
        axes.set_title(name, fontweight="bold", fontsize=10)
    return fig


#: How each of the four maps is drawn: by what it knows.
_PAINT = {
    "neither": "0.5",
    "start alone": figures.WRONG,
    "weights alone": figures.RIGHT,
    "both": "0.1",
}


def answer(
    views: Mapping[str, tuple[Floats, float]],
    of: Floats,
    right: Mapping[str, Floats],
    joining: Mapping[str, Floats],
    effects: Mapping[str, Floats],
) -> Figure:
    """Maps of one group by what they know, {"both, 15": (places, % right)}; and levels, by k.

    ``right`` and ``joining`` have a value for each network, as ``effects`` do.
    """
    ks = [int(name) for name in joining]
    fig = plt.figure(figsize=(6.9, 5.6))
    parts: Any = fig.subfigures(2, 1, height_ratios=(1, 1.75))
    for axes, (way, ink) in zip(parts[0].subplots(1, 4), _PAINT.items(), strict=True):
        y, share = views[f"{way}, 15"]
        islands(axes, y, of, size=4, numbers=8)
        axes.set_title(way, fontweight="bold", fontsize=10, color=ink)
        axes.set_xlabel(f"{share:.0f} % right", fontsize=9.5)
    left, most = parts[1].subplots(1, 2, width_ratios=(1.15, 1))
    below = {"neither": 3, "start alone": -5.5, "weights alone": -5.5, "both": 2.5}
    for way, ink in _PAINT.items():
        found = np.stack([right[f"{way}, {n}"] for n in ks])  # (ks, networks)
        ends = [statistics.interval(each) for each in found]
        left.fill_between(ks, *([e[end] for e in ends] for end in ("low", "high")),
                          color=ink, alpha=0.2, lw=0)  # fmt: skip
        left.plot(ks, found.mean(axis=1), "o-", color=ink, ms=5, lw=2)
        left.plot(ks, [views[f"{way}, {n}"][1] for n in ks], "x", color=ink, ms=5, mew=1.2)
        left.text(ks[-1], found.mean(axis=1)[-1] + below[way], way, color=ink, ha="right",
                  va="center", fontweight="bold")  # fmt: skip
    left.set(xscale="log", ylim=(42, 92), ylabel="right about the farther pair (%)")
    left.set_xticks(
        ks, [f"{n}\n{share.mean():.0f} %" for n, share in zip(ks, joining.values(), strict=True)]
    )
    left.minorticks_off()
    left.set_xlabel("neighbors; share of the weights\nthat joins classes")
    shown = {name: each for name, each in effects.items() if "add" in name}
    figures.gains(most, shown, "points added")
    return fig


def blind(views: Mapping[str, Floats], of: Floats) -> Figure:
    """Five maps with letters only."""
    fig, panels = plt.subplots(1, 5, figsize=(7.5, 1.85))
    for axes, (letter, place) in zip(panels, views.items(), strict=True):
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
