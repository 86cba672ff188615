"""Lesson 03: an anchor's negatives at their true distances, and which of them teach."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider, ink
from dmlkit import ROOT, data
from dmlkit.data.batches import PK
from dmlkit.losses import mining


@cache
def measured() -> dict[str, Any]:
    """Of both networks, D² from the anchor to its positive and to the 124 negatives (figure)."""
    record = json.loads((ROOT / "figures" / "03_annuli.json").read_text(encoding="utf-8"))
    examples = [each["example"] for each in record["numbers"].values()]
    return dict(zip(("before", "after"), examples, strict=True))


def kinds(choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """How many negatives are hard, semi-hard, easy; whom each rule takes, and its loss.

    ``points`` (1, 1) is the positive's distance D, ``numbers`` (1,) the margin of D².
    """
    D2_an = torch.tensor(measured()[choice.name]["D2_an"], dtype=points.dtype)
    D2_ap, margin = points[0, 0] ** 2, numbers[0]
    row = torch.cat([points.new_zeros(1), D2_ap[None], D2_an])[None]  # anchor, positive, negatives
    negative = torch.arange(row.shape[1])[None] > 1
    positive = torch.arange(row.shape[1])[None] == 1
    count = mining.active_triplets(row, positive, negative, float(margin)).relu().sum()
    hard = (D2_an <= D2_ap).sum()
    semihard = mining.semihard_negatives(row, negative)[0, 1] - 2
    taken = torch.stack([D2_an.argmin(), semihard])
    loss = (D2_ap - D2_an[taken] + margin).relu()
    found = torch.stack([hard, count.long() - hard, len(D2_an) - count.long()])
    return {"kinds": found, "teach": count.long(), "D2": D2_ap, "taken": taken, "loss": loss}


def drawn() -> dict[str, Any]:
    """The negatives' images, and of each network their squared distances, in one order."""
    train = data.load("glyphs", "train")
    batch = PK(train.labels, classes=32, per_class=4, seed=32)(step=0)
    images = [ink(train.images[i]) for i in (batch[0], *batch[4:])]
    return {"images": images, "D2_an": {name: each["D2_an"] for name, each in measured().items()}}


def positive() -> list[dict[str, str]]:
    """The anchor's positive, the one thing that is dragged."""
    train = data.load("glyphs", "train")
    batch = PK(train.labels, classes=32, per_class=4, seed=32)(step=0)
    return [{"name": "positive", "src": ink(train.images[batch[1]])}]


_MARGIN = Slider("margin m, of D²", 0.0, 1.0, 0.2, step=0.005)
EXPLORABLE = Explorable(
    figure="03_annuli",
    alt="Characters around an anchor at their true distances, in a disc of hard, a ring of "
    "semi-hard, and outside of it easy negatives; the positive can be dragged.",
    discover="The margin decides who counts, but not whom a rule takes: the hard rule takes the "
    "same nearest negative wherever the positive lies, the semi-hard rule whoever lies just "
    "beyond the positive.",
    menu="Network",
    choices=(
        Choice(
            "before", "before training",
            "Raise the margin: does the circled negative, which the semi-hard rule takes, change? "
            "Then drag the positive inwards and outwards.",
            (_MARGIN,), start=((measured()["before"]["D2_ap"] ** 0.5,),),
        ),
        Choice(
            "after", "after 150 steps",
            "Two negatives still teach. What do they look like? At which margin does one begin?",
            (_MARGIN,), start=((measured()["after"]["D2_ap"] ** 0.5,),),
        ),
    ),
    points=positive,
    start=((1.0,),),
    formula=kinds,
    readouts={
        "teach": "Teach, of 124", "kinds.0": "Hard", "kinds.1": "Semi-hard",
        "D2": "D² of the positive",
    },
    data=drawn,
)  # fmt: skip
