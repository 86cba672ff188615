"""Lesson 10: where entries of a memory, old and new, have photographs, and where they are now."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT

BATCH, EVERY = 32, 8  # images of a batch, steps between two frames
RANKS = tuple(5 * k % 12 for k in range(12))  # of twelve photographs, whose entry is how old


@cache
def measured() -> dict[str, Any]:
    """By frame: places of 12 photographs, distances between frames, and within a product."""
    record = json.loads((ROOT / "figures" / "10_trails.json").read_text(encoding="utf-8"))
    return {name: each["example"] for name, each in record["numbers"].items()}


def stale(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Places (12, 2) now and in entries of all ages, and how far the oldest have moved.

    ``points`` (1, 1) is the step, ``numbers`` (1,) the places of the memory; both are rounded to
    whole frames. ``fresh``: percent of the entries, by age, that have moved less than two
    photographs of one product differ.
    """
    flat, moved, same = (
        torch.tensor(measured()[name], dtype=points.dtype) for name in ("flat", "moved", "same")
    )
    now = int((points[0, 0] / EVERY).round())
    then = max(0, now - int((numbers[0] / BATCH / EVERY).round()))
    ages = torch.tensor([((now - then) * rank * 2 + 11) // 22 for rank in RANKS])  # frames, rounded
    fresh = (moved[now, then : now + 1] < same[now]).to(points.dtype).mean()
    return {
        "step": points.new_tensor(EVERY * now), "age": points.new_tensor(EVERY * (now - then)),
        "entries": points.new_tensor(BATCH * EVERY * (now - then)),
        "moved": moved[now, then], "same": same[now], "fresh": 100 * fresh,
        "now": flat[now], "then": flat[now - ages, torch.arange(12)],
        "ages": (EVERY * ages).to(points.dtype),
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="10_trails",
    alt="Twelve photographs of three products in the plane: large dots where they are now, small "
    "dots where their entries are, the redder the older, and an arrow from each entry.",
    discover="At step 64 only entries of the last 24 batches have moved less than two photographs "
    "of one product differ, however large the memory is. At step 192, while the learning rate "
    "falls, those of the last 64 have.",
    choices=(
        Choice(
            "memory", "a memory from the first step on",
            "Drag the step from left to right with a full memory: when do the arrows become short? "
            "Then make the memory smaller until, at step 64, all of its entries have moved less "
            "than two photographs of a product differ.",
            (Slider("places of the memory", 256.0, 3840.0, 3840.0, step=256.0),),
        ),
    ),
    points=lambda: [{"name": "step", "label": ""}],
    start=((128.0,),),
    formula=stale,
    readouts={
        "entries": "Entries", "age": "The oldest, in batches", "moved": "It has moved by",
        "same": "Two photographs of a product", "fresh": "Entries that moved less (%)",
    },
    data=measured,
)  # fmt: skip
