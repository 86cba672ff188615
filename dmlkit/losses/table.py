"""The table of losses: each enters it where it is defined, with its family and search space."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

from torch import nn

from dmlkit.checks import check_arguments
from dmlkit.losses import imported
from dmlkit.losses.contract import Range

Loss = TypeVar("Loss", bound=type[nn.Module])


@dataclass(frozen=True)
class Entry:
    """One short name: how the loss is made, and what is tuned."""

    name: str
    make: Callable[..., nn.Module]
    family: str
    space: Mapping[str, Range] | None  # of its own arguments; None: it is not tuned
    wraps: str | None = None  # short name of the loss that a wrapper takes, unless told otherwise
    title: str = ""  # as figures write it
    year: int = 0  # of the source
    equation: str = ""  # one or two lines, in the course's notation
    studied: bool = True  # whether the studies have evidence of it


#: In the course's order; a family that is not named here comes after those that are.
FAMILIES = (
    *("pairs", "ranking", "groups", "proxies", "memory", "ensembles"),
    *("hyperbolic", "synthesis", "sizes"),
)
#: Names of the field's that are no loss of one network, and what to use instead.
RECIPES = {
    "dreml": "studies.dreml trains an ensemble, each member with the loss 'meta_class'",
    "mic": "studies.mic trains a network with two heads, and evaluates the first of them",
}
#: All that are registered, by short name.
ENTRIES: dict[str, Entry] = {}


def register(
    name: str,
    family: str,
    title: str = "",
    year: int = 0,
    *equation: str,
    tuned: bool | tuple[str, ...] = True,
    wraps: str | None = None,
    studied: bool = True,
    **fixed: Any,
) -> Callable[[Loss], Loss]:
    """Enter a class into the table under a short name, with arguments that the name fixes.

    Its search space is that of ``space``, in the order of ``tuned`` where that names settings; with
    ``tuned=False`` the loss is not tuned. A wrapper's first argument is ``loss``, a module, and
    ``wraps`` is the one that ``build`` makes for it by default.

    Raises:
        ValueError: the name is taken.
    """

    def enter(loss: Loss) -> Loss:
        if name in ENTRIES:
            raise ValueError(f"there is a loss {name!r} already: {ENTRIES[name].make}")
        make = partial(loss, **fixed) if fixed else loss
        ranges = space(loss)
        order = tuned if isinstance(tuned, tuple) else ranges
        own = {key: ranges[key] for key in order} if tuned else None
        about = title or name, year, "\n".join(equation), studied
        ENTRIES[name] = Entry(name, make, family, own, wraps, *about)
        return loss

    return enter


def space(loss: type) -> dict[str, Range]:
    """What is tuned of a class, and between which bounds: fields with ``tune``, and ``space``.

    Where it is empty, only learning rates are tuned.

    >>> from dmlkit.losses import TripletLoss
    >>> space(TripletLoss)
    {'margin': ('log', 0.05, 0.8)}
    """
    own = fields(loss) if is_dataclass(loss) else ()
    declared = {f.name: f.metadata["tune"] for f in own if f.metadata.get("tune")}
    return declared | dict(getattr(loss, "space", {}))


def entries() -> tuple[Entry, ...]:
    """Every loss of one network, in the course's order.

    >>> from dmlkit import losses
    >>> losses.entries()[0].name
    'contrastive'
    """
    place = {family: i for i, family in enumerate(FAMILIES)}
    return tuple(sorted(ENTRIES.values(), key=lambda e: place.get(e.family, len(place))))


def names() -> tuple[str, ...]:
    """Short names of all losses, in the course's order; those that are no module come last.

    >>> from dmlkit import losses
    >>> "triplet_semihard" in losses.names()
    True
    """
    return (*(entry.name for entry in entries()), *RECIPES)


def entry(name: str) -> Entry:
    """A loss by its short name, or by ``path/to/file.py:Class`` or ``package.module:Class``.

    A class may say in its attribute ``space`` what is tuned, as in ``register``, and in ``family``
    what it is compared with; else only the learning rates are tuned, and a class that takes
    ``num_classes`` is of the proxies, and any other of the pairs.

    Raises:
        ValueError: unknown name, or one that is no loss of one embedding; for a file or module,
            see also ``imported.find``.

    >>> from dmlkit import losses
    >>> losses.entry("triplet_semihard").family
    'pairs'
    """
    if name in RECIPES:
        raise ValueError(f"{name!r} is no loss of one embedding: {RECIPES[name]}")
    if imported.is_imported(name):
        return _imported(name)
    if name not in ENTRIES:
        raise ValueError(f"unknown loss {name!r}; there are {', '.join(names())}")
    return ENTRIES[name]


def _imported(name: str) -> Entry:
    cls = imported.find(name)
    accepted, own = imported.arguments(cls), space(cls)
    check_arguments(f"the space of {name}", accepted, own)
    for argument, bounds in own.items():
        scale, low, high = bounds if len(bounds) == 3 else ("", 0, 0)
        if scale not in ("log", "linear") or not low < high or (scale == "log" and low <= 0):
            raise ValueError(
                f"{name}: space[{argument!r}] must be ('log' or 'linear', lowest, highest), "
                f"the lowest of 'log' above 0, but is {bounds!r}"
            )
    family = "proxies" if "num_classes" in accepted else "pairs"
    return Entry(name, cls, getattr(cls, "family", family), own, title=cls.__name__)


def signature(name: str) -> Mapping[str, inspect.Parameter]:
    """The arguments of a loss by its name, with their defaults.

    Raises ValueError as ``entry`` does.

    >>> from dmlkit import losses
    >>> losses.signature("triplet_semihard")["margin"].default
    0.2
    """
    make: Any = entry(name).make
    known = name in ENTRIES
    return inspect.signature(make).parameters if known else imported.arguments(make)


def build(
    name: str,
    num_classes: int | None = None,
    dim: int | None = None,
    *,
    loss: str | nn.Module | None = None,
    loss_args: Mapping[str, Any] | None = None,
    **args: Any,
) -> nn.Module:
    """Make a loss by its name; ``num_classes`` and ``dim`` reach those that own proxies.

    A class by its file or module may call the second one ``embedding_size``, as
    pytorch-metric-learning does.

    A wrapper (XBM, SEE) is given ``loss``, a module or a short name, which is built with
    ``loss_args``; a ``dim`` among these goes before the wrapper's.

    Raises:
        ValueError: unknown name, the name of an ensemble, or a loss that needs ``num_classes`` or
            ``dim`` without it.
        TypeError: an argument that the loss does not take.

    >>> from dmlkit import losses
    >>> losses.build("normalized_softmax", num_classes=10, dim=4).proxies.shape
    torch.Size([10, 4])
    """
    found, accepted = entry(name), signature(name)
    sizes = {"num_classes": num_classes, "dim": dim}
    if found.wraps is not None:
        inner = found.wraps if loss is None else loss
        if isinstance(inner, str):
            inner = build(inner, **sizes | dict(loss_args or {}))
        elif loss_args:
            raise TypeError("loss_args go with the short name of a loss, but loss is a module")
        args["loss"] = inner
    elif loss is not None or loss_args:
        raise TypeError(f"loss {name!r} wraps no other loss: it takes {', '.join(accepted)}")
    if name not in ENTRIES:
        sizes["embedding_size"] = dim
    for argument, value in sizes.items():
        if argument in accepted:
            if value is None:
                raise ValueError(f"loss {name!r} needs {argument}")
            args[argument] = value
    check_arguments(f"loss {name!r}", accepted, args)
    return found.make(**args)
