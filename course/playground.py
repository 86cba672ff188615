"""The playground: every loss, its value and its forces, as ONNX graphs behind one static page.

The page (``docs/playground``) knows no equation. Each loss of the table is traced as it stands,
with its gradient, exported, and compared with torch; ``losses.json`` names those that cannot be,
and why. A setting becomes an input of the graph where that gives what a loss that is built with it
gives; otherwise there is a graph for each of a few values.

Needs ``pip install 'dmlkit[site]'`` and npm.
"""

import contextlib
import copy
import hashlib
import inspect
import io
import json
import logging
import math
import shutil
import subprocess
import sys
import tarfile
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from dmlkit import looks, losses

aten = torch.ops.aten
#: Two points of each of three classes.
LABELS = torch.tensor([0, 0, 1, 1, 2, 2])
#: The largest difference from torch, relative to the largest number of the same tensor.
TOLERANCE = 1e-4
#: Values of a setting that needs a graph for each; the default is one more.
STOPS = 3
#: What six points on a plane need: fewer parts than two dimensions, and a schedule at its end.
ARGUMENTS: Mapping[str, Mapping[str, Any]] = {
    "soft_triple": {"centers": 2},
    "pfml": {"centers": 2},
    "spherical_expansion": {"points": 1},
    "multi_scale": {"parts": 2},
    "sphereface": {"lambda_max": 0.0},
}
PAGE = Path(__file__).parent / "playground_page"
#: What runs the graphs, from npm: its version, the SHA-256 of its archive, and what the page needs.
RUNTIME = "onnxruntime-web@1.30.0"
RUNTIME_SHA256 = "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71"
RUNTIME_FILES = ("dist/ort.wasm.bundle.min.mjs", "dist/ort-wasm-simd-threaded.wasm")
Formula = Callable[..., tuple[Tensor, ...]]


class Draws(TorchDispatchMode):
    """Gives a loss uniform numbers to draw from; those that it was not given it makes and keeps."""

    def __init__(self, given: Iterable[Tensor] = ()) -> None:
        super().__init__()
        self.given = iter(given)
        self.taken: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Answer what draws at random; all else goes its way."""
        if func is aten.rand.default:
            return self._next(args[0])
        if func is aten.bernoulli_.float and args[0].numel():
            return args[0].copy_(self._next(args[0].shape) < (args[1] if len(args) > 1 else 0.5))
        if torch.Tag.nondeterministic_seeded in func.tags and 0 not in args[0]:
            raise NotImplementedError(f"it draws random numbers by {func}, which no input replaces")
        return func(*args, **(kwargs or {}))

    def _next(self, shape: Sequence[int]) -> Tensor:
        drawn = next(self.given, None)
        self.taken.append(torch.rand(tuple(shape)) if drawn is None else drawn)
        return self.taken[-1]


def build(name: str, **settings: float) -> nn.Module:
    """A loss of two dimensions and three classes by its short name, the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        arguments = {**ARGUMENTS.get(name, {}), **settings}
        return losses.build(name, num_classes=3, dim=2, **arguments).train()


def proxies(module: nn.Module) -> tuple[str, Tensor] | None:
    """The parameter that holds the proxies, and its value, if the loss has any."""
    found = [(n, p.detach()) for n, p in module.named_parameters() if n.endswith("proxies")]
    return found[0] if len(found) == 1 else None


def forces(module: nn.Module, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Value, minus the gradient at the points (6, 2), and minus that at the proxies if there are.

    Inputs are the points, the proxies if there are, and the uniform numbers of each draw.
    """
    found = proxies(module)
    moved = [z.detach().requires_grad_() for z in inputs[: 2 if found else 1]]
    state = {n: b.clone() for n, b in module.named_buffers()}  # a call may change its own
    if found:
        state[found[0]] = moved[1]
    with Draws(inputs[len(moved) :]):
        value = torch.func.functional_call(module, state, (moved[0], LABELS))
    gradients = torch.autograd.grad(value, moved, allow_unused=True, materialize_grads=True)
    return value.detach(), *[-g.detach() for g in gradients]


def sample(module: nn.Module, seed: int) -> list[Tensor]:
    """Random inputs of :func:`forces` for a loss."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        found = proxies(module)
        inputs = [torch.randn(6, 2), *([torch.randn_like(found[1])] if found else [])]
        with Draws() as draws:
            module.eval()(inputs[0], LABELS)
        module.train()
    return [*inputs, *draws.taken]


def tunable(name: str) -> dict[str, float]:
    """The settings that tuning seeks, and their defaults."""
    signature = losses.signature(name)
    return {
        setting: float(signature[setting].default) for setting in losses.entry(name).space or {}
    }


def spread(name: str, setting: str, count: int) -> list[float]:
    """Values of a setting over its range, evenly on its own scale."""
    scale, low, high = (losses.entry(name).space or {})[setting]
    parts = [i / (count - 1) for i in range(count)]
    if scale == "log":
        return [float(f"{low * (high / low) ** part:.3g}") for part in parts]
    return [float(f"{low + (high - low) * part:.3g}") for part in parts]


def with_inputs(module: nn.Module, settings: Sequence[str]) -> Formula:
    """:func:`forces` as a function of numbers for these settings, and then of its inputs."""

    def formula(*inputs: Tensor) -> tuple[Tensor, ...]:
        changed = copy.copy(module)
        for setting, number in zip(settings, inputs, strict=False):
            if type(getattr(module, setting, None)) is not float:
                raise AttributeError(f"the loss keeps no number {setting!r}")
            object.__setattr__(changed, setting, number)
        return forces(changed, inputs[len(settings) :])

    return formula


def can_be_inputs(name: str, settings: Sequence[str]) -> bool:
    """Whether these settings as inputs give what losses that are built with them give."""
    values = {setting: spread(name, setting, 5)[3] for setting in settings}
    inputs, numbers = sample(build(name), seed=1), [torch.tensor(v) for v in values.values()]
    try:
        graph = traced(with_inputs(build(name), settings), [*numbers, *inputs])
        return difference(forces(build(name, **values), inputs), graph(*numbers, *inputs)) < 1e-5
    except (AttributeError, RuntimeError, TypeError):
        return False


def difference(expected: Iterable[Tensor], found: Iterable[Any]) -> float:
    """The largest difference, relative to the largest number of each expected tensor."""
    worst = 0.0
    for a, b in zip(expected, found, strict=True):
        apart = (a - torch.as_tensor(b).reshape(a.shape)).abs().max()
        relative = float(apart / a.abs().max().clamp_min(1e-2))
        worst = max(worst, relative if math.isfinite(relative) else math.inf)
    return worst


def traced(formula: Formula, inputs: Sequence[Tensor]) -> fx.GraphModule:
    """The formula as a graph of few operations, in which nothing but the inputs is left open."""
    table: Any = torch._decomp.core_aten_decompositions() | _SIMPLER  # keys of two types
    graph = _folded(make_fx(formula)(*inputs))
    return make_fx(torch.func.functionalize(graph), decomposition_table=table)(*inputs)


def _searchsorted(ordered: Tensor, values: Tensor, *, right: bool = False, **_: Any) -> Tensor:
    """Counted, as ONNX has no such operation."""
    a, b = ordered.unsqueeze(-2), values.unsqueeze(-1)
    return (a <= b if right else a < b).to(torch.int64).sum(dim=-1)


def _sort(x: Tensor, dim: int = -1, descending: bool = False, **_: Any) -> tuple[Tensor, Tensor]:
    """ONNX's TopK is stable: it takes the lower index first where values are equal."""
    return torch.topk(x, x.shape[dim], dim=dim, largest=descending)


def _diagonal_scatter(
    x: Tensor, diagonal: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """Of square matrices, a choice: torch's own form writes into a view, which is not exported."""
    if offset or {dim1 % x.ndim, dim2 % x.ndim} != {x.ndim - 2, x.ndim - 1}:
        raise NotImplementedError("only the main diagonal of the last two dimensions")
    on_it = torch.eye(x.shape[-2], x.shape[-1], dtype=torch.bool)
    return torch.where(on_it, diagonal.unsqueeze(-1), x)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """One bound after the other: the exporter takes no bounds of another type than x."""
    x = x if low is None else x.clamp_min(low)
    return x if high is None else x.clamp_max(high)


def _std(x: Tensor, *, correction: float = 1) -> Tensor:
    """Over all entries; torch's own form has a clamp that is not exported."""
    return ((x - x.mean()).square().sum() / (x.numel() - correction)).sqrt()


#: What ONNX has in another form, or what torch exports wrongly or not at all.
_SIMPLER = torch._decomp.get_decompositions(
    [aten.nll_loss_forward, aten.nll_loss_backward, aten._log_softmax_backward_data]
) | {
    aten.searchsorted.Tensor: _searchsorted,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.sort.stable: _sort,
    aten.std.correction: _std,
    aten.clamp.default: _clamp,
    aten.sort.default: _sort,
}


def _folded(module: fx.GraphModule) -> fx.GraphModule:
    """What does not depend on the inputs, as what follows from the labels, becomes a constant."""
    known: dict[fx.Node, Any] = {}
    for node in list(module.graph.nodes):
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
    module.graph.lint()
    module.recompile()
    return module


def exported(formula: Formula, inputs: Sequence[Tensor], names: Sequence[str]) -> bytes:
    """The formula as an ONNX model with named inputs."""
    program = torch.export.export(traced(formula, inputs), tuple(inputs))
    silence = io.StringIO()
    with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
        model: Any = torch.onnx.export(program, dynamo=True, input_names=names, verbose=False)
    proto = model.model_proto
    for node in proto.graph.node:  # half of the file says where in the source a node comes from
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    return proto.SerializeToString()


def export(name: str, folder: Path) -> dict[str, Any]:
    """Write the graphs of one loss, and say what the page needs to know of it.

    Raises ValueError if a graph does not give what torch gives.
    """
    module, defaults = build(name), tunable(name)
    live = [*defaults]
    if not can_be_inputs(name, live):
        live = [setting for setting in live if can_be_inputs(name, [setting])]
    stepped = {
        s: sorted({*spread(name, s, STOPS), d}) for s, d in defaults.items() if s not in live
    }
    inputs = sample(module, seed=0)
    of_proxies = ["proxies"] if proxies(module) else []
    draws = inputs[1 + len(of_proxies) :]
    names = [*live, "points", *of_proxies, *[f"draws_{i}" for i in range(len(draws))]]
    files: list[dict[str, Any]] = []
    worst = 0.0
    for values in _combinations(stepped):
        numbers = [torch.tensor(defaults[setting]) for setting in live]
        model = exported(with_inputs(build(name, **values), live), [*numbers, *inputs], names)
        worst = max(worst, _distance_from_torch(model, name, values, live, names))
        files.append({"file": f"{name}{len(files) or ''}.onnx", "settings": values})
        (folder / files[-1]["file"]).write_bytes(model)
    if worst > TOLERANCE:
        raise ValueError(
            f"the exported graph differs from torch by {worst:.1e} of the largest force"
        )
    return _described(name, module, files, live, stepped, draws) | {"difference": worst}


def _described(
    name: str,
    module: nn.Module,
    files: list[dict[str, Any]],
    live: Sequence[str],
    stepped: Mapping[str, Sequence[float]],
    draws: Sequence[Tensor],
) -> dict[str, Any]:
    found, space = proxies(module), losses.entry(name).space or {}
    fixed = {
        argument: ARGUMENTS.get(name, {}).get(argument, parameter.default)
        for argument, parameter in losses.signature(name).items()
        if argument not in {*live, *stepped, "num_classes", "dim", "loss"}
    }
    settings = [
        {"name": s, "default": d, "stops": stepped.get(s)}
        | dict(zip(("scale", "low", "high"), space[s], strict=True))
        for s, d in tunable(name).items()
    ]
    return {
        "name": name,
        "title": looks.look(name).name,
        "family": losses.entry(name).family,
        "summary": (inspect.getdoc(type(module)) or "").split("\n\n")[0].replace("\n", " "),
        "graphs": files,
        "settings": settings,
        "fixed": {k: v for k, v in fixed.items() if v is not inspect.Parameter.empty},
        "wraps": losses.entry(name).wraps,
        "proxies": list(found[1].shape) if found else None,
        "draws": [list(d.shape) for d in draws],
    }


def _combinations(stepped: Mapping[str, Sequence[float]]) -> Iterator[dict[str, float]]:
    if not stepped:
        yield {}
        return
    (setting, values), rest = next(iter(stepped.items())), dict([*stepped.items()][1:])
    for value in values:
        for others in _combinations(rest):
            yield {setting: value, **others}


def _distance_from_torch(
    model: bytes, name: str, values: Mapping[str, float], live: Sequence[str], names: Sequence[str]
) -> float:
    """The largest difference at other points and other settings than those of the export."""
    import onnxruntime

    session, worst = onnxruntime.InferenceSession(model), 0.0
    for seed in range(2, 5):
        chosen = {setting: spread(name, setting, 7)[seed] for setting in live}
        module = build(name, **values, **chosen)
        inputs = sample(module, seed)
        given = [*(torch.tensor(v) for v in chosen.values()), *inputs]
        feed = {n: z.numpy() for n, z in zip(names, given, strict=True)}
        worst = max(worst, difference(forces(module, inputs), session.run(None, feed)))
    return worst


def _attempt(name: str, folder: Path) -> dict[str, Any]:
    """What :func:`export` says, or why the loss cannot be exported."""
    warnings.simplefilter("ignore")  # the exporters', about themselves
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    try:
        return export(name, folder)
    except Exception as error:  # whatever an exporter raises, the page names the loss and why
        return {"name": name, "title": looks.look(name).name, "why": _reason(error)}


def _reason(error: BaseException) -> str:
    while error.__cause__:
        error = error.__cause__
    if "_local_scalar_dense" in str(error) or "DynamicOutputShape" in type(error).__name__:
        return "its steps depend on where the points are, and a graph has the same steps everywhere"
    return " ".join(str(error).split())[:200] or type(error).__name__


def write(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Build the page into a folder, and give the losses that it has and those that it has not.

    Nothing half-written stays: the page is built beside the folder, and replaces it when whole.

    Raises:
        RuntimeError: npm is missing or fails.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as scratch:
        page = Path(scratch) / "page"
        (page / "models").mkdir(parents=True)
        for source in ("index.html", "playground.css", "playground.js"):
            shutil.copyfile(PAGE / source, page / source)
        _copy_runtime(Path(scratch), page / "ort")
        with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
            names = losses.names()
            told = list(pool.map(_attempt, names, [page / "models"] * len(names)))
        found, missing = ([t for t in told if ("why" in t) is no] for no in (False, True))
        (page / "losses.json").write_text(json.dumps({"losses": found, "missing": missing}))
        if folder.exists():
            shutil.rmtree(folder)
        page.rename(folder)
    return found, missing


def _copy_runtime(scratch: Path, folder: Path) -> None:
    """onnxruntime-web, at the version of the lock file, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("the playground's runtime, onnxruntime-web, comes from npm: install npm")
    command = [npm, "pack", RUNTIME, "--prefer-offline", "--loglevel=error"]
    done = subprocess.run(command, cwd=scratch, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"npm could not fetch {RUNTIME}:\n{done.stderr.strip()}")
    content = next(scratch.glob("*.tgz")).read_bytes()
    if hashlib.sha256(content).hexdigest() != RUNTIME_SHA256:
        raise RuntimeError(f"npm's {RUNTIME} is not the file whose SHA-256 is {RUNTIME_SHA256}")
    folder.mkdir()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for source in RUNTIME_FILES:
            member = archive.extractfile(f"package/{source}")
            assert member is not None  # these are files
            (folder / Path(source).name).write_bytes(member.read())


def main(arguments: Sequence[str]) -> int:
    """``python -m course.playground FOLDER``."""
    if len(arguments) != 1:
        print("usage: python -m course.playground FOLDER", file=sys.stderr)  # noqa: T201
        return 2
    try:
        found, missing = write(Path(arguments[0]))
    except RuntimeError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    print(f"{len(found)} losses in {arguments[0]}")  # noqa: T201
    for loss in missing:
        print(f"missing: {loss['name']}: {loss['why']}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
