"""What lesson 12 draws and prepares."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Circle, Rectangle
from scipy import optimize
from torch import Tensor

from dmlkit import figures, statistics
from dmlkit.data import features
from dmlkit.losses import hyperbolic

#: What an ImageNet network makes of the photographs.
FEATURES = "tf_efficientnet_lite0@128"
COLORS = {"Fruit": "#d55e00", "Vegetables": "#009e73", "Packages": "#0072b2"}
INK = "#0072b2"
Node = tuple[str, ...]


def groceries() -> tuple[list[Node], list[int]]:
    """The tree's nodes as paths from the root (), and the place of each one's parent."""
    listing, _ = features.read("grocery", FEATURES)
    products = {
        (path.split("/")[1], str(group), str(name))  # such as Fruit, Apple, Royal-Gala
        for path, group, name in zip(listing.paths, listing.groups, listing.names, strict=True)
    }
    nodes = sorted({product[:depth] for product in products for depth in range(4)})
    return nodes, [nodes.index(node[:-1]) if node else -1 for node in nodes]


def edges_between(parents: Sequence[int]) -> Tensor:
    """Edges from each node to each other; a parent comes before its children: (N, N)."""
    T = torch.zeros(len(parents), len(parents), dtype=torch.float64)
    for k, parent in enumerate(parents[1:], start=1):  # node 0 is the root
        T[k, :k] = T[:k, k] = T[parent, :k] + 1
    return T


def pairs(x: Tensor) -> Tensor:
    """Of a table (N, N) every pair once: (N(N − 1)/2,)."""
    return x[tuple(torch.triu_indices(len(x), len(x), 1))]


def drawing(nodes: Sequence[Node]) -> Tensor:
    """The tree as one draws it, a node in the middle of its leaves: (N, 2)."""
    depth = torch.tensor([len(node) for node in nodes])
    leaves = [node for node in nodes if len(node) == 3]
    turns = [np.mean([leaves.index(leaf) for leaf in leaves if leaf[: len(n)] == n]) for n in nodes]
    angle = math.tau / len(leaves) * torch.tensor(np.array(turns))
    return depth[:, None] / 2 * torch.stack([angle.cos(), angle.sin()], dim=1)


def ancestors(parents: Sequence[int]) -> Tensor:
    """Of each node all nodes above it; a parent comes before its children: (N, N) of bool."""
    above = torch.zeros(len(parents), len(parents), dtype=torch.bool)
    for k, parent in enumerate(parents[1:], start=1):  # node 0 is the root
        above[k] = above[parent]
        above[k, parent] = True
    return above


def random_tree(seed: int, depth: int = 6) -> Tensor:
    """Ancestors of 127 nodes: 1, 2, 4, …, 64 on a level, each with a random parent above it."""
    draw, parents, above = np.random.default_rng(seed), [-1], [0]
    for level in range(1, depth + 1):
        first = len(parents)
        parents += sorted(draw.choice(above, 2**level).tolist())
        above = list(range(first, len(parents)))
    return ancestors(parents)


def shuffled(above: Tensor, seed: int, tries: int = 20_000) -> Tensor:
    """Links that trade their ends, two by two: every node keeps both of its numbers of links."""
    draw, mixed = np.random.default_rng(seed), above.numpy().copy()
    links = np.argwhere(mixed)
    for i, j in draw.integers(len(links), size=(tries, 2)):
        (a, x), (b, y) = links[i], links[j]
        if len({a, b, x, y}) == 4 and not (mixed[a, y] or mixed[b, x]):
            mixed[a, x] = mixed[b, y] = False
            mixed[a, y] = mixed[b, x] = True
            links[i, 1], links[j, 1] = y, x
    return torch.from_numpy(mixed)


def off(u: Tensor, c: float, wanted: Tensor) -> float:
    """The typical error of distances (N(N − 1)/2,) of vectors (N, d) at c, in percent."""
    x = hyperbolic.exponential_map(u, c)
    return float(
        100 * (pairs(hyperbolic.poincare_distances(x, x, c)) / wanted - 1).square().mean() ** 0.5
    )


def placed(
    nodes: Sequence[Node], wanted: Tensor, roots: Sequence[int] = (0, 1, 2, 3)
) -> dict[int, Tensor]:
    """Vectors with nearly the wanted distances, by c: a search (L-BFGS) at each root of c."""
    noise = torch.Generator().manual_seed(0)
    u, found = drawing(nodes) + 0.01 * torch.randn(len(nodes), 2, generator=noise).double(), {}
    for root in roots:

        def objective(v: np.ndarray, c: int = root**2) -> tuple[float, np.ndarray]:
            w = torch.from_numpy(v).reshape(len(nodes), 2).requires_grad_()
            x = hyperbolic.exponential_map(w, c)
            ratio = pairs(hyperbolic.poincare_distances(x, x, c)) / wanted
            loss = (ratio - 1).square().mean()
            (slope,) = torch.autograd.grad(loss, w)
            return loss.item(), slope.numpy().ravel()

        most = {"maxiter": 500, "maxfun": 1000, "ftol": 1e-9, "gtol": 1e-9}
        end = optimize.minimize(
            objective, u.numpy().ravel(), jac=True, method="L-BFGS-B", options=most
        )
        u = found[root**2] = torch.from_numpy(end.x).reshape(len(nodes), 2)
    return found


def moved(x: np.ndarray, a: complex, c: float) -> np.ndarray:
    """Complex numbers, after a has gone to the center: no distance changes."""
    return np.asarray((x - a) / (1 - c * np.conj(a) * x))


def into_disc(v: np.ndarray, c: float) -> np.ndarray:
    """The exponential map on complex numbers."""
    n = np.maximum(c**0.5 * abs(v), 1e-9)
    return np.asarray(v * np.tanh(n) / n)


def _geodesic(a: complex, b: complex, c: float) -> np.ndarray:
    """Points of the shortest way: the straight line, seen from a."""
    v = moved(np.array(b), a, c)
    t = np.linspace(0, 1, 30)
    if c > 0:
        t = np.tanh(t * np.arctanh(c**0.5 * abs(v))) / (c**0.5 * abs(v))
    return moved(t * v, -a, c)


def tree(
    places: Mapping[int, Tensor], wrong: Mapping[int, float], nodes: Sequence[Node]
) -> tuple[Figure, dict[str, Any]]:
    """The tree flat, and in one disc seen from its root and from fruit."""
    index = {node: k for k, node in enumerate(nodes)}
    views: tuple[tuple[int, Node, str], ...] = (
        (0, (), f"flat: typical error {wrong[0]:.0f} %"),
        (4, (), f"disc, c = 4: {wrong[4]:.0f} %"),
        (4, ("Fruit",), "the same disc, moved"),
    )
    spots: tuple[tuple[tuple[str, float, float], ...], ...] = (  # as parts of the panel
        (("Fruit", 0.3, 0.95), ("Vegetables", 0.38, 0.02), ("Packages", 0.16, 0.82)),
        (("Fruit", 0.57, 0.77), ("Vegetables", 0.62, 0.26), ("Packages", 0.27, 0.57)),
        (("Fruit", 0.5, 0.5),),
    )
    fig, grid = plt.subplots(1, 3, figsize=(6.8, 2.75))
    for panel, (axes, (c, middle, told)) in enumerate(zip(grid.flat, views, strict=True)):
        u = places[c].numpy() @ (1, 1j)
        x = into_disc(u, c) if c else u
        x = moved(x, x[index[middle]], c)
        for node in nodes[1:]:  # the first is the root
            way = _geodesic(x[index[node[:-1]]], x[index[node]], c)
            axes.plot(way.real, way.imag, color=COLORS[node[0]], lw=0.8, alpha=0.7)
        colors = [COLORS[node[0]] if node else "black" for node in nodes]
        axes.scatter(x.real, x.imag, s=9, color=colors, zorder=3, lw=0)
        for name, right, up in spots[panel]:
            box = {"fc": "white", "ec": "none", "pad": 0.6, "alpha": 0.85}
            axes.text(
                right, up, name.lower(), color=COLORS[name], bbox=box, ha="center", va="center",
                fontsize=8, weight="bold", zorder=4, transform=axes.transAxes,
            )  # fmt: skip
        if c:
            axes.add_patch(Circle((0, 0), 0.5, fill=False, color="0.4", lw=1))
        axes.set(aspect="equal")
        axes.set_axis_off()
        axes.margins(0.03)
        axes.set_title(told, loc="left", weight="bold", fontsize=9)
    numbers = {
        "error in %": figures.example({f"{c:g}": error for c, error in wrong.items()}),
        "nodes": len(nodes),
        "places": figures.example({f"{c:g}": u.tolist() for c, u in places.items()}),
    }
    return fig, numbers


def heat(
    tried: Mapping[str, Mapping[tuple[float, float], float]],
) -> tuple[Figure, dict[str, Any]]:
    """Precision on validation data by c and rate, {data: {(c, rate): %}}, each best framed."""
    fig, grid = plt.subplots(1, len(tried), figsize=(6.9, 2.9))
    for axes, (name, found) in zip(np.atleast_1d(grid), tried.items(), strict=True):
        cs, rates = (sorted({key[k] for key in found}) for k in (0, 1))
        table = np.array([[found[c, rate] for c in cs] for rate in rates])
        axes.imshow(
            table, cmap="Blues", origin="lower", aspect="auto", vmin=0, vmax=1.3 * table.max()
        )
        for (j, i), value in np.ndenumerate(table):
            axes.text(i, j, f"{value:.0f}", ha="center", va="center", fontsize=9)
        kinds = {"flat": [c for c in cs if c == 0], "curved": [c for c in cs if c > 0]}
        for of in kinds.values():
            c, rate = max((k for k in found if k[0] in of), key=found.__getitem__)
            spot = cs.index(c) - 0.5, rates.index(rate) - 0.5
            axes.add_patch(Rectangle(spot, 1, 1, fill=False, ec="#d55e00", lw=2.2))
        axes.set_xticks(range(len(cs)), ["flat" if c == 0 else f"{c:g}" for c in cs])
        axes.set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
        axes.set(xlabel="c of the plane")
        axes.set_title(name, loc="left", weight="bold", fontsize=10)
        axes.grid(False)
    np.atleast_1d(grid)[0].set_ylabel("learning rate")
    return fig, {
        name: figures.example({f"{c:g}": {f"{r:g}": v for (k, r), v in of.items() if k == c}
                               for c in sorted({c for c, _ in of})})
        for name, of in tried.items()
    }  # fmt: skip


def by_dimension(
    flat: Mapping[int, Sequence[float]], curved: Sequence[float]
) -> tuple[Figure, dict[str, Any]]:
    """Precision (%) of trees, flat by its dimensions, and in the curved plane."""
    fig, axes = plt.subplots(figsize=(6.2, 3.3))
    drawn = figures.sweep(axes, flat, {}, "0.35")
    level = float(np.mean(curved))
    axes.axhline(level, color=INK, lw=2.5)
    spot = len(flat) - 0.55
    axes.text(
        -0.45, level + 1.5, f"curved plane, 2 numbers: {level:.0f} %",
        color=INK, weight="bold", fontsize=10, va="bottom",
    )  # fmt: skip
    axes.set(ylim=(0, 104), xlim=(-0.5, spot), xlabel="numbers of a flat space")
    axes.set_ylabel("mean average precision (%)")
    return fig, drawn | {"curved": figures.sample(curved)}


def numbers(values: Sequence[float], overlap: float) -> dict[str, Any]:
    """A sample with its mean and interval, which allows for the overlap."""
    mean, low, high, n = statistics.interval(values, overlap=overlap)
    kept = figures.sample(values) | {"mean": float(mean), "n": int(n)}
    return kept | {"low": float(low), "high": float(high)}


#: Inks of the verdict's rows, by what they are.
ASKED, CONTROL = INK, "0.35"


def answer(
    rows: Mapping[str, tuple[str, Sequence[float], float]], floors: Mapping[str, float]
) -> tuple[Figure, dict[str, Any]]:
    """Differences of precision, the rule's first: {row: (what it compares, values, overlap)}."""
    fig, axes = plt.subplots(figsize=(6.9, 3.7))
    axes.axvline(0, color="0.3", lw=1)
    drawn: dict[str, Any] = {}
    for k, (name, (_, values, overlap)) in enumerate(rows.items()):
        kept = numbers(values, overlap)
        ink, big = (ASKED, 1.6) if k == 0 else (CONTROL, 1)
        axes.plot(kept["values"], [k + 0.22] * kept["n"], "o", ms=3, color=ink, alpha=0.4, mew=0)
        axes.plot([kept["low"], kept["high"]], [k, k], color=ink, lw=3 * big)
        axes.plot(kept["mean"], k, "D", color=ink, ms=6 * big)
        said = f"{kept['mean']:+.1f}".replace("-", "−")
        right = kept["high"] + 1.5
        style: dict[str, Any] = {"color": ink, "va": "center", "weight": "bold", "zorder": 5}
        ground = {"facecolor": "white", "edgecolor": "none", "pad": 1}
        axes.text(right, k - 0.02, said, fontsize=10 * big**0.6, bbox=ground, **style)
        drawn[name] = kept
    labels = [f"{name}\n{compared}" for name, (compared, *_) in rows.items()]
    axes.set_yticks(range(len(rows)), labels, fontsize=9)
    axes.get_yticklabels()[0].set(weight="bold", color=ASKED)
    axes.set(ylim=(len(rows) - 0.5, -0.55), xlabel="difference of mean average precision (points)")
    axes.grid(False, axis="y")
    axes.margins(x=0.2)
    return fig, drawn | {"precision": figures.example(dict(floors))}
