"""Lesson 17: who feels the point that SEE adds, on a circle: other proxies, and the sample."""

import torch
import torch.nn.functional as F
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, on_circle, turning
from dmlkit.losses.spherical import expand


def felt(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Forces along the circle on sample and two other proxies (3,), by sample and by point.

    The own proxy stands still at 90°; the loss is normalized softmax, and its gradient autograd's.
    """
    lam, alpha = numbers
    own, label = points.new_tensor([[0.0, 1.0]]), torch.zeros(1, dtype=torch.long)
    places = on_circle(points).detach().requires_grad_()  # (3, 2)
    with torch.enable_grad():
        q = F.normalize(torch.cat([own, places[1:]]))
        z = expand(places[:1], own, points=1)[0]  # (1, 2)
        seen = z.detach() if choice.name == "code" else z
        real = F.cross_entropy(alpha * F.normalize(places[:1]) @ q.T, label)
        again = F.cross_entropy(alpha * seen @ q.T, label)
        slopes = [torch.autograd.grad(v, places, retain_graph=True)[0] for v in (real, again)]
    by_sample, by_point = (turning(places.detach(), -slope) for slope in slopes)
    return {
        "by_sample": by_sample, "by_point": lam * by_point, "turns": by_sample + lam * by_point,
        "point": 180 - points[0, 0], "right": (-again).exp().detach(),
    }  # fmt: skip


_SLIDERS = (
    Slider("weight λ of the point", 0.0, 2.0, 1.0, step=0.1),
    Slider("scale α", 1.0, 64.0, 16.0, log=True),
)

EXPLORABLE = Explorable(
    figure="17_felt",
    alt="A circle with the own proxy on top, a sample, its synthetic point mirrored on the other "
    "side, and two proxies of other classes. Arrows are forces on sample and proxies.",
    discover="The point pushes only proxies near itself, on the side where the sample is not. In "
    "the printed form the sample feels it, too, and is drawn to its proxy from both sides; in the "
    "code's form the sample feels nothing of it, whatever λ is. The sample's own force grows with "
    "the scale, and beyond 12 it fades; that of an attached point grows on.",
    choices=(
        Choice(
            "code", "the authors' code",
            "Raise λ from 0 to 2. Which arrows grow, and which does not change at all?",
            _SLIDERS,
        ),
        Choice(
            "paper", "the paper's equation",
            "Set λ to 0 and raise α from 1 to 64. Then with λ = 1. How does the force on x go?",
            _SLIDERS,
        ),
    ),
    menu="Form",
    points=lambda: [
        {"name": "x, the sample", "label": "x"},
        {"name": "q̂₁", "label": "q̂₁"},
        {"name": "q̂₂", "label": "q̂₂"},
    ],
    start=((55.0,), (10.0,), (140.0,)),
    formula=felt,
    readouts={"turns.0": "Force on x", "turns.1": "on q̂₁", "turns.2": "on q̂₂",
              "right": "P of the point"},
)  # fmt: skip
