"""Lesson 23: how many queries a photograph of noise takes, by its distance to their mean."""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable
from dmlkit.lessons.failures_and_hubs import cloud

DIMS = (2, 8, 32, 128)


@cache
def data() -> dict[str, Any]:
    """The clouds of noise by the names of the choices."""
    return {f"d{d}": cloud(d) for d in DIMS}


def answers(choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """How many queries the moved photograph is nearest to, and each of the others (100,)."""
    world = {name: points.new_tensor(each) for name, each in data()[choice.name].items()}
    r = points[0, 0]
    D = world["square"] - 2 * r * world["along"] + r**2  # (100,)
    taken = world["best"] > D
    others = torch.bincount(world["first"][~taken].long(), minlength=100)
    return {
        "taken": taken.sum().double(), "mean": D.mean(), "most": others.max().double(),
        "others": others.double(),
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="23_hub",
    alt="A hundred photographs of noise as dots: to the right their distance to the mean, upward "
    "how many of a hundred queries they are nearest to. You move one more photograph to the left "
    "and to the right; a bar shows how many queries it takes.",
    discover="In many dimensions all photographs are about equally far from the mean, and one that "
    "comes nearer is nearest to nearly every query. In the plane there is always somebody nearer.",
    choices=tuple(
        Choice(
            f"d{d}", f"{d}",
            "Move the photograph to the mean, at 2 and at 128 dimensions. How many queries does "
            "it take? Then find, at 128, where it takes half of them.",
        )
        for d in DIMS
    ),
    points=lambda: [{"name": "the moved photograph", "label": "", "kind": "c1"}],
    start=((1.0,),),
    menu="Dimensions",
    data=data,
    formula=answers,
    readouts={"taken": "Queries it takes, of 100", "mean": "Its mean squared distance, over d",
              "most": "Most that another takes"},
)  # fmt: skip
