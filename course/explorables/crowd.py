"""Lesson 17: how many other proxies are nearer to a place than its own, by d and C."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider

FINE, BARS = 720, 36


def crowd(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Other proxies by their angle to a place, if they are random directions: expected counts.

    The angle of a random direction has the density sin(a)^(d - 2). ``bars``: counts in steps of 5°.
    """
    d, others, theta = numbers[0].round(), numbers[1].round() - 1, points[0, 0]
    degrees = (torch.arange(FINE, dtype=torch.float64) + 0.5) * 180 / FINE
    height = degrees.deg2rad().sin() ** (d - 2)
    each = others * height / height.sum()  # (FINE,)
    inside = ((theta - degrees) * FINE / 180 + 0.5).clamp(0, 1)
    return {
        "nearer": (each * inside).sum(), "others": others, "dims": d,
        "bars": each.view(BARS, -1).sum(dim=1),
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="17_crowd",
    alt="Bars of other classes' proxies by their angle to a place on the sphere, and a line at the "
    "own proxy; in few dimensions bars spread to small angles, in many they crowd at 90°.",
    discover="Random directions stand near a right angle to a place, in 64 dimensions nearly all "
    "of them. In 8 dimensions with 500 classes fewer than one other proxy is nearer than 30°, and "
    "43 are nearer than 60°: a crowd meets only places that are far from their own proxy.",
    choices=(
        Choice(
            "random", "random proxies",
            "Drag the own proxy to 60°, then change the dimensions and the classes. When do "
            "other proxies come nearer to the place than its own one?",
            (
                Slider("dimensions d", 3.0, 128.0, 8.0, log=True),
                Slider("classes C", 2.0, 2000.0, 500.0, log=True),
            ),
        ),
    ),
    points=lambda: [{"name": "angle of the own proxy", "label": ""}],
    start=((30.0,),),
    formula=crowd,
    readouts={"nearer": "Other proxies that are nearer", "others": "of", "dims": "Dimensions"},
)  # fmt: skip
