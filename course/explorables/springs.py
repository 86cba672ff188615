"""Lesson 02: six images on a circle, and the springs that a pair loss puts between them."""

import numpy as np
import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, ink, on_circle, turning
from dmlkit import data

LABELS = torch.tensor([0, 0, 1, 1, 2, 2])


def springs(choice: Choice, numbers: Tensor, degrees: Tensor) -> dict[str, Tensor]:
    """Value, weights w_ij = ∂L/∂s_ij + ∂L/∂s_ji, strengths w_ij sin θ_ij (6, 6), turns (6,).

    A loss takes points, not cosines. So we let the points leave the plane by heights u: every
    cosine becomes s_ij + u_i u_j, and at u = 0 the second derivative by u_i and u_j is w_ij.
    """
    loss, points = choice.loss(numbers, num_classes=3), on_circle(degrees)
    x = torch.cat([points, torch.zeros_like(degrees)], dim=1).detach().requires_grad_()  # (6, 3)
    with torch.enable_grad():
        value = loss(x, LABELS)
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        rows = [torch.autograd.grad(u, x, retain_graph=True)[0][:, 2] for u in slope[:, 2]]
    w = torch.stack(rows)
    w = torch.where(torch.eye(len(x), dtype=torch.bool), 0, w).detach()
    strength = w * (degrees - degrees.T).deg2rad().sin().abs()
    turns = turning(points, -slope[:, :2].detach())
    return {"value": value.detach(), "weights": w, "strength": strength, "turns": turns}


def images() -> list[dict[str, str]]:
    """Two images each of R, K and 8."""
    train, found = data.load("glyphs", "train"), []
    rows = [np.flatnonzero(train.labels == label)[k] for label in (140, 122, 65) for k in (0, 1)]
    for name, row in zip(("R₁", "R₂", "K₁", "K₂", "8₁", "8₂"), rows, strict=True):
        found.append({"name": name, "label": name[1:], "src": ink(train.images[row])})
    return found


EXPLORABLE = Explorable(
    figure="02_force_field",
    alt="Six images on a circle, two each of R, K and 8. Lines between them are springs: blue ones "
    "pull together, orange ones push apart; an arrow is the force on a point along the circle.",
    discover="The heaviest spring may hardly turn its ends: at 175° even the largest weight of all "
    "does little, for only |w| sin θ turns. And a small scale α makes far images push, too.",
    choices=(
        Choice(
            "n_pairs_normalized", "InfoNCE",
            "K₁ and K₂ have the largest weight of all (see The numbers). Drag K₂ along the circle: "
            "where does their spring turn them most? Then move the scale α: who pushes at 1? "
            "Who at 100?",
            # dmlkit's scale is a length: r² = α
            (Slider("scale α", 1.0, 100.0, 16.0, log=True, setting="scale", inner=torch.sqrt),),
        ),
        Choice(
            "contrastive", "contrastive, not squared",
            "Turn K₁ away from R₂. At which angle between them does their push end, and does it "
            "fade or break off? (The loss of 2006 squares both terms.)",
            (Slider("margin m", 0.2, 1.2, 0.5, setting="negative_margin"),),
        ),
        Choice(
            "triplet_semihard", "triplets, semi-hard",
            "K₁ lies between the two R, and no spring joins it to them, nor them to each other. "
            "Turn it to 142°, just outside: what does R₁ do now?",
            (Slider("margin m", 0.05, 0.8, 0.2, log=True, setting="margin"),),
        ),
        Choice(
            "multi_similarity", "multi-similarity",
            "Follow the forces. They end while images of a character are still apart: which rule "
            "has left their springs out?",
            (Slider("slope α₋", 10.0, 80.0, 50.0, log=True, setting="beta"),),
        ),
    ),
    points=images,
    start=((65.0,), (350.0,), (15.0,), (190.0,), (255.0,), (318.0,)),
    formula=springs,
    readouts={"value": "Loss"},
)  # fmt: skip
