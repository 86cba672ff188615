"""A loss that is not in the table, by its file or module and its class: ``mylosses.py:MyLoss``."""

import importlib
import inspect
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

_ONE_AT_A_TIME = threading.Lock()


def is_imported(name: str) -> bool:
    """Whether a loss is named by its file or module, and not by a short name."""
    return ":" in name


def check_name(name: str) -> None:
    """Refuse a name that is neither ``path/to/file.py:Class`` nor ``package.module:Class``.

    >>> check_name("mylosses:")
    Traceback (most recent call last):
    ValueError: a loss is 'path/to/file.py:Class' or 'package.module:Class', but this is 'mylosses:'
    """
    where, _, cls = name.rpartition(":")
    module = all(part.isidentifier() for part in where.split("."))
    if not cls.isidentifier() or not (module or where.endswith(".py")):
        raise ValueError(
            f"a loss is 'path/to/file.py:Class' or 'package.module:Class', but this is {name!r}"
        )
    if where == "__main__":
        raise ValueError(
            f"{name!r} is known to this process alone, and others train: write the class to a "
            f"file (in a notebook by %%writefile mylosses.py), then name it 'mylosses.py:{cls}'"
        )


def find(name: str) -> type[nn.Module]:
    """The class that a name means; a path is relative to the working folder.

    A file is loaded anew when its text has changed. What it imports may lie beside it.

    Raises:
        ValueError: the name has another form, or what it names is no ``torch.nn.Module``.
        ImportError: there is no such file or module, or it fails while it is imported.

    >>> find("dmlkit.losses.pairs:ContrastiveLoss").__name__
    'ContrastiveLoss'
    """
    check_name(name)
    where, _, cls = name.rpartition(":")
    try:
        module = _load(where)
    except Exception as error:  # of any kind: the code is another's
        raise ImportError(f"{where} fails: {type(error).__name__}: {error}") from error
    classes = {k: v for k, v in vars(module).items() if isinstance(v, type)}
    losses = {k: v for k, v in classes.items() if issubclass(v, nn.Module)}
    if cls not in losses:
        there = ", ".join([*losses][:9]) or "none"
        raise ValueError(f"{where} has no torch.nn.Module {cls!r}; its losses are {there}")
    return losses[cls]


def arguments(cls: type[nn.Module]) -> Mapping[str, inspect.Parameter]:
    """What a class can be built with; where it hands on ``**kwargs``, what its bases take as well.

    >>> from dmlkit.losses import TripletLoss
    >>> "margin" in arguments(TripletLoss)
    True
    """
    found: dict[str, inspect.Parameter] = {}
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for base in cls.__mro__[: cls.__mro__.index(nn.Module)]:
        if (init := vars(base).get("__init__")) is None:
            continue
        _, *own = inspect.signature(init).parameters.values()
        found |= {p.name: p for p in own if p.kind not in variable and p.name not in found}
        if variable[1] not in [p.kind for p in own]:
            break
    return found


def _load(where: str) -> ModuleType:
    if not where.endswith(".py"):
        with _searched(Path.cwd()):
            return importlib.import_module(where)
    path = Path(where).resolve()
    source = path.read_bytes()
    # A name that no other import gives; it says what the Experiment says, wherever that lies.
    name = f"loss_file_{re.sub(r'[^0-9A-Za-z]', '_', where.removesuffix('.py'))}"
    with _searched(path.parent):
        loaded = sys.modules.get(name)
        if loaded is None or vars(loaded)["__source__"] != (path, source):
            loaded = ModuleType(name)
            vars(loaded).update(__file__=str(path), __source__=(path, source))
            sys.modules[name] = loaded  # as dataclasses and torch.compile look it up
            try:
                exec(compile(source, str(path), "exec"), vars(loaded))
            except BaseException:
                del sys.modules[name]
                raise
    return loaded


@contextmanager
def _searched(folder: Path) -> Iterator[None]:
    """Look for modules in a folder as well, for a while."""
    with _ONE_AT_A_TIME:
        sys.path.insert(0, str(folder))
        try:
            yield
        finally:
            sys.path.remove(str(folder))
