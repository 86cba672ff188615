"""What lesson 05 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from dmlkit import figures

ROW, SIDE = 8, 32  # images in a row of a sheet, and pixels of an image
#: A network is tested on an eighth of the characters, and shares most of the others with the rest.
OVERLAP = 1 / 8


def sheets(images: Mapping[int, Tensor]) -> Figure:
    """Batches of 64 images (64, 1, 32, 32) as sheets, by the number of images of a class.

    The first image is the anchor; its positives are framed in blue, negatives are tinted.
    """
    fig, panels = plt.subplots(1, len(images), figsize=(figures.WIDTH, 2.75))
    for axes, (K, batch) in zip(panels, images.items(), strict=True):
        _sheet(axes, batch, K)
        axes.set_title(f"{64 // K} classes × {K} images", fontweight="bold", fontsize=10)
    return fig


def tables(batches: Mapping[int, Tensor], seats: Mapping[int, np.ndarray]) -> Figure:
    """Batches at tables, by the number of images of a class; ``seats`` has each image's table."""
    fig, panels = plt.subplots(1, len(batches), figsize=(4.6, 2.7))
    for axes, (K, batch) in zip(panels, batches.items(), strict=True):
        _sheet(axes, batch, K, seats[K])
        axes.set_title(f"{64 // K} × {K}, 4 tables", fontweight="bold", fontsize=10)
    return fig


def _sheet(axes: Axes, batch: Tensor, K: int, seat: np.ndarray | None = None) -> None:
    """One batch in rows; the anchor meets those at its table only."""
    ink = 1 - batch[:, 0].reshape(ROW, ROW, SIDE, SIDE).float().numpy() / 255
    sheet = ink.transpose(0, 2, 1, 3).reshape(ROW * SIDE, ROW * SIDE)
    axes.imshow(sheet, cmap="gray", vmin=0.05, vmax=0.9)
    tint = (*to_rgb(figures.WRONG), 0.28)
    table = np.zeros(ROW * ROW, dtype=int) if seat is None else seat
    for k in range(ROW * ROW):
        x, y = SIDE * (k % ROW) + 1, SIDE * (k // ROW) + 1
        if table[k] != table[0]:
            away = (1.0, 1.0, 1.0, 0.7)
            axes.add_patch(Rectangle((x, y), SIDE - 3, SIDE - 3, fc=away, lw=0))
        elif k < K:
            edge = "black" if k == 0 else figures.RIGHT
            axes.add_patch(Rectangle((x, y), SIDE - 3, SIDE - 3, fill=False, ec=edge, lw=2.2))
        else:
            axes.add_patch(Rectangle((x, y), SIDE - 3, SIDE - 3, fc=tint, lw=0))
    grid, end = table.reshape(ROW, ROW), ROW * SIDE - 0.5
    for at in range(1, ROW):
        if (grid[at] != grid[at - 1]).any():
            axes.plot([-0.5, end], [SIDE * at - 0.5] * 2, color="0.2", lw=1.6)
        if (grid[:, at] != grid[:, at - 1]).any():
            axes.plot([SIDE * at - 0.5] * 2, [-0.5, end], color="0.2", lw=1.6)
    figures.bare(axes)
    axes.spines[:].set_visible(False)


def answer(
    found: Mapping[str, Sequence[float]],
    counts: Mapping[str, tuple[int, int]],
    floor: Mapping[str, float],
    gain: Mapping[str, Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the images of a class, and where fewer meet, a line for each network."""
    fig, (left, middle) = plt.subplots(
        1, 2, figsize=(7.6, 3.9), width_ratios=(1.15, 1), layout="constrained"
    )
    whole = [name for name in found if "," not in name]
    _lines(left, [found[name] for name in whole], range(len(whole)), figures.RIGHT)
    left.set_xticks(range(len(whole)), [_under(name, counts[name]) for name in whole], fontsize=8)
    left.set_title("more images of fewer classes", loc="left", fontweight="bold", fontsize=10)
    rows = {(0, 1.1): ("32 × 2", "32 × 2, 4 tables"),
            (2.3, 3.4, 4.5): ("8 × 8", "8 × 8, one mate", "8 × 8, 4 tables")}  # fmt: skip
    ticks: dict[float, str] = {}
    for at, names in rows.items():
        _lines(middle, [found[name] for name in names], at, figures.WRONG)
        middle.plot(at[0], np.mean(found[names[0]]), "o", color=figures.RIGHT, ms=8, zorder=4)
        said = [name.partition(", ")[2].replace("4 ", "") or "whole" for name in names]
        ticks |= {x: _under(name, counts[name], how)
                  for x, name, how in zip(at, names, said, strict=True)}  # fmt: skip
    middle.set_xticks(list(ticks), list(ticks.values()), fontsize=8)
    middle.set_title("the same images, fewer meet", loc="left", fontweight="bold", fontsize=10)
    for axes in (left, middle):
        for name, value in floor.items():
            axes.axhline(value, color="0.5", ls=":", lw=1.2, zorder=0)
            if axes is middle:
                axes.text(1.7, value + 1, name, va="bottom", ha="center", fontsize=8, color="0.35")
        axes.set_ylim(0, 90)
        axes.grid(False, axis="x")
    left.set(xlim=(-0.35, len(whole) - 0.5), ylabel="Recall@1, unseen characters (%)")
    middle.set(xlim=(-0.45, 5), yticklabels=[])
    left.annotate("batch\npairs\npool", (0, 0), (-9, -8.5), xycoords="axes fraction", ha="right",
                  va="top", textcoords="offset points", fontsize=8, color="0.25")  # fmt: skip
    drawn = {"recall": {name: figures.sample(each) for name, each in found.items()}}
    drawn["gain"] = {name: figures.summary(each, OVERLAP) for name, each in gain.items()}
    return fig, drawn | {"floor": figures.example(dict(floor))}


def _under(name: str, count: tuple[int, int], said: str = "") -> str:
    """What stands under a batch: its name, pairs and pool, and whether it is whole."""
    return f"{name.split(',')[0]}\n{count[0]:,}\n{count[1]}" + (f"\n{said}" if said else "")


def _lines(
    axes: Axes, scores: Sequence[Sequence[float]], places: Sequence[float], ink: str
) -> None:
    """A thin line for each network, and a thick one with numbers for their mean."""
    axes.plot(places, scores, color=ink, lw=0.7, alpha=0.4)
    means = np.mean(scores, axis=1)
    axes.plot(places, means, "o-", color=ink, lw=2.5, ms=8, zorder=3)
    for place, mean, each in zip(places, means, scores, strict=True):
        axes.annotate(f"{mean:.0f}", (place, max(each)), (0, 4), textcoords="offset points",
                      ha="center", fontsize=9.5, fontweight="bold", color=ink,
                      bbox={"fc": "white", "ec": "none", "pad": 0.4, "alpha": 0.8})  # fmt: skip
