"""What lesson 01 draws."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor

from dmlkit import ROOT, figures, retrieval
from dmlkit.data import ImageSet
from dmlkit.data.pictures import color_histogram

#: Products in a gallery.
SIZES = (5, 10, 15, 20)
SCORES = ("Recall@1", "R-precision", "MAP@R")
GALLERIES = ("another visit", "near copies, too")


def two_queries(large: ImageSet) -> tuple[Figure, dict[str, Any]]:
    """Two queries whose first result is right, one with a full list and one without."""
    images = cast(Tensor, large.images)
    assert large.queries is not None, "one visit asks"
    sets = large.retrieval_sets(color_histogram(images).numpy())
    each = retrieval.by_query(**sets, metric="cosine").reset_index()
    R = np.array([(sets["gallery_labels"] == label).sum() for label in sets["labels"]])
    hit = each[(each["recall_at_1"] == 1) & (R >= 30)]["map_at_r"]
    two = [(hit - wanted).abs().idxmin() for wanted in (0.8, 0.1)]
    fig = plt.figure(figsize=(7.2, 2.5))
    grid = fig.add_gridspec(2, 7, width_ratios=[1] * 6 + [3.4], wspace=0.06, hspace=0.05)
    drawn: dict[str, Any] = {"MAP@R": hit[two].tolist(), "R": R[two].tolist(), "hits": []}
    for row, query in enumerate(two):
        n = int(R[query])
        q = sets["embeddings"][[query]]
        order = retrieval.nearest_neighbors(q, n, sets["gallery"], metric="cosine")[0][0]
        right = sets["gallery_labels"][order] == sets["labels"][query]
        drawn["hits"].append(int(right.sum()))
        shown = [images[large.queries][query], *images[~large.queries][order[:5]]]
        for k, picture in enumerate(shown):
            axes = fig.add_subplot(grid[row, k])
            axes.imshow(picture.permute(1, 2, 0).numpy())
            figures.bare(axes)
            axes.grid(False)
            ink = "0.2" if not k else figures.RIGHT if right[k - 1] else figures.WRONG
            axes.spines[:].set(visible=bool(k), color=ink, lw=2.5)
            mark = "query" if not k else f"{k}: right" if right[k - 1] else f"{k}: wrong"
            axes.set_title(mark, fontsize=8, color=ink, pad=4)
        strip = fig.add_subplot(grid[row, 6])
        for good, ink, top in ((True, figures.RIGHT, 1.0), (False, figures.WRONG, 0.45)):
            strip.vlines(1 + np.flatnonzero(right == good), 0, top, color=ink, lw=2)
        strip.set(xlim=(-1, 46), ylim=(0, 2.2), xticks=[1, n], yticks=[])
        strip.grid(False)
        strip.spines[["left", "bottom"]].set_visible(False)
        strip.tick_params(length=0, labelsize=8)
        said = f"first R = {n} places: {right.sum()} right\nMAP@R {hit[query]:.2f}"
        strip.text(0.02, 0.95, said, transform=strip.transAxes, fontsize=8.5, va="top")
    return fig, drawn


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


def galleries(quarters: Sequence[ImageSet]) -> np.ndarray:
    """Recall@1 (%) of the histogram for five products among `SIZES`, by random choice: (n, 4)."""
    curves: list[list[float]] = []
    for unseen in quarters:
        sets = unseen.retrieval_sets(color_histogram(cast(Tensor, unseen.images)).numpy())
        for choice in range(10):
            order = np.random.default_rng(choice).permutation(unseen.num_classes)
            asks = np.isin(sets["labels"], order[:5])
            curves.append([])
            for size in SIZES:
                there = np.isin(sets["gallery_labels"], order[:size])
                few = {
                    k: v[asks if k in ("embeddings", "labels") else there] for k, v in sets.items()
                }
                found = retrieval.recall_at_k(**few, ks=[1], metric="cosine")[1]
                curves[-1].append(100 * found)
    return np.array(curves)


def gallery(curves: np.ndarray) -> Figure:
    """What more products in the gallery cost."""
    fig, axes = plt.subplots(figsize=(5.0, 2.8))
    axes.plot(range(4), curves.T, color="0.6", lw=0.5, alpha=0.6)
    fall = curves[:, 0] - curves[:, -1]
    for choice in (int(fall.argmin()), int(fall.argmax())):
        axes.plot(range(4), curves[choice], color="0.15", lw=1.8, zorder=4)
        axes.text(3.3, curves[choice, -1], f"falls by {fall[choice]:.0f}", va="center", fontsize=9)
    figures.sweep(axes, dict(zip(SIZES, curves.T, strict=True)), {}, figures.RIGHT)
    axes.set(
        xlabel="products in the gallery",
        ylabel="Recall@1 of five (%)",
        ylim=(0, 116),
        xlim=(-0.5, 4.1),
    )
    axes.set_title("a larger gallery", fontweight="bold", loc="left")
    return fig


def with_r_of(x: np.ndarray, images: ImageSet) -> np.ndarray:
    """MAP@R (%) of each product with near copies in the gallery, cut at the R without: (C,)."""
    assert images.queries is not None, "one visit asks"
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    asks, labels = np.flatnonzero(images.queries), images.labels
    near = x[asks] @ x.T
    near[np.arange(len(asks)), asks] = -2  # nobody is their own neighbor
    right = labels[(-near).argsort(axis=1, kind="stable")] == labels[asks, None]
    kept = right * right.cumsum(axis=1) / np.arange(1, len(x) + 1)
    R = (labels[~images.queries] == labels[asks, None]).sum(axis=1)
    each = np.array([row[:n].sum() / n for row, n in zip(kept, R, strict=True)])
    return np.array([100 * each[labels[asks] == c].mean() for c in np.unique(labels[asks])])


#: The three networks are tested on a fourth of the products each, and share most of the others.
OVERLAP = 1 / 4


def by_network(products: np.ndarray) -> np.ndarray:
    """Means of the three networks, each over its own 20 products: (60,) -> (3,)."""
    return np.asarray(products.reshape(3, -1).mean(axis=1))


def _of(leads: np.ndarray) -> dict[str, Any]:
    """Of each gallery and score: three networks' means and their interval; (2, 60, 3)."""
    return {
        name: {
            score: figures.summary(by_network(leads[g, :, k]), OVERLAP)
            for k, score in enumerate(SCORES)
        }
        for g, name in enumerate(GALLERIES)
    }


def answer(
    scores: Mapping[Any, np.ndarray], fixed: Mapping[Any, np.ndarray], kept: int
) -> tuple[Figure, dict[str, Any]]:
    """Two scores of 44 losses, and of two searches in two galleries.

    ``scores`` are of each search, (galleries, products, scores) in percent; ``fixed`` has MAP@R
    with near copies, cut at the R of the other visit; ``kept`` is what the rule asks about.
    """
    sizes = [name for name in scores if isinstance(name, int)]
    plain, full = scores["color histogram"], scores[sizes[-1]]
    drawn = _of(scores[kept] - plain)
    drawn["all numbers"] = _of(full - plain)
    drawn["by numbers"] = {str(size): _of(scores[size] - plain) for size in sizes}
    drawn["levels"] = {"network": _of(full), "histogram": _of(plain)}
    drawn["R of another visit"] = {
        name: figures.summary(by_network(fixed[size] - fixed["color histogram"]), OVERLAP)
        for name, size in (("all numbers", sizes[-1]), (str(kept), kept))
    }
    fig, (cloud, *slopes) = plt.subplots(
        1, 3, figsize=(8.4, 3.5), width_ratios=(1.25, 1, 1), layout="constrained"
    )
    drawn["losses"] = _losses(cloud)
    for axes, k in zip(slopes, (0, 2), strict=True):
        for name, each, ink in (("network", full, figures.RIGHT), ("histogram", plain, "0.35")):
            three = np.array([by_network(each[g, :, k]) for g in (0, 1)])  # (2, networks)
            axes.plot([0, 1], three, color=ink, lw=0.8, alpha=0.5)
            axes.plot([0, 1], three.mean(axis=1), "o-", color=ink, lw=2.5, ms=7)
            above = name == "network"
            for x, level in enumerate(three.mean(axis=1)):
                axes.annotate(f"{level:.0f}", (x, level), (0, 9 if above else -9), ha="center",
                              va="center", textcoords="offset points", color=ink, fontsize=9,
                              fontweight="bold")  # fmt: skip
            spot = (0.5, three.mean() + 6) if above else (0.72, three[0].mean() - 7)
            axes.text(*spot, name, color=ink, fontsize=9, ha="center")
        axes.set(xlim=(-0.3, 1.3), ylim=(0, 108))
        axes.set_xticks([0, 1], ["another\nvisit", "near copies,\ntoo"])
        axes.grid(False, axis="x")
        axes.set_title(f"two searches, {SCORES[k]}", loc="left", fontweight="bold", fontsize=9.5)
    slopes[0].set_ylabel("Recall@1 (%)")
    slopes[1].set_ylabel("MAP@R (%)")
    return fig, drawn


def cut(scores: Mapping[Any, np.ndarray], kept: int) -> tuple[Figure, dict[str, Any]]:
    """With near copies, the network's lead by how many numbers are kept, by both scores."""
    sizes = [name for name in scores if isinstance(name, int)]
    gains = {size: scores[size] - scores["color histogram"] for size in sizes}
    fig, axes = plt.subplots(figsize=(5.6, 3.2), layout="constrained")
    drawn: dict[str, Any] = {}
    for k, ink in ((0, "0.15"), (2, "#9440a6")):
        three = np.array([by_network(gains[size][1, :, k]) for size in sizes])  # (sizes, 3)
        axes.plot(range(len(sizes)), three, color=ink, lw=0.8, alpha=0.6)
        axes.plot(range(len(sizes)), three.mean(axis=1), "o-", color=ink, lw=2.2, ms=4)
        axes.text(len(sizes) - 0.75, three[-1].mean(), f"by {SCORES[k]}", color=ink, va="center",
                  fontsize=9)  # fmt: skip
        drawn[SCORES[k]] = {
            str(size): figures.summary(row, OVERLAP) for size, row in zip(sizes, three, strict=True)
        }
    axes.axhline(0, color="0.3", lw=1, zorder=0)
    axes.axvline(sizes.index(kept), color="0.6", lw=1, ls=":", zorder=0)
    axes.text(len(sizes) - 1, -5, "histogram ahead", va="top", ha="right", fontsize=8, color="0.35")
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes[:-1]] + ["all"])
    axes.set(xlim=(-0.4, len(sizes) + 1.4), xlabel="numbers of the network that are kept")
    axes.set_ylabel("its lead, with near copies (points)")
    axes.grid(False, axis="x")
    return fig, drawn


def _of_losses(study: str) -> dict[str, pd.DataFrame]:
    """Scores of 44 losses in percent, means of four sets of products: (losses, 4) by measure."""
    table = pd.read_csv(ROOT / "data" / "evidence" / f"{study}.csv", index_col=0)
    table = table[~table.index.str.contains("[+, ]")].set_index("repetition", append=True)
    names = {"Recall@1": "recall_at_1", "MAP@R": "map_at_r"}
    wide = {name: 100 * table[column].unstack() for name, column in names.items()}
    return {name: each.T.groupby(lambda r: r % 4).mean().T for name, each in wide.items()}


def _decided(scores: Mapping[str, pd.DataFrame]) -> dict[str, int]:
    """Of all pairs of losses: how many do both scores decide, one alone, or against each other?"""
    i, j = np.triu_indices(len(scores["MAP@R"]), 1)
    signs = []
    for table in scores.values():
        d = table.to_numpy()[i] - table.to_numpy()[j]  # (pairs, sets)
        half = stats.t.ppf(0.975, d.shape[1] - 1) * stats.sem(d, axis=1)
        signs.append(np.sign(d.mean(axis=1)) * (abs(d.mean(axis=1)) > half))
    both = (one := signs[0]) * (two := signs[1])
    alone = {f"by {name}": int(np.sum(d != 0)) for name, d in zip(scores, signs, strict=True)}
    return {"pairs": len(i), **alone, "one alone": int(np.sum((one != 0) ^ (two != 0))),
            "both": int(np.sum(both != 0)), "contradict": int(np.sum(both < 0))}  # fmt: skip


def _losses(axes: Axes) -> dict[str, Any]:
    """Two scores of the 44 losses of the study on photographs."""
    photos = _of_losses("photos")
    means = pd.DataFrame({name: table.mean(axis=1) for name, table in photos.items()})
    first = [means[name].idxmax() for name in means]  # the best by each score
    axes.plot(means["Recall@1"], means["MAP@R"], "o", color=figures.RIGHT, alpha=0.5, ms=5, mew=0)
    rank = float(stats.spearmanr(*means.to_numpy().T)[0])
    drawn: dict[str, Any] = {**_decided(photos), "Spearman": rank}
    for name, table in photos.items():
        drawn[f"first by Recall@1 minus first by MAP@R, {name}"] = figures.sample(
            (table.loc[first[0]] - table.loc[first[1]]).to_numpy()
        )
    axes.set(xlabel="Recall@1 of a loss (%)", ylabel="MAP@R (%)", xlim=(85.7, 90), ylim=(54, 65))
    axes.set_title("44 losses: much the same order", fontweight="bold", loc="left", fontsize=9.5)
    return drawn
