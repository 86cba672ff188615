"""Intervals over products that count their kinds, for lessons 24, 25, 28 and 30."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from dmlkit import figures
from dmlkit.statistics import interval


def by_kinds(values: pd.Series, kinds: Mapping[Any, str] | pd.Series) -> list[float]:
    """Values, one a kind, whose interval is that of the mean m over products if kinds were drawn
    anew: m + K/n Σ (v − m), the sum over a kind's products, of n products in K kinds.

    ``values`` are by product, ``kinds`` tells the kind of each. Source: the linearized ratio of
    Cochran, Sampling Techniques, 1977, chapter 6.

    >>> by_kinds(pd.Series({"a": 1.0, "b": 3.0, "c": 5.0}), {"a": "x", "b": "x", "c": "y"})
    [1.6666666666666667, 4.333333333333333]
    """
    sums = (values - values.mean()).groupby(values.index.map(kinds)).sum()
    found: list[float] = (values.mean() + sums * len(sums) / len(values)).tolist()
    return found


def intervals(values: pd.Series, kinds: Mapping[Any, str] | pd.Series) -> dict[str, Any]:
    """Intervals of the mean over products: by products, by kinds, and the wider of the two.

    >>> found = intervals(pd.Series({"a": 1.0, "b": 3.0, "c": 5.0}), {"a": "x", "b": "x", "c": "y"})
    >>> round(found["example"]["wider"]["low"], 1)
    -13.9
    """
    both = {"products": interval(values), "kinds": interval(by_kinds(values, kinds))}
    wide = max(both.values(), key=lambda span: span["high"] - span["low"])
    return figures.example({name: e.to_dict() for name, e in (both | {"wider": wide}).items()})
