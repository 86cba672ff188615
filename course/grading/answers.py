"""Judge students' answers beyond their reach: a lesson's process, forked for each of them.

The process of a lesson runs the cells that it is sent. Where an answer stands, it forks twice: the
*judge* runs the course's check; the *answer* runs the student's code, enclosed by
`course.grading.sandbox`, with the lesson's names as they are above the exercise. The judge calls
the student's functions across a pipe, from which nothing but plain data comes back. The answer's
memory never held the check, the solution, another answer, or the teacher's environment.
"""

import io
import linecache
import os
import pickle
import re
import signal
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

import dmlkit
from course.grading import sandbox
from course.grading.plain import packed, unpacked
from dmlkit import data, exercises

_BYTES = 1 << 30  # of one reply
_PACKAGE = exercises.ANSWERS.parent


@dataclass(frozen=True)
class Asked:
    """What is asked of the lesson's process: to judge an answer."""

    functions: list[str]  # that the course's solution defines
    names: list[str]  # other names that it gives
    seconds: float
    keep_changes: bool = True  # of arguments that the answer changed in place


@dataclass(frozen=True)
class Heard:
    """What the judge heard: its check's lines, an error, and whether arguments were changed."""

    lines: str
    error: str = ""
    changed: bool = False
    missing: tuple[str, ...] = ()  # what the system does not refuse
    ran: bool = True  # the lesson, up to the exercise


class AnswerError(Exception):
    """What went wrong in a student's process."""


def serve(descriptor: int) -> None:
    """The process of a lesson: run a cell, set parameters or judge an answer, until told nothing.

    It is sent ``("run", source)``, ``("set", parameters)``, or ``("judge", Asked)``, then the
    student's cells up to the answer, then the cells of the check.
    """
    orders = Connection(descriptor)
    names = vars(sys.modules["__main__"])
    for name in [name for name in names if not name.startswith("__")]:
        del names[name]  # as in a new notebook
    with suppress(EOFError):
        while True:
            order, given = orders.recv()
            if order == "set":
                names.update(given)
            elif order == "run":
                orders.send(_run([given], names))
            elif (judge := os.fork()) == 0:
                try:
                    _judge(orders, given, names)
                finally:
                    os._exit(0)
            else:
                os.waitpid(judge, 0)
                orders.send(None)  # it has ended, also where it said nothing


def _run(cells: Sequence[str], names: dict[str, Any]) -> Heard:
    """Run cells in a notebook's names: what they print, and the error that ended them."""
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            for cell in cells:
                _execute(cell, names)
    except BaseException as error:  # SystemExit, too
        return Heard(printed.getvalue(), _told(error))
    return Heard(printed.getvalue())


def _execute(cell: str, names: dict[str, Any]) -> None:
    place = f"cell {len(linecache.cache)}"
    linecache.cache[place] = (len(cell), None, cell.splitlines(keepends=True), place)
    exec(compile(cell, place, "exec", dont_inherit=True), names)


def _told(error: BaseException) -> str:
    if isinstance(error, AnswerError):
        return str(error)
    said = f"{type(error).__name__}: {error}".partition("\n")[0]
    return re.sub(r"\(cell \d+, line", "(of its cell, line", said)


# --- The judge ------------------------------------------------------------------------------------


def _judge(orders: Connection, asked: Asked, names: dict[str, Any]) -> None:
    """Run the check of an exercise against an answer, and send what it said."""
    sandbox.limit(asked.seconds + 30)  # for a check that a strange answer leads astray
    signal.signal(signal.SIGALRM, _too_late)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        answer = _Answer(orders.recv(), names, Path(home), asked)
        checks = orders.recv()  # only now: the answer's process is another one already
        heard = Heard("")
        signal.setitimer(signal.ITIMER_REAL, asked.seconds)
        try:
            names.update(answer.given(asked))
            heard = _run(checks, names)
        except AnswerError as error:
            heard = Heard("", str(error))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            answer.end()
    orders.send(replace(heard, changed=answer.changed, missing=answer.missing))


def _too_late(*_: Any) -> None:
    raise AnswerError("it did not end within the time")


class _Answer:
    """A student's process, as its judge sees it."""

    def __init__(self, cells: list[str], names: dict[str, Any], home: Path, asked: Asked) -> None:
        self._pipe, theirs = Pipe()
        self._keep, self._dropped = asked.keep_changes, list[int]()
        self.changed, self.missing = False, ()
        self._process = os.fork()
        if self._process == 0:
            try:
                _student(theirs, cells, names, home, asked.seconds)
            finally:
                os._exit(0)
        theirs.close()

    def given(self, asked: Asked) -> dict[str, Any]:
        """What the answer's cell defines of that which the solution does."""
        self.missing = tuple(self._heard()["value"])
        self._heard()  # the cells have run
        given = {name: partial(self._call, name) for name in asked.functions}
        return given | {name: self._ask("get", name)["value"] for name in asked.names}

    def end(self) -> None:
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)

    def _heard(self) -> dict[str, Any]:
        try:
            reply = unpacked(self._pipe.recv_bytes(_BYTES))
            error = str(reply["error"])
        except (EOFError, OSError) as ended:
            raise AnswerError("it ended its process") from ended
        except (ValueError, TypeError, KeyError, RecursionError) as forged:
            raise AnswerError("it sent what is no plain data") from forged
        if error:
            raise AnswerError(error)
        return reply

    def _ask(self, *request: Any) -> dict[str, Any]:
        try:
            self._pipe.send_bytes(pickle.dumps((self._dropped, *request)))
        except OSError as error:
            raise AnswerError("it ended its process") from error
        self._dropped.clear()
        return self._heard()

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Call the student's function; where an argument has a gradient, the result has it too."""
        given = [*args, *kwargs.values()]
        tracked = torch.is_grad_enabled()
        passed = [_Passed.of(each, tracked) if isinstance(each, Tensor) else each for each in given]
        reply = self._ask("call", name, passed, list(kwargs), tracked)
        for place, state in reply["changed"].items():
            at = given[place]
            self.changed |= isinstance(at, np.ndarray | Tensor)
            if self._keep or not isinstance(at, np.ndarray | Tensor):
                _set_state(at, state)
        inputs = [t for t in given if isinstance(t, Tensor) and t.requires_grad and tracked]
        return self._joined(reply["value"], reply["graph"], inputs)

    def _joined(self, value: Any, graph: int, inputs: list[Tensor]) -> Any:
        """The result, with tensors that lead back to the arguments through the other process."""
        parts = list(value) if isinstance(value, list | tuple) else [value]
        at = [k for k, t in enumerate(parts) if isinstance(t, Tensor) and t.requires_grad]
        if not inputs or not at:
            return value

        def back(*gradients: Tensor) -> list[Tensor | None]:
            return self._ask("back", graph, list(gradients))["value"]

        weakref.finalize(back, self._dropped.append, graph)
        made = _Across.apply(back, [parts[k].detach() for k in at], *inputs)
        for k, tensor in zip(at, made, strict=True):
            parts[k] = tensor
        return type(value)(parts) if isinstance(value, list | tuple) else parts[0]


class _Across(torch.autograd.Function):
    """Tensors that another process computed, and computes the gradients of."""

    @staticmethod
    def forward(ctx: Any, back: Callable[..., Any], values: list[Tensor], *_: Tensor) -> Any:
        ctx.back = back
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return None, None, *ctx.back(*gradients)


# --- The student's process ------------------------------------------------------------------------


def _student(
    pipe: Connection, cells: list[str], names: dict[str, Any], home: Path, seconds: float
) -> None:
    """Run a student's cells, enclosed, and then call what the judge asks for."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.closerange(3, pipe.fileno())
    os.closerange(pipe.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
    missing = sandbox.enclose(home, _readable(), [_PACKAGE], seconds)
    tempfile.tempdir = None
    pipe.send_bytes(packed({"value": missing, "error": ""}))
    for cell in cells[:-1]:
        _run([cell], names)
    pipe.send_bytes(packed({"value": None, "error": _run(cells[-1:], names).error}))
    graphs: dict[int, tuple[list[Tensor], list[Tensor]]] = {}
    while True:
        request = pipe.recv_bytes()
        try:
            reply = packed({"error": ""} | _replied(request, names, graphs))
        except BaseException as error:
            reply = packed({"error": _told(error)})
        pipe.send_bytes(reply)


def _readable() -> Iterator[Path]:
    """What code may read: libraries, fonts, the lessons' data; no notebook and nobody's answers."""
    for path in map(Path, sys.path):
        if path.exists() and not dmlkit.ROOT.resolve().is_relative_to(path.resolve()):
            yield path
    yield from (path for path in _PACKAGE.iterdir() if path != exercises.ANSWERS)
    for name in ("studies", "data"):
        yield dmlkit.ROOT / name
    yield from (data.default_root(), dmlkit.cache_folder())
    system = "/lib /lib64 /usr/lib /usr/lib64 /usr/share /etc /proc/cpuinfo /sys/devices/system/cpu"
    yield from map(Path, system.split())


def _replied(
    request: bytes, names: dict[str, Any], graphs: dict[int, tuple[list[Tensor], list[Tensor]]]
) -> dict[str, Any]:
    dropped, order, *given = pickle.loads(request)
    for graph in dropped:
        del graphs[graph]
    if order == "get":
        return {"value": names[given[0]]}
    if order == "back":
        outputs, leaves = graphs[given[0]]
        found = torch.autograd.grad(outputs, leaves, given[1], retain_graph=True, allow_unused=True)
        return {"value": list(found)}
    name, passed, keywords, tracked = given
    args = [each.received() if isinstance(each, _Passed) else each for each in passed]
    before = [packed(_state(each)) for each in args]
    split = len(args) - len(keywords)
    with torch.set_grad_enabled(tracked):
        if name not in names:
            raise NameError(f"name {name!r} is not defined")
        value = names[name](*args[:split], **dict(zip(keywords, args[split:], strict=True)))
    states = {k: _state(each) for k, each in enumerate(args)}
    changed = {k: state for k, state in states.items() if packed(state) != before[k]}
    parts = value if isinstance(value, list | tuple) else [value]
    outputs = [each for each in parts if isinstance(each, Tensor) and each.requires_grad]
    leaves = [each.leaf for each in passed if isinstance(each, _Passed) and each.needs]
    graph = max(graphs, default=0) + 1
    if outputs and leaves:
        graphs[graph] = outputs, leaves
    return {"value": value, "changed": changed, "graph": graph}


@dataclass
class _Passed:
    """A tensor on its way to the student's process."""

    leaf: Tensor
    needs: bool  # a gradient
    is_leaf: bool

    @classmethod
    def of(cls, tensor: Tensor, tracked: bool) -> "_Passed":
        needs = tracked and tensor.requires_grad
        return cls(tensor.detach().clone(), needs, tensor.is_leaf)

    def received(self) -> Tensor:
        self.leaf.requires_grad_(self.needs)
        return self.leaf if self.is_leaf else self.leaf.clone()


def _state(value: Any) -> Any:
    """What of an argument a function can change in place, as plain data."""
    if isinstance(value, nn.Module):
        return dict(value.state_dict())
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, Tensor):
        return value.detach()
    return value if isinstance(value, np.ndarray) else None


def _set_state(value: Any, state: Any) -> None:
    if isinstance(value, nn.Module):
        value.load_state_dict(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    elif isinstance(value, Tensor):
        with torch.no_grad():
            value.copy_(state)
    elif isinstance(value, np.ndarray):
        value[...] = state
