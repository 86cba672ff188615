"""What lesson 11 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import data, figures, statistics
from dmlkit.data.images import ImageSet

Array = NDArray[np.float64]
WIDE = "#0072b2"


def errors(
    fours: Sequence[tuple[list[Tensor], Tensor]],
    right: Callable[[Tensor, Tensor], Tensor],
    vote: Callable[[list[Tensor]], Tensor],
) -> tuple[Figure, dict[str, Any]]:
    """Queries by how many of four members are right, and how often the vote is."""
    count, voted = np.zeros((2, len(fours), 5))
    for r, (members, new) in enumerate(fours):
        good = torch.stack([right(f, new) for f in members]).sum(dim=0)
        count[r] = torch.bincount(good, minlength=5)
        voted[r] = torch.bincount(good[right(vote(members), new)], minlength=5)
    share = 100 * count / count.sum(axis=1, keepdims=True)
    high, true = share.mean(axis=0), 100 * voted.sum(axis=0) / count.sum(axis=0).clip(1)
    ends = np.cumsum(high)
    fig, axes = plt.subplots(figsize=(6.4, 3.0))
    for k in range(100):
        n = int(np.searchsorted(ends, k + 0.5))
        done = (k + 0.5 - (ends[n] - high[n])) < high[n] * (1 - true[n] / 100)  # first the missed
        ink = figures.WRONG if done else figures.RIGHT
        x, y = k // 5, 4 - k % 5
        axes.add_patch(Rectangle((x, y), 0.86, 0.86, color=ink, lw=0))
        axes.text(x + 0.43, y + 0.43, f"{n}", ha="center", va="center", fontsize=8, color="white",
                  weight="bold")  # fmt: skip
    axes.set(xlim=(-0.2, 20), ylim=(-0.2, 5), aspect="equal")
    axes.set_axis_off()
    axes.set_title("members that are right, of four", loc="left", weight="bold", fontsize=10)
    for ink, name in ((figures.RIGHT, "the vote is right"), (figures.WRONG, "the vote is wrong")):
        axes.plot([], [], "s", color=ink, ms=9, label=name)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
    drawn = {"share": figures.sample(share), "repaired": figures.example(true.tolist())}
    return fig, drawn | {"divided": figures.sample(100 - share[:, 0] - share[:, -1])}


def query(every: ImageSet, members: list[Tensor], new: Tensor) -> tuple[Figure, dict[str, Any]]:
    """The first query that two of four members find, and the vote: nearest photographs, cosines."""
    q, own = torch.from_numpy(every.queries)[new], torch.from_numpy(every.labels)[new]
    s = torch.stack([f[q] @ f[~q].T for f in members])
    s = torch.cat([s, s.mean(dim=0, keepdim=True)])  # members and the vote: (5, queries, gallery)
    hits = own[~q][s.argmax(dim=2)] == own[q]
    divided = torch.nonzero((hits[:-1].sum(dim=0) == 2) & hits[-1]).flatten()
    one = int(divided[0]) if len(divided) else 0
    same = own[~q] == own[q][one]
    near, rival = (s[:, one].masked_fill(hide, -1).amax(dim=1).numpy() for hide in (~same, same))
    rows = torch.nonzero(new).flatten()
    shot = np.array([rows[q][one], *rows[~q][s[:, one].argmax(dim=1)]])
    photos = data.load("grocery64", "test", fold=None, side=64).images[torch.from_numpy(shot)]
    fig = plt.figure(figsize=(7.2, 3.3))
    cells = fig.add_gridspec(2, 6, height_ratios=(1.25, 1))
    titles = ["query", *(f"member {k + 1}" for k in range(4)), "vote"]
    for k, (photo, title) in enumerate(zip(photos, titles, strict=True)):
        axes = fig.add_subplot(cells[0, k])
        axes.imshow(photo.permute(1, 2, 0).numpy(), interpolation="bicubic")
        axes.set(xticks=[], yticks=[])
        axes.set_title(title, fontsize=10, fontweight="bold" if k in (0, 5) else "normal")
        ink = "0.2" if k == 0 else figures.RIGHT if hits[k - 1, one] else figures.WRONG
        name = every.class_names[every.labels[shot[k]]].replace("-", " ")
        axes.set_xlabel(name, fontsize=8.5, color=ink)
        axes.spines[:].set(color=ink, lw=3 if k else 1, visible=True)
    axes = fig.add_subplot(cells[1, :])
    axes.plot(near, "o", color=figures.RIGHT, ms=8, label="nearest of the\nquery's product")
    axes.plot(rival, "X", color=figures.WRONG, ms=8, label="nearest of\nanother product")
    axes.set(xlim=(-1.5, 4.5), ylabel="cosine", xticks=[])
    axes.axvline(3.5, color="0.8", lw=1)
    axes.margins(y=0.2)
    axes.grid(False)
    axes.legend(loc="center left", fontsize=8.5, frameon=False)
    return fig, {"own": figures.example(near), "rival": figures.example(rival)}


def members(rho: float) -> Figure:
    """Bells of cosines with another and with the own product: one member, and two votes of four."""
    fig, grid = plt.subplots(1, 3, figsize=(7.0, 2.3), sharey=True)
    titles = "one member", f"four of ours, ρ = {rho:.2f}", "four independent, ρ = 0"
    x = np.linspace(-3, 4, 300)
    for axes, title, r, many in zip(grid, titles, (1.0, rho, 0.0), (1, 4, 4), strict=True):
        spread = (r + (1 - r) / many) ** 0.5
        for at, ink in ((0, figures.WRONG), (1, figures.RIGHT)):
            y = np.exp(-(((x - at) / spread) ** 2) / 2) / spread
            axes.fill_between(x, y, color=ink, alpha=0.4, lw=0)
        wrong = 50 * math.erfc(1 / (2 * spread))
        axes.set_title(title, loc="left", weight="bold", fontsize=9)
        axes.set_xlabel(f"{wrong:.0f} % of pairs wrong")
        axes.set(yticks=[], xticks=[], xlim=(-3.4, 4.4))
        axes.grid(False)
    words = ((-3.2, figures.WRONG, "another\nproduct"), (2.3, figures.RIGHT, "own\nproduct"))
    for x_at, ink, name in words:
        grid[0].text(x_at, 0.97, name, color=ink, fontsize=8.5, va="top", weight="bold")
    return fig


def answer(rows: Mapping[str, Array]) -> tuple[Figure, dict[str, Any]]:
    """Differences of Recall@1 by kind of product, the rule's first."""
    fig, axes = plt.subplots(figsize=(6.9, 3.7))
    axes.axvline(0, color="0.3", lw=1)
    drawn: dict[str, Any] = {}
    ends = np.concatenate([np.asarray(values) for values in rows.values()])
    draw = np.random.default_rng(0)
    for k, (name, values) in enumerate(rows.items()):
        mean, low, high, n = statistics.interval(values)
        ink, big = (WIDE, 1.6) if k == 0 else ("0.35", 1.0)
        shake = k + 0.25 + 0.06 * draw.uniform(-1, 1, len(values))
        axes.plot(values, shake, "o", ms=2.5, color=ink, alpha=0.35, mew=0)
        axes.plot([low, high], [k, k], color=ink, lw=3 * big)
        axes.plot(mean, k, "D", color=ink, ms=6 * big)
        said = f"{mean:+.1f}".replace("-", "−")
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        style: dict[str, Any] = {"color": ink, "va": "center", "weight": "bold", "zorder": 5}
        axes.text(high + 0.8, k - 0.05, said, fontsize=10 * big**0.6, bbox=ground, **style)
        drawn[name] = figures.sample(values) | {"mean": float(mean), "n": int(n)}
        drawn[name] |= {"low": float(low), "high": float(high)}
    axes.set_yticks(range(len(rows)), list(rows), fontsize=9.5)
    axes.get_yticklabels()[0].set(weight="bold", color=WIDE)
    axes.set(ylim=(len(rows) - 0.4, -0.55), xlim=(ends.min() - 1, ends.max() + 1))
    axes.set_xlabel("difference of Recall@1 (points)")
    axes.grid(False, axis="y")
    return fig, drawn


def rates(validation: Mapping[tuple[str, float], Array]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of validation products by the rate, a panel for each way: (repetitions, 81)."""
    ways = list(dict.fromkeys(way for way, _ in validation))
    fig, panels = plt.subplots(2, 2, figsize=(6.9, 4.4), sharey=True, layout="constrained")
    drawn = {}
    for axes, way in zip(panels.flat, ways, strict=True):
        each = {
            f"{rate:g}": np.nanmean(x, axis=1) for (of, rate), x in validation.items() if of == way
        }
        drawn[way] = figures.sweep(axes, each, {}, "0.35", "", 1)
        axes.set_title(way, fontweight="bold", loc="left", fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
    fig.supylabel("Recall@1, validation (%)", fontsize=9)
    fig.supxlabel("learning rate", fontsize=9)
    return fig, drawn
