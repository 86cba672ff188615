"""Lesson 30: ten results, ordered by their cosine plus a weight for each match that counts."""

import base64
import io
import json
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT, data, rerank


@cache
def queries() -> dict[str, Any]:
    """Cosines, matches and right results (10,) of two queries, as the figure has them."""
    file = ROOT / "figures" / "30_order.json"
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["numbers"]
    return kept


@cache
def shown() -> dict[str, Any]:
    """The same, and the photographs of the results as data URLs."""
    images = data.load("grocery64", "test", fold=None).images
    found: dict[str, Any] = {}
    for name, each in queries().items():
        urls = []
        for row in each["first"]:
            file = io.BytesIO()
            pixels = images[row].permute(1, 2, 0).numpy()
            Image.fromarray(pixels).resize((48, 48)).save(file, "JPEG", quality=75)
            urls.append("data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode())
        found[name] = each | {"urls": urls}
    return found


def order(choice: Choice, numbers: Tensor, _points: Tensor) -> dict[str, Tensor]:
    """Scores, matches and places (10,) of the results, and the place of the first right one."""
    own = queries()[choice.name]
    weight, fewest = numbers.tolist()
    counts = torch.tensor(own["counts"])
    scores = torch.from_numpy(
        rerank.Rule(weight, round(fewest)).scores(np.array(own["cosines"]), counts.numpy())
    )
    place = 1 + scores.argsort(descending=True, stable=True).argsort()
    return {
        "scores": scores, "place": place, "counts": counts,
        "rank": place[torch.tensor(own["right"]) > 0].min(),
        "counted": (counts >= fewest).sum(),
    }  # fmt: skip


_SLIDERS = (
    Slider("weight β of a match", 0.0, 0.02, 0.001, step=0.0001),
    Slider("fewest matches t", 0, 60, 10, step=1.0),
)
EXPLORABLE = Explorable(
    figure="30_order",
    alt="Ten photographs in a row, ordered by score, a bar above each. Bars of right results have "
    "one color, those of wrong ones another; each has its place by cosine alone.",
    discover="A carton's print has most matches with its own product, so any weight of a fair size "
    "lifts it. Fruit matches fruit by chance; what saves it is a threshold above those numbers.",
    choices=(
        Choice(
            "carton", "a carton",
            "Raise the weight: when does a right result come first? Then raise t: when does it "
            "fall back, and why?",
            _SLIDERS,
        ),
        Choice(
            "fruit", "a fruit or vegetable",
            "Raise the weight: when does the right result lose its place? Which t brings it back?",
            _SLIDERS,
        ),
    ),
    points=list,
    start=(),
    formula=order,
    readouts={"rank": "Place of the first right result", "counted": "Results whose matches count"},
    menu="Query",
    data=shown,
)  # fmt: skip
