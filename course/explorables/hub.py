"""Lesson 23: which queries a photograph takes, and which of them its deletion repairs."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable

#: Eight queries of one product, its three photographs, and three of another product, in the plane.
QUERIES = [(-0.8, 0.4), (-0.55, -0.4), (-0.5, 0.55), (-0.1, -0.3),
           (0.2, 0.5), (0.3, 0.05), (0.1, -0.5), (0.2, -0.25)]  # fmt: skip
OWN = [(-1.05, 0.55), (-0.95, -0.65), (-0.6, -0.15)]
OTHER = [(1.05, 0.6), (0.85, -0.65), (0.7, -0.05)]


def answers(_choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """The nearest photograph of each query, with the dragged one (the last) and without it."""
    q, fixed = (torch.tensor(each, dtype=points.dtype) for each in (QUERIES, OWN + OTHER))
    far = (q[:, None] - torch.cat([fixed, points[:1]])).square().sum(dim=2)  # (8, 7)
    first, after = far.argmin(dim=1), far[:, :-1].argmin(dim=1)
    taken, wrong = first == len(fixed), first >= len(OWN)
    repaired = taken & (after < len(OWN))
    counts = {"failures": wrong, "taken": taken, "repaired": repaired, "left": after >= len(OWN)}
    return {name: each.sum().double() for name, each in counts.items()} | {
        "first": first.double(), "after": after.double()
    }  # fmt: skip


EXPLORABLE = Explorable(
    figure="23_hub",
    alt="Eight queries of one product, three photographs of it and three of another product. You "
    "drag one more photograph of the other product; lines lead from each query to its answer, and "
    "dotted ones to the answer that it gets if the dragged photograph is deleted.",
    discover="Near the product's own photographs it takes queries that would be right without it: "
    "deleting it repairs them. Between photographs of the other product it takes even more, "
    "and each of them gets another wrong answer.",
    choices=(
        Choice(
            "hub", "one photograph",
            "Drag the hub to where its deletion repairs every query that it takes, at least two. "
            "Then to where it takes four queries and its deletion repairs none.",
        ),
    ),
    points=lambda: [{"name": "photograph of the other product", "label": "", "kind": "c1"}],
    start=((0.1, 0.0),),
    data=lambda: {"queries": QUERIES, "own": OWN, "other": OTHER},
    formula=answers,
    readouts={"failures": "Failures", "taken": "Taken by the photograph",
              "repaired": "Repaired by deleting it"},
)  # fmt: skip
