"""What lesson 28 draws, and the parts of its run that teach nothing."""

import itertools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from dmlkit import ROOT, data, figures
from dmlkit.statistics import interval

#: Photographs as features (N, d), their labels (N,), and the captions of the classes.
Known = tuple[Tensor, NDArray[np.int64], list[str]]
#: Photographs (N, d) and captions in one space: (N, k) and (M, k), of length 1.
Search = Callable[[Tensor, list[str]], tuple[Tensor, Tensor]]
#: Words and captions as numbers.
Bag = Callable[[list[str], list[str]], Tensor]


class Fold(NamedTuple):
    """Products that train, new ones of the second visit, and new ones of the first."""

    known: Known
    new: Known
    first: tuple[Tensor, NDArray[np.int64]]


def captions() -> pd.Series:
    """The caption of each product, by its name."""
    file = ROOT / "data" / "captions.csv"
    return pd.read_csv(file, comment="#", index_col="class")["caption"]


def load(where: str) -> tuple[dict[str, list[Fold]], list[str]]:
    """The four folds with raw and with whitened features, and the kind of each new product."""
    text, kinds = captions(), list[str]()
    raw, white = list[Fold](), list[Fold]()
    for k in range(4):
        train = data.load("grocery", "train", fold=k, features="tf_efficientnet_lite0@224")
        test = data.load("grocery", "test", fold=k, features="tf_efficientnet_lite0@224")
        assert isinstance(train.images, Tensor), "features fit into memory"
        assert isinstance(test.images, Tensor), "features fit into memory"
        assert test.queries is not None, "the second visit is marked"
        x, z = (F.normalize(each.flatten(1)).to(where) for each in (train.images, test.images))
        y, own = train.labels.copy(), test.labels.copy()
        asked = torch.from_numpy(test.queries.copy()).to(where)
        told, new = ([text[name] for name in each.class_names] for each in (train, test))
        kinds += pd.Series(test.groups).groupby(own).first().tolist()
        for found, (a, b) in ((raw, (x, z)), (white, (whitened(x, y, x), whitened(x, y, z)))):
            found.append(
                Fold((a, y, told), (b[asked], own[test.queries], new),
                     (b[~asked], own[~test.queries]))
            )  # fmt: skip
    return {"raw": raw, "whitened": white}, kinds


def whitened(x: Tensor, y: NDArray[np.int64], z: Tensor, ridge: float = 0.1) -> Tensor:
    """Features z (M, d), after the rest within the classes of x (N, d) was made round."""
    own = torch.from_numpy(y).to(x.device)
    means = torch.stack([x[own == k].mean(dim=0) for k in range(int(own.max()) + 1)])  # (C, d)
    S = (x - means[own]).T.cov()  # (d, d)
    A = torch.linalg.cholesky(S + ridge * S.trace() / len(S) * torch.eye(len(S), device=x.device))
    return F.normalize(torch.linalg.solve_triangular(A, (z - x.mean(dim=0)).T, upper=False).T)


def vocabulary(known: Known) -> list[str]:
    """The words of all captions that train."""
    return sorted({word for each in known[2] for word in each.split()})


def part(known: Known, classes: NDArray[np.intp]) -> Known:
    """Some of the products that train only, counted anew."""
    x, y, told = known
    keep = np.isin(y, classes)
    anew = pd.Series(range(len(classes)), classes)[y[keep]].to_numpy(copy=True)
    return x[torch.from_numpy(keep).to(x.device)], anew, [told[c] for c in classes]


def look_up(known: Known, bag: Bag) -> Search:
    """Search with the photographs of the known product whose caption is most alike."""
    x, y, told = known
    words = vocabulary(known)
    means = torch.stack([x[torch.from_numpy(y == c).to(x.device)].mean(dim=0)
                         for c in range(len(told))])  # fmt: skip

    def search(photographs: Tensor, asked: list[str]) -> tuple[Tensor, Tensor]:
        s = bag(asked, words) @ bag(told, words).T  # (M, C)
        near = s > s.max(dim=1, keepdim=True).values - 1e-6  # the nearest; of equals, all
        return photographs, F.normalize(near.float() @ means)

    return search


def one_photograph(fold: Fold, seed: int) -> tuple[Tensor, Tensor]:
    """New photographs, and for each new product one of the first visit to search with."""
    x, y = fold.first
    rows = np.random.default_rng(seed).permutation(len(y))
    each = pd.Series(rows).groupby(y[rows]).first().tolist()
    return fold.new[0], x[each]


def by_kinds(minus: NDArray[np.float64], kinds: Sequence[str]) -> pd.Series:
    """The 95 % interval of the same mean, if kinds of product were drawn anew."""
    sums = pd.Series(minus - minus.mean()).groupby(list(kinds)).sum()
    return interval(minus.mean() + sums * len(sums) / len(minus))


# Pictures


def captioned() -> tuple[Figure, dict[str, int], data.ImageSet]:
    """Four products that train, and what is told of each."""
    text, pictures = captions(), data.load("grocery64", "train", fold=0)
    assert isinstance(pictures.images, Tensor), "small photographs fit into memory"
    chosen = ("Banana", "Leek", "Arla-Standard-Milk", "God-Morgon-Red-Grapefruit-Juice")
    some = [pictures.class_names.index(name) for name in chosen]
    rows = np.stack([np.flatnonzero(pictures.labels == c)[[0, 9, 27]] for c in some])
    told = [text[name].split() for name in chosen]
    often = pd.Series(" ".join(map(" ".join, told)).split()).value_counts().drop(["and", "of"])
    said = [[rf"$\bf{{{word}}}$" if often.get(word, 0) > 1 else word for word in each]
            for each in told]  # fmt: skip
    fig, axes = figures.contact_sheet(pictures.images[torch.from_numpy(rows)], ["x" * 24] * 4)
    fig.set_size_inches(3.7, 3.1)
    axes.set_yticks(axes.get_yticks(), [f"{' '.join(e[:4])}\n{' '.join(e[4:])}" for e in said])
    words = {word for each in text for word in each.split()}
    return fig, {"captions": len(text), "words": len(words)}, pictures


def read_words(
    scores: Tensor, words: list[str], new: list[str], photographs: Tensor, shown: Sequence[int]
) -> Figure:
    """New photographs, and the words that ridge regression reads off each of them."""
    fig, panels = plt.subplots(2, len(shown), figsize=(6.5, 3.2), height_ratios=(5, 4))
    top = 1.02 * float(scores[list(shown)].max())
    for (above, below), c in zip(panels.T, shown, strict=True):
        above.imshow(photographs[c].permute(1, 2, 0).numpy())
        above.set_axis_off()
        above.set_title("\n".join(textwrap.wrap(new[c], 17)), fontsize=8)
        best = scores[c].argsort(descending=True)[:5].tolist()
        inks = [figures.RIGHT if words[k] in new[c].split() else "0.7" for k in best]
        below.barh(range(5), scores[c][best].tolist(), color=inks, height=0.82)
        for place, k in enumerate(best):
            below.text(0.01, place, words[k], va="center", fontsize=8,
                       color="white" if inks[place] != "0.7" else "black")  # fmt: skip
        below.set(ylim=(4.6, -0.6), xlim=(0, top), yticks=[], xticks=[])
        below.grid(False)
        below.spines[:].set_visible(False)
    return fig


#: Three words for each query of the explorable.
SAID = {"carton": ("carton", "green", "milk"), "fruit": ("round", "red", "small")}


def weighed(
    z: Tensor, words: list[str], photographs: Tensor, new: list[str], columns: int = 6
) -> tuple[Figure, dict[str, Any]]:
    """The first new products by one, two and three words, with their captions."""
    drawn: dict[str, Any] = {"captions": new}
    for name, three in SAID.items():
        parts = z[:, [words.index(word) for word in three]].double().numpy().round(4)
        drawn[name] = {"words": list(three), "parts": figures.example(parts.tolist())}
    cosines = z[:, [words.index(word) for word in SAID["carton"]]].double().numpy().round(4)
    steps = {"carton": (1, 0, 0), "+ green": (1, 1, 0), "+ milk": (1, 1, 1)}
    fig, panels = plt.subplots(3, columns, figsize=(6.5, 4.9))
    for row, (said, weights) in zip(panels, steps.items(), strict=True):
        order = np.argsort(-cosines @ weights, kind="stable")
        row[0].text(-0.12, 0.5, said, transform=row[0].transAxes, ha="right", va="center")
        for k, axes in enumerate(row):
            axes.imshow(photographs[order[k]].permute(1, 2, 0).numpy())
            axes.set_axis_off()
            text = "\n".join(textwrap.wrap(new[order[k]], 17))
            axes.text(0.5, -0.05, text, transform=axes.transAxes, ha="center", va="top", fontsize=7)
    for k, axes in enumerate(panels[0], 1):
        axes.set_title(f"{k}", fontsize=9)
    return fig, drawn


def searched(
    first: Tensor, y: NDArray[np.int64], photographs: Tensor, ask: str,
    new: list[str], share: NDArray[np.float64], typical: list[int],
) -> Figure:  # fmt: skip
    """Rows of ten found photographs: of own words, and of the captions of some new products."""
    rows = first[[0, *(c + 1 for c in typical)]]
    fig, axes = figures.contact_sheet(photographs[rows], ["x" * 20] * len(rows),
                                      [f"{k}" for k in range(1, 11)])  # fmt: skip
    side = np.diff(axes.get_xticks())[0]
    said = [f"you: {ask}"]
    for row, c in enumerate(typical, 1):
        told = new[c].split()
        said.append(f"{' '.join(told[:3])}\n{' '.join(told[3:])}\n{share[c]:.0f} %")
        for k in np.flatnonzero(y[rows[row].numpy()] == c):
            at = (side * k - 1, side * row - 1)
            axes.add_patch(Rectangle(at, 65, 65, ec=figures.RIGHT, fill=False, lw=2.5))
    axes.set_yticks(axes.get_yticks(), said, fontsize=8)
    return fig


def grown(
    swept: Mapping[int, list[float]], known: Mapping[str, list[float]], floor: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """What is found by the number of products with a caption."""
    fig, axes = plt.subplots(figsize=(5.2, 3.0))
    drawn = figures.sweep(axes, swept, floor, figures.RIGHT)
    for (name, values), mark in zip(known.items(), ("D--", "s:"), strict=True):
        axes.plot(range(len(values)), values, mark, color="0.35", ms=5, lw=1)
        axes.annotate(name, (len(values) - 1, values[-1]), (8, -3), textcoords="offset points",
                      color="0.25", fontsize=8)  # fmt: skip
    drawn["looked up"] = figures.example({name: list(each) for name, each in known.items()})
    axes.set(ylim=(0, 75), xlabel="products with a caption", ylabel="found by words (%)")
    return fig, drawn


ROWS = {
    ("ridge", "captions"): "ridge regression",
    ("contrastive", "captions"): "contrastive loss",
    ("looked up", "captions"): "look-up",
    ("ridge", "names"): "ridge, shop's names",
    ("contrastive", "names"): "loss, shop's names",
    ("looked up", "names"): "look-up, shop's names",
    ("photograph", "captions"): "one photograph",
    ("shuffled", "captions"): "shuffled captions",
}
MINUS = {
    "ridge minus looked up": ("ridge − look-up", "ridge", "looked up", "captions"),
    "ridge minus looked up, names": ("the same, shop's names", "ridge", "looked up", "names"),
    "contrastive minus ridge": ("loss − ridge", "contrastive", "ridge", "captions"),
    "contrastive minus ridge, names": ("the same, shop's names", "contrastive", "ridge", "names"),
    "ridge minus photograph": ("ridge − photograph", "ridge", "photograph", "captions"),
}


def answer(
    found: Mapping[tuple[str, str, str], NDArray[np.float64]],
    kinds: Sequence[str],
    folds: Sequence[Fold],
) -> tuple[Figure, dict[str, Any]]:
    """What each way finds, raw and whitened, and the differences that the rule asks for."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(7.2, 3.9))
    inks = {"raw": "0.55", "whitened": figures.RIGHT}
    chance = 100 * float(np.mean([1 / len(fold.new[2]) for fold in folds]))
    drawn: dict[str, Any] = {"chance": chance}
    for place, (way, said) in enumerate(ROWS):
        each = {of: found[of, way, said].mean(axis=0) for of in inks}
        key = way if said == "captions" else f"{way}, names"
        drawn[key] = {of: figures.example(interval(e).to_dict()) for of, e in each.items()}
        left.plot([e.mean() for e in each.values()], [place] * 2, "-", color="0.8", lw=2, zorder=1)
        for of, e in each.items():
            left.plot(e.mean(), place, "o", color=inks[of], ms=7)
        best = max(e.mean() for e in each.values())
        left.text(best + 3, place, f"{best:.0f} %", va="center", fontsize=9)
    left.axvline(chance, color="0.5", ls=":", lw=1.2)
    left.set_yticks(range(len(ROWS)), ROWS.values())
    left.set(ylim=(len(ROWS) - 0.5, -0.6), xlim=(0, 80), xlabel="found by words (%)")
    left.set_title("gray: raw, blue: whitened", fontsize=9.5, loc="left")
    for place, (key, (_, more, less, said)) in enumerate(MINUS.items()):
        drawn[key] = {}
        for of, shift in (("raw", -0.16), ("whitened", 0.16)):
            other = found[of, less, said].mean(axis=0)
            minus = found[of, more, said].mean(axis=0) - other
            both = {"kinds": by_kinds(minus, kinds), "products": interval(minus)}
            drawn[key][of] = figures.example({name: e.to_dict() for name, e in both.items()})
            span = both["kinds"]
            right.plot([span["low"], span["high"]], [place + shift] * 2, color=inks[of], lw=2.2)
            right.plot(span["mean"], place + shift, "o", color=inks[of], ms=6)
    right.axvline(0, color="0.3", lw=1)
    right.set_yticks(range(len(MINUS)), [e[0] for e in MINUS.values()])
    right.set(ylim=(len(MINUS) - 0.5, -0.6), xlabel="difference (points)")
    right.set_title("95 % intervals over 43 kinds", fontsize=9.5, loc="left")
    for axes in (left, right):
        axes.grid(False, axis="y")
    return fig, drawn


def chances(scores: Tensor, words: list[str], y: NDArray[np.int64], new: list[str]) -> list[float]:
    """Of each known word that some new captions have: how often a photograph of one of these gets
    more of it than another one (0 to 1; by chance 0.5)."""
    found = []
    for column, word in enumerate(words):
        has = np.array([word in each.split() for each in new])
        if has.any() and not has.all():
            s, own = scores[:, column].cpu().numpy(), has[y]
            more = s[own][:, None] - s[~own][None]
            found.append(float(((more > 0) + 0.5 * (more == 0)).mean()))
    return found


def fit(
    folds: Sequence[Fold], learn: Callable[[Known, float], Search], settings: Sequence[float]
) -> dict[str, Any]:
    """``chances`` of all words in all folds: how many, the median, and how many below 0.5."""
    found: list[float] = []
    for (known, (x, y, new), _), setting in zip(folds, settings, strict=True):
        found += chances(learn(known, setting)(x, new)[0], vocabulary(known), y, new)
    return figures.example({
        "asked": len(found), "median": float(np.median(found)),
        "below chance": float((np.array(found) < 0.5).mean()),
    })  # fmt: skip


def unknown(folds: Sequence[Fold]) -> float:
    """How many words of new captions no training caption has (%)."""
    missing = [word not in vocabulary(fold.known)
               for fold in folds for told in fold.new[2] for word in told.split()]  # fmt: skip
    return 100 * float(np.mean(missing))


def looked_up(
    folds: Mapping[str, Sequence[Fold]], bag: Bag,
    by_words: Callable[[Tensor, Tensor, NDArray[np.int64]], NDArray[np.float64]],
    sizes: Sequence[int], draws: int,
) -> dict[str, list[float]]:  # fmt: skip
    """What the look-up finds if so many products have a caption, and all."""
    found: dict[str, list[float]] = {}
    for features, parts in folds.items():
        for size in (*sizes, None):
            each = []
            for (known, (x, y, new), _), s in itertools.product(parts, range(draws)):
                some = np.random.default_rng(s).permutation(len(known[2]))[:size]
                each.append(by_words(*look_up(part(known, some), bag)(x, new), y))
            found.setdefault(f"look-up, {features}", []).append(float(np.concatenate(each).mean()))
    return found
