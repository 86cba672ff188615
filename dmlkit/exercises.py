"""Exercises of the notebooks: the course's own answer, and a check that knows usual wrong ones."""

import io
import json
import re
import sys
import zlib
from base64 import b85decode, b85encode
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from torch import Tensor

#: What an exercise says that was not begun.
YOUR_TURN = "your turn: put your answer here, run this cell, then the next"
#: What its check says instead of "right".
PASSES = "not answered yet; the course's answer passes"
#: Where a line says that an answer is right.
RIGHT = re.compile(r"(^|: )right(?=$|[:;.,])", re.MULTILINE)
#: The course's answers and checks, ``pack`` ed, by their keys.
ANSWERS = Path(__file__).with_name("answers.json")


def solution(key: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let the course's own answer take the place of a function still to be written.

    It does so while the function raises ``NotImplementedError(YOUR_TURN)``: the reader's own answer
    stands as soon as it is there. In a notebook, a cell that calls the course's answer says
    `PASSES` wherever it would say "right".

    Raises LookupError where the course's answer is needed, but there is none of this key.

    >>> @solution("pairs/both_ways")
    ... def both_ways(logits):
    ...     return logits.mean()
    >>> print(both_ways(np.eye(2)))
    0.5
    """

    def answered(function: Callable[..., Any]) -> Callable[..., Any]:
        if YOUR_TURN not in function.__code__.co_consts:
            return function
        names = function.__globals__
        exec(answer(key), names)
        ours: Callable[..., Any] = names[function.__name__]

        @wraps(ours)
        def stands_in(*args: Any, **kwargs: Any) -> Any:
            _Unanswered.begin()
            return ours(*args, **kwargs)

        return stands_in

    return answered


def check(key: str) -> None:
    """Run the course's check of this key where it is called, with the names of the notebook.

    Raises LookupError where there is none of this key.
    """
    exec(answer(key), sys._getframe(1).f_globals)


def answer(key: str) -> str:
    """The code of the course's answer, or of its check, of this key."""
    if (packed := answers().get(key)) is None:
        raise LookupError(
            f"this dmlkit has no answer {key!r} of the course: take the notebook and dmlkit of one "
            "version, or write an answer of your own into this cell"
        )
    return unpack(packed)


def answers(path: Path | None = None) -> dict[str, str]:
    """The course's answers and checks, ``pack`` ed, by their keys."""
    found: dict[str, str] = json.loads((path or ANSWERS).read_text(encoding="utf-8"))
    return found


def pack(code: str) -> str:
    """Code as text that nobody reads by accident; ``unpack`` gives it back."""
    return b85encode(zlib.compress(code.encode(), 9)).decode()


def unpack(packed: str) -> str:
    """The code that was packed.

    >>> unpack(pack("x = 1"))
    'x = 1'
    """
    return zlib.decompress(b85decode(packed)).decode()


def unanswered(text: str) -> str:
    """What a check prints, for the course's own answer.

    >>> unanswered("of 2: right, at once; not yet: right for two")
    "of 2: not answered yet; the course's answer passes, at once; not yet: right for two"
    """
    return RIGHT.sub(rf"\1{PASSES}", text)


class _Unanswered(io.TextIOBase):
    """The standard output from a call of the course's answer to the end of the notebook's cell."""

    def __init__(self, shown: TextIO) -> None:
        self._shown, self._line = shown, ""

    @classmethod
    def begin(cls) -> None:
        """Change what is printed; not where there are no cells, nor twice in one."""
        shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
        if shell and not isinstance(sys.stdout, cls):
            sys.stdout = cls(sys.stdout)
            shell.events.register("post_execute", sys.stdout._end)

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        self._shown.writelines(f"{unanswered(line)}\n" for line in lines)
        return len(text)

    def _end(self) -> None:
        shell = sys.modules["IPython"].get_ipython()
        shell.events.unregister("post_execute", self._end)
        self._shown.write(unanswered(self._line))
        if sys.stdout is self:
            sys.stdout = self._shown


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
