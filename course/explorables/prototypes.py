"""Lesson 06: a query among the images of three classes, and where the loss pushes it."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course.explorables import Choice, Explorable, Slider


def query(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Loss, probabilities (3,), what each image counts (6,) and force (2,) on a query of class 0.

    Each class has two images. With the mean, its logit is −d²/T to it; as neighbors, the logarithm
    of the sum of exp(−d²/T) over them. The force is minus the gradient of −log softmax.
    """
    f, images = points[0].detach().requires_grad_(), points[1:].view(3, 2, 2)
    at = images.mean(dim=1, keepdim=True).expand_as(images) if choice.name == "mean" else images
    with torch.enable_grad():
        each = -(f - at).square().sum(dim=2) / numbers[0]  # (3, 2)
        logits = each.logsumexp(dim=1)
        value = F.cross_entropy(logits[None], torch.zeros(1, dtype=torch.long))
        (g,) = torch.autograd.grad(value, f)
    each, p = each.detach(), logits.detach().softmax(dim=0)
    counts = each.flatten().softmax(dim=0)  # (6,)
    return {"value": value.detach(), "p": p, "own": p[0], "counts": counts,
            "expected": counts @ at.flatten(0, 1), "to": each[0].softmax(dim=0) @ at[0],
            "force": -g, "length": g.norm()}  # fmt: skip


_T = (Slider("temperature T", 0.2, 5.0, 1.0, log=True),)

EXPLORABLE = Explorable(
    figure="06_force",
    alt="A query of class 0 among three classes of two images in the plane. An arrow is the force "
    "on it; it is parallel to a dashed line from the expected image to the own one.",
    discover="With the mean, both images of the own class pull, however far one of them is. "
    "As neighbors, the nearer one pulls and the farther one hardly counts. In both the force "
    "points along the dashed line. Where the expected place is the own place nothing pushes: where "
    "the query is certainly right, and in places where it is in doubt.",
    choices=(
        Choice(
            "mean", "mean",
            "Drag the query far behind class 1. Does the arrow point to its own class? "
            "Then find a place where it feels no force.",
            _T,
        ),
        Choice(
            "neighbors", "neighbors",
            "Drag the query onto one of its own two images. Which of them pulls now, and which "
            "pulled with the mean?",
            _T,
        ),
    ),
    points=lambda: [
        {"name": "query", "label": "query"},
        *(
            {"name": f"image {j} of class {k}", "label": f"{k}", "kind": f"c{k}"}
            for k in range(3) for j in (1, 2)
        ),
    ],
    start=(
        (0.85, -1.15), (-0.75, -0.75), (0.25, -0.75), (1.25, -0.75), (1.25, 0.25),
        (-0.25, 0.75), (-0.25, 1.75),
    ),
    formula=query,
    readouts={"value": "Loss", "own": "P of class 0", "length": "Force"},
    menu="Support images",
)  # fmt: skip
