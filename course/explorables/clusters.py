"""Lesson 07: twelve points of three classes, their two medoids each, and what they feel of them."""

from itertools import combinations

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import geometry

LABELS = torch.arange(12) // 4
SETS = torch.tensor(list(combinations(range(12), 3)))  # (220, 3): every choice of three medoids
#: Class by class, drawn at random.
PLACES = (
    (-0.35, -0.6), (-1.45, -0.4), (-0.8, -0.25), (-0.65, -0.65),
    (1.1, -0.95), (0.05, -0.4), (0.95, 0.35), (1.25, -0.45),
    (0.75, 1.05), (-0.1, 0.25), (0.1, 0.45), (-0.7, 0.45),
)  # fmt: skip


def agreements(nearest: Tensor) -> Tensor:
    """NMI of classes and clusters, by the place of each nearest medoid: (12, M) -> (M,)."""
    one_hot = torch.eye(3, dtype=torch.float64)
    joint = torch.einsum("imk,ic->mkc", one_hot[nearest] / 12, one_hot[LABELS])  # (M, 3, 3)
    H, H_classes = (torch.special.entr(joint.sum(dim=k)).sum(dim=1) for k in (2, 1))
    shared = H + H_classes - torch.special.entr(joint).sum(dim=(1, 2))
    return shared / (H * H_classes).clamp_min(1e-12).sqrt()


def first(worth: Tensor) -> Tensor:
    """The place of the largest value, the first of those that are as large but for rounding."""
    return (worth > worth.max() - 1e-9).int().argmax()


def links(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Scores, NMI and loss, each point's two medoids (12,), and the forces (12, 2)."""
    x, (gamma, s) = points.detach().requires_grad_(), numbers
    with torch.enable_grad():
        D = s * geometry.distances(x)  # (12, 12)
        far = D.detach()
        way, nearest = far[:, SETS].min(dim=2)  # (12, 220) each
        agree = agreements(nearest)
        best = first(-way.sum(dim=0) + gamma * (1 - agree))
        chosen = SETS[best][nearest[:, best]]
        cost = far.masked_fill(LABELS[:, None] != LABELS, 0).sum(dim=0)  # were j the medoid
        own = (4 * torch.arange(3) + torch.stack([first(-c) for c in cost.view(3, 4)]))[LABELS]
        score, true = (-D.gather(1, to[:, None]).sum() for to in (chosen, own))
        loss = (score + gamma * (1 - agree[best]) - true).relu()
        (slope,) = torch.autograd.grad(loss, x)
    moving = (slope.norm(dim=1) > 1e-9).sum()
    found = {"score": score, "true": true, "nmi": agree[best], "loss": loss, "force": -slope}
    found |= {"chosen": chosen, "own": own, "moving": moving, "medoids": SETS[best]}
    return {name: each.detach() for name, each in found.items()}


EXPLORABLE = Explorable(
    figure="07_links",
    alt="Twelve points of three classes in the plane, to be dragged. Orange links lead to the "
    "nearest chosen medoid, blue ones to the own class's medoid; arrows are the forces.",
    discover="A point whose two medoids are one feels nothing of its own; nor do B₁ and B₄ of each "
    "other at γ = 2, as one pulls and one pushes. A larger margin compares with a worse "
    "clustering, so more points move; but each has one push and one pull of its own, no more. "
    "Half the distances act like twice the margin.",
    choices=(
        Choice(
            "clustering", "structured clustering",
            "Move γ up and watch the links. Which points feel nothing, and where do their "
            "links lead? Then follow the forces until the loss is 0.",
            (
                Slider("margin γ", 0.0, 10.0, 1.0, step=0.1),
                Slider("distances × s", 0.2, 1.0, 1.0, step=0.1),
            ),
        ),
    ),
    points=lambda: [
        {"name": f"{name}, class {'ABC'[k // 4]}", "label": name, "kind": f"c{k // 4}"}
        for k, name in enumerate(f"{c}{n}" for c in "ABC" for n in "₁₂₃₄")
    ],
    start=PLACES,
    formula=links,
    readouts={"score": "Best score F", "true": "True score", "nmi": "NMI", "loss": "Loss",
              "moving": "Points that feel a force"},
)  # fmt: skip
