"""Lesson 00: one triplet on a circle, its loss and how it turns each of the three."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, ink, on_circle, turning
from dmlkit import data, geometry
from dmlkit.data.batches import PK


def triplet(_choice: Choice, numbers: Tensor, degrees: Tensor) -> dict[str, Tensor]:
    """[D²_ap − D²_an + m]₊, both squared distances, and how each point is turned (3,)."""
    x = on_circle(degrees).detach().requires_grad_()
    D2 = geometry.squared_distances(x)[0, 1:]  # to the positive, to the negative
    value = (D2[0] - D2[1] + numbers[0]).relu()
    (slope,) = torch.autograd.grad(value, x)
    return {"value": value.detach(), "D2": D2.detach(), "turns": turning(x.detach(), -slope)}


def images() -> list[dict[str, str]]:
    """The triplet of the lesson: two images of the first class of its first batch, one other."""
    train = data.load("glyphs", "train")
    batch = PK(train.labels, classes=32, per_class=4, seed=0)(step=0)
    names = ("anchor", "positive", "negative")
    return [
        {"name": name, "label": name[0], "src": ink(train.images[batch[i]])}
        for name, i in zip(names, (0, 1, 4), strict=True)
    ]


EXPLORABLE = Explorable(
    figure="00_triplet",
    alt="Three characters on a circle, an anchor, a positive and a negative. A blue line joins the "
    "anchor to the positive, an orange one to the negative; arrows show how each is turned.",
    discover="A negative that lies on the anchor is hardly pushed at all, although the loss is "
    "largest there: it is turned with 2 sin θ, most at a right angle. And beyond the margin "
    "nothing moves any more.",
    choices=(
        Choice(
            "triplet", "triplet",
            "Drag the negative around the circle. Where is its arrow longest, where shortest, and "
            "from which angle on does nothing move?",
            (Slider("margin m", 0.0, 1.0, 0.2, step=0.01),),
        ),
    ),
    points=images,
    start=((0.0,), (90.0,), (300.0,)),
    formula=triplet,
    readouts={"value": "Loss", "D2.0": "D² to the positive", "D2.1": "D² to the negative"},
)  # fmt: skip
