"""What lesson 28 draws, and the parts of its run that teach nothing."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
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
from torch import Tensor

from dmlkit import ROOT, data, figures
from dmlkit.lessons import thumbnails
from dmlkit.lessons.kinds import intervals

#: Photographs as features (N, d), their labels (N,), and the captions of the classes.
Known = tuple[Tensor, NDArray[np.int64], list[str]]
#: Photographs (N, d) and captions in one space: (N, k) and (M, k), of length 1.
Search = Callable[[Tensor, list[str]], tuple[Tensor, Tensor]]


#: Words that say nothing of a photograph.
STOP = frozenset({"a", "and", "in", "of", "on", "very", "with"})


class Fold(NamedTuple):
    """Products that train, new ones of the second visit, and new ones of the first."""

    known: Known
    new: Known
    first: tuple[Tensor, NDArray[np.int64]]


def captions() -> pd.Series:
    """The caption of each product, by its name."""
    file = ROOT / "data" / "captions.csv"
    return pd.read_csv(file, comment="#", index_col="class")["caption"]


def load(where: str) -> tuple[list[Fold], list[str]]:
    """The four folds with whitened features, and the kind of each new product."""
    text, kinds, folds = captions(), list[str](), list[Fold]()
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
        a, b = whitened(x, y, x), whitened(x, y, z)
        folds.append(
            Fold((a, y, told), (b[asked], own[test.queries], new),
                 (b[~asked], own[~test.queries]))
        )  # fmt: skip
    return folds, kinds


def named(known: Known) -> Known:
    """The same photographs with the shop's own names, such as "arla standard milk"."""
    names = {caption: name.lower().replace("-", " ") for name, caption in captions().items()}
    return known[0], known[1], [names[each] for each in known[2]]


def whitened(x: Tensor, y: NDArray[np.int64], z: Tensor, ridge: float = 0.1) -> Tensor:
    """Features z (M, d), after the rest within the classes of x (N, d) was made round."""
    own = torch.from_numpy(y).to(x.device)
    means = torch.stack([x[own == k].mean(dim=0) for k in range(int(own.max()) + 1)])  # (C, d)
    S = (x - means[own]).T.cov()  # (d, d)
    A = torch.linalg.cholesky(S + ridge * S.trace() / len(S) * torch.eye(len(S), device=x.device))
    return F.normalize(torch.linalg.solve_triangular(A, (z - x.mean(dim=0)).T, upper=False).T)


def said(caption: str) -> list[str]:
    """The words of a caption without stop words.

    >>> said("white and red carton of milk")
    ['white', 'red', 'carton', 'milk']
    """
    return [word for word in caption.split() if word not in STOP]


def vocabulary(known: Known) -> list[str]:
    """The words of all captions that train."""
    return sorted({word for each in known[2] for word in said(each)})


def typical(known: Known) -> Tensor:
    """The mean photograph of each product: (C, d)."""
    x, y, told = known
    rows = [x[torch.from_numpy(y == c).to(x.device)] for c in range(len(told))]
    return torch.stack([each.mean(dim=0) for each in rows])


def part(known: Known, classes: NDArray[np.intp]) -> Known:
    """Some of the products that train only, counted anew."""
    x, y, told = known
    keep = np.isin(y, classes)
    anew = pd.Series(range(len(classes)), classes)[y[keep]].to_numpy(copy=True)
    return x[torch.from_numpy(keep).to(x.device)], anew, [told[c] for c in classes]


def one_photograph(fold: Fold, seed: int) -> tuple[Tensor, Tensor]:
    """New photographs, and for each new product one of the first visit to search with."""
    x, y = fold.first
    rows = np.random.default_rng(seed).permutation(len(y))
    each = pd.Series(rows).groupby(y[rows]).first().tolist()
    return fold.new[0], x[each]


# Pictures


def captioned() -> tuple[Figure, dict[str, int], data.ImageSet]:
    """Four products that train, and what is told of each."""
    text, pictures = captions(), data.load("grocery64", "train", fold=0)
    assert isinstance(pictures.images, Tensor), "small photographs fit into memory"
    chosen = ("Banana", "Leek", "Arla-Standard-Milk", "God-Morgon-Red-Grapefruit-Juice")
    some = [pictures.class_names.index(name) for name in chosen]
    rows = np.stack([np.flatnonzero(pictures.labels == c)[[0, 9, 27]] for c in some])
    told = [text[name].split() for name in chosen]
    often = (
        pd.Series(" ".join(map(" ".join, told)).split())
        .value_counts()
        .drop(["and", "of"], errors="ignore")
    )
    shown = [[rf"$\bf{{{word}}}$" if often.get(word, 0) > 1 else word for word in each]
             for each in told]  # fmt: skip
    fig, axes = figures.contact_sheet(pictures.images[torch.from_numpy(rows)], ["x" * 24] * 4)
    fig.set_size_inches(3.7, 2.75)
    axes.set_yticks(axes.get_yticks(), [f"{' '.join(e[:4])}\n{' '.join(e[4:])}" for e in shown])
    words = {word for each in text for word in each.split()}
    return fig, {"captions": len(text), "words": len(words)}, pictures


def photographs() -> list[NDArray[np.uint8]]:
    """The first photograph of each new product of fold 0, as the second visit took it."""
    one, every = (data.load("grocery64", "test", fold=fold) for fold in (0, None))
    asks = np.asarray(every.queries)
    own = [every.class_names.index(name) for name in one.class_names]
    return thumbnails.read(int(np.flatnonzero(asks & (every.labels == c))[0]) for c in own)


def read_words(scores: Tensor, words: list[str], new: list[str], shown: Sequence[int]) -> Figure:
    """New photographs, and the words that ridge regression reads off each of them."""
    fig, panels = plt.subplots(len(shown), 2, figsize=(6.5, 1.2 * len(shown)), width_ratios=(1, 3))
    fig.subplots_adjust(hspace=0.3, wspace=0.5, left=0.27, right=0.98, top=0.99, bottom=0.09)
    top, pictures = 1.05 * float(scores[list(shown)].max()), photographs()
    for (left, right), c in zip(panels, shown, strict=True):
        left.imshow(pictures[c])
        left.set_axis_off()
        left.text(-0.08, 0.5, "\n".join(textwrap.wrap(new[c], 16)), transform=left.transAxes,
                  ha="right", va="center", fontsize=9.5)  # fmt: skip
        best = scores[c].argsort(descending=True)[:5].tolist()
        there = [words[k] in said(new[c]) for k in best]
        inks = [figures.RIGHT if each else "0.75" for each in there]
        right.barh(range(5), scores[c][best].tolist(), color=inks, height=0.7)
        right.set_yticks(range(5), [words[k] for k in best], fontsize=9)
        for label, each in zip(right.get_yticklabels(), there, strict=True):
            label.set_weight("bold" if each else "normal")
        right.set(ylim=(4.6, -0.6), xlim=(0, top), xticks=[0, 0.2, 0.4, 0.6])
        right.grid(False, axis="y")
        right.tick_params(axis="y", length=0)
        right.tick_params(axis="x", labelbottom=c == shown[-1])
    panels[-1, 1].set_xlabel("entry of the word (a photograph's have length 1)")
    return fig


#: Three words for each query of the explorable.
SAID = {"carton": ("carton", "blue", "green"), "fruit": ("round", "red", "small")}


def weighed(
    z: Tensor, words: list[str], new: list[str], columns: int = 4
) -> tuple[Figure, dict[str, Any]]:
    """The first new products by one and by two words, with their captions."""
    drawn: dict[str, Any] = {"captions": new}
    for name, three in SAID.items():
        parts = z[:, [words.index(word) for word in three]].double().numpy().round(4)
        drawn[name] = {"words": list(three), "parts": figures.example(parts.tolist())}
    cosines = z[:, [words.index(word) for word in SAID["carton"]]].double().numpy().round(4)
    steps = {"carton": (1, 0, 0), "carton\n+ blue": (1, 1, 0), "carton\n+ green": (1, 0, 1)}
    fig, panels = plt.subplots(3, columns, figsize=(5.6, 5.6))
    pictures = photographs()
    for row, (asked, weights) in zip(panels, steps.items(), strict=True):
        order = np.argsort(-cosines @ weights, kind="stable")
        row[0].text(-0.12, 0.5, asked, transform=row[0].transAxes, ha="right", va="center",
                    weight="bold")  # fmt: skip
        last = asked.split()[-1]
        for k, axes in enumerate(row):
            axes.imshow(pictures[order[k]])
            axes.set_axis_off()
            fits = all(word in said(new[order[k]]) for word in ("carton", last))
            text = "\n".join(textwrap.wrap(new[order[k]], 17))
            axes.text(0.5, -0.05, text, transform=axes.transAxes, ha="center", va="top",
                      fontsize=9, color=figures.RIGHT if fits else "0.35")  # fmt: skip
    for k, axes in enumerate(panels[0], 1):
        axes.set_title(f"{k}", fontsize=10)
    fig.subplots_adjust(hspace=0.45)
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
    names = [f"you: {ask}"]
    for row, c in enumerate(typical, 1):
        told = new[c].split()
        names.append(f"{' '.join(told[:3])}\n{' '.join(told[3:])}\n{share[c]:.0f} %")
        for k in np.flatnonzero(y[rows[row].numpy()] == c):
            at = (side * k + 2, side * row + 2)
            axes.add_patch(Rectangle(at, 59, 59, ec=figures.RIGHT, fill=False, lw=2.5))
    axes.set_yticks(axes.get_yticks(), names, fontsize=8)
    return fig


#: What is drawn of each way: its name, ink and mark.
LOOKS = {
    "ridge": ("ridge regression", figures.RIGHT, "o-"),
    "classified": ("classifier", "#b35c00", "D--"),
    "look-up": ("look-up", "0.35", "s:"),
}  # fmt: skip
#: R-precision (%) of each new product, by way and number of captioned products.
Found = Mapping[str, Any]


def minus(found: Found, more: str, less: str, n: int | str) -> NDArray[np.float64]:
    """The difference of two ways on each new product."""
    each: NDArray[np.float64] = np.subtract(found[more][str(n)], found[less][str(n)])
    return each


def first(leads: Mapping[str, Mapping[str, Any]]) -> int:
    """The number from which on all intervals of a lead lie above 0; 0 where none does."""
    enough = 0
    for n, each in reversed([*leads.items()]):
        if not each["example"]["wider"]["low"] > 0:
            break
        enough = int(n)
    return enough


def answer(kept: Found, mine: Found, kinds: Sequence[str]) -> tuple[Figure, dict[str, Any]]:
    """What each way finds by the number of captioned products, and ridge regression's leads."""
    fig, (top, low) = plt.subplots(
        2, 1, figsize=(6.5, 6.4), height_ratios=(5, 4), sharex=True, layout="constrained"
    )
    numbers = [*kept["ridge"]]
    drawn: dict[str, Any] = {way: {n: intervals(kept[way][n], kinds) for n in numbers}
                             for way in LOOKS}  # fmt: skip
    drawn |= {way: intervals(kept[way], kinds) for way in ("photograph", *NAMES)}
    heard = kept["known words"]
    drawn |= {"chance": kept["chance"], "known words": figures.example(heard)}
    drawn["unknown"] = 100 - heard[numbers[-1]]
    for less in ("look-up", "classified"):
        drawn[f"ridge minus {less}"] = {
            n: intervals(minus(kept, "ridge", less, n), kinds) for n in numbers
        }
    drawn |= beside(kept, kinds) | {"enough": first(drawn["ridge minus look-up"])}
    leads = [minus(kept, way, "look-up", numbers[-1]).mean() for way in ("classified", "ridge")]
    drawn["share"] = leads[0] / leads[1]
    for (way, (name, ink, mark)), shift in zip(LOOKS.items(), (1, 1.025, 0.975), strict=True):
        curve(top, drawn[way], ink, mark, name, " %", shift)
    for way in ("ridge", "look-up"):
        found = [np.mean(mine[way][n]) for n in mine[way]]
        top.plot([int(n) for n in mine[way]], found, "x", color="black", ms=5, mew=1.1, zorder=4)
    for said, level in (
        ("one photograph", np.mean(kept["photograph"])),
        ("chance", kept["chance"]),
    ):
        top.axhline(level, color="0.55", lw=1.2, ls="--", zorder=0)
        up = level > 30  # above its line, or below it
        top.text(2.8, level + (1 if up else -1), f"{said}, {level:.0f} %", color="0.3", fontsize=9,
                 va="bottom" if up else "top")  # fmt: skip
    top.set(ylim=(0, 75), ylabel="R-precision (%)")
    top.set_title("One photograph finds more than words", loc="left", fontweight="bold")
    low.axhline(0, color="0.3", lw=1)
    low.set_title("Ridge regression leads from 10 captions on", loc="left", fontweight="bold")
    for (way, (name, ink, mark)), shift in zip(list(LOOKS.items())[:0:-1], (1, 1.025), strict=True):
        ink, mark = (figures.RIGHT, "o-") if way == "look-up" else (ink, mark)
        curve(low, drawn[f"ridge minus {way}"], ink, mark, f"ridge −\n{name}", "", shift)
    low.set(xscale="log", xlim=(2.7, 64), ylabel="lead of ridge regression\n(points)",
            xlabel="captioned products; below: words of new captions that they have")  # fmt: skip
    low.set_xticks([int(n) for n in numbers], [f"{n}\n{heard[n]:.0f} %" for n in numbers])
    low.minorticks_off()
    return fig, drawn


def record(
    mine: Found, draws: Mapping[str, list[float]], settings: Mapping[tuple[Any, ...], Any]
) -> dict[str, Any]:
    """What a long run keeps: each product's mean over draws, each draw's mean, and settings."""
    found = {
        way: {n: np.round(v, 3).tolist() for n, v in each.items()}
        if isinstance(each, Mapping) else np.round(each, 3).tolist() for way, each in mine.items()
    }  # fmt: skip
    chosen = {f"{key}": f"{value}" for key, value in settings.items()}
    kept = {"found": found, "draws": dict(draws), "settings": chosen}
    return {name: figures.example(each) for name, each in kept.items()}


def beside(kept: Found, kinds: Sequence[str]) -> dict[str, Any]:
    """Differences with all captions that are not drawn."""
    last, before = [*kept["ridge"]][-1], [*kept["ridge"]][-2:][0]
    ridge, look_up = (np.array(kept[way][last]) for way in ("ridge", "look-up"))
    named, looked = (np.array(kept[way]) for way in NAMES[:2])
    found = {
        "photograph minus ridge": kept["photograph"] - ridge,
        "ridge minus look-up, names": named - looked,
        "ridge minus nearest": ridge - kept["nearest"],
        "classified minus look-up": kept["classified"][last] - look_up,
        "last minus before": ridge - kept["ridge"][before],
    }
    return {name: intervals(each, kinds) for name, each in found.items()}


def curve(
    axes: Axes, rows: Mapping[str, Mapping[str, Any]], ink: str, mark: str, name: str, unit: str,
    shift: float,
) -> None:  # fmt: skip
    """Means with their wider intervals over the number of captioned products."""
    found = [each["example"]["wider"] for each in rows.values()]
    at = shift * np.array([int(n) for n in rows])
    axes.plot(at, [e["mean"] for e in found], mark, color=ink, ms=6, lw=1.8, zorder=3)
    axes.vlines(at, [e["low"] for e in found], [e["high"] for e in found], color=ink, lw=3.5,
                alpha=0.4)  # fmt: skip
    last = f"{found[-1]['mean']:.0f}{unit}" if unit else f"{found[-1]['mean']:+.1f}"
    up = {"ridge regression": 4, "classifier": -4}.get(name, 0)  # their words would meet
    axes.annotate(f"{name}, " + last.replace("-", "−"), (1, found[-1]["mean"]), (4, up),
                  xycoords=("axes fraction", "data"), textcoords="offset points", color=ink,
                  fontsize=9, va="center", annotation_clip=False)  # fmt: skip


#: Searches by the shop's own names, and by captions of all products with the nearest look-up.
NAMES = ("ridge, names", "look-up, names", "nearest")


def chances(scores: Tensor, words: list[str], y: NDArray[np.int64], new: list[str]) -> list[float]:
    """Of each known word that some new captions have: how often a photograph of one of these gets
    more of it than another one (0 to 1; by chance 0.5)."""
    found = []
    for column, word in enumerate(words):
        has = np.array([word in said(each) for each in new])
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


def shared(told: Sequence[str], new: Sequence[str]) -> list[bool]:
    """Of each word of new captions, whether told ones have it.

    >>> shared(["red apples"], ["red and green peppers"])
    [True, False, False]
    """
    there = {word for each in told for word in said(each)}
    return [word in there for each in new for word in said(each)]
