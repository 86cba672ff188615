"""Lesson 04: how far apart random points of a sphere lie, by its number of dimensions."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider

GRID = 2000  # distances from 0 to 2


def density(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Density q(D) ∝ D^(d−2) (1 − D²/4)^((d−3)/2) on a grid, and what lies within a distance.

    ``near``: so many of 10,000 random negatives lie nearer than the handle.
    """
    d, reach = numbers[0].round(), points[0, 0]
    D = (torch.arange(GRID, dtype=torch.float64) + 0.5) * 2 / GRID
    log_q = (d - 2) * D.log() + (d - 3) / 2 * (1 - D**2 / 4).log()
    share = (log_q - log_q.max()).exp()
    share = share / share.sum()
    mean = (share * D).sum()
    return {
        "d": d, "near": 1e4 * share[reach >= D].sum(), "mean": mean, "r": reach / mean,
        "spread": (share * (D - mean) ** 2).sum().sqrt(), "q": share[::10] * GRID / 2,
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="04_spheres",
    alt="The density of distances from an anchor to random points of the unit sphere, from 0 to 2, "
    "and a handle: the share of points that lie nearer is shaded.",
    discover="With more dimensions all random points gather at √2, about 1/√(2d) to either side. "
    "A threshold of 1.2, which a third of them undercut in 3 dimensions, finds none in 512.",
    choices=(
        Choice(
            "sphere", "sphere",
            "Raise the number of dimensions. Where do random points go? Then drag the handle: "
            "within which r do you find one negative in a hundred?",
            (Slider("dimensions d", 3.0, 512.0, 8.0, log=True),),
        ),
    ),
    points=lambda: [{"name": "distance", "label": ""}],
    start=((1.2,),),
    formula=density,
    readouts={
        "near": "Nearer, of 10,000", "mean": "Mean distance", "r": "r",
        "spread": "Spread",
    },
)  # fmt: skip
