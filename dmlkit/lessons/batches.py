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
#: Where names stand beside their points: points across and up, and what of them stands there.
_BESIDE = {
    "32 × 2": (6, 8, "center", "bottom"),
    "8 × 8": (-7, 0, "right", "center"),
    "2 × 32": (0, -8, "center", "top"),
    "32 × 2,\n4 tables": (7, -3, "left", "center"),
    "8 × 8,\n4 tables": (-7, 0, "right", "center"),
}


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
    floor: Mapping[str, float],
    met: Mapping[str, Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of each batch, a dot for each group of characters; and by the class pairs met.

    ``met`` has the classes seen, and the percentage of class pairs that ever met.
    """
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(figures.WIDTH, 3.7), width_ratios=(1.6, 1), sharey=True
    )
    drawn = {"recall": figures.sweep(left, found, floor, figures.RIGHT)}
    left.axvline(len(found) - 2.5, color="0.85", lw=1)
    left.set(ylabel="Recall@1, unseen characters (%)", ylim=(0, 88))
    left.set_xlabel("classes × images of a class")
    left.tick_params(axis="x", labelsize=8)
    left.set_title("64 images in a batch", fontweight="bold", loc="left")
    means = {name: float(np.mean(values)) for name, values in found.items()}
    for name, below in (("16 × 4", "32 × 2,\n4 tables"), ("8 × 8", "8 × 8,\n4 tables")):
        ends = [met[name][1], met[below][1]], [means[name], means[below]]
        right.plot(*ends, color="0.7", lw=1.4, zorder=1)
    for name, mean in means.items():
        ink = figures.WRONG if "tables" in name else figures.RIGHT
        right.plot(met[name][1], mean, "o", color=ink, ms=7, zorder=2)
        x, y, ha, va = _BESIDE.get(name, (0, 8, "center", "bottom"))
        style: dict[str, Any] = {"textcoords": "offset points", "ha": ha, "va": va, "color": ink}
        right.annotate(name, (met[name][1], mean), (x, y), fontsize=8.5, **style)
    right.set_xscale("log")
    right.set(xlim=(0.05, 300), xticks=(0.1, 1, 10, 100), xticklabels=("0.1", "1", "10", "100"))
    right.minorticks_off()
    right.set_xlabel("class pairs that ever met (%)")
    right.set_title("who meets at all?", fontweight="bold", loc="left")
    drawn["met"] = {
        name.replace("\n", " "): {"classes": float(c), "pairs": float(p)}
        for name, (c, p) in met.items()
    }
    return fig, drawn
