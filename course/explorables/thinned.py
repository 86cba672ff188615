"""Lesson 25: what training brings, by how many classes and photographs there are to learn from."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable
from dmlkit import ROOT

#: Columns and rows of the map: photographs of a class, and classes.
EACH, CLASSES = (2, 5, 10, 20, 40), (5, 10, 20, 40, 60)


@cache
def measured() -> dict[str, Any]:
    """Of each way the gains (5, 5) over untouched, and the ends of their intervals (figure)."""
    record = json.loads((ROOT / "figures" / "25_thinned.json").read_text(encoding="utf-8"))
    gains: dict[str, Any] = record["numbers"]["gains"]
    return gains


def gained(choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The gain and its interval in the cell nearest to the point, whose middle cell is (0, 0)."""
    column, row = (points[0] + 2.5).floor().long()
    own = {key: torch.tensor(measured()[choice.name][key]) for key in ("mean", "low", "high")}
    about = {"classes": torch.tensor(CLASSES)[row], "each": torch.tensor(EACH)[column]}
    return about | {key: each.double()[row, column] for key, each in own.items()}


EXPLORABLE = Explorable(
    figure="25_thinned",
    alt="A map of five by five cells, more photographs of a class to the right and more classes "
    "upwards, blue where training gains and orange where it loses; one cell is framed.",
    discover="A head that begins at random needs both, many classes and many photographs of each: "
    "from few classes it loses, however many photographs they have. Whitening loses in no cell.",
    menu="What is trained",
    choices=(
        Choice(
            "head", "a narrow head",
            "Move to the right, then upwards: what helps a head more, photographs or classes?",
        ),
        Choice(
            "whitening", "whitening",
            "Is there a cell in which it loses? Where does a head catch up?",
        ),
    ),
    points=lambda: [{"name": "cell", "label": ""}],
    start=((0.0, 0.0),),
    data=measured,
    formula=gained,
    readouts={"mean": "Gain (points)", "low": "from", "high": "to", "classes": "Classes",
              "each": "Photographs of each"},
)  # fmt: skip
