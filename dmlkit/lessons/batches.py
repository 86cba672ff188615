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
    """Recall@1 of each batch above its pairs and its pool, a dot for each network; differences."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(7.6, 3.7), width_ratios=(1.75, 1), layout="constrained"
    )
    whole = [name for name in found if "tables" not in name]
    order = [name for name in found if name not in whole][::-1] + whole
    for x, name in enumerate(order):
        ink, each = figures.RIGHT if name in whole else figures.WRONG, np.asarray(found[name])
        aside = x + np.linspace(-0.2, 0.2, len(each))
        left.plot(aside, each, ".", color=ink, alpha=0.35, mew=0, ms=6)
        left.plot(x, each.mean(), "o", color=ink, ms=8, zorder=3)
        said = f"{each.mean():.0f}"
        left.text(x + 0.27, each.mean(), said, color=ink, va="center", fontsize=9.5,
                  bbox={"fc": "white", "ec": "none", "pad": 0.6}, zorder=2)  # fmt: skip
    for name, value in floor.items():
        left.axhline(value, color="0.5", ls=":", lw=1.2, zorder=0)
        left.text(len(order) - 0.35, value + 1, name, va="bottom", ha="right", fontsize=8,
                  color="0.35")  # fmt: skip
    kinds = ["tables" if name not in whole else "whole" for name in order]
    left.set_xticks(range(len(order)), [
        f"{name.split(',')[0]}\n{kind}\n{counts[name][0]:,}\n{counts[name][1]}"
        for name, kind in zip(order, kinds, strict=True)
    ], fontsize=8)  # fmt: skip
    for tick, name in zip(left.get_xticklabels(), order, strict=True):
        tick.set_color(figures.RIGHT if name in whole else figures.WRONG)
    rows = "batch\n\npairs\npool"
    left.annotate(rows, (0, 0), (-8, -8.5), xycoords="axes fraction", textcoords="offset points",
                  ha="right", va="top", fontsize=8, color="0.25")  # fmt: skip
    left.set(xlim=(-0.5, len(order) - 0.3), ylim=(0, 80))
    left.set_ylabel("Recall@1, unseen characters (%)")
    left.grid(False, axis="x")
    drawn = {"recall": {name: figures.sample(each) for name, each in found.items()}}
    drawn["gain"] = figures.gains(right, gain, overlap=OVERLAP)
    return fig, drawn | {"floor": figures.example(dict(floor))}
