"""A formula of tensors as an ONNX graph, compared with torch: for pages that compute.

Needs ``pip install 'dmlkit[site]'``.
"""

import contextlib
import io
import logging
import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

aten = torch.ops.aten
#: The largest difference from torch, relative to the largest number of the same tensor.
TOLERANCE = 1e-4
Formula = Callable[..., tuple[Tensor, ...]]


def _searchsorted(ordered: Tensor, values: Tensor, *, right: bool = False, **_: Any) -> Tensor:
    """Counted, as ONNX has no such operation."""
    a, b = ordered.unsqueeze(-2), values.unsqueeze(-1)
    return (a <= b if right else a < b).to(torch.int64).sum(dim=-1)


def _diagonal_scatter(x: Tensor, diagonal: Tensor, *_: int) -> Tensor:
    """Of square matrices, a choice: torch's own form writes into a view, which is not exported."""
    return torch.where(torch.eye(x.shape[-1], dtype=torch.bool), diagonal.unsqueeze(-1), x)


def _stable_sort(
    x: Tensor, *, dim: int = -1, descending: bool = False, **_: Any
) -> tuple[Tensor, Tensor]:
    """ONNX's sort is stable, as a TopK of all: of equal numbers, the first comes first."""
    return torch.sort(x, dim=dim, descending=descending)


def _clamp(x: Tensor, low: float | None = None, high: float | None = None) -> Tensor:
    """One bound after the other: the exporter takes no bounds of another type than x."""
    x = x if low is None else x.clamp_min(low)
    return x if high is None else x.clamp_max(high)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """As torch has it: a runtime has it in float32 alone."""
    return torch.where(beta * x > threshold, x, torch.log1p((beta * x).exp()) / beta)


# Cross entropy would be exported wrongly, without a word.
_SIMPLER = torch._decomp.get_decompositions([aten.nll_loss_forward]) | {
    aten.searchsorted.Tensor: _searchsorted,
    aten.diagonal_scatter.default: _diagonal_scatter,
    aten.clamp.default: _clamp,
    aten.softplus.default: _softplus,
    aten.sort.stable: _stable_sort,
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


def compared(
    model: bytes,
    cases: Iterable[tuple[Mapping[str, Tensor], Iterable[Tensor]]],
    tolerance: float = TOLERANCE,
) -> float:
    """The largest difference of a graph from torch, over inputs by their names and what they give.

    Raises ValueError if it is above the tolerance.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(model)
    worst = 0.0
    for inputs, expected in cases:
        found = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        worst = max(worst, difference(expected, found))
    if worst > tolerance:
        raise ValueError(f"the exported graph differs from torch by {worst:.1e} of the largest")
    return worst


def difference(expected: Iterable[Tensor], found: Iterable[Any]) -> float:
    """The largest difference, relative to the largest number of each expected tensor."""
    worst = 0.0
    for a, b in zip(expected, found, strict=True):
        apart = (a - torch.as_tensor(b).reshape(a.shape)).abs().max()
        relative = float(apart / a.abs().max().clamp_min(1e-2))
        worst = max(worst, relative if math.isfinite(relative) else math.inf)
    return worst


def attempt(export: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What an export says, or ``why`` it cannot be done: the page names that in its place."""
    warnings.simplefilter("ignore")  # the exporters', about themselves
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    try:
        return export(*arguments)
    except Exception as error:  # whatever an exporter raises
        return {"why": reason(error)}


def reason(error: BaseException) -> str:
    """Why a loss cannot be exported, from what the exporter raised."""
    while error.__cause__:
        error = error.__cause__
    if "_local_scalar_dense" in str(error) or "DynamicOutputShape" in type(error).__name__:
        return "its steps depend on where the points are, and a graph has the same steps everywhere"
    return " ".join(str(error).split())[:200] or type(error).__name__
