"""Lesson 06: a query in the plane among three prototypes, and where the loss pushes it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course.explorables import Choice, Explorable, Slider


def query(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Loss, probabilities (3,), expected prototype (2,) and force (2,) on a query of class 0.

    The loss is −log softmax(−d²/T) of the class; the force is minus its gradient.
    """
    f, prototypes = points[0].detach().requires_grad_(), points[1:]
    with torch.enable_grad():
        logits = -(f - prototypes).square().sum(dim=1) / numbers[0]
        value = F.cross_entropy(logits[None], torch.zeros(1, dtype=torch.long))
        (g,) = torch.autograd.grad(value, f)
    p = logits.detach().softmax(dim=0)
    return {"value": value.detach(), "p": p, "own": p[0], "expected": p @ prototypes, "force": -g,
            "length": g.norm()}  # fmt: skip


EXPLORABLE = Explorable(
    figure="06_force",
    alt="A query of class 0 among three prototypes in the plane. An arrow is the force on it; a "
    "small ring is the expected prototype, the mean of all three by their probabilities.",
    discover="The force points from the expected prototype to the true one, not from the query to "
    "it. Where the query is certainly right the two agree and nothing pushes; where it is "
    "certainly wrong the force is as long everywhere.",
    choices=(
        Choice(
            "query", "query of class 0",
            "Drag the query far behind prototype 1. Does the arrow point to its own prototype? "
            "Then find a place from which it is pushed away from its own prototype.",
            (Slider("temperature T", 0.2, 5.0, 1.0, log=True),),
        ),
    ),
    points=lambda: [
        {"name": "query", "label": "query"},
        *({"name": f"prototype {k}", "label": f"{k}", "kind": f"c{k}"} for k in range(3)),
    ],
    start=((0.2, 0.5), (-0.9, -0.4), (1.0, -0.5), (0.3, 1.2)),
    formula=query,
    readouts={"value": "Loss", "own": "P of class 0", "length": "Force"},
)  # fmt: skip
