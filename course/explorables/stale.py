"""Lesson 10: how far entries of a memory have moved, by their age, at each step of a training."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT

BATCH, EVERY = 32, 8  # images of a batch, steps between two frames


@cache
def measured() -> dict[str, Any]:
    """By frame: distances between frames, and within a character."""
    record = json.loads((ROOT / "figures" / "10_drift.json").read_text(encoding="utf-8"))
    return {name: record["numbers"][name]["example"] for name in ("moved", "same")}


def stale(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """How far entries of all ages have moved (T,), and the oldest that the memory holds.

    ``points`` (1, 1) is the step, ``numbers`` (1,) the places of the memory; both are rounded to
    whole frames. ``fresh``: percent of the entries, by age, that have moved less than two images
    of one character differ.
    """
    moved, same = (torch.tensor(measured()[name], dtype=points.dtype) for name in ("moved", "same"))
    now = int((points[0, 0] / EVERY).round())
    then = max(0, now - int((numbers[0] / BATCH / EVERY).round()))
    fresh = (moved[now, then : now + 1] < same[now]).to(points.dtype).mean()
    return {
        "step": points.new_tensor(EVERY * now), "age": points.new_tensor(EVERY * (now - then)),
        "entries": points.new_tensor(BATCH * EVERY * (now - then)),
        "moved": moved[now, then], "same": same[now], "fresh": 100 * fresh,
        "curve": moved[now, (now - torch.arange(len(moved))).clamp(min=0)],
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="10_drift",
    alt="How far entries have moved against their age, at one step of a training, beside the "
    "distance of two images of one character; the entries that the memory holds are marked.",
    discover="At step 64 only entries of the last 24 batches have moved less than two images of "
    "one character differ, however large the memory is. At step 192, while the learning rate "
    "falls, those of the last 88 have.",
    choices=(
        Choice(
            "memory", "a memory from the first step on",
            "Drag the step from left to right with a full memory: how does the curve change? "
            "Then make the memory smaller until, at step 64, all of its entries have moved less "
            "than two images of a character differ.",
            (Slider("places of the memory", 256.0, 3840.0, 3840.0, step=256.0),),
        ),
    ),
    points=lambda: [{"name": "step", "label": ""}],
    start=((128.0,),),
    formula=stale,
    readouts={
        "entries": "Entries", "age": "The oldest, in batches", "moved": "It has moved by",
        "same": "Two images of a character", "fresh": "Entries that moved less (%)",
    },
    data=measured,
)  # fmt: skip
