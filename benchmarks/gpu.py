"""What a GPU gives: training with every loss, compiled training, SEE's points, retrieval, ConvNet.

``python -m benchmarks gpu`` needs a CUDA device and keeps its table in RESULTS.md. ``python -m
benchmarks.gpu cpu`` (or cuda) takes the same paths at tiny sizes, and only prints.
"""

import itertools
import statistics
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

from benchmarks import sphere
from dmlkit import data, geometry, losses, training
from dmlkit.data import batches
from dmlkit.retrieval import recall_at_k
from dmlkit.spherical import expand
from dmlkit.training import Experiment, open_fabric
from dmlkit.training.devices import repeatable_numerics

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
    frozen_steps: int = 3  # steps, in which cuDNN, the allocator and the optimizer settle
    steps: int = 5  # of a round
    convnet_steps: int = 50  # which are short
    rounds: int = 7
    items: int = 60_502  # SOP's test set
    cores: int = joblib.cpu_count()  # for faiss


FULL = Sizes()
TINY = Sizes(
    model="convnet", pixels=16, images=32, classes=20, dim=32, ways=4,
    frozen_steps=1, steps=1, convnet_steps=1, rounds=2, items=1100, cores=1,
)  # fmt: skip


def rows(device: str = "cuda", size: Sizes = FULL) -> list[Row]:
    """One row for each measurement, printed as it is made: a lent machine may go away."""
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("the benchmark gpu needs a CUDA device, and torch sees none")
    made = []
    for part in (loss_rows, retrieval_rows, expand_rows, convnet_rows, compile_rows):
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
    plain = _step(experiment, device, train, model, LinearCrossEntropy(size.dim, size.classes))
    what = f"{size.model} at {size.pixels}, bf16"
    images = 4 * size.ways
    bare = bare_step(experiment, device, train, model, LinearCrossEntropy(size.dim, size.classes))
    row = _in_turn(plain, bare, size, device)
    yield {"what": f"{what}, cross-entropy", "against": "bare loop"} | _per_second(row, images)
    for entry in losses.entries():
        loss = losses.build(entry.name, num_classes=size.classes, dim=size.dim)
        step = _step(experiment, device, train, model, loss)
        row = _in_turn(step, plain, size, device)
        name = f"{what}, {entry.name}"
        yield {"what": name, "against": "cross-entropy"} | _per_second(row, images)


def compile_rows(size: Sizes, device: torch.device) -> Iterator[Row]:
    """A compiled step against the same one in eager mode, each in a network of its own."""
    train, experiment = pictures(size, device), _experiment(size)
    compiled, eager = (
        _step(
            e, device, train, training.build_model(e, train),
            losses.build("proxy_anchor", num_classes=size.classes, dim=size.dim),
        )
        for e in (replace(experiment, compile=True), experiment)
    )  # fmt: skip
    what = f"{size.model} at {size.pixels}, bf16, proxy_anchor, compiled"
    row = _in_turn(compiled, eager, size, device)
    yield {"what": what, "against": "eager"} | _per_second(row, 4 * size.ways)


def expand_rows(size: Sizes, device: torch.device) -> Iterator[Row]:
    """SEE's synthetic points, as in ``benchmarks.sphere``, on the device."""
    B, n = 4 * size.ways, 16
    generator = torch.Generator(device).manual_seed(0)
    z, w = (
        geometry.normalize(torch.randn(B, size.dim, generator=generator, device=device))
        for _ in range(2)
    )  # (B, d)
    alpha = sphere.alpha(n).nan_to_num(0).to(device)

    def loop() -> Tensor:
        return torch.stack([sphere.gram_schmidt(z[i], w[i], alpha, generator) for i in range(B)])

    def batched_qr() -> Tensor:
        with device:  # where it draws
            return sphere.batched_qr(z, w, n)

    what = f"expand, {B} x {n} points in {size.dim}-d"
    for against, theirs in (("Gram-Schmidt loop", loop), ("batched QR", batched_qr)):
        row = _in_turn(lambda: expand(z, w, n), theirs, size, device)
        yield {"what": what, "against": against} | row


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
        index = faiss.IndexFlatL2(size.dim)
        index.add(x.numpy())
        for block in x.split(4096):
            index.search(block.numpy(), k + 1)

    once = replace(size, frozen_steps=0, steps=1, rounds=min(size.rounds, 3))  # faiss is slow
    for ks in (KS[:1], KS):
        ours, theirs = partial(recall_at_k, X, Y, ks), partial(search, ks[-1])
        row = _in_turn(ours, theirs, once, device, size.cores)
        what = f"Recall@{ks}, {size.items} x {size.dim}"
        yield {"what": what, "against": f"faiss-cpu, {size.cores} cores"} | row


def convnet_rows(size: Sizes, device: torch.device) -> Iterator[Row]:
    """Steps of the course's default, the Glyphs ConvNet, by precision, against one CPU thread."""
    train = data.load("glyphs")
    more = replace(size, steps=size.convnet_steps)

    def step(precision: str, where: torch.device) -> Step:
        e = Experiment(precision=precision, steps=10_000)
        objective = training.build_objective(e, train)
        return _step(e, where, train, training.build_model(e, train), objective)

    for precision in ("32-true", "bf16-mixed"):
        cpu = step("32-true", torch.device("cpu"))
        row = _in_turn(step(precision, device), cpu, more, device)
        what = f"Glyphs ConvNet, {device.type}, {precision}"
        yield {"what": what, "against": "cpu, 32-true"} | _per_second(row, None)


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


def _step(
    experiment: Experiment,
    device: torch.device,
    train: data.ImageSet,
    model: nn.Module,
    objective: nn.Module,
) -> Step:
    """The package's own step, with its record of losses, norms and gradients."""
    fabric = open_fabric(experiment, device.type)
    return training.Trainer(experiment, model, objective, train, fabric).advance


def bare_step(
    experiment: Experiment,
    device: torch.device,
    train: data.ImageSet,
    model: nn.Module,
    objective: nn.Module,
) -> Step:
    """The step that one would write by hand."""
    model.to(device).to(memory_format=torch.channels_last)
    parameters = [*model.parameters(), *objective.to(device).parameters()]
    optimizer = torch.optim.Adam(parameters, lr=experiment.lr, fused=True)
    labels = torch.from_numpy(train.labels).to(device)
    sampler = batches.PK(train.labels, **experiment.sampler_args)
    count = itertools.count()

    def step() -> None:
        index = torch.from_numpy(sampler(next(count))).to(device, non_blocking=True)
        images = train.images[index].float() / 255
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
            with torch.autocast(device.type, torch.bfloat16):
                embeddings = model(images.contiguous(memory_format=torch.channels_last))
            value = objective(embeddings.float(), labels[index])
            optimizer.zero_grad()
            value.backward()
        optimizer.step()

    return step


def _in_turn(ours: Step, theirs: Step, size: Sizes, device: torch.device, threads: int = 1) -> Row:
    """Medians over rounds of both in turn, with the numerics that ``training.fit`` sets.

    ``ratio`` is their time over ours, so more is better; ``spread`` is half the distance between
    the quartiles of the rounds' ratios, relative to the ratio.
    """
    with repeatable_numerics(threads):
        for step in (ours, theirs):
            _seconds(step, size.frozen_steps, device)
        watched = _watched(ours, device)
        spent = [
            (_seconds(ours, size.steps, device), _seconds(theirs, size.steps, device))
            for _ in range(size.rounds)
        ]
    ms = [1000 * statistics.median(side) / size.steps for side in zip(*spent, strict=True)]
    ratios = [t / o for o, t in spent]
    ratio, quartiles = statistics.median(ratios), statistics.quantiles(ratios)
    spread = (quartiles[2] - quartiles[0]) / 2 / ratio
    return {"ms": ms[0], "against_ms": ms[1], "ratio": ratio, "spread": spread} | watched


def _seconds(step: Step, count: int, device: torch.device) -> float:
    _wait_for(device)
    began = time.perf_counter()
    for _ in range(count):
        step()
    _wait_for(device)
    return time.perf_counter() - began


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


def _per_second(row: Row, images: int | None) -> Row:
    """How many images, or steps, a second, before the other columns."""
    name = "steps/s" if images is None else "images/s"
    return {name: 1000 * (images or 1) / row["ms"]} | row


if __name__ == "__main__":
    rows(sys.argv[1], TINY)
