"""Lesson 26: what a threshold answers, of strangers and of known queries."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable
from dmlkit import ROOT

#: What is counted in the lesson's figure, and the number that is shown of it.
COUNTED = {"strangers": "stranger", "right": "right", "wrong": "wrong"}


@cache
def measured() -> dict[str, Any]:
    """Of each catalog the shares (%) that are answered at the thresholds 0, 0.01 to 1."""
    record = json.loads((ROOT / "figures" / "26_threshold.json").read_text(encoding="utf-8"))
    return {
        name.replace(", ", " "): {mine: own[of]["example"] for of, mine in COUNTED.items()}
        for name, own in record["numbers"].items()
    }


def answered(choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Shares (%) at the threshold, to two digits: answered, and of known queries refused."""
    at = (100 * points[0, 0] + 0.5).floor().long()
    own = {key: torch.tensor(each).double()[at] for key, each in measured()[choice.name].items()}
    return own | {"refused": 100 - own["right"] - own["wrong"], "threshold": at / 100}


EXPLORABLE = Explorable(
    figure="26_threshold",
    alt="Three falling curves over the cosine of a threshold, which you drag: strangers answered, "
    "known queries answered right, known queries answered wrong.",
    discover="With untouched features strangers and known queries fall together: a threshold that "
    "keeps strangers out keeps most known queries out, too. Fewer products move the strangers' "
    "curve to the left, and fine-tuning moves the right answers away from it.",
    menu="Catalog",
    choices=(
        Choice(
            "untouched 81", "untouched features, 81 products",
            "Where does one stranger in ten get an answer? How many known queries are refused?",
        ),
        Choice(
            "untouched 20", "untouched features, 20 products",
            "Again one stranger in ten: which curve has moved, and how far?",
        ),
        Choice(
            "fine-tuned 20", "fine-tuned, 20 products",
            "Again one stranger in ten: what does the better embedding buy back?",
        ),
    ),
    points=lambda: [{"name": "threshold", "label": ""}],
    start=((0.6,),),
    data=measured,
    formula=answered,
    readouts={"stranger": "Strangers answered (%)", "right": "Known, right (%)",
              "wrong": "Known, wrong (%)", "refused": "Known, refused (%)"},
)  # fmt: skip
