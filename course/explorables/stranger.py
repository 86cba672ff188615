"""Lesson 26: whom a search answers where a refusal has a price."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable
from dmlkit import ROOT

#: What is counted in the lesson's figure, and the number that is shown of it.
COUNTED = {"strangers": "stranger", "right": "right", "wrong": "wrong"}
RATE = 0.2  # of queries are strangers


@cache
def measured() -> dict[str, Any]:
    """Of each catalog the shares (%) answered at the thresholds 0, 0.01 to 1, and ten customers."""
    record = json.loads((ROOT / "figures" / "26_threshold.json").read_text(encoding="utf-8"))
    numbers = dict(record["numbers"])
    customers = numbers.pop("customers")["example"]
    for one in customers:
        one["of"] = {name.replace(", ", " "): found for name, found in one["of"].items()}
    return {
        name.replace(", ", " "): {mine: own[of]["example"] for of, mine in COUNTED.items()}
        for name, own in numbers.items()
    } | {"customers": customers}


def answered(choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Shares (%) at the cheapest threshold, and what 100 customers cost there."""
    price = (100 * points[0, 0] + 0.5).floor() / 100
    own = {
        key: torch.tensor(each, dtype=torch.float64)
        for key, each in measured()[choice.name].items()
    }
    refused = 100 - own["right"] - own["wrong"]  # (101,)
    costs = RATE * own["stranger"] + (1 - RATE) * (own["wrong"] + price * refused)
    at = (costs == costs.min()).nonzero()[0, 0]
    shown = {key: each[at] for key, each in (own | {"refused": refused}).items()}
    return shown | {"threshold": at.double() / 100, "cost": costs[at], "price": price}


EXPLORABLE = Explorable(
    figure="26_threshold",
    alt="Ten customers with their photographs, eight of products in the catalog and two strangers. "
    "You drag the price of a refusal; the cheapest threshold answers some and refuses the others.",
    discover="Untouched features among 81 products leave a choice between nearly nobody and nearly "
    "everybody. Fine-tuned features answer most known queries and still refuse most strangers.",
    menu="Catalog",
    choices=(
        Choice(
            "untouched 81", "untouched features, 81 products",
            "Raise the price. Between which prices does the threshold change its mind?",
        ),
        Choice(
            "untouched 20", "untouched features, 20 products",
            "Who gets an answer first, and when do strangers get one?",
        ),
        Choice(
            "fine-tuned 20", "fine-tuned, 20 products",
            "At a price of 0.5: what does the better embedding change?",
        ),
    ),
    points=lambda: [{"name": "price", "label": ""}],
    start=((0.3,),),
    data=measured,
    formula=answered,
    readouts={"stranger": "Strangers answered (%)", "right": "Known, right (%)",
              "wrong": "Known, wrong (%)", "refused": "Known, refused (%)"},
)  # fmt: skip
