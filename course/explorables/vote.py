"""Lesson 11: how often a vote of members puts an image of another product first."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider


def vote(_: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Cosines of own and other product are normal; a member's spread is 1, its gap the point.

    Members' cosines have the correlation ρ, so the mean of E has the variance ρ + (1 − ρ)/E, and
    the difference of two such means twice that.
    """
    E, rho = numbers
    gap = points[0, 0]
    spread = (rho + (1 - rho) / E).sqrt()

    def wrong(width: Tensor) -> Tensor:
        return 100 * torch.special.ndtr(-gap / (2**0.5 * width))

    floor = rho.sqrt()
    return {
        "spread": spread, "floor": floor, "alone": wrong(torch.ones_like(rho)),
        "wrong": wrong(spread), "limit": wrong(floor.clamp_min(1e-6)), "as_good": gap / spread,
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="11_members",
    alt="Two bells on a line: cosines of the images of another product, and of the own product. "
    "Thin: of one member; filled: of the vote, which is narrower.",
    discover="More members make both bells narrower, but only down to what members share: with "
    "ρ = 0.5 four members reach most of it. One network whose gap is 1.26 times as wide is as good "
    "as these four.",
    choices=(
        Choice(
            "vote", "a vote of E members",
            "Raise E from 1 to 50, with ρ = 0.5 and with ρ = 0: where does each end? Then go back "
            "to E = 1, and drag the gap: which single network is as good as the vote?",
            (
                Slider("members E", 1, 50, 4, log=True),
                Slider("correlation ρ", 0.0, 1.0, 0.5, step=0.01),
            ),
        ),
    ),
    points=lambda: [{"name": "gap between the bells", "label": ""}],
    start=((1.0,),),
    formula=vote,
    readouts={"alone": "Wrong order, one member (%)", "wrong": "By the vote (%)",
              "limit": "By very many (%)"},
)  # fmt: skip
