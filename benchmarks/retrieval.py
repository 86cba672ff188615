"""Retrieval's marks: time against the search alone, memory, and pytorch-metric-learning.

Each case runs in a process of its own, so that its peak memory is its own too (Linux only).
Random embeddings of the size of SOP's test set, 60,502 × 64 in 11,316 classes, and 6,000 of them
where pytorch-metric-learning's memory, quadratic by default, has to fit.
"""

import sys
from collections.abc import Callable

import faiss
import torch
from torch import Tensor

from benchmarks.processes import child, print_measured
from dmlkit.retrieval import map_at_r, recall_at_k

ITEMS, CLASSES, DIM, SMALL = 60_502, 11_316, 64, 6_000
KS = (1, 10, 100, 1000)

Row = dict[str, str | float]


def product_and_topk(x: Tensor, _: Tensor) -> None:
    for block in x.split(512):  # the quickest of 32, 128, 512 and 1024 on one core
        (block @ x.T).topk(KS[-1] + 1, dim=1)


def faiss_search(x: Tensor, _: Tensor) -> None:
    index = faiss.IndexFlatL2(DIM)
    index.add(x.numpy())
    for block in x.split(4096):
        index.search(block.numpy(), KS[-1] + 1)


def recalls(x: Tensor, labels: Tensor) -> None:
    recall_at_k(x, labels, KS)


def recall_and_map(x: Tensor, labels: Tensor) -> None:
    recall_at_k(x[:SMALL], labels[:SMALL], (1,))
    map_at_r(x[:SMALL], labels[:SMALL])


def pytorch_metric_learning(x: Tensor, labels: Tensor) -> None:
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    include = ("precision_at_1", "mean_average_precision_at_r")
    calculator = AccuracyCalculator(include=include, device=torch.device("cpu"))
    calculator.get_accuracy(x[:SMALL], labels[:SMALL])


CASES: dict[str, Callable[[Tensor, Tensor], None]] = {
    case.__name__: case
    for case in (product_and_topk, faiss_search, recalls, recall_and_map, pytorch_metric_learning)
}


def rows() -> list[Row]:
    """One row for each mark; ``ratio`` is their time over ours, so more is better."""
    found = {name: child("benchmarks.retrieval", name) for name in CASES}
    large, small = f"Recall@{KS}, {ITEMS} x {DIM}", f"Recall@1 and MAP@R, {SMALL} x {DIM}"
    compared = [
        (large, "recalls", "product_and_topk", "ratio at least 0.67, ours under 1000 MB"),
        (large, "recalls", "faiss_search", "ratio at least 0.67"),
        (small, "recall_and_map", "pytorch_metric_learning", "ratio at least 5"),
    ]
    return [
        {"what": what, "against": other, "mark": mark}
        | {f"ours_{unit}": value for unit, value in found[ours].items()}
        | {f"theirs_{unit}": value for unit, value in found[other].items()}
        | {"ratio": found[other]["s"] / found[ours]["s"]}
        for what, ours, other, mark in compared
    ]


def _measure(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(ITEMS, DIM, generator=generator))
    labels = torch.arange(ITEMS) * CLASSES // ITEMS
    case = CASES[name]
    print_measured(lambda: case(x[:1200], labels[:1200]), lambda: case(x, labels))


if __name__ == "__main__":
    _measure(sys.argv[1])
