"""What decides a Run besides its Experiment: code, images, weights, versions, numerics."""

import ast
import functools
import hashlib
import importlib.util
import inspect
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import nn

from dmlkit import data, numerics
from dmlkit.training.experiment import Experiment

#: What every training executes; their imports lead to the rest of it.
PIPELINE = ("dmlkit.training.runs", "dmlkit.losses.table")
_STANDARD_LIBRARY = os.path.dirname(os.__file__)


def provenance(
    experiment: Experiment,
    model: nn.Module,
    objective: nn.Module,
    sets: Mapping[str, data.ImageSet],
    device: str,
) -> dict[str, str]:
    """What decides a Run besides its Experiment, by name, for a model as it is before training.

    Code counts by its syntax: neither a comment, a docstring nor a blank line renames a Run. The
    loaders of data sets do not count, for what they give does: the images.
    """
    used = [type(part).__module__ for part in (*model.modules(), *objective.modules())]
    used += [type(part).__module__ for each in sets.values() for part in (each, each.images)]
    modules = reached([*PIPELINE, *used], [type(part).__module__ for part in objective.modules()])
    facts = {f"images of {split}": images.fingerprint[:12] for split, images in sets.items()}
    if experiment.model_args.get("pretrained"):
        weights = model.state_dict().values()  # whatever file they came from
        facts["weights"] = _digest(value.contiguous().numpy() for value in weights)
    return facts | {
        "code": _digest(f"{name} {syntax}".encode() for name, syntax in modules.items()),
        "modules": " ".join(modules),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "device": device,
        "numerics": torch.cuda.get_device_name() if device == "cuda" else numerics.describe(),
    }


def reached(names: Iterable[str], own: Iterable[str] = ()) -> dict[str, str]:
    """The syntax, as a hash, of modules by name (not torch's), and of all of ours that they import.

    Ours are dmlkit, the packages of the ``own`` modules, and whatever is not installed. Packages of
    dmlkit are left out: they list all their parts, so that a new loss would rename every Run; what
    is used of these is among the names.

    >>> list(reached(["dmlkit.losses.contract"]))[-1]
    'dmlkit.losses.contract'
    """
    packages = {"dmlkit"} | {name.split(".")[0] for name in own} - {"torch"}
    found: dict[str, str] = {}
    waiting = [name for name in names if name.split(".")[0] != "torch"]
    while waiting:
        name = waiting.pop()
        module = sys.modules[name]
        if name in found or (name.startswith("dmlkit") and hasattr(module, "__path__")):
            continue
        found[name], imports = _read(module)
        if _is_ours(name, packages):
            waiting += [each for each in imports if _is_ours(each, packages)]
    return dict(sorted(found.items()))


def _is_ours(name: str, packages: set[str]) -> bool:
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    installed = re.search(r"(site|dist)-packages", file) or file.startswith(_STANDARD_LIBRARY)
    return file.endswith(".py") and (name.split(".")[0] in packages or not installed)


@functools.cache  # as it was when first asked for: an edit that is not imported trains nothing
def _read(module: ModuleType) -> tuple[str, list[str]]:
    """The hash of a module's syntax, and what it imports, anywhere in it."""
    tree, imports = ast.parse(inspect.getsource(module)), []
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            body[:] = [each for each in body if not _is_docstring(each)]
        if isinstance(node, ast.Import):
            imports += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            relative = "." * node.level + (node.module or "")
            base = importlib.util.resolve_name(relative, module.__package__)
            parts = [f"{base}.{alias.name}" for alias in node.names]
            imports += [part if part in sys.modules else base for part in parts]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), imports


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _digest(parts: Iterable[Any]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:12]
