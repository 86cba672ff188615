"""Arguments as people give them, right and wrong, and what a public function may answer to them."""

import ast
import functools
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
import pandas as pd
import torch
from hypothesis import strategies as st

import dmlkit

PACKAGE = Path(dmlkit.__file__).parent
C, D = 5, 12  # classes and dimensions of what is right
ODD_NUMBERS = (0, -1, -3, 2.5, 0.0, -0.5, 1e30, math.nan, math.inf, -math.inf)
ODD = st.sampled_from((*ODD_NUMBERS, None, True, "", "nonsense", (), [1, 2], {"a": 1}, b"x", 1j))


@functools.cache
def raises(path: str) -> set[int]:
    """The lines of a file that belong to a ``raise`` statement."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(Path(path).read_text("utf-8"))):
        if isinstance(node, ast.Raise):
            found |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return found


def last(trace: TracebackType | None) -> tuple[str, int]:
    assert trace is not None
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code.co_filename, trace.tb_lineno


def outcome(call, *names: str):
    """What a call gives, or None where it refuses one of the named arguments in our own words."""
    try:
        return call()
    except (ValueError, TypeError, OSError) as error:
        path, line = last(error.__traceback__)
        if not Path(path).is_relative_to(PACKAGE) or line not in raises(path):
            raise AssertionError(f"not in our words: {error!r}") from error
        if not any(re.search(rf"\b{name}", str(error)) for name in names):
            raise AssertionError(f"about which argument? {error}") from error
        return None


def finite(value: object) -> bool:
    """Whether all numbers of an answer are finite."""
    if isinstance(value, pd.Series):
        value = value.to_numpy()
    if isinstance(value, torch.Tensor | np.ndarray):
        return bool(np.isfinite(np.asarray(torch.as_tensor(value).detach())).all())
    if isinstance(value, pd.DataFrame):
        return finite(value.to_numpy(dtype=float))
    if isinstance(value, Mapping):
        return all(map(finite, value.values()))
    if isinstance(value, Sequence) and not isinstance(value, str):
        return all(map(finite, value))
    return not isinstance(value, int | float) or math.isfinite(value)


@st.composite
def matrices(draw, right: bool = False, dim: int | None = None):
    """Embeddings (N, d), NumPy's or torch's; at times of a wrong shape or type, or not finite."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (draw(st.integers(1, 12)), dim or draw(st.integers(1, 6)))
    kind = "right" if right else draw(st.sampled_from(("right",) * 4 + ("shape", "type", "values")))
    if kind == "shape":
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    x = np.array(rng.standard_normal(shape) * 10.0 ** draw(st.integers(-3, 3)))
    if x.ndim == 2 and len(x) > 1 and draw(st.booleans()):
        x[-1] = x[0]  # copies
    if kind == "values":
        bad = draw(st.sampled_from((math.nan, math.inf, -math.inf, 0.0)))
        x[..., : draw(st.integers(1, 6))] = bad
    types = ("float32", "float64", "float16")
    if kind == "type":
        types = ("int64", "bool", "complex64", "uint8")
    x = np.array(x.astype(draw(st.sampled_from(types))))
    return torch.from_numpy(x) if draw(st.booleans()) else x


@st.composite
def labels(draw, count: int):
    """Labels of so many rows; at times of a wrong length, shape or type."""
    values = draw(st.lists(st.integers(0, C - 1), min_size=count, max_size=count))
    y = np.array(values, dtype=np.int64)
    match draw(st.sampled_from(("right",) * 5 + ("length", "shape", "type", "negative", "large"))):
        case "length":
            y = y[:-1]
        case "shape":
            y = y[:, None]
        case "type":
            y = y.astype(draw(st.sampled_from(("float32", "bool", "complex64"))))
        case "negative":
            y = y - 3
        case "large":
            y = y * 2**61
    return torch.from_numpy(y) if draw(st.booleans()) else y


def rows(x: object) -> int:
    return len(x) if np.ndim(x) else 0


def replaced(draw, right: Mapping[str, object], odd: st.SearchStrategy = ODD) -> dict[str, object]:
    """Right arguments, of which at most two are replaced."""
    which = draw(st.lists(st.sampled_from(sorted(right)), max_size=2))
    return {**right, **{name: draw(odd) for name in which}}
