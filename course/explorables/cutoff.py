"""Lesson 04: which negative a draw by distance takes, by the cutoff and the size of the cloud."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider

#: Distances of twenty negatives from an anchor, over their mean: so the first batches have them.
RELATIVE = torch.linspace(0.76, 1.24, 20, dtype=torch.float64)
FAR = 1.4  # what lies beyond is not drawn, unless all do


def draws(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The probability of each negative, as ``mining.distance_weighted_negatives`` draws them."""
    size, d, cutoff = numbers[0], numbers[1].round(), points[0, 0]
    D = size * RELATIVE
    held = torch.maximum(D, cutoff).clamp(max=FAR)
    log_q = (d - 2) * held.log() + (d - 3) / 2 * (1 - held**2 / 4).log()
    may = (D <= FAR) | (D.min() > FAR)
    p = torch.where(may, -log_q, -torch.inf).softmax(dim=0)
    return {"D": D, "p": p, "nearest": 100 * p[0], "relative": (p * RELATIVE).sum()}


EXPLORABLE = Explorable(
    figure="04_draws",
    alt="Twenty negatives on a line at their distances from the anchor, each with a bar as high as "
    "its probability to be drawn, and a handle at the cutoff.",
    discover="Beyond the cutoff hardly any but the first few are drawn; in a cloud within "
    "the cutoff all are drawn alike. So a draw changes by itself while a cloud shrinks or grows.",
    choices=(
        Choice(
            "draws", "draws",
            "Make the cloud smaller: from which size on does the draw no longer prefer the "
            "nearest? Then drag the cutoff to 0 and try again. What do fewer dimensions change?",
            (
                Slider("mean distance of the negatives", 0.1, 1.3, 1.1, step=0.02),
                Slider("dimensions d", 4.0, 128.0, 64.0, log=True),
            ),
        ),
    ),
    points=lambda: [{"name": "cutoff", "label": ""}],
    start=((0.5,),),
    formula=draws,
    readouts={"nearest": "Draws of the nearest (%)", "relative": "Relative distance"},
)  # fmt: skip
