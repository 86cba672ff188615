"""What lesson 25 draws, and the small shops that its networks learn from."""

import json
import textwrap
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
from matplotlib.ticker import MultipleLocator
from numpy.typing import NDArray
from torch import Tensor, nn

import dmlkit
from dmlkit import backbones, data, figures
from dmlkit.data.pictures import color_histogram, mirror, recolor
from dmlkit.statistics import interval

NETWORK = "tf_efficientnet_lite0"
BLUE, ORANGE = figures.RIGHT, "#d55e00"


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


@dataclass
class Shop:
    """A shop that trains in the notebook, at 128 pixels: five cartons, ten photographs of each.

    ``x`` (50, 3, 182, 182) are to be cropped. ``views`` are the same photographs as a search sees
    them, those of the same five on another visit, and of new products, with what the untouched
    network makes of them (``z``), their names, and which of them are queries.
    """

    x: Tensor
    y: Tensor
    products: list[str]
    views: dict[str, Tensor]
    z: dict[str, Tensor]
    names: dict[str, NDArray[np.str_]]
    asked: dict[str, NDArray[np.bool_]]


def shop(number: int) -> Shop | None:
    """One of those of ``studies.fifty cartons``; None without photographs or network."""
    if not installed():
        return None
    try:
        large = data.load("grocery", "test", fold=None, crop=182, resize=182).images
        plain = data.load("grocery", "test", fold=None, crop=128, resize=144).images
    except OSError:
        return None
    every = data.load("grocery", "test", fold=None, features=f"{NETWORK}@128")
    few, held, new, products = rows_of(number % 4, 5, 10, number // 4, cartons=True)
    names, queries = np.array(every.class_names)[every.labels], every.queries
    assert queries is not None
    rows = {"same": np.concatenate([few, held]), "new": new}
    y = torch.tensor([products.index(each) for each in names[few]])
    return Shop(
        large[few],
        y,
        products,
        {which: plain[its] for which, its in rows.items()},
        {which: every.images[its].flatten(1) for which, its in rows.items()},
        {which: names[its] for which, its in rows.items()},
        {"same": np.arange(len(rows["same"])) >= len(few), "new": queries[new]},
    )


def crops(own: Shop, seed: int, steps: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches, four crops of each product: crops (20, 3, 128, 128), what the untouched network
    makes of them (20, 1280), labels (20,)."""
    network, fresh, found = pretrained(), torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        rows = [torch.multinomial((own.y == k).float(), 4, generator=fresh)
                for k in range(len(own.products))]  # fmt: skip
        i = torch.cat(rows)
        x = views(own.x[i], fresh, 128)
        with torch.no_grad():
            found.append((x, network(x), own.y[i]))
    return found


def by_product(right: Any, names: Any) -> pd.Series:
    """Share (%) that is right, by product."""
    return 100 * pd.Series(np.asarray(right)).groupby(np.asarray(names)).mean()


def scores(own: Shop, embed: Mapping[str, Tensor]) -> dict[str, pd.Series]:
    """Recall@1 (%) of each product, from embeddings of all that is searched."""
    found = {}
    for which, raw in embed.items():
        z, asked, names = F.normalize(raw), own.asked[which], own.names[which]
        hit = names[~asked][(z[asked] @ z[~asked].T).argmax(dim=1).numpy()]
        found[which] = by_product(hit == names[asked], names[asked])
    return found


def answers(own: Shop, outputs: Tensor) -> pd.Series:
    """How often (%) the largest output names the right one of the same five, by product."""
    right = own.names["same"][own.asked["same"]]
    return by_product(np.array(own.products)[outputs.argmax(dim=1).numpy()] == right, right)


def embedded(
    network: nn.Module, own: Shop, parts: Sequence[str] = ("same", "new")
) -> dict[str, Tensor]:
    """What a network makes of what is searched."""
    with torch.no_grad():
        return {which: torch.cat([network(x.float() / 255) for x in own.views[which].split(50)])
                for which in parts}  # fmt: skip


def watch(
    own: Shop, film: dict[int, float], step: int, network: nn.Module | None, head: nn.Module
) -> None:
    """Keep Recall@1 (%) of new products at every tenth step; no network: it is untouched yet."""
    if step % 10 == 0:
        z = own.z["new"] if network is None else embedded(network, own, ["new"])["new"]
        with torch.no_grad():
            film[step] = float(scores(own, {"new": head(z)})["new"].mean())


def histogram(own: Shop) -> float:
    """Recall@1 (%) of new products by their color histograms."""
    z = color_histogram(own.views["new"][:].float() / 255)
    return float(scores(own, {"new": z})["new"].mean())


def film(found: Mapping[str, Mapping[int, float]], floors: Mapping[str, float]) -> Figure:
    """New products that one shop finds, by the steps of its training: {way: {step: %}}."""
    fig, axes = plt.subplots(figsize=(6.5, 3.0), layout="constrained")
    for (way, by_step), ink in zip(found.items(), (BLUE, ORANGE), strict=True):
        axes.plot([*by_step], [*by_step.values()], "o-", color=ink, lw=2.2, ms=6)
        last = max(by_step)
        axes.annotate(way, (last, by_step[last]), (8, 0), textcoords="offset points", color=ink,
                      va="center", fontweight="bold")  # fmt: skip
    for name, value in floors.items():
        axes.axhline(value, color="0.5", lw=1.2, ls=":", zorder=0)
        axes.text(0, value - 0.6, name, color="0.35", fontsize=9, va="top")
    axes.set(xlabel="steps", ylabel="new products found\n(Recall@1, %)", xlim=(-1, last * 1.25))
    axes.set_xticks([*by_step])
    axes.set_ylim(bottom=min(floors.values()) - 4)
    axes.yaxis.set_major_locator(MultipleLocator(5))
    axes.grid(False)
    axes.set_title("one shop: all layers rise further", loc="left", fontweight="bold")
    return fig


def committed(name: str) -> dict[str, dict[str, list[pd.Series]]]:
    """Scores of shops of 64 pixels, by way."""
    record = recorded(name.removeprefix("25_"))
    return {
        way: {
            which: [pd.Series(v["values"], v["products"]) for v in each]
            for which, each in its.items()
        }
        for way, its in record.items()
    }


#: The first of the shops of cartons whose rule was written before; four came earlier.
FIRST = 4
#: What is compared in the notebook's own run.
WAYS = "untouched", "classifier", "head", "all layers"


def tasks(own: Shop) -> Figure:
    """What is learned, and the two tasks: five photographs a row, with their names."""
    new = sorted(set(own.names["new"]))[::4][:5]
    rows = (
        ("learn from", "same", False, own.products),
        ("name: which\nof these five?", "same", True, own.products),
        ("new products,\none visit", "new", True, new),
        ("find: the nearest\non another visit", "new", False, new),
    )
    fig, panels = plt.subplots(4, 5, figsize=(5.2, 4.8), layout="constrained")
    for line, (k, (head, which, asked, products)) in zip(panels, enumerate(rows), strict=True):
        for axes, name in zip(line, products, strict=True):
            there = np.flatnonzero((own.names[which] == name) & (own.asked[which] == asked))
            axes.imshow(own.views[which][int(there[0])].permute(1, 2, 0).numpy())
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.grid(False)
            said = textwrap.fill(name.replace("-", " "), 12) if k % 2 == 0 else ""
            axes.set_xlabel(said, fontsize=7.5, labelpad=2)
        line[0].set_ylabel(head, rotation=0, ha="right", va="center", labelpad=8, fontsize=9.5)
    return fig


def of_record(shops: int) -> dict[str, dict[str, list[pd.Series]]]:
    """What the notebook's own run finds, of the record: where it cannot train."""
    found: dict[str, dict[str, list[pd.Series]]] = {}
    ways = ("untouched",) * 2, ("classifier", "classifier, 0.0001"), ("head", "head, 0.0003")
    for way, kept in (*ways, ("all layers",) * 2):
        its = [recorded("cartons")[str(FIRST + k)][kept] for k in range(shops)]
        names = {"same": "same", "new": "new", "by proxies": "answer"}
        if way == "classifier":
            names = {"same": "answer"}
        found[way] = {to: [pd.Series(each[of]) for each in its if of in each]
                      for of, to in names.items()}  # fmt: skip
    return found


def table(live: Mapping[str, Mapping[str, Sequence[pd.Series]]]) -> str:
    """Means in percent, a line for each way."""
    heads = {"answer": "names the five", "same": "finds the five", "new": "finds new ones"}
    lines = [" " * 16 + "".join(f"{said:>17}" for said in heads.values())]
    for way in WAYS:
        each = [live[way].get(which, ()) for which in heads]
        means = [f"{pd.concat([*its]).mean():.1f} %" if len(its) else "" for its in each]
        lines.append(f"{way:<16}" + "".join(f"{mean:>17}" for mean in means))
    return "\n".join(lines)


def recorded(name: str) -> dict[str, Any]:
    """A record of ``studies.fifty``: by shop, then by way."""
    path = dmlkit.ROOT / "data" / "evidence" / f"25_{name}.json"
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def fifty(name: str = "fifty") -> dict[str, dict[str, list[pd.Series]]]:
    """Scores of a record, shop by shop, of each way with the setting that is chosen for it.

    "answer" is how often its own largest output names the right one of the same five. The head's
    rate: for new products by the other products of the training part; for the same five, as the
    classifier's penalty, by the same five of the other shops.
    """
    shops = [*recorded(name).values()]
    ways: dict[str, dict[str, list[pd.Series]]] = {
        way: {which: [pd.Series(shop[way][which]) for shop in shops] for which in ("same", "new")}
        for way in ("untouched", "all layers")
    }
    ways["all layers"]["answer"] = [pd.Series(shop["all layers"]["by proxies"]) for shop in shops]

    def best(of: str, which: str, others: Sequence[dict[str, Any]]) -> str:
        tried = [way for way in shops[0] if way.startswith(f"{of}, ")]
        return max(tried, key=lambda w: np.mean([np.mean([*o[w][which].values()]) for o in others]))

    ways["head"] = {"same": [], "new": []}
    ways["classifier"] = {"answer": []}
    for k, shop in enumerate(shops):
        rest = shops[:k] + shops[k + 1 :]
        for of, which, to, chosen in (
            ("head", "same", "same", best("head", "same", rest)),
            ("head", "new", "new", best("head", "other", [shop])),
            ("classifier", "same", "answer", best("classifier", "same", rest)),
        ):
            ways[of][to].append(pd.Series(shop[chosen][which]))
    return ways


def halfway() -> dict[str, Any]:
    """What 60 steps at 224 pixels brought, by product (mean of three draws of photographs)."""
    study = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "25_thinned.csv")

    def of(measure: str, share: str, draws: int = 3) -> pd.Series:
        arms = [f"whole network, 5 × 10, 224 pixels, draw {d}, {share}" for d in range(draws)]
        rows = study[study["arm"].isin(arms) & (study["measure"] == measure)]
        each = pd.concat([pd.Series(json.loads(text)) for text in rows["by_class"]])
        return 100 * each.groupby(each.index).mean()

    before, middle, after = (of("recall_at_1", *a) for a in (("0", 1), ("0.5",), ("1",)))
    coarse = {"before": of("coarse_at_1", "0", 1), "after": of("coarse_at_1", "1")}
    return {
        "gain": figures.sample((after - before).tolist()),
        "halfway minus all the way": figures.sample((middle - after).tolist()),
        "halfway minus before": figures.sample((middle - before).tolist()),
        "coarse": figures.example({key: float(its.mean()) for key, its in coarse.items()}),
        "coarse, after minus before": figures.sample((coarse["after"] - coarse["before"]).tolist()),
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


def wider(values: Mapping[str, Sequence[float]]) -> tuple[float, float, float]:
    """Mean over kinds of product, and the wider interval: kinds, or shops, drawn anew.

    >>> [round(end, 1) for end in wider({"kinds": [1.0, 2.0, 3.0], "dots": [-8.0, 2.0, 12.0]})]
    [2.0, -22.8, 26.8]
    """
    ends = [interval(values[unit]) for unit in ("kinds", "dots")]
    wide = max(ends, key=lambda each: each["high"] - each["low"])
    return float(ends[0]["mean"]), float(wide["low"]), float(wide["high"])


def answer(rows: Mapping[str, Mapping[str, Sequence[float]]], live: Mapping[str, float]) -> Figure:
    """Differences with the wider interval of kinds and shops, {label: {"kinds", "dots"}}; live: one
    of the reader's own shop, by row."""
    fig, axes = plt.subplots(figsize=(6.5, 4.4), layout="constrained")
    each = {}
    for label, its in rows.items():
        mean, low, high = wider(its)
        each[label] = {"mean": mean, "low": low, "high": high, "values": its["dots"]}
    figures.spans(axes, each, "points, all layers − head or classifier")
    for place, label in enumerate(rows):
        if label in live:
            axes.plot(live[label], place - 0.27, "D", color="#009e73", ms=7, zorder=4)
    axes.plot([], [], "D", color="#009e73", ms=7, label="this run")
    axes.plot([], [], ".", color="0.5", label="a recorded shop")
    fig.legend(loc="outside lower center", ncols=2, fontsize=8.5)
    return fig


#: Frozen networks that the picture of places names.
SHOWN = {
    "nyu-visionx/moco-v3-vit-b": ("MoCo-v3-B", "#009e73"),
    "facebook/dinov2-giant": ("DINOv2-giant", BLUE),
    "facebook/dinov2-small": ("DINOv2-small", "#56b4e9"),
    "google/siglip-large-patch16-384": ("SigLIP-L-384", ORANGE),
    "openai/clip-vit-base-patch32": ("CLIP-B/32", "#cc79a7"),
}


def places() -> tuple[Figure, dict[str, Any]]:
    """Places of 48 frozen networks on four published sets, as others measured them."""
    table = pd.read_csv(dmlkit.ROOT / "data" / "reported" / "mieb_i2i.csv")
    hits = table.pivot(index="method", columns="dataset", values="value")
    hits = hits[["CUB", "Cars", "SOP", "RP2K"]]
    place = hits.rank(ascending=False, method="min")
    fig, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    for method, (name, ink) in SHOWN.items():
        its = place.loc[method].to_numpy()
        axes.plot(its, "o-", color=ink, lw=2.2)
        axes.text(3.13, its[-1], name, color=ink, va="center", fontsize=9.5, fontweight="bold")
    axes.set(ylim=(49.5, -0.5), xlim=(-0.15, 3.1), ylabel=f"place among {len(hits)} networks")
    axes.set_xticks(
        range(4), ["birds\n(CUB)", "cars\n(Cars)", "web shop\n(SOP)", "shelves\n(RP2K)"]
    )
    axes.set_yticks([1, 12, 24, 36, 48])
    axes.grid(False)
    agree = hits.corr("spearman").to_numpy()[np.triu_indices(4, k=1)]
    first = place.eq(1).any(axis=1) & place.eq(1).all(axis=1)
    return fig, {
        "networks": len(hits),
        "agree": [float(agree.min()), float(agree.max())],
        "first everywhere": int(first.sum()),
        "best of worst places": float(place.max(axis=1).min()),
        "places": {name: place.loc[method].to_dict() for method, (name, _) in SHOWN.items()},
        "hits": {name: hits.loc[method].to_dict() for method, (name, _) in SHOWN.items()},
    }
