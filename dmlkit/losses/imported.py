"""A loss that is not in the table, by its file or module and its class: ``mylosses.py:MyLoss``."""

import importlib
import importlib.util
import inspect
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from torch import nn

# The source that a file had when it was loaded, and what it defined.
_LOADED: dict[Path, tuple[bytes, ModuleType]] = {}
_ONE_AT_A_TIME = threading.Lock()


def is_imported(name: str) -> bool:
    """Whether a loss is named by its file or module, and not by a short name.

    >>> is_imported("mylosses.py:MyLoss"), is_imported("contrastive")
    (True, False)
    """
    return ":" in name


def check_name(name: str) -> None:
    """Refuse a name that is neither ``path/to/file.py:Class`` nor ``package.module:Class``.

    Nothing is read or imported.

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
        ValueError: the name has another form, or there is no such file, module or class.
        TypeError: what is there is no ``torch.nn.Module`` with a ``forward``.
        ImportError: the file or module fails while it is imported.

    >>> find("dmlkit.losses.pairs:ContrastiveLoss").__name__
    'ContrastiveLoss'
    """
    check_name(name)
    where, _, cls = name.rpartition(":")
    with _ONE_AT_A_TIME:
        module = _from_file(where) if where.endswith(".py") else _from_package(where)
    if not hasattr(module, cls):
        raise ValueError(f"{where} has no {cls!r}; its losses are {', '.join(_losses(module))}")
    found = getattr(module, cls)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        what = f"a class of {_names(found.__bases__)}" if isinstance(found, type) else repr(found)
        raise TypeError(
            f"{name} must be a class derived from torch.nn.Module, called as "
            f"loss(embeddings, labels), but is {what}"
        )
    if found.forward is nn.Module.forward:
        raise TypeError(f"{name} must have a method forward(self, embeddings, labels)")
    return found


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


def _from_file(where: str) -> ModuleType:
    path = Path(where).resolve()
    if not path.is_file():
        raise ValueError(f"no file {where} in {Path.cwd()}")
    source = path.read_bytes()
    # A name that no other import gives; it says what the Experiment says, wherever that lies.
    name = f"loss_file_{re.sub(r'[^0-9A-Za-z]', '_', where.removesuffix('.py'))}"
    if path not in _LOADED or _LOADED[path][0] != source or _LOADED[path][1].__name__ != name:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        module, before = importlib.util.module_from_spec(spec), sys.modules.get(name)
        sys.modules[name] = module  # as dataclasses and torch.compile look it up
        try:
            with _searched(path.parent):
                exec(compile(source, str(path), "exec"), vars(module))
        except BaseException as error:
            del sys.modules[name]
            if before is not None:
                sys.modules[name] = before
            if not isinstance(error, Exception):
                raise
            raise ImportError(f"{where} fails: {type(error).__name__}: {error}") from error
        _LOADED[path] = source, module
    sys.modules[name] = _LOADED[path][1]
    return _LOADED[path][1]


def _from_package(where: str) -> ModuleType:
    try:
        with _searched(Path.cwd()):
            return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{where}.".startswith(f"{error.name}."):
            hint = f": is it a file? Then {where.replace('.', '/')}.py" if "." not in where else ""
            raise ValueError(f"no module {where!r}{hint}") from error
        raise ImportError(f"{where} fails: {error}") from error
    except Exception as error:
        raise ImportError(f"{where} fails: {type(error).__name__}: {error}") from error


@contextmanager
def _searched(folder: Path) -> Iterator[None]:
    """Look for modules in a folder as well, for a while."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _losses(module: ModuleType) -> list[str]:
    known = vars(module).items()
    found = [n for n, v in known if isinstance(v, type) and issubclass(v, nn.Module)]
    return [*found[:9], "..."] if len(found) > 9 else found or ["none"]


def _names(classes: tuple[type, ...]) -> str:
    return ", ".join(cls.__name__ for cls in classes)
