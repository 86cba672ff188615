"""What decides a Run besides its Experiment: code, images, weights, versions, numerics.

Code is hashed as it is in memory, since that is what trains: neither an edit on disk that this
process has not imported, nor a comment, docstring, annotation or line number counts. A function
that ``functools.wraps`` another is taken for that other one.
"""

import dis
import functools
import hashlib
import inspect
import platform
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch
from torch import nn

from dmlkit import data, numerics
from dmlkit.losses import imported
from dmlkit.training.experiment import Experiment

PACKAGE = "dmlkit"
#: What every training executes. ``losses.table`` is reached through a package that only lists.
#: The globals of the others lead to the rest of the room.
PIPELINE = ("dmlkit.training.runs", "dmlkit.training.loop", "dmlkit.losses.table")
#: What holds functions, and where.
_PARTS: dict[type, tuple[str, ...]] = {
    functools.partial: ("func", "args", "keywords"),
    classmethod: ("__func__",),
    staticmethod: ("__func__",),
    property: ("fget", "fset"),
    functools.cached_property: ("func",),
}


def provenance(
    experiment: Experiment,
    model: nn.Module,
    objective: nn.Module,
    sets: Mapping[str, data.ImageSet],
    device: str,
) -> dict[str, str]:
    """What decides a Run besides its Experiment, by name, for a model as it is before training.

    A data set's loader is not among the modules, for what it gives is: the images.
    """
    parts = [*model.modules(), *objective.modules()]
    types = {type(part) for part in parts}
    seeds = {cls.__module__ for cls in types} | set(PIPELINE)
    for images in sets.values():
        seeds |= {type(images).__module__, type(images.images).__module__}
    owners = {PACKAGE}.union(*map(imported.packages, _imported(experiment)))
    modules = closure(seeds, owners)
    others = (cls for cls in types if cls.__module__.split(".")[0] not in (PACKAGE, "torch"))
    code = [
        *(_module_text(sys.modules[name], owners) for name in modules),
        *sorted(_class_text(cls) for cls in others),  # a notebook's, torchvision's
        *(f"{type(part)} {_fields_text(vars(part))}" for part in parts),
    ]
    facts = {f"images of {split}": images.fingerprint[:12] for split, images in sets.items()}
    if experiment.model_args.get("pretrained"):
        weights = model.state_dict().values()  # whatever file they came from
        facts["weights"] = _digest(value.contiguous().numpy() for value in weights)
    return facts | {
        "code": _digest(text.encode() for text in code),
        "modules": " ".join(modules),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "device": device,
        "numerics": torch.cuda.get_device_name() if device == "cuda" else numerics.describe(),
    }


def _imported(experiment: Experiment) -> Iterator[str]:
    """The losses that an Experiment names by their file or module, wrapped ones too."""
    args: Any = {"loss": experiment.loss, "loss_args": experiment.loss_args}
    while isinstance(name := args.get("loss"), str):
        if imported.is_imported(name):
            yield name
        args = args.get("loss_args", {})


def closure(names: Iterable[str], owners: Collection[str] = (PACKAGE,)) -> tuple[str, ...]:
    """The owners' modules among these, and those that they use, and so on, in order.

    An owner is a package, or a module that is in none.

    A module uses what its globals are or come from. One that defines nothing itself, but lists
    what others do, is not followed: else every new loss would rename every Run.

    >>> closure(["dmlkit.losses.contract", "torch"])
    ('dmlkit.geometry', 'dmlkit.losses.contract')
    """
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and name.split(".")[0] in owners:
            found.add(name)
            own = (v for key, v in vars(sys.modules[name]).items() if not key.startswith("__"))
            if any(_is_own(value, name) for value in own):
                waiting.extend(_used(sys.modules[name]))
    return tuple(sorted(found))


def _used(module: ModuleType) -> Iterator[str]:
    for name, value in vars(module).items():
        if name.startswith("__"):  # Python's own, and what torch.compile leaves there
            continue
        if not isinstance(value, ModuleType):
            yield str(getattr(value, "__module__", ""))
        elif value.__name__ != f"{module.__name__}.{name}":  # a package has all its parts, once
            yield value.__name__  # anybody has imported them


def _is_own(value: object, module: str) -> bool:
    return isinstance(inspect.unwrap(value), FunctionType | type) and (  # type: ignore[arg-type]
        getattr(value, "__module__", None) == module
    )


def _module_text(module: ModuleType, owners: Collection[str]) -> str:
    """The functions and classes that a module defines, and its constants.

    Times (…_SECONDS: of patience, between checkpoints) change no result.
    """
    own = {
        name: value
        for name, value in vars(module).items()
        if not (name.startswith("__") or name.endswith("_SECONDS"))
        and not _is_foreign(value, owners)
    }
    return f"{module.__name__}: {_fields_text(own, module.__name__)}"


def _is_foreign(value: object, owners: Collection[str]) -> bool:
    """Whether another package defines it: ``tqdm.auto``, say, has another bar in a notebook."""
    owner = getattr(value, "__module__", None) if callable(value) else None
    return isinstance(owner, str) and owner.split(".")[0] not in owners


def _class_text(cls: type) -> str:
    """What a class defines: functions, and constants but for those that Python adds."""
    own = {
        name: value
        for name, value in vars(cls).items()
        if not name.startswith("__") or isinstance(value, FunctionType | classmethod | staticmethod)
    }
    bases = [f"{base.__module__}.{base.__qualname__}" for base in cls.__bases__]
    return f"class {cls.__qualname__} of {bases}: {_fields_text(own, cls.__module__)}"


def _fields_text(values: Mapping[str, object], module: str | None = None) -> str:
    """All that has a text, in order; of the module's own classes what they define."""
    texts = (
        (name, _class_text(v) if isinstance(v, type) and v.__module__ == module else _text(v))
        for name, v in values.items()
    )
    return "\n".join(f"{name} = {text}" for name, text in sorted(texts) if text)


def _text(value: Any) -> str:
    """A function by its code, a class by its name, a constant by its value; else nothing.

    Nothing, too, for a container that is empty or holds anything else: a table that is filled by
    others, a memory of what was computed.
    """
    value = inspect.unwrap(value) if callable(value) else value
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    if isinstance(value, CodeType):
        return _code_text(value)
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        given = (value.__defaults__, value.__kwdefaults__, *cells)
        return f"{_code_text(value.__code__)} with {[_text(one) for one in given]}"
    if parts := _PARTS.get(type(value)):
        return f"{type(value).__name__} {[_text(getattr(value, part)) for part in parts]}"
    if type(value).__module__.split(".")[0] == PACKAGE and hasattr(value, "__dict__"):
        return f"{type(value).__qualname__} of {_fields_text(vars(value))}"  # its settings
    if isinstance(value, Mapping):
        value = list(value.items())
    if isinstance(value, tuple | list | set | frozenset):
        texts = [_text(member) for member in value]
        if all(texts) and (texts or isinstance(value, tuple)):
            return str(sorted(texts) if isinstance(value, set | frozenset) else texts)
    return ""


@functools.cache
def _code_text(code: CodeType) -> str:
    """Instructions, with the constants that they load: a docstring is one that none loads."""
    steps = [
        (step.opcode, _text(step.argval) if step.opcode in dis.hasconst else step.arg)
        for step in dis.get_instructions(code)
        if step.opcode != dis.EXTENDED_ARG  # the argument of the next step is whole
    ]
    count = code.co_argcount + code.co_kwonlyargcount
    arguments = code.co_argcount, code.co_posonlyargcount, code.co_varnames[:count], code.co_flags
    return repr((steps, code.co_names, arguments, code.co_exceptiontable))


def _digest(parts: Iterable[Any]) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:12]
