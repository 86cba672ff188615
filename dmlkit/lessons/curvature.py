"""What lesson 12 draws and prepares."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Circle
from torch import Tensor

from dmlkit import data, figures
from dmlkit.data import features

#: What an ImageNet network makes of the photographs.
FEATURES = "tf_efficientnet_lite0@128"
COLORS = {"Fruit": "#d55e00", "Vegetables": "#009e73", "Packages": "#0072b2"}
INK = figures.look("hyperbolic").color
PARENTS = "#d55e00"
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


def star(size: float, points: int = 128) -> Tensor:
    """Distances of points that are all equally far from each other: (N, N)."""
    return size * (1 - torch.eye(points, dtype=torch.float64))


def cloud(size: float, dim: int = 2, points: int = 128) -> Tensor:
    """Distances of random points of a flat square or cube, ``size`` in the mean: (N, N)."""
    draw = torch.Generator().manual_seed(0)
    z = torch.rand(points, dim, generator=draw, dtype=torch.float64)
    D = torch.cdist(z, z)
    return D * size * points * (points - 1) / D.sum()


def drawing(nodes: Sequence[Node]) -> Tensor:
    """The tree as one draws it, a node in the middle of its leaves: (N, 2)."""
    depth = torch.tensor([len(node) for node in nodes])
    leaves = [node for node in nodes if len(node) == 3]
    turns = [np.mean([leaves.index(leaf) for leaf in leaves if leaf[: len(n)] == n]) for n in nodes]
    angle = math.tau / len(leaves) * torch.tensor(np.array(turns))
    return depth[:, None] / 2 * torch.stack([angle.cos(), angle.sin()], dim=1)


def dealt(nodes: Sequence[Node], seed: int) -> list[int]:
    """Parents of a tree with as many nodes on each level, each dealt to a parent at random."""
    deal, size = np.random.default_rng(seed), np.bincount([len(node) for node in nodes])
    first = np.cumsum([0, *size])
    parents = [-1]
    for level in range(1, len(size)):
        kids, above = size[level], np.arange(first[level - 1], first[level])
        own = np.concatenate([above, deal.choice(above, kids - len(above))])  # no parent without
        parents += sorted(own.tolist())
    return parents


def moved(x: np.ndarray, a: complex, c: float) -> np.ndarray:
    """Complex numbers, after a has gone to the center: no distance changes."""
    return np.asarray((x - a) / (1 - c * np.conj(a) * x))


def into_disc(v: np.ndarray, c: float) -> np.ndarray:
    """The exponential map on complex numbers."""
    n = np.maximum(c**0.5 * abs(v), 1e-9)
    return np.asarray(v * np.tanh(n) / n)


def out_of_disc(x: np.ndarray, c: float) -> np.ndarray:
    """Its inverse."""
    n = np.maximum(c**0.5 * abs(x), 1e-9)
    return np.asarray(x * np.arctanh(n) / n)


def vectors(x: Tensor, c: float) -> np.ndarray:
    """Points of the disc go back to vectors: (N, 2) -> (N, 2)."""
    u = out_of_disc(x.numpy() @ (1, 1j), c)
    return np.stack([u.real, u.imag], axis=1)


def precision(apart: Tensor, T: Tensor) -> float:
    """The claim's measure: mean average precision (%) of all nodes' neighbors in the tree."""
    D = torch.full_like(T, torch.inf)
    D[tuple(torch.triu_indices(len(T), len(T), 1))] = apart
    right = T.gather(1, torch.minimum(D, D.T).argsort(dim=1)) == 1  # (N, N), nearest first
    at_each = right.cumsum(dim=1) / torch.arange(1, len(T) + 1)
    return float(100 * ((at_each * right).sum(dim=1) / right.sum(dim=1)).mean())


def larger(u: Tensor, old: float, new: float, parents: Sequence[int], edge: float) -> Tensor:
    """A tree found at c = old, rebuilt at c = new as a start: (N, 2) -> (N, 2).

    Every child keeps its direction, as its parent sees it, and its edge comes nearer to its
    length. A parent of −1 is the center of the drawing; without parents nothing changes.
    """
    if not parents:
        return u
    x, y = into_disc(u.numpy() @ (1, 1j), old), np.zeros(len(u), dtype=complex)
    for k, parent in enumerate(parents):
        if parent < 0 and parents.count(-1) == 1:
            continue  # the root is the center
        at, to = (x[parent], y[parent]) if parent >= 0 else (0j, 0j)
        v = out_of_disc(moved(x[k], at, old), old)
        length = edge / 2 + (abs(v) - edge / 2) * (old / new) ** 0.5  # a vector has half of it
        y[k] = moved(into_disc(length * v / abs(v), new), -to, new)
    y = out_of_disc(y, new)
    return torch.from_numpy(np.stack([y.real, y.imag], axis=1))


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


Errors = Mapping[str, Sequence[tuple[float, int, float]]]


def answer(
    budgets: Sequence[int],
    trees: Sequence[Errors],
    turned: Errors,
    controls: Mapping[str, Errors],
    limits: Sequence[float],
    extra: Mapping[str, Sequence[float]],
) -> tuple[Figure, dict[str, Any]]:
    """Errors by bits a node, flat and curved, of trees (groceries first), a star and a sheet.

    ``turned`` has the groceries with starts turned round; ``extra`` their error with points of the
    disc rounded, and the precision flat and curved.
    """
    fig, grid = plt.subplots(
        2, 2, figsize=(6.9, 5.6), sharex=True, width_ratios=(1.5, 1), height_ratios=(1.5, 1)
    )
    first, precise, *below = grid.flat
    inks = {"flat": "0.25", "curved": INK}

    def of(each: Errors, kind: str) -> list[float]:
        return [error for error, _, _ in each[kind]]

    for kind, ink in inks.items():
        for each in trees[1:]:
            first.plot(budgets, of(each, kind), color=ink, lw=0.7, alpha=0.5)
        for axes, each in zip((first, *below), (trees[0], *controls.values()), strict=True):
            axes.plot(budgets, of(each, kind), "o-", color=ink, lw=2.4, ms=4)
        first.plot(budgets, of(turned, kind), "--", color=ink, lw=1.3)
        precise.plot(budgets, extra[kind], "o-", color=ink, lw=2.4, ms=4)
    first.plot(budgets, extra["points"], ":", color=INK, lw=1.6)
    style: dict[str, Any] = {"fontsize": 8.5, "va": "center"}
    for bits in (b for b in (24, 64) if b in budgets):
        error, d, _ = trees[0]["flat"][budgets.index(bits)]
        first.text(bits * 1.13, error + 1.3, f"{d} dim.", color=inks["flat"], **style)
    first.axhline(limits[0], color="0.25", lw=0.8)
    first.text(1024, limits[0] + 1.9, "limit of flat spaces", ha="right", **style)
    last = trees[0]["curved"][-1]
    first.text(1024, last[0] - 1.3, f"our largest c, {last[2]:g}", color=INK, ha="right", **style)
    first.text(
        1024, of(turned, "curved")[-1] - 1.3, "not told the tree", color=INK, ha="right", **style
    )
    first.plot(7, 0, "D", color=PARENTS, ms=9, clip_on=False, zorder=5)
    first.text(8.1, 1.2, "list of parents", color=PARENTS, weight="bold", **style)
    words: dict[str, Any] = {"weight": "bold", "va": "center", "fontsize": 11}
    first.text(11, 27, "flat", color=inks["flat"], **words)
    first.text(7, 5, "curved", color=INK, **words)
    shown = [b for b in budgets if math.log2(b) % 2 == 1]
    for axes in grid.flat:
        axes.set(xscale="log", ylim=(0, 33), xlim=(6.3, 1300))
        axes.set_xticks(shown, [f"{b}" for b in shown])
        axes.minorticks_off()
    precise.plot(7, 100, "D", color=PARENTS, ms=9, zorder=5)
    precise.set(ylim=(0, 106), ylabel="precision (%)")
    for axes in below:
        axes.set_xlabel("bits a node")
    for axes in (first, below[0]):
        axes.set_ylabel("typical error (%)")
    titles = ("trees: distances", "groceries: neighbors", "star", "flat sheet")
    for axes, title in zip(grid.flat, titles, strict=True):
        axes.set_title(title, loc="left", weight="bold", fontsize=10)

    def told(errors: Sequence[float]) -> dict[str, Any]:
        return {
            f"{b}": figures.example(error)
            for b, error in zip(budgets, errors, strict=True)
            if math.isfinite(error)
        }

    named = {"groceries": trees[0], "turned": turned, **controls}
    drawn: dict[str, Any] = {
        name: {kind: told(of(each, kind)) for kind in inks} for name, each in named.items()
    }
    drawn["points"] = told(extra["points"])
    drawn["precision"] = {kind: told(extra[kind]) for kind in inks}
    drawn["best c"] = {name: figures.example(each["curved"][-1][2]) for name, each in named.items()}
    drawn["dealt trees, flat minus curved"] = {
        f"{b}": figures.sample([each["flat"][k][0] - each["curved"][k][0] for each in trees[1:]])
        for k, b in enumerate(budgets)
    }
    ends = [each["curved"][-1][0] for each in trees]
    drawn["limit"] = figures.example(limits[0])
    drawn["limits minus curved"] = figures.sample(
        [limit - end for limit, end in zip(limits, ends, strict=True)]
    )
    return fig, drawn


def photographs(seeds: int) -> dict[str, list[Tensor]]:
    """Distances of the products' mean features, and the same after deals: {name: [(N, N)]}."""
    every = data.load("grocery", "test", fold=None, features=FEATURES)
    x = F.normalize(torch.as_tensor(every.images[:]).flatten(1).double())
    labels = torch.from_numpy(every.labels)
    means = torch.stack([x[labels == k].mean(dim=0) for k in range(len(every.class_names))])
    U, S, _ = torch.linalg.svd(means - means.mean(dim=0), full_matrices=False)
    tables = []
    for seed in range(seeds):
        deal = torch.Generator().manual_seed(seed)
        axes = [axis[torch.randperm(len(axis), generator=deal)] for axis in (U * S).T]
        tables.append(torch.stack(axes, dim=1))
    return {
        "photographs": [torch.cdist(means, means)],
        "dealt": [torch.cdist(z, z) for z in tables],
    }


def begin(D: Tensor, dim: int = 2) -> Tensor:
    """The best flat sight of a table, halved, as a start: (N, N) -> (N, dim)."""
    J = torch.eye(len(D), dtype=torch.float64) - 1 / len(D)
    values, vectors = torch.linalg.eigh(-J @ D.square() @ J / 2)
    u = vectors[:, -dim:] * values[-dim:].clamp_min(0).sqrt() / 2
    noise = torch.Generator().manual_seed(0)
    return u + 0.001 * torch.randn(u.shape, generator=noise, dtype=torch.float64)


def delta_of(D: Tensor) -> float:
    """Mean δ of 3,000 fours, in percent of the mean distance: (N, N) -> number."""
    draw = torch.Generator().manual_seed(0)
    a, b, c, d = torch.stack([torch.randperm(len(D), generator=draw)[:4] for _ in range(3000)]).T
    sums = torch.stack([D[a, b] + D[c, d], D[a, c] + D[b, d], D[a, d] + D[b, c]])
    _, middle, most = sums.sort(dim=0).values
    mean = D.sum() / (len(D) * (len(D) - 1))
    return float(50 * (most - middle).mean() / mean)


def gains(
    curves: Mapping[str, Sequence[Mapping[float, float]]], tables: Mapping[str, Sequence[Tensor]]
) -> tuple[Figure, dict[str, Any]]:
    """The error of the plane by c, {name: [{c: error} of each table]}; δ of the ``tables``."""
    fig, axes = plt.subplots(figsize=(6.9, 3.6))
    grid = [*next(iter(curves["trees"]))]
    inks = dict.fromkeys(curves, "0.35")
    inks |= {"photographs": "#009e73", "dealt": "#7a3e9d", "star": "#d55e00", "trees": INK}
    ends = {}
    for name, each in curves.items():
        c = [k for k in grid if k in each[0]]
        mean = np.mean([[one[k] for k in c] for one in each], axis=0)
        spots = [grid.index(k) for k in c]
        flat = name.startswith("flat")
        axes.plot(spots, mean, "--" if flat else "-", color=inks[name], lw=1.4 if flat else 2.2)
        best = int(mean.argmin())
        axes.plot(spots[best], mean[best], "o", mfc="white", color=inks[name], ms=7, mew=1.8)
        ends[name] = (spots[-1], float(mean[-1]))
    trees = {f"{c:g}": [one[c] for one in curves["trees"]] for c in grid}
    figures.sweep(axes, trees, {}, inks["trees"], "", 0)
    low = -9.0
    for name, (spot, error) in sorted(ends.items(), key=lambda item: item[1][1]):
        up = max(error, low + 2.5) if spot == len(grid) - 1 else error
        low = up if spot == len(grid) - 1 else low
        style: dict[str, Any] = {"color": inks[name], "weight": "bold", "fontsize": 9}
        axes.text(spot + 0.18, up, name, va="center", **style)
    axes.set_xticks(range(len(grid)), [f"{c:g}" for c in grid])
    axes.set(xlim=(-0.3, len(grid) + 0.9), ylim=(0, None), xlabel="c of the plane")
    axes.set_ylabel("typical error (%)")
    return fig, {
        "gain": {
            name: figures.sample([one[0] - min(v for c, v in one.items() if c > 0) for one in each])
            for name, each in curves.items()
        },
        "delta": {
            name: figures.sample([delta_of(D) for D in each]) for name, each in tables.items()
        },
    }


Place = Callable[[Tensor, float, Tensor], Tensor]
Off = Callable[[Tensor, float, Tensor], float]


def plane_and_curved(D: Tensor, place: Place, off: Off) -> dict[float, float]:
    """Errors (%) of a table in the plane by c, 0 is flat: the best of two starts."""
    wanted = pairs(D)
    ends: dict[float, list[float]] = {c: [] for c in (0, 0.001, 0.1, 1, 4, 9, 16)}
    noise = torch.Generator().manual_seed(0)
    for size in (0.01, 0.3):
        u = begin(D)
        u = u + size * torch.randn(u.shape, generator=noise, dtype=torch.float64)
        for c, each in ends.items():
            u = place(u, c, wanted)
            each.append(off(u, c, wanted))
    return {c: min(each) for c, each in ends.items()}
