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
WAYS = {  # how members learn
    "different groups": "#d55e00", "same groups": "#7a7a7a", "all products": WIDE,
    "one wide head": "#222222",
}  # fmt: skip


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
    fig, axes = plt.subplots(figsize=(6.4, 2.6))
    for n, (many, found) in enumerate(zip(high, true, strict=True)):
        axes.add_patch(Rectangle((n - 0.4, 0), 0.8, found, color=figures.RIGHT, lw=0))
        axes.add_patch(Rectangle((n - 0.4, found), 0.8, 100 - found, color=figures.WRONG, lw=0))
        axes.text(n, 104, f"{found:.0f} %", ha="center", va="bottom", fontsize=11, weight="bold",
                  color=figures.RIGHT)  # fmt: skip
        axes.text(n, -8, f"{n} right", ha="center", va="top", fontsize=10, weight="bold")
        axes.text(n, -24, f"{many:.0f} of 100", ha="center", va="top", fontsize=8.5)
    axes.set(xlim=(-0.5, 4.5), ylim=(-38, 122))
    axes.set_axis_off()
    axes.set_title("of the four members", loc="left", weight="bold", fontsize=10)
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
    return fig, wrong | {"gap": gap}


def answer(
    rows: Mapping[str, Array], voted: Mapping[str, Array], member: Mapping[str, Array], raw: float
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """Levels of Recall@1, from members to their vote; and its differences by kind of product.

    The rule's difference is the first; ``raw`` is the level of untouched features.
    """
    fig, (left, axes) = plt.subplots(1, 2, figsize=(7.2, 3.7), width_ratios=(1, 1.25))
    for k, way in enumerate(voted):
        at, end = float(member[way].mean()), float(voted[way].mean())
        if abs(end - at) > 0.05:
            style: dict[str, Any] = {"arrowstyle": "-|>", "color": "0.5", "lw": 1.3}
            left.annotate("", (end - 0.25, k), (at, k), arrowprops=style | {"shrinkA": 4})
            left.plot(at, k, "o", ms=6, mfc="white", mec="0.35")
            left.text(
                at, k - 0.22, f"{at:.0f}", ha="center", va="bottom", fontsize=8.5, color="0.4"
            )
        left.plot(end, k, "D", ms=7, color=WAYS.get(way, "0.35"))
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        left.text(end + 0.1, k - 0.24, f"{end:.1f}", ha="center", va="bottom", fontsize=9.5,
                  weight="bold", color=WAYS.get(way, "0.35"), bbox=ground)  # fmt: skip
    left.axvline(raw, color="0.7", lw=1.3, zorder=0)
    left.text(raw - 0.3, len(voted) - 0.3, f"untouched {raw:.1f}", fontsize=8.5,
              color="0.35", ha="right", va="center")  # fmt: skip
    left.set_yticks(range(len(voted)), list(voted), fontsize=9)
    left.set(ylim=(len(voted), -0.75))
    left.margins(x=0.12)
    left.grid(False)
    left.set_title("Recall@1 (%): member → vote", loc="left", fontsize=9, weight="bold")
    drawn = figures.gains(axes, rows)
    axes.set_title("difference of votes", loc="left", fontsize=9, weight="bold")
    return fig, drawn


def rates(
    validation: Mapping[tuple[str, float], Array], one_rate: Mapping[str, Sequence[float]]
) -> tuple[Figure, dict[str, Any]]:
    """By the rate, on validation products: what votes find, ρ of members, and the vote's gain.

    ``validation`` has (repetitions, products) by way and rate, ``one_rate`` the mean Recall@1 of
    members and their ρ by "way at rate".
    """
    ways = list(dict.fromkeys(way for way, _ in validation))
    grid = list(dict.fromkeys(rate for _, rate in validation))
    fig, panels = plt.subplots(1, 3, figsize=(7.2, 2.9))
    scores: dict[str, Any] = {way: {} for way in ways}
    for way in ways:
        votes = [validation[way, rate] for rate in grid]
        for rate, each in zip(grid, votes, strict=True):
            scores[way][f"{rate:g}"] = figures.sample(np.nanmean(each, axis=1))
        level = np.array([np.nanmean(np.nanmean(each, axis=1)) for each in votes])
        style: dict[str, Any] = {"color": WAYS[way], "lw": 2, "marker": "o", "ms": 4, "label": way}
        panels[0].plot(range(len(grid)), level, **style)
        if f"{way} at {grid[0]:g}" in one_rate:
            alone, rho = np.array([one_rate[f"{way} at {rate:g}"] for rate in grid]).T
            panels[1].plot(range(len(grid)), rho, **style)
            panels[2].plot(range(len(grid)), level - alone, **style)
    titles = "the vote finds (%)", "ρ of its members", "vote − its members (points)"
    for axes, title in zip(panels, titles, strict=True):
        axes.set_title(title, loc="left", fontsize=9, weight="bold")
        axes.set_xticks(range(len(grid)), [f"{1e4 * rate:g}" for rate in grid])
        axes.grid(False, axis="x")
    panels[1].set_ylim(0, 1)
    panels[2].set_ylim(bottom=0)
    panels[1].set_xlabel("learning rate, times 10,000")
    handles, names = panels[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside lower center", ncols=4, frameon=False)
    return fig, {"scores": scores}
