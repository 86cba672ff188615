"""What lesson 01 draws."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy import stats
from torch import Tensor

from dmlkit import ROOT, figures, retrieval
from dmlkit.data import ImageSet
from dmlkit.data.pictures import color_histogram
from dmlkit.statistics import interval

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
    hit = each[each["recall_at_1"] == 1]["map_at_r"]
    bright = images[large.queries].float().mean(dim=(1, 2, 3)).numpy()
    few = hit.index[hit < 0.05]
    two = [(hit - 0.8).abs().idxmin(), few[bright[few].argmax()]]
    q = sets["embeddings"][two]
    lists = retrieval.nearest_neighbors(q, 5, sets["gallery"], metric="cosine")[0]
    right = sets["gallery_labels"][lists] == sets["labels"][two, None]
    R = [(sets["gallery_labels"] == sets["labels"][query]).sum() for query in two]
    fig = figures.neighbors(
        images[large.queries][two], images[~large.queries][lists], right,
        [f"R = {n}\nMAP@R {hit[query]:.2f}" for query, n in zip(two, R, strict=True)],
    )  # fmt: skip
    return fig, {"MAP@R": hit[two].tolist()}


def toys(
    places: Mapping[str, np.ndarray], table: Mapping[str, Mapping[str, float]], labels: np.ndarray
) -> Figure:
    """Three embeddings of eight points, with the neighbors of one numbered."""
    fig, panels = plt.subplots(1, 3, figsize=(6.5, 2.3))
    titles = "clusters: all is well", "pairs: the first is right", "chains: wrong at the ends"
    for axes, (name, x), query, title in zip(
        panels, places.items(), (0, 0, 3), titles, strict=True
    ):
        for label, marker, color in ((0, "o", "C2"), (1, "s", "C4")):
            axes.scatter(*x[labels == label].T, c=color, marker=marker, s=26)
        axes.scatter(*x[query], s=130, facecolors="none", edgecolors="black")
        for rank, item in enumerate(retrieval.nearest_neighbors(x, 3)[0][query], start=1):
            axes.annotate(rank, x[item], (0, 5), textcoords="offset points", ha="center")
        r1, map_r = table[name]["R@1"], table[name]["MAP@R"]
        axes.set(title=title, xticks=[], yticks=[], xlabel=f"R@1 {r1:.2f}\nMAP@R {map_r:.2f}")
        axes.margins(0.2)
    return fig


def sweep(
    paths: np.ndarray, fixed: np.ndarray, scored: Sequence[int]
) -> tuple[Figure, dict[str, Any]]:
    """MAP@R against Recall@1 by the step (seeds, 4, 3), beside what is ``fixed`` (seeds, 3, 3)."""
    fig, axes = plt.subplots(figsize=(5.6, 3.3))
    middle, others = paths.mean(axis=0), fixed.mean(axis=0)  # (4, 3), (3, 3)
    known = ("raw pixels", "color histogram", "untrained")
    drawn = {
        name: {f"{step}": figures.sample(paths[:, i, k]) for i, step in enumerate(scored)}
        | {name: figures.sample(fixed[:, i, k]) for i, name in enumerate(known)}
        for k, name in enumerate(SCORES)
    }
    for path in paths:
        axes.plot(*path[:, ::2].T, color=figures.RIGHT, lw=0.7, alpha=0.35)
    axes.plot(*middle[:, ::2].T, "o-", color=figures.RIGHT, lw=2.2, ms=5)
    style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8.5}
    for i in (0, -1):
        spot, said = middle[i, ::2], f"step {scored[i]}"
        axes.annotate(said, spot, (-8, 6), ha="right", color=figures.RIGHT, **style)
    for name, mark, spot in zip(known, "sD^", others[:, ::2], strict=True):
        axes.plot(*spot, mark, color="0.25", ms=6)
        axes.annotate(name, spot, (9, -4), **style)
    axes.set(xlabel="Recall@1 (%)", ylabel="MAP@R (%)")
    axes.set_title("first hits, and the rest of the class", fontweight="bold", loc="left")
    return fig, drawn


def galleries(quarters: Sequence[ImageSet]) -> np.ndarray:
    """Recall@1 (%) of the histogram for five products among `SIZES`, by random choice: (n, 4)."""
    curves: list[list[float]] = []
    for unseen in quarters:
        sets = unseen.retrieval_sets(color_histogram(cast(Tensor, unseen.images)).numpy())
        for choice in range(8):
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
    figures.sweep(axes, dict(zip(SIZES, curves.T, strict=True)), {}, figures.RIGHT)
    axes.set(xlabel="products in the gallery", ylabel="Recall@1 of five (%)", ylim=(0, 116))
    axes.set_title("a larger gallery", fontweight="bold", loc="left")
    return fig


def answer(leads: np.ndarray, scored: Sequence[int]) -> tuple[Figure, dict[str, Any]]:
    """Network minus histogram in both galleries: (seeds, steps, galleries, scores) in points."""
    drawn: dict[str, Any] = {
        name: {score: figures.sample(leads[:, -1, g, k]) for k, score in enumerate(SCORES)}
        for g, name in enumerate(GALLERIES)
    }
    moved = leads[:, -1, 1] - leads[:, -1, 0]  # (seeds, 3)
    drawn["moved"] = {score: figures.sample(moved[:, k]) for k, score in enumerate(SCORES)}
    drawn["by step"] = {
        f"{name}, {SCORES[k]}, {step}": figures.sample(leads[:, i, g, k])
        for g, name in enumerate(GALLERIES)
        for k in (0, 2)
        for i, step in enumerate(scored)
    }
    fig, (axes, right) = plt.subplots(1, 2, figsize=(7.2, 3.4), width_ratios=(1.5, 1))
    for k, ink, shift in ((0, "0.15", -0.03), (2, "#9440a6", 0.03)):
        ends = leads[:, -1, :, k]  # (seeds, 2)
        places = np.arange(2) + shift
        axes.plot(places, ends.T, color=ink, lw=0.7, alpha=0.4)
        axes.plot(places, ends.mean(axis=0), "o-", color=ink, lw=2.6, ms=6)
        for place, values in zip(places, ends.T, strict=True):
            _, low, high, _ = interval(values)
            axes.plot([place] * 2, [low, high], color=ink, lw=1.6)
        at = 1.07, ends[:, 1].mean()
        va = "bottom" if k else "center"
        axes.text(*at, f"by {SCORES[k]}", color=ink, va=va, fontweight="bold")
        for g, style in enumerate(("-", "--")):
            right.plot(range(len(scored)), leads[:, :, g, k].mean(axis=0), style, color=ink, lw=1.8)
    axes.set(xlim=(-0.2, 1.75), ylabel="network minus histogram (points)")
    axes.set_xticks([0, 1], ["gallery:\nanother visit", "with near\ncopies, too"])
    for each in (axes, right):
        each.axhline(0, color="0.3", lw=1, zorder=0)
        each.grid(False, axis="x")
    side: dict[str, Any] = {"color": "0.35", "fontsize": 8, "transform": axes.get_yaxis_transform()}
    axes.text(0.985, 0.5, "network ahead", ha="right", va="bottom", **side)
    axes.text(0.985, -0.8, "histogram ahead", ha="right", va="top", **side)
    axes.set_title("near copies move Recall@1 far, MAP@R little", fontweight="bold", loc="left")
    right.set_xticks(range(len(scored)), scored)
    right.set(xlabel="training step")
    right.plot([], [], "-", color="0.5", label="another visit")
    right.plot([], [], "--", color="0.5", label="near copies, too")
    right.legend(frameon=False, loc="lower right", fontsize=8)
    right.set_title("by the step", fontweight="bold", loc="left")
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
    return {"pairs": len(i), "one alone": int(np.sum((one != 0) ^ (two != 0))),
            "both": int(np.sum(both != 0)), "contradict": int(np.sum(both < 0))}  # fmt: skip


def losses() -> tuple[Figure, dict[str, Any]]:
    """Two scores of the 44 losses of the study on photographs."""
    photos = _of_losses("photos")
    means = pd.DataFrame({name: table.mean(axis=1) for name, table in photos.items()})
    first = [means[name].idxmax() for name in means]  # the best by each score
    fig, axes = plt.subplots(figsize=(5.6, 3.2))
    axes.plot(means["Recall@1"], means["MAP@R"], "o", color=figures.RIGHT, alpha=0.5, ms=5, mew=0)
    rank = float(stats.spearmanr(*means.to_numpy().T)[0])
    drawn: dict[str, Any] = {**_decided(photos), "Spearman": rank}
    for loss, spot in zip(first, ((89.7, 56.5), (87.9, 64)), strict=True):
        own = means.rank(ascending=False).loc[loss].astype(int)
        axes.plot(*means.loc[loss], "o", mfc="none", mec="black", ms=9)
        ends = {1: "st", 2: "nd", 3: "rd"}
        at = [
            f"{n}{ends.get(n, 'th')} by {score}" for score, n in own[["Recall@1", "MAP@R"]].items()
        ]
        said = f"{figures.look(loss).name}:\n{', '.join(at)}"
        axes.annotate(said, means.loc[loss], spot, fontsize=8, ha="right", va="center",
                      arrowprops={"arrowstyle": "-", "color": "0.4"})  # fmt: skip
        drawn[str(loss)] = {str(name): int(place) for name, place in own.items()}
    for name, table in photos.items():
        drawn[f"first by Recall@1 minus first by MAP@R, {name}"] = figures.sample(
            (table.loc[first[0]] - table.loc[first[1]]).to_numpy()
        )
    axes.set(xlabel="Recall@1 of a loss (%)", ylabel="MAP@R (%)", xlim=(84.5, 90), ylim=(52, 65))
    axes.set_title("much the same order by both scores", fontweight="bold", loc="left")
    return fig, drawn
