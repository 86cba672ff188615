"""What lesson 11 draws."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import data, figures
from dmlkit.data.images import ImageSet

Array = NDArray[np.float64]
WIDE, LONG = "#0072b2", "#e69f00"
#: Inks of the ways in which members differ, by their name.
INKS = {"all products": "#994200", "30 groups": "#cc79a7", "15 groups": "#8f5fa8"}
INKS |= {"8 groups": "#4b2a7b"}


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
    fig, axes = plt.subplots(figsize=(5.6, 3.2))
    axes.bar(range(5), high, color=figures.WRONG, alpha=0.3, width=0.85)
    axes.bar(range(5), high * true / 100, color=figures.RIGHT, width=0.85)
    for n, (top, part) in enumerate(zip(high, true, strict=True)):
        axes.text(n, top + 1, f"vote right:\n{part:.0f} %", ha="center", fontsize=9)
    axes.set(xlabel="members that are right, of four", ylabel="queries (%)", xticks=range(5))
    axes.set_ylim(0, 1.2 * high.max())
    axes.grid(False)
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
    """The spread of a vote by its members, for three correlations."""
    fig, axes = plt.subplots(figsize=(5.0, 2.8))
    many = np.linspace(1, 8, 80)
    for r, name in ((1.0, "copies, ρ = 1"), (0.0, "independent, ρ = 0")):
        axes.plot(many, np.sqrt(r + (1 - r) / many), color="0.5", ls="--", lw=1.2)
        y, va = ((r + (1 - r) / 8) ** 0.5, "bottom" if r else "top")
        axes.text(8, y + (0.03 if r else -0.04), name, color="0.35", ha="right", va=va)
    axes.plot(many, np.sqrt(rho + (1 - rho) / many), color=INKS["all products"], lw=2.4)
    axes.text(8, rho**0.5 - 0.05, f"our members, ρ = {rho:.2f}", color=INKS["all products"],
              ha="right", va="top", weight="bold")  # fmt: skip
    axes.set(xlabel="members", ylabel="spread, in one member's", ylim=(0, 1.2))
    axes.set_xticks([1, 2, 4, 8])
    return fig


def differ(
    rho: Mapping[str, float], score: Mapping[str, tuple[Array, Array]], untouched: float
) -> tuple[Figure, dict[str, Any]]:
    """Of each way its members' mean Recall@1 and their vote's, by kind, over the correlation."""
    fig, axes = plt.subplots(figsize=(6.4, 3.6))
    for way, (one, vote) in score.items():
        low, high, at = one.mean(), vote.mean(), rho[way]
        axes.annotate("", (at, high), (at, low), arrowprops={
            "arrowstyle": "-|>", "color": INKS[way], "lw": 2.4, "shrinkA": 4, "shrinkB": 4
        })  # fmt: skip
        axes.plot(at, low, "o", color="white", mec=INKS[way], mew=2, ms=8)
        axes.plot(at, high, "o", color=INKS[way], ms=9)
        axes.text(at, low - 1.3, way, color=INKS[way], ha="center", va="top", weight="bold")
        axes.annotate(f"+{high - low:.1f}", (at, (low + high) / 2), (8, 0), color=INKS[way],
                      textcoords="offset points", va="center")  # fmt: skip
    _floor(axes, untouched, "left")
    bottom = min(one.mean() for one, _ in score.values())
    axes.set(xlim=(1.0, 0.15), ylim=(bottom - 4, None), ylabel="Recall@1, unseen products (%)")
    axes.set_xlabel("correlation ρ of two members: the same errors ← → errors of their own")
    axes.plot([], [], "o", color="white", mec="0.3", mew=2, label="one member")
    axes.plot([], [], "o", color="0.3", label="vote of eight")
    axes.legend(loc="lower left")
    return fig, {
        "rho": dict(rho),
        "gain": {way: figures.sample(vote - one) for way, (one, vote) in score.items()},
        "member": {way: figures.sample(one) for way, (one, _) in score.items()},
        "vote": {way: figures.sample(vote) for way, (_, vote) in score.items()},
    }


def answer(
    mean: Mapping[tuple[str, int], Array],
    prices: Sequence[int],
    dim: int,
    untouched: float,
    lead: Mapping[str, Array],
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 by the price, and what a vote at the highest price leads one head by, by kind."""
    fig, (axes, right) = plt.subplots(
        1, 2, figsize=(8.4, 4.2), width_ratios=(5, 3.4), layout="constrained"
    )
    looks = {
        "all products": ("vote, all products", "o-", INKS["all products"]),
        "30 groups": ("vote, 30 groups", "o-", INKS["30 groups"]),
        "15 groups": ("vote, 15 groups", "o-", INKS["15 groups"]),
        "8 groups": ("vote, 8 groups", "o-", INKS["8 groups"]),
        "wide": ("one wide head", "s--", WIDE),
        "long": ("one head, trained as long", "^--", LONG),
    }
    for way, (name, mark, ink) in looks.items():
        line = {n: mean[way, n].mean() for n in prices if (way, n) in mean}
        axes.plot(list(line), list(line.values()), mark, color=ink, lw=2.2, ms=7, label=name)
    _floor(axes, untouched, "right")
    axes.set_xscale("log", base=2)
    axes.set_xticks(prices, [f"{n}\n{n * dim}" for n in prices])
    axes.minorticks_off()
    axes.set(xlabel="price in members, and in numbers of the index\n(trained as long: always "
             f"{dim} numbers)", ylabel="Recall@1, unseen products (%)")  # fmt: skip
    axes.legend(loc="lower right", fontsize=9)
    axes.set_title("what is found", loc="left", weight="bold")
    drawn = figures.dots(right, lead, "", color="0.2")
    for k, (name, _) in enumerate(lead.items()):
        ink = looks["wide" if "wide" in name else "long"][2]
        right.plot(drawn[name]["mean"], k, "o", color=ink, ms=8, zorder=5)
    right.axvline(0, color="0.3", lw=1)
    right.axvline(1, color="0.5", ls=":", lw=1.4)
    right.set_yticks(range(len(lead)), list(lead))
    right.set_xlabel("points of Recall@1")
    right.set_title(f"votes of {prices[-1]} minus one head", loc="left", weight="bold")
    return fig, {
        "lead": drawn,
        "found": {f"{way} {n}": each.mean() for (way, n), each in mean.items()},
        "untouched": untouched,
    }


def rates(validation: Mapping[tuple[str, float], Array]) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of validation products by the rate, a panel for each way: (repetitions, 81)."""
    names = {"all products": "vote, all products", "groups": "vote, 30 groups"}
    names |= {"wide": "one wide head", "long": "trained as long"}
    inks = [INKS["all products"], INKS["30 groups"], WIDE, LONG]
    fig, panels = plt.subplots(1, 4, figsize=(7.6, 2.6), sharey=True, layout="constrained")
    drawn = {}
    for axes, (way, name), ink in zip(panels, names.items(), inks, strict=True):
        each = {
            f"{rate:g}": np.nanmean(x, axis=1) for (of, rate), x in validation.items() if of == way
        }
        drawn[way] = figures.sweep(axes, each, {}, ink, "", 1)
        axes.set_title(name, fontweight="bold", loc="left", fontsize=9)
        axes.tick_params(axis="x", labelsize=8)
    panels[0].set_ylabel("Recall@1, validation (%)")
    fig.supxlabel("rate of learning", fontsize=9)
    return fig, drawn


def _floor(axes: Axes, untouched: float, ha: str) -> None:
    axes.axhline(untouched, color="0.5", ls=":", lw=1.4, zorder=0)
    place = (0.01 if ha == "left" else 0.99, untouched)
    axes.annotate(f"untouched, {untouched:.1f} %", place, (0, -3), color="0.35", ha=ha,
                  xycoords=("axes fraction", "data"), textcoords="offset points", va="top",
                  fontsize=8.5)  # fmt: skip
