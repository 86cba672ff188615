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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from dmlkit import ROOT, data, figures, rerank
from dmlkit.data import grocery
from dmlkit.lessons import thumbnails
from dmlkit.lessons.kinds import by_kinds, intervals
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


def orders(two: Mapping[str, Mapping[str, NDArray[Any]]], columns: int = 4) -> Figure:
    """The first results of two queries, by cosine and after a second look, with their matches."""
    rows, frames = [], []
    for each in two.values():
        for weight in (0.0, 0.005):
            scores = rerank.Rule(weight, 0).scores(each["cosines"], each["counts"])
            order = np.argsort(-scores, kind="stable")[:columns]
            rows.append(np.array(thumbnails.read(each["first"][order].tolist())))
            frames.append((each["right"][order], each["counts"][order], order + 1))
    shown = torch.from_numpy(np.array(rows)).permute(0, 1, 4, 2, 3)
    names = [f"{name},\n{said}" for name in two for said in ("by cosine", "β = 0.005")]
    fig, axes = figures.contact_sheet(shown, names, [f"{k}" for k in range(1, columns + 1)])
    fig.set_size_inches(4.4, 3.9)
    height, width = shown.shape[-2:]
    for y, (right, counts, places) in zip(axes.get_yticks(), frames, strict=True):
        for x, hit, count, place in zip(axes.get_xticks(), right, counts, places, strict=True):
            ink = figures.RIGHT if hit else figures.WRONG
            left, top = x - width / 2 + 1.5, y - height / 2 + 1.5
            axes.add_patch(Rectangle((left, top), width - 4, height - 4, ec=ink, fill=False,
                                     lw=2.5, ls="-" if hit else (0, (2, 1.2))))  # fmt: skip
            said = f"{count}" if place <= columns else f"{count}, was {place}th"
            axes.text(left + 4, top + height - 9, said, color="white", fontsize=9,
                      va="bottom", bbox={"fc": ink, "ec": "none", "pad": 1.5})  # fmt: skip
    return fig


# The counts and the answer


def curves(counted: Counted, carton: NDArray[np.bool_]) -> tuple[Figure, dict[str, Any]]:
    """How many of the right and of the wrong results have so many matches that agree, or more."""
    fig, panels = plt.subplots(1, 2, figsize=(6.8, 2.8), sharex=True, sharey=True)
    drawn: dict[str, Any] = {"gallery": len(counted.gallery), "queries": int((~counted.new).sum())}
    sorts = {"cartons": carton & ~counted.new, "fruit, vegetables": ~carton & ~counted.new}
    titles = "cartons: right ones match more", "fruit, vegetables: equal medians"
    styles = {"right": (True, figures.RIGHT, "-"), "wrong": (False, figures.WRONG, "--")}
    for axes, (kind, rows), title in zip(panels, sorts.items(), titles, strict=True):
        m, hit, own = counted.agree[rows], counted.right[rows], {}
        for name, (state, ink, line) in styles.items():
            some = m[hit == state]
            own[name] = float(np.median(some))
            share = [100 * float((some >= k).mean()) for k in range(151)]
            axes.plot(share, color=ink, ls=line, lw=2)
            axes.plot(own[name], 50, "o", color=ink, ms=6)
        drawn[f"matches, {kind}"] = figures.example(own)
        axes.set(xlabel="matches that agree, or more", xlim=(0, 150), ylim=(0, 103))
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
    panels[0].set_ylabel("results (%)")
    panels[0].text(77, 46, "right", color=figures.RIGHT, fontsize=10, fontweight="bold")
    panels[0].text(30, 19, "wrong", color=figures.WRONG, fontsize=10, fontweight="bold")
    panels[1].text(28, 46, "right and wrong", color="0.3", fontsize=10, fontweight="bold")
    return fig, drawn


def weighted(
    swept: Mapping[str, Mapping[float, float]], ceiling: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 of two sorts of products by the weight of a match, {sort: {weight: %}}."""
    fig, axes = plt.subplots(figsize=(6.2, 2.9))
    drawn: dict[str, Any] = {}
    for (sort, each), ink, mark in zip(
        swept.items(), (figures.RIGHT, figures.WRONG), ("o-", "s--"), strict=True
    ):
        weights = [1000 * weight for weight in each]
        axes.plot(weights, list(each.values()), mark, color=ink, lw=2, ms=6)
        up = 2.5 if ink == figures.WRONG else -2.5  # the curves cross at the end
        there = float(np.interp(6, weights, list(each.values())))
        axes.text(6, there + up, sort, color=ink, va="center", fontsize=9.5)
        drawn[sort] = figures.example(
            {f"{1000 * weight:g}": value for weight, value in each.items()}
            | {"among ten": ceiling[sort]}
        )
    both = float(np.mean(list(ceiling.values())))
    axes.axhline(both, color="0.55", ls=":", lw=1.4)
    axes.text(20.7, both, "one of ten\nis right", va="center", fontsize=9, color="0.35")
    axes.set_xticks([0, 1, 2, 5, 10, 20])
    axes.set(xlim=(-0.5, 20.5), ylim=(45, 95), xlabel="weight β of a match (thousandths)",
             ylabel="Recall@1 (%)")  # fmt: skip
    return fig, drawn


def among_twenty(images: data.ImageSet) -> dict[str, dict[str, pd.Series]]:
    """Recall@1 of cartons in the galleries of their own folds, by two embeddings: of new queries,
    before and after a second look, whose rule the known queries of the other folds chose."""
    found: dict[str, dict[str, pd.Series]] = {}
    rules = [rerank.Rule(*e) for e in itertools.product(rerank.WEIGHTS[1:], rerank.TRUSTS)]
    for name, table in pd.read_csv(TUNED).groupby("embedding", sort=False):
        first, cosines, agree = (
            np.array([[float(one) for one in row.split()] for row in table[column]])
            for column in ("first", "cosines", "agree")
        )
        product, new = images.labels[table["query"].to_numpy()], table["new"].to_numpy() > 0
        right = images.labels[first.astype(int)] == product[:, None]

        def recall(
            hits: NDArray[Any], rows: NDArray[np.bool_], product: NDArray[Any] = product
        ) -> pd.Series:
            return 100 * pd.Series(hits[rows] * 1.0).groupby(product[rows]).mean()

        place = np.arange(len(right))
        hits = np.array([right[place, rule.scores(cosines, agree).argmax(1)] for rule in rules])
        known = pd.DataFrame([recall(each, ~new) for each in hits])
        after, own = np.zeros(len(product), bool), np.unique(product)
        for group in grocery.FOLDS:
            best = int(known[np.setdiff1d(own, group)].mean(axis=1).round(9).to_numpy().argmax())
            rows = np.isin(product, group)
            after[rows] = hits[best, rows]
        found[str(name)] = {"cosine": recall(right[:, 0], new), "agree": recall(after, new),
                            "among ten": recall(right.any(axis=1), new)}  # fmt: skip
    return found


def answer(
    recalls: Mapping[str, pd.Series], twenty: Mapping[str, Mapping[str, pd.Series]],
    sorts: Mapping[str, NDArray[Any]], kinds: pd.Series,
) -> tuple[Figure, dict[str, Any]]:  # fmt: skip
    """Recall@1 of the kinds of cartons, and what a second look adds to the cosine's."""
    fig, (above, below) = plt.subplots(
        2, 1, figsize=(6.5, 6.6), height_ratios=(5, 4), layout="constrained"
    )
    before, agree, every = (recalls[name] for name in ("cosine", "agree", "all"))
    changes = {"agree": agree - before, "all": every - before, "agree minus all": agree - every,
               "fixed": recalls["fixed"] - before}  # fmt: skip
    drawn: dict[str, Any] = {}
    for sort, own in sorts.items():
        of = drawn[sort] = {"kinds": int(kinds[own].nunique()), "products": len(own)}
        of |= {f"recall, {name}": float(each[own].mean()) for name, each in recalls.items()}
        of |= {name: intervals(change[own], kinds) for name, change in changes.items()}
    for name, each in twenty.items():
        means = {f"recall, {way}": float(values.mean()) for way, values in each.items()}
        drawn[f"among 20, {name}"] = means | {
            "agree": intervals(each["agree"] - each["cosine"], kinds)
        }
    own = sorts["cartons"]
    ways = {way: recalls[way][own] for way in ("cosine", "agree", "among ten")}
    drawn["cartons by kind"] = _by_kind(above, pd.DataFrame(ways), kinds[own])
    rows = {
        "matches that agree\n− cosine": drawn["cartons"]["agree"],
        "matches that agree\n− all matches": drawn["cartons"]["agree minus all"],
        "among 20 products:\nagree − cosine": drawn["among 20, untouched"]["agree"],
        "among 20, fine-tuned:\nagree − cosine": drawn["among 20, fine-tuned"]["agree"],
    }
    named = {label: kept["example"]["wider"] for label, kept in rows.items()}
    figures.spans(below, named, "points of Recall@1 (cartons)")
    return fig, drawn


def _by_kind(axes: Axes, levels: pd.DataFrame, kinds: pd.Series) -> dict[str, Any]:
    """Recall@1 (%) before and after a second look, and its ceiling: of all cartons, then of each
    kind, those that gain most first."""
    by_kind = levels.groupby(kinds).mean()
    by_kind["n"] = kinds.value_counts()
    by_kind = by_kind.iloc[np.argsort(by_kind["cosine"] - by_kind["agree"], kind="stable")]
    every = pd.DataFrame({"all cartons": levels.mean()}).T.assign(n=len(levels))
    rows = pd.concat([every, by_kind])
    for place, (kind, row) in enumerate(rows.iterrows()):
        ink = figures.RIGHT if kind == "all cartons" else "0.35"
        axes.plot([row["cosine"], row["agree"]], [place] * 2, color=ink, lw=2, alpha=0.6)
        axes.plot(row["cosine"], place, "o", color=ink, mfc="white", ms=7, mew=1.6)
        axes.plot(row["agree"], place, "o", color=ink, ms=7)
        axes.plot(row["among ten"], place, "|", color="0.6", ms=10, mew=2)
    for column, said, side in (
        ("cosine", "cosine", "right"), ("agree", "second look", "left"),
        ("among ten", "ceiling", "center"),
    ):  # fmt: skip
        axes.annotate(said, (rows[column].iloc[0], 0), (0, 9), textcoords="offset points",
                      ha=side, color="0.3", fontsize=9)  # fmt: skip
    names = [f"{str(kind).replace('-', ' ').lower()} ({row['n']:.0f})"
             for kind, row in rows.iterrows()]  # fmt: skip
    axes.set_yticks(range(len(rows)), names, fontsize=9.5)
    axes.get_yticklabels()[0].set_fontweight("bold")
    axes.set(xlim=(0, 104), ylim=(len(rows) - 0.5, -0.9), xlabel="Recall@1 (%)")
    axes.grid(False, axis="y")
    return figures.example({str(kind): row.to_dict() for kind, row in by_kind.iterrows()})


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


class Known(NamedTuple):
    """The known queries: which of the gallery is right for each, in the order of any scores."""

    product: NDArray[np.int64]  # (Q,)
    right: NDArray[np.bool_]  # (Q, 10), by cosine
    relevant: Tensor  # (Q, G)

    def mean(self, values: NDArray[Any]) -> pd.Series:
        """Of each product, in percent: (Q,) -> (81,)."""
        return 100 * pd.Series(values * 1.0).groupby(self.product).mean()

    def in_order(self, scores: Tensor) -> NDArray[Any]:
        """Is the first, the second, ... right? (Q, G) -> (Q, G)."""
        order = scores.sort(dim=1, descending=True, stable=True)[1]
        return self.relevant.gather(1, order).numpy()

    def scored(self, rights: NDArray[Any]) -> tuple[pd.Series, pd.Series]:
        """Recall@1 and mAP of each product: (Q, G)."""
        share = rights.cumsum(axis=1) / np.arange(1, rights.shape[1] + 1)
        precision = np.asarray((share * rights).sum(axis=1) / rights.sum(axis=1))
        return self.mean(rights[:, 0]), self.mean(precision)

    def chosen(self, hits: NDArray[Any]) -> NDArray[np.intp]:
        """The best setting of the other groups' products, for each query: (settings, Q) -> (Q,)."""
        recalls = pd.DataFrame(hits.T * 1.0).groupby(self.product).mean()
        setting = np.zeros(len(self.product), int)
        for group in grocery.FOLDS:
            others = recalls.loc[np.setdiff1d(recalls.index, group)].mean().round(9)
            setting[np.isin(self.product, group)] = others.to_numpy().argmax()
        return setting


def measure(counted: Counted, kept: Kept) -> Measured:
    """Each way on the known queries, one setting for all products, chosen by the other groups."""
    own = ~counted.new
    labels = torch.from_numpy(counted.images.labels)[torch.from_numpy(counted.gallery)]
    q, g = counted.x[torch.from_numpy(counted.queries[own])], counted.x[counted.gallery]
    relevant = labels == torch.from_numpy(counted.product[own])[:, None]
    known = Known(counted.product[own], counted.right[own], relevant)
    by_cosine = known.in_order(q @ g.T)
    assert (by_cosine[:, :10] == known.right).all(), "the table has other first results"
    found = Measured({}, {}, {}, {}, known.mean(np.asarray(known.right.any(axis=1))), {})
    found.recalls["cosine"], found.precisions["cosine"] = known.scored(by_cosine)
    best = np.hstack(
        [np.sort(known.right)[:, ::-1], by_cosine[:, 10:]]
    )  # the right ones of ten first
    found.precisions["most"] = known.scored(best)[1]
    _by_matches(found, known, counted, kept, by_cosine[:, 10:])
    _by_neighbors(found, known, q, g)
    return found


def _by_matches(
    found: Measured, known: Known, counted: Counted, kept: Kept, rest: NDArray[Any]
) -> None:
    """Add the ways that reorder the first ten; the ``rest`` stays (Q, G - 10)."""
    table = pd.read_csv(ROOT / "data" / "evidence" / "30_matches.csv")
    own, at = ~counted.new, np.arange(len(known.product))
    assert (table["query"] == counted.queries[own]).all(), "other queries"
    rules = [rerank.Rule(*pair) for pair in itertools.product(rerank.WEIGHTS, rerank.TRUSTS)]
    for way, (net, pair) in zip(ARMS, kept.costs, strict=True):
        counts = np.array([[int(one) for one in row.split()] for row in table[way]])
        tried = np.array([rule.scores(counted.cosines[own], counts) for rule in rules])
        setting = known.chosen(known.right[at, tried.argmax(axis=2)])
        order = np.argsort(-tried[setting, at], axis=1, kind="stable")
        rights = np.hstack([np.take_along_axis(known.right, order, axis=1), rest])
        found.recalls[way], found.precisions[way] = known.scored(rights)
        found.chosen[way] = [list(rules[i]) for i in pd.unique(setting)]
        found.costs[way] = net + 10 * pair  # the gallery's points are there


def _by_neighbors(found: Measured, known: Known, q: Tensor, g: Tensor) -> None:
    """Add the ways that order the whole gallery anew, by what was found."""
    ways: dict[str, Callable[[Tensor, Tensor, int], Tensor]]
    ways = {"query expansion": expanded, "k-reciprocal": reciprocal}
    for way, of_all in ways.items():
        start = time.process_time()
        each = [known.in_order(of_all(q, g, size)) for size in SIZES[way]]
        found.costs[way] = 1000 * (time.process_time() - start) / len(q) / len(each)
        setting = known.chosen(np.array([rights[:, 0] for rights in each]))
        rights = np.array(each)[setting, np.arange(len(q))]
        found.recalls[way], found.precisions[way] = known.scored(rights)
        found.chosen[way] = [SIZES[way][i] for i in pd.unique(setting)]
        if way == "query expansion":
            ten = known.scored(each[SIZES[way].index(10)])
            found.ten.update(zip(("Recall@1", "mAP"), ten, strict=True))


def methods(
    found: Measured, sorts: Mapping[str, NDArray[Any]], kinds: pd.Series
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 and mAP of each way over the cosine, both of the same run."""
    ways = list(found.costs)
    fig, panels = plt.subplots(2, 2, figsize=(6.5, 5.4), sharey=True, sharex=True)
    drawn: dict[str, Any] = {kind: {} for kind in sorts}
    measures = {"Recall@1": found.recalls, "mAP": found.precisions}
    for row, (of, each) in zip(panels, measures.items(), strict=True):
        for axes, (sort, own) in zip(row, sorts.items(), strict=True):
            for place, name in enumerate(ways):
                change = (each[name] - each["cosine"])[own]
                key = name if of == "Recall@1" else f"{name}, mAP"
                both = {", kinds": interval(by_kinds(change, kinds)), "": interval(change)}
                for (suffix, span), width, alpha in zip(
                    both.items(), (6, 1.8), (0.3, 1), strict=True
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
        change = (found.recalls["XFeat"] - found.recalls["map, 28 × 28"])[own]
        drawn[sort]["XFeat minus map"] = intervals(change, kinds)
    names = [f"{way}\n{max(1, round(found.costs[way]))} ms a query" for way in ways]
    panels[0, 0].set_yticks(range(len(ways)), names)
    drawn["ms"], drawn["chosen"] = figures.timing(found.costs), figures.example(found.chosen)
    return fig, drawn
