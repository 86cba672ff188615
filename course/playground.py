"""The playground: every loss, its value and its forces, as ONNX graphs behind one static page.

The page (``course/playground_page``) knows no equation. Each loss of the table is traced as it
stands, with its gradient, exported, and compared with torch; ``losses.json`` names those that
cannot be, and why. A setting that tuning seeks becomes an input of the graph, where that gives what
a loss that is built with it gives; the others keep their defaults.

``python -m course.playground FOLDER`` needs ``pip install 'dmlkit[site]'`` and npm.
"""

import copy
import inspect
import json
import math
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from course import exporting, live
from dmlkit import losses
from dmlkit.losses.forces import value_and_forces

aten = torch.ops.aten
#: Two points of each of three classes.
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
#: What six points on a plane need: fewer parts than two dimensions, and a schedule at its end.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "soft_triple": {"centers": 2},
    "pfml": {"centers": 2},
    "spherical_expansion": {"points": 1},
    "multi_scale": {"parts": 2},
    "sphereface": {"lambda_max": 0.0},
}
PAGE = Path(__file__).parent / "playground_page"


def build(name: str, **settings: float) -> nn.Module:
    """A loss of two dimensions and three classes by its short name, the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        arguments = {**ARGUMENTS.get(name, {}), **settings}
        return losses.build(name, num_classes=3, dim=2, **arguments).train()


def proxies(module: nn.Module) -> dict[str, Tensor]:
    """The parameter that holds the proxies, by its name, if the loss has one."""
    found = {n: p.detach() for n, p in module.named_parameters() if n.endswith("proxies")}
    return found if len(found) == 1 else {}


def sample(module: nn.Module, seed: int) -> list[Tensor]:
    """Random points (6, 2), and random proxies if there are."""
    random = torch.Generator().manual_seed(seed)
    shapes = [(6, 2), *(tuple(found.shape) for found in proxies(module).values())]
    return [torch.randn(shape, generator=random) for shape in shapes]


class OneDraw(TorchDispatchMode):
    """Gives a loss that draws at random the same numbers at each call: a graph has no others."""

    numbers = torch.rand(36, generator=torch.Generator().manual_seed(0))

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer what draws at random; all else goes its way."""
        if func is aten.rand.default:
            return self.numbers[: math.prod(args[0])].view(args[0])
        if func is aten.bernoulli_.float:
            return args[0].copy_(self.numbers[: args[0].numel()].view_as(args[0]) < 0.5)
        return func(*args, **(kwargs or {}))


def formula(module: nn.Module, settings: Sequence[str] = ()) -> exporting.Formula:
    """Value and forces of a loss, as a function of numbers for settings, points and proxies."""

    def computed(*inputs: Tensor) -> tuple[Tensor, ...]:
        changed, (points, *moved) = copy.copy(module), inputs[len(settings) :]
        for setting, number in zip(settings, inputs, strict=False):
            object.__setattr__(changed, setting, number)
        with OneDraw():
            given = dict(zip(proxies(module), moved, strict=True))
            return value_and_forces(changed, points, LABELS, **given)

    return computed


def within(name: str, setting: str, part: float) -> float:
    """A value in the range that tuning seeks: at 0 the lowest, at 1 the highest."""
    scale, low, high = (losses.entry(name).space or {})[setting]
    return low * (high / low) ** part if scale == "log" else low + (high - low) * part


def can_be_input(name: str, setting: str) -> bool:
    """Whether a setting as an input gives what a loss that is built with it gives."""
    value, module = within(name, setting, 0.75), build(name)
    if not isinstance(getattr(module, setting, None), float):
        return False
    inputs, number = sample(module, seed=1), torch.tensor(value)
    try:
        graph = exporting.traced(formula(module, [setting]), [number, *inputs])
        expected = formula(build(name, **{setting: value}))(*inputs)
        return exporting.difference(expected, graph(number, *inputs)) < exporting.TOLERANCE
    except (RuntimeError, TypeError):
        return False


def export(name: str, folder: Path) -> dict[str, Any]:
    """Write the graph of one loss, and say what the page needs to know of it.

    Raises ValueError if the graph does not give what torch gives.
    """
    entry, signature, module = losses.entry(name), losses.signature(name), build(name)
    moving = [setting for setting in entry.space or {} if can_be_input(name, setting)]
    inputs = [torch.tensor(float(signature[s].default)) for s in moving] + sample(module, seed=0)
    names = [*moving, "points", *(["proxies"] if proxies(module) else [])]
    model = exporting.exported(formula(module, moving), inputs, names)
    cases = []
    for seed in range(2, 5):  # at other points and other settings than those of the export
        chosen = {setting: within(name, setting, seed / 6) for setting in moving}
        points = sample(module, seed)
        given = [*map(torch.tensor, chosen.values()), *points]
        cases.append(
            (dict(zip(names, given, strict=True)), formula(build(name, **chosen))(*points))
        )
    worst = exporting.compared(model, cases)
    (folder / f"{name}.onnx").write_bytes(model)
    fixed = {
        argument: ARGUMENTS.get(name, {}).get(argument, parameter.default)
        for argument, parameter in signature.items()
        if argument not in {*moving, "num_classes", "dim", "loss"}
    }
    return {
        "summary": (inspect.getdoc(type(module)) or "").split("\n\n")[0].replace("\n", " "),
        "settings": [
            dict(zip(("scale", "low", "high"), (entry.space or {})[s], strict=True))
            | {"name": s, "default": float(signature[s].default)}
            for s in moving
        ],
        "fixed": fixed,
        "wraps": entry.wraps,
        "proxies": [list(found.shape) for found in proxies(module).values()],
        "difference": worst,
    }


def write(folder: Path, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Build the page into a folder, whole or not at all, and give its catalog."""
    names = [entry.name for entry in losses.entries()] if names is None else names
    with live.replaced(folder) as page:
        shutil.copytree(PAGE, page, dirs_exist_ok=True)
        live.copy_runtime(page)
        catalog = live.catalog(export, names, page / "models")
        (page / "losses.json").write_text(json.dumps(catalog))
    return catalog


if __name__ == "__main__":
    from course import playground  # by this name its functions reach other processes

    live.report(Path(sys.argv[1]), playground.write(Path(sys.argv[1])))
