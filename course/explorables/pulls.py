"""Lesson 16: where two synthetic points pull their proxy, as it sees them, and their mean pull."""

from torch import Tensor

from course.explorables import Choice, Explorable, on_circle


def pulls(_choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The mean of the points' directions, over a radius of 100; the sample (first) has none."""
    x, *z = on_circle(points)
    mean = 100 * sum(z) / len(z)  # (2,)
    return {"mean": mean, "length": mean.norm(), "towards": mean @ x}


EXPLORABLE = Explorable(
    figure="16_pulls",
    alt="The circle of equal nearness as its proxy sees it, with a sample, two synthetic points "
    "and their mean pull; dots are mean pulls of earlier draws.",
    discover="Two random places have a mean pull of about 71, the radius over the root of two, "
    "each time to another side. SEE's two corners always pull by 50, half the radius, away from "
    "the sample. Points that are spread evenly, here opposite each other, cancel.",
    choices=(
        Choice(
            "random", "random places",
            "Draw ten times, and again. How long is the mean pull, and to which side?",
        ),
        Choice(
            "corners", "SEE's corners",
            "Draw ten times, drag the sample, and draw again. What stays the same?",
            start=((90.0,), (210.0,), (330.0,)),
        ),
        Choice(
            "spread", "places spread evenly",
            "Draw ten times. Then drag one point: how long can the mean pull become?",
            start=((90.0,), (20.0,), (200.0,)),
        ),
    ),
    menu="Draw two points at",
    points=lambda: [{"name": name, "label": name} for name in ("x", "z₁", "z₂")],
    start=((90.0,), (160.0,), (290.0,)),
    formula=pulls,
    readouts={"length": "Length of the mean pull", "towards": "Of it towards the sample"},
)  # fmt: skip
