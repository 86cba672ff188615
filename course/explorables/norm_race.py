"""Lesson 14: free embeddings turn to 90 degrees, and a constraint sets their norms meanwhile."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit.losses.spherical import SphericalConstraint

#: The target of each constraint: a norm, or the mean of the batch.
TARGETS: dict[str, str | float] = {"l2": 0.0}
RATE = 0.05  # of a step of SGD, as in the lesson


def race(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The constraint's value, what each step of SGD adds to a norm, and how far it turns (4,).

    The angular loss of each embedding is −sin of its angle, as in the lesson.
    """
    constraint = SphericalConstraint(
        float(numbers[0]) if len(numbers) else 0.0,
        TARGETS.get(choice.name, "mean"),
        relative=choice.name == "relative",
    )
    f = points.detach().requires_grad_()
    with torch.enable_grad():
        value = constraint(f)
        (g,) = torch.autograd.grad(value - F.normalize(f)[:, 1].sum(), f)
    step = -RATE * g
    n = points.norm(dim=1)
    x = points / n[:, None]
    sideways = x[:, 0] * step[:, 1] - x[:, 1] * step[:, 0]
    return {
        "value": value.detach(), "norms": n, "mean": n.mean(),
        "spread": 100 * n.std(correction=0) / n.mean(),
        "angles": torch.atan2(points[:, 1], points[:, 0]).rad2deg(),
        "pulls": (x * step).sum(dim=1), "turns": (sideways / n).rad2deg(), "steps": step,
    }  # fmt: skip


_WEIGHT = Slider("weight η", 0.1, 8.0, 1.0, log=True)

EXPLORABLE = Explorable(
    figure="14_race",
    alt="Four embeddings as arrows from the origin, of norms 1 to 4, which must turn to 90 "
    "degrees. Orange arrows are what the angular loss asks for, blue ones are what the "
    "constraint adds.",
    discover="SEC pulls each embedding to the mean norm and leaves the mean where it is, so the "
    "short ones turn less than before and the long ones more: turning becomes equal, not faster. "
    "Its value falls to a quarter if all norms are halved; that of relative SEC does not change. "
    "The L2 penalty pulls all to 0, and the race gets faster for another reason: a larger turn in "
    "each step, as from a larger learning rate.",
    choices=(
        Choice(
            "none", "no constraint",
            "Start the race. Which embedding arrives first, and does any of them get shorter?",
        ),
        Choice(
            "sec", "SEC: to the mean norm",
            "Start the race. Who gains from SEC, and who loses? Then drag the longest: to which "
            "norm must it go so that the embedding of norm 2 is pulled neither in nor out?",
            (_WEIGHT,),
        ),
        Choice(
            "relative", "relative SEC: without a scale",
            "Drag all four to half their norms. What becomes of the constraint, and of SEC?",
            (_WEIGHT,),
        ),
        Choice(
            "l2", "L2 penalty: to 0",
            "Start the race with η = 1, and compare the angles with those without a constraint.",
            (_WEIGHT,),
        ),
    ),
    menu="Constraint",
    points=lambda: [{"name": f"f of norm {n} at the start", "label": ""} for n in (1, 2, 3, 4)],
    start=((1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (4.0, 0.0)),
    formula=race,
    readouts={"value": "Constraint", "mean": "Mean norm", "spread": "Spread (%)"},
)  # fmt: skip
