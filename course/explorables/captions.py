"""Lesson 28: three pictures on a circle, and their captions, which turn together."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, on_circle
from dmlkit import losses

CAPTIONS = (0.0, 120.0, 240.0)  # degrees, before they are turned


def captions(_choice: Choice, numbers: Tensor, degrees: Tensor) -> dict[str, Tensor]:
    """Loss, how many pictures find their caption, probabilities (3, 3) and angles (3,) of captions.

    A row of the probabilities is a picture, a column a caption.
    """
    turn, sigma = numbers
    angles = torch.tensor(CAPTIONS, dtype=degrees.dtype) + turn
    z, w = on_circle(degrees), on_circle(angles[:, None])
    s = z @ w.T
    loss = losses.build("n_pairs_normalized", direction="both", scale=float(sigma**-0.5))
    value = loss(torch.cat([z, w]), torch.arange(3).repeat(2))
    return {
        "value": value, "found": (s.argmax(dim=1) == torch.arange(3)).double().sum(),
        "p": (s / sigma).softmax(dim=1), "angles": angles,
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="28_turn",
    alt="A circle with three pictures, numbered 1 to 3, and three captions, a to c, which turn "
    "together. Lines join each picture to the captions, as wide as its probability for them.",
    discover="Turning all captions together raises the loss, soon if σ is large, late if it is "
    "small; but each picture finds its caption until another one is as near.",
    choices=(
        Choice(
            "captions", "pictures and captions",
            "Turn the captions: when does the loss rise, and when does a picture find a wrong one? "
            "Then drag two pictures together: what can no turn of the captions mend?",
            (
                Slider("captions turned by (°)", -180.0, 180.0, 20.0, step=1.0),
                Slider("temperature σ", 0.05, 2.0, 0.3, log=True),
            ),
        ),
    ),
    points=lambda: [
        {"name": f"picture {k + 1}", "label": f"{k + 1}", "kind": f"c{k}"} for k in range(3)
    ],
    start=((0.0,), (120.0,), (240.0,)),
    formula=captions,
    readouts={"value": "Loss", "found": "Found, of 3"},
)  # fmt: skip
