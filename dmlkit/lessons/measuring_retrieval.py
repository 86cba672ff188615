"""What lesson 01 draws."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from dmlkit import data, figures, retrieval
from dmlkit.data import ImageSet
from dmlkit.data.pictures import color_histogram
from dmlkit.lessons.kinds import wider

#: Photographs of the queries' own visit that join the gallery, of each product; the last is all.
COPIES = (0, 1, 2, 4, 8, 16, 999)
NAMES = ("0", "1", "2", "4", "8", "16", "all")
SCORES = ("Recall@1", "MAP@R")
INKS = {"Recall@1": "#9440a6", "MAP@R": "#00735a"}
#: Products share networks, and networks share classes: a correlation, from validation products.
OVERLAP = 0.015


def visits(images: ImageSet, products: Sequence[int]) -> Figure:
    """A query of each product, four photographs of its own visit, and four of another one."""
    assert images.queries is not None, "one visit asks"
    rng, rows = np.random.default_rng(0), []
    for product in products:
        own, other = (
            rng.permutation(np.flatnonzero((images.labels == product) & flag))
            for flag in (images.queries, ~images.queries)
        )
        rows.append(np.concatenate([own[:5], other[:4]]))
    pixels = torch.stack([cast(Tensor, images.images)[row] for row in rows])
    names = [images.class_names[product].replace("-", " ").lower() for product in products]
    fig, axes = figures.contact_sheet(pixels, names)
    side = pixels.shape[-1] + 3  # of a picture, and the gap behind it
    for first, last, name in ((0, 1, "query"), (1, 5, "the same visit"), (5, 9, "another visit")):
        axes.text((first + last) / 2 * side, -7, name, ha="center", fontsize=10, weight="bold")
        axes.axvline(first * side - 2, color="white", lw=4)
    return fig


def toys(
    places: Mapping[str, np.ndarray], table: Mapping[str, Mapping[str, float]], labels: np.ndarray
) -> Figure:
    """Three embeddings of eight points, with the neighbors of one numbered."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.5))
    titles = "clusters: all is well", "pairs: the first is right", "chains: wrong at the ends"
    for axes, (name, x), query, title in zip(
        panels, places.items(), (0, 0, 3), titles, strict=True
    ):
        for label, marker, color in ((0, "o", "C2"), (1, "s", "C4")):
            axes.scatter(*x[labels == label].T, c=color, marker=marker, s=26)
        axes.scatter(*x[query], s=130, facecolors="none", edgecolors="black")
        for rank, item in enumerate(retrieval.nearest_neighbors(x, 3)[0][query], start=1):
            axes.annotate(rank, x[item], (0, 5), textcoords="offset points", ha="center")
        said = "\n".join(f"{score} {value:.2f}" for score, value in table[name].items())
        axes.set(title=title, xticks=[], yticks=[], xlabel=said)
        axes.margins(0.2)
    return fig


class Products(NamedTuple):
    """Photographs of products to search for, and what the searches know of them."""

    images: ImageSet
    colors: np.ndarray  # (N, 216), their histograms
    pixels: np.ndarray  # (N, 192)
    x: Tensor  # (M, 1280), features of other products, of length 1
    labels: Tensor  # (M,)
    z: Tensor  # (N, 1280), features of these


def products(fold: int) -> Products:
    """The 20 products of a fold, and all the others, which a network may learn."""
    images = data.load("grocery64", "test", fold=fold)
    pixels = cast(Tensor, images.images)
    seen, new = (
        data.load("grocery", part, fold=fold, features="tf_efficientnet_lite0@224")
        for part in ("train", "test")
    )
    x, z = (F.normalize(cast(Tensor, each.images).flatten(1).float()) for each in (seen, new))
    small = F.adaptive_avg_pool2d(pixels.float(), 8).flatten(1).numpy()
    colors = color_histogram(pixels).double().numpy()
    return Products(images, colors, small, x, torch.from_numpy(seen.labels), z)


def joins(images: ImageSet, seed: int) -> np.ndarray:
    """The k from which on a photograph is in a query's gallery; 0: another visit: (Q, N).

    Those of its own visit join in a random order, k of each product.
    """
    assert images.queries is not None, "one visit asks"
    asks, labels = np.flatnonzero(images.queries), images.labels
    place, rng = np.zeros(len(labels)), np.random.default_rng(seed)
    for product in np.unique(labels):
        own = asks[labels[asks] == product]
        place[own] = 1 + rng.permutation(len(own))
    same = labels[asks][:, None] == labels
    k: np.ndarray = place - (same & (place > place[asks][:, None]))  # the query takes no place
    k[np.arange(len(asks)), asks] = np.inf
    return k


def all_but_four(images: ImageSet, seed: int) -> np.ndarray:
    """Another visit's photographs, but for four of each product: (N,) bool."""
    assert images.queries is not None, "one visit asks"
    gone, rng = ~images.queries, np.random.default_rng(seed)
    for product in range(images.num_classes):
        gone[rng.permutation(np.flatnonzero(gone & (images.labels == product)))[:4]] = False
    return gone


def law(level: np.ndarray, others: np.ndarray) -> tuple[float, np.ndarray]:
    """q of the first photograph, and the Recall@1 (%) that it predicts: (K,), (C,) -> (K,)."""
    miss = 1 - level / 100
    q = float(1 - miss[1] / miss[0])
    joined = np.minimum(np.array(COPIES)[:, None], others)  # (K, C)
    return q, 100 * (1 - miss[0] * ((1 - q) ** joined).mean(axis=1))


def left(leads: np.ndarray, kinds: Sequence[str]) -> list[dict[str, Any]]:
    """What is left of the first lead, in percent, with its interval: (K, C) -> K − 1 of them.

    The mean over products of a linearized ratio (Cochran 1977, chapter 6), products or kinds drawn
    anew, whichever is wider.
    """
    first, found = leads[0], []
    for each in leads[1:]:
        share = each.mean() / first.mean()
        values = 100 * (share + (each - share * first) / first.mean())
        found.append(figures.summary(wider(values, kinds), OVERLAP))
    return found


def answer(
    scores: Mapping[str, np.ndarray],
    few: Mapping[str, np.ndarray],
    kinds: Sequence[str],
    others: np.ndarray,
) -> tuple[Figure, dict[str, Any]]:
    """Levels of the searches by two scores, and what is left of the network's lead.

    ``scores`` are (seeds, K, 2, C) in percent, by search; ``few`` the same at 0, 16 and all, with
    four photographs of another visit; ``others`` (C,) are those of a query's own visit.
    """
    fig, grid = plt.subplot_mosaic(
        [[*SCORES], ["left", "left"]],
        figsize=(6.5, 6.1),
        height_ratios=(1.2, 1),
        layout="constrained",
    )
    means = {name: each.mean(axis=0) for name, each in scores.items()}  # (K, 2, C)
    leads = means["network"] - means["histogram"]
    drawn: dict[str, Any] = {"levels": {}, "lead": {}, "left": {}, "few": {}, "law": {}}
    for name, each in means.items():
        levels = each.mean(axis=2).T
        drawn["levels"][name] = {
            score: figures.example(dict(zip(NAMES, row.tolist(), strict=True)))
            for score, row in zip(SCORES, levels, strict=True)
        }
        if name != "raw pixels":
            q, curve = law(levels[0], others)
            drawn["law"][name] = figures.example({"q": q} | dict(zip(NAMES, curve, strict=True)))
            said = "formula" if name == "network" else ""
            grid["Recall@1"].plot(curve, ":", color="0.45", lw=1.6, zorder=1, label=said)
    thin = few["network"].mean(axis=0) - few["histogram"].mean(axis=0)  # (3, 2, C)
    for j, score in enumerate(SCORES):
        _levels(grid[score], {name: each[:, j].mean(axis=1) for name, each in means.items()})
        drawn["lead"][score] = {
            k: figures.summary(wider(row, kinds), OVERLAP)
            for k, row in zip(NAMES, leads[:, j], strict=True)
        }
        drawn["left"][score] = dict(zip(NAMES[1:], left(leads[:, j], kinds), strict=True))
        drawn["few"][score] = dict(zip(("16", "all"), left(thin[:, j], kinds), strict=True))
        grid[score].set_title(f"{TITLES[score]}", color=INKS[score], loc="left", weight="bold")
    each = (scores["network"] - scores["histogram"]).mean(axis=3)  # (seeds, K, 2)
    share = 100 * each / each[:, :1]
    drawn["by seed"] = {score: figures.sample(share[:, 5, j]) for j, score in enumerate(SCORES)}
    grid["Recall@1"].set_ylabel("score (%)")
    _left(grid["left"], drawn)
    return fig, drawn


#: What each upper panel says.
TITLES = {"Recall@1": "Recall@1: the gap closes", "MAP@R": "MAP@R: the gap stays"}


def _levels(axes: Axes, lines: Mapping[str, np.ndarray]) -> None:
    """Levels by the photographs of the own visit, and the network's lead where it is named."""
    looks = {"network": (figures.RIGHT, 2.4), "histogram": ("0.25", 2.4), "raw pixels": ("0.6", 1)}
    for name, level in lines.items():
        ink, width = looks[name]
        axes.plot(level, "o-", color=ink, lw=width, ms=3 + width)
        spot = (0.12, level[0]) if name == "network" else (1.2, level[1])
        above = level[1] < 20  # a line at the bottom
        axes.annotate(name, spot, (0, 6 if above else -15), color=ink,
                      textcoords="offset points", fontsize=9, weight="bold")  # fmt: skip
    for k in (0, 5, 6):
        low, high = lines["histogram"][k], lines["network"][k]
        wide = high - low > 12
        axes.plot([k, k], [low, high], "-", color="black", lw=1.2, zorder=0)
        axes.annotate(f"{high - low:.0f}", (k, (low + high) / 2 if wide else low),
                      (5, 0) if wide else (0, -13), va="center", ha="left" if wide else "center",
                      textcoords="offset points", fontsize=10, weight="bold")  # fmt: skip
    if any(line.get_label() == "formula" for line in axes.lines):
        axes.legend(loc="lower right", frameon=False, fontsize=9)
    axes.set(xlim=(-0.3, 6.8), ylim=(0, 106), xlabel="photographs of the own visit")
    axes.set_xticks(range(7), NAMES)
    axes.grid(False, axis="x")


def _left(axes: Axes, drawn: Mapping[str, Any]) -> None:
    """What is left of the lead, by both scores, with intervals, and half of it as a line."""
    axes.axhline(50, color="0.3", lw=1.2, ls="--", zorder=0)
    axes.text(-0.2, 47, "half of the lead", fontsize=9, color="0.3", va="top")
    for score, ink in INKS.items():
        rows = list(drawn["left"][score].values())
        mean, low, high = ([row[end] for row in rows] for end in ("mean", "low", "high"))
        axes.plot([100, *mean], "o-", color=ink, lw=2.4, ms=6)
        axes.vlines(range(1, 7), low, high, color=ink, lw=5, alpha=0.35)
        axes.annotate(score, (6, mean[-1]), (10, 0), color=ink, va="center", weight="bold",
                      textcoords="offset points")  # fmt: skip
        few = [drawn["few"][score][k]["mean"] for k in ("16", "all")]
        axes.plot([5, 6], few, "x", color=ink, ms=8, mew=2)
    axes.plot([], [], "x", color="0.3", ms=8, mew=2, ls="",
              label="only four photographs of another visit")  # fmt: skip
    axes.legend(loc="lower left", frameon=False, fontsize=9)
    axes.set(xlim=(-0.3, 7.0), ylim=(0, 118), ylabel="lead that is left (%)")
    axes.set_xlabel("photographs of the queries' own visit, of each product, in the gallery")
    axes.set_xticks(range(7), NAMES)
    axes.grid(False, axis="x")
    axes.set_title(
        "Recall@1 keeps little of the network's lead, MAP@R most", loc="left", weight="bold"
    )
