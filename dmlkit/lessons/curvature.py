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

from dmlkit import figures
from dmlkit.data import features
from dmlkit.losses import hyperbolic

#: What an ImageNet network makes of the photographs.
FEATURES = "tf_efficientnet_lite0@128"
COLORS = {"Fruit": "#d55e00", "Vegetables": "#009e73", "Packages": "#0072b2"}
INK, CONTROL = "#0072b2", "0.35"
#: Where the verdict names its marks, in points from each.
SPOTS = ((1, -31), (-13, 12), (9, 5), (6, 4), (-7, -10))
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


def scattered(above: Tensor, seed: int) -> Tensor:
    """Links drawn anew: every node keeps how many it has to find, and finds any others: (N, N)."""
    draw, n = np.random.default_rng(seed), len(above)
    mixed = np.zeros((n, n), dtype=bool)
    for k, count in enumerate(above.sum(1).tolist()):
        mixed[k, draw.choice(np.delete(np.arange(n), k), count, replace=False)] = True
    return torch.from_numpy(mixed)


def off(u: Tensor, c: float, wanted: Tensor) -> float:
    """Root mean square of the relative errors of distances (N(N − 1)/2,), in percent."""
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
        (0, (), f"flat: off by {wrong[0]:.0f} %"),
        (4, (), f"disc, c = 4: off by {wrong[4]:.0f} %"),
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


def circles(radius: float = 1.0) -> tuple[Figure, dict[str, Any]]:
    """Circles of one radius in the flat plane and in the disc (c = 1), with their lengths."""
    fig, (flat, disc, growth) = plt.subplots(
        1, 3, figsize=(6.9, 2.5), width_ratios=(1, 1, 1.15), layout="constrained"
    )
    turn = np.exp(1j * np.linspace(0, math.tau, 200))
    ring, shown = np.tanh(radius / 2) * turn, {}
    length = {"flat": math.tau * radius, "disc": math.tau * math.sinh(radius)}
    for axes, name, spots in (
        (flat, "flat", (0, 1.9 - 1.6j)),
        (disc, "disc", (0.05 - 0.1j, 0.72 - 0.5j)),
    ):
        for spot in spots:
            z = spot + radius * turn if name == "flat" else moved(ring, -spot, 1)
            axes.plot(z.real, z.imag, color=INK if name == "disc" else CONTROL, lw=2)
            axes.plot(np.real(spot), np.imag(spot), "o", color="black", ms=3.5)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set_axis_off()
        axes.set_title(f"{name}: each {length[name]:.1f} long", loc="left", fontsize=9,
                       weight="bold", color=INK if name == "disc" else "0.2")  # fmt: skip
    flat.set(xlim=(-1.2, 3.1), ylim=(-3.1, 1.2))
    disc.add_patch(Circle((0, 0), 1, fill=False, color="0.4", lw=1))
    ends = np.array([-0.95 + 0.05j, -0.28 + 0.91j])
    way = _geodesic(complex(ends[0]), complex(ends[1]), 1)
    disc.plot(way.real, way.imag, color="#d55e00", lw=1.6)
    disc.plot(ends.real, ends.imag, "o", color="#d55e00", ms=3)
    disc.set(xlim=(-1.04, 1.04), ylim=(-1.04, 1.04))
    rho = np.linspace(0, 4, 100)
    growth.plot(rho, math.tau * np.sinh(rho), color=INK, lw=2.2)
    growth.plot(rho, math.tau * rho, color=CONTROL, lw=2.2)
    growth.text(2.75, 110, "hyperbolic", color=INK, ha="right", fontsize=9, weight="bold")
    growth.text(3.0, 26, "flat", color=CONTROL, ha="center", fontsize=9, weight="bold")
    growth.set(xlabel="radius", xticks=range(5), xlim=(0, 4.05), ylim=(0, 180))
    growth.set_title("length of a circle", loc="left", fontsize=9, weight="bold")
    shown = {"length": length, "longer": {f"{r:g}": math.sinh(r) / r for r in (0.5, 1, 3)}}
    return fig, shown


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
    flat: Mapping[int, Sequence[float]],
    curved: Sequence[float],
    leads: Mapping[str, tuple[Sequence[float], Sequence[float]]],
) -> tuple[Figure, dict[str, Any]]:
    """Precision (%) of trees by dimension; leads over three flat dimensions, {links: both}."""
    fig, (axes, right) = plt.subplots(
        1, 2, figsize=(6.9, 3.1), width_ratios=(1.3, 1), layout="constrained"
    )
    widths, means = [*flat], [float(np.mean(each)) for each in flat.values()]
    axes.plot(widths, means, color=CONTROL, lw=1.6)
    for d, mean in zip(widths, means, strict=True):
        axes.plot([d] * len(flat[d]), flat[d], "o", color=CONTROL, ms=3.5, alpha=0.45, mew=0)
        axes.annotate(f"{mean:.0f}", (d, max(flat[d])), (-3, 5), textcoords="offset points",
                      ha="right" if d > 2 else "center", fontsize=9, color=CONTROL)  # fmt: skip
    level = float(np.mean(curved))
    axes.plot([2] * len(curved), curved, "o", color=INK, ms=3.5, alpha=0.45, mew=0)
    axes.plot(2, level, "D", color=INK, ms=8)
    axes.text(
        2.3, level, f"curved: {level:.0f}", color=INK, weight="bold", fontsize=10, va="center"
    )
    axes.annotate(
        "flat", (7, float(np.interp(7, widths, means))), (6, -10), textcoords="offset points",
        color=CONTROL, weight="bold", ha="left", va="center", fontsize=10,
    )  # fmt: skip
    axes.set(ylim=(0, 104), xlim=(1.5, widths[-1] + 0.5), xticks=widths)
    axes.set_xlabel("dimensions")
    axes.set_title("mean average precision (%)", loc="left", fontsize=9, weight="bold")
    drawn = figures.gains(
        right, {name: np.subtract(bent, three) for name, (bent, three) in leads.items()}, "points"
    )
    right.set_title(
        "curved, 2 dimensions − flat, 3", loc="right", x=1.18, fontsize=9, weight="bold"
    )
    scores = {f"{d}": figures.sample(each) for d, each in flat.items()}
    return fig, {"scores": scores, "curved": figures.sample(curved), "lead": drawn} | {
        "against": {f"{d}": figures.summary(np.subtract(curved, each)) for d, each in flat.items()}
    }


def answer(
    found: Mapping[str, np.ndarray],
    floors: Mapping[str, float],
    overlap: float,
    chosen: str,
) -> tuple[Figure, dict[str, Any]]:
    """Precision by the radius in units of curvature, and differences to the flat plane.

    ``found`` is {space: (precision of new and of trained products, radius) by network (R, 3)}:
    first the flat plane, then the curved ones by c, last the flat space of three dimensions.
    The one that the search has ``chosen`` is marked.
    """
    first, *curved, third = found
    fig, (axes, right) = plt.subplots(
        1, 2, figsize=(6.9, 3.4), width_ratios=(1.1, 1), layout="constrained"
    )
    inks = dict(zip(found, ["0.35", *[INK] * len(curved), "#d55e00"], strict=True))
    path = np.array([np.append(np.median(found[n][:, 2]), found[n][:, 0].mean())
                     for n in (first, *curved)])  # fmt: skip
    axes.plot(*path.T, color=INK, lw=1.6, zorder=1)
    for name, (x, y) in zip((first, *curved), path, strict=True):
        axes.plot(x, y, "D", color=inks[name], ms=7, zorder=3)
    end = 1.06 * path[:, 0].max()
    levels = {f"{third}": (float(found[third][:, 0].mean()), inks[third])}
    levels |= {name: (value, "0.45") for name, value in floors.items()}
    for name, (value, ink) in levels.items():
        axes.axhline(value, color=ink, lw=1.3, ls=":", zorder=0)
        axes.text(end, value + 0.8, f"{name}: {value:.0f}", color=ink, fontsize=8.5, ha="right")
    for name, (x, y), (dx, dy), ha in zip(
        (first, *curved), path, SPOTS, ("left", "left", "left", "left", "right"), strict=True
    ):
        axes.annotate(name.replace(", ", ",\n"), (x, y), (dx, dy), ha=ha, fontsize=8.5,
                      textcoords="offset points", color=inks[name], weight="bold")  # fmt: skip
    axes.set(xlim=(-0.04 * end, end), ylim=(0, 1.12 * max(floors.values())))
    axes.set_xlabel("radius in units of curvature")
    axes.set_title("mean average precision (%)", loc="left", fontsize=9, weight="bold")
    rows = {name: found[name][:, 0] - found[first][:, 0] for name in (*curved, third)}
    drawn = figures.gains(right, rows, "points", overlap)
    labels = [n.replace(", ", ",\n") + "\n(chosen)" * (n == chosen) for n in drawn]
    right.set_yticks(range(len(drawn)), labels, fontsize=9)
    for tick, name in zip(right.get_yticklabels(), drawn, strict=True):
        tick.set(color=inks[name], weight="bold")
    right.set_title("minus flat, 2 dimensions", loc="right", x=1.18, fontsize=9, weight="bold")
    precision = {name: float(each[:, 0].mean()) for name, each in found.items()} | dict(floors)
    return fig, {
        "difference": drawn,
        "precision": figures.example(precision),
        "trained": figures.example({n: float(each[:, 1].mean()) for n, each in found.items()}),
        "radius": figures.example({n: float(np.median(each[:, 2])) for n, each in found.items()}),
    }
