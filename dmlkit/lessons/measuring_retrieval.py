"""What lesson 01 draws."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from dmlkit import data, figures, retrieval
from dmlkit.data import ImageSet
from dmlkit.data.pictures import color_histogram
from dmlkit.lessons.kinds import wider

#: Near copies in the gallery, of each product: photographs of the query's own visit. Last: all.
COPIES = (0, 1, 2, 4, 8, 16, 999)
NAMES = ("0", "1", "2", "4", "8", "16", "all")
SCORES = ("Recall@1", "MAP@R")
INKS = {"Recall@1": "#9440a6", "MAP@R": "#00735a"}
#: Of what near copies earn.
COPY = "#c44e00"
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
    x: Tensor  # (M, 1280), features of other products, of length 1
    labels: Tensor  # (M,)
    z: Tensor  # (N, 1280), features of these


def products(fold: int) -> Products:
    """The 20 products of a fold, and all the others, which a network may learn."""
    images = data.load("grocery64", "test", fold=fold)
    seen, new = (
        data.load("grocery", part, fold=fold, features="tf_efficientnet_lite0@224")
        for part in ("train", "test")
    )
    x, z = (F.normalize(cast(Tensor, each.images).flatten(1).float()) for each in (seen, new))
    colors = color_histogram(cast(Tensor, images.images)).double().numpy()
    return Products(images, colors, x, torch.from_numpy(seen.labels), z)


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


def first_results(
    images: ImageSet, searches: Mapping[str, np.ndarray], joined: np.ndarray, k: int = 16
) -> Figure:
    """The first results of two searches without near copies and with k of them, of two queries.

    The queries are drawn among those that the first search misses without near copies and answers
    with one; ``joined`` (Q, N) is that of ``joins``.
    """
    assert images.queries is not None, "one visit asks"
    asks, first = np.flatnonzero(images.queries), []
    for f in searches.values():
        s = (unit := f / np.linalg.norm(f, axis=1, keepdims=True))[asks] @ unit.T
        first += [np.where(joined <= some, s, -np.inf).argmax(axis=1) for some in (0, k)]
    found = np.stack(first, axis=1)  # (Q, 4)
    right = images.labels[found] == images.labels[asks][:, None]
    saved = np.flatnonzero(~right[:, 0] & right[:, 1] & images.queries[found[:, 1]])
    rows = np.random.default_rng(0).permutation(saved)[:2]
    pixels = cast(Tensor, images.images)
    fig = figures.neighbors(pixels[asks[rows]], pixels[found[rows]], right[rows])
    titles = [f"{name},\n{said}" for name in searches for said in ("without", f"with {k}")]
    axes = fig.axes[0]
    axes.set_xticks(axes.get_xticks(), ["query", *titles])
    return fig


def law(spoiled: np.ndarray, own: np.ndarray) -> tuple[float, np.ndarray]:
    """q of the first near copy, and the share of spoiled queries (%) that it predicts.

    (K,), and the near copies there are of each product (C,) -> (K,).
    """
    q = float(spoiled[1] / 100)
    joined = np.minimum(np.array(COPIES)[:, None], own)  # (K, C)
    return q, 100 * (1 - (1 - q) ** joined).mean(axis=1)


def earned(score: np.ndarray, copies: np.ndarray) -> np.ndarray:
    """Near copies' part of a score, in percent, as values whose mean it is: (C,), (C,) -> (C,).

    The linearized ratio of two means over products (Cochran 1977, chapter 6).
    """
    part = copies.mean() / score.mean()
    values: np.ndarray = 100 * (part + (copies - part * score) / score.mean())
    return values


def fewer(misses: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The histogram's misses over the network's (K,), and by how much that changes from the first k
    to k = 16: values whose mean is the logarithm, {name: (K, C)} -> (C,).
    """
    ratio = misses["histogram"].mean(axis=1) / misses["network"].mean(axis=1)
    logs = np.log(ratio)[:, None] + sum(
        sign * (misses[name] / misses[name].mean(axis=1, keepdims=True) - 1)
        for name, sign in (("histogram", 1), ("network", -1))
    )
    return ratio, logs[5] - logs[0]


def answer(
    scores: Mapping[str, np.ndarray], kinds: Sequence[str], own: np.ndarray, rest: np.ndarray
) -> tuple[Figure, dict[str, Any]]:
    """What near copies earn of two scores, and the misses of two searches.

    ``scores`` are (seeds, K, 2, 2, C) in percent, by search: Recall@1 and MAP@R, all of it and what
    near copies earn. A product has ``own`` (C,) near copies and ``rest`` (C,) of another visit.
    """
    fig, grid = plt.subplot_mosaic(
        [[*SCORES], ["earned", "misses"]], figsize=(6.5, 6.4), layout="constrained"
    )
    joined = np.minimum(np.array(COPIES)[:, None], own)
    share = 100 * (joined / (joined + rest)).mean(axis=1)  # (K,)
    drawn: dict[str, Any] = {"share": _swept(share)}
    drawn |= {part: {} for part in ("levels", "spoiled", "law", "earned")}
    means = {name: each.mean(axis=0) for name, each in scores.items()}  # (K, 2, 2, C)
    for name, each in means.items():
        spoiled = each[:, 0, 1].mean(axis=1)
        q, curve = law(spoiled, own)
        drawn["spoiled"][name] = _swept(spoiled)
        drawn["law"][name] = _swept(curve)
        drawn["law"][name]["example"]["q"] = q
        drawn["levels"][name] = {
            score: _swept(each[:, j, 0].mean(axis=1)) for j, score in enumerate(SCORES)
        }
        drawn["earned"][name] = {
            score: {
                k: figures.summary(wider(earned(*row), kinds), OVERLAP)
                for k, row in zip(NAMES[1:], each[1:, j], strict=True)
            }
            for j, score in enumerate(SCORES)
        }
        if name == "network":
            grid["Recall@1"].plot(curve, ":", color="black", lw=1.8)
            grid["Recall@1"].annotate("formula", (3, curve[3]), (-6, 4), ha="right", fontsize=9,
                                      textcoords="offset points", weight="bold")  # fmt: skip
            for j, score in enumerate(SCORES):
                _bands(grid[score], score, each[:, j].mean(axis=2))
    _earned(grid["earned"], drawn["earned"], share)
    misses = {name: 100 - each[:, 0, 0] for name, each in means.items()}  # (K, C)
    ratio, change = fewer(misses)
    found = figures.summary(wider(change, kinds), OVERLAP)
    ends = {end: float(np.exp(found[end])) for end in ("mean", "low", "high")}
    drawn |= {"misses": _swept(ratio), "change": figures.example(ends)}
    _misses(grid["misses"], {name: each.mean(axis=1) for name, each in misses.items()}, ratio)
    return fig, drawn


def _swept(values: np.ndarray) -> dict[str, Any]:
    """A number for each count of near copies, by its name: (K,)."""
    return figures.example(dict(zip(NAMES, values.tolist(), strict=True)))


#: What each upper panel says.
TITLES = {"Recall@1": "Recall@1: mostly near copies", "MAP@R": "MAP@R: mostly another visit"}


def _ticks(axes: Axes, title: str, **style: Any) -> None:
    """The sweep below a panel, and its message above."""
    axes.set(xlabel="near copies of each product", **style)
    axes.set_xticks(range(7), NAMES)
    axes.grid(False, axis="x")
    axes.set_title(title, loc="left", weight="bold", fontsize=10)


def _bands(axes: Axes, score: str, found: np.ndarray) -> None:
    """A score of the network, and what near copies earn of it: (K, 2)."""
    (whole, copies), x = found.T, range(len(found))
    axes.fill_between(x, 0, copies, color=COPY, alpha=0.55, lw=0)
    axes.fill_between(x, copies, whole, color=figures.RIGHT, alpha=0.35, lw=0)
    axes.plot(x, whole, color="black", lw=1.6)
    style: dict[str, Any] = {"fontsize": 9, "weight": "bold"}
    axes.text(5.9, copies[5] * 0.3, "near copies", ha="right", **style)
    axes.text(0.1, whole[0] * 0.7, "another visit", **style)
    _ticks(axes, TITLES[score], xlim=(0, 6), ylim=(0, 100), ylabel="score of the network (%)")


def _earned(axes: Axes, rows: Mapping[str, Any], share: np.ndarray) -> None:
    """What near copies earn of each score, by search, beside their share of the right ones."""
    axes.plot(share, "--", color="black", lw=1.6, zorder=1)
    looks = {"network": ("o-", 2.4, -0.07), "histogram": ("s:", 1.2, 0.07)}
    for name, scores in rows.items():
        mark, width, shift = looks[name]
        for score, ink in INKS.items():
            each = list(scores[score].values())
            mean, low, high = ([row[end] for row in each] for end in ("mean", "low", "high"))
            x = np.arange(7) + shift
            axes.plot(x, [0, *mean], mark, color=ink, lw=width, ms=2.5 + width)
            axes.vlines(x[1:], low, high, color=ink, lw=3.5, alpha=0.35)
    for score, spot in (("Recall@1", (1.9, 68)), ("MAP@R", (3.7, 25))):
        axes.text(*spot, score, color=INKS[score], fontsize=9, weight="bold", ha="right")
    axes.text(6.2, 2, "their share of the\nright photographs", fontsize=8.5, ha="right")
    keys = [
        Line2D([], [], color="0.3", ls=m[1:], marker=m[0], label=n) for n, (m, *_) in looks.items()
    ]
    axes.legend(handles=keys, loc="upper left", frameon=False, fontsize=9)
    _ticks(axes, "Recall@1: far above their share", xlim=(-0.3, 6.3), ylim=(0, 103))
    axes.set_ylabel("earned by near copies (%)")


def _misses(axes: Axes, lines: Mapping[str, np.ndarray], ratio: np.ndarray) -> None:
    """Queries that two searches answer wrongly, on a logarithmic axis."""
    for name, ink in (("histogram", "0.25"), ("network", figures.RIGHT)):
        axes.plot(lines[name], "o-", color=ink, lw=2.4, ms=5)
        spot, shift = ((0, 0), (-4, -24)) if name == "network" else ((1, 1), (0, 8))
        axes.annotate(name, (spot[0], lines[name][spot[1]]), shift, color=ink, fontsize=9,
                      weight="bold", textcoords="offset points")  # fmt: skip
    for k in (0, 5, 6):
        low, high = lines["network"][k], lines["histogram"][k]
        axes.plot([k, k], [low, high], color="black", lw=1.2, zorder=0)
        spot, shift, ha = ((k, low), (0, -14), "center") if k else ((0, low * 1.5), (5, 0), "left")
        axes.annotate(f"× {ratio[k]:.1f}", spot, shift, ha=ha, va="center",
                      textcoords="offset points", fontsize=9, weight="bold")  # fmt: skip
    axes.text(0, 1.2, "×: histogram over network", fontsize=8.5)
    _ticks(axes, "First results that are wrong", xlim=(-0.3, 6.4), yscale="log", ylim=(1, 100))
    axes.set_yticks([1, 10, 100], ["1", "10", "100"])
    axes.set_ylabel("of all queries (%)")
