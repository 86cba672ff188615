"""Intervals over products that count their kinds, for lessons 24, 25, 28 and 30."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dmlkit import figures
from dmlkit.statistics import interval

#: A number for each product, and the kind of each.
Values: TypeAlias = pd.Series | Sequence[float] | NDArray[np.float64]
Kinds: TypeAlias = pd.Series | Sequence[str] | Mapping[Any, str]


def by_kinds(values: Values, kinds: Kinds) -> list[float]:
    """Values, one a kind, whose interval is that of the mean m over products if kinds were drawn
    anew: m + K/n Σ (v − m), the sum over a kind's products, of n products in K kinds.

    ``values`` are by product, ``kinds`` tells the kind of each. Source: the linearized ratio of
    Cochran, Sampling Techniques, 1977, chapter 6.

    >>> by_kinds(pd.Series({"a": 1.0, "b": 3.0, "c": 5.0}), {"a": "x", "b": "x", "c": "y"})
    [1.6666666666666667, 4.333333333333333]
    """
    x, of = pd.Series(values), kinds if isinstance(kinds, Mapping) else pd.Series(kinds)
    sums = (x - x.mean()).groupby(x.index.map(of)).sum()
    found: list[float] = (x.mean() + sums * len(sums) / len(x)).tolist()
    return found


def wider(values: Values, kinds: Kinds) -> list[float]:
    """Values by product or by kind, whichever give the wider interval of the same mean."""
    return max([*values], by_kinds(values, kinds), key=lambda each: interval(each)["high"])


def intervals(values: Values, kinds: Kinds) -> dict[str, Any]:
    """Intervals of the mean over products: by products, by kinds, and the wider of the two.

    >>> found = intervals(pd.Series({"a": 1.0, "b": 3.0, "c": 5.0}), {"a": "x", "b": "x", "c": "y"})
    >>> round(found["example"]["wider"]["low"], 1)
    -13.9
    """
    each = {"products": values, "kinds": by_kinds(values, kinds), "wider": wider(values, kinds)}
    return figures.example({name: interval(v).to_dict() for name, v in each.items()})
