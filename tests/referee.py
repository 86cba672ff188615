"""The referee of a refactoring: whether the public entry points still give what they gave.

``python -m tests.referee`` names each difference from what is frozen; ``--freeze`` freezes what is
now. Where instruction set and libraries are those it was frozen with, numbers are equal to the
last bit. Elsewhere they are close; trained weights are not compared there, as a
training multiplies every last bit. What is new is no difference.
"""

# isort: split
import argparse
import fnmatch
import gzip
import hashlib
import inspect
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from dmlkit import (
    data,
    figures,
    losses,
    models,
    numerics,
    retrieval,
    statistics,
    sweeps,
    training,
    verification,
)
from dmlkit.data import batches
from dmlkit.losses import spherical
from dmlkit.training import Experiment

Value = str | list[Any]  # compared as it is, or a fingerprint: kind, bits, scale, projections
Part = dict[str, Value]

FROZEN = Path(__file__).with_name("referee.json.gz")
#: Differences that are meant, by "part/key" with * for any text: each with its reason.
CHANGED: dict[str, str] = {
    "losses/*/gradient of inner.*": "a wrapped loss is the field loss; those of loss.* were equal",
    "names/dmlkit.figures:differences": "gains draws them, too",
    "names/dmlkit.*Loss.loss": "an equation is called equation, as loss is what a wrapper wraps",
    "names/dmlkit.losses:CrossBatchMemory.loss": "as above",
    "names/dmlkit.*:SphericalExpansion.loss": "as above",
    "names/dmlkit.losses:*Loss.pair_loss": "a loss of pairs takes one Pairs: of(pairs)",
    "names/dmlkit.losses:ContrastiveLoss.pull_and_push": "as above",
    "names/dmlkit.losses:EmbeddingLoss": "settings are fields, and this one has none",
    "names/dmlkit.losses:Entry": "title, year and equation are in the table",
    "scores/*/opis": "nothing of the course measured the consistency of thresholds: it left",
    "scores/sign_flips": "repetitions share the luck of their search: signs cannot be flipped",
    "scores/*/thresholds": "as above",
    "scores/*/utilities": "as above",
    "names/dmlkit.verification:Consistency*": "as above",
    "names/dmlkit.verification:threshold_consistency": "as above",
    "training/*: hash": "an Experiment's hash covers the fields that differ from their defaults",
    "names/dmlkit.training:Experiment.former_hash": "evidence is kept by today's hash",
    "names/dmlkit.training:Run.diagnose": "it is dmlkit.diagnosis.diagnose(run)",
    "names/dmlkit.claims:*": "claims are of studies: rows by conditions, by one test",
    "scores/interval": "overlap is the share r of common classes, of which r/(1 - r) was given",
    "names/dmlkit.study:*": "it is dmlkit.sweeps, and dmlkit.statistics",
    "names/dmlkit.spherical:*": "it is dmlkit.losses.spherical",
    "*[:/]compare": "differences are paired by statistics.paired: the one test",
    "*[:/]ranks": "losses come in groups (studies.choice): nothing ranks them",
    "scores/holm": "adjusted p-values, of which those up to 5 % were said to fall",
}
#: How far numbers may be elsewhere, as a share of their root mean square: the first that matches.
TOLERANCES = {
    # In float32, and with proxies drawn in it, some losses multiply the last bit: 1/T is 100 in
    # the soft ranks, γ 80 in circle, α 32 in proxy anchor, 1/T times the scale 200 in soft triple.
    "losses/*/gradient*": 5e-6,
    "*": 1e-6,
}
PINNED_ONLY = ("training",)
BITS_DEPEND_ON = ("numerics", "torch", "numpy", "scipy", "pandas", "scikit-learn", "faiss-cpu")
MODULES = (
    *(losses, spherical, retrieval, verification, data, batches),
    *(models, training, statistics, sweeps, figures),
)
METRICS = ("euclidean", "cosine", "hamming", {"name": "poincare", "c": 0.5, "clip": 1.5})
C, D = 6, 12  # classes and dimensions of small batches


def fingerprint(values: Any) -> Value:
    """An array to the bit, and a few numbers that tell how far another one is from it."""
    if values is None:  # no gradient
        return "None"
    array = np.asarray(values.detach() if isinstance(values, Tensor) else values)
    kind, bits = f"{array.dtype}{array.shape}", hashlib.sha256(array.tobytes()).hexdigest()[:16]
    if array.dtype.kind != "f" or not array.size:
        return f"{kind} {bits}"
    flat = np.nan_to_num(array.astype(np.float64).ravel(), nan=-1.0)
    scale = float(np.sqrt(np.mean(flat**2)))
    if flat.size > 4:
        directions = np.random.default_rng(flat.size).standard_normal((4, flat.size))
        flat = directions @ flat / np.sqrt(flat.size)
    return [kind, bits, scale, *flat.tolist()]


def fingerprints(values: Mapping[str, Any], under: str = "") -> Part:
    return {f"{under}{key}": fingerprint(value) for key, value in values.items()}


# What is frozen: one function for each part


def of_losses() -> Part:
    """Values, gradients and states of every loss, after two batches in each precision."""
    found: Part = {}
    for name in losses.names():
        try:
            entry = losses.entry(name)
        except ValueError:
            found[name] = "no loss of one network"
            continue
        takes = arguments(losses.signature(name).values())
        found[name] = f"{entry.family}, wraps {entry.wraps}, {entry.space}: {takes}"
        for dtype in (torch.float32, torch.float64):
            for seed in range(3):
                under = f"{name}/{str(dtype)[6:]}/{seed}/"
                found |= fingerprints(_two_batches(name, dtype, seed), under)
    return found


def _two_batches(name: str, dtype: torch.dtype, seed: int) -> dict[str, Any]:
    """The second batch meets what the first one left: a memory, counts, moving averages."""
    rng = np.random.default_rng(seed)
    labels = np.arange(24) % C if seed else np.arange(24) // 4
    y = torch.from_numpy(rng.permutation(labels) if seed == 2 else labels)
    x = torch.from_numpy((0.3, 1, 3)[seed] * rng.standard_normal((2, 24, D))).to(dtype)
    x.requires_grad_()
    torch.manual_seed(seed)
    loss: Any = losses.build(name, num_classes=C, dim=D).to(dtype)
    if hasattr(loss, "refresh"):
        loss.refresh(x.detach().flatten(0, 1), torch.cat([y, y]))
    values: Any = torch.stack([loss(batch, y) for batch in x])
    values.sum().backward()
    gradients = {f"gradient of {key}": p.grad for key, p in loss.named_parameters()}
    return {"value": values, "gradient": x.grad} | gradients | dict(loss.named_buffers())


def of_sphere() -> Part:
    """The constraint with each kind of target, synthetic points, and the tables of centers."""
    rng, found = np.random.default_rng(0), dict[str, Tensor]()
    for dtype in (torch.float32, torch.float64):
        x, w = torch.from_numpy(rng.standard_normal((2, 24, D))).to(dtype)
        for target in ("mean", "ema", 0.0, 2.5):
            constraint = spherical.SphericalConstraint(0.5, target, momentum=0.3)
            f = x.clone().requires_grad_()
            value: Any = constraint(f) + constraint(2 * f)
            value.backward()
            found[f"constraint {target} {dtype}"] = torch.cat([value.reshape(1), f.grad.ravel()])
        for directions in ("simplex", "rotated", "random"):
            torch.manual_seed(0)
            found[f"expand {directions} {dtype}"] = spherical.expand(x, w, 5, directions=directions)
        generator = torch.Generator().manual_seed(1)
        found[f"expand by generator {dtype}"] = spherical.expand(x, w, 5, generator)
        found[f"simplex {dtype}"] = spherical.simplex(7, like=x)
    for n in (4, 10, 20):
        found[f"{n} centers"] = spherical.max_mahalanobis_centers(n, 6, norm=2.0, steps=20)
    return fingerprints(found)


def of_scores() -> Part:
    """Neighbors, scores and error rates of embeddings with many ties, and a study's statistics."""
    rng, found = np.random.default_rng(0), dict[str, Any]()
    y, y_gallery = rng.integers(0, 8, 90), rng.integers(0, 8, 70)
    x, gallery = (rng.integers(-1, 3, (n, 4)).astype(np.float32) for n in (90, 70))
    x[~x.any(1)], gallery[~gallery.any(1)] = 1, 1  # a zero has no cosine
    for metric in METRICS:
        of: Any = {"metric": metric}
        for sets in ({}, {"gallery": gallery, "gallery_labels": y_gallery}):
            under, of = f"{metric}{' with gallery' if sets else ''}", of | sets
            verified = verification.verification(x, y, (0.01, 0.1), draws=50, **of)
            rates = verification.error_rates(x, y, [-0.5, 0.5, 2.0], draws=50, **of)
            near = retrieval.nearest_neighbors(x, 9, of.get("gallery"), of["metric"])
            found[f"{under}/indices"], found[f"{under}/distances"] = near
            found[f"{under}/recalls"] = [*retrieval.recall_at_k(x, y, (1, 3, 200), **of).values()]
            found[f"{under}/evaluate"] = [*retrieval.evaluate(x, y, **of).values()]
            found[f"{under}/r_precision"] = retrieval.r_precision(x, y, **of)
            found[f"{under}/map_at_r"] = retrieval.map_at_r(x, y, **of)
            found[f"{under}/verification"] = verified.rates.to_numpy()
            found[f"{under}/eer"] = [verified.eer, verified.genuine, verified.impostors]
            found[f"{under}/error_rates"] = rates.to_numpy()
        found[f"{metric}/nmi"] = retrieval.nmi(x, y, 3, of["metric"])
    r = rng.standard_normal(20) + 0.3
    found["interval"] = [*statistics.interval(r), *statistics.interval(r, overlap=0.3)]
    found["repetitions"] = statistics.repetitions(0.02, 0.01)
    found["holm"] = statistics.holm(rng.random((6, 2)) ** 4)
    return fingerprints(found)


def of_batches() -> Part:
    """The sets that batches are drawn from, and the first two of each sampler."""
    labels = np.random.default_rng(0).integers(0, 20, 300)
    x, args = torch.from_numpy(np.random.default_rng(1).standard_normal((300, D))), {"seed": 5}
    neighbors = batches.Neighbors(labels, groups=3, group_size=2, **args)
    neighbors.refresh(x, torch.from_numpy(labels))
    samplers: dict[str, Callable[[int], np.ndarray]] = {
        "pk": batches.PK(labels, 8, 4, **args),
        "pk, with replacement": batches.PK(labels, 8, 18, **args),
        "pairs": batches.PairBatches(labels, 16, 0.3, **args),
        "neighbors": neighbors,
        "neighbors, not refreshed": batches.Neighbors(labels, 3, 2, **args),
        "episodic": batches.Episodic(labels, 6, 3, 4, **args),
        "uniform": batches.Uniform(labels, 200, **args),  # the second batch is of another epoch
    }
    found = fingerprints({name: np.stack([s(0), s(1)]) for name, s in samplers.items()})
    return found | {f"glyphs, {k}": data.load("glyphs", k).fingerprint for k in data.SPLITS}


def of_training() -> Part:
    """One default Run, and twelve steps of all that has a state or a path of its own."""
    found: Part = {}
    for name, args in (
        ("convnet", {"head": "batch_norm"}),
        ("resnet18", {"pooling": "gem", "pretrained": False}),
    ):
        torch.manual_seed(0)
        built = models.build(name, 8, torch.zeros(1, 32, 32), **args)
        found[f"{name} as built"] = fingerprint(_state(built))
    with tempfile.TemporaryDirectory() as store:
        run = training.run(Experiment(), store=Path(store), device="cpu", progress=False)
        found |= _trained("default Run", run.model(), run.objective(), run.history)
    found["default Run: scores"] = fingerprint(list(run.scores.values()))
    small: dict[str, Any] = {"dim": 16, "steps": 12, "sampler_args": {"classes": 8, "per_class": 4}}
    neighbors = {"groups": 2, "group_size": 4, "refresh_every": 6}
    changes: dict[str, dict[str, Any]] = {
        **{e.name: {"loss": e.name} for e in losses.entries() if e.wraps},
        "meta_class": {"loss": "meta_class"},
        "xbm of matryoshka": {"loss": "xbm", "loss_args": {"loss": "matryoshka"}},
        "constraint": {"loss": "proxy_anchor", "constraint": {"target": "ema", "momentum": 0.2}},
        "tree": {"loss": "htl", "sampler": "neighbors", "sampler_args": neighbors},
        "augmented": {"augment": True, "optimizer": "sgd", "backbone_lr_factor": 0.5},
        "frozen": {"optimizer": "adamw", "frozen_steps": 6, "model_args": {"pretrained": True}},
        "pairs": {"loss": "n_pairs", "sampler": "pairs", "sampler_args": {"classes": 16}},
        "uniform": {"loss": "cosface", "sampler": "uniform", "sampler_args": {"size": 32}},
        "scales": {"loss": "multi_scale", "model": "convnet_scales"},
    }
    train = data.load("glyphs")
    for name, change in changes.items():
        experiment = Experiment(**small | change)
        model = training.build_model(experiment, train)
        objective = training.build_objective(experiment, train)
        history = training.fit(model, objective, train, experiment, device="cpu", progress=False)
        found |= _trained(name, model, objective, history)
        found[f"{name}: hash"] = experiment.hash()
    return found


def _trained(name: str, model: nn.Module, objective: nn.Module, history: pd.DataFrame) -> Part:
    parts = {"model": _state(model), "objective": _state(objective), "history": history.to_numpy()}
    return fingerprints(parts, f"{name}: ")


def _state(module: nn.Module) -> Tensor:
    values = [value.double().ravel() for value in module.state_dict().values()]
    return torch.cat([torch.empty(0, dtype=torch.float64), *values])


def of_names() -> Part:
    """The arguments of every public name, and of the methods of public classes."""
    frozen = load()["names"] if FROZEN.exists() else {}
    found: Part = {}
    for key in dict.fromkeys([*frozen, *(key for m in MODULES for key in _names(m))]):
        module, _, path = key.partition(":")
        try:
            thing = reduce(getattr, path.split("."), cast(Any, sys.modules[module]))
        except (AttributeError, KeyError):
            continue  # it was frozen, and is gone
        try:
            found[key] = arguments(inspect.signature(thing).parameters.values())
        except (TypeError, ValueError):
            found[key] = "no function"
    return found


def _names(module: ModuleType) -> Iterator[str]:
    own = [k for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__]
    for name in getattr(module, "__all__", own):
        thing = getattr(module, name)
        ours = [c for c in getattr(thing, "__mro__", ()) if c.__module__.startswith("dmlkit")]
        for path in (name, *(f"{name}.{method}" for c in ours for method in vars(c))):
            if not re.search(r"(^|\.)_", path):
                yield f"{module.__name__}:{path}"


def arguments(parameters: Iterable[inspect.Parameter]) -> str:
    """Names, kinds and defaults; of a type hint the text depends on Python, NumPy and modules."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in parameters]
    return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.Signature(bare)))


PARTS: dict[str, Callable[[], Part]] = {
    "losses": of_losses,
    "sphere": of_sphere,
    "scores": of_scores,
    "batches": of_batches,
    "training": of_training,
    "names": of_names,
}


# Then and now


def collect(part: str) -> Part:
    """What a part gives now."""
    with training.repeatable_numerics(threads=1):
        return PARTS[part]()


def made_with() -> Part:
    """What last bits depend on."""
    found = {"numerics": numerics.describe()} | figures.versions()
    return {name: value for name, value in found.items() if name in BITS_DEPEND_ON}


def load() -> dict[str, Part]:
    """What is frozen, by part, and what it was ``made with``."""
    frozen: dict[str, Part] = json.loads(gzip.decompress(FROZEN.read_bytes()))
    return frozen


def differences(part: str, then: Part, now: Part, exact: bool) -> list[str]:
    """Each difference of a part that is not among those that are meant, in words."""
    found = []
    for key, was in then.items():
        name = f"{part}/{key}"
        told = _difference(name, was, now.get(key), exact)
        if told and not any(fnmatch.fnmatchcase(name, pattern) for pattern in CHANGED):
            found.append(f"{name} {told}")
    return found


def _takes_more(was: str, now: str) -> bool:
    """Whether a signature, at the end of a text, takes what it took; more may be left out.

    >>> _takes_more("(x, labels, k=2)", "(x, labels=None, k=2, *, positive=None)")
    True
    >>> _takes_more("(x, *, k=2)", "(x, *, k=2, m=())")
    True
    >>> _takes_more("(x, k=2)", "(x, k=3)") or _takes_more("(x)", "(x, y)")
    False
    """
    (before, _, old), (after, _, new) = (
        text.removesuffix(")").partition("(") for text in (was, now)
    )
    theirs, ours = ([x for x in each.split(", ") if x not in ("", "*")] for each in (old, new))
    same = all(b in (a, f"{a}=None") for a, b in zip(theirs, ours, strict=False))
    more = all("=" in extra for extra in ours[len(theirs) :])
    return before == after and len(theirs) <= len(ours) and same and more


def _difference(name: str, was: Value, now: Value | None, exact: bool) -> str:
    if now == was:
        return ""
    if now is None:
        return "is gone"
    if isinstance(was, str) and isinstance(now, str) and ")" in was and _takes_more(was, now):
        return ""
    if isinstance(was, str) or isinstance(now, str) or was[0] != now[0]:
        return f"was {was}, is {now}"
    off = float(np.abs(np.subtract(was[2:], now[2:])).max() / max(was[2], 1e-30))
    allowed = next(v for pattern, v in TOLERANCES.items() if fnmatch.fnmatchcase(name, pattern))
    return f"is off by {off:.1e} of its scale" if exact or off > allowed else ""


def main() -> int:
    """Freeze, or compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--freeze", action="store_true", help="freeze what is now")
    if parser.parse_args().freeze:
        frozen = {"made with": made_with()} | {part: collect(part) for part in PARTS}
        text = json.dumps(frozen, indent=0, sort_keys=True)
        FROZEN.write_bytes(gzip.compress(text.encode(), mtime=0))
        return 0
    then, found = load(), [f"meant: {name}: {reason}" for name, reason in CHANGED.items()]
    exact = then["made with"] == made_with()
    for part in PARTS:
        if exact or part not in PINNED_ONLY:
            found += differences(part, then[part], collect(part), exact)
    how = "to the bit" if exact else f"closely: {then['made with']} then, {made_with()} now"
    count = len(found) - len(CHANGED)
    print(*found, f"{count} differences, compared {how}", sep="\n")  # noqa: T201
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
