"""What lesson 05 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from dmlkit import figures

ROW, SIDE = 8, 32  # images in a row of a sheet, and pixels of an image


def sheets(images: Mapping[int, Tensor]) -> Figure:
    """Batches of 64 images (64, 1, 32, 32) as sheets, by the number of images of a class.

    The first image is the anchor; its positives are framed in blue, negatives are on orange.
    """
    fig, panels = plt.subplots(1, len(images), figsize=(figures.WIDTH, 2.75))
    for axes, (K, batch) in zip(panels, images.items(), strict=True):
        _sheet(axes, batch, K)
        axes.set_title(f"{64 // K} classes × {K} images", fontweight="bold", fontsize=10)
    return fig


def tables(batch: Tensor, K: int, many: int) -> Figure:
    """The same batch whole, and at so many tables, where the anchor meets the first alone."""
    fig, panels = plt.subplots(1, 2, figsize=(4.6, 2.7))
    for axes, each in zip(panels, (1, many), strict=True):
        _sheet(axes, batch, K, each)
        said = "all meet" if each == 1 else f"{many} tables"
        axes.set_title(f"{64 // K} × {K}, {said}", fontweight="bold", fontsize=10)
    return fig


def _sheet(axes: Axes, batch: Tensor, K: int, tables: int = 1) -> None:
    """One batch in rows; the anchor's negatives are those of the first table."""
    ink = 1 - batch[:, 0].reshape(ROW, ROW, SIDE, SIDE).float().numpy() / 255
    sheet = ink.transpose(0, 2, 1, 3).reshape(ROW * SIDE, ROW * SIDE)
    axes.imshow(sheet, cmap="gray", vmin=0.05, vmax=0.9)
    tint = (*to_rgb(figures.WRONG), 0.13)
    for k in range(ROW * ROW):
        x, y = SIDE * (k % ROW) + 1, SIDE * (k // ROW) + 1
        if k < K:
            edge = "black" if k == 0 else figures.RIGHT
            axes.add_patch(Rectangle((x, y), SIDE - 3, SIDE - 3, fill=False, ec=edge, lw=2.2))
        else:
            met = k < ROW * ROW // tables
            cover = tint if met else (1.0, 1.0, 1.0, 0.7)
            axes.add_patch(Rectangle((x, y), SIDE - 3, SIDE - 3, fc=cover, lw=0))
    for table in range(1, tables):
        axes.axhline(ROW * SIDE * table / tables - 0.5, color="0.2", lw=1.6)
    figures.bare(axes)
    axes.spines[:].set_visible(False)


def answer(
    found: Mapping[str, Sequence[float]],
    floor: Mapping[str, float],
    minus: Mapping[str, Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each batch, a dot for each group of characters; and paired differences."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(figures.WIDTH, 3.6), width_ratios=(1.75, 1))
    drawn = {"recall": figures.sweep(left, found, floor, figures.RIGHT)}
    left.axvline(len(found) - 1.5, color="0.85", lw=1)
    left.set(ylabel="Recall@1, unseen characters (%)", ylim=(0, 88))
    left.set_xlabel("classes × images of a class")
    left.set_title("64 images in a batch", fontweight="bold", loc="left")
    drawn["minus"] = figures.dots(right, minus, every=True, color=figures.RIGHT)
    right.axvline(0, color="0.3", lw=1)
    right.set_xlabel("points of Recall@1")
    right.set_title("minus 32 × 2", fontweight="bold", loc="left")
    return fig, drawn
