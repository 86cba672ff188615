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

from dmlkit import data, figures
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
    fig, axes = plt.subplots(figsize=(6.4, 2.8))
    for n, (many, found) in enumerate(zip(high, true, strict=True)):
        axes.add_patch(Rectangle((n - 0.4, 0), 0.8, found, color=figures.RIGHT, lw=0))
        axes.add_patch(Rectangle((n - 0.4, found), 0.8, 100 - found, color=figures.WRONG, lw=0))
        axes.text(n, 104, f"{found:.0f} %", ha="center", va="bottom", fontsize=11, weight="bold",
                  color=figures.RIGHT)  # fmt: skip
        axes.text(n, -8, f"{n} right", ha="center", va="top", fontsize=10, weight="bold")
        axes.text(n, -24, f"{many:.0f} of 100", ha="center", va="top", fontsize=8.5)
    axes.set(xlim=(-0.5, 4.5), ylim=(-38, 122))
    axes.set_axis_off()
    axes.set_title("how often the vote is right,\nby how many of its four members are", loc="left",
                   weight="bold", fontsize=10)  # fmt: skip
    for ink, name in ((figures.RIGHT, "the vote is right"), (figures.WRONG, "the vote is wrong")):
        axes.plot([], [], "s", color=ink, ms=9, label=name)
    fig.legend(loc="upper right", ncols=2, frameon=False)
    drawn = {"share": figures.sample(share), "repaired": figures.example(true.tolist())}
    return fig, drawn | {"divided": figures.sample(100 - share[:, 0] - share[:, -1])}


def query(every: ImageSet, members: list[Tensor], new: Tensor) -> tuple[Figure, dict[str, Any]]:
    """The first query that two of four members find, and the vote: cosines, and their means.

    A row is a photograph that is nearest for a member or for the vote, so a column can be added up.
    """
    q, own = torch.from_numpy(every.queries)[new], torch.from_numpy(every.labels)[new]
    s = torch.stack([f[q] @ f[~q].T for f in members])
    s = torch.cat([s, s.mean(dim=0, keepdim=True)])  # members and the vote: (5, queries, gallery)
    hits = own[~q][s.argmax(dim=2)] == own[q]
    divided = torch.nonzero((hits[:-1].sum(dim=0) == 2) & hits[-1]).flatten()
    one = int(divided[0]) if len(divided) else 0
    nearest = s[:, one].argmax(dim=1)  # of each member, and of the vote
    chosen = torch.tensor(sorted({*nearest.tolist()}, key=lambda k: -float(s[-1, one, k])))
    table = s[:, one, chosen].T.numpy()  # (photographs, members and vote)
    rows = torch.nonzero(new).flatten()
    shot = np.array([rows[q][one], *rows[~q][chosen]])
    photos = data.load("grocery64", "test", fold=None, side=64).images[torch.from_numpy(shot)]
    names = [every.class_names[every.labels[k]].replace("-", " ") for k in shot]
    inks = [figures.RIGHT if own[~q][k] == own[q][one] else figures.WRONG for k in chosen]
    fig = plt.figure(figsize=(7.2, 0.72 * len(table) + 0.5))
    heights = [0.5] + [1.0] * len(table)
    cells = fig.add_gridspec(len(table) + 1, 3, width_ratios=(1.5, 0.9, 5.8), height_ratios=heights)
    axes = fig.add_subplot(cells[1:, 0])
    axes.imshow(photos[0].permute(1, 2, 0).numpy(), interpolation="bicubic")
    axes.set(xticks=[], yticks=[])
    axes.set_title("query", fontsize=10, fontweight="bold")
    axes.set_xlabel(names[0], fontsize=9)
    head, right = fig.add_subplot(cells[0, 2]), fig.add_subplot(cells[1:, 2])
    for k, (photo, ink) in enumerate(zip(photos[1:], inks, strict=True)):
        axes = fig.add_subplot(cells[k + 1, 1])
        axes.imshow(photo.permute(1, 2, 0).numpy(), interpolation="bicubic")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=ink, lw=3, visible=True)
        right.text(0, k, names[k + 1], color=ink, fontsize=9, va="center", weight="bold")
        for e, value in enumerate(table[k]):
            best, x = chosen[k] == nearest[e], 2.4 + e + (0.35 if e == len(members) else 0)
            style: dict[str, Any] = {"color": ink, "weight": "bold"} if best else {"color": "0.45"}
            right.text(x, k, f"{value:.2f}", ha="center", va="center", fontsize=11, **style)
            if best:
                right.add_patch(Rectangle((x - 0.4, k - 0.36), 0.8, 0.72, color=ink, alpha=0.15))
    for e in range(len(members)):
        head.text(2.4 + e, 0, f"member\n{e + 1}", ha="center", va="bottom", fontsize=8.5)
    head.text(2.75 + len(members), 0, "mean", ha="center", va="bottom", weight="bold")
    right.set(ylim=(len(table) - 0.5, -0.5))
    for panel in (head, right):
        panel.set(xlim=(0, 3.3 + len(members)))
        panel.set_axis_off()
    return fig, {"cosines": figures.example(table.round(4))}


def misranked(f: Tensor, y: Tensor, queries: Tensor) -> float:
    """How many percent of pairs, own and another product, a query's cosines put in a wrong order.

    ``f`` (M, d) are unit embeddings with labels ``y`` (M,); ``queries`` (M,) says which are asked.
    """
    s, same = f[queries] @ f[~queries].T, y[queries][:, None] == y[~queries]
    each = [
        (row[own][:, None] < row[~own]).double().mean() for row, own in zip(s, same, strict=True)
    ]
    return 100 * float(torch.stack(each).nanmean())


def members(rho: float, alone: float, voted: float) -> tuple[Figure, dict[str, Any]]:
    """Bells of cosines with another and with the own product: one member, and two votes of four.

    The gap is that which gives one member its share of pairs in wrong order, ``alone`` percent;
    ``voted`` is that of the vote, measured.
    """
    gap = -(2**0.5) * float(torch.special.ndtri(torch.tensor(alone / 100, dtype=torch.float64)))
    fig, grid = plt.subplots(1, 3, figsize=(7.0, 2.4), sharey=True)
    titles = "one member", f"vote of four, ρ = {rho:.2f}", "four independent, ρ = 0"
    x = np.linspace(-3, gap + 3, 300)
    model = []
    for axes, title, r, many in zip(grid, titles, (1.0, rho, 0.0), (1, 4, 4), strict=True):
        spread = (r + (1 - r) / many) ** 0.5
        for at, ink in ((0, figures.WRONG), (gap, figures.RIGHT)):
            y = np.exp(-(((x - at) / spread) ** 2) / 2) / spread
            axes.fill_between(x, y, color=ink, alpha=0.4, lw=0)
        model.append(50 * math.erfc(gap / (2 * spread)))
        axes.set_title(title, loc="left", weight="bold", fontsize=9)
        axes.set(yticks=[], xticks=[], xlim=(-3.2, gap + 3.2))
        axes.grid(False)
    grid[0].set_xlabel(f"measured: {alone:.1f} % wrong")
    grid[1].set_xlabel(f"model: {model[1]:.1f} % wrong\nmeasured: {voted:.1f} %", weight="bold")
    grid[2].set_xlabel(f"model: {model[2]:.2f} % wrong")
    words = (
        (-3.0, figures.WRONG, "another\nproduct", "left"),
        (gap + 3.0, figures.RIGHT, "own\nproduct", "right"),
    )
    for x_at, ink, name, side in words:
        grid[0].text(x_at, 1.6, name, color=ink, fontsize=8.5, va="top", weight="bold", ha=side)
    wrong = {"alone": alone, "voted": voted, "model": model[1], "independent": model[2]}
    wrong |= {"promised": alone - model[1], "arrived": alone - voted}
    return fig, wrong | {"gap": gap}


def answer(
    rows: Mapping[str, Array],
    voted: Mapping[int, Array],
    member: Mapping[int, Array],
    rho: Mapping[int, Sequence[float]],
    raw: float,
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of members and of their vote, and ρ, by the number of groups; the differences.

    ``voted`` and ``member`` are by kind of product, ``rho`` by repetition, for each number of
    groups, 0 for all products; the rule's difference is the first of ``rows``; ``raw`` is the level
    of untouched features.
    """
    fig, panels = plt.subplot_mosaic(
        [["level", "gain"], ["rho", "gain"]],
        figsize=(7.4, 4.4), width_ratios=(1.25, 1), height_ratios=(2.6, 1), layout="constrained",
    )  # fmt: skip
    fig.set_layout_engine("constrained", wspace=0.08)
    level, below, right = panels["level"], panels["rho"], panels["gain"]
    at = np.arange(len(voted))
    top, low = (np.array([float(each.mean()) for each in of.values()]) for of in (voted, member))
    level.vlines(at, low, top, color="0.75", lw=6, zorder=1)
    level.plot(at, top, "D-", color=WIDE, lw=2.2, ms=7, label="vote of four")
    level.plot(at, low, "o-", color="0.45", lw=1.6, ms=6, label="one member")
    ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.5}
    for x, high, alone in zip(at, top, low, strict=True):
        style: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "bbox": ground}
        level.annotate(f"{high:.1f}", (x, high), (0, 8), color=WIDE, weight="bold", **style)
        level.annotate(f"{alone:.1f}", (x, alone), (0, -16), color="0.35", **style)
    said = f"untouched features, {raw:.1f}"
    level.axhline(raw, color="0.6", lw=1.4, ls=":", zorder=0, label=said)
    level.set(xlim=(-0.45, at[-1] + 0.45), ylim=(min(low.min(), raw) - 8, max(top.max(), raw) + 3))
    level.legend(loc="lower right", frameon=False, fontsize=8.5)
    level.set_title("Recall@1 (%)", loc="left", fontsize=9, weight="bold")
    shared = [float(np.mean(each)) for each in rho.values()]
    below.plot(at, shared, "s-", color=figures.WRONG, lw=2, ms=5)
    for x, value in zip(at, shared, strict=True):
        below.annotate(f"{value:.2f}", (x, value), (0, 6), textcoords="offset points", fontsize=8.5,
                       ha="center", color=figures.WRONG)  # fmt: skip
    below.set(ylim=(0, 1.15), yticks=[0, 1], xlim=level.get_xlim())
    below.set_title("ρ of two members", loc="left", fontsize=9, weight="bold")
    level.set_xticks(at, [])
    below.set_xticks(at, [f"{many}" if many else "all\nproducts" for many in voted])
    below.set_xlabel("groups that each member learns")
    for axes in (level, below):
        axes.grid(False, axis="x")
    drawn = figures.gains(right, rows)
    right.set_title("difference of votes", loc="left", fontsize=9, weight="bold")
    names = [f"{many}" if many else "all" for many in voted]
    drawn["vote"] = figures.example(dict(zip(names, top.tolist(), strict=True)))
    drawn["member"] = figures.example(dict(zip(names, low.tolist(), strict=True)))
    drawn["rho"] = {
        name: figures.sample(each) for name, each in zip(names, rho.values(), strict=True)
    }
    return fig, drawn
