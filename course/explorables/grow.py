"""Lesson 00: a map of drawings while a network learns, stopped at any step."""

import base64
import io
import json
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT, data
from dmlkit.lessons.start_here import eight

#: Steps of the training.
STEPS = 150.0


@cache
def film() -> dict[str, Any]:
    """Steps, and at each of them places, nearest ones and what is right."""
    text = (ROOT / "figures" / "00_map.json").read_text(encoding="utf-8")
    kept: dict[str, Any] = json.loads(text)["numbers"]["film"]["example"]
    return kept


def colored(image: Tensor, kind: int) -> str:
    """A drawing (1, 32, 32) of 0 to 255 as a data URL: its ink in eight strengths of one color."""
    ink = ((image[0] / 100 - 0.6).clamp(0, 1) * 7).round().byte().numpy()
    color = [round(255 * part) for part in plt.get_cmap("tab10")(kind)[:3]]
    picture, file = Image.fromarray(ink, "P"), io.BytesIO()
    picture.putpalette(color * 8)
    alpha = bytes(np.linspace(0, 255, 8).round().astype(np.uint8))
    picture.save(file, "PNG", transparency=alpha, bits=3, optimize=True)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()


@cache
def shown() -> dict[str, Any]:
    """The same, and the drawings in the color of their character."""
    test, kept = data.load("glyphs", "test"), film()
    rows = zip(eight(test), kept["class"], strict=True)
    return kept | {"urls": [colored(test.images[row], kind) for row, kind in rows]}


def grow(_choice: Choice, numbers: Tensor, _points: Tensor) -> dict[str, Tensor]:
    """Places (160,) on the way between two stops, and what is right at the last stop passed."""
    stops = torch.tensor(film()["steps"], dtype=torch.float64)
    places = torch.tensor(film()["places"], dtype=torch.float64)  # (frames, 160, 2)
    stop = (stops <= numbers[0]).sum() - 1
    after = (stop + 1).clamp(max=len(stops) - 1)
    part = (numbers[0] - stops[stop]) / (stops[after] - stops[stop]).clamp(min=1)
    x, y = (places[stop] + part * (places[after] - places[stop])).T
    right = torch.tensor(film()["right"], dtype=torch.float64)[stop]
    return {"x": x, "y": y, "right": right, "stop": stops[stop]}


EXPLORABLE = Explorable(
    figure="00_map",
    alt="A map of 160 drawings of eight characters, which moves as a network learns.",
    discover="Characters part one after another, not all at once; those that look alike stay "
    "together longest. Most of it happens early.",
    choices=(
        Choice(
            "map", "eight characters",
            "Go back to step 0, then slowly on. Which character is the first to lie apart, and "
            "which two stay mixed?",
            (Slider("steps of training", 0.0, STEPS, 100.0, step=1.0),),
        ),
    ),
    points=list,
    start=(),
    formula=grow,
    readouts={"right": "Nearest one is of the same character (%)", "stop": "Counted at step"},
    data=shown,
)  # fmt: skip
