"""What a figure's JSON holds: plain literals, in which random numbers and times are marked.

A record's numbers are of four kinds, which ``course.check`` compares in four ways: plain numbers
are exact; ``sample``, ``timing`` and ``example`` mark the others where they are. Beside them are
the hash of the picture's pixels, and a hash of the whole record.
"""

import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import PIL
from matplotlib import ft2font
from numpy.typing import ArrayLike
from PIL import Image
from torch import Tensor

from dmlkit import claims


def sample(values: ArrayLike, **about: Any) -> dict[str, Any]:
    """Mark random numbers by repetition, (R, ...): ``--check`` compares two sets of them.

    What is ``about`` them (the x axis, names of the columns) is exact, and kept beside; so are
    ``mean``, ``low`` and ``high`` over the repetitions and ``n``, which ``save`` recomputes.

    Raises:
        ValueError: values that are no array of finite numbers with at least one repetition.

    >>> sample([0.5, 0.75], arm="SEC")
    {'values': [0.5, 0.75], 'arm': 'SEC'}
    """
    array = np.asarray(values)
    if array.ndim == 0 or array.size == 0 or array.dtype.kind not in "biuf":
        raise ValueError(
            f"sample: values must be numbers (R, ...), one row for each of R repetitions, not "
            f"{array.dtype} of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"sample: {(~np.isfinite(array)).sum()} of the values are not finite")
    return {"values": (array * 1).tolist(), **about}


def timing(value: Any) -> dict[str, Any]:
    """Mark numbers that a clock gave: ``--check`` compares their order of magnitude.

    >>> timing(0.002)
    {'timing': 0.002}
    """
    return {"timing": value}


def example(value: Any) -> dict[str, Any]:
    """Mark what one draw happened to give, shown as an example: ``--check`` wants it to be there.

    >>> example(3)
    {'example': 3}
    """
    return {"example": value}


def kind(value: Any) -> str:
    """How ``--check`` compares a part of a record: sample, timing, example, claim or plain.

    >>> kind(timing(2.0)), kind({"mean": 0.5})
    ('timing', 'plain')
    """
    if not isinstance(value, dict):
        return "plain"
    if {"claim", "verdict"} <= value.keys():
        return "claim"
    if value.keys() in ({"timing"}, {"example"}):
        return next(iter(value))
    return "sample" if "values" in value else "plain"


def derived(record: Mapping[str, Any]) -> Iterator[str]:
    """Name each of mean (of a claim: effect), low, high and n that its ``values`` do not give.

    >>> list(derived({"values": [1.0, 3.0], "mean": 2.0, "n": 3}))
    ['n is 3, but its values give 2']
    """
    if record.get("values") is None or record.get("rule") in ("exact", "table"):
        return
    x = np.asarray(record["values"], dtype=float)
    mean, n = x.mean(0), len(x)
    error = math.sqrt(1 / n + record.get("overlap", 0.0))  # of a mean, in standard deviations
    factor = claims.half_width(record.get("rule", "positive"), n) * error if n > 1 else 0.0
    half = factor * x.std(0, ddof=1) if n > 1 else mean * 0
    given = {"mean": mean, "effect": mean, "low": mean - half, "high": mean + half, "n": n}
    # All numbers are kept to six digits, and the interval multiplies the rounding of its values.
    slack = 1e-5 * (1 + factor) * np.abs(x).max()
    for key in given.keys() & record.keys():
        found = record[key]
        if found is None and n < 2:
            continue
        if found is None or np.shape(found) != np.shape(given[key]) or not np.allclose(
            np.asarray(found, dtype=float), given[key], rtol=0, atol=0 if key == "n" else slack
        ):  # fmt: skip
            yield f"{key} is {found}, but its values give {np.asarray(given[key]).tolist()}"


def leaves(numbers: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every single number of a nested record, under its key.

    >>> dict(leaves({"recall": {"triplet": [0.5, 0.75]}, "classes": 300}))
    {'recall/triplet/0': 0.5, 'recall/triplet/1': 0.75, 'classes': 300}
    """
    if isinstance(numbers, dict | list):
        for path, value in parts(numbers, key):
            yield from leaves(value, path)
    else:
        yield key, numbers


def parts(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """What a dict, list or tuple holds, each under its key; of anything else nothing.

    >>> list(parts([0.5, 0.75], "recall"))
    [('recall/0', 0.5), ('recall/1', 0.75)]
    """
    if isinstance(value, dict | list | tuple):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield f"{key}/{name}" if key else str(name), part


def plain(value: Any, key: str) -> Any:
    """The same value as JSON literals; an error names the key of what cannot be one."""
    where = f"number {key!r}" if key else "data"
    if isinstance(value, pd.DataFrame):
        value = value.to_dict(orient="list")
    elif isinstance(value, pd.Series | np.ndarray | np.generic | Tensor):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(k): plain(v, f"{key}/{k}" if key else str(k)) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part, path) for path, part in parts(value, key)]
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}: leave it out, or give None for 'no value'")
        return float(f"{value:.6g}")
    if isinstance(value, str) and is_absolute(value):
        raise ValueError(f"{where} is the absolute path {value!r}: it would differ by machine")
    if value is None or isinstance(value, bool | int | str):
        return value
    found = f"{type(value).__module__}.{type(value).__name__}"
    raise TypeError(f"{where} is a {found}: give numbers, strings, lists, arrays or data frames")


def is_absolute(text: str) -> bool:
    """Whether a text is an absolute path, of this system or of another one.

    >>> is_absolute("C:\\\\photos"), is_absolute("photos")
    (True, False)
    """
    return PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()


def inconsistent(numbers: Any, key: str) -> Iterator[str]:
    """Name what is marked as random, but is not by repetition, or contradicts its own values."""
    where = f"{key}/" if key else ""
    if kind(numbers) in ("sample", "claim"):
        if numbers.get("values") is None and kind(numbers) == "claim":
            return
        try:
            sample(numbers["values"])
        except (ValueError, TypeError) as error:
            yield f"number {where + 'values'!r}: {error}"
            return
        yield from (f"number {where + line}" for line in derived(numbers))
    elif kind(numbers) == "plain":
        for path, value in parts(numbers, key):
            yield from inconsistent(value, path)


def picture(png: bytes) -> dict[str, str]:
    """The hash of a picture's pixels, with the versions of what draws them."""
    return {
        "pixels": pixels(png),
        "matplotlib": matplotlib.__version__,
        "freetype": ft2font.__freetype_version__,
        "pillow": PIL.__version__,
    }


def file_hash(content: bytes) -> str:
    """The SHA-256 of a file that is kept beside a record.

    >>> file_hash(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


def pixels(png: bytes) -> str:
    """The SHA-256 of a picture's size and colors, however its file is packed.

    Raises OSError for what is no picture.
    """
    try:
        with Image.open(io.BytesIO(png), formats=["PNG"]) as image:
            rgba = image.convert("RGBA")
    except (OSError, ValueError, SyntaxError) as error:  # SyntaxError: Pillow's, of a broken PNG
        raise OSError(f"no PNG that can be read ({error})") from error
    return hashlib.sha256(repr(rgba.size).encode() + rgba.tobytes()).hexdigest()


def digest(record: Mapping[str, Any]) -> str:
    """The SHA-256 of all that a record holds besides its own ``digest``.

    >>> digest({"alt": "A line.", "digest": "any"}) == digest({"alt": "A line."})
    True
    """
    rest = {key: value for key, value in record.items() if key != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def malformed(record: Any) -> Iterator[str]:
    """Name what makes something no record of a figure: a part that is missing, an infinite number.

    >>> infinite = {"a": float("inf")}
    >>> list(malformed({"alt": "", "caption": "", "numbers": infinite, "provenance": {}}))
    ['numbers/a is inf']
    """
    expected = {"alt": str, "caption": str, "numbers": dict, "provenance": dict}
    for part, sort in expected.items():
        if not isinstance(record, dict) or not isinstance(record.get(part), sort):
            yield f"it has no {part!r}, or no {sort.__name__} there"
            return
    for key, value in leaves(record):
        if isinstance(value, float) and not math.isfinite(value):
            yield f"{key} is {value}"
