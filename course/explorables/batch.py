"""Lesson 05: who meets in a batch of 64 images: partners, look-alikes, and both at once."""

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from course.explorables import Choice, Explorable, Slider, ink
from dmlkit import data, models

SIZE = 64  # images in a batch
CLASSES = 300  # of the lesson's training set, from which PK draws


def none(special: Tensor, others: Tensor, draws: Tensor) -> Tensor:
    """Probability that none of so many draws, without replacement, is one of the special."""
    k = torch.arange(SIZE, dtype=torch.float64)
    each = (others - k).clamp(min=0) / (special + others - k).clamp(min=1)
    return torch.where(k < draws, each, torch.ones_like(each)).prod()


def batch(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Means over all batches; every class has ``alike`` others that look like it.

    ``useful``: share of images with a partner, and an image of a look-alike, in their batch.
    """
    del points
    if choice.name == "pk":
        per_class, alike = numbers.round()
        classes, positives = SIZE / per_class, per_class - 1
        triplets = SIZE * positives * (SIZE - per_class)
        met = 1 - none(alike, CLASSES - 1 - alike, classes - 1)
        useful, negatives = met * (per_class > 1), (SIZE - per_class) * alike / (CLASSES - 1)
    else:
        total, images, alike = numbers.round()
        m, own, like, rest = (
            torch.tensor(SIZE - 1.0),
            images - 1,
            alike * images,
            total * images - 1,
        )
        positives, negatives = m * own / rest, m * like / rest
        triplets = SIZE * m * (m - 1) * own / rest * (rest - own) / (rest - 1)
        classes = total * (1 - none(images, rest + 1 - images, m + 1))
        alone, unmet = none(own, rest - own, m), none(like, rest - like, m)
        met = 1 - unmet
        useful = 1 - alone - unmet + none(own + like, rest - own - like, m)
    return {
        "classes": classes, "positives": positives, "negatives": negatives,
        "triplets": triplets / 1000, "met": 100 * met, "useful": 100 * useful,
    }  # fmt: skip


@cache
def ring() -> list[str]:
    """A glyph of each class, each class beside one that a trained network finds near."""
    train = data.load("glyphs", "train")
    few = np.concatenate([np.flatnonzero(train.labels == c)[:8] for c in range(CLASSES)])
    net = models.ConvNet(dim=64, pretrained=True)
    net.head = nn.Identity()  # type: ignore[assignment]
    with torch.inference_mode():
        x = net.eval()(train.images[few])  # (8 C, 384)
    means = nn.functional.normalize(x.double().reshape(CLASSES, 8, -1).mean(dim=1))
    close = means @ means.T  # (C, C)
    order = [0]
    while len(order) < CLASSES:
        close[:, order[-1]] = -2
        order.append(int(close[order[-1]].argmax()))
    return [ink(train.images[few[8 * c]]) for c in order]


_ALIKE = Slider("classes that look like a class", 2.0, 20.0, 4.0, step=2.0)

EXPLORABLE = Explorable(
    figure="05_meet",
    alt="A sheet of the 64 images of a batch, class by class: pale where no other image of the "
    "class is there, with an orange frame where a class is there that looks alike. The first image "
    "has a black frame, its partners blue ones.",
    discover="More images of a class mean more triplets, of fewer classes: from K = 2 on, ever "
    "fewer images meet a class that looks like theirs. With K = 1, and in a uniform batch of many "
    "classes, nearly all images are without a partner.",
    menu="Batch",
    choices=(
        Choice(
            "pk", "PK, of 300 classes",
            "Raise K from 1. What grows, and what becomes rare? At which K has the batch most "
            "triplets, and at which do most images have both a partner and a look-alike?",
            (Slider("images of a class K", 1.0, 32.0, 4.0, log=True, step=6.2), _ALIKE),  # 2^k
        ),
        Choice(
            "uniform", "uniform",
            "Raise the number of classes. From how many on has an image less than one partner? "
            "Then take 11,300 classes of 5 images, as of products in a shop.",
            (
                Slider("classes of the data C", 20.0, 20000.0, 300.0, log=True),
                Slider("images of each", 2.0, 100.0, 40.0, log=True),
                _ALIKE,
            ),
        ),
    ),
    points=list,
    start=(),
    formula=batch,
    data=lambda: {"glyphs": ring()},
    readouts={"classes": "Classes", "positives": "Partners of an image",
              "triplets": "Triplets, thousands", "useful": "Partner and look-alike (%)"},
)  # fmt: skip
