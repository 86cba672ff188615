"""How time and memory grow: evaluation with its images, losses with the batch.

An exponent p says that a cost grows as size^p: the slope of a line through the logarithms.
``python -m benchmarks.sizes 60502 0`` measures one evaluation, of so many queries or of all (0).
"""

import sys
from functools import partial

import numpy as np
import torch
from torch.nn.functional import normalize

from benchmarks import losses
from benchmarks.processes import child, print_measured
from course.results import RESULTS, section
from dmlkit import losses as ours
from dmlkit import sweeps
from dmlkit.retrieval import recall_at_k

DIM, PER_CLASS = 128, 5
SOP = 60_502  # test images of SOP
EVALUATED = (SOP // 8, SOP // 4, SOP // 2, SOP)
GALLERY, QUERIES = 1_000_000, 20_000
BATCHES = (512, 1024, 2048, 4096)
SMALLER = (64, 128, 256, 512)  # of a loss that would take minutes at more
CLASSES = BATCHES[-1] // losses.PER_CLASS  # of a proxy loss, whatever the batch
SECONDS = 2.0  # to spend on the repeats of one case

Row = dict[str, str | float | None]


def rows() -> list[Row]:
    """Evaluation at sizes up to a million, then every loss."""
    found = [child("benchmarks.sizes", size, 0) for size in EVALUATED]
    made: list[Row] = [
        {"what": f"Recall@1, {size} x {DIM}", "s": each["s"], "mb": each["mb"]}
        for size, each in zip(EVALUATED, found, strict=True)
    ]
    for unit in ("s", "mb"):
        made[-1][f"exponent of {unit}"] = exponent(EVALUATED, [each[unit] for each in found])
    large = child("benchmarks.sizes", GALLERY, QUERIES)
    what = f"Recall@1, {QUERIES} queries in a gallery of {GALLERY} x {DIM}"
    names = [entry.name for entry in ours.entries()]
    return [*made, {"what": what, **large}, *map(of_loss, names)]


def exponent(sizes: tuple[int, ...], costs: list[float]) -> float:
    """The slope of log cost against log size."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def of_loss(name: str) -> Row:
    """Time of a step at the largest batch, and the exponents of its time and of its memory."""
    proxies = losses._has_proxies(name)
    batches = SMALLER if name in losses.SLOW else BATCHES
    row: Row = {"what": f"{name}, B = {batches[0]} to {batches[-1]}, d = {DIM}"}
    seconds = []
    for batch in batches:
        classes = CLASSES if proxies else batch // losses.PER_CLASS
        step = partial(
            losses.take_step, losses._make(name, "ours", DIM, classes), *losses._batch(batch, DIM)
        )
        first = sweeps.step_times({"s": step}, rounds=1, warm_up=0)["s"].item()
        rounds = max(1, min(5, int(SECONDS / first)))
        seconds.append(sweeps.step_times({"s": step}, rounds, warm_up=0)["s"].median())
    row |= {"s": seconds[-1], "exponent of s": exponent(batches, seconds)}
    known = {r["what"]: r["ours_mb"] for r in section(RESULTS.read_text(), "losses")}
    peaks = [known.get(f"{name}, B = {batch}, d = {DIM}") for batch in batches]
    measured = [(b, float(mb)) for b, mb in zip(batches, peaks, strict=True) if mb]
    if measured:
        at, mb = zip(*measured, strict=True)
        row["mb"] = mb[-1]
        row["exponent of mb"] = exponent(at, list(mb)) if len(at) > 1 else None
    return row


def _measure(size: int, queries: int) -> None:
    generator = torch.Generator().manual_seed(0)
    x = normalize(torch.randn(size, DIM, generator=generator))
    labels = torch.arange(size) // PER_CLASS
    gallery: tuple[torch.Tensor, ...] = ()
    if queries:
        gallery = x, labels
        x, labels = normalize(torch.randn(queries, DIM, generator=generator)), labels[:queries]
    few, all_of_it = (partial(recall_at_k, x[:n], labels[:n], [1]) for n in (1000, len(x)))
    print_measured(few, partial(all_of_it, *gallery))


if __name__ == "__main__":
    _measure(int(sys.argv[1]), int(sys.argv[2]))
