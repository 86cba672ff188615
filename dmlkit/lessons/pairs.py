"""What lesson 02 draws."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Circle, Rectangle
from torch import Tensor

from dmlkit import data, figures, statistics
from dmlkit.data.batches import PK

#: The six images of the first picture, and where they lie on the circle (degrees).
NAMES = ("R₁", "R₂", "K₁", "K₂", "8₁", "8₂")
TURN = (65.0, 350.0, 15.0, 190.0, 255.0, 318.0)
_ANCHOR = 2  # K₁, whose pushes are drawn strong


def toy() -> Tensor:
    """Six points on a circle, pair after pair: (6, 2)."""
    turn = torch.tensor(TURN, dtype=torch.float64).deg2rad()
    return torch.stack([turn.cos(), turn.sin()], dim=1)


def circles(x: Tensor, weights: Mapping[str, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """The springs of six images for each loss: points (6, 2), and w (6, 6) of each loss.

    What pushes K₁ is drawn strong, with its share in percent; all other springs are faint.
    """
    glyphs, sines = data.load("glyphs", "train"), (1 - (x @ x.T) ** 2).clamp_min(0).sqrt()
    shown = [np.flatnonzero(glyphs.labels == label)[k] for label in (140, 122, 65) for k in (0, 1)]
    fig, panels = plt.subplots(1, len(weights), figsize=(figures.WIDTH, 2.2))
    drawn: dict[str, Any] = {}
    for axes, (name, w) in zip(panels, weights.items(), strict=True):
        turns = w * sines
        push = turns[_ANCHOR].clamp_min(0)
        share = 100 * push / push.sum()
        axes.add_patch(Circle((0, 0), 1, fill=False, color="0.8", zorder=0))
        part = turns.abs() / turns.abs().triu().sum()
        for i, j in zip(*np.triu_indices(len(x), 1), strict=True):
            if part[i, j] > 0.002 and not (_ANCHOR in (i, j) and turns[i, j] > 0):
                ink = figures.RIGHT if turns[i, j] < 0 else figures.WRONG
                axes.plot(*x[[i, j]].T, color=ink, lw=12 * float(part[i, j]), alpha=0.3, zorder=1)
        for other, spot in enumerate(x):
            if share[other] >= 0.5:
                line: dict[str, Any] = {
                    "solid_capstyle": "butt",
                    "lw": max(0.8, float(share[other]) / 16),
                    "zorder": 2,
                }
                axes.plot(*torch.stack([x[_ANCHOR], spot]).T, color=figures.WRONG, **line)
        for k, (spot, image_of, named) in enumerate(zip(x, shown, NAMES, strict=True)):
            pixels = 1 - glyphs.images[image_of, 0].numpy() / 255
            image = OffsetImage(pixels, cmap="gray", zoom=0.6)
            axes.add_artist(AnnotationBbox(image, (1.34 * spot).tolist(), frameon=False))
            said = named if share[k] < 0.5 else f"{named}\n{share[k]:.0f} %"
            strong: dict[str, Any] = {"color": figures.WRONG, "fontweight": "bold"}
            look = strong if share[k] >= 0.5 else {"color": "0.35"}
            at = 1.34 * spot + spot.new([0.24, 0.0] if spot[0] > -0.5 else [-0.3, 0.38])
            axes.text(*at.tolist(), said, fontsize=8.5, va="center", **look)
        axes.plot(*x.T, "o", color="0.15", ms=4.5, zorder=3)
        axes.plot(*x[1::2].T, "o", mfc="white", mec="0.15", ms=4.5, zorder=4)
        axes.set(xlim=(-1.65, 1.95), ylim=(-1.55, 1.5), aspect="equal", frame_on=False)
        figures.bare(axes)
        axes.set_title(name, fontweight="bold", fontsize=10)
        drawn[name] = {"w": w, "turned": turns.abs(), "share": share}
    return fig, drawn


#: Scales and rates that are searched together.
SCALES, RATES = (1.0, 4.0, 16.0, 64.0, 256.0), (0.0005, 0.0015, 0.005, 0.015, 0.05)
GRID = tuple((a, rate) for a in SCALES for rate in RATES)


def search(
    found: Mapping[str, Mapping[str, Sequence[float]]],
) -> tuple[Figure, dict[str, Any], dict[float, float]]:
    """Two maps over scale and rate: Recall@1 of validation characters, share of the nearest.

    ``found`` has for "recall" and "share" the trainings of each "scale, rate". Returns the figure,
    its numbers, and the rate of each scale that found most.
    """
    best_rate: dict[float, float] = {}
    scales, rates = (
        [*dict.fromkeys(key.split(", ")[k] for key in found["recall"])] for k in (0, 1)
    )
    titles = {"recall": "Recall@1, validation (%)", "share": "share of the nearest (%)"}
    fig, panels = plt.subplots(1, 2, figsize=(figures.WIDTH, 2.7), sharey=True)
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        table = np.array([[np.mean(found[name][f"{a}, {r}"]) for r in rates] for a in scales])
        cut = (table.min() + table.max()) / 2
        axes.imshow(table, cmap="Blues", aspect="auto", vmin=table.min() - 5)
        for (row, column), value in np.ndenumerate(table):
            best = name == "recall" and value == table[row].max()
            ink: dict[str, Any] = {"color": "white" if value > cut else "0.15"}
            ink |= {"ha": "center", "va": "center", "fontsize": 9.5}
            axes.text(column, row, f"{value:.0f}", fontweight="bold" if best else "normal", **ink)
            if best:
                best_rate[float(scales[row])] = float(rates[column])
                box: dict[str, Any] = {"fill": False, "ec": figures.WRONG, "lw": 2}
                axes.add_patch(Rectangle((column - 0.47, row - 0.46), 0.94, 0.92, **box))
        axes.set(xticks=range(len(rates)), xticklabels=rates, xlabel="learning rate")
        axes.set(yticks=range(len(scales)), yticklabels=scales)
        axes.grid(False)
        axes.set_title(title, fontweight="bold", loc="left", fontsize=10)
    panels[0].set_ylabel("scale α")
    drawn = {part: {k: figures.sample(v) for k, v in found[part].items()} for part in titles}
    return fig, drawn, best_rate


#: How the switches of the verdict are drawn.
_LOOKS = {
    "4 to 16": (figures.RIGHT, "-", "o"), "16 to 4": (figures.RIGHT, "--", "s"),
    "16 to 64": (figures.WRONG, "-", "o"), "64 to 16": (figures.WRONG, "--", "s"),
    "16 to 64, short": ("0.35", ":", "D"),
}  # fmt: skip


def verdict(
    changes: Mapping[str, np.ndarray], last: int, threshold: float
) -> tuple[Figure, dict[str, Any]]:
    """How each switch changes the nearest's share: by the step (R, S), and in the last steps."""
    fig, (course, end) = plt.subplots(
        1, 2, figsize=(figures.WIDTH, 3.9), width_ratios=(1, 1.35), sharey=True
    )
    drawn: dict[str, Any] = {"at once": {}, "end": {}}
    for place, (name, (ink, line, mark)) in enumerate(_LOOKS.items()):
        values = changes[name]
        said = name.replace(", short", ",\ngradients as at 16").replace(" to ", " → ")
        by_step = values.mean(axis=0)
        course.plot(range(1, 1 + len(by_step)), by_step, color=ink, ls=line, lw=1.7, label=said)
        kept = values[:, -last:].mean(axis=1)
        end.plot(place, values[:, 0].mean(), mark, mfc="white", mec=ink, mew=1.5, ms=7)
        end.plot([place + 0.2] * len(kept), kept, ".", color=ink, alpha=0.45, ms=6)
        mean, low, high, _ = statistics.interval(kept)
        end.errorbar(place, mean, [[mean - low], [high - mean]], color=ink, fmt=mark, ms=8, lw=3.5)
        drawn["at once"][name] = figures.sample(values[:, 0])
        drawn["end"][name] = figures.sample(kept)
    for axes in (course, end):
        axes.axhspan(-threshold, threshold, color="0.5", alpha=0.15, lw=0, zorder=0)
        axes.axhline(0, color="0.3", lw=1, zorder=1)
        axes.grid(False, axis="x")
    look: dict[str, Any] = {"fontsize": 8.5, "color": "0.3", "ha": "right", "va": "center"}
    end.text(len(changes) - 0.45, threshold + 4, "gray: below 10 points", **look)
    end.text(0.2, changes["4 to 16"][:, 0].mean(), "at once", **look | {"ha": "left"})
    end.text(0.32, changes["4 to 16"][:, -last:].mean(), "at the end", **look | {"ha": "left"})
    names = [
        name.replace(", short", "\n(gradients\nas at 16)").replace(" to ", " → ") for name in _LOOKS
    ]
    end.set(xticks=range(len(changes)), xticklabels=names, xlim=(-0.5, len(changes) - 0.4))
    course.set(xlabel="steps after the switch", ylabel="change of the share (points)")
    course.set_title("step by step", fontweight="bold", loc="left", fontsize=10)
    course.legend(fontsize=8, loc="upper right", handlelength=2.2, frameon=False)
    end.set_title("by the switch of α", fontweight="bold", loc="left", fontsize=10)
    return fig, drawn


#: The verdict's picture in words.
VERDICT_ALT = (
    "Left: the change of the nearest's share by steps after each switch of α. The switches "
    "up begin above 40 points and soon fall below zero; 4 to 16 then rises to about 20, and 16 "
    "to 64, with gradients of either length, returns to zero. 16 to 4 stays near minus 18. 64 to "
    "16 begins inside the gray band of 10 points and stays there. Right: the last ten steps, with "
    "intervals. Only the two switches between 4 and 16 lie outside the band."
)


def history(ends: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """How much the last shares of networks differ that came to a scale in different ways."""
    asked = (
        ("64 to 64", "16 to 16"), ("64 to 16", "16 to 16"),
        ("16 to 64", "64 to 64"), ("4 to 16", "16 to 16"),
    )  # fmt: skip
    return {f"{a} minus {b}": figures.sample(ends[f"{a} end"] - ends[f"{b} end"]) for a, b in asked}


def unseen(
    networks: Mapping[Any, Any],
    test: data.ImageSet,
    switches: Sequence[tuple[int, int]],
    share: Callable[[Tensor, float], float],
) -> dict[str, list[float]]:
    """How each switch changes the share of the nearest in ten batches of unseen characters."""
    seeds = list(dict.fromkeys(seed for seed, *_ in networks))

    def of(seed: int, old: int, to: int) -> float:
        model, _ = networks[seed, old, to]
        device = next(model.parameters()).device
        batches, found = PK(test.labels, 32, 2, seed), []
        model = copy.deepcopy(model).train()  # as it is pushed: BatchNorm of the batch
        for step in range(10):
            with torch.no_grad():
                x = F.normalize(model(test.images[batches(step)].to(device) / 255))
            found.append(share((x @ x.T)[0::2, 1::2], to))
        return float(np.mean(found))

    return {
        f"{old} to {to}": [of(k, old, to) - of(k, old, old) for k in seeds]
        for old, to in switches
        if old != to
    }


def ranks(cosines: Mapping[float, Tensor]) -> tuple[Figure, dict[str, Any]]:
    """Who gets the push, by rank: with cosines (P, P) of the networks trained at some scales."""
    fig, panels = plt.subplots(1, 3, figsize=(figures.WIDTH, 2.1), sharey=True)
    purple = figures.look("n_pairs_normalized").color
    shown = (
        (16.0, 16.0, "trained at 16, α = 16", purple),
        (16.0, 64.0, "the same, α = 64", "0.5"),
        (64.0, 64.0, "trained at 64, α = 64", purple),
    )
    for axes, (trained, alpha, said, ink) in zip(panels, shown, strict=True):
        s = _negatives(cosines[trained])
        push = (alpha * s).softmax(dim=1) * (1 - s**2).clamp_min(0).sqrt()
        high = 100 * (push / push.sum(dim=1, keepdim=True)).mean(dim=0)
        axes.bar(range(1, len(high) + 1), high.cpu(), color=ink, width=0.8)
        axes.axhline(100 / len(high), color="0.5", ls=":", lw=1.4)
        axes.set(xlabel="negatives, nearest first", ylim=(0, 100), xticks=(1, 10, 20, 30))
        axes.grid(False, axis="x")
        axes.set_title(said, fontweight="bold", loc="left", fontsize=9.5)
    panels[0].set_ylabel("share of the push (%)")
    kept = {
        f"{a:g}": figures.example([[round(v, 3) for v in row] for row in _negatives(s).tolist()])
        for a, s in cosines.items()
    }
    return fig, {"negatives": kept}


def _negatives(s: Tensor) -> Tensor:
    """The cosines of each anchor's negatives, the nearest first: (P, P) -> (P, P − 1)."""
    two = ~torch.eye(len(s), dtype=torch.bool, device=s.device)
    return s[two].reshape(len(s), -1).sort(dim=1, descending=True).values
