"""What lesson 22 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import figures, retrieval

Floats = NDArray[Any]
#: Six colors that color-blind readers tell apart, and a mark for each six of sixteen classes.
INK = ("#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9")
MARKS = "ox^"
#: How the ways to draw a map look in the plane of both scores.
PAINT = {"UMAP": figures.RIGHT, "t-SNE": figures.WRONG}


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
            {"ms": 0.62 * size, "mew": 0.7} if mark == "x" else {"ms": 0.6 * size, "mew": 0}
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


def swept(maps: Mapping[str, Floats], scores: Mapping[str, Sequence[float]], of: Floats) -> Figure:
    """Maps from few and from many neighbors, with both scores: {"UMAP, 4": (N, 2)}."""
    fig, grid = plt.subplots(2, len(maps) // 2, figsize=(6.5, 5.2))
    for axes, (name, places) in zip(grid.flat, maps.items(), strict=True):
        islands(axes, places, of, size=4)
        kept, right = scores[name]
        ink = PAINT[name.partition(",")[0]]
        said = name.replace("E, ", "E, perplexity ").replace("P, ", "P, neighbors ")
        axes.set_title(said, fontweight="bold", fontsize=10, color=ink)
        axes.set_xlabel(f"keeps {kept:.1f} %\n{right:.1f} % right", fontsize=9.5)
    return fig


#: Rows of the verdict: what a map has more of than another, and by which score.
ROWS = {
    "far": ("farther pair right:\nUMAP − PCA's plane", "right", "UMAP, 15", "PCA's plane"),
    "near": ("neighbors kept:\nUMAP − PCA's plane", "kept", "UMAP, 15", "PCA's plane"),
    "claim": ("farther pair right:\nUMAP − t-SNE", "right", "UMAP, 15", "t-SNE, 30"),
}
TITLE = "Far more neighbors kept, and less than 5 points lost"
Scores = Mapping[str, Mapping[str, Floats]]


def effects(scores: Scores) -> dict[str, Floats]:
    """The differences of the verdict's rows, in points: {"far": (networks,)}."""
    return {row: scores[score][one] - scores[score][other]
            for row, (_, score, one, other) in ROWS.items()}  # fmt: skip


def answer(kept: Scores, mine: Scores) -> tuple[Figure, dict[str, Any]]:
    """The plane of both scores with all maps, and the differences that the rule asks about.

    ``kept`` and ``mine``, the reader's own, are {"kept": {"UMAP, 15": (networks,)}, "right": …} in
    percent.
    """
    fig = plt.figure(figsize=(6.5, 6.6))
    parts: Any = fig.subfigures(2, 1, height_ratios=(1.9, 1))
    top, low = parts[0].subplots(), parts[1].subplots()
    levels = {score: {name: figures.summary(each) for name, each in those.items()}
              for score, those in kept.items()}  # fmt: skip
    _plane(top, levels)
    for name in ("PCA's plane", "MDS", "UMAP, 15", "t-SNE, 30", "random plane"):
        at = (mine["kept"][name].mean(), mine["right"][name].mean())
        top.plot(*at, "x", color=PAINT.get(name.partition(",")[0], "0.3"), ms=7, mew=1.6, zorder=6)
    differences = effects(kept)
    drawn = figures.gains(low, {ROWS[row][0]: each for row, each in differences.items()}, "points")
    gain = dict(zip(differences, drawn.values(), strict=True))
    low.axvline(-5, color="0.4", ls=":", lw=1.4)
    low.set_xlim(left=-7)
    more = {
        "many": kept["right"]["UMAP, 120"] - kept["right"]["UMAP, 4"],
        "images, MDS": kept["images"]["MDS"] - kept["images"]["UMAP, 15"],
        "images, PCA": kept["images"]["UMAP, 15"] - kept["images"]["PCA's plane"],
        "random plane": kept["right"]["UMAP, 15"] - kept["right"]["random plane"],
        "start": kept["right"]["UMAP, 15"] - kept["right"]["UMAP, random start"],
    }
    gain |= {name: figures.summary(each) for name, each in more.items()}
    own = {row: figures.sample(each) for row, each in effects(mine).items()}
    return fig, {"gain": gain, "level": levels, "mine": own}


def _plane(axes: Axes, levels: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> None:
    """Neighbors kept against how often right about the farther pair, in percent."""
    near, far = levels["kept"], levels["right"]
    note: dict[str, Any] = {"textcoords": "offset points", "fontsize": 9, "va": "center"}
    above = {"UMAP": 85, "t-SNE": 75}
    for (tool, ink), many in zip(PAINT.items(), ("neighbors", "perplexity"), strict=True):
        names = [name for name in near if name.startswith(f"{tool}, ") and name[-1].isdigit()]
        x, y = ([score[name]["mean"] for name in names] for score in (near, far))
        axes.plot(x, y, "o-", color=ink, ms=3.5, lw=1.5)
        axes.text(46, above[tool], f"{tool}, {many} 4 to 120", color=ink, fontsize=9.5,
                  fontweight="bold", ha="center", va="center")  # fmt: skip
        shift = (-6, 7 if tool == "UMAP" else -7)
        axes.annotate("120", (x[-1], y[-1]), shift, color=ink, ha="right", **note)
    inks = {"PCA's plane": "0.1", "MDS": "0.1", "random plane": "0.45",
            "UMAP, 15": PAINT["UMAP"], "t-SNE, 30": PAINT["t-SNE"]}  # fmt: skip
    for name, ink in inks.items():
        at = near[name]["mean"], far[name]["mean"]
        for place, score in enumerate((near, far)):
            ends = [[v, v] for v in at]
            ends[place] = [score[name].get(end, at[place]) for end in ("low", "high")]
            axes.plot(*ends, color=ink, lw=2.5, alpha=0.6)
        axes.plot(*at, "o", color=ink, ms=8, zorder=4)
        if ", " not in name:
            side = {"PCA's plane": (-9, 0, "right"), "MDS": (9, 0, "left")}.get(
                name, (9, 12, "left")
            )
            axes.annotate(name, at, side[:2], color=ink, fontweight="bold", ha=side[2], **note)
    guess = far["by the formula"]["mean"]
    for height, ls, said in ((guess, "--", "random plane, by the formula"), (50, ":", "chance")):
        axes.axhline(height, color="0.55", ls=ls, lw=1.3, zorder=0)
        axes.text(64.5, height + 0.5, said, color="0.35", fontsize=9, ha="right", va="bottom")
    axes.set(xlim=(0, 65), ylim=(47, 88), xlabel="neighbors kept, of an image's 10 nearest (%)",
             ylabel="right about the farther pair (%)")  # fmt: skip
    axes.set_title(TITLE, loc="left", fontweight="bold")
