"""What lesson 30 draws and measures."""

import io
import itertools
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dmlkit import ROOT, data, figures, rerank
from dmlkit.data import grocery
from dmlkit.statistics import interval

FRESH = ROOT / "data" / "evidence" / "30_fresh.csv"
TUNED = FRESH.with_name("30_tuned.csv")
#: The products between these are cartons, as the authors list them.
CARTONS = (28, 59)
#: Queries of each product that 30_matches.csv has.
KNOWN = 5


# The data of the page


class Counted(NamedTuple):
    """Queries (Q,) and their first ten results: what both searches know of them (Q, 10)."""

    images: data.ImageSet
    x: Tensor  # (N, 1280), of length 1
    gallery: NDArray[np.intp]
    queries: NDArray[np.intp]
    new: NDArray[np.bool_]
    first: NDArray[np.intp]
    cosines: NDArray[np.float64]
    agree: NDArray[np.intp]
    every: NDArray[np.intp]
    product: NDArray[np.int64]
    right: NDArray[np.bool_]


def load(new: int) -> Counted:
    """The known queries of each product, and so many new ones."""
    table = pd.read_csv(FRESH)
    images = data.load("grocery", "test", fold=None, features="tf_efficientnet_lite0@224")
    table["label"] = images.labels[table["query"]]
    table = table[table.groupby(["label", "new"]).cumcount() < np.where(table["new"], new, KNOWN)]
    first, cosines, agree, every = (
        np.array([[float(one) for one in row.split()] for row in table[name]])
        for name in ("first", "cosines", "agree", "all")
    )
    assert isinstance(images.images, Tensor), "features fit into memory"
    assert images.queries is not None, "the second visit is marked"
    queries, found = table["query"].to_numpy(), first.astype(int)
    product = images.labels[queries]
    return Counted(
        images, F.normalize(images.images.flatten(1)), np.flatnonzero(~images.queries), queries,
        table["new"].to_numpy() > 0, found, cosines, agree.astype(int), every.astype(int),
        product, images.labels[found] == product[:, None],
    )  # fmt: skip


class Kept(NamedTuple):
    """The maps of four queries and of their first ten results, and photographs of some."""

    rows: NDArray[np.intp]  # (4, 11)
    maps: Tensor  # (4, 11, C, 28, 28)
    shown: NDArray[np.intp]  # (4, 3)
    photographs: NDArray[np.uint8]  # (4, 3, 224, 224, 3)
    costs: NDArray[np.float64]


def kept_maps() -> Kept:
    """Read 30_maps.npz."""
    with np.load(ROOT / "data" / "evidence" / "30_maps.npz") as file:
        kept = {name: file[name] for name in file}
    scales = torch.from_numpy(kept["scales"]).float()[:, None, None, None]
    maps = (torch.from_numpy(kept["codes"]).float() * scales).unflatten(0, kept["rows"].shape)
    parts = np.split(kept["files"], kept["ends"][:-1])
    each = np.array([np.asarray(Image.open(io.BytesIO(part.tobytes()))) for part in parts])
    photographs = each.reshape(*kept["shown"].shape, *each.shape[1:])
    return Kept(kept["rows"], maps, kept["shown"], photographs, kept["costs"])


def two_results(kept: Kept) -> Figure:
    """A query and two of its first ten results."""
    shown = torch.from_numpy(kept.photographs[1:2].copy()).permute(0, 1, 4, 2, 3)
    fig, _ = figures.contact_sheet(shown, [], ["query", "A", "B"])
    fig.set_size_inches(4.6, 1.75)
    return fig


# The picture of the idea

#: Of the query's carton, by hand.
OUTLINE = np.array([37 + 47j, 112 + 65j, 67 + 209j, 8 + 200j, 37 + 47j]) / 224


def _guesses(kept: Kept, other: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    """Places of all matches in the query and in a result, and which agree with the best guess."""
    place = list(kept.rows[1]).index(kept.shown[1, other])
    (p, f), (q, g) = (rerank.points(kept.maps[1, k]) for k in (0, place))
    pairs = rerank.mutual(f, g)
    agree = rerank.consistent(p[pairs[:, 0]], q[pairs[:, 1]])
    z, w = (at[pairs[:, k]].double().numpy() @ np.array([1, 1j]) for k, at in enumerate((p, q)))
    return z, w, agree


def outlines(kept: Kept) -> tuple[Figure, dict[str, dict[str, int]]]:
    """The matches that agree, and where they carry the outline of the query's carton."""
    fig, panels = plt.subplots(2, 1, figsize=(4.0, 4.4))
    drawn = {}
    results = ("B, the same product", 2, figures.RIGHT), ("A, another product", 1, figures.WRONG)
    for axes, (said, other, ink) in zip(panels, results, strict=True):
        z, w, near = _guesses(kept, other)
        z_mean, w_mean = z[near].mean(), w[near].mean()  # least squares, of all that agree
        a = ((z[near] - z_mean).conj() @ (w[near] - w_mean)) / (abs(z[near] - z_mean) ** 2).sum()
        there = a * (OUTLINE - z_mean) + w_mean
        gap = np.full((224, 12, 3), 255)
        axes.imshow(np.hstack([kept.photographs[1, 0], gap, kept.photographs[1, other]]))
        for at, line, left in ((z[near], OUTLINE, 0), (w[near], there, 236)):
            at, line = left + 224 * at, left + 224 * line
            axes.plot(at.real, at.imag, "o", ms=6, color=ink, mec="white", mew=0.8)
            axes.plot(line.real, line.imag, "-", color="yellow", lw=2.5, clip_on=True)
        axes.set(xlim=(-0.5, 459.5), ylim=(223.5, -0.5))
        axes.set_axis_off()
        axes.set_title(f"{said}: of {len(z)} matches {near.sum()} agree", fontsize=9)
        drawn[said] = {"agree": int(near.sum()), "matches": len(z)}
    return fig, drawn


def orders(two: Mapping[str, Mapping[str, NDArray[Any]]], small: data.ImageSet) -> Figure:
    """The first ten of two queries, by cosine and after a second look, with their matches."""
    assert isinstance(small.images, Tensor), "small photographs fit into memory"
    rows, frames = [], []
    for each in two.values():
        for weight in (0.0, 0.005):
            scores = rerank.Rule(weight, 0).scores(each["cosines"], each["counts"])
            order = np.argsort(-scores, kind="stable")
            rows.append(each["first"][order])
            frames.append((each["right"][order], each["counts"][order]))
    shown = small.images[torch.from_numpy(np.array(rows))]
    names = [f"{name},\n{said}" for name in two for said in ("by cosine", "β = 0.005")]
    fig, axes = figures.contact_sheet(shown, names, [f"{k}" for k in range(1, 11)])
    height, width = shown.shape[-2:]
    for y, (right, counts) in zip(axes.get_yticks(), frames, strict=True):
        for x, hit, count in zip(axes.get_xticks(), right, counts, strict=True):
            ink = figures.RIGHT if hit else figures.WRONG
            left, top = x - width / 2 + 0.5, y - height / 2 + 0.5
            axes.add_patch(
                Rectangle((left, top), width - 2, height - 2, ec=ink, fill=False, lw=2.2)
            )
            axes.text(left + 2, top + height - 6, f"{count}", color="white", fontsize=7,
                      va="bottom", bbox={"fc": ink, "ec": "none", "pad": 1.2})  # fmt: skip
    return fig


# The counts and the answer


def histograms(
    counted: Counted, swept: Mapping[str, Mapping[str, list[float]]],
    ceiling: Mapping[str, float], carton: NDArray[np.bool_],
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """How many matches right and wrong results have, and Recall@1 by the weight of a match."""
    fig, panels = plt.subplots(2, 2, figsize=(6.5, 5.0))
    drawn: dict[str, Any] = {"gallery": len(counted.gallery), "queries": int((~counted.new).sum())}
    styles: dict[bool, dict[str, Any]] = {
        True: {"color": figures.RIGHT, "alpha": 0.45},
        False: {"color": figures.WRONG, "histtype": "step", "lw": 1.8},
    }
    sorts = {"cartons": carton & ~counted.new, "fruit, vegetables": ~carton & ~counted.new}
    for column, (kind, rows) in enumerate(sorts.items()):
        axes, m, hit = panels[0, column], counted.agree[rows], counted.right[rows]
        own = {}
        top, wide = (150, 5) if kind == "cartons" else (50, 2)
        for state, name in ((True, "right"), (False, "wrong")):
            some = m[hit == state]
            own[name] = float(np.median(some))
            axes.hist(some.clip(max=top - 1), np.arange(0, top + 1, wide),
                      weights=np.full(len(some), 100 / len(some)), **styles[state])  # fmt: skip
        drawn[f"matches, {kind}"] = figures.example(own)
        axes.set(xlabel="matches that agree")
        axes.set_title(kind, loc="left", fontweight="bold")
        low = panels[1, column]
        drawn[kind] = figures.sweep(
            low, swept[kind], {"among ten": ceiling[kind]}, figures.RIGHT, ""
        )
        low.set(ylim=(30, 105), xlabel="weight β of a match (thousandths)")
    axes = panels[0, 0]
    axes.set(ylabel="results (%)", ylim=(0, axes.get_ylim()[1] * 1.1))
    for name, ink, y in (
        ("right: filled", figures.RIGHT, 0.92),
        ("wrong: line", figures.WRONG, 0.8),
    ):
        axes.text(0.97, y, name, transform=axes.transAxes, ha="right", color=ink, fontsize=9)
    panels[1, 0].set_ylabel("Recall@1 (%)")
    return fig, drawn


def by_kinds(change: pd.Series, kinds: pd.Series) -> pd.Series:
    """The 95 % interval of a mean over products, if their kinds were drawn anew."""
    sums = (change - change.mean()).groupby(kinds[change.index]).sum()
    return interval(change.mean() + sums * len(sums) / len(change))


def answer(
    recalls: Mapping[str, pd.Series], sorts: Mapping[str, NDArray[Any]], kinds: pd.Series
) -> tuple[Figure, dict[str, Any]]:
    """What each second look adds to the cosine's Recall@1, by kind of product."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.2), sharey=True, sharex=True)
    before, agree, every = (recalls[name] for name in ("cosine", "agree", "all"))
    changes = {"agree": agree - before, "all": every - before, "agree minus all": agree - every}
    says = "matches\nthat agree", "all\nmatches", "agree\nminus all"
    drawn: dict[str, Any] = {}
    for axes, (sort, own) in zip(panels, sorts.items(), strict=True):
        of = drawn[sort] = {"kinds": int(kinds[own].nunique()), "products": len(own)}
        of |= {f"recall, {name}": float(each[own].mean()) for name, each in recalls.items()}
        for place, (name, change) in enumerate(changes.items()):
            span = by_kinds(change[own], kinds)
            of[name] = figures.example(span.to_dict())
            of[f"{name}, products"] = figures.example(interval(change[own]).to_dict())
            ink = figures.RIGHT if place == 0 else "0.35"
            each = change[own].groupby(kinds[own]).mean()
            spread = np.linspace(-0.16, 0.16, len(each)) + place + 0.25
            axes.plot(each, spread, "o", ms=3.5, color=ink, alpha=0.35, mew=0)
            axes.plot([span["low"], span["high"]], [place] * 2, lw=2.5, color=ink)
            axes.plot(span["mean"], place, "o", ms=8, color=ink)
            said = f"{span['mean'].round(1) + 0.0:+.1f}".replace("-", "−")
            ground = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.6}
            axes.annotate(said, (span["mean"], place), (0, 8), textcoords="offset points",
                          ha="center", fontsize=9, bbox=ground)  # fmt: skip
        axes.axvline(0, color="0.3", lw=1)
        axes.grid(False, axis="y")
        before_after = f"{of['recall, cosine']:.0f} → {of['recall, agree']:.0f} %"
        axes.set_title(
            f"{sort}: {before_after}\n(among ten: {of['recall, among ten']:.0f} %)",
            loc="left", fontweight="bold", fontsize=10,
        )  # fmt: skip
        axes.set_xlabel("points of Recall@1")
    panels[0].set(ylim=(2.7, -0.6), yticks=range(3))
    panels[0].set_yticklabels(says)
    return fig, drawn


# Other second looks


def expanded(q: Tensor, g: Tensor, n: int = 10, alpha: float = 3.0) -> Tensor:
    """Scores by the query and what it found: unit (Q, d), (G, d) -> (Q, G)."""
    s, near = (q @ g.T).topk(n, dim=1)
    return F.normalize(q + (s.clamp(min=0)[:, :, None] ** alpha * g[near]).sum(dim=1)) @ g.T


def reciprocal(q: Tensor, g: Tensor, k: int = 20, k2: int = 6, keep: float = 0.3) -> Tensor:
    """Scores by neighbors both ways, of each query's first 50: unit (Q, d), (G, d) -> (Q, G)."""
    s, own = q @ g.T, g @ g.T

    def both_ways(s: Tensor, k: int) -> Tensor:
        return ((s >= s.topk(k).values[:, -1:]) & (s >= own.topk(k).values[:, -1])).float()

    def listed(s: Tensor) -> Tensor:  # (N, G): weights of what is near, and of their near ones
        near, half = both_ways(s, k), both_ways(own, k // 2)
        alike = torch.sparse.mm(near.to_sparse(), half.T) >= 2 / 3 * half.sum(dim=1)
        near = near + torch.sparse.mm((near * alike).to_sparse(), half)
        return F.normalize((near > 0) * (2 * s - 2).exp(), p=1, dim=1)

    v, w = listed(s), listed(own)
    v = (v + w[s.topk(k2 - 1).indices].sum(dim=1)) / k2  # each list, smoothed by the nearest ones'
    w = w[own.topk(k2).indices].mean(dim=1)
    first = s.topk(50).indices
    overlap = torch.stack(
        [torch.minimum(v[i], w[row]).sum(dim=1) for i, row in enumerate(first)]
    )  # of weights that add up to 1
    jaccard = overlap / (2 - overlap)
    return (1 - keep) * torch.zeros_like(s).scatter(1, first, jaccard) + keep * s


ARMS = ("map, 14 × 14", "map, 28 × 28", "XFeat")
SIZES = {"query expansion": (1, 2, 3, 5, 10, 20), "k-reciprocal": (5, 10, 20)}


class Measured(NamedTuple):
    """Recall@1 and mAP of each way by product, what was chosen, and milliseconds a query."""

    recalls: dict[str, pd.Series]
    precisions: dict[str, pd.Series]
    chosen: dict[str, list[Any]]
    costs: dict[str, float]
    ceiling: pd.Series
    ten: dict[str, pd.Series]


def measure(counted: Counted, kept: Kept) -> Measured:
    """Each way on the known queries, one setting for all products, chosen by the other groups."""
    table = pd.read_csv(ROOT / "data" / "evidence" / "30_matches.csv")
    known = ~counted.new
    queries, right, product = counted.queries[known], counted.right[known], counted.product[known]
    assert (table["query"] == queries).all(), "other queries"
    labels = torch.from_numpy(counted.images.labels)[torch.from_numpy(counted.gallery)]
    q, g = counted.x[torch.from_numpy(queries)], counted.x[torch.from_numpy(counted.gallery)]
    relevant = labels == torch.from_numpy(product)[:, None]
    at = np.arange(len(queries))

    def mean(values: NDArray[Any]) -> pd.Series:
        return 100 * pd.Series(values * 1.0).groupby(product).mean()

    def in_order(scores: Tensor) -> NDArray[Any]:
        return relevant.gather(1, scores.sort(dim=1, descending=True, stable=True)[1]).numpy()

    def precision(rights: NDArray[Any]) -> NDArray[Any]:
        share = rights.cumsum(axis=1) / np.arange(1, rights.shape[1] + 1)
        return np.asarray((share * rights).sum(axis=1) / rights.sum(axis=1))

    def others_choose(hits: NDArray[Any]) -> NDArray[np.intp]:
        recalls = pd.DataFrame(hits.T * 1.0).groupby(product).mean()
        setting = np.zeros(len(product), int)
        for group in grocery.FOLDS:
            best = (
                recalls.loc[np.setdiff1d(recalls.index, group)].mean().round(9).to_numpy().argmax()
            )
            setting[np.isin(product, group)] = best
        return setting

    by_cosine = in_order(q @ g.T)
    assert (by_cosine[:, :10] == right).all(), "the table has other first results"
    found = Measured({"cosine": mean(right[:, 0])}, {"cosine": mean(precision(by_cosine))}, {}, {},
                     mean(np.asarray(right.any(axis=1))), {})  # fmt: skip

    def reordered(scores: NDArray[Any]) -> NDArray[Any]:
        anew = np.take_along_axis(right, np.argsort(-scores, axis=1, kind="stable"), axis=1)
        return np.hstack([anew, by_cosine[:, 10:]])

    found.precisions["most"] = mean(precision(reordered(right * 1.0)))
    rules = [rerank.Rule(*pair) for pair in itertools.product(rerank.WEIGHTS, rerank.TRUSTS)]
    for way, (net, pair) in zip(ARMS, kept.costs, strict=True):
        counts = np.array([[int(one) for one in row.split()] for row in table[way]])
        tried = np.array([rule.scores(counted.cosines[known], counts) for rule in rules])
        setting = others_choose(right[at, tried.argmax(axis=2)])
        rights = reordered(tried[setting, at])
        found.recalls[way], found.precisions[way] = mean(rights[:, 0]), mean(precision(rights))
        found.chosen[way] = [list(rules[i]) for i in pd.unique(setting)]
        found.costs[way] = net + 10 * pair  # the gallery's points are there
    ways: dict[str, Callable[[Tensor, Tensor, int], Tensor]]
    ways = {"query expansion": expanded, "k-reciprocal": reciprocal}
    for way, of_all in ways.items():
        start = time.process_time()
        each = [in_order(of_all(q, g, size)) for size in SIZES[way]]
        found.costs[way] = 1000 * (time.process_time() - start) / len(q) / len(each)
        setting = others_choose(np.array([rights[:, 0] for rights in each]))
        rights = np.array(each)[setting, at]
        found.recalls[way], found.precisions[way] = mean(rights[:, 0]), mean(precision(rights))
        found.chosen[way] = [SIZES[way][i] for i in pd.unique(setting)]
        if way == "query expansion":
            by_ten = each[SIZES[way].index(10)]
            found.ten.update({"Recall@1": mean(by_ten[:, 0]), "mAP": mean(precision(by_ten))})
    return found


def methods(
    found: Measured, sorts: Mapping[str, NDArray[Any]], kinds: pd.Series
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 and mAP of each way over the cosine, both of the same run."""
    ways = list(found.costs)
    fig, panels = plt.subplots(2, 2, figsize=(6.5, 5.4), sharey=True, sharex="row")
    drawn: dict[str, Any] = {kind: {} for kind in sorts}
    measures = {"Recall@1": found.recalls, "mAP": found.precisions}
    for row, (of, each) in zip(panels, measures.items(), strict=True):
        for axes, (sort, own) in zip(row, sorts.items(), strict=True):
            for place, name in enumerate(ways):
                change = (each[name] - each["cosine"])[own]
                key = name if of == "Recall@1" else f"{name}, mAP"
                spans = {", kinds": by_kinds(change, kinds), "": interval(change)}
                for (suffix, span), width, alpha in zip(
                    spans.items(), (6, 1.8), (0.3, 1), strict=True
                ):
                    drawn[sort][key + suffix] = figures.example(span.to_dict())
                    axes.plot([span["low"], span["high"]], [place] * 2, lw=width, alpha=alpha,
                              color=figures.RIGHT, solid_capstyle="butt")  # fmt: skip
                axes.plot(change.mean(), place, "o", color=figures.RIGHT)
            axes.axvline(0, color="0.3", lw=1)
            axes.set(xlabel=f"points of {of}", ylim=(len(ways) - 0.5, -0.6))
            axes.grid(False, axis="y")
            axes.set_title(sort, loc="left", fontweight="bold")
            name = "recall" if of == "Recall@1" else "mAP"
            shown = each if of == "Recall@1" else {k: each[k] for k in ("cosine", "most")}
            drawn[sort] |= {
                f"{name}, {way}": figures.example(float(value[own].mean()))
                for way, value in shown.items()
            }
            ten = interval((found.ten[of] - each["cosine"])[own]).to_dict()
            drawn[sort]["expansion by ten" + ", mAP" * (of == "mAP")] = figures.example(ten)
    for sort, own in sorts.items():
        drawn[sort]["ceiling"] = float(found.ceiling[own].mean())
    names = [f"{way}\n{max(1, round(found.costs[way]))} ms a query" for way in ways]
    panels[0, 0].set_yticks(range(len(ways)), names)
    drawn["ms"], drawn["chosen"] = figures.timing(found.costs), figures.example(found.chosen)
    return fig, drawn
