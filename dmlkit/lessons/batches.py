"""What lesson 05 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from dmlkit import figures

ROW, SIDE = 8, 32  # images in a row of a sheet, and pixels of an image


def sheets(images: Mapping[int, Tensor]) -> Figure:
    """Batches of 64 images (64, 1, 32, 32) as sheets, by the number of images of a class.

    The first image is the anchor; its positives are framed in blue, negatives are in orange.
    """
    fig, panels = plt.subplots(1, len(images), figsize=(figures.WIDTH, 2.75))
    for axes, (K, batch) in zip(panels, images.items(), strict=True):
        ink = 1 - batch[:, 0].reshape(ROW, ROW, SIDE, SIDE).float().numpy() / 255
        axes.imshow(
            ink.transpose(0, 2, 1, 3).reshape(ROW * SIDE, ROW * SIDE),
            cmap="gray",
            vmin=0.05,
            vmax=0.9,
        )
        for k in range(ROW * ROW):
            color = "black" if k == 0 else figures.RIGHT if k < K else figures.WRONG
            x, y = SIDE * (k % ROW), SIDE * (k // ROW)
            axes.add_patch(
                Rectangle(
                    (x + 1, y + 1), SIDE - 3, SIDE - 3,
                    fill=k >= K, fc=(*to_rgb(figures.WRONG), 0.13),
                    ec=color if k < K else "none", lw=2.2 if k < K else 0,
                )
            )  # fmt: skip
        figures.bare(axes)
        axes.spines[:].set_visible(False)
        axes.set_title(f"{64 // K} classes × {K} images", fontweight="bold", fontsize=10)
    return fig


def answer(
    found: Mapping[str, Sequence[float]],
    floor: Mapping[str, float],
    minus: Mapping[str, Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each batch, a dot for each group of characters; and paired differences."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(figures.WIDTH, 3.6), width_ratios=(1.75, 1))
    drawn = {"recall": figures.sweep(left, found, floor, figures.RIGHT)}
    left.axvline(len(found) - 1.5, color="0.85", lw=1)
    left.set(ylabel="Recall@1, unseen characters (%)", ylim=(0, 80))
    left.set_xlabel("classes × images of a class")
    left.set_title("64 images in a batch", fontweight="bold", loc="left")
    drawn["minus"] = figures.dots(right, minus, every=True, color=figures.RIGHT)
    right.axvline(0, color="0.3", lw=1)
    right.set_xlabel("points of Recall@1")
    right.set_title("minus 32 × 2", fontweight="bold", loc="left")
    return fig, drawn
