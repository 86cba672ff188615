"""What a GPU gives: training with every loss, compiled training, retrieval.

``python -m benchmarks gpu`` needs a CUDA device and keeps its table in RESULTS.md. ``python -m
benchmarks.gpu cpu`` (or cuda) takes the same paths at tiny sizes, and only prints.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import faiss
import joblib
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.training import bare_steps, our_steps
from dmlkit import data, geometry, losses, sweeps, training
from dmlkit.retrieval import recall_at_k
from dmlkit.training import Experiment

Row = dict[str, Any]
Step = Callable[[], object]

KS = (1, 10, 100, 1000)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    model: str = "resnet50"
    pixels: int = 224
    images: int = 1024
    classes: int = 11_318  # of a proxy loss: SOP's, the most of the usual sets
    dim: int = 512
    ways: int = 32  # classes of a batch, with 4 images each
    warm_up: int = 1  # rounds, in which cuDNN, the allocator and the optimizer settle
    steps: int = 5  # of a round
    rounds: int = 7
    items: int = 60_502  # SOP's test set
    cores: int = joblib.cpu_count()  # for faiss


FULL = Sizes()
TINY = Sizes(
    model="convnet", pixels=16, images=32, classes=20, dim=32, ways=4,
    warm_up=1, steps=1, rounds=2, items=1100, cores=1,
)  # fmt: skip


def rows(device: str = "cuda", size: Sizes = FULL) -> list[Row]:
    """One row for each measurement, printed as it is made: a lent machine may go away."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("the benchmark gpu needs a CUDA device, and torch sees none")
    made = []
    for part in (loss_rows, retrieval_rows, compile_row):
        for row in part(size, torch.device(device)):
            print(row, flush=True)
            made.append(row)
    return made


def loss_rows(size: Sizes, device: torch.device) -> Iterator[Row]:
    """A step with every loss against the same step with cross-entropy, in the same network.

    Pictures lie on the device, and the network hardly moves, so that the loss is what differs.
    First, the package's step against a bare loop that lets cuDNN choose the quickest kernels.
    """
    train, experiment = pictures(size, device), _experiment(size)
    model = training.build_model(experiment, train)
    plain = _ours(experiment, device, train, model, LinearCrossEntropy(size.dim, size.classes))
    objective = LinearCrossEntropy(size.dim, size.classes)
    bare = partial(next, bare_steps(experiment, device, train, model, objective))
    what = f"{size.model} at {size.pixels}, bf16"
    yield _row(f"{what}, cross-entropy", plain, "bare loop", bare, size, device)
    for entry in losses.entries():
        loss = losses.build(entry.name, num_classes=size.classes, dim=size.dim)
        step = _ours(experiment, device, train, model, loss)
        yield _row(f"{what}, {entry.name}", step, "cross-entropy", plain, size, device)


def compile_row(size: Sizes, device: torch.device) -> Iterator[Row]:
    """A compiled step against the same one in eager mode, each in a network of its own."""
    train, experiment = pictures(size, device), _experiment(size)
    compiled, eager = (
        _ours(
            e, device, train, training.build_model(e, train),
            losses.build("proxy_anchor", num_classes=size.classes, dim=size.dim),
        )
        for e in (replace(experiment, compile=True), experiment)
    )  # fmt: skip
    what = f"{size.model} at {size.pixels}, bf16, proxy_anchor, compiled"
    yield _row(what, compiled, "eager", eager, size, device)


def retrieval_rows(size: Sizes, device: torch.device) -> Iterator[Row]:
    """Recall@K on the device against faiss's search alone on all cores."""
    generator = torch.Generator().manual_seed(0)
    centers, noise = torch.randn(2, size.items, size.dim, generator=generator)
    labels = torch.arange(size.items) * 11_316 // 60_502  # as many to a class as in SOP
    x = geometry.normalize(centers[labels] + 2 * noise)
    X, Y = x.to(device), labels.to(device)
    few = slice(0, 2000)
    if recall_at_k(x[few], labels[few], KS) != recall_at_k(X[few], Y[few], KS):
        raise ArithmeticError(f"Recall@K on {device} is not that on the CPU")

    def search(k: int) -> None:
        faiss.omp_set_num_threads(size.cores)
        index = faiss.IndexFlatL2(size.dim)
        index.add(x.numpy())
        for block in x.split(4096):
            index.search(block.numpy(), k + 1)

    once = replace(size, warm_up=0, steps=1, rounds=min(size.rounds, 3))  # faiss is slow
    for ks in (KS[:1], KS):
        ours, theirs = partial(recall_at_k, X, Y, ks), partial(search, ks[-1])
        what = f"Recall@{ks}, {size.items} x {size.dim}"
        yield _row(what, ours, f"faiss-cpu, {size.cores} cores", theirs, once, device)


class LinearCrossEntropy(nn.Module):
    """The plain classifier: one linear layer on the embedding."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, classes)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.linear(embeddings), labels)


def pictures(size: Sizes, device: torch.device) -> data.ImageSet:
    """Noise that lies on the device, eight images a class."""
    shape = size.images, 3, size.pixels, size.pixels
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randint(256, shape, dtype=torch.uint8, generator=generator, device=device)
    labels = np.arange(size.images) // 8
    return data.ImageSet(images, labels, labels.astype(str), tuple(map(str, np.unique(labels))))


def _experiment(size: Sizes) -> Experiment:
    return Experiment(
        model=size.model,
        dim=size.dim,
        sampler_args={"classes": size.ways, "per_class": 4},
        lr=1e-6,  # every loss pulls at the same network: it must stay where it is
        steps=10_000,
        precision="bf16-mixed",
    )


def _ours(
    experiment: Experiment,
    device: torch.device,
    train: data.ImageSet,
    model: nn.Module,
    objective: nn.Module,
) -> Step:
    return partial(next, our_steps(experiment, device, train, model, objective))


def _row(
    what: str, ours: Step, against: str, theirs: Step, size: Sizes, device: torch.device
) -> Row:
    """Medians over rounds of both in turn, with the numerics that ``training.fit`` sets.

    ``ratio`` is their time over ours, so more is better; ``spread`` is half the distance between
    the quartiles of the rounds' ratios, relative to the ratio. ``host_waits`` says how often the
    host waits for the device in one step.
    """
    sides = {"ours": ours, "theirs": theirs}
    work = {side: partial(_take, step, size.steps, device) for side, step in sides.items()}
    seconds = sweeps.step_times(work, size.rounds, size.warm_up, clock=time.perf_counter)
    with training.repeatable_numerics(threads=1):
        watched = _watched(ours, device)
    ms = 1000 * seconds.median() / size.steps
    low, ratio, high = (seconds["theirs"] / seconds["ours"]).quantile([0.25, 0.5, 0.75])
    row: Row = {"what": what, "against": against, "ms": ms["ours"], "against_ms": ms["theirs"]}
    return row | {"ratio": ratio, "spread": (high - low) / 2 / ratio} | watched


def _take(step: Step, count: int, device: torch.device) -> None:
    for _ in range(count):
        step()
    _wait_for(device)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _watched(step: Step, device: torch.device) -> Row:
    """Of one call: what the device holds at the peak, and how often the host waits for it."""
    if device.type != "cuda":
        step()
        return {}
    _wait_for(device)
    torch.cuda.reset_peak_memory_stats(device)
    torch.cuda.set_sync_debug_mode("warn")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        step()
    torch.cuda.set_sync_debug_mode("default")
    waits = sum("called a synchronizing" in str(warning.message) for warning in said)
    return {"peak_mb": torch.cuda.max_memory_allocated(device) / 2**20, "host_waits": waits}


if __name__ == "__main__":
    rows(sys.argv[1], TINY)
