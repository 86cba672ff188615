"""Lesson 08: three proxies on a circle, imagined images around them, and whom a scale moves."""

import math

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, on_circle, turning
from dmlkit.losses import NormalizedSoftmaxLoss

PLACES = (90.0, 210.0, 330.0)  # of the classes, in degrees
#: Images of a class, in spreads from its place: quantiles of a normal distribution.
QUANTILES = [
    math.sqrt(2) * torch.erfinv(torch.tensor(2 * (k + 0.5) / 20 - 1).double()).item()
    for k in range(20)
]


def scale(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """dmlkit's loss of 60 images at proxies (3, 1); who is moved, and how the proxies turn.

    ``forces`` (60,) are the lengths of the force on each image along the circle, over α.
    """
    spread = numbers[1]
    own = torch.arange(3).repeat_interleave(20)
    spots = torch.tensor(PLACES).to(points)[own] + spread * torch.tensor(QUANTILES).to(points).tile(
        3
    )
    x, p = on_circle(spots[:, None]).requires_grad_(), on_circle(points)
    temperature = 1 / float(numbers[0])
    loss = NormalizedSoftmaxLoss(num_classes=3, dim=2, temperature=temperature).to(points.dtype)
    loss.proxies.data.copy_(p)
    with torch.enable_grad():
        value = loss(x, own)
        gradient, along = torch.autograd.grad(value, (loss.proxies, x))
    x = x.detach()
    along = along - (along * x).sum(dim=1, keepdim=True) * x  # what is tangent to the circle
    forces = len(x) * along.norm(dim=1) / numbers[0]
    grid = on_circle(torch.arange(360).to(points)[:, None] + 0.5)
    sure, winner = (numbers[0] * grid @ p.T).softmax(dim=1).max(dim=1)
    cosines = x @ p.T
    P = (numbers[0] * cosines).softmax(dim=1).gather(1, own[:, None])[:, 0]
    rivals = cosines.scatter(1, own[:, None], -2.0).amax(dim=1)
    lead = cosines.gather(1, own[:, None])[:, 0] - rivals
    hardest = lead.argsort()[: len(lead) // 4]
    return {
        "value": value.detach(), "P": 100 * P.mean(),
        "share": 100 * forces[hardest].sum() / forces.sum(), "wrong": (lead < 0).double().sum(),
        "forces": forces, "spots": spots, "sure": sure, "winner": winner,
        "turns": turning(p, -gradient),
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="08_scale",
    alt="A disc with three proxies on its edge, in the color of the class that wins, pale where "
    "the classifier is uncertain. Outside a bar for each of sixty imagined images: the "
    "force on it along the circle.",
    discover="A scale moves no border and puts no image on the right side. It decides who is "
    "moved: at a small one every image off its proxy, at a large one only those at a border or "
    "beyond it. To turn a proxy the easy images of its class count at a small scale alone.",
    choices=(
        Choice(
            "normalized_softmax", "normalized softmax",
            "Raise α from 1 to 64. Which bars vanish, and does an image change sides? Then turn a "
            "proxy by 40°: at which scale do many images pull it back, at which a few?",
            (
                Slider("scale α", 1.0, 64.0, 4.0, log=True),
                Slider("spread of a class (°)", 5.0, 60.0, 35.0, step=1.0),
            ),
        ),
    ),
    points=lambda: [{"name": f"proxy {k}", "label": "", "kind": f"c{k}"} for k in range(3)],
    start=tuple((place,) for place in PLACES),
    formula=scale,
    readouts={"share": "Force on the hardest quarter (%)", "P": "Mean probability (%)",
              "wrong": "On the wrong side, of 60", "value": "Loss"},
)  # fmt: skip
