"""Lesson 24: what photographs of the query's own visit give to a search."""

import json
from functools import cache

import torch
from torch import Tensor

from course.explorables import Choice, Explorable
from dmlkit import ROOT


@cache
def measured() -> dict[str, list[float]]:
    """Recall@1 (%) with 0, 1, … photographs of each product from the query's own visit."""
    record = json.loads((ROOT / "figures" / "24_trap.json").read_text(encoding="utf-8"))
    return {name.replace(", ", " "): own for name, own in record["numbers"]["own visit"].items()}


def scored(choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Recall@1 (%), and what of it the own visit gives (points)."""
    curve = torch.tensor(measured()[choice.name], dtype=torch.float64)
    own = (points[0, 0] + 0.5).floor().long()
    return {"recall": curve[own], "given": curve[own] - curve[0], "own": own}


EXPLORABLE = Explorable(
    figure="24_trap",
    alt="A rising curve of Recall@1 over the number of photographs of the query's own visit that "
    "the gallery has of each product, which you drag.",
    discover="Each photograph of the own visit adds a few points, so ten turn a poor search into "
    "a fair one. Among fewer products, where less goes wrong, they add less.",
    menu="Search",
    choices=(
        Choice(
            "untouched 81 products", "untouched features, 81 products",
            "Add photographs of the query's own visit, one by one. When does it look good enough?",
        ),
        Choice(
            "untouched 20 products", "untouched features, about 20 products",
            "Fewer products: is the visit worth as much?",
        ),
    ),
    points=lambda: [{"name": "photographs of the own visit", "label": ""}],
    start=((0.0,),),
    data=measured,
    formula=scored,
    readouts={"recall": "Recall@1 (%)", "given": "By the own visit (points)"},
)  # fmt: skip
