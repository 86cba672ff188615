"""What a verdict is made of: rows of ``data/verdicts.csv``, and what a lesson trained itself."""

import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from dmlkit import ROOT, statistics
from dmlkit.figures.drawing import RIGHT, WRONG

#: Where the rows of all lessons are.
FILE = ROOT / "data" / "verdicts.csv"
#: What a lesson's own run is: too few trainings, of one recipe, to say more.
LIVE = "this page's run"
#: Of a row that says only that a training failed: it does not widen its panel.
UNTRAINED = "did not train here"
FALLS = "falls in the correction"
_AMBER = "#a05a00"
#: The color of a word that stands, by what it begins with: those that decide something.
COLORS = {
    "holds": RIGHT, "shown": RIGHT, "smaller": "#3388bb", "negligible": _AMBER,
    "above 0": "#3388bb", "too small": _AMBER,
    "printed size": _AMBER, "reversed": WRONG, "fails": WRONG,
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One row of a verdict: an effect in the ``unit`` of its axis, its interval and its word.

    ``kind`` is "printed" (a size that a paper prints), "study" (an own study) or "live".
    """

    of: str  # what is compared: the heading of its rows
    kind: str
    label: str  # where: material and training, or data set
    effect: float
    low: float = math.nan
    high: float = math.nan
    n: str = ""
    word: str = ""
    planned: bool = False  # a rule of the ledger asks it; else it is exploratory
    stands: bool = False  # after Holm's correction
    margin: float = math.nan  # the smallest effect that would matter
    unit: str = "points of Recall@1"
    note: str = ""  # what differs from its heading, or why nothing is decided
    values: tuple[float, ...] = field(default=(), repr=False)  # of each live training

    @property
    def decides(self) -> bool:
        """Whether it was planned and its word says more than that it stays open."""
        return self.planned and self.word.startswith(tuple(COLORS))

    @property
    def said(self) -> str:
        """Its word, with what a reader must know of it."""
        explored = not self.planned and self.word in ("ahead", "behind")
        return "exploratory: " * explored + self.word

    @property
    def notes(self) -> str:
        """What stands below its word."""
        falls = self.decides and not self.stands
        return "; ".join(filter(None, [FALLS * falls, self.note]))


def findings(lesson: str, file: Path = FILE) -> list[Finding]:
    """What the evidence has for a lesson, in the order in which it is shown; maybe nothing.

    >>> findings("09_margins")[0].kind
    'printed'
    """
    frame = pd.read_csv(file, dtype={"n": str}, keep_default_na=False, na_values={"low": "",
                        "high": "", "margin": "", "effect": ""})  # fmt: skip
    mine = frame[frame["lesson"] == lesson].drop(columns="lesson")
    return [Finding(**row) for row in mine.to_dict("records")]


def here(
    of: str, label: str, values: ArrayLike, unit: str = Finding.unit, each: str = "repetition",
    overlap: float = 0.0, run: str = LIVE,
) -> Finding:  # fmt: skip
    """What a lesson itself found in a ``run``: differences (n,), one for ``each`` repetition, or
    product.

    Those of products, of which there are many, are summed up alone.

    >>> here("SEC", "photographs, 200 steps", [1.0, 2.0, 3.0]).n
    '3 repetitions'
    """
    mean, low, high, n = statistics.interval(np.asarray(values, float), overlap=overlap)
    seeds = tuple(np.asarray(values, float).tolist()) if each == "repetition" else ()
    said = f"{n:.0f} {each}" + "s" * (n > 1)
    return Finding(of, "live", label, mean, low, high, said, run, unit=unit, values=seeds)
