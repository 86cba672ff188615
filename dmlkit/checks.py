"""What is refused, in words that name the argument, what was expected and what came; warnings."""

import math
import warnings
from collections.abc import Collection, Iterable
from functools import cache
from numbers import Integral, Real
from typing import Any


def check_arguments(what: str, accepted: Iterable[str], given: Iterable[str]) -> None:
    """Refuse arguments that something does not take, naming those that it does.

    >>> check_arguments("sampler 'uniform'", ["size"], {"classes": 32})
    Traceback (most recent call last):
    TypeError: sampler 'uniform' takes size; not classes
    """
    if unknown := sorted(set(given) - set(accepted)):
        raise TypeError(f"{what} takes {', '.join(accepted)}; not {', '.join(unknown)}")


def check_choice(choices: Collection[str], /, **arguments: object) -> None:
    """Refuse what is none of the choices, naming the argument.

    >>> check_choice(("mean", "max"), pooling="min")
    Traceback (most recent call last):
    ValueError: pooling must be one of mean, max, but is 'min'
    """
    for name, value in arguments.items():
        if not isinstance(value, str) or value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, but is {value!r}")


def check_count(low: int = 1, /, **arguments: int) -> None:
    """Refuse what is no whole number from ``low``, naming the argument.

    >>> check_count(num_classes=0)
    Traceback (most recent call last):
    ValueError: num_classes must be a whole number from 1, but is 0
    """
    for name, value in arguments.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < low:
            raise ValueError(f"{name} must be a whole number from {low}, but is {value!r}")


def check_gallery(queries: object, gallery: object, own: object) -> None:
    """Refuse to score queries in a gallery of themselves that does not say so."""
    if gallery is not None and gallery is queries and own is None:
        raise ValueError(
            "gallery: these are the queries, each of which would find itself; leave gallery out, "
            "or say with own which row of it each query is (-1: none)"
        )


def check_positive(**arguments: float) -> None:
    """Refuse what is no finite number above 0, naming the argument."""
    check_range(**arguments)
    for name, value in arguments.items():
        if value <= 0:
            raise ValueError(f"{name} must be above 0, but is {value!r}")


def check_range(low: float = -math.inf, high: float = math.inf, /, **arguments: float) -> None:
    """Refuse what is no finite number from ``low`` to ``high``, naming the argument."""
    for name, value in arguments.items():
        number = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
        if not number or not low <= value <= high:
            raise ValueError(f"{name} must be a number from {low} to {high}, but is {value!r}")


def listed(values: Any) -> list[Any]:
    """One number or name as a list of one, several as a list.

    >>> listed(8), listed("map"), listed((1, 2))
    ([8], ['map'], [1, 2])
    """
    one = isinstance(values, str | Real) or getattr(values, "ndim", 1) == 0
    return [values] if one else list(values)


@cache
def warn_once(line: str) -> None:
    """Warn of what has not been said yet, as each split of a folder, and each look, finds it anew.

    (Python's own filter "once" forgets what it said wherever a library changes the filters.)
    """
    warnings.warn(line, stacklevel=3)
