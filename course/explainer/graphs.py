"""The parts of a training step as ONNX graphs: the network once, and each loss."""

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from course import exporting, playground
from course.explainer import step
from dmlkit import losses
from dmlkit.losses.contract import PairLoss, Range
from dmlkit.losses.forces import value_and_forces
from dmlkit.losses.spherical import SphericalConstraint

#: The largest difference from torch, relative to the largest number of the same tensor.
TOLERANCE = 1e-10
_MARGIN: Range = ("linear", 0.0, 1.0)
_SCALE: Range = ("log", 1.0, 64.0)
_TEMPERATURE: Range = ("log", 0.02, 1.0)
#: The losses of the page and their settings that are inputs of the graph, in its order. The ranges
#: are wider than those that tuning seeks: a reader may see what a wrong setting does.
LOSSES: Mapping[str, Mapping[str, Range]] = {
    "triplet_semihard": {"margin": _MARGIN},
    "triplet_hard": {"margin": _MARGIN},
    "triplet_all": {"margin": _MARGIN},
    "contrastive": {"negative_margin": ("linear", 0.1, 1.9)},
    "lifted_structure": {"margin": ("linear", 0.1, 2.0)},
    "multi_similarity": {"beta": _SCALE, "base": ("linear", 0.0, 0.9)},
    "supcon": {"temperature": _TEMPERATURE},
    "n_pairs_normalized": {"scale": ("log", 1.0, 16.0)},
    "circle": {"gamma": ("log", 1.0, 256.0), "margin": ("linear", 0.1, 0.6)},
    "proxy_nca": {"scale": ("log", 1.0, 16.0)},
    "proxy_anchor": {"alpha": _SCALE, "margin": ("linear", 0.0, 0.4)},
    "normalized_softmax": {"temperature": _TEMPERATURE},
    "cosface": {"scale": _SCALE, "margin": ("linear", 0.0, 0.5)},
    "arcface": {"scale": _SCALE, "margin": ("linear", 0.0, 0.6)},
    "structured_clustering": {"gamma": ("log", 0.1, 10.0)},
}


def build(name: str, **settings: float) -> nn.Module:
    """A loss of the page in float64, with its proxies where it has some."""
    arguments: dict[str, Any] = settings  # ``build`` takes others, too
    return losses.build(name, step.CLASSES, step.DIM, **arguments).double().train()


class ByPairs(nn.Module):
    """A loss of pairs, told which pairs are positive: so labels may be an input of its graph."""

    def __init__(self, loss: PairLoss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, points: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.loss(points, positive=labels[:, None] == labels)
        return loss


def formula(module: nn.Module, settings: Mapping[str, Any]) -> exporting.Formula:
    """Value and forces of a loss and SEC: of settings, SEC's weight, labels, points, proxies."""

    def computed(*inputs: Tensor) -> tuple[Tensor, ...]:
        numbers, (sec, labels, *points) = inputs[: len(settings)], inputs[len(settings) :]
        changed, constraint = copy.copy(module), SphericalConstraint()
        for setting, number in zip(settings, numbers, strict=True):
            object.__setattr__(changed, setting, number)
        object.__setattr__(constraint, "weight", sec)
        if isinstance(changed, PairLoss):
            changed = ByPairs(changed)
        of_proxies = dict(zip(playground.proxies(module), points[1:], strict=True))
        value, *forces = value_and_forces(changed, points[0], labels, **of_proxies)
        more, force = value_and_forces(constraint, points[0], labels)
        return value + more, forces[0] + force, *forces[1:]

    return computed


def sample(name: str, seed: int) -> dict[str, Tensor]:
    """Inputs of a loss's graph by their names, at random settings within the page's ranges."""
    random = torch.Generator().manual_seed(seed)
    inputs = {}
    for setting, (scale, low, high) in LOSSES[name].items():
        part = float(torch.rand((), generator=random))
        value = low * (high / low) ** part if scale == "log" else low + (high - low) * part
        inputs[setting] = torch.tensor(value, dtype=torch.float64)
    per_class = (2, 4, 8)[seed % 3]
    classes = torch.randperm(step.CLASSES, generator=random)[: step.BATCH // per_class]
    inputs |= {"sec": torch.tensor(0.5).double(), "labels": classes.repeat_interleave(per_class)}
    shapes = {"points": (step.BATCH, step.DIM), "proxies": (step.CLASSES, step.DIM)}
    for what in list(shapes)[: 1 + len(playground.proxies(build(name)))]:
        inputs[what] = torch.randn(shapes[what], generator=random, dtype=torch.float64)
    return inputs


def export_loss(name: str, folder: Path) -> dict[str, Any]:
    """Write a loss's graph, and say what the page needs to know of it.

    Raises ValueError if the graph does not give what a loss that is built with its settings gives.
    """
    ranges, signature = LOSSES[name], losses.signature(name)
    first = sample(name, seed=0)
    model = exporting.exported(formula(build(name), ranges), [*first.values()], [*first])
    cases = []
    for seed in range(1, 5):  # other settings, points and compositions of the batch
        inputs = sample(name, seed)
        module = build(name, **{setting: float(inputs[setting]) for setting in ranges})
        given = [value for what, value in inputs.items() if what not in ranges]
        cases.append((inputs, formula(module, {})(*given)))
    worst = exporting.compared(model, cases, TOLERANCE)
    (folder / f"{name}.onnx").write_bytes(model)
    return {
        "proxies": "proxies" in first,
        "settings": [
            {"name": setting, "scale": scale, "low": low, "high": high}
            | {"default": float(signature[setting].default)}
            for setting, (scale, low, high) in ranges.items()
        ],
        "difference": worst,
    }


def export_network(folder: Path) -> None:
    """Write the graphs of the network and of Adam.

    Raises ValueError if one does not give what torch gives.
    """
    p = torch.from_numpy(step.begin(0, step.DIM))
    size = step.BATCH, step.CHANNELS, step.SIDE, step.SIDE
    inputs = {"p": p[: step.WEIGHTS], "mask": p.new_ones(step.DIM)}
    inputs["images"] = torch.rand(size, dtype=p.dtype)
    forces = {"forces": torch.randn(step.BATCH, step.DIM, dtype=p.dtype)}
    g = torch.randn(len(p), dtype=p.dtype).relu()  # half of it 0, as for what never had a gradient
    state = {"p": p, "m": 0.5 * g, "v": 0.1 * g.square(), "g": g, "step": p.new_tensor(2)}
    state |= {"lr": torch.rand(len(p), dtype=p.dtype) / 100}
    parts: list[tuple[str, exporting.Formula, dict[str, Tensor]]] = [
        ("forward", lambda *given: (step.forward(*given),), inputs),
        ("backward", lambda *given: (step.backward(*given),), inputs | forces),
        ("adam", step.adam, state),
    ]
    for name, computed, given in parts:
        model = exporting.exported(computed, [*given.values()], [*given])
        exporting.compared(model, [(given, computed(*given.values()))], TOLERANCE)
        (folder / f"{name}.onnx").write_bytes(model)
