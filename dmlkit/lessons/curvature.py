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
    again: Errors,
    controls: Mapping[str, Errors],
    limits: Sequence[float],
) -> tuple[Figure, dict[str, Any]]:
    """Errors by bits a node, flat and curved, of trees (groceries first), a star and a sheet."""
    fig, panels = plt.subplots(1, 3, figsize=(6.9, 3.6), sharey=True, width_ratios=(1.6, 1, 1))
    inks = {"flat": "0.25", "curved": INK}

    def of(each: Errors, kind: str) -> list[float]:
        return [error for error, _, _ in each[kind]]

    for kind, ink in inks.items():
        for each in trees[1:]:
            panels[0].plot(budgets, of(each, kind), color=ink, lw=0.7, alpha=0.5)
        for axes, each in zip(panels, (trees[0], *controls.values()), strict=True):
            axes.plot(budgets, of(each, kind), "o-", color=ink, lw=2.4, ms=4)
    style: dict[str, Any] = {"fontsize": 8.5, "va": "center"}
    for bits in (b for b in (16, 32, 128) if b in budgets):
        error, d, _ = trees[0]["flat"][budgets.index(bits)]
        panels[0].text(bits * 1.13, error + 1.3, f"{d} dim.", color=inks["flat"], **style)
        error, _, c = trees[0]["curved"][budgets.index(bits)]
        by, up, ha = (0.9, -1.2, "right") if bits == 32 else (1.04, 1.4, "left")
        panels[0].text(bits * by, error + up, f"c = {c:g}", color=INK, ha=ha, **style)
    panels[0].axhline(limits[0], color="0.25", ls="--", lw=1.3)
    panels[0].text(budgets[-1], limits[0] - 1.2, "no flat space gets below", ha="right", **style)
    words: dict[str, Any] = {"weight": "bold", "va": "center", "fontsize": 11}
    panels[0].text(11, 27, "flat", color=inks["flat"], **words)
    panels[0].text(8, 2, "curved", color=INK, **words)
    shown = [b for b in budgets if math.log2(b) % 2 == 1]
    for axes in panels:
        axes.set(xscale="log", xlabel="bits a node", ylim=(0, 33))
        axes.set_xticks(shown, [f"{b}" for b in shown])
        axes.minorticks_off()
    panels[0].set_ylabel("typical error of distances (%)")
    for axes, title in zip(panels, ("trees", "star", "flat sheet"), strict=True):
        axes.set_title(title, loc="left", weight="bold", fontsize=10)

    def told(each: Errors) -> dict[str, Any]:
        return {
            kind: dict(zip(map(str, budgets), map(figures.example, of(each, kind)), strict=True))
            for kind in inks
        }

    drawn: dict[str, Any] = {"groceries": told(trees[0])}
    drawn |= {name: told(each) for name, each in controls.items()}
    drawn["dealt trees, flat minus curved"] = {
        f"{b}": figures.sample([each["flat"][k][0] - each["curved"][k][0] for each in trees[1:]])
        for k, b in enumerate(budgets)
    }
    ends = [each["curved"][-1][0] for each in trees]
    drawn["limit"] = figures.example(limits[0])
    drawn["limits minus curved"] = figures.sample(
        [limit - end for limit, end in zip(limits, ends, strict=True)]
    )
    drawn["spread"] = figures.example(
        max(
            abs(a - b)
            for kind in inks
            for a, b in zip(of(trees[0], kind), of(again, kind), strict=True)
        )
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


def begin(D: Tensor) -> Tensor:
    """The plane's best sight of a table, halved, as a start: (N, N) -> (N, 2)."""
    J = torch.eye(len(D), dtype=torch.float64) - 1 / len(D)
    values, vectors = torch.linalg.eigh(-J @ D.square() @ J / 2)
    return vectors[:, -2:] * values[-2:].sqrt() / 2


def delta_of(D: Tensor) -> float:
    """Mean δ of 3,000 fours, in percent of the mean distance: (N, N) -> number."""
    draw = torch.Generator().manual_seed(0)
    a, b, c, d = torch.stack([torch.randperm(len(D), generator=draw)[:4] for _ in range(3000)]).T
    sums = torch.stack([D[a, b] + D[c, d], D[a, c] + D[b, d], D[a, d] + D[b, c]])
    _, middle, most = sums.sort(dim=0).values
    mean = D.sum() / (len(D) * (len(D) - 1))
    return float(50 * (most - middle).mean() / mean)


def gains(
    gained: Mapping[str, Sequence[float]], tables: Mapping[str, Sequence[Tensor]]
) -> tuple[Figure, dict[str, Any]]:
    """What a curved plane takes from the flat plane's error, by table; and δ of the tables."""
    fig, axes = plt.subplots(figsize=(6.9, 3))
    names = {"photographs": "photo-\ngraphs", "dealt": "photographs,\ndealt"}
    shown = {names.get(name, name): each for name, each in gained.items()}
    drawn = figures.sweep(axes, shown, {}, INK, "", 0)["scores"]
    axes.axhline(0, color="0.3", lw=1)
    axes.tick_params("x", labelsize=8.5)
    axes.set_ylabel("taken from the flat\nplane's error (points)")
    axes.set_title(
        "flat clouds gain, too, without any tree", loc="left", weight="bold", fontsize=10
    )
    plain = {name: name.replace("\n", " ") for name in gained}
    return fig, {
        "gain": {plain[name]: drawn[names.get(name, name)] for name in gained},
        "delta": {
            plain[name]: figures.sample([delta_of(D) for D in each])
            for name, each in tables.items()
        },
    }


Place = Callable[[Tensor, float, Tensor], Tensor]
Off = Callable[[Tensor, float, Tensor], float]


def plane_and_curved(D: Tensor, place: Place, off: Off) -> tuple[float, float]:
    """Errors (%) of a table in the plane and in the best curved plane: the best of two starts."""
    wanted = pairs(D)
    ends: dict[float, list[float]] = {c: [] for c in (0, 0.1, 1, 4, 9, 16)}
    noise = torch.Generator().manual_seed(0)
    for size in (0.01, 0.3):
        u = begin(D)
        u = u + size * torch.randn(u.shape, generator=noise, dtype=torch.float64)
        for c, each in ends.items():
            u = place(u, c, wanted)
            each.append(off(u, c, wanted))
    plane, *bent = (min(each) for each in ends.values())
    return plane, min(bent)
