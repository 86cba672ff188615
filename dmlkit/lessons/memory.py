"""What lesson 10 draws."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from torch import Tensor

from dmlkit import figures

INKS = {"none": "0.45", "old": figures.WRONG, "fresh": figures.RIGHT}
#: Where the names of the lines of the recorded run stand.
ENDS = {
    "uniform": {"old": 87.0, "fresh": 80.5, "none": 56.7},
    "8 × 4": {"fresh": 90.5, "none": 84.5, "old": 78.5},
}
KINDS = {"uniform": "uniform batches", "8 × 4": "batches of 8 × 4"}


def drift(moved: Tensor, same: Tensor, every: int = 8) -> Figure:
    """Distance against age: how far images have moved at five steps, moved[now, then]."""
    fig, axes = plt.subplots(figsize=(6.5, 3.1))
    frames = [k for k in (5, 9, 13, 18, 24) if k < len(moved)]
    shades = plt.get_cmap("viridis")(np.linspace(0.85, 0.05, len(frames)))
    for now, ink in zip(frames, shades, strict=True):
        far = moved[now, : now + 1].flip(0).numpy()  # by age
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
    for kind in KINDS:
        for a, b in (("old", "none"), ("fresh", "old"), ("fresh", "none")):
            gain = recall[f"{kind}, {a}"] - recall[f"{kind}, {b}"]
            drawn[f"{kind}: {a} − {b}"] = figures.sample(gain[:, -1])
    return fig, drawn


def answer(
    lines: Mapping[str, np.ndarray],
    aged: Mapping[str, np.ndarray],
    same: Mapping[str, np.ndarray],
    pixels: float,
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by step (seeds, 10) of six settings, and what a memory and its age bring."""
    fig, ((*panels,), (left, right)) = plt.subplots(
        2, 2, figsize=(6.5, 5.6), height_ratios=(1.3, 1)
    )
    at = 100 * np.arange(1, 11)
    for axes, (kind, title) in zip(panels, KINDS.items(), strict=True):
        for name, ink in INKS.items():
            each = lines[f"{kind}, {name}"]
            axes.plot(at, each.T, color=ink, lw=0.6, alpha=0.3)
            axes.plot(at, each.mean(axis=0), "o-", color=ink, lw=2.2, ms=3.5)
            axes.text(1030, ENDS[kind][name], name, color=ink, va="center", weight="bold")
        axes.axvline(200, color="0.7", lw=1, ls="--", zorder=0)
        axes.axhline(pixels, color="0.5", ls=":", lw=1.3, zorder=0)
        axes.set(ylim=(0, 100), xlim=(60, 1250), xlabel="step", xticks=[200, 500, 1000])
        axes.set_title(title, loc="left", weight="bold")
    panels[0].set_ylabel("Recall@1, unseen characters (%)")
    panels[0].text(212, 94, "the memory begins", fontsize=8, color="0.35")
    panels[1].text(1240, pixels - 1, "raw pixels", fontsize=8, color="0.35", ha="right", va="top")
    drawn: dict[str, Any] = {"lines": {way: figures.sample(each) for way, each in lines.items()}}
    for name in ("old", "fresh"):
        more = lines[f"8 × 4, {name}"] - lines["8 × 4, none"]
        left.plot(at, more.T, color=INKS[name], lw=0.6, alpha=0.35)
        left.plot(at, more.mean(axis=0), "o-", color=INKS[name], lw=2.2, ms=3.5)
        high = more[:, -1].mean() - (name == "old")  # below the line at 0
        left.text(1030, high, name, color=INKS[name], va="center", weight="bold")
        drawn[f"8 × 4, {name} − none, by step"] = figures.sample(more)
    left.axhline(0, color="0.3", lw=1)
    left.set(xlim=(60, 1250), xlabel="step", xticks=[200, 500, 1000], ylabel="points above none")
    left.set_title("8 × 4, minus none", loc="left", weight="bold")
    gain = {}
    for kind in KINDS:
        for a, b in (("old", "none"), ("fresh", "old")):
            gain[f"{kind}:\n{a} − {b}"] = (lines[f"{kind}, {a}"] - lines[f"{kind}, {b}"])[:, -1]
    found = figures.differences(right, gain, "points of Recall@1")
    drawn["gain"] = {name.replace("\n", " "): each for name, each in found.items()}
    right.set_yticks(range(len(gain)), list(gain))
    right.set_title("at step 1,000", loc="left", weight="bold")
    for a, b in (("old", "none"), ("fresh", "old")):
        difference = lines[f"8 × 4, {a}"] - lines[f"8 × 4, {b}"]
        drawn[f"8 × 4, step 300: {a} − {b}"] = figures.sample(difference[:, 2])
    drawn["fresh − none"] = {
        kind: figures.sample((lines[f"{kind}, fresh"] - lines[f"{kind}, none"])[:, -1])
        for kind in KINDS
    }
    drawn["oldest"] = {way: figures.sample(each[:, :, 0]) for way, each in aged.items()}
    drawn["same"] = {way: figures.sample(each) for way, each in same.items()}
    drawn["pixels"] = figures.example(pixels)
    return fig, drawn
