"""Lesson 25: a head that stretches one direction of a plane, and which products it finds then."""

from typing import Any

from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit.lessons.what_came_after import TOY, stretched


def answer(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Places after the head, the nearest of each query, and the shares that are found."""
    return stretched(points[0, 0], numbers[0])


def data() -> dict[str, Any]:
    """The points before the head."""
    return {"at": TOY}


EXPLORABLE = Explorable(
    figure="25_stretch",
    alt="Four cartons, as circles, and four kinds of fruit, as squares, each on two visits, in a "
    "plane of print and shape. You turn the direction that a head stretches; lines join each query "
    "with what is nearest, blue where that is right.",
    discover="The direction that separates cartons finds all cartons and loses fruit, and the "
    "other way round. At 45° a stretch helps neither.",
    choices=(
        Choice(
            "stretch", "stretch",
            "Find the direction in which all cartons are found. What happens to the fruit there? "
            "Is there a direction that helps both?",
            (Slider("stretch a", 1.0, 4.0, 2.0, step=0.1),),
        ),
    ),
    points=lambda: [{"name": "direction", "label": ""}],
    start=((45.0,),),
    data=data,
    formula=answer,
    readouts={"cartons": "Cartons found (%)", "fruit": "Fruit found (%)"},
)  # fmt: skip
