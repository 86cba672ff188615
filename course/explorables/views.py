"""Lesson 27: a network of two weights, and what views of photographs make of color and shape."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit.losses import SupConLoss

#: Color and shape of four photographs, and by which of them their views differ.
COLOR, SHAPE = (-1.5, -0.5, 0.5, 1.5), (0.5, -1.5, 1.5, -0.5)
COLOR_SIGNS, SHAPE_SIGNS = (1.0, 1.0, -1.0, -1.0), (1.0, -1.0, 1.0, -1.0)
SHAPE_CHANGE, TEMPERATURE = 0.3, 0.5


def views(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Loss, its gradient (2,) and the embeddings' angles (8,) in degrees at the weights points[0].

    An embedding is the point of the circle at the angle w₁ color + w₂ shape.
    """
    change = numbers[0]
    color, shape, first, second = (
        torch.tensor(row, dtype=points.dtype) for row in (COLOR, SHAPE, COLOR_SIGNS, SHAPE_SIGNS)
    )
    seen = [torch.stack([color + s * change * first, shape + s * SHAPE_CHANGE * second])
            for s in (1, -1)]  # fmt: skip
    w = points[0].detach().requires_grad_()
    with torch.enable_grad():
        angle = w @ torch.cat(seen, dim=1)  # (8,): views i and i + 4 are of one photograph
        x = torch.stack([angle.cos(), angle.sin()], dim=1)
        if choice.name == "both":
            value = SupConLoss(TEMPERATURE)(x, torch.arange(4).repeat(2))
        else:
            value = 1 - (x[:4] * x[4:]).sum(dim=1).mean()
        (gradient,) = torch.autograd.grad(value, w)
    return {"value": value.detach(), "gradient": gradient, "angles": angle.detach().rad2deg()}


_CHANGE = Slider("change of color", 0.0, 1.0, 0.2, step=0.05)

EXPLORABLE = Explorable(
    figure="27_landscape",
    alt="Left: a point in the plane, whose coordinates are the weights of color and of shape. "
    "Right: eight views of four photographs on a circle, as these weights embed them.",
    discover="While views keep their color, the lowest loss has weight on color alone; from a "
    "change of about 0.3 on, on shape alone. Without the push, whatever changes gets weight 0, and "
    "what does not change may keep any weight.",
    choices=(
        Choice(
            "both", "pull and push",
            "Look for the lowest loss. Then let views change their color more and more: when is "
            "another place the lowest?",
            (_CHANGE,),
        ),
        Choice(
            "pull", "pull alone",
            "Press Train with a change of color of 0, then of 0.5. What becomes of the photographs "
            "on the circle?",
            (_CHANGE,),
        ),
    ),
    points=lambda: [{"name": "weights", "label": ""}],
    start=((0.8, 0.4),),
    formula=views,
    readouts={"value": "Loss"},
)  # fmt: skip
