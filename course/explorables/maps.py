"""Lesson 22: maps of one set of embeddings, from 4 to 120 neighbors, and what each keeps."""

import json
from functools import cache
from typing import Any

import torch
from torch import Tensor

from course.explorables import Choice, Explorable, Slider
from dmlkit import ROOT


@cache
def drawn() -> dict[str, Any]:
    """Of each tool, six maps: their places, classes, and both scores, from the figure."""
    record = json.loads((ROOT / "figures" / "22_sweep.json").read_text(encoding="utf-8"))
    found: dict[str, Any] = record["numbers"]["maps"]["example"]
    return found


def seen(choice: Choice, numbers: Tensor, _points: Tensor) -> dict[str, Tensor]:
    """Neighbors told, neighbors kept (%), and how often right about the farther pair (%)."""
    own = drawn()[choice.name][int(torch.floor(numbers[0] - 0.5))]
    return {key: torch.tensor(own[key]).double() for key in ("neighbors", "kept", "right")}


_ROW = (Slider("setting", 1.0, 6.0, 3.0, step=1.0),)

EXPLORABLE = Explorable(
    figure="22_sweep",
    alt="Left a map of sixteen classes. Right the plane of both scores, neighbors kept and how "
    "often a map is right about the farther pair, with a dot for each setting and for PCA's plane.",
    discover="Both curves are nearly level: more neighbors change how many neighbors a map keeps, "
    "and hardly how often it is right about the farther pair.",
    menu="Map",
    choices=(
        Choice("UMAP", "UMAP, by n_neighbors",
               "Move the setting from first to last: 4, 8, 15, 30, 60, 120 neighbors. Where does "
               "the dot go: up, or to the left?", _ROW),
        Choice("t-SNE", "t-SNE, by perplexity",
               "Move the setting from first to last: a perplexity of 4, 8, 15, 30, 60, 120. Which "
               "one keeps most neighbors?", _ROW),
    ),
    points=list,
    start=(),
    formula=seen,
    readouts={"neighbors": "Neighbors told", "kept": "Neighbors kept (%)",
              "right": "Right about the farther pair (%)"},
    data=drawn,
)  # fmt: skip
