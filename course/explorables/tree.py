"""Lesson 12: a tree of groceries in the Poincaré disc, seen from any place, and in the plane."""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit.data import features
from dmlkit.losses import hyperbolic

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
def layout() -> tuple[Tensor, Tensor]:
    """Depth as the radius, leaves around a circle in order (N, 2); edges between nodes (N, N)."""
    leaves = [node for node in nodes() if len(node) == 3]
    below = [[k for k, leaf in enumerate(leaves) if leaf[: len(node)] == node] for node in nodes()]
    turn = torch.tensor([math.tau * sum(own) / len(own) / len(leaves) for own in below])
    depth = torch.tensor([len(node) for node in nodes()], dtype=torch.float64)
    shared = [
        [sum(a[: k + 1] == b[: k + 1] for k in range(min(len(a), len(b)))) for b in nodes()]
        for a in nodes()
    ]
    edges = depth[:, None] + depth - 2 * torch.tensor(shared)
    return depth[:, None] * torch.stack([turn.cos(), turn.sin()], dim=1).double(), edges


def tree(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Nodes (N, 2) as they are drawn, where the root lies at ``points`` (1, 2), and distances.

    ``error``: mean relative error of all distances, against so many edges of one length.
    """
    (grown, edges), edge, root = layout(), numbers[0], points[0]
    i, j = torch.triu_indices(len(edges), len(edges), 1)
    if choice.name == "plane":
        drawn, distances = grown / 3 + root, edge * torch.cdist(grown, grown)
        seen = distances
    else:
        x = hyperbolic.exponential_map(edge / 2 * grown, c=1.0)
        distances = hyperbolic.poincare_distances(x, x, c=1.0)
        z, a = torch.view_as_complex(x), torch.complex(*root)
        drawn = torch.view_as_real((z + a) / (1 + a.conj() * z))
        seen = hyperbolic.poincare_distances(drawn, drawn, c=1.0)
    apple, other, milk = (nodes().index(leaf) for leaf in LEAVES)
    return {
        "paper": (drawn[apple] - drawn[other]).norm(), "near": seen[apple, other],
        "far": seen[apple, milk], "drawn": drawn,
        "error": 100 * (distances[i, j] / (edge * edges[i, j]) - 1).abs().mean(),
    }  # fmt: skip


def drawn() -> dict[str, Any]:
    """The tree's nodes: place in it, parent and branch; and the three leaves that are marked."""
    places = {node: k for k, node in enumerate(nodes())}
    grown, edges = layout()
    branches = ["", "Fruit", "Vegetables", "Packages"]
    return {
        "grown": grown.tolist(), "edges": edges.int().tolist(),
        "parents": [places[node[:-1]] for node in nodes()],
        "branches": [branches.index(node[0] if node else "") for node in nodes()],
        "leaves": [places[leaf] for leaf in LEAVES],
    }  # fmt: skip


_EDGE = Slider("length of an edge", 0.1, 3.0, 1.0, log=True)

EXPLORABLE = Explorable(
    figure="12_tree",
    alt="A tree of groceries in a disc, its root under a handle; branches of fruit, vegetables and "
    "packages in three colors, two apples and a milk marked.",
    discover="In the disc, moving the root changes everything on the paper and no distance: the "
    "branch that comes to the middle opens. Edges have to be long for that: at 0.1 the disc is as "
    "wrong as the plane, whose drawing has no length of its own.",
    menu="Space",
    choices=(
        Choice(
            "disc", "disc",
            "Drag the root to the edge, away from the apples. What becomes of their distance on "
            "the paper, and in the disc? Then change the length of an edge.",
            (_EDGE,),
        ),
        Choice(
            "plane", "plane",
            "Drag the root, and change the length of an edge. Does anything open, or fit better?",
            (_EDGE,),
        ),
    ),
    points=lambda: [{"name": "root", "label": ""}],
    start=((0.0, 0.0),),
    data=drawn,
    formula=tree,
    readouts={"paper": "Two apples, on the paper", "near": "Two apples, in the space",
              "far": "Apple and milk", "error": "Mean error (%)"},
)  # fmt: skip
