"""Lesson 01: where the hits stand in a result list, and what three scores make of it."""

import torch
from torch import Tensor

from course.explorables import Choice, Explorable
from dmlkit import retrieval

LENGTH = 12  # results, of which each handle is a hit


def places(wanted: Tensor) -> Tensor:
    """Whole ranks (R,) from 1 for the hits' wished places, no two alike: in their order, the next
    free one, and room is left for those behind."""
    order, taken, last = wanted.argsort(stable=True), torch.zeros(len(wanted)), 0
    for k, i in enumerate(order.tolist()):
        last = min(max(round(wanted[i].item()), last + 1), LENGTH - len(wanted) + k + 1)
        taken[i] = last
    return taken


def scores(_choice: Choice, _numbers: Tensor, points: Tensor) -> dict[str, Tensor]:
    """Scores of one query, at 0, whose results stand at 1, 2, …, by dmlkit.retrieval."""
    ranks = places(points[:, 0])
    gallery = torch.arange(1, LENGTH + 1).double()[:, None]
    labels = torch.zeros(LENGTH, dtype=torch.long)
    labels[ranks.long() - 1] = 1
    found = retrieval.by_query(
        torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.long),
        gallery=gallery, gallery_labels=labels,
    ).iloc[0]  # fmt: skip
    order = ranks.argsort().argsort() + 1  # the how-manieth hit each is
    counted = ranks <= len(ranks)
    named = {name: torch.tensor(float(value)) for name, value in found.items()}
    return {**named, "ranks": ranks, "precision": order / ranks, "counted": counted.double()}


EXPLORABLE = Explorable(
    figure="01_toy",
    alt="A result list of twelve places. Four results are hits, framed; each can be moved to "
    "another rank. The first four places are those that R-precision and MAP@R look at.",
    discover="One hit in the first place is all that Recall@1 sees. R-precision counts the hits "
    "among the first R places, whatever their order; MAP@R also asks that they stand early there. "
    "Behind rank R no score of these three sees anything.",
    choices=(
        Choice(
            "list", "result list",
            "Four results are right. Drag them. Find an order with Recall@1 = 1 and the smallest "
            "MAP@R; then two orders with equal R-precision and different MAP@R.",
        ),
    ),
    points=lambda: [{"name": f"hit {k}", "label": ""} for k in range(1, 5)],
    start=((2.0,), (3.0,), (6.0,), (9.0,)),
    formula=scores,
    readouts={"recall_at_1": "Recall@1", "r_precision": "R-precision", "map_at_r": "MAP@R"},
)  # fmt: skip
