"""Plain data as bytes, so that nothing but data can come out of a student's process.

Numbers, strings, arrays, tensors, series, and lists, tuples and dicts of them: a tree in JSON
beside arrays in NumPy's format. Unlike pickle, neither runs any code.
"""

import io
import json
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor


def packed(value: Any) -> bytes:
    """The bytes of plain data.

    Raises TypeError for anything else, such as an object of a class of one's own.

    >>> unpacked(packed((1, [2.5, None], np.arange(3))))
    (1, [2.5, None], array([0, 1, 2]))
    """
    arrays: list[np.ndarray] = []

    def tree(value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, Tensor):
            arrays.append(value.detach().cpu().numpy())
            return {"tensor": value.requires_grad}
        if isinstance(value, np.ndarray | np.generic):
            arrays.append(np.asarray(value))
            return {"array": isinstance(value, np.generic)}
        if isinstance(value, pd.Series):
            return {"series": [tree(value.to_numpy()), [tree(each) for each in value.index]]}
        if kind in (list, tuple):
            return {kind.__name__: [tree(each) for each in value]}
        if kind is dict:
            return {"dict": [[tree(key), tree(each)] for key, each in value.items()]}
        raise TypeError(
            f"expected numbers, strings, arrays, tensors, a series, or lists, tuples and dicts of "
            f"them, got {kind.__name__}"
        )

    written = io.BytesIO()
    for array in (np.array(json.dumps(tree(value))), *arrays):
        np.lib.format.write_array(written, array, allow_pickle=False)
    return written.getvalue()


def unpacked(data: bytes) -> Any:
    """The plain data of these bytes; raises ValueError, TypeError or KeyError for others."""
    read = partial(np.lib.format.read_array, io.BytesIO(data), allow_pickle=False)

    def value(tree: Any) -> Any:
        if not isinstance(tree, dict):
            return tree
        ((kind, held),) = tree.items()
        if kind == "tensor":
            return torch.from_numpy(read()).requires_grad_(held)
        if kind == "array":
            return read()[()] if held else read()
        if kind == "series":
            values, index = held
            return pd.Series(value(values), [value(each) for each in index])
        if kind == "dict":
            return {value(key): value(each) for key, each in held}
        return {"list": list, "tuple": tuple}[kind](value(each) for each in held)

    return value(json.loads(str(read())))
