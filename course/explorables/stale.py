"""Lesson 10: a memory as a ring of batches, and how far the entries of each have moved."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT

BATCH = 32  # images


@cache
def measured() -> dict[str, Any]:
    """By step: how far entries have moved by age, and the distance within a character."""
    record = json.loads((ROOT / "figures" / "10_drift.json").read_text(encoding="utf-8"))
    return {name: record["numbers"][name]["example"] for name in ("aged", "same")}


def stale(_choice: Choice, numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The ages of the batches in all places of the ring (K,), and how far they have moved (K,).

    ``points`` (1, 1) is the step, ``numbers`` (1,) the batches that the memory holds; both are
    rounded. The step's own batch, which enters before it is compared, has age 0; a place that is
    still empty has age −1.
    """
    aged, same = (torch.tensor(measured()[name], dtype=points.dtype) for name in ("aged", "same"))
    step = min(max(int(points[0, 0].round()), 0), len(aged) - 1)
    size = int(numbers[0].round())
    held = min(step + 1, size)
    ages = (step - torch.arange(size)) % size
    ages = torch.where(ages < held, ages, -1)
    moved = torch.where(ages < 0, 0, aged[step, ages.clamp(min=0)])
    return {
        "step": points.new_tensor(step), "entries": points.new_tensor(BATCH * held),
        "oldest": aged[step, held - 1], "same": same[step],
        "ages": ages.to(points.dtype), "moved": moved,
        "wrong": points.new_tensor(BATCH * int((moved > same[step]).sum())),
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="10_drift",
    alt="A memory drawn as a ring of batches, at one step of a training: where the next batch "
    "enters, how old each batch is, and how far its entries have moved.",
    discover="The newest batch takes the place of the oldest. In the first ten steps, and at steps "
    "47 and 48, some entries have moved by more than two images of a character differ; at the end, "
    "while the learning rate falls, even the oldest have hardly moved.",
    choices=(
        Choice(
            "memory", "a memory in training",
            "Drag the step by one and watch which batch leaves. Then drag on: at which steps have "
            "some entries moved more than two images of a character differ?",
            (Slider("batches in the memory", 2.0, 8.0, 8.0, step=1.0),),
        ),
    ),
    points=lambda: [{"name": "step", "label": ""}],
    start=((60.0,),),
    formula=stale,
    readouts={
        "entries": "Entries", "oldest": "The oldest have moved by",
        "same": "Two images of a character", "wrong": "Entries that moved more",
    },
    data=measured,
)  # fmt: skip
