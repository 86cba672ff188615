"""Lesson 28: a search by three words with weights, over one photograph of each new product."""

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
from dmlkit import ROOT, data


@cache
def parts() -> dict[str, Any]:
    """Captions of the new products, and what each word adds to the score of each photograph."""
    file = ROOT / "figures" / "28_words.json"
    kept: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["numbers"]
    return {
        name: each["parts"]["example"] if name != "captions" else each
        for name, each in kept.items()
    }


@cache
def shown() -> dict[str, Any]:
    """The same, and the photographs as data URLs."""
    pictures = data.load("grocery64", "test", fold=0)
    assert pictures.queries is not None, "the second visit is marked"
    images = pictures.images[torch.from_numpy(np.flatnonzero(pictures.queries))]
    labels = pictures.labels[pictures.queries]
    urls = []
    for product in range(len(parts()["captions"])):
        image = images[int(np.flatnonzero(labels == product)[0])]
        file = io.BytesIO()
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((48, 48)).save(
            file, "JPEG", quality=75
        )
        urls.append("data:image/jpeg;base64," + base64.b64encode(file.getvalue()).decode())
    return parts() | {"urls": urls}


def words(choice: Choice, numbers: Tensor, _points: Tensor) -> dict[str, Tensor]:
    """Score and place (21,) of each photograph, by three words with weights (3,)."""
    each = torch.tensor(parts()[choice.name], dtype=torch.float64)  # (21, 3)
    scores = each[:, 0] * numbers[0] + each[:, 1] * numbers[1] + each[:, 2] * numbers[2]
    place = 1 + scores.argsort(descending=True, stable=True).argsort()
    return {"scores": scores, "place": place, "first": 1 + place.argmin(), "best": scores.max()}


def _sliders(*three: str) -> tuple[Slider, ...]:
    return tuple(Slider(f"weight of {e}", -1.0, 2.0, float(not k), step=0.01)
                 for k, e in enumerate(three))  # fmt: skip


EXPLORABLE = Explorable(
    figure="28_words",
    alt="Photographs of 21 new products, ordered by the weighted sum of three words.",
    discover="Each word is read off the photographs, as other products have taught it, and words "
    "add up. A carton with a green top answers to green, whatever its caption says. A negative "
    "weight prefers what the word does not fit.",
    choices=(
        Choice(
            "carton", "a carton",
            "Begin with carton alone and add blue: which captions come first? Then add green: do "
            "captions or photographs explain the new order? What does −1 for carton find?",
            _sliders("carton", "blue", "green"),
        ),
        Choice(
            "fruit", "a fruit",
            "Begin with round alone. Add red, then small. Can you find a fruit that you have in "
            "mind?",
            _sliders("round", "red", "small"),
        ),
    ),
    points=list,
    start=(),
    formula=words,
    readouts={"first": "Number of the first photograph", "best": "Its score"},
    menu="Query",
    data=shown,
)  # fmt: skip
