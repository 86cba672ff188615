"""What lesson 12 draws and prepares."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
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
#: Of each material the color, the line, and where its name stands.
LINES: dict[str, tuple[str, str, int, tuple[int, int]]] = {
    "trees": (INK, "-", 1, (-14, 12)), "twins": ("#009e73", "--", 1, (14, 0)),
    "random": ("0.35", "-", 0, (-16, 14)), "photographs": ("#d55e00", "-", 0, (-10, -24)),
}  # fmt: skip
#: Products that the picture of the tree names.
NAMED = (
    ("Fruit", "Apple", "Pink-Lady"), ("Fruit", "Apple", "Red-Delicious"),
    ("Fruit", "Lemon", "Lemon"), ("Fruit", "Banana", "Banana"), ("Fruit", "Orange", "Orange"),
)  # fmt: skip
Node = tuple[str, ...]
#: One space and its training: c, the most length of a vector (clip), temperature, learning rate.
Setting = tuple[float, float, float, float]
#: What the search tries, equally many on both sides: (c, clip, temperature), and rates. The clips
#: of 6/√c only keep numbers finite; the others are those of Guo et al., with more and less.
SPACES = {
    ("trees", "curved"): ((0.01, 60, 1), (0.1, 19, 1), (0.3, 11, 1), (1, 6, 1), (3, 3.5, 1)),
    ("trees", "flat"): ((0, math.inf, 0.3), (0, math.inf, 1), (0, math.inf, 3)),
    ("photographs", "curved"): (
        (0.001, 190, 1), (0.001, 190, 3), (0.01, 60, 1), (0.01, 60, 3), (0.1, 19, 1), (0.1, 19, 3),
        (1, 0.5, 0.3), (1, 1, 0.3), (1, 2, 0.3), (1, 2, 1),
    ),
    ("photographs", "flat"): (
        (0, math.inf, 0.1), (0, math.inf, 0.3), (0, math.inf, 1), (0, math.inf, 3),
        (0, math.inf, 10), (0, math.inf, 30),
        (0, 0.5, 0.3), (0, 1, 0.3), (0, 2, 0.3), (0, 2, 1),
    ),
}  # fmt: skip
RATES = {
    ("trees", "curved"): (0.03, 0.1, 0.3), ("trees", "flat"): (0.1, 0.3, 1, 3, 10),
    ("photographs", "curved"): (1e-3, 3e-3, 1e-2), ("photographs", "flat"): (1e-3, 3e-3, 1e-2),
}  # fmt: skip


def candidates(material: str, space: str) -> list[Setting]:
    """The settings that the search tries in a curved or flat space."""
    key = material, space
    return [(c, clip, tau, rate) for c, clip, tau in SPACES[key] for rate in RATES[key]]


def best(tried: Mapping[str, float]) -> Setting:
    """The setting with the highest score, {"c, clip, temperature, rate": %}."""
    c, clip, tau, rate = map(float, max(tried, key=tried.__getitem__).split(", "))
    return c, clip, tau, rate


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


def upward(above: Tensor, most: int) -> list[tuple[int, int]]:
    """Each node and its parent, on the levels 1 to most: ancestors (N, N)."""
    level = above.sum(1)
    rows = [k for k in range(len(above)) if 0 < level[k] <= most]
    return [(k, int(torch.where(above[k], level, -1).argmax())) for k in rows]


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


def some(labels: Sequence[int], most: int) -> list[int]:
    """Groups 0, 1, … of so many labels, evenly among all; the others are in none, -1."""
    each = sorted(set(labels))
    kept = each[:: max(1, len(each) // most)][:most]
    return [kept.index(label) if label in kept else -1 for label in labels]


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
        (("Fruit", 0.27, 0.97), ("Vegetables", 0.25, 0.04), ("Packages", 0.16, 0.82)),
        (("Fruit", 0.36, 0.86), ("Vegetables", 0.36, 0.14), ("Packages", 0.27, 0.63)),
        (("Fruit", 0.345, 0.27),),
    )
    fig, grid = plt.subplots(
        1, 3, figsize=(6.9, 2.3), width_ratios=(1.03, 1.03, 1.43), layout="constrained"
    )
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
            axes.text(
                right, up, name.lower(), color=COLORS[name], ha="center", va="center",
                fontsize=8, weight="bold", transform=axes.transAxes,
            )  # fmt: skip
        if c:
            axes.add_patch(Circle((0, 0), 0.5, fill=False, color="0.4", lw=1))
            axes.set(xlim=(-0.515, 0.915 if middle else 0.515), ylim=(-0.515, 0.515))
        axes.set(aspect="equal")
        axes.set_axis_off()
        axes.set_title(told, loc="left", weight="bold", fontsize=9)
    for path in NAMED:  # outside of the last disc
        z = x[index[path]]
        axes.annotate(
            path[-1].lower().replace("-", " "), (z.real, z.imag), (16 * z.real, 12 * z.imag),
            textcoords="offset points", fontsize=8, va="center",
        )  # fmt: skip
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


def answer(
    found: Mapping[str, Mapping[str, Mapping[int, Sequence[float]]]],
    untrained: Mapping[str, Sequence[float]],
    raw: float,
    overlap: Mapping[str, float],
) -> tuple[Figure, dict[str, Any]]:
    """Curved minus flat by dimensions; below, precision: {material: {space: {d: (R,)}}} (%).

    ``untrained`` has a mean for each d, ``raw`` is that of untouched features, on photographs.
    """
    fig, grid = plt.subplot_mosaic(
        [["all"] * len(found), [*found]], figsize=(6.9, 5.6), height_ratios=(1.75, 1),
        layout="constrained",
    )  # fmt: skip
    drawn: dict[str, Any] = {"difference": {}, "plane": {}, "precision": {}}
    for k, (material, of) in enumerate(found.items()):
        shared = overlap.get(material, 0.0)
        rows = {
            f"{d}": figures.summary(np.subtract(of["curved"][d], each), shared)
            for d, each in of["flat"].items()
        }
        _difference(grid["all"], material, rows, 0.07 * (k - 1.5))
        _levels(grid[material], material, of, untrained.get(material))
        first = next(iter(of["curved"].values()))  # the curved plane, minus more and more flat
        drawn["difference"][material] = rows
        drawn["plane"][material] = {
            f"{d}": figures.summary(np.subtract(first, each), shared)
            for d, each in of["flat"].items()
        }
        drawn["precision"][material] = {
            space: {f"{d}": figures.sample(each) for d, each in of[space].items()} for space in of
        }
    large, (left, *_, right) = grid["all"], [grid[material] for material in found]
    large.axhspan(-5, 5, color="0.93", zorder=0)
    large.axhline(0, color="0.3", lw=1, zorder=1)
    large.text(2.1, -8, "gray: less than 5 points", color="0.3", fontsize=8.5)
    large.set_xticks(range(len(rows)), [*rows])
    large.set(xlabel="dimensions d, of both spaces", xlim=(-0.45, len(rows) - 0.6), ylim=(-10, 52))
    large.set_ylabel("curved − flat (points)")
    led = [name for name, rows in drawn["difference"].items() if rows["2"]["low"] > 5]
    said = f"with few dimensions curved leads on {' and '.join(led) or 'none'}"
    large.set_title(said, loc="left", weight="bold", fontsize=10)
    left.set_ylabel("precision (%)")
    right.axhline(raw, color="0.5", lw=1.2, ls="--", zorder=0)
    right.text(-0.2, raw + 14, f"untouched: {raw:.0f}", color="0.4", fontsize=8)
    drawn["floor"] = figures.example({"untouched features": raw, "untrained": dict(untrained)})
    return fig, drawn


def _difference(
    axes: Axes, material: str, rows: Mapping[str, Mapping[str, Any]], shift: float
) -> None:
    """Curved minus flat of one material by dimensions, with intervals and its name."""
    ink, style, at, away = LINES[material]
    x = np.arange(len(rows)) + shift
    axes.plot(x, [row["mean"] for row in rows.values()], style, color=ink, lw=2.2, zorder=3)
    for place, row in zip(x, rows.values(), strict=True):
        axes.plot([place] * 2, [row["low"], row["high"]], color=ink, lw=5, alpha=0.4)
        axes.plot(place, row["mean"], "o", color=ink, ms=5.5, zorder=4)
    row = [*rows.values()][at]
    name = {"random": "random links"}.get(material, material)
    number = f" {row['mean']:+.0f}" if row["low"] > 5 else ""
    axes.annotate(name + number, (x[at], row["mean"]), away,
                  textcoords="offset points", color=ink, weight="bold", fontsize=9)  # fmt: skip


def _levels(
    axes: Axes,
    material: str,
    of: Mapping[str, Mapping[int, Sequence[float]]],
    untrained: Sequence[float] | None,
) -> None:
    """Precision of both spaces by dimensions, a dot for each repetition."""
    places = range(len(of["flat"]))
    for space, ink in (("flat", CONTROL), ("curved", LINES[material][0])):
        each = np.array([*of[space].values()])  # (D, R)
        style = "--" if space == "flat" else "-"
        axes.plot(places, each.mean(1), style, color=ink, lw=2)
        axes.plot(places, each, "o", color=ink, ms=2.5, alpha=0.35, mew=0)
    if untrained is not None:
        axes.plot(places, untrained, ":", color="0.5", lw=1.4)
    if material == "trees":
        axes.text(0.9, 105, "curved", color=INK, weight="bold", fontsize=8.5)
        axes.text(1.3, 47, "flat", color=CONTROL, weight="bold", fontsize=8.5)
        axes.text(1, 11, "untrained", color="0.4", fontsize=8)
    axes.set_xticks(places, [f"{d}" for d in of["flat"]])
    axes.set(ylim=(0, 120), yticks=(0, 50, 100), xlim=(-0.3, len(places) - 0.7))
    name = {"random": "random links"}.get(material, material)
    axes.set_title(name, loc="left", weight="bold", fontsize=9)


def discs(
    views: Mapping[str, tuple[Tensor, float, Sequence[int]]],
    edges: Mapping[str, Sequence[tuple[int, int]]],
    ring: float = 3.0,
) -> tuple[Figure, dict[str, Any]]:
    """Trained places in the disc, {name: (places (N, 2), c, group of each)}; -1 is no group.

    ``edges`` are pairs of nodes; ``ring`` is a radius in units of curvature, drawn as a circle.
    """
    fig, grid = plt.subplots(1, len(views), figsize=(6.9, 2.75), layout="constrained")
    numbers, most = {}, max(max(group) for _, _, group in views.values())
    for axes, (name, (places, c, group)) in zip(np.atleast_1d(grid), views.items(), strict=True):
        x, of = c**0.5 * places.numpy(), np.asarray(group)
        radius = 2 * np.arctanh(np.minimum(np.linalg.norm(x, axis=1), 1 - 1e-7))
        axes.add_patch(Circle((0, 0), 1, fill=False, color="0.4", lw=1))
        axes.add_patch(Circle((0, 0), math.tanh(ring / 2), fill=False, color="0.4", lw=1, ls=":"))
        axes.scatter(*x[of < 0].T, s=4, color="0.8", lw=0)
        z = x @ (1, 1j)
        for child, parent in edges.get(name, ()):
            way = _geodesic(complex(z[child]), complex(z[parent]), 1)
            axes.plot(way.real, way.imag, color="0.6", lw=0.6, zorder=2)
        for k in sorted({*of} - {-1}, reverse=True):  # the largest nodes lie below
            size = 11 if -1 in of else 8 + 9 * k
            color = f"C{k}" if -1 in of else plt.get_cmap("viridis")(0.92 * k / most)
            axes.scatter(*x[of == k].T, s=size, color=color, lw=0.3, ec="white", zorder=3)
        axes.set(aspect="equal", xlim=(-1.03, 1.03), ylim=(-1.03, 1.03))
        axes.set_axis_off()
        beyond = float(100 * (radius > ring).mean())
        axes.set_title(f"{name}\n{beyond:.0f} % beyond radius {ring:g}", fontsize=9, loc="left",
                       weight="bold")  # fmt: skip
        numbers[name] = {"beyond": beyond, "median": float(np.median(radius))} | {
            "by group": {f"{k}": float(np.median(radius[of == k])) for k in sorted({*of} - {-1})}
        }
    return fig, {"radius": figures.example(numbers)}


def chosen(searched: Mapping[str, Any]) -> tuple[Figure, dict[str, Any]]:
    """What the search found in each space with each d: the best of its rates and temperatures."""
    fig, grid = plt.subplots(1, 2, figsize=(6.9, 3.1), layout="constrained")
    for axes, material in zip(grid, ("trees", "photographs"), strict=True):
        of, rows = searched[material], {}
        for space in ("flat", "curved"):
            for c, clip, *_ in SPACES[material, space]:
                clipped = f", clip {clip:g}" * (c in (0, 1) and clip < 6)
                name = ("flat" if space == "flat" else f"c = {c:g}") + clipped
                start = f"{c:g}, {clip:g}, "
                rows[name] = [
                    max(v for k, v in tried.items() if k.startswith(start))
                    for tried in of[space].values()
                ]
        table = np.array([*rows.values()])
        axes.imshow(table, cmap="Blues", aspect="auto", vmin=0, vmax=1.8 * table.max())
        for (j, i), value in np.ndenumerate(table):
            axes.text(i, j, f"{value:.0f}", ha="center", va="center", fontsize=8.5)
        flat = np.array([name.startswith("flat") for name in rows])
        for side in (flat, ~flat):
            for i in range(table.shape[1]):
                j = int(np.where(side, table[:, i], -1).argmax())
                spot: dict[str, Any] = {"fill": False, "ec": "#d55e00", "lw": 2, "zorder": 4}
                axes.add_patch(Rectangle((i - 0.5, j - 0.5), 1, 1, clip_on=False, **spot))
        axes.set_yticks(range(len(rows)), [*rows], fontsize=8.5)
        axes.set_xticks(range(table.shape[1]), [*of["flat"]])
        axes.set(xlabel="dimensions d")
        axes.set_title(material, loc="left", weight="bold", fontsize=10)
        axes.grid(False)
    return fig, {name: figures.example(dict(of)) for name, of in searched.items()}
