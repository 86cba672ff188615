"""Lesson 09: two proxies on a circle, a margin, and the wedge in which no class is content."""

import math

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider

GRID = 3600  # directions, a tenth of a degree apart
#: Held-out images of a class, in spreads from its proxy: quantiles of a normal distribution.
QUANTILES = [
    math.sqrt(2) * torch.erfinv(torch.tensor(2 * (k + 0.5) / 20 - 1)).item() for k in range(20)
]


def target(name: str, theta: Tensor, m: Tensor) -> Tensor:
    """What each loss takes in place of cos θ for the own class (lesson 09, section 1)."""
    if name == "cosface":
        return theta.cos() - m
    if name == "arcface":
        return torch.where(theta + m <= math.pi, (theta + m).cos(), theta.cos() - m * m.sin())
    if name == "sphereface":
        k = (m * theta / math.pi).floor().clamp(max=m - 1)
        return (-1) ** k * (m * theta).cos() - 2 * k
    return theta.cos()


def angles(directions: Tensor, proxies: Tensor) -> Tensor:
    """Angles (N, 2) in radians between directions (N,) and proxies (2,), both in degrees."""
    return ((directions[:, None] - proxies + 180) % 360 - 180).abs().deg2rad()


def wedge(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Wedge between two proxies in degrees, and what becomes of 40 held-out images.

    A class is content where its lowered score is above the other's cosine.
    """
    m, spread = numbers
    proxies = points[:, 0]
    theta = angles((torch.arange(GRID, dtype=torch.float64) + 0.5) * 360 / GRID, proxies)
    first = target(choice.name, theta[:, 0], m) > theta[:, 1].cos()
    second = target(choice.name, theta[:, 1], m) > theta[:, 0].cos()
    apart = angles(proxies[:1], proxies)[0, 1].rad2deg()
    side = theta.sum(dim=1).rad2deg() < apart + 1e-6 * apart + 1e-9  # on the short arc
    free = ~first & ~second & side
    spots = (
        torch.tensor(QUANTILES, dtype=torch.float64)[None] * spread + proxies[:, None]
    )  # (2, 20)
    seen = angles(spots.flatten(), proxies).view(2, 20, 2)
    own, other = (torch.stack([seen[0, :, k], seen[1, :, 1 - k]]) for k in (0, 1))
    happy = target(choice.name, own, m) > other.cos()
    return {
        "apart": apart, "wedge": free.double().sum() * 360 / GRID,
        "crossed": (own > other).double().sum(), "asked": (~happy).double().sum(),
        "areas": first.double() + 2 * second.double(), "spots": spots,
    }  # fmt: skip


_SPREAD = Slider("spread of an image (°)", 5.0, 40.0, 20.0)

EXPLORABLE = Explorable(
    figure="09_wedges",
    alt="A circle with two proxies. Each direction has the color of the class that is content "
    "there, gray where none is. Dots are forty held-out images around their proxies.",
    discover="A margin opens a wedge between the proxies: ArcFace's is m wide wherever they stand, "
    "CosFace's widens as they come nearer, SphereFace's narrows. It moves no image and no border "
    "by itself: those across stay across. It only makes the loss ask for more, and where the "
    "proxies are too near, for more than there is.",
    choices=(
        Choice(
            "arcface", "ArcFace",
            "Raise m from 0 with the proxies 90° apart. What opens, and how many images are asked "
            "to move that were on the right side? Then bring the proxies within 20°.",
            (Slider("margin m", 0.0, 1.0, 0.5), _SPREAD),
        ),
        Choice(
            "cosface", "CosFace",
            "Bring the proxies nearer, step by step. Does the wedge shrink with the arc?",
            (Slider("margin m", 0.0, 0.6, 0.35), _SPREAD),
        ),
        Choice(
            "sphereface", "SphereFace",
            "At m = 4, bring the proxies nearer. What share of the arc is the wedge?",
            (Slider("margin m", 1.0, 4.0, 4.0, step=1.0), _SPREAD),
        ),
    ),
    points=lambda: [{"name": f"proxy {k}", "label": "", "kind": f"c{k - 1}"} for k in (1, 2)],
    start=((130.0,), (40.0,)),
    formula=wedge,
    readouts={"apart": "Proxies apart (°)", "wedge": "Wedge (°)", "crossed": "Images across",
              "asked": "Asked to move"},
)  # fmt: skip
