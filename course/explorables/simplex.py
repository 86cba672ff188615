"""Lesson 16: the points that SEE adds to a sample, by their number and by the sample's angle."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit.losses.spherical import expand

COUNTS = {"one": 1, "two": 2, "three": 3}


def corners(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Angles to the proxy (n + 1,) in degrees, and distances between corners, of n points.

    The sample comes first. The space has d = n + 1 dimensions, but at least 3; ``points``, how far
    the picture is turned, changes no number.
    """
    n, theta = COUNTS[choice.name], numbers[0].deg2rad()
    proxy, ahead = torch.eye(max(n, 2) + 1, dtype=numbers.dtype)[[-1, 0]]
    sample = theta.cos() * proxy + theta.sin() * ahead
    all_ = torch.cat([sample[None], expand(sample[None], proxy[None], n)[0]])  # (n + 1, d)
    angles = (all_ @ proxy).clamp(-1, 1).acos().rad2deg()
    apart = torch.cdist(all_[None], all_[None], compute_mode="donot_use_mm_for_euclid_dist")[0]
    return {
        "angles": angles, "apart": apart, "side": apart[0, 1],
        "chord": (sample - proxy).norm(), "needs": torch.tensor(float(n + 1)),
        "turned": points[0, 0],
    }  # fmt: skip


_ANGLE = Slider("angle θ to the proxy (°)", 5.0, 175.0, 40.0, step=0.5)

EXPLORABLE = Explorable(
    figure="16_corners",
    alt="A sphere with a proxy, a sample and its synthetic points on the circle of latitude; for "
    "three points, the ball of directions that are orthogonal to the proxy.",
    discover="Whatever the number and the angle: each point is exactly as near to the proxy as the "
    "sample is, and all are equally far from each other. Three points are the corners of a "
    "tetrahedron around the proxy, for which a sphere in three dimensions has no space: n points "
    "need n ≤ d − 1.",
    choices=(
        Choice(
            "two", "two points",
            "Move θ from 5° to 175°. When are the sides longest? At which θ is a side as long as "
            "the way from the sample to the proxy?",
            (_ANGLE,),
        ),
        Choice("one", "one point", "Where does one point lie, as the proxy sees it?", (_ANGLE,)),
        Choice(
            "three", "three points",
            "Turn the ball. Here you see only what is orthogonal to the proxy, which is in the "
            "middle: why can the sphere itself not be drawn?",
            (_ANGLE,),
        ),
    ),
    menu="SEE adds",
    points=lambda: [{"name": "turn the sphere", "label": ""}],
    start=((300.0,),),
    formula=corners,
    readouts={"side": "Side", "chord": "Sample to proxy", "needs": "Needs d of at least"},
)  # fmt: skip
