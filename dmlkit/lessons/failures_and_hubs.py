"""What lesson 23 draws."""

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
#: How the worlds of the sweep are drawn: name, color, line, and how far their name is moved up.
WORLDS = {
    "law": ("the formula", "0.55", "--", 0.0),
    "noise": ("noise", "0.2", "-", 0.0),
    "equally wide": ("untouched, all\nequally wide", WRONG, "-", 0.0),
    "heads": ("trained heads", RIGHT, "-", 0.0),
    "untouched": ("untouched", "#009e73", "-", 0.0),
}


def strip(pictures: Any, names: Sequence[str], uses: Sequence[int], right: Numbers) -> Figure:
    """Photographs side by side: product, number of queries, and share of these that are right."""
    fig, panels = plt.subplots(1, len(names), figsize=(6.5, 2.15))
    for picture, name, used, good, axes in zip(pictures, names, uses, right, panels, strict=True):
        axes.imshow(picture.permute(1, 2, 0).numpy())
        figures.drawing.bare(axes)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        axes.set_title(name.replace(" ", "\n", 1), fontsize=9)
        axes.set_xlabel(f"N = {used}\n{100 * good:.0f} % right", fontsize=9)
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
    counts = {}
    for d, axes in zip(dims, panels, strict=True):
        world = {name: np.array(each) for name, each in cloud(d).items()}
        taken = world["square"] - 2 * place * world["along"] + place**2 < world["best"]
        others = np.bincount(world["first"][~taken].astype(int), minlength=100)
        axes.plot(world["far"], others, "o", color="0.4", ms=5, alpha=0.6, mew=0)
        axes.plot([place, place], [0, taken.sum()], color=WRONG, lw=2)
        axes.plot(place, taken.sum(), "s", mfc=WRONG, mec="black", mew=1.5, ms=10, clip_on=False)
        counts[f"{d}"] = int(taken.sum())
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
    for world, (name, ink, line, up) in WORLDS.items():
        means = {d: float(np.mean(each)) for d, each in found[world].items()}
        level[world] = {f"{d}": {"mean": mean} for d, mean in means.items()}
        x, y = np.array([*means]), np.array([*means.values()])
        style: dict[str, Any] = {"color": ink, "ls": line, "lw": 2.4 if world == "heads" else 1.7}
        axes.plot(np.log2(x), y, marker="" if world == "law" else "o", ms=4, **style)
        axes.text(np.log2(x[-1]) + 0.15, min(y[-1] + up, top), name, color=ink, va="center",
                  fontsize=9, fontweight="bold" if world == "heads" else "normal")  # fmt: skip
    ticks = [*found["noise"]]
    axes.set(xlabel="dimensions", ylabel="places held by the ten most used (%)", ylim=(0, top),
             xlim=(0.7, 12.4), xticks=np.log2(ticks), xticklabels=ticks)  # fmt: skip
    growth = {
        world: np.subtract(found[world][most], found[world][2])
        for world in ("heads", "untouched", "noise")
    }
    gains = figures.gains(
        below, {"trained heads": growth["heads"], "untouched": growth["untouched"],
                "noise": growth["noise"]}, f"points from 2 to {most} dimensions", OVERLAP
    )  # fmt: skip
    half = figures.summary(growth["heads"] - growth["noise"] / 2, OVERLAP)
    return fig, {"level": level, "growth": gains, "half": half}


def beside(
    there: Numbers, heads: Numbers, wide: Numbers, is_query: Numbers, labels: Numbers,
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
    one = far(wide / np.linalg.norm(wide, axis=1, keepdims=True))
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
        "wide, csls share": share(csls(stretched)),
        "right": 100 * hit[ten].mean(), "right, all": 100 * hit.mean(),
        "own": own, "every": every, "effective": squares.sum() ** 2 / (squares**2).sum(),
    }  # fmt: skip
