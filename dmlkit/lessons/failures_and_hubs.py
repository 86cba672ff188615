"""What lesson 23 draws."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy import stats

from dmlkit import figures
from dmlkit.figures import RIGHT, WRONG

Numbers = NDArray[Any]
#: {search: {world: {dimensions: a share of each gallery}}}
Shares = Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]]

#: Of the 20 products that a gallery shows: so many are in a gallery of another deal, too.
OVERLAP = 1 / 3
#: How the worlds of the sweep are drawn: name, color and line.
WORLDS: dict[str, tuple[str, str, str]] = {
    "law": ("the formula", "0.6", "--"),
    "noise": ("noise", "0.2", "-"),
    "clustered": ("clustered noise", WRONG, "-"),
    "untouched": ("untouched", "#009e73", "-"),
    "heads": ("trained heads", RIGHT, "-"),
}


def hubs(rows: Sequence[Sequence[tuple[Any, str, str]]]) -> Figure:
    """Rows of photographs, each a picture, its product and what stands below: a hub, queries."""
    fig, panels = plt.subplots(len(rows), len(rows[0]), figsize=(6.5, 2.0 * len(rows)))
    for row, line in zip(rows, panels, strict=True):
        for place, ((picture, name, said), axes) in enumerate(zip(row, line, strict=True)):
            axes.imshow(picture.permute(1, 2, 0).numpy())
            figures.drawing.bare(axes)
            axes.grid(False)
            axes.spines[:].set(visible=True, color=WRONG if place else "0.2", lw=2)
            axes.set_title(textwrap.fill(name, 16), fontsize=8)
            axes.set_xlabel(said, fontsize=8, color=WRONG if place else "0.2")
    return fig


def noise(d: int) -> tuple[Numbers, Numbers]:
    """100 queries and 100 photographs of noise in d dimensions, in units of √d: (100, d), twice."""
    q, x = np.random.default_rng([23, d]).normal(size=(2, 100, d)) / np.sqrt(d)
    return q, x


def cloud(d: int) -> dict[str, list[float]]:
    """The noise as one more photograph meets it, which moves along a line from the mean.

    Squared lengths of the queries, their places along the line, squared distances to their nearest
    photographs, and which these are; and how far photographs are from the mean.
    """
    q, x = noise(d)
    D = ((q[:, None] - x) ** 2).sum(axis=2)  # (100, 100)
    found = {"square": (q**2).sum(axis=1), "along": q[:, 0], "best": D.min(axis=1),
             "first": D.argmin(axis=1), "far": np.linalg.norm(x, axis=1)}  # fmt: skip
    return {name: each.round(4).tolist() for name, each in found.items()}


def hub(dims: Sequence[int]) -> tuple[Figure, dict[str, Any]]:
    """Noise in a few and in many dimensions, and which queries one photograph at the mean takes."""
    fig, panels = plt.subplots(2, len(dims), figsize=(6.5, 4.6), height_ratios=(2.4, 1))
    counts: dict[str, Any] = {}
    for d, (above, below) in zip(dims, panels.T, strict=True):
        world = {name: np.array(each) for name, each in cloud(d).items()}
        taken = world["square"] < world["best"]
        counts[f"{d}"] = int(taken.sum())
        q, x = (_around(each) for each in noise(d))
        for place in q[taken]:
            above.plot([0, place[0]], [0, place[1]], color=WRONG, lw=0.8, alpha=0.7)
        above.plot(*x.T, "o", color="0.4", ms=4, alpha=0.6, mew=0, label="photographs")
        above.plot(*q.T, "o", mfc="white", mec=RIGHT, ms=4, label="queries")
        above.plot(0, 0, "s", mfc=WRONG, mec="black", ms=8, label="the photograph at the mean")
        above.set(xlim=(-2.2, 2.2), ylim=(-2.2, 2.2), aspect="equal", yticks=[])
        above.set_xlabel("distance to the mean, over √d")
        above.set_xticks([-2, -1, 0, 1, 2], ["2", "1", "0", "1", "2"])
        above.grid(False)
        above.set_title(f"{d} dimensions: it takes {taken.sum()}", fontweight="bold")
        bins = np.arange(0, 2.3, 0.05)
        below.hist(np.sqrt(world["best"]), bins, color="0.5", alpha=0.8)
        below.hist(np.sqrt(world["square"]), bins, color=WRONG, alpha=0.6)
        below.set(xlim=(0, 2.2), ylim=(0, 60), xlabel="distance of a query, over √d")
        places = np.arange(0, 1.5, 0.01)
        won = world["square"] - 2 * places[:, None] * world["along"] + places[:, None] ** 2
        half = places[(won < world["best"]).sum(axis=1) >= 50]
        counts[f"half, {d}"] = float(half.max()) if len(half) else None
    panels[1, 0].set_ylabel("queries")
    for axes, near, mean in zip(
        panels[1], ((0.25, 40), (1.37, 30)), ((0.9, 15), (0.15, 30)), strict=True
    ):
        axes.text(*near, "to its nearest\nphotograph", color="0.35", fontsize=9, va="center")
        axes.text(*mean, "to the mean", color=WRONG, fontsize=9, va="center")
    fig.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return fig, counts


def _around(x: Numbers) -> Numbers:
    """Points of the plane as far from the middle as rows are, turned as their first two numbers."""
    length = np.linalg.norm(x, axis=1) / np.linalg.norm(x[:, :2], axis=1)
    around: Numbers = x[:, :2] * length[:, None]
    return around


def answer(found: Shares, chance: float, most: int) -> tuple[Figure, dict[str, Any]]:
    """The ten's share over dimensions in each search and world; and its growth from 2 to ``most``.

    ``found`` holds shares, {search: {world: {dimensions: one of each gallery}}}.
    """
    fig = plt.figure(figsize=(6.5, 5.6))
    parts: Any = fig.subfigures(2, 1, height_ratios=(3, 1.7))
    above, under = parts
    pair, below = above.subplots(1, len(found), sharey=True), under.subplots()
    panels = dict(zip(found, pair, strict=True))
    growth = {search: grown(worlds, most) for search, worlds in found.items()}
    level = {}
    for search, worlds in found.items():
        level[search] = _curves(panels[search], worlds, chance)
        figures.letter(panels[search], f"{search[0].upper()}{search[1:]}: {growth[search]['word']}")
    pair[0].set_ylabel("the ten's share of all places (%)")
    for row, (name, ink, _) in enumerate(reversed(WORLDS.values())):
        pair[0].text(1.0, 17.1 - 1.15 * row, name, color=ink, fontsize=9, va="center")
    pair[1].text(4.5, chance - 0.9, "by chance", color="0.4", fontsize=9, va="center")
    rows = {f"{name}, {search}": each[world] for search, each in growth.items()
            for name, world in {"trained heads": "heads", "noise": "noise"}.items()}  # fmt: skip
    figures.spans(below, rows, "points of the ten's share")
    figures.letter(below, f"Growth from 2 to {most} dimensions")
    return fig, {"level": level, "growth": growth, "chance": chance}


def grown(worlds: Mapping[str, Mapping[int, Sequence[float]]], most: int) -> dict[str, Any]:
    """Growth of the ten's share from 2 to ``most`` dimensions: heads, noise, heads − noise.

    And, at ``most``, clustered noise − heads. Noise is drawn anew for each gallery; products are
    shared by galleries, so that intervals of heads are widened.
    """
    heads, noise = (np.subtract(worlds[w][most], worlds[w][2]) for w in ("heads", "noise"))
    gap = figures.summary(heads - noise, OVERLAP)
    more, less = gap.get("low", 0) > 0, gap.get("high", 0) < 0
    word = "more than noise" if more else "less than noise" if less else "no difference seen"
    found = {"heads": figures.summary(heads, OVERLAP), "noise": figures.summary(noise)}
    cause = np.subtract(worlds["clustered"][most], worlds["heads"][most])
    return found | {"gap": gap, "word": word, "cause": figures.summary(cause, OVERLAP)}


def _curves(axes: Axes, worlds: Mapping[str, Mapping[int, Sequence[float]]], chance: float) -> Any:
    """Draw the means of each world over dimensions: -> {world: {dimensions: mean}}."""
    level = {}
    for world, shares in worlds.items():
        _, ink, line = WORLDS[world]
        means = {d: float(np.mean(each)) for d, each in shares.items()}
        level[world] = {f"{d}": {"mean": mean} for d, mean in means.items()}
        style: dict[str, Any] = {
            "lw": 2.8 if world == "heads" else 1.7,
            "marker": "" if world == "law" else "o",
        }
        axes.plot(np.log2([*means]), [*means.values()], line, color=ink, ms=4, **style)
    axes.axhline(chance, color="0.5", ls=":", lw=1.4, zorder=0)
    ticks = [*worlds["noise"]]
    axes.set(xlabel="dimensions", ylim=(0, 18), xticks=np.log2(ticks), xticklabels=ticks)
    return level


def beside(
    heads: Numbers, whole: Mapping[str, Numbers], is_query: Numbers, labels: Numbers,
    ours: Mapping[str, Callable[..., Any]],
) -> dict[str, float]:  # fmt: skip
    """What the text says of one gallery beside the rule: of its heads, and of all features.

    ``ours`` are the notebook's own functions.
    """
    asked, shown = labels[is_query], labels[~is_query]
    D = ours["distances"](heads[is_query], heads[~is_query])
    near, used = np.argpartition(D, 9, axis=1)[:, :10], ours["uses"](D)
    ten = np.isin(near, np.argsort(-used, kind="stable")[:10])
    hit = shown[near] == asked[:, None]
    own, every = own_mean(heads[~is_query], shown, used)
    found = {
        "right": 100 * hit[ten].mean(), "right, all": 100 * hit.mean(), "own": own,
        "every": every, "skew": skewness(used), "heads": ours["recall"](D, asked, shown),
    }  # fmt: skip
    for name, z in whole.items():
        D = ours["distances"](z[is_query], z[~is_query])
        found |= {name: ours["recall"](D, asked, shown), f"{name}, share": ours["share"](D)}
    return found


def means(rows: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Means over galleries of what ``beside`` says, {search: {name: {"mean": …}}}."""
    return {search: {name: {"mean": float(np.mean([each[name] for each in mine]))}
                     for name in mine[0]} for search, mine in rows.items()}  # fmt: skip


def skewness(x: Numbers) -> float:
    """The third moment of numbers (n,) about their mean, over the cube of their spread."""
    z = (x - x.mean()) / x.std()
    return float((z**3).mean())


def own_mean(x: Numbers, labels: Numbers, uses: Numbers) -> tuple[float, float]:
    """Rank correlations of a photograph's uses with its distance to its product's mean, and to all.

    Of embeddings (G, d), labels (G,) and uses (G,).
    """
    centers = np.stack([x[labels == each].mean(axis=0) for each in labels])
    near = [np.linalg.norm(x - center, axis=1) for center in (centers, x.mean(axis=0))]
    own, every = (float(stats.spearmanr(far, uses).statistic) for far in near)
    return own, every
