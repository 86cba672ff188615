"""What lesson 23 draws."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dmlkit import figures
from dmlkit.figures import RIGHT, WRONG

Numbers = NDArray[Any]

#: Of the 20 products that a gallery shows: so many are in a gallery of another deal, too.
OVERLAP = 1 / 3
#: How the worlds of the sweep are drawn: name, its place, color and line.
WORLDS: dict[str, tuple[str, tuple[float, float], str, str]] = {
    "law": ("the formula", (3.0, 2.0), "0.5", "--"),
    "noise": ("noise", (10.5, 16.9), "0.2", "-"),
    "equally wide": (
        "untouched, all components\nequally wide: {last:.0f} % at {d:,}", (8.8, 21.6), WRONG, "-"
    ),
    "heads": ("trained heads", (1.0, 6.5), RIGHT, "-"),
    "untouched": ("untouched", (10.5, 6.4), "#009e73", "-"),
}  # fmt: skip


def strip(pictures: Any, names: Sequence[str], uses: Sequence[int], right: Numbers) -> Figure:
    """Photographs side by side: product, number of queries, and share of these that are right."""
    fig, panels = plt.subplots(1, len(names), figsize=(6.5, 2.4))
    for picture, name, used, good, axes in zip(pictures, names, uses, right, panels, strict=True):
        axes.imshow(picture.permute(1, 2, 0).numpy())
        figures.drawing.bare(axes)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set_title(textwrap.fill(name, 15), fontsize=9)
        axes.set_xlabel(f"$N_{{10}}$ = {used}\n{100 * good:.0f} % right", fontsize=9)
    return fig


def cloud(d: int) -> dict[str, list[float]]:
    """100 queries and 100 photographs of noise in d dimensions, as one more photograph meets them.

    In units of √d: squared lengths of the queries, their places along the line on which it moves,
    squared distances to their nearest photographs, and which these are; and how far photographs
    are from the mean.
    """
    q, x = np.random.default_rng([23, d]).normal(size=(2, 100, d)) / np.sqrt(d)
    D = ((q[:, None] - x) ** 2).sum(axis=2)  # (100, 100)
    found = {"square": (q**2).sum(axis=1), "along": q[:, 0], "best": D.min(axis=1),
             "first": D.argmin(axis=1), "far": np.linalg.norm(x, axis=1)}  # fmt: skip
    return {name: each.round(4).tolist() for name, each in found.items()}


def hub(place: float, dims: Sequence[int]) -> tuple[Figure, dict[str, Any]]:
    """Noise in a few and in many dimensions: how often each photograph is nearest, and one more."""
    fig, panels = plt.subplots(1, len(dims), figsize=(6.5, 2.7), sharey=True)
    counts: dict[str, Any] = {}
    for d, axes in zip(dims, panels, strict=True):
        world = {name: np.array(each) for name, each in cloud(d).items()}
        taken = world["square"] - 2 * place * world["along"] + place**2 < world["best"]
        others = np.bincount(world["first"][~taken].astype(int), minlength=100)
        axes.plot(world["far"], others, "o", color="0.4", ms=5, alpha=0.6, mew=0)
        axes.plot([place, place], [0, taken.sum()], color=WRONG, lw=2)
        axes.plot(place, taken.sum(), "s", mfc=WRONG, mec="black", mew=1.5, ms=10, clip_on=False)
        counts[f"{d}"] = int(taken.sum())
        places = np.arange(0, 1.5, 0.01)
        won = world["square"] - 2 * places[:, None] * world["along"] + places[:, None] ** 2
        half = places[(won < world["best"]).sum(axis=1) >= 50]
        counts[f"half, {d}"] = float(half.max()) if len(half) else None
        figures.letter(axes, f"{d} dimensions: it takes {taken.sum()} of 100")
        axes.set(xlabel="distance to the mean, over √d", xlim=(-0.1, 2.3), ylim=(-4, 104))
    panels[0].set_ylabel("queries it is nearest to")
    return fig, counts


def own_mean(x: Numbers, labels: Numbers, uses: Numbers) -> tuple[float, float]:
    """Rank correlations of a photograph's uses with its distance to its product's mean, and to all.

    Of embeddings (G, d), labels (G,) and uses (G,).
    """

    means = np.stack([x[labels == each].mean(axis=0) for each in labels])
    near = [np.linalg.norm(x - mean, axis=1) for mean in (means, x.mean(axis=0))]
    own, every = (float(np.corrcoef(_ranks(far), _ranks(uses))[0, 1]) for far in near)
    return own, every


def _ranks(values: Numbers) -> Numbers:
    """Ranks (n,) of values (n,), equal ones sharing their mean rank."""
    _, which, many = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Numbers = (np.cumsum(many) - (many - 1) / 2)[which]
    return ranks


def answer(
    found: Mapping[str, Mapping[int, Sequence[float]]], most: int, top: float = 24
) -> tuple[Figure, dict[str, Any]]:
    """The ten's share over dimensions in each world; and by how much it grows from 2 to ``most``.

    ``found`` holds shares, {world: {dimensions: one of each gallery}}.
    """
    fig, (axes, below) = plt.subplots(2, 1, figsize=(6.5, 5.6), height_ratios=(3, 1.1))
    level: dict[str, dict[str, Any]] = {}
    for world, (name, place, ink, line) in WORLDS.items():
        means = {d: float(np.mean(each)) for d, each in found[world].items()}
        level[world] = {f"{d}": {"mean": mean} for d, mean in means.items()}
        wide, weight = (2.8, "bold") if world == "heads" else (1.7, "normal")
        mark = "" if world == "law" else "o"
        axes.plot(np.log2([*means]), [*means.values()], mark + line, color=ink, lw=wide, ms=4)
        last = max(means)
        axes.text(*place, name.format(last=means[last], d=last), color=ink, va="center",
                  fontsize=9, fontweight=weight)  # fmt: skip
    ticks = {d: f"{d:,}" for d in found["noise"]}
    axes.set(xlabel="dimensions", ylabel="the ten's share of all places (%)", ylim=(0, top),
             xlim=(0.7, 12), xticks=np.log2([*ticks]), xticklabels=ticks.values())  # fmt: skip
    growth = {
        name: np.subtract(found[world][most], found[world][2])
        for name, world in
        {"trained heads": "heads", "untouched": "untouched", "noise": "noise"}.items()
    }  # fmt: skip
    half = figures.summary(growth["trained heads"] - growth["noise"] / 2, OVERLAP)
    gains = figures.gains(below, growth, "points of the ten's share", OVERLAP)
    hardly = half.get("high", 0) < 0 < gains["trained heads"].get("low", 0)
    how = "hardly in trained heads" if hardly else "and in trained heads as the line shows"
    figures.letter(axes, f"Hubs grow with dimensions in noise, {how}")
    figures.letter(below, f"Growth from 2 to {most} dimensions")
    return fig, {"level": level, "growth": gains, "half": half}


def beside(
    there: Numbers, heads: Numbers, wide: Numbers, untouched: Numbers, is_query: Numbers,
    labels: Numbers,
    recall: Callable[..., float], csls: Callable[..., Numbers], share: Callable[..., float],
) -> dict[str, float]:  # fmt: skip
    """What the text says of one gallery beside the rule: of heads, and of features equally wide."""
    asked, shown = there & is_query, there & ~is_query
    said = labels[asked], labels[shown]

    def far(x: Numbers) -> Numbers:
        q, g = x[asked].astype(float), x[shown].astype(float)
        D: Numbers = (q**2).sum(axis=1)[:, None] - 2 * q @ g.T + (g**2).sum(axis=1)
        return D

    D, stretched = far(heads), far(wide)
    noise = np.random.default_rng(0).normal(size=heads.shape)
    one, round_ = (far(x / np.linalg.norm(x, axis=1, keepdims=True)) for x in (wide, noise))
    near = np.argpartition(D, 9, axis=1)[:, :10]
    used = np.bincount(near.ravel(), minlength=D.shape[1])
    ten = np.isin(near, np.argsort(-used, kind="stable")[:10])
    hit = said[1][near] == said[0][:, None]
    own, every = own_mean(heads[shown], said[1], used)
    squares = np.linalg.eigvalsh(np.cov(heads[shown].T)).clip(min=0)
    return {
        "heads": recall(D, *said), "heads, csls share": share(csls(D)),
        "wide": recall(stretched, *said), "wide, csls": recall(csls(stretched), *said),
        "wide, length 1": recall(one, *said), "wide, length 1, share": share(one),
        "wide, csls share": share(csls(stretched)), "untouched": recall(far(untouched), *said),
        "noise, length 1": share(round_),
        "right": 100 * hit[ten].mean(), "right, all": 100 * hit.mean(),
        "own": own, "every": every, "effective": squares.sum() ** 2 / (squares**2).sum(),
    }  # fmt: skip
