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
    discover="More photographs of five products change nothing. With more products both heads "
    "gain; the one that begins at random has more to regain, and ends higher.",
    menu="Where the head begins",
    choices=(
        Choice(
            "axes", "at principal axes",
            "Stay in the lowest row and move to the right, then go up the last column: what helps, "
            "photographs or products?",
        ),
        Choice(
            "head", "at random",
            "Compare the lowest row with that of the other beginning: what does the start cost?",
        ),
    ),
    points=lambda: [{"name": "cell", "label": ""}],
    start=((0.0, 0.0),),
    data=measured,
    formula=gained,
    readouts={"mean": "Gain (points)", "low": "from", "high": "to", "classes": "Classes",
              "each": "Photographs of each"},
)  # fmt: skip
