"""What lesson 11 draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import figures

Array = NDArray[np.float64]
SAME = "the same groups"
INKS = {"all classes": "#0072b2", "36 groups": "#b35c00", "12 groups": "#e08e0b",
        SAME: "#8a3ea8"}  # fmt: skip
TITLE = "Votes of members that learn all classes stay ahead"


def name_of(many: int) -> str:
    """What members learn: a number of groups, or all classes."""
    return f"{many} groups" if many else "all classes"


def errors(
    members: list[Tensor], y: Tensor, vote: Callable[[list[Tensor]], Tensor]
) -> tuple[Figure, dict[str, Any]]:
    """Queries by how many of four members are right, and how often the vote is.

    ``members`` are embeddings (N, d) of images with the labels ``y`` (N,).
    """

    def right(f: Tensor) -> Tensor:
        return y[(f @ f.T).fill_diagonal_(-2).argmax(dim=1)] == y

    good = torch.stack([right(f) for f in members]).sum(dim=0)
    count, voted = (
        torch.bincount(each, minlength=5).numpy() for each in (good, good[right(vote(members))])
    )
    high, true = 100 * count / count.sum(), 100 * voted / count.clip(1)
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
    level = {"alone": high @ np.arange(5) / 4, "vote": 100 * voted.sum() / count.sum()}
    kept = {"share": high.tolist(), "repaired": true.tolist()} | level
    return fig, {name: figures.example(each) for name, each in kept.items()}


def query(images: Tensor, y: Tensor, members: list[Tensor]) -> tuple[Figure, dict[str, Any]]:
    """The first query that two of four members find, and the vote: cosines, and their means.

    A row is a drawing of ``images`` (N, 1, H, W) that is nearest for a member or for the vote.
    """
    s = torch.stack([(f @ f.T).fill_diagonal_(-1) for f in members])
    s = torch.cat([s, s.mean(dim=0, keepdim=True)])  # members and the vote: (5, N, N)
    hits = y[s.argmax(dim=2)] == y
    divided = torch.nonzero((hits[:-1].sum(dim=0) == 2) & hits[-1]).flatten()
    one = int(divided[0]) if len(divided) else 0
    nearest = s[:, one].argmax(dim=1)  # of each member, and of the vote
    chosen = torch.tensor(sorted({*nearest.tolist()}, key=lambda k: -float(s[-1, one, k])))
    table = s[:, one, chosen].T.numpy()  # (drawings, members and vote)
    inks = [figures.RIGHT if y[k] == y[one] else figures.WRONG for k in chosen]
    fig = plt.figure(figsize=(6.5, 0.66 * len(table) + 0.5))
    heights = [0.5] + [1.0] * len(table)
    cells = fig.add_gridspec(len(table) + 1, 3, width_ratios=(1.1, 0.9, 5.8), height_ratios=heights)
    shown = [("query", cells[1:, 0], one, "0.3")]
    shown += [("", cells[n + 1, 1], int(k), inks[n]) for n, k in enumerate(chosen)]
    for title, place, k, ink in shown:
        axes = fig.add_subplot(place)
        axes.imshow(1 - images[k, 0].numpy(), cmap="gray", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set(color=ink, lw=3, visible=True)
        axes.set_title(title, fontsize=10, fontweight="bold")
    head, right = fig.add_subplot(cells[0, 2]), fig.add_subplot(cells[1:, 2])
    for n, (row, ink) in enumerate(zip(table, inks, strict=True)):
        said = "own character" if ink == figures.RIGHT else "another"
        right.text(0, n, said, color=ink, fontsize=9.5, va="center", weight="bold")
        for e, value in enumerate(row):
            best, x = chosen[n] == nearest[e], 2.4 + e + (0.35 if e == len(members) else 0)
            style: dict[str, Any] = {"color": ink, "weight": "bold"} if best else {"color": "0.45"}
            right.text(
                x,
                n,
                f"{value:.2f}".replace("-", "−"),
                ha="center",
                va="center",
                fontsize=11,
                **style,
            )
            if best:
                right.add_patch(Rectangle((x - 0.4, n - 0.36), 0.8, 0.72, color=ink, alpha=0.15))
    for e in range(len(members)):
        head.text(2.4 + e, 0, f"member\n{e + 1}", ha="center", va="bottom", fontsize=8.5)
    head.text(2.75 + len(members), 0, "mean", ha="center", va="bottom", weight="bold")
    right.set(ylim=(len(table) - 0.5, -0.5))
    for panel in (head, right):
        panel.set(xlim=(0, 3.3 + len(members)))
        panel.set_axis_off()
    return fig, {"cosines": figures.example(table.round(4))}


@torch.no_grad()
def misranked(f: Tensor, y: Tensor) -> float:
    """How many percent of pairs, own and another class, a query's cosines put in a wrong order.

    ``f`` (N, d) are unit embeddings with labels ``y`` (N,); each is a query of all the others.
    """
    s, same = f @ f.T, y[:, None] == y
    own = same & ~torch.eye(len(y), dtype=torch.bool)
    wrong = [
        (row[mine][:, None] < row[~all_own]).double().mean()
        for row, mine, all_own in zip(s, own, same, strict=True)
    ]
    return 100 * float(torch.stack(wrong).mean())


def model(rho: float, alone: float, sizes: Sequence[int]) -> list[float]:
    """Percent of pairs in wrong order by votes of these sizes, if one member has ``alone``."""
    gap = -(2**0.5) * float(torch.special.ndtri(torch.tensor(alone / 100, dtype=torch.float64)))
    return [50 * math.erfc(gap / (2 * math.sqrt(rho + (1 - rho) / E))) for E in sizes]


def members(rho: float, alone: float, voted: float) -> tuple[Figure, dict[str, Any]]:
    """Bells of cosines with another and with the own class: one member, and two votes of four.

    The gap is that which gives one member its share of pairs in wrong order, ``alone`` percent;
    ``voted`` is that of the vote, measured.
    """
    gap = -(2**0.5) * float(torch.special.ndtri(torch.tensor(alone / 100, dtype=torch.float64)))
    fig, grid = plt.subplots(1, 3, figsize=(6.5, 2.4), sharey=True)
    titles = "one member", f"vote of four, ρ = {rho:.2f}", "four independent, ρ = 0"
    x = np.linspace(-3, gap + 3, 300)
    wrong = [alone, *model(rho, alone, [4]), *model(0, alone, [4])]
    for axes, title, r, many in zip(grid, titles, (1.0, rho, 0.0), (1, 4, 4), strict=True):
        spread = (r + (1 - r) / many) ** 0.5
        for at, ink in ((0, figures.WRONG), (gap, figures.RIGHT)):
            y = np.exp(-(((x - at) / spread) ** 2) / 2) / spread
            axes.fill_between(x, y, color=ink, alpha=0.4, lw=0)
        axes.set_title(title, loc="left", weight="bold", fontsize=9)
        axes.set(yticks=[], xticks=[], xlim=(-3.2, gap + 3.2))
        axes.grid(False)
    grid[0].set_xlabel(f"measured: {alone:.1f} % wrong")
    grid[1].set_xlabel(f"model: {wrong[1]:.1f} % wrong\nmeasured: {voted:.1f} %", weight="bold")
    grid[2].set_xlabel(f"model: {wrong[2]:.2f} % wrong")
    words = (
        (-3.0, figures.WRONG, "another\ncharacter", "left"),
        (gap + 3.0, figures.RIGHT, "own\ncharacter", "right"),
    )
    for x_at, ink, name, side in words:
        grid[0].text(x_at, 1.75, name, color=ink, fontsize=8.5, va="top", weight="bold", ha=side)
    kept = {"alone": alone, "voted": voted, "model": wrong[1], "independent": wrong[2]}
    return fig, kept | {"promised": alone - wrong[1], "arrived": alone - voted, "gap": gap}


def answer(
    kept: Mapping[str, Any], mine: Mapping[str, Any], chosen: str
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of votes by their number of members, for all that members learn; differences.

    ``kept`` and ``mine``, the reader's own, have "recall" (repetitions, sizes) by what is learned,
    and "wide" (repetitions,), of one larger network; ``chosen`` are the groups asked about.
    """
    recall, wide, sizes = kept["recall"], kept["wide"], kept["sizes"]
    fig, (top, low) = plt.subplots(
        2, 1, figsize=(6.5, 6.2), height_ratios=(1.8, 1), layout="constrained"
    )
    _curves(top, recall, mine["recall"], float(wide.mean()), sizes)
    every, own = recall["all classes"], recall[chosen]
    asked = {
        f"all classes − {chosen},\nvotes of four": every[:, 2] - own[:, 2],
        "the same,\nvotes of eight": every[:, -1] - own[:, -1],
        f"{chosen} of their own −\nthe same for all": own[:, 2] - recall[SAME][:, 2],
        "all classes − one\nnetwork, twice as wide": every[:, 2] - wide,
    }
    drawn = figures.gains(low, asked)
    drawn = dict(zip(("rule", "eight", "same", "wide"), drawn.values(), strict=True))
    level = mine["recall"] | recall | {"wide": wide[:, None]}
    drawn["level"] = {
        way: {f"{E}": figures.summary(row) for E, row in zip(sizes, each.T, strict=False)}
        for way, each in level.items()
    }
    gain = {way: each[:, 2] - each[:, 0] for way, each in recall.items()}
    drawn["gain"] = {way: figures.summary(each) for way, each in gain.items()}
    drawn |= {
        "gain, chosen − all": figures.summary(gain[chosen] - gain["all classes"]),
        "rule − eight": figures.summary(every[:, 2] - own[:, 2] - every[:, -1] + own[:, -1]),
        "same, eight": figures.summary(own[:, -1] - recall[SAME][:, -1]),
    }
    live = mine["recall"]
    drawn["mine"] = {way: figures.sample(each) for way, each in live.items()}
    drawn["all − 12 groups"] = figures.summary(live["all classes"][:, 2] - live["12 groups"][:, 2])
    return fig, drawn


def _curves(
    axes: Axes,
    recall: Mapping[str, Array],
    live: Mapping[str, Array],
    wide: float,
    sizes: Sequence[int],
) -> None:
    """Recall@1 over the number of members, by what they learn; crosses are the reader's own."""
    at = np.arange(len(sizes))
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 9}
    lines = {**live, **recall}
    above = math.inf
    for way in sorted(lines, key=lambda way: -lines[way][:, -1].mean()):
        mean, ink = lines[way].mean(axis=0), INKS[way]
        look = "s--" if way == SAME else "o-" if way in recall else "-"
        axes.plot(at[: len(mean)], mean, look, color=ink, lw=2.2, ms=6)
        above = min(above - 2.8, mean[-1])  # names do not meet
        axes.annotate(way, (at[len(mean) - 1], above), (10, 0), color=ink, weight="bold", **style)
    for way, each in live.items():
        mean = each.mean(axis=0)
        axes.plot(at[: len(mean)], mean, "x", color=INKS[way], ms=7, mew=1.6, zorder=5)
    axes.axhline(wide, color="0.5", lw=1.4, ls=":", zorder=0)
    said = "one wider network"
    axes.text(at[-1] + 1.5, wide - 0.8, said, color="0.35", va="top", ha="right", fontsize=9)
    axes.set_xticks(at, [f"{E}" for E in sizes])
    axes.set(xlabel="members of the vote", xlim=(-0.2, at[-1] + 1.55), ylabel="Recall@1 (%)")
    axes.set_title(TITLE, loc="left", weight="bold")


def shared(kept: Mapping[str, Any]) -> tuple[Figure, dict[str, Any]]:
    """ρ of members' cosines, and pairs in wrong order by votes: measured, and by the formula."""
    rho, wrong, sizes = kept["rho"], kept["wrong"], kept["sizes"]
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.5, 3.2), width_ratios=(1, 1.4), layout="constrained"
    )
    drawn: dict[str, Any] = {"rho": {}, "wrong": {}, "model": {}}
    at = np.arange(len(sizes))
    for place, (way, each) in enumerate(rho.items()):
        row = drawn["rho"][way] = figures.summary(each)
        left.barh(place, row["mean"], color=INKS[way], height=0.6)
        left.text(row["mean"] + 0.03, place, f"{row['mean']:.2f}", va="center", fontsize=9)
        pairs = zip(each, wrong[way][:, 0], strict=True)
        by_rho = np.array([model(r, alone, sizes) for r, alone in pairs])
        for name, curve, style in (("wrong", wrong[way], "o-"), ("model", by_rho, ":")):
            rows = zip(sizes, curve.T, strict=True)
            drawn[name][way] = {f"{E}": figures.summary(row) for E, row in rows}
            right.plot(at, curve.mean(axis=0), style, color=INKS[way], lw=2.2, ms=5)
    left.set_yticks(range(len(rho)), [*rho])
    left.set(xlim=(0, 1.0), ylim=(len(rho) - 0.5, -0.5))
    left.set_title("ρ of two members", loc="left", weight="bold")
    left.grid(False, axis="y")
    right.plot([], [], "o-", color="0.3", label="measured")
    right.plot([], [], ":", color="0.3", lw=2.2, label="by the formula, from ρ")
    right.legend(frameon=False, fontsize=9)
    right.set_xticks(at, [f"{E}" for E in sizes])
    right.set(xlabel="members of the vote", ylim=(0, None))
    right.set_title("Pairs in the wrong order (%)", loc="left", weight="bold")
    return fig, drawn
