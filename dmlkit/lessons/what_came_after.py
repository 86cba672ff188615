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


def moved(network: nn.Module) -> float:
    """How far weights went from ImageNet's: the norm of their change, by the norm they had (%)."""
    change = size = 0.0
    for a, b in zip(network.parameters(), pretrained().parameters(), strict=True):
        change += float((a.detach() - b.detach()).square().sum())
        size += float(b.detach().square().sum())
    return float(100 * (change / size) ** 0.5)


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
    fold: int, C: int, n: int, draw: int = 0, split: str = "test", cartons: bool = False
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

    some_of = [name for name in train if not cartons or name in every.class_names[28:59]]
    few = rng.permutation(some_of)[:C].tolist()
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


#: What is compared in the live run.
WAYS = "color histogram", "untouched", "classifier", "head", "all layers"


def first_answers(named: nn.Module, own: Shop) -> pd.Series:
    """How often (%) a classifier of frozen features is right at first, by product of the same."""
    network = pretrained()
    with torch.no_grad():
        f = torch.cat([network(part.float() / 255) for part in own.same.split(64)])
        hits = named(F.normalize(f)).argmax(dim=1).numpy() == own.same_y
    each = 100 * pd.Series(hits).groupby(own.same_y).mean()
    return each.set_axis([own.products[k] for k in each.index])


def recorded(name: str) -> dict[str, Any]:
    """A record of ``studies.fifty``: by shop, then by way."""
    path = dmlkit.ROOT / "data" / "evidence" / f"25_{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def fifty() -> dict[str, dict[str, list[pd.Series]]]:
    """Scores at 224 pixels, shop by shop, of each way with the setting that is chosen for it.

    The head's rate: for new products by the other products of the training part; for the same five,
    as the classifier's penalty, by the same five of the other shops.
    """
    shops = [*recorded("fifty").values()]
    ways: dict[str, dict[str, list[pd.Series]]] = {
        way: {which: [pd.Series(shop[way][which]) for shop in shops] for which in ("same", "new")}
        for way in ("untouched", "all layers")
    }

    def best(of: str, which: str, others: Sequence[dict[str, Any]]) -> str:
        tried = [way for way in shops[0] if way.startswith(f"{of}, ")]
        return max(tried, key=lambda w: np.mean([np.mean([*o[w][which].values()]) for o in others]))

    ways["head"] = {"same": [], "new": []}
    ways["classifier"] = {"same": []}
    for k, shop in enumerate(shops):
        rest = shops[:k] + shops[k + 1 :]
        for of, which, chosen in (
            ("head", "same", best("head", "same", rest)),
            ("head", "new", best("head", "other", [shop])),
            ("classifier", "same", best("classifier", "same", rest)),
        ):
            ways[of][which].append(pd.Series(shop[chosen][which]))
    return ways


def searched() -> dict[str, dict[str, list[float]]]:
    """Recall@1 (%) of new validation products of each shop, by the rate of what learns."""
    record = [*recorded("rates").values()]
    found: dict[str, dict[str, list[float]]] = {"head alone": {}, "all layers": {}}
    for way in record[0]:
        layers, _, rate = way.partition(", ")
        if rate:
            of, at = ("head alone", rate) if layers == "0" else ("all layers", layers)
            found[of][at] = [float(np.mean([*its[way].values()])) for its in record]
    return {of: dict(sorted(its.items(), key=lambda e: float(e[0]))) for of, its in found.items()}


def shuffled(
    kinds: Mapping[str, str], live: Mapping[str, Any]
) -> dict[str, dict[str, list[float]]]:
    """All layers from true labels minus all layers from shuffled ones, in the four shops."""
    found, record = {}, recorded("twins").values()
    for which in ("same", "new"):
        pairs = zip(live["all layers"][which], record, strict=False)
        each = [a - pd.Series(its[which])[a.index] for a, its in pairs]
        d = pd.concat(each)
        found[f"64 pixels, {which}, true minus shuffled labels"] = {
            "kinds": by_kinds(d.groupby(d.index).mean(), kinds),
            "dots": [float(e.mean()) for e in each],
        }
    return found


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


def rates(found: Mapping[str, Mapping[str, Sequence[float]]]) -> tuple[Figure, dict[str, Any]]:
    """What was found of validation products, by rate."""
    fig, panels = plt.subplots(1, 2, figsize=(6.8, 2.9), sharey=True, layout="constrained")
    drawn = {}
    for axes, (way, its), ink in zip(panels, found.items(), (BLUE, ORANGE), strict=True):
        drawn[way] = figures.sweep(axes, its, {}, ink, "", 1)
        axes.set_title(way, fontweight="bold", loc="left", fontsize=10, color=ink)
    panels[0].set(ylabel=figures.RECALL_AXIS, xlabel="rate of the head")
    panels[1].set(xlabel="rate of the layers (head: 0.0003)")
    return fig, drawn


#: What the rows of the answer are called in the picture.
_ROWS = {
    "same, all layers minus classifier": "the same five: all layers − classifier",
    "new, all layers minus head": "new products: all layers − head",
    "new, cartons": "new cartons: the same",
    "new, fruit and vegetables": "new fruit, vegetables: the same",
    "64 pixels, same, all layers minus head": "64 pixels, the same five: all layers − head",
    "64 pixels, new, all layers minus head": "64 pixels, new products: all layers − head",
}


def answer(rows: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Differences with their intervals, a row each; strokes are shops.

    rows: {name: {"kinds": values, "dots": values}}; those at 64 pixels stand below a line.
    """
    fig, axes = plt.subplots(figsize=(7.6, 4.3), layout="constrained")
    small = min(k for k, name in enumerate(rows) if name.startswith("64"))
    for k, (name, its) in enumerate(rows.items()):
        mean, low, high, _ = interval(its["kinds"])
        ink = "0.4" if "minus" not in name else ORANGE if "new" in name else BLUE
        wide = 6 if k < small else 3
        axes.plot([low, high], [k, k], color=ink, lw=wide, solid_capstyle="butt", alpha=0.7)
        axes.plot(mean, k, "o", color=ink, ms=2 * wide)
        axes.plot(its["dots"], np.full(len(its["dots"]), k + 0.3), "|", color=ink, ms=7)
        said = f"{mean:+.1f} [{low:.1f}, {high:.1f}]".replace("-", "−")
        axes.text(1.02, k, said, va="center", fontsize=11 if k < small else 9.5, color=ink,
                  fontweight="bold", transform=axes.get_yaxis_transform())  # fmt: skip
    axes.axvline(0, color="0.3", lw=1.2, zorder=0)
    axes.axhline(small - 0.45, color="0.8", lw=1)
    labels = axes.set_yticks(range(len(rows)), [_ROWS[name] for name in rows])
    for k, tick in enumerate(labels):
        tick.label1.set_fontsize(9.5 if k < small else 8.5)
    axes.set_ylim(len(rows) - 0.4, -0.55)
    axes.grid(False, axis="y")
    axes.set_xlabel("difference in points of Recall@1")
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return fig
