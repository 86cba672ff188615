"""What lesson 26 loads, counts and draws."""

import base64
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import Tensor

from dmlkit import data, figures, search, training
from dmlkit.data.images import ImageSet
from dmlkit.diagnosis import apart
from dmlkit.lessons.kinds import wider
from dmlkit.statistics import interval

NETWORK, SIDE = "tf_efficientnet_lite0", 224
NINE = tuple(k / 10 for k in range(1, 10))
COUNTED = ("strangers", "right", "wrong")
Met = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
Parts = Sequence[tuple[np.ndarray, np.ndarray]]  # of each catalog: its products, fates (T, P, 3)


class Shop(NamedTuple):
    """Photographs of a catalog, then queries, with what networks make of them."""

    x: Tensor  # (N, d)
    tuned: np.ndarray | None  # (N, d), of length 1
    product: np.ndarray  # (N,)
    shown: int  # photographs of the catalog; the rest are queries
    names: np.ndarray  # (P,)
    shelf: np.ndarray | None  # (P,): fruit, cartons, vegetables
    small: ImageSet  # to be shown
    where: np.ndarray  # (N,): its rows


def _flat(of: ImageSet) -> Tensor:
    """Features that are kept as images of one pixel: (N, d)."""
    return of.images[:].flatten(1)


def groceries() -> Shop:
    """81 groceries, untouched features, and those of networks that never saw the product."""
    features: dict[str, Any] = {"features": f"{NETWORK}@{SIDE}", "gallery": "visit"}
    shop = data.load("grocery", "test", fold=None, **features)
    asks = np.asarray(shop.queries)
    rows = np.concatenate([np.flatnonzero(~asks), np.flatnonzero(asks)])
    made = data.load("grocery", "test", fold=None, features="photos_grocery_lite0@128")
    names = np.array(shop.class_names)
    first, last = (list(names).index(n) for n in ("Bravo-Apple-Juice", "Yoggi-Vanilla-Yoghurt"))
    place = np.arange(len(names))
    return Shop(
        x=_flat(shop)[torch.from_numpy(rows)],
        tuned=F.normalize(_flat(made)).numpy()[rows],
        product=shop.labels[rows],
        shown=int((~asks).sum()),
        names=names,
        shelf=np.where(place < first, 0, np.where(place <= last, 1, 2)),
        small=data.load("grocery64", "test", fold=None),
        where=rows,
    )


def yours(run: str, photographs: str, visit: str, device: str) -> Shop:
    """Photographs of your own, or a Run of them."""
    tuned = None
    if run:
        if photographs != "grocery":
            os.environ["DMLKIT_DATA"] = photographs
        mine = search.find_run(run)
        own = data.load(mine.experiment.data, mine.experiment.split, **mine.experiment.data_args)
        before, tuned = training.untrained(mine.experiment, device), mine.embeddings
        kept = before.get("untouched features", before.get("raw pixels"))
        features = np.asarray(kept)
    else:
        kind = "features" if photographs.endswith(".npz") else "folder"
        seen = {"crop": SIDE, "resize": SIDE * 9 // 8, "keep_aspect": True}
        given: dict[str, Any] = {} if kind == "features" else {"visit": visit or None, **seen}
        own = data.load(kind, "test", photographs, test_share=1, **given)
        frozen = own if kind == "features" else training.frozen(own, NETWORK)
        features = _flat(frozen).numpy()
    if own.queries is None:
        own = apart(own, features)
        said = "No visits are told, so each picture stays on one side with the nearest of its "
        warnings.warn(said + "product. Expect less: see `diagnosis.apart`.", stacklevel=2)
    asks = own.queries
    if asks is None:
        raise ValueError("expected photographs with queries, got none")
    shown, classes = ~asks, own.num_classes
    fit = np.bincount(own.labels[shown], minlength=classes) > 0
    fit = (fit & (np.bincount(own.labels[asks], minlength=classes) > 0))[own.labels]
    rows = np.concatenate([np.flatnonzero(shown & fit), np.flatnonzero(asks & fit)])
    found, product = np.unique(own.labels[rows], return_inverse=True)
    if len(found) < 16:
        raise ValueError(
            "expected 16 products or more, each with a query and a picture of another visit, got "
            f"{len(found)}"
        )
    return Shop(
        x=torch.from_numpy(features[rows]),
        tuned=None if tuned is None else F.normalize(torch.from_numpy(tuned[rows])).numpy(),
        product=product,
        shown=int((shown & fit).sum()),
        names=np.array(own.class_names)[found],
        shelf=None,
        small=own,
        where=rows,
    )


def by_product(values: np.ndarray, of: np.ndarray) -> np.ndarray:
    """Each product counts the same: (Q, ...) -> means (P, ...), of its queries each."""
    return np.array([values[of == each].mean(axis=0) for each in np.unique(of)])


def meet(shop: Shop, z: np.ndarray, some: np.ndarray, hidden: np.ndarray, gap: bool = False) -> Met:
    """Of each query: its product, its score as a stranger and as it is, is its best right? (Q,).

    The catalog holds some products; a stranger meets all of them but what is hidden (P, P).
    """
    photos, queries = np.split(np.arange(len(shop.product)), [shop.shown])
    q, g = (rows[np.isin(shop.product[rows], some)] for rows in (queries, photos))
    cosines, asked = z[q] @ z[g].T, shop.product[q]  # (Q, G), (Q,)
    near = np.stack([cosines[:, shop.product[g] == k].max(axis=1) for k in some], axis=1)
    right = asked == some[near.argmax(axis=1)]
    stranger = np.where(hidden[asked][:, some], -1, near)
    both = (np.sort(s, axis=1) for s in (stranger, near))
    lonely, known = (s[:, -1] - gap * s[:, -2] for s in both)
    return asked, lonely, known, right


def cost(fates: np.ndarray, price: float, rate: float = 0.2) -> np.ndarray:
    """What 100 customers cost: shares (..., 3) of strangers answered, known right, wrong."""
    strangers, right, wrong = np.moveaxis(fates, -1, 0)
    return np.asarray(rate * strangers + (1 - rate) * (wrong + price * (100 - right - wrong)))


def fates_of(
    of: np.ndarray,
    lonely: np.ndarray,
    known: np.ndarray,
    right: np.ndarray,
    at: Sequence[float] | None = None,
) -> np.ndarray:
    """What happens to the queries of each product (%), at 301 thresholds or those told: (T, P, 3).

    Strangers that are answered, known queries that are answered right, and wrong.
    """
    if at is None:
        at = [-1, *np.quantile(np.r_[lonely, known], np.linspace(0, 1, 300))]
    t, each = np.array(at)[:, None], of[:, None] == np.unique(of)  # (T, 1), (Q, P)
    mean, answered = 100 * each / each.sum(axis=0), known > t
    fates = (lonely > t, answered & right, answered & ~right)  # (T, Q) each
    return np.stack([fate @ mean for fate in fates], axis=2)


def table(met: Sequence[Met]) -> Parts:
    """Of each catalog its products, and what happens to their queries by 301 thresholds."""
    return [(np.unique(one[0]), fates_of(*one)) for one in met]


def shares(
    met: Mapping[str, Sequence[Met]], at: Sequence[float] = tuple(np.arange(101) / 100)
) -> dict[str, np.ndarray]:
    """Shares (%) at thresholds, 0 to 1, all catalogs together: (T, 3)."""
    found = {}
    for name, parts in met.items():
        of, lonely, known, right = (np.concatenate(part) for part in zip(*parts, strict=True))
        found[name] = fates_of(of, lonely, known, right, at).mean(axis=1)
    return found


def _large(shop: Shop) -> Any:
    """The photographs as the network saw them; of groceries None where they are not there."""
    if shop.shelf is None:
        return shop.small.images
    try:
        seen: dict[str, Any] = {"crop": SIDE, "resize": SIDE, "keep_aspect": True}
        large = data.load("grocery", "test", fold=None, **seen)
        large.images[0]
    except OSError:
        return None
    return large.images


def stranger(
    shop: Shop, near: np.ndarray, asked: np.ndarray, z: np.ndarray
) -> tuple[Figure, dict[str, list[float]]] | None:
    """A usual and a hard stranger, each beside the two products found; None without photographs."""
    if (pictures := _large(shop)) is None:
        return None
    photos, queries = np.split(np.arange(len(shop.product)), [shop.shown])
    others = np.where(asked[:, None] == np.arange(len(shop.names)), -1, near)
    fig, panels = plt.subplots(2, 3, figsize=(5.5, 4.1), layout="constrained")
    cosines = {}
    for line, (name, place) in zip(
        panels, {"A usual stranger": 0.5, "A hard stranger": 0.9}.items(), strict=True
    ):
        i = others.max(axis=1).argsort()[int(place * len(others))]
        s = np.where(shop.product[photos] == asked[i], -1, z[queries[i]] @ z[photos].T)
        order = s.argsort()[::-1]
        first = np.unique(shop.product[photos][order], return_index=True)[1]
        two = order[np.sort(first)[:2]]
        cosines[name] = s[two].tolist()
        said = [
            name,
            *(f"{place}: {s[at]:.2f}" for place, at in zip(("1st", "2nd"), two, strict=True)),
        ]
        for axes, row, text in zip(line, [queries[i], *photos[two]], said, strict=True):
            axes.imshow(pictures[shop.where[row]].permute(1, 2, 0).numpy(), cmap="gray")
            figures.bare(axes, f"{text}\n{shop.names[shop.product[row]].replace('-', ' ')}")
        line[0].title.set(color=figures.WRONG, fontweight="bold")
    return fig, cosines


def ten(
    shop: Shop, kinds: Mapping[str, tuple[np.ndarray, Sequence[np.ndarray]]]
) -> tuple[list[dict[str, Any]], list[np.ndarray]]:
    """Ten customers, the last two strangers: what each finds, and their photographs."""
    photos, queries = np.split(np.arange(len(shop.product)), [shop.shown])
    product, rng = shop.product, np.random.default_rng(0)
    drawn = rng.permutation(len(shop.names))[:10]
    rows = [rng.choice(queries[product[queries] == k]) for k in drawn]
    pixels = [
        shop.small.images[shop.where[q]].expand(3, -1, -1).permute(1, 2, 0).numpy() for q in rows
    ]
    customers: list[dict[str, Any]] = []
    for i, (q, picture) in enumerate(zip(rows, pixels, strict=True)):
        file = io.BytesIO()
        Image.fromarray(picture).resize((44, 44)).save(file, "JPEG", quality=60)
        source = "data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode()
        one: dict[str, Any] = {"stranger": i > 7, "name": str(shop.names[product[q]]), "of": {}}
        for name, (z, catalogs) in kinds.items():
            some = next(c for c in catalogs if product[q] in c)
            g = photos[np.isin(product[photos], some)]
            g = g[product[g] != product[q]] if i > 7 else g
            s = z[q] @ z[g].T
            found = product[g[s.argmax()]]
            said = {"found": str(shop.names[found]), "right": bool(found == product[q])}
            one["of"][name] = said | {"cosine": float(s.max())}
        customers.append(one | {"src": source})
    return customers, pixels


def prices(
    curves: Mapping[str, np.ndarray],
    customers: Sequence[Mapping[str, Any]],
    pixels: Sequence[np.ndarray],
    shown: str,
) -> tuple[Figure, dict[str, Any]]:
    """Ten customers at three prices, each with the cheapest threshold."""
    fig, panels = plt.subplots(3, 10, figsize=(6, 2.4))
    for line, price in zip(panels, (0.2, 0.5, 0.8), strict=True):
        t = cost(curves[shown], price).argmin() / 100
        for axes, customer, picture in zip(line, customers, pixels, strict=True):
            its = customer["of"][shown]
            answered, right = its["cosine"] > t, its["right"]
            gray = 255 - (255 - picture.mean(axis=2)) / 4
            axes.imshow(picture if answered else gray, cmap="gray", vmin=0, vmax=255)
            mark, ink = ("right", figures.RIGHT) if right else ("wrong", figures.WRONG)
            figures.bare(axes)
            axes.set_xlabel(
                mark if answered else "?", color=ink if answered else "0.4", fontsize=8, labelpad=1
            )
        line[0].set_ylabel(f"price {price}", rotation=0, ha="right", va="center", fontsize=9)
    for i, words in ((0, "eight customers with a product of the catalog"), (8, "two strangers")):
        at = panels[0, i].text(0, 1.1, words, fontsize=9, transform=panels[0, i].transAxes)
        at.set_in_layout(False)
    drawn: dict[str, Any] = {
        name: {which: figures.example(values.tolist())
               for which, values in zip(COUNTED, curve.T, strict=True)}
        for name, curve in curves.items()
    }  # fmt: skip
    return fig, drawn | {"customers": figures.example(customers)}


def _nearer(a: np.ndarray, of_a: np.ndarray, b: np.ndarray, of_b: np.ndarray) -> float:
    """How often (%) a cosine of a is above one of b, each with its weight: (A,), (B,)."""
    order = b.argsort()
    below = np.r_[0, of_b[order].cumsum()] / of_b.sum()
    return float(100 * (below[np.searchsorted(b[order], a)] * of_a).sum() / max(of_a.sum(), 1e-9))


def auroc(parts: Sequence[Met]) -> float:
    """How often (%) a right answer has a higher score than a stranger; products count alike."""
    of, other, best, right = (np.concatenate(part) for part in zip(*parts, strict=True))
    each = 1 / np.bincount(of)[of]
    return _nearer(best[right], each[right], other, each)


def histogram(met: Mapping[str, Sequence[Met]]) -> tuple[Figure, dict[str, Any]]:
    """Scores of known queries upwards and of strangers downwards, a panel for each score."""
    fig, panels = plt.subplots(len(met), 1, figsize=(6.5, 1.7 * len(met)), sharey=True)
    fig.set_layout_engine("constrained")
    above = {}
    lowest = min(
        float(np.quantile(s, 0.002)) for n, m in met.items() for _, s, _, _ in m if "gap" not in n
    )
    lowest = min(0.4, lowest)
    for axes, (name, parts) in zip(panels, met.items(), strict=True):
        of, other, best, right = (np.concatenate(part) for part in zip(*parts, strict=True))
        each = 100 / np.bincount(of)[of] / len(np.unique(of))  # products count the same
        gap = "gap" in name
        low, high = (0.0, float(np.quantile(best, 0.98))) if gap else (lowest, 1.0)
        bins = np.linspace(low, high, 41 if gap else 61).tolist()
        ends = np.linspace(low, high, 101).tolist()
        t = ends[int(cost(shares({name: parts}, ends)[name], 0.5).argmin())]
        axes.hist([best[~right], best[right]], bins, weights=[each[~right], each[right]],
                  stacked=True, color=["0.45", figures.RIGHT])  # fmt: skip
        axes.hist(other, bins, weights=-each, color=figures.WRONG)
        axes.plot([t, t], [-19, 19], color="black", lw=2)
        above[name] = auroc(parts)
        axes.axhline(0, color="0.3", lw=1)
        axes.set_title(f"{name}: AUROC {above[name]:.0f} %", loc="left", weight="bold", fontsize=10)
        axes.set(ylim=(-20, 20), yticks=[-15, 0, 15], yticklabels=["15 %", "0", "15 %"])
        axes.set(xlim=(low, high), xlabel="gap to the second product" if gap else "cosine")
        axes.grid(False)
    words = {
        "known, first match right": (14, figures.RIGHT),
        "known, first match wrong": (8, "0.45"),
        "strangers": (-13, figures.WRONG),
    }
    for word, (height, ink) in words.items():
        panels[0].text(lowest + 0.01, height, word, color=ink, fontweight="bold")
    return fig, {"AUROC": {name: figures.example(s) for name, s in above.items()}}


def sweep(
    scores: Mapping[int, np.ndarray], tuned: float | None, curves: Mapping[str, np.ndarray]
) -> tuple[Figure, dict[str, Any]]:
    """What a threshold saves by the number of steps of the head."""
    fig, axes = plt.subplots(figsize=(6.5, 3))
    floor = {} if tuned is None else {"fine-tuned": tuned}
    drawn = figures.sweep(axes, scores, floor, unit="", digits=1)
    axes.set(
        ylim=(0, None), xlabel="steps of the head", ylabel="wrong answers saved\nper 100 customers"
    )
    drawn["minus none"] = {
        str(most): figures.sample(each - scores[0]) for most, each in scores.items() if most
    }
    drawn["at one in ten"] = {
        name: dict(zip(COUNTED, map(figures.example, c[(c[:, 0] <= 10).argmax()]), strict=True))
        for name, c in curves.items()
    }
    return fig, drawn


def summary(by_price: Mapping[float, np.ndarray]) -> dict[str, Any]:
    """Savings by price, over the groups."""
    return {"price": {f"{p:g}": figures.sample(by_price[p]) for p in NINE}}


def _ink(name: str, untouched: str) -> str:
    """The color of an embedding and a score."""
    return figures.RIGHT if "gap" in name else "black" if "fine-tuned" in name else untouched


def _label(name: str, panel: int) -> str:
    """What the title of a panel does not say of "untouched, 81, gap"."""
    features, products, *gap = name.split(", ")
    score = "gap" if gap else "cosine"
    if panel == 0:
        return score
    whose = f"{features}, {products}" if features == "fine-tuned" else products
    return f"{features}, cosine" if panel == 1 else f"{whose}: {score}"


def by_size(
    saved: Mapping[str, Mapping[int, np.ndarray]],
    equal: Mapping[str, Mapping[int, float]],
    prices: Mapping[int, Sequence[float]],
    shop: Shop,
) -> tuple[Figure, dict[str, Any]]:
    """What a threshold saves by the products of a catalog, of each product: {score: {size: (P,)}},
    at its ``equal`` price; and by the nine prices, {size: means}, of the untouched cosine.

    Intervals are over products or over their kinds, whichever are wider.
    """
    kinds = pd.Series(shop.small.groups[shop.where]).groupby(shop.product).first()
    fig, (axes, chart) = plt.subplots(1, 2, figsize=(7.2, 3.7), width_ratios=(1.35, 1))
    drawn: dict[str, Any] = {}
    price = equal["untouched: cosine"]
    for name, of in saved.items():
        drawn[name] = {f"{n}": figures.summary(wider(each, kinds)) for n, each in of.items()}
        _curve(axes, name, drawn[name], [*of], [*price][-1])
    every = [*price]
    axes.set(
        xscale="log",
        xlabel="products of the catalog;\nbelow, the equal price (untouched)",
        ylabel="wrong answers saved, of 100 customers",
        xlim=(every[0] * 0.9, every[-1] * 1.1),
        ylim=(-2, 20),
        yticks=range(0, 21, 5),
    )
    axes.set_xticks(every, [f"{n}\n{price[n]:.2f}" for n in every])
    axes.minorticks_off()
    axes.axhline(0, color="0.3", lw=1)
    axes.axhline(2, color="0.3", lw=1, ls=":")
    axes.text(every[0], 1.8, "2: a threshold pays", color="0.3", fontsize=8, va="top")
    axes.set_title("the more products, the less\nthe cosine saves (equal price)", loc="left",
                   fontweight="bold", fontsize=10)  # fmt: skip
    _map(chart, prices, price)
    drawn["equal price"] = {
        name: {f"{n}": figures.example(p) for n, p in of.items()} for name, of in equal.items()
    }
    drawn["right"] = {f"{n}": figures.example(100 * (1.25 - p)) for n, p in price.items()}
    drawn["by price"] = {f"{n}": figures.sample(of) for n, of in prices.items()}
    return fig, drawn


def _curve(
    axes: Axes, name: str, found: Mapping[str, Any], sizes: Sequence[int], most: int
) -> None:
    """One score: means, bands, and filled dots where a threshold pays."""
    first = name == "untouched: cosine"
    ink = {"untouched: cosine": figures.WRONG, "untouched: gap": figures.RIGHT}.get(name, "black")
    ends = pd.DataFrame(found).T[["mean", "low", "high"]].astype(float)
    shade = 0.2 if first else 0.1
    axes.fill_between(sizes, ends["low"], ends["high"], color=ink, alpha=shade, lw=0)
    axes.plot(sizes, ends["mean"], color=ink, lw=2.6 if first else 1.3, ls="-" if first else "--")
    for n, (mean, low, _) in zip(sizes, ends.to_numpy(), strict=True):
        axes.plot(n, mean, "o", color=ink, mfc=ink if low > 2 else "white", ms=7 if first else 5)
    last = -1 if sizes[-1] == most else 0
    said, up = name.replace(": ", ":\n"), -8 if "cosine" in name else 8
    axes.annotate(name if last == 0 else said, (sizes[last], ends["mean"].iloc[last]),
                  (8, 8) if last == 0 else (9, up), textcoords="offset points", color=ink,
                  fontweight="bold", fontsize=8.5, va="bottom" if last == 0 else "center",
                  annotation_clip=False)  # fmt: skip


def _map(axes: Axes, prices: Mapping[int, Sequence[float]], equal: Mapping[int, float]) -> None:
    """Savings by size and price, and the price at which always and never cost alike."""
    values = np.array([*prices.values()])  # (sizes, 9)
    axes.imshow(values, cmap="RdBu", vmin=-18, vmax=18, origin="lower", aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        axes.text(column, row, f"{value:.0f}".replace("-0", "0").replace("-", "−"), ha="center",
                  va="center", fontsize=8, fontweight="bold", zorder=4)  # fmt: skip
    axes.plot([10 * p - 1 for p in equal.values()], range(len(equal)), "--", color="black", lw=1.5,
              alpha=0.7)  # fmt: skip
    axes.set_xticks(range(0, 9, 2), [f"{p:g}" for p in NINE[::2]])
    axes.set_yticks(range(len(values)), [f"{n}" for n in prices])
    axes.set(xlabel="price of a refusal", ylabel="products")
    axes.grid(False)
    axes.set_title("cosine, at all prices;\ndashed: the equal price", loc="left",
                   fontweight="bold", fontsize=10)  # fmt: skip


def by_price(
    saved: Mapping[str, Mapping[str, Mapping[float, np.ndarray]]],
    alike: Mapping[str, float],
) -> Figure:
    """What a threshold saves by the price: a panel for each comparison."""
    fig, panels = plt.subplots(1, len(saved), figsize=(6.5, 3.5), sharey=True, squeeze=False)
    for k, (axes, (title, each)) in enumerate(zip(panels[0], saved.items(), strict=True)):
        for line, (name, by_price) in enumerate(each.items()):
            ink = _ink(name, "0.45" if k != 1 else figures.WRONG)
            found = np.array([interval(by_price[p])[:3] for p in NINE])
            axes.plot(NINE, found[:, 0], "o-", color=ink, lw=1.8, ms=4)
            if np.isfinite(found[:, 1]).all():
                axes.fill_between(NINE, found[:, 1], found[:, 2], color=ink, alpha=0.16, lw=0)
            if k < 2 and name in alike:
                axes.plot(alike[name], -3.4, "^", color=ink, ms=7, clip_on=False)
            axes.text(0.04, 0.98 - 0.075 * line, _label(name, k), color=ink,
                      weight="bold", fontsize=9, transform=axes.transAxes, va="top")  # fmt: skip
        axes.axhline(0, color="0.3", lw=1)
        axes.axhline(2, color="0.3", lw=1, ls=":")
        if k == 0:
            axes.text(0.07, 2.2, "2 per 100", color="0.3", fontsize=8, va="bottom")
        axes.set(xlim=(0.05, 0.95), xticks=[0.1, 0.3, 0.5, 0.7, 0.9], xlabel="price of a refusal",
                 ylim=(-4, 27))  # fmt: skip
        axes.set_title(title, fontweight="bold", loc="left", fontsize=10)
        axes.grid(False)
    panels[0, 0].set_ylabel("wrong answers saved per 100 customers")
    return fig


def check_same(
    near: np.ndarray,
    hidden: np.ndarray,
    fates: Callable[..., np.ndarray],
    cost_of: Callable[..., np.ndarray],
    shop: Shop,
    z: np.ndarray,
) -> None:
    """The page's code equals dmlkit's."""
    from dmlkit import openset

    photos, queries = np.split(np.arange(len(shop.product)), [shop.shown])
    theirs = openset.meet(z[queries], shop.product[queries], z[photos], shop.product[photos])
    size = len(shop.names)
    of, lonely, known, right = meet(shop, z, np.arange(size), np.eye(size, dtype=bool))
    np.testing.assert_allclose(hidden.max(axis=1), theirs.stranger, atol=1e-5, err_msg="strangers")
    np.testing.assert_allclose(near.max(axis=1), np.maximum(theirs.own, theirs.stranger), atol=1e-5)
    mine = fates_of(of, lonely, known, right, [0.8])[0].mean(axis=0)
    np.testing.assert_allclose(fates(0.8, hidden.max(axis=1), near.max(axis=1)), mine)
    np.testing.assert_allclose(cost_of(mine, 0.5), cost(mine, 0.5))
