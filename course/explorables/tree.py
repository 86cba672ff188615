"""Lesson 12: a tree of groceries in two dimensions, flat and curved, seen from any place."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT
from dmlkit.data import features
from dmlkit.losses import hyperbolic

#: The searches' roots of c lie so far apart; the radius on the paper that the tree fills.
STEP, PAPER = 1.0, 0.9
#: Two leaves of one kind, two edges apart, and one of another branch, six edges from both.
LEAVES = (
    ("Fruit", "Apple", "Golden-Delicious"),
    ("Fruit", "Apple", "Royal-Gala"),
    ("Packages", "Milk", "Arla-Standard-Milk"),
)


@cache
def nodes() -> list[tuple[str, ...]]:
    """Paths from the root (), as lesson 12 has them."""
    listing, _ = features.read("grocery", "tf_efficientnet_lite0@128")
    products = {
        (path.split("/")[1], str(group), str(name))
        for path, group, name in zip(listing.paths, listing.groups, listing.names, strict=True)
    }
    return sorted({product[:depth] for product in products for depth in range(4)})


@cache
def searched() -> tuple[Tensor, Tensor]:
    """Tangent vectors of the lesson's searches (K, N, 2), at roots of c; edges of nodes (N, N)."""
    record = json.loads((ROOT / "figures" / "12_tree.json").read_text(encoding="utf-8"))
    places = record["numbers"]["places"]["example"]
    assert [float(c) for c in places] == [(STEP * k) ** 2 for k in range(len(places))]
    depth = torch.tensor([len(node) for node in nodes()], dtype=torch.float64)
    shared = [
        [sum(a[: k + 1] == b[: k + 1] for k in range(min(len(a), len(b)))) for b in nodes()]
        for a in nodes()
    ]
    edges = depth[:, None] + depth - 2 * torch.tensor(shared)
    return torch.tensor([*places.values()], dtype=torch.float64), edges


def moved(z: Tensor, a: Tensor, c: float) -> Tensor:
    """Complex numbers, after 0 has gone to a: no distance changes."""
    return (z + a) / (1 + c * a.conj() * z)


def tree(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Nodes (N, 2) as they are drawn, where the root lies at ``points`` (1, 2), and distances.

    Between two searches places are between theirs. The farthest node is drawn at ``PAPER`` while
    the root is in the middle. ``error``: of all distances, the root mean square, relative.
    """
    (places, edges), c, part = searched(), float(numbers[0]), float(numbers[0]) ** 0.5 / STEP
    k = min(int(part), len(places) - 2)
    x = hyperbolic.exponential_map(torch.lerp(places[k], places[k + 1], part - k), c)
    z = torch.view_as_complex(x)
    z = moved(z, -z[0], c)
    scale = PAPER / z.abs().max()
    z = moved(z, torch.complex(*points[0]) / scale, c)
    drawn = torch.view_as_real(z)
    seen = hyperbolic.poincare_distances(drawn, drawn, c)
    i, j = torch.triu_indices(len(edges), len(edges), 1)
    apple, other, milk = (nodes().index(leaf) for leaf in LEAVES)
    return {
        "paper": scale * (drawn[apple] - drawn[other]).norm(), "near": seen[apple, other],
        "far": seen[apple, milk], "drawn": scale * drawn,
        "rim": scale / max(c, 1e-9) ** 0.5, "scale": scale,
        "error": 100 * (seen[i, j] / edges[i, j] - 1).square().mean().sqrt(),
    }  # fmt: skip


def drawn() -> dict[str, Any]:
    """The tree's nodes: searched places, parent and branch; and the three leaves marked."""
    places = {node: k for k, node in enumerate(nodes())}
    vectors, edges = searched()
    branches = ["", "Fruit", "Vegetables", "Packages"]
    return {
        "step": STEP, "paper": PAPER, "places": vectors.tolist(), "edges": edges.int().tolist(),
        "parents": [places[node[:-1]] for node in nodes()],
        "branches": [branches.index(node[0] if node else "") for node in nodes()],
        "leaves": [places[leaf] for leaf in LEAVES],
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="12_tree",
    alt="A tree of groceries in two dimensions, its root under a handle; branches of fruit, "
    "vegetables and packages in three colors, two apples and a milk marked; a circle around it.",
    discover="Flat, at c = 0, the best places have a typical error of 30 %; curvature alone brings "
    "that to 8 %, most of it by c = 4. Dragging changes everything on the paper and no distance: "
    "in a curved space the branch that comes to the middle opens, flat nothing does.",
    menu="Space",
    choices=(
        Choice(
            "disc", "disc",
            "Move c down to 0, the plane, and up to 9: what does the error do? Drag the root: what "
            "changes on the paper, and what in the space? Is it so at c = 0, too?",
            (Slider("curvature c", 0.0, 9.0, 1.0, step=0.05),),
        ),
    ),
    points=lambda: [{"name": "root", "label": ""}],
    start=((0.0, 0.0),),
    data=drawn,
    formula=tree,
    readouts={"error": "Typical error (%)", "paper": "Two apples, on the paper",
              "near": "Two apples, in the space", "far": "Apple and milk"},
)  # fmt: skip
