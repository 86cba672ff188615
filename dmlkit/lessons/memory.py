"""What lesson 10 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from dmlkit import figures

INKS = {"none": "0.45", "old": figures.WRONG, "fresh": figures.RIGHT}
KINDS = {"uniform": "uniform batches", "8 × 4": "batches of 8 × 4"}


def drift(moved: Tensor, same: Tensor, every: int = 8) -> Figure:
    """Distance against age: how far images have moved at five steps, moved[now, then]."""
    fig, axes = plt.subplots(figsize=(6.5, 3.1))
    frames = [k for k in (5, 9, 13, 18, 24) if k < len(moved)]
    shades = plt.get_cmap("viridis")(np.linspace(0.85, 0.05, len(frames)))
    for now, ink in zip(frames, shades, strict=True):
        far = moved[now, : now + 1].flip(0)  # by age
        axes.plot(every * np.arange(now + 1), far, color=ink, lw=2.2)
        axes.plot(every * now, far[-1], "o", color=ink, ms=5)
        axes.text(
            every * now, far[-1] + 0.05, f"step {every * now}",
            color=ink, ha="center", fontsize=9, weight="bold",
        )  # fmt: skip
    level = float(same[frames].mean())
    axes.axhline(level, color=figures.WRONG, ls="--", lw=1.6)
    axes.text(
        every * (len(moved) - 1), level - 0.03, "two images of one character",
        color=figures.WRONG, ha="right", va="top", fontsize=9,
    )  # fmt: skip
    axes.set(xlabel="age of an entry (batches)", ylabel="has moved by", ylim=(0, 1.6))
    axes.set_xlim(0, every * (len(moved) - 1) + 8)
    axes.set_title("the older, the farther off; later, all move less", loc="left", weight="bold")
    return fig


def live(
    recall: Mapping[str, np.ndarray], pixels: Sequence[float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 at the end of each setting, in two panels; with all of its lines."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 2.6), sharey=True)
    floor = {"raw pixels": float(np.mean(pixels))}
    for axes, (kind, title) in zip(panels, KINDS.items(), strict=True):
        scores = {name: recall[f"{kind}, {name}"][:, -1] for name in INKS}
        figures.sweep(axes, scores, floor if kind == "8 × 4" else {}, figures.look("xbm").color)
        axes.axhline(floor["raw pixels"], color="0.5", ls=":", lw=1.4, zorder=0)
        axes.set_title(title, loc="left", weight="bold")
    panels[0].set(ylabel="Recall@1, unseen characters (%)", ylim=(0, 75))
    drawn: dict[str, Any] = {"lines": {way: figures.sample(x) for way, x in recall.items()}}
    drawn["pixels"] = figures.sample(pixels)
    return fig, drawn
