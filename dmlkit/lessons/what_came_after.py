"""What lesson 25 draws, and the small shops that its networks learn from."""

import itertools
import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor, nn

import dmlkit
from dmlkit import backbones, data, figures
from dmlkit.data.pictures import mirror, recolor
from dmlkit.lessons.kinds import by_kinds
from dmlkit.statistics import interval

NETWORK = "tf_efficientnet_lite0"
#: What a shop learns from, and is searched for.
KINDS = "cartons", "fruit"
INKS = {"cartons": "#b35c00", "fruit": "#007a5e"}
BLUE, ORANGE = figures.RIGHT, "#d55e00"
#: Pairs of shops that the rule is about, two for each of four sets of new products; the one that
#: trains in the notebook; and the ways to learn.
JUDGED, LIVE = range(12, 20), 20
WAYS = "untouched", "trained head", "whitening", "all layers"
#: Recall@1 (%) of each product.
Scores = dict[str, float]


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


@cache
def products() -> tuple[dict[str, str], dict[str, str]]:
    """Of each product whether it is a carton or fruit (here with vegetables), and its sort."""
    every = data.load("grocery64", "test", fold=None)
    cartons = every.class_names[28:59]  # as the authors list them
    kind = {name: KINDS[name not in cartons] for name in every.class_names}
    names = np.array(every.class_names)[every.labels]
    return kind, dict(zip(names.tolist(), every.groups.tolist(), strict=True))


Rows = NDArray[np.int64]


def rows_of(number: int, kind: str) -> tuple[Rows, Rows, list[str]]:
    """Rows of all groceries: ten photographs of each of five products of a kind, on one visit; and
    of a fold's new products ten on each visit, the same for both kinds; and the five products."""
    every, fold = data.load("grocery64", "test", fold=None), number % 4
    train, test = (data.load("grocery64", p, fold=fold).class_names for p in ("train", "test"))
    assert every.queries is not None
    names, queries = np.array(every.class_names)[every.labels], every.queries

    def ten(rng: np.random.Generator, name: str, asked: bool) -> Rows:
        return rng.permutation(np.flatnonzero((names == name) & (queries == asked)))[:10]

    rng = np.random.default_rng([number, KINDS.index(kind)])
    five = rng.permutation([name for name in train if products()[0][name] == kind])[:5].tolist()
    few = np.concatenate([ten(rng, name, False) for name in five])
    rng = np.random.default_rng([number, len(KINDS)])
    new = np.concatenate([ten(rng, name, asked) for asked in (True, False) for name in test])
    return few, new, five


@dataclass
class Shop:
    """Five products to learn from and the new ones that are searched, at 128 pixels.

    ``x`` (50, 3, 182, 182) are to be cropped, ``views`` are what a search sees, ``z`` what the
    untouched network makes of it; their names, and which of them are queries.
    """

    x: Tensor
    y: Tensor
    five: list[str]
    views: Tensor
    z: Tensor
    names: NDArray[np.str_]
    asked: NDArray[np.bool_]


def there() -> bool:
    """Whether photographs and network are here."""
    if not installed():
        return False
    try:
        data.load("grocery", "test", fold=None, crop=128, resize=144)
    except OSError:
        return False
    return True


def shop(number: int, kind: str) -> Shop:
    """A shop that learns from one kind; both of a number search the very same new products."""
    few, new, five = rows_of(number, kind)
    large, plain = (data.load("grocery", "test", fold=None, crop=crop, resize=resize).images
                    for crop, resize in ((182, 182), (128, 144)))  # fmt: skip
    every = data.load("grocery", "test", fold=None, features=f"{NETWORK}@128")
    names, queries = np.array(every.class_names)[every.labels], every.queries
    assert queries is not None
    y = torch.tensor([five.index(each) for each in names[few]])
    z = every.images[new].flatten(1)
    return Shop(large[few], y, five, plain[new], z, names[new], queries[new])


def crops(own: Shop, seed: int, steps: int) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Batches, four crops of each product: crops (20, 3, 128, 128), what the untouched network
    makes of them (20, 1280), labels (20,)."""
    network, fresh, found = pretrained(), torch.Generator().manual_seed(seed), []
    for _ in range(steps):
        rows = [torch.multinomial((own.y == k).float(), 4, generator=fresh)
                for k in range(len(own.five))]  # fmt: skip
        i = torch.cat(rows)
        x = views(own.x[i], fresh, 128)
        with torch.no_grad():
            found.append((x, network(x), own.y[i]))
    return found


def scores(own: Shop, z: Tensor) -> Scores:
    """Recall@1 (%) of each new product: is the nearest photograph of another visit of it?"""
    z, asked = F.normalize(z), own.asked
    hit = own.names[~asked][(z[asked] @ z[~asked].T).argmax(dim=1).numpy()] == own.names[asked]
    found: Scores = (100 * pd.Series(hit).groupby(own.names[asked]).mean()).to_dict()
    return found


@torch.no_grad()
def watch(
    own: Shop, found: dict[int, Scores], step: int, network: nn.Module | None, head: nn.Module
) -> None:
    """Keep the scores of the new products at a step; no network: it is untouched yet."""
    z = own.z
    if network is not None:
        z = torch.cat([network(x.float() / 255) for x in own.views.split(50)])
    found[step] = scores(own, head(z))


def tasks(pair: Mapping[str, Shop]) -> Figure:
    """What two shops learn from, and what both search: five photographs a row, with names."""
    first = pair[KINDS[0]]
    names = list(dict.fromkeys(first.names))
    new = [name for k in KINDS for name in names if products()[0][name] == k][::4][:5]

    def shown(its: Shop, name: str, asked: bool) -> Any:
        return its.views[int(np.flatnonzero((its.names == name) & (its.asked == asked))[0])]

    rows: list[tuple[str, list[Any], list[str]]] = [
        (f"one shop learns\nfrom {said}", [its.x[10 * k] for k in range(5)], its.five)
        for its, said in zip(pair.values(), ("cartons", "fruit or\nvegetables"), strict=True)
    ]
    rows.append(("both search:\na new product …", [shown(first, n, True) for n in new], new))
    rows.append(("… the same, on\nanother visit", [shown(first, n, False) for n in new], []))
    fig, panels = plt.subplots(4, 5, figsize=(6.5, 5.6), layout="constrained")
    inks = [*INKS.values(), "0.2", "0.2"]
    for line, ink, (head, pictures, under) in zip(panels, inks, rows, strict=True):
        for axes, picture in zip(line, pictures, strict=True):
            axes.imshow(picture.permute(1, 2, 0).numpy())
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(False)
            axes.grid(False)
        for axes, name in zip(line, under, strict=False):
            axes.set_xlabel(textwrap.fill(name.replace("-", " "), 13), fontsize=8, labelpad=2)
        line[0].set_ylabel(head, rotation=0, ha="right", va="center", labelpad=8, fontsize=9.5,
                           color=ink, weight="bold")  # fmt: skip
    return fig


#: Photographs in a plane, four cartons and four kinds of fruit: what is printed on the product, and
#: its shape. The first eight are queries, the others the same products on another visit.
TOY = (
    (-0.76, -0.18), (-0.29, -0.31), (0.28, -0.77), (0.73, -0.2),
    (0.44, -0.5), (0.84, 0.09), (-0.21, 0.58), (0.93, 0.95),
    (-0.72, -0.32), (-0.31, -0.63), (0.26, -0.25), (0.81, -0.66),
    (0.59, -0.55), (0.5, 0.04), (0.85, 0.46), (-0.06, 1.04),
)  # fmt: skip


def stretched(degrees: Tensor, a: Tensor) -> dict[str, Tensor]:
    """TOY after the head I + (a − 1) u uᵀ, u at an angle; how many (%) queries find their product.

    >>> found = stretched(torch.tensor(0.0), torch.tensor(3.0))
    >>> found["cartons"].item(), found["fruit"].item()
    (100.0, 25.0)
    """
    z = torch.tensor(TOY, dtype=a.dtype)
    u = torch.stack([degrees.deg2rad().cos(), degrees.deg2rad().sin()])
    z = z + (a - 1) * (z @ u)[:, None] * u
    nearest = (z[:8, None] - z[8:]).square().sum(dim=-1).argmin(dim=1)
    right = 100 * (nearest == torch.arange(8)).to(a.dtype)
    return {"at": z, "nearest": nearest, "right": right, "cartons": right[:4].mean(),
            "fruit": right[4:].mean()}  # fmt: skip


def stretches() -> tuple[Figure, dict[str, Any]]:
    """The plane untouched, and after a head that stretches what is printed three times."""
    fig, panels = plt.subplots(
        1, 2, figsize=(6.5, 3.0), layout="constrained", width_ratios=(2.3, 5.4)
    )
    drawn = {}
    for axes, (title, a) in zip(panels, {"untouched": 1.0, "print × 3": 3.0}.items(), strict=True):
        found = stretched(torch.tensor(0.0), torch.tensor(a))
        z, to, right = (found[key].numpy() for key in ("at", "nearest", "right"))
        for i in range(8):
            kind = KINDS[i >= 4]
            axes.plot(*z[[i, 8 + to[i]]].T, "-" if right[i] else ":", color=INKS[kind], lw=1.6)
            for k, face in ((i, "white"), (i + 8, INKS[kind])):
                axes.plot(*z[k], "os"[i >= 4], ms=7, color=INKS[kind], mfc=face, mew=1.6)
        shares = {kind: float(found[kind]) for kind in KINDS}
        drawn[title] = shares
        said = "\n".join(f"{kind} {share:.0f} %" for kind, share in shares.items())
        axes.set_title(f"{title}:\n{said}", loc="left", fontsize=9.5, fontweight="bold")
        axes.set(xlabel="what is printed", aspect="equal", xticks=[], yticks=[])
        axes.set(xlim=(-1.15, 1.15) if a == 1 else (-2.5, 2.9), ylim=(-0.95, 1.2))
        axes.grid(False)
    panels[0].set_ylabel("shape")
    for kind, mark in zip(KINDS, "os", strict=True):
        panels[0].plot([], [], mark, color=INKS[kind], label=kind)
    panels[0].plot([], [], "o", color="0.3", mfc="white", label="query")
    panels[0].plot([], [], "-", color="0.3", label="nearest: right")
    panels[0].plot([], [], ":", color="0.3", label="nearest: wrong")
    fig.legend(loc="outside lower center", ncols=5, fontsize=8.5)
    return fig, drawn


def mean_of(found: Scores, kind: str) -> float:
    """Recall@1 (%) of the new products of a kind."""
    return float(np.mean([score for name, score in found.items() if products()[0][name] == kind]))


#: By what is learned and by way, one a shop: the scores by step.
Films = Mapping[str, Mapping[str, Sequence[Mapping[int, Scores]]]]
#: The same at the end.
Kept = Mapping[str, Mapping[str, Sequence[Scores]]]


def ends(found: Films) -> Kept:
    """Scores after the last step, and untouched: those of a head before its first."""
    return {
        kind: {"untouched": [its[0] for its in ways["trained head"]]}
        | {way: [its[max(its)] for its in each] for way, each in ways.items()}
        for kind, ways in found.items() if ways
    }  # fmt: skip


def film(found: Films) -> tuple[Figure, dict[str, Any]]:
    """New products that the first two shops find, by the steps of their training."""
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.4), sharey=True, layout="constrained")
    drawn: dict[str, Any] = {}
    styles: dict[str, Any] = {
        "all layers": {"ls": "-", "lw": 2.4, "marker": "o"},
        "trained head": {"ls": "--", "lw": 1.4, "marker": "o"},
        "whitening": {"ls": ":", "lw": 2},
    }
    for axes, (learned, ways) in zip(panels, found.items(), strict=True):
        for (way, style), kind in itertools.product(styles.items(), KINDS):
            curve = {step: mean_of(each, kind) for step, each in ways[way][0].items()}
            if way == "whitening":  # it takes no steps
                curve = dict.fromkeys(ways["all layers"][0], *curve.values())
            drawn.setdefault(learned, {})[f"{way}: {kind}"] = curve
            axes.plot([*curve], [*curve.values()], color=INKS[kind], ms=5, **style)
        axes.set_title(f"learned from {learned}", loc="left", fontsize=9.5, weight="bold")
        axes.set(xlabel="steps", xticks=[*ways["all layers"][0]])
        axes.grid(False, axis="x")
    panels[0].set_ylabel("new products found\n(Recall@1, %)")
    for kind in KINDS:
        panels[0].plot([], [], "s", color=INKS[kind], label=f"new {kind}")
    for way, style in styles.items():
        panels[0].plot([], [], color="0.3", label=way, **style | {"marker": ""})
    fig.legend(loc="outside lower center", ncols=5, fontsize=8.5)
    return fig, drawn


def by_shop(of: Kept, learned: Sequence[str], searched: str, plus: str,
            minus: str = "") -> NDArray[np.float64]:  # fmt: skip
    """Recall@1 (%) of new products of a kind by a way, or what it finds more than another; the mean
    over the kinds that were learned, by pair of shops."""

    def found(way: str) -> NDArray[np.float64]:
        return np.array([[mean_of(one, searched) for one in of[k][way]] for k in learned])

    gain = found(plus) - found(minus) if minus else found(plus)
    mean: NDArray[np.float64] = gain.mean(axis=0)
    return mean


def by_set(*asked: Any) -> dict[str, Any]:
    """The same as the mean of each of the four sets of new products, and the 95 % interval if sets
    were drawn anew.

    >>> names = [name for name, kind in products()[0].items() if kind == "fruit"]
    >>> eight = [dict.fromkeys(names, float(k)) for k in range(8)]
    >>> by_set({"cartons": {"head": eight}}, ["cartons"], "fruit", "head")["values"]
    [2.0, 3.0, 4.0, 5.0]
    """
    return figures.summary(by_shop(*asked).reshape(-1, 4).mean(axis=0))


def answer(
    cells: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Any], rival: str,
    live: Sequence[float],
) -> Figure:  # fmt: skip
    """Left, new cartons that each way finds, by what was learned; right, what all layers find more;
    live: the reader's own of the first rows."""
    fig, (left, right) = plt.subplots(
        1, 2, figsize=(6.5, 4.2), layout="constrained", width_ratios=(1.15, 1)
    )
    for learned, ls in zip(KINDS, ("-", "--"), strict=True):
        found = [cells[f"{learned} → cartons, {way}: level"] for way in WAYS]
        ink = INKS[learned]
        left.plot([its["mean"] for its in found], "o", ls=ls, color=ink, ms=7, lw=2.2)
        for x, its in enumerate(found):
            left.plot([x] * len(its["values"]), its["values"], ".", color=ink, ms=4, alpha=0.5)
        left.plot([], [], "o", ls=ls, color=ink, label=f"learned from {learned}")
    left.set_xticks(range(len(WAYS)), [way.replace(" ", "\n") for way in WAYS])
    left.set(ylabel="new cartons found (Recall@1, %)", xlim=(-0.3, len(WAYS) - 0.7))
    left.legend(loc="upper left", fontsize=8.5)
    left.set_title("all layers find most", loc="left", fontweight="bold")
    right.set_title("cartons gain, fruit is open", loc="left", fontweight="bold")
    left.grid(False, axis="x")
    figures.spans(right, rows, f"points of Recall@1\nmore than {rival}")
    right.plot(live, np.arange(len(live)) - 0.2, "D", color="#009e73", ms=6, zorder=4)
    right.tick_params(axis="y", labelsize=8.5)
    return fig


def table(of: Kept) -> str:
    """Means in percent of new products, a line for each way and kind that is learned."""
    lines = [" " * 32 + "".join(f"{'new ' + kind:>14}" for kind in KINDS)]
    for learned, ways in of.items():
        for way in WAYS:
            found = (np.mean([mean_of(one, kind) for one in ways[way]]) for kind in KINDS)
            said = "".join(f"{each:>12.1f} %" for each in found)
            lines.append(f"{'learned ' + learned + ', ' + way:<32}{said}")
    return "\n".join(lines)


#: Frozen networks that the picture of places names.
SHOWN = {
    "nyu-visionx/moco-v3-vit-b": ("MoCo-v3-B", "#009e73"),
    "facebook/dinov2-giant": ("DINOv2-giant", BLUE),
    "facebook/dinov2-small": ("DINOv2-small", "#56b4e9"),
    "google/siglip-large-patch16-384": ("SigLIP-L-384", ORANGE),
    "openai/clip-vit-base-patch32": ("CLIP-B/32", "#cc79a7"),
}


#: Frozen networks that studies/networks.py measured on groceries.
FROZEN = ("mobilenet_v2", "tf_efficientnet_lite0", "tf_efficientnet_lite2")
#: Heads of the earlier study that thinned products and photographs, and what their maps say.
HEADS = {"head from principal axes": "begins at principal axes", "head": "begins at random"}
CLASSES, EACH = (5, 10, 20, 40, 60), (2, 5, 10, 20, 40)
THINNED = dmlkit.ROOT / "data" / "evidence" / "25_thinned.csv"


def halfway() -> dict[str, Any]:
    """What 60 steps at 224 pixels brought, by product (mean of three draws of photographs)."""
    study = pd.read_csv(THINNED)

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


def thinned() -> tuple[Figure, dict[str, Any]]:
    """What two narrow heads gain on untouched features, by products and photographs of each."""
    study = pd.read_csv(THINNED)
    study = study[study["measure"] == "recall_at_1"]
    every = data.load("grocery64", "test", fold=None)
    kind_of = dict(zip(np.array(every.class_names)[every.labels], every.groups, strict=True))

    def of(way: str) -> pd.Series:
        return 100 * pd.concat([pd.Series(json.loads(p)) for p in study[study.arm == way].by_class])

    gains: dict[str, Any] = {}
    for way in HEADS:
        ways = [[f"{way}, {C} × {n}" for n in EACH] for C in CLASSES]
        cells = [[interval(by_kinds(of(name) - of("untouched"), kind_of))[:3] for name in row]
                 for row in ways]  # fmt: skip
        ends = np.moveaxis(np.array(cells), 2, 0)
        gains[way] = dict(zip(("mean", "low", "high"), ends, strict=True))
    fig, panels = plt.subplots(1, 2, figsize=(6.5, 3.4), sharey=True, layout="constrained")
    for axes, (kind, its) in zip(panels, gains.items(), strict=True):
        mean, low, high = (np.array(its[key]) for key in ("mean", "low", "high"))
        axes.imshow(mean, cmap="RdBu", vmin=-12, vmax=12, origin="lower")
        for (r, c), value in np.ndenumerate(mean):
            weight = "bold" if low[r, c] > 0 or high[r, c] < 0 else "normal"
            said = f"{value:+.1f}".replace("-", "−")
            axes.text(c, r, said, ha="center", va="center", fontsize=8, fontweight=weight)
        axes.set_xticks(range(len(EACH)), map(str, EACH))
        axes.set_yticks(range(len(CLASSES)), map(str, CLASSES))
        axes.set_title(HEADS[kind], fontweight="bold", loc="left", fontsize=10)
        axes.grid(False)
    panels[0].set_ylabel("products")
    fig.supxlabel("photographs of each product", fontsize=9)
    kept = {way: {end: cells.tolist() for end, cells in its.items()} for way, its in gains.items()}
    return fig, {"gains": kept, "halfway": halfway()}


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
    own = pd.read_csv(dmlkit.ROOT / "data" / "evidence" / "25_networks.csv", index_col="class")
    first = place.eq(1).any(axis=1) & place.eq(1).all(axis=1)
    return fig, {
        "networks": len(hits),
        "groceries": {name: figures.summary(100 * own[f"{name}@224"]) for name in FROZEN},
        "agree": [float(agree.min()), float(agree.max())],
        "first everywhere": int(first.sum()),
        "best of worst places": float(place.max(axis=1).min()),
        "places": {name: place.loc[method].to_dict() for method, (name, _) in SHOWN.items()},
        "hits": {name: hits.loc[method].to_dict() for method, (name, _) in SHOWN.items()},
    }
