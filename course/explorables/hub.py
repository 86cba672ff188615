"""Lesson 23: which queries a photograph takes, and which of them its deletion repairs."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable

#: Eight queries of one product, its three photographs, and three of another product, in the plane.
QUERIES = [(-0.9, 0.3), (-0.7, -0.2), (-0.4, 0.6), (-0.2, -0.3),
           (0.1, 0.5), (0.2, -0.4), (0.5, 0.4), (0.6, -0.1)]  # fmt: skip
OWN = [(-1.1, 0.7), (-0.9, -0.6), (-0.5, 0.2)]
OTHER = [(1.0, 0.6), (0.9, -0.5), (0.4, 0.1)]


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
    "deleting it repairs them. Between photographs of the other product it takes as many queries, "
    "and each of them gets another wrong answer.",
    choices=(
        Choice(
            "hub", "one photograph",
            "Drag the photograph to where it takes two queries and its deletion repairs both. "
            "Then to where it takes two queries and its deletion repairs neither.",
        ),
    ),
    points=lambda: [{"name": "photograph of the other product", "label": "", "kind": "c1"}],
    start=((-0.1, 0.1),),
    data=lambda: {"queries": QUERIES, "own": OWN, "other": OTHER},
    formula=answers,
    readouts={"failures": "Failures", "taken": "Taken by the photograph",
              "repaired": "Repaired by deleting it"},
)  # fmt: skip
