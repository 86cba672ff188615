"""What lesson 25 draws, and the small shops that its networks learn from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from torch import Tensor, nn

import dmlkit
from dmlkit import backbones, data, figures
from dmlkit.data.pictures import color_histogram, mirror, recolor
from dmlkit.statistics import interval

NETWORK = "tf_efficientnet_lite0"
BLUE, ORANGE = figures.RIGHT, "#d55e00"


def by_kinds(values: pd.Series, kinds: Mapping[str, str]) -> list[float]:
    """Values whose interval is that of the mean over products, if kinds were drawn anew.

    >>> by_kinds(pd.Series({"a": 1.0, "b": 3.0, "c": 5.0}), {"a": "x", "b": "x", "c": "y"})
    [1.6666666666666667, 4.333333333333333]
    """
    sums = (values - values.mean()).groupby(values.index.map(kinds)).sum()
    found: list[float] = (values.mean() + sums * len(sums) / len(values)).tolist()
    return found


class _Pixels(nn.Module):
    """Tones 0..1 as the network was trained on them."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.mean, self.std = (torch.tensor(each)[:, None, None] for each in (mean, std))

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.std).contiguous(memory_format=torch.channels_last)


def installed() -> bool:
    """Whether the network and its ImageNet weights are here."""
    return bool(find_spec("timm")) and backbones.packaged(NETWORK) is not None


def pretrained() -> nn.Sequential:
    """The network as ImageNet left it: tones 0..1 (B, 3, H, W) -> features (B, 1280)."""
    found = backbones.published(NETWORK, pretrained=True)
    net = nn.Sequential(_Pixels(found.mean, found.std), found.net)
    return net.to(memory_format=torch.channels_last).eval()


def views(u: Tensor, generator: torch.Generator, pixels: int = 64) -> Tensor:
    """Each photograph cropped (half of its area or more), mirrored, recolored anew.

    uint8 (B, 3, H, W) -> tones 0..1 (B, 3, pixels, pixels).
    """
    side = (0.5 + 0.5 * torch.rand(len(u), generator=generator)).sqrt()
    turn = torch.zeros(len(u), 2, 3)
    turn[:, 0, 0] = turn[:, 1, 1] = side
    turn[:, :, 2] = ((1 - side) * (2 * torch.rand(2, len(u), generator=generator) - 1)).T
    x = u.float() / 255
    grid = F.affine_grid(turn, [len(x), 3, pixels, pixels], align_corners=False)
    x = F.grid_sample(x, grid, padding_mode="border", align_corners=False)
    return recolor(mirror(x, generator), generator, 0.2)


@dataclass
class Shop:
    """Photographs of a few products on one visit (x, y), of the same on another visit, and of
    products that are new: ten a product and visit at most."""

    x: Tensor
    y: Tensor
    same: Tensor
    same_y: NDArray[np.int64]
    new: Tensor
    new_y: NDArray[np.int64]
    asked: NDArray[np.bool_]
    names: tuple[str, ...]
    products: list[str]


Rows = NDArray[np.int64]


def rows_of(
    fold: int, C: int, n: int, draw: int = 0, split: str = "test"
) -> tuple[Rows, Rows, Rows, list[str]]:
    """Rows of all groceries: n photographs of C products of a fold's training part on one visit,
    the same products on another visit, and the fold's products on both; and the C products.

    Those that are searched have ten photographs a product and visit at most.
    """
    half = split == "val"
    every = data.load("grocery64", "test", fold=None)
    train, test = (data.load("grocery64", part, fold=fold, validation=half).class_names
                   for part in ("train", split))  # fmt: skip
    assert every.queries is not None
    names, queries = np.array(every.class_names)[every.labels], every.queries
    rng = np.random.default_rng(fold + 4 * draw)

    def some(products: Sequence[str], asked: bool, most: int) -> Rows:
        own = [np.flatnonzero((names == each) & (queries == asked)) for each in products]
        return np.concatenate([rng.permutation(rows)[:most] for rows in own])

    few = rng.permutation(train)[:C].tolist()
    learn, held = some(few, False, n), some(few, True, 10)
    return learn, held, np.concatenate([some(test, asked, 10) for asked in (True, False)]), few


def shop(fold: int, C: int, n: int, draw: int = 0, split: str = "test") -> Shop:
    """So many products of a fold's training part, and the fold's products as new ones."""
    every = data.load("grocery64", "test", fold=None)
    learn, held, new, few = rows_of(fold, C, n, draw, split)
    names = np.array(every.class_names)[every.labels]
    number = {each: k for k, each in enumerate(few)}
    y, same_y = (np.array([number[each] for each in names[rows]]) for rows in (learn, held))
    images, labels, queries = every.images, every.labels, every.queries
    assert queries is not None
    return Shop(images[learn], torch.from_numpy(y), images[held], same_y, images[new], labels[new],
                queries[new], every.class_names, few)  # fmt: skip


def _found(
    f: Tensor, own: NDArray[np.int64], z: Tensor, asked: NDArray[np.int64], names: Sequence[str]
) -> pd.Series:
    """Recall@1 (%) of each product: gallery (G, d), queries (Q, d)."""
    hits = own[(F.normalize(z) @ F.normalize(f).T).argmax(dim=1).numpy()] == asked
    each = 100 * pd.Series(hits).groupby(asked).mean()
    return each.set_axis([names[k] for k in each.index])


def scores(both: Any, own: Shop) -> dict[str, pd.Series]:
    """Recall@1 (%) of each product: of the same few on another visit, and of new ones."""

    def embed(u: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([both(part.float() / 255) for part in u.split(64)])

    z, asked = embed(own.new), own.asked
    return {
        "same": _found(embed(own.x), own.y.numpy(), embed(own.same), own.same_y, own.products),
        "new": _found(z[~asked], own.new_y[~asked], z[asked], own.new_y[asked], own.names),
    }


def colors(x: Tensor) -> Tensor:
    """The color histogram of tones 0..1, as something to compare a network with."""
    return color_histogram(x)


def of_study(rows: pd.DataFrame, share: str, measure: str = "recall_at_1") -> pd.DataFrame:
    """Score (%) of each product (row) in each whole draw (column) of the recorded networks."""
    named = rows.way.str.extract(r"whole network, 5 × 10, 224 pixels, draw (\d), (0|0.5|1)$")
    its = rows[(named[1] == share) & (rows.measure == measure)].assign(draw=named[0])
    return pd.DataFrame({
        draw: 100 * pd.concat([pd.Series(json.loads(part)) for part in each.by_class])
        for draw, each in its.groupby("draw") if each.fold.nunique() == 4
    })  # fmt: skip


def kept(live: Mapping[str, Mapping[str, Sequence[pd.Series]]]) -> dict[str, Any]:
    """Scores of the live run, as the figure keeps them."""
    return {
        way: {
            which: [figures.sample(v.tolist(), products=[*v.index]) for v in each]
            for which, each in its.items()
        }
        for way, its in live.items()
    }


def committed(name: str = "") -> dict[str, dict[str, list[pd.Series]]]:
    """Scores of a recorded run: of the committed figure, where the network is not installed."""
    path = dmlkit.ROOT / "figures" / "25_answer.json"
    if name:
        path = dmlkit.ROOT / "data" / "evidence" / f"{name}.json"
    record = json.loads(path.read_text("utf-8"))
    record = record if name else record["numbers"]["live"]
    return {
        way: {
            which: [pd.Series(v["values"], v["products"]) for v in each]
            for which, each in its.items()
        }
        for way, its in record.items()
    }


def maps(gains: Mapping[str, Mapping[str, Any]], titles: Mapping[str, str], each: Sequence[int],
         classes: Sequence[int]) -> Figure:  # fmt: skip
    """What two ways gain, by products and photographs of each."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.4), sharey=True, layout="constrained")
    for axes, (kind, its) in zip(panels, gains.items(), strict=True):
        mean, low, high = (np.array(its[key]) for key in ("mean", "low", "high"))
        axes.imshow(mean, cmap="RdBu", vmin=-12, vmax=12, origin="lower")
        for (r, c), value in np.ndenumerate(mean):
            weight = "bold" if low[r, c] > 0 or high[r, c] < 0 else "normal"
            said = f"{value:+.1f}".replace("-", "−")
            axes.text(c, r, said, ha="center", va="center", fontsize=8, fontweight=weight)
        axes.set_xticks(range(len(each)), map(str, each))
        axes.set_yticks(range(len(classes)), map(str, classes))
        axes.set_title(titles[kind], fontweight="bold", loc="left", fontsize=10)
        axes.grid(False)
    panels[0].set_ylabel("products")
    fig.supxlabel("photographs of each product", fontsize=9)
    return fig


def by_steps(
    curves: Mapping[str, Mapping[int, Sequence[float]]], untouched: float
) -> tuple[Figure, dict[str, Any]]:
    """Recall@1 on new products while heads learn."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.0), sharey=True, layout="constrained")
    drawn = {}
    for axes, (title, its), ink in zip(panels, curves.items(), (ORANGE, BLUE), strict=True):
        floor = {"untouched features": untouched} if ink == BLUE else {}
        drawn[title] = figures.sweep(axes, its, floor, ink, "", 1)
        axes.axhline(untouched, color="0.5", ls=":", lw=1.4, zorder=0)
        axes.set_title(title, fontweight="bold", loc="left", fontsize=10)
    panels[0].set_ylabel(figures.RECALL_AXIS)
    fig.supxlabel("steps", fontsize=9)
    return fig, drawn


def answer(
    gains: Mapping[str, Mapping[str, Mapping[str, Any]]], absolute: Mapping[str, Mapping[str, Any]]
) -> Figure:
    """Gain over untouched features of each way, on the same products and on new ones.

    gains: {"same" or "new": {way: {"kinds": values, "dots": values}}}; absolute: scores (%), which
    stand beside them.
    """
    fig, panels = plt.subplots(1, 2, figsize=(8, 4.6), sharey=True, layout="constrained")
    titles = {"same": "the same five: all layers lead", "new": "new products: no lead at 64 pixels"}
    ways = list(gains["new"])
    for axes, (which, title) in zip(panels, titles.items(), strict=True):
        for k, way in enumerate(ways):
            if way not in gains[which]:
                axes.text(0.2, k, "not recorded", transform=axes.get_yaxis_transform(),
                          ha="center", va="center", fontsize=8, color="0.5")  # fmt: skip
                continue
            its = gains[which][way]
            ink = ORANGE if "all layers" in way else BLUE if "head" in way else "0.4"
            mean, low, high, _ = interval(its["kinds"])
            axes.plot([low, high], [k, k], color=ink, lw=2.5)
            axes.plot(mean, k, "D" if "recorded" in way else "o", color=ink, ms=8)
            axes.plot(its["dots"], np.full(len(its["dots"]), k - 0.27), "|", color=ink, ms=7)
            axes.text(1.02, k, f"{absolute[which][way]:.0f} %", fontsize=8.5, va="center",
                      transform=axes.get_yaxis_transform())  # fmt: skip
        axes.axvline(0, color="0.3", ls=":", lw=1.4, zorder=0)
        axes.axhline(3.5, color="0.8", lw=1)
        axes.set_title(title, fontweight="bold", loc="left", fontsize=10)
        axes.grid(False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panels[0].set_yticks(range(len(ways)), ways)
    panels[0].set_ylim(len(ways) - 0.5, -0.6)
    fig.supxlabel("points of Recall@1 over untouched features of the same photographs", fontsize=9)
    return fig


def places(places_of: pd.DataFrame, shown: Mapping[str, tuple[str, str]]) -> Figure:
    """Places of frozen networks on four published sets."""
    fig, axes = plt.subplots(figsize=(6.5, 3.8))
    axes.plot(places_of.T.to_numpy(), color="0.88", lw=0.8)
    for method, (name, ink) in shown.items():
        axes.plot(places_of.loc[method].to_numpy(), "o-", color=ink, lw=2.4, label=name)
    axes.set(ylim=(49.5, -0.5), xlim=(-0.15, 3.15), ylabel="place among 48 networks")
    axes.set_xticks(range(4), ["birds (CUB)", "cars", "web shop (SOP)", "shelves (RP2K)"])
    axes.set_yticks([1, 12, 24, 36, 48])
    axes.grid(False)
    axes.set_title("one network is among the first six on all four", fontweight="bold", loc="left")
    fig.legend(loc="outside lower center", ncols=2)
    return fig
