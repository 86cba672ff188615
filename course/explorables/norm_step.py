"""Lesson 13: one step of a free embedding, whose length the loss does not see."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider


def step(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The step of SGD or Adam from f (2,) for an angular loss with G = 1, and the turn in degrees.

    The gradient is perpendicular to f and 1/n long. A fresh Adam divides it by its own size.
    """
    f = points[0]
    n = f.norm().clamp_min(1e-9)
    g = torch.stack([f[1], -f[0]]) / n**2  # asks for a turn to the left
    taken = -numbers[0] * (g.sign() if choice.name == "adam" else g)
    after = f + taken
    cross, dot = f[0] * after[1] - f[1] * after[0], (f * after).sum()
    turn = torch.atan2(cross, dot).rad2deg()
    return {
        "norm": n, "gradient": g.norm(), "length": taken.norm(), "turn": turn,
        "after": after.norm(), "step": taken,
    }  # fmt: skip


_RATE = Slider("learning rate", 0.1, 2.0, 1.0)

EXPLORABLE = Explorable(
    figure="13_triangle",
    alt="An embedding as an arrow from the origin, a step of the optimizer at its tip, and the "
    "embedding after it. A dotted circle has the old norm.",
    discover="Under SGD the step is perpendicular and 1/n long: three times as long, an embedding "
    "turns about a ninth as far, and it never gets shorter. Adam's step is as long everywhere, so "
    "the turn falls with the norm alone; and it leaves the right angle, inwards, too.",
    choices=(
        Choice(
            "sgd", "SGD",
            "Pull the tip straight out, to three times the norm. By what factor does the turn "
            "fall? Can you find a place from which the step shortens the embedding?",
            (_RATE,),
        ),
        Choice(
            "adam", "Adam, first step",
            "Turn the tip around the origin at one norm. Where does the step shorten f?",
            (_RATE,),
        ),
    ),
    menu="Optimizer",
    points=lambda: [{"name": "f", "label": "f"}],
    start=((0.9, 0.3),),
    formula=step,
    readouts={"turn": "Turn (°)", "norm": "Norm before", "after": "Norm after"},
)  # fmt: skip
