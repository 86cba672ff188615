"""Lesson 07: the loss on the way from nine embeddings on the equator to one point, the pole."""

from itertools import combinations

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, on_circle
from dmlkit import geometry

LABELS = torch.arange(9) // 3
SETS = torch.tensor(list(combinations(range(9), 3)))  # (84, 3): every choice of three medoids
SHRINKS = torch.linspace(0, 1, 41, dtype=torch.float64)
PLACES = (228, 126, 145, 8, 61, 106, 187, 251, 288)  # drawn at random, in degrees


def grouped(D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of each set of medoids: F and 1 − NMI, (84,) each; and the score of the classes, scalar."""
    way, nearest = D[:, SETS].min(dim=2)  # (9, 84) each
    one_hot = torch.eye(3, dtype=D.dtype)
    clusters, classes = one_hot[nearest] / 9, one_hot[LABELS]  # (9, 84, 3), (9, 3)
    joint = torch.einsum("isk,ic->skc", clusters, classes)  # shares of all points: (84, 3, 3)
    H, H_classes = (torch.special.entr(joint.sum(dim=k)).sum(dim=1) for k in (2, 1))
    shared = H + H_classes - torch.special.entr(joint).sum(dim=(1, 2))
    within = D.masked_fill(LABELS[:, None] != LABELS, 0).sum(dim=0)  # were j the medoid: (9,)
    own = within.view(3, 3).amin(dim=1).sum()
    return -way.sum(dim=0), 1 - shared / (H * H_classes).clamp_min(1e-12).sqrt(), -own


def costs(x: Tensor, margin: Tensor, s: Tensor) -> Tensor:
    """The loss of unit vectors (9, 2) whose distances are s (K,) times as long: (K,)."""
    F, differs, oracle = grouped(geometry.distances(x))
    return (s[:, None] * (F - oracle) + margin * differs).amax(dim=1).relu()


def way(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The loss at the start, at s and in one point, and all the way between them."""
    s, margin = numbers
    where = torch.cat([SHRINKS[1:].to(s), s[None]])
    found = costs(on_circle(points), margin, where)
    return {"here": found[-1], "start": found[-2], "one": margin, "curve": found[:-1]}


EXPLORABLE = Explorable(
    figure="07_pole",
    alt="A sphere from above: nine embeddings of three classes on its equator, and the same nine "
    "nearer to the pole. Below, the loss against the size of all distances, and the margin.",
    discover="From unsorted places the curve falls all the way to the pole, whatever the margin "
    "is. Turn the images of each class together: with γ = 1 the loss is soon 0 from a small size "
    "on; with γ = 20 the curve has turned round, so spreading pays.",
    choices=(
        Choice(
            "clustering", "structured clustering",
            "Move s to 0.05. Then turn the images of each class together, and change γ: from "
            "which s on is the loss 0?",
            (
                Slider("distances × s", 0.05, 1.0, 1.0, step=0.01),
                Slider("margin γ", 0.1, 20.0, 1.0, log=True),
            ),
        ),
    ),
    points=lambda: [
        {"name": f"{name}, class {'ABC'[k // 3]}", "label": name, "kind": f"c{k // 3}"}
        for k, name in enumerate(("A₁", "A₂", "A₃", "B₁", "B₂", "B₃", "C₁", "C₂", "C₃"))
    ],
    start=tuple((float(place),) for place in PLACES),
    formula=way,
    readouts={"here": "Loss at s", "start": "At the start, s = 1", "one": "In one point"},
)  # fmt: skip
