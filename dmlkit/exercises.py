"""Exercises of the notebooks: the course's own answer, and a check that knows usual wrong ones."""

import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from torch import Tensor

#: What an exercise says that was not begun.
YOUR_TURN = "your turn: put your answer here, run this cell, then the next"
#: What it prints where the course's answer stands in for it; outputs of the course have it.
STANDS_IN = "Not answered yet: the check below is of the course's answer."


def solution(packed: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let the course's own answer, ``pack`` ed, take the place of a function still to be written.

    It does so, and prints that it does, while the function raises
    ``NotImplementedError(YOUR_TURN)``: the reader's own answer stands as soon as it is there.

    >>> @solution(pack("def double(x): return 2 * x"))
    ... def double(x):
    ...     raise NotImplementedError(
    ...         "your turn: put your answer here, run this cell, then the next"
    ...     )
    Not answered yet: the check below is of the course's answer.
    >>> double(4)
    8
    """

    def answered(function: Callable[..., Any]) -> Callable[..., Any]:
        if YOUR_TURN not in function.__code__.co_consts:
            return function
        print(STANDS_IN)  # noqa: T201 - it is an output of the notebook
        names = function.__globals__
        exec(unpack(packed), names)
        answer: Callable[..., Any] = names[function.__name__]
        return answer

    return answered


def pack(code: str) -> str:
    """Code as text that nobody reads by accident; ``unpack`` gives it back."""
    return b85encode(zlib.compress(code.encode(), 9)).decode()


def unpack(packed: str) -> str:
    """The code that was packed.

    >>> unpack(pack("x = 1"))
    'x = 1'
    """
    return zlib.decompress(b85decode(packed)).decode()


def verdict(
    answer: Any, right: Any, mistakes: Mapping[str, Any] | None = None, near: float = 1e-6
) -> str:
    """Say "right", or what is wrong with an answer where it is one of the usual wrong ones.

    ``answer`` and ``right`` are numbers or arrays; ``mistakes`` has, for each sentence to say, the
    answer that shows the mistake. Numbers agree within ``near``, of their size or absolutely.

    >>> usual = {"this is in radians": 0.842}
    >>> verdict(48.24, 48.237, usual, near=1e-3)
    'right'
    >>> verdict(0.842, 48.237, usual)
    'not yet: this is in radians'
    >>> verdict([1, 2], [1, 3])
    'not yet: [1. 2.] is not it'
    >>> verdict([1, 2, 3], [1, 3])
    'not yet: the shape is (3,), expected (2,)'
    >>> verdict([None], [1])
    'not yet: nothing is returned'
    """
    parts = answer if isinstance(answer, list | tuple) else [answer]
    if any(part is None for part in parts):
        return "not yet: nothing is returned"
    try:
        found, truth = _array(answer), _array(right)
    except (TypeError, ValueError):
        return f"not yet: {type(answer).__name__} is neither a number nor an array of numbers"
    if _agree(found, truth, near):
        return "right"
    for sentence, value in (mistakes or {}).items():
        if _agree(found, _array(value), near):
            return f"not yet: {sentence}"
    if found.shape != truth.shape:
        return f"not yet: the shape is {found.shape}, expected {truth.shape}"
    return f"not yet: {found.round(4)} is not it"


def _array(value: Any) -> np.ndarray:
    return np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=float)


def _agree(a: np.ndarray, b: np.ndarray, near: float) -> bool:
    return a.shape == b.shape and np.allclose(a, b, rtol=near, atol=near)
