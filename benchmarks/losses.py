"""Every loss against pytorch-metric-learning's: time and peak memory of forward plus backward.

``python -m benchmarks.losses proxy_anchor 512 128`` runs one case, with 128 classes.
"""

import itertools
import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pytorch_metric_learning import distances, miners, regularizers
from pytorch_metric_learning import losses as pml
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from dmlkit import ROOT, losses, sweeps

Loss = Callable[[Tensor, Tensor], Tensor]
Row = dict[str, str | int | float | None]

PER_CLASS = 4
PROXIES = 1000  # classes of a proxy loss, of which a batch has a few
FEW = 128  # and all of them in the batch
SECONDS = 5.0  # to spend on the repeats of one case
MEMORY = 4096  # of XBM
CUBIC = {"lifted_structure", "hyperbolic", "smooth_ap"}  # theirs: GB at B = 512; nothing beyond
# Ours searches |Y| times through (B, B), which beyond B = 512 takes minutes.
SLOW = {"structured_clustering"}
# Theirs builds a mask of (C·K)² = 113,180² entries; pfml is a field of every proxy on every other.
NOT_AT_FULL_SIZE = {"ours": SLOW | {"pfml"}, "theirs": {"soft_triple"}}


def _mined(loss: Any, miner: Any) -> Loss:
    return lambda x, y: loss(x, y, miner(x, y))


def _triplets(miner: Any = None) -> Loss:
    loss = pml.TripletMarginLoss(margin=0.2, distance=distances.LpDistance(power=2))
    return _mined(loss, miner) if miner else loss


def _with_thresholds(loss: Loss) -> Loss:
    """Theirs is the term alone."""
    thresholds = pml.ThresholdConsistentMarginLoss()
    return lambda x, y: loss(x, y) + thresholds(x, y)


def _prototypical(loss: Any) -> Loss:
    """Theirs takes prototypes: their making is part of the work."""

    def with_prototypes(x: Tensor, y: Tensor) -> Tensor:
        by_class = x[y.argsort(stable=True)].view(-1, PER_CLASS, x.shape[1])
        support, queries = by_class.chunk(2, dim=1)
        classes = y.unique()
        labels = classes.repeat_interleave(queries.shape[1])
        return loss(queries.flatten(0, 1), labels, ref_emb=support.mean(1), ref_labels=classes)

    return with_prototypes


class _BatchAndMemory:
    """Theirs is the memory's term alone; both start full, where a step costs the most."""

    def __init__(self, dim: int) -> None:
        self.pairs = pml.ContrastiveLoss(pos_margin=0, neg_margin=0.5)
        self.memory = pml.CrossBatchMemory(self.pairs, embedding_size=dim, memory_size=MEMORY)
        self.memory.embedding_memory.normal_()
        self.memory.label_memory.random_(PROXIES)
        self.memory.has_been_filled = True

    def __call__(self, x: Tensor, y: Tensor) -> Tensor:
        return self.pairs(x, y) + self.memory(x, y)


def _our_memory(dim: int) -> Loss:
    loss: Any = losses.build("xbm", num_classes=PROXIES, dim=dim, size=MEMORY)
    loss.queue.normal_()
    loss.queue_labels.random_(PROXIES)
    loss.filled.fill_(MEMORY)
    return loss


_RAW = distances.LpDistance(normalize_embeddings=False)
# Their equivalents; a loss that is in neither table has none.
THEIRS: dict[str, Callable[[], Loss]] = {
    "contrastive": partial(pml.ContrastiveLoss, pos_margin=0, neg_margin=0.5),
    "triplet_semihard": lambda: _triplets(
        miners.TripletMarginMiner(margin=0.2, type_of_triplets="semihard")
    ),
    "triplet_hard": lambda: _triplets(miners.BatchHardMiner()),
    "triplet_all": _triplets,
    "triplet_distance": lambda: _triplets(miners.DistanceWeightedMiner()),
    "lifted_structure": partial(pml.LiftedStructureLoss, distance=_RAW),
    "n_pairs": partial(
        pml.NPairsLoss, distance=distances.DotProductSimilarity(normalize_embeddings=False)
    ),
    "angular": partial(pml.AngularLoss, 45),
    "multi_similarity": lambda: _mined(
        pml.MultiSimilarityLoss(alpha=2, beta=50, base=0.5), miners.MultiSimilarityMiner(0.1)
    ),
    "ranked_list": partial(pml.RankedListLoss, margin=0.4, Tn=10, alpha=1.2, imbalance=0.5),
    "supcon": partial(pml.SupConLoss, temperature=0.1),
    "circle": partial(pml.CircleLoss, m=0.4, gamma=80),
    # Theirs is another value unless the batch is sorted, with as many classes as samples of each.
    "smooth_ap": pml.SmoothAPLoss,
    "fast_ap": pml.FastAPLoss,
    "prototypical": lambda: _prototypical(
        pml.NCALoss(distance=distances.LpDistance(normalize_embeddings=False, power=2))
    ),
    "hyperbolic": partial(pml.NTXentLoss, temperature=0.2),
    "tcm": lambda: _with_thresholds(_triplets(miners.TripletMarginMiner(0.2, "semihard"))),
}
# And those with a parameter, for C classes in d dimensions.
THEIRS_WITH_PARAMETERS: dict[str, Callable[[int, int], Loss]] = {
    "margin": lambda C, _: _mined(
        pml.MarginLoss(margin=0.2, beta=1.2, learn_beta=True, num_classes=C),
        miners.DistanceWeightedMiner(),
    ),
    "proxy_nca_pp": partial(pml.ProxyNCALoss, softmax_scale=9),
    "normalized_softmax": partial(pml.NormalizedSoftmaxLoss, temperature=0.05),
    "cosface": partial(pml.CosFaceLoss, margin=0.35, scale=64),
    "arcface": partial(pml.ArcFaceLoss, margin=math.degrees(0.5), scale=64),
    "sphereface": partial(pml.SphereFaceLoss, margin=4, scale=1),
    "proxy_anchor": partial(pml.ProxyAnchorLoss, margin=0.1, alpha=32),
    "soft_triple": lambda C, d: pml.SoftTripleLoss(
        C,
        d,
        weight_regularizer=regularizers.SparseCentersRegularizer(C, 10),
        weight_reg_weight=0.2,
    ),
    "xbm": lambda _, d: _BatchAndMemory(d),
}
SHARED = THEIRS.keys() | THEIRS_WITH_PARAMETERS.keys()


def rows(sizes: tuple[int, ...] = (512, 2048)) -> list[Row]:
    """Every loss at every size with time and memory, a proxy loss with few classes as well; then
    memory alone at the full sizes, but of those that are too slow or too large for them.
    """
    names = [entry.name for entry in losses.entries()]
    cases = [(name, B, PROXIES) for name in names for B in sizes if B <= 512 or name not in SLOW]
    cases += [(name, FEW * PER_CLASS, FEW) for name in names if _has_proxies(name)]
    full = [full_size(name) for name in names if name not in NOT_AT_FULL_SIZE["ours"]]
    return [*(case(*each) for each in cases), *full]


def case(name: str, batch: int, proxies: int, dim: int = 128) -> Row:
    """Time and memory of one loss, ours and theirs, at one batch size."""
    what = f"{name}, B = {batch}, d = {dim}"
    if _has_proxies(name):
        classes, what = proxies, f"{what}, C = {proxies}"
    else:
        classes = batch // PER_CLASS
    beyond = name not in SHARED or (name in CUBIC and batch > 512)
    row: Row = {"what": what, "against": "pytorch-metric-learning"}
    row |= _times(name, batch, dim, classes, ("ours",) if beyond else ("ours", "theirs"))
    for side in ("ours", "theirs"):
        skip = side == "theirs" and beyond
        row[f"{side}_mb"] = None if skip else peak_memory(name, side, batch, dim, classes)
    return row


def full_size(name: str) -> Row:
    """Memory where it hurts: a pair loss at B = 4096, a proxy loss at the size of SOP."""
    proxies = _has_proxies(name)
    batch, dim, classes = (128, 512, 11_318) if proxies else (4096, 128, 4096 // PER_CLASS)
    what = f"{name}, B = {batch}, d = {dim}" + (f", C = {classes}" if proxies else "")
    row: Row = {"what": what, "against": "pytorch-metric-learning"}
    for side, skipped in NOT_AT_FULL_SIZE.items():
        ask = name not in skipped and (side == "ours" or (proxies and name in SHARED))
        row[f"{side}_mb"] = peak_memory(name, side, batch, dim, classes) if ask else None
    return row


def peak_memory(name: str, side: str, batch: int, dim: int, classes: int) -> float | None:
    """MB of tensors that a step held at most, in a process of its own; None where that failed."""
    sizes = [str(n) for n in (batch, dim, classes)]
    command = [sys.executable, "-m", "benchmarks.losses", "--peak", name, side, *sizes]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def _has_proxies(name: str) -> bool:
    parameters = losses.build(name, num_classes=2, dim=16).named_parameters()
    return any("proxies" in parameter for parameter, _ in parameters)


def _make(name: str, side: str, dim: int, classes: int) -> Loss:
    if side == "theirs" and name in THEIRS:
        return THEIRS[name]()
    if side == "theirs":
        return THEIRS_WITH_PARAMETERS[name](classes, dim)
    if name == "xbm":
        return _our_memory(dim)
    # Theirs knows the sphere alone, and is handed its prototypes.
    known: dict[str, dict[str, Any]] = {"hyperbolic": {"c": 0.0}, "prototypical": {"ways": classes}}
    ranking = ("smooth_ap", "sup_ap", "recall_at_k")  # cubic in time without this
    known |= {each: {"max_positives": PER_CLASS - 1} for each in ranking}
    args = known.get(name, {})
    return losses.build(name, num_classes=classes, dim=dim, **args)


def _batch(size: int, dim: int) -> tuple[Tensor, Tensor]:
    """A shuffled PK batch, of norms near 5."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(size // PER_CLASS).repeat_interleave(PER_CLASS)
    x = torch.randn(size, dim, generator=generator) * 5 / dim**0.5
    return x.requires_grad_(), labels[torch.randperm(size, generator=generator)]


def _times(name: str, batch: int, dim: int, classes: int, sides: tuple[str, ...]) -> Row:
    """Medians in ms of interleaved repeats on one thread, their ratio, and its spread.

    Milliseconds are of processor time, which other work on the machine touches least. The spread
    is half the distance between the quartiles of the repeats' ratios, in percent of the ratio. What
    takes over two seconds is timed once.
    """
    x, y = _batch(batch, dim)
    work = {side: partial(take_step, _make(name, side, dim, classes), x, y) for side in sides}
    seconds = sweeps.step_times(work, rounds=1, warm_up=0)
    slow = {side: first for side, first in seconds.iloc[0].items() if first > 2}
    if quick := {side: step for side, step in work.items() if side not in slow}:
        rounds = max(5, min(50, int(SECONDS / max(seconds[list(quick)].iloc[0].sum(), 1e-3))))
        seconds = sweeps.step_times(quick, rounds, warm_up=0).assign(**slow)
    median = seconds.median()
    row: Row = {f"{side}_ms": 1e3 * median[side] for side in sides}
    if "theirs" in sides:
        quartiles = (seconds["theirs"] / seconds["ours"]).quantile([0.25, 0.75])
        ratio = median["theirs"] / median["ours"]
        row |= {"ratio": ratio, "spread_percent": 50 * quartiles.diff().iloc[1] / ratio}
    return row


def take_step(loss: Loss, x: Tensor, y: Tensor) -> None:
    x.grad = None
    loss(x, y).backward()


def _print_peak(name: str, side: str, batch: int, dim: int, classes: int) -> None:
    """The most that tensors held at once during a step, by the profiler's record of allocations."""
    torch.set_num_threads(1)
    loss = _make(name, side, dim, classes)
    x, y = _batch(batch, dim)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        take_step(loss, x, y)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        record.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    changes = sorted((e["ts"], e["args"]["Bytes"]) for e in events if e["name"] == "[memory]")
    held = itertools.accumulate(change for _, change in changes)
    print(json.dumps(max(held, default=0) / 2**20))


if __name__ == "__main__":
    if sys.argv[1] == "--peak":
        _print_peak(sys.argv[2], sys.argv[3], *(int(n) for n in sys.argv[4:]))
    else:
        size, classes = (int(n) for n in sys.argv[2:4])
        print(json.dumps(case(sys.argv[1], size, classes), indent=1))
