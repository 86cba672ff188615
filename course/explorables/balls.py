"""Lesson 22: what UMAP draws of three balls, of which one is wider, farther, or has more points."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT


@cache
def measured() -> dict[str, Any]:
    """Of each change of ball C, at five multiples: maps, weights and truth, from the figure."""
    record = json.loads((ROOT / "figures" / "22_truth.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = record["numbers"]["maps"]["example"]
    return found


def seen(choice: Choice, numbers: Tensor, _points: Tensor) -> dict[str, Tensor]:
    """C in multiples of A: its true width, distance and count, those on the map, and weights."""
    own = measured()[choice.name][int(torch.floor(numbers[0] + 2.5))]
    return {key: torch.tensor(value).double() for key, value in own.items() if key != "map"}


def _power(of: str) -> tuple[Slider]:
    return (Slider(f"{of}: 2 to the power of", -2.0, 2.0, 0.0, step=1.0),)


EXPLORABLE = Explorable(
    figure="22_truth",
    alt="Left the true widths and distances of three balls, right UMAP's map of them, below the "
    "weights of a point of ball C, while C becomes wider, moves away, or gets more points.",
    discover="Neither width nor distance of C changes a weight: its island is as wide as others, "
    "and not four times as far away. The number of points does not change a ball's true width, "
    "but it does change that of its island.",
    menu="Change",
    choices=(
        Choice("width", "C's width", "Make C wider. Which bar moves, and which island?",
               _power("width of C")),
        Choice("distance", "C's distance", "Move C away. Where does its island go?",
               _power("distance of C")),
        Choice("count", "C's number of points", "Give C more points. Does its island stay?",
               _power("points of C")),
    ),
    points=list,
    start=(),
    formula=seen,
    readouts={"width.0": "Width of C, true", "width.1": "on the map",
              "distance.0": "Distance of C, true", "distance.1": "on the map, of C"},
    data=measured,
)  # fmt: skip
