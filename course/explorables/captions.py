"""Lesson 28: three pictures and three captions on a circle; one caption moves, and may be a hub."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, on_circle
from dmlkit import losses

FIXED = (-50.0, 200.0)  # degrees of captions a and c; b moves


def captions(_choice: Choice, numbers: Tensor, degrees: Tensor) -> dict[str, Tensor]:
    """Loss and its two halves, what is found both ways, probabilities (3, 3), angles of captions.

    Of p a row is a picture and a column a caption; of q a row is a caption.
    """
    place, sigma = numbers
    a, c = torch.tensor(FIXED, dtype=degrees.dtype)
    angles = torch.stack([a, place.to(degrees.dtype), c])
    z, w = on_circle(degrees), on_circle(angles[:, None])
    s = z @ w.T
    loss = losses.build("n_pairs_normalized", direction="both", scale=float(sigma**-0.5))
    value = loss(torch.cat([z, w]), torch.arange(3).repeat(2))
    rows = -(s / sigma).log_softmax(dim=1).diagonal().mean()
    own = torch.arange(3)
    return {
        "value": value, "rows": rows, "columns": 2 * value - rows,
        "found": (s.argmax(dim=1) == own).double().sum(),
        "back": (s.argmax(dim=0) == own).double().sum(),
        "p": (s / sigma).softmax(dim=1), "q": (s.T / sigma).softmax(dim=1), "angles": angles,
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="28_turn",
    alt="A circle with three pictures, numbered 1 to 3, and three captions, a to c. Lines join "
    "each picture to the captions, as wide as its probability for them.",
    discover="A caption between two pictures may be the nearest one of both, a hub: rows of the "
    "table fail first, its own column only where the wrong picture is nearer to it.",
    choices=(
        Choice(
            "captions", "pictures and captions",
            "Move caption b from 60° down to 0°: which of the two losses rises first, and where? "
            "Then drag pictures: can you make the columns fail and not the rows?",
            (
                Slider("caption b at (°)", -180.0, 180.0, 60.0, step=1.0),
                Slider("temperature σ", 0.05, 2.0, 0.1, log=True),
            ),
        ),
    ),
    points=lambda: [
        {"name": f"picture {k + 1}", "label": f"{k + 1}", "kind": f"c{k}"} for k in range(3)
    ],
    start=((0.0,), (60.0,), (200.0,)),
    formula=captions,
    readouts={
        "value": "Loss", "rows": "of rows", "columns": "of columns",
        "found": "Pictures right, of 3", "back": "Captions right, of 3",
    },
)  # fmt: skip
