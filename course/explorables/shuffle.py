"""Lesson 15: the share of a variance by chance, if images are shuffled or characters dealt."""

import math

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider

#: Nine kinds of five characters: a chi square of 8 degrees of freedom has a closed form.
SCRIPTS, CHARACTERS, HALF = 9, 45, 4
LIMIT = 15.507313055865453 / 2  # half of what such a chi square exceeds in 5 of 100 cases


def beyond(x: Tensor) -> Tensor:
    """P(half a chi square of 8 degrees of freedom > x) = e^-x (1 + x + x²/2 + x³/6)."""
    return (-x).exp() * sum(x**k / math.factorial(k) for k in range(HALF))


def by_chance(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Shares that kinds without an effect explain, for normal norms and many images.

    Of N = 45 m images: η² is about a chi square of 8 degrees of freedom over N - 1 if all images
    were drawn one by one; m images of one character stretch it by 1 + (m - 1) ρ. ``high``: heights
    of the two densities on a grid, over that of shuffled images.
    """
    m, rho, seen = numbers[0].round(), numbers[1], points[0, 0] / 100
    stretch, freedom = 1 + (m - 1) * rho, CHARACTERS * m - 1
    at = (torch.arange(200, dtype=torch.float64) + 0.5) / 200 * 0.6
    shape = [(at * freedom / 2 / s) ** 3 * (-at * freedom / 2 / s).exp() / s for s in (1, stretch)]
    return {
        "images": 100 * beyond(seen * freedom / 2),
        "characters": 100 * beyond(seen * freedom / 2 / stretch),
        "findings": 100 * beyond(LIMIT / stretch),
        "mean": 100 * (SCRIPTS - 1) * stretch / freedom,
        "high": torch.stack(shape) / (27 * math.exp(-3)),
    }


EXPLORABLE = Explorable(
    figure="15_trap",
    alt="Two densities of the share that nine kinds without any effect explain: narrow if images "
    "are shuffled, wide if whole characters are dealt; a handle is the share that somebody sees.",
    discover="With one image of each character both curves are one, and 5 of 100 data sets have a "
    "finding. With more images the curve of shuffled images becomes narrow, and that of dealt "
    "characters hardly does: the more images of the same characters, the more false findings.",
    choices=(
        Choice(
            "scripts", "nine kinds",
            "The kind has no effect here. Raise the images of a character: which curve narrows? "
            "Then drag the share that somebody sees: who calls it a finding?",
            (
                Slider("images of a character", 1.0, 40.0, 10.0, step=1.0),
                Slider("share ρ between characters", 0.0, 1.0, 0.5, step=0.05),
            ),
        ),
    ),
    points=lambda: [{"name": "share that is seen", "label": ""}],
    start=((12.0,),),
    formula=by_chance,
    readouts={
        "images": "Shuffled images exceed it (%)", "characters": "Dealt characters exceed it (%)",
        "findings": "False findings by images, of 100",
    },
)  # fmt: skip
