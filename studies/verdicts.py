"""What the last figure of each lesson shows: ``python -m studies.verdicts`` writes its table.

``data/studies/verdicts.toml`` names claims of the ledger, and differences of arms; each has a row
in each condition that has them. ``dmlkit.figures.verdict`` draws a lesson's rows.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd

from dmlkit import ROOT
from dmlkit.figures.verdicts import TABLE
from dmlkit.files import write_whole
from studies import claims
from studies.answers import conditions, kept
from studies.condition import Condition, plain
from studies.rules import FOLDER

ALL = "losses"  # all others of a condition
COLUMNS = (
    *("lesson", "what", "claim", "condition", "effect", "low", "high", "least"),
    *("n", "margin", "printed", "word", "stands"),
)


def rows() -> Iterator[dict[str, Any]]:
    """Every row, in the order of the lessons; effects in points."""
    told = tomllib.loads((FOLDER / "verdicts.toml").read_text(encoding="utf-8"))
    ledger, found = claims.ledger(), conditions(kept())
    for lesson, asked in told.items():
        for claim, what in asked.get("claims", {}).items():
            for row in ledger[ledger["claim"] == claim].to_dict("records"):
                yield _shown(lesson, what, row)
        for what, (plus, minus) in asked.get("differences", {}).items():
            for at in found.values():
                if row := difference(at, plus, minus):
                    yield _shown(lesson, what, row)


def difference(at: Condition, plus: Sequence[str], minus: Sequence[str] | str) -> dict[str, Any]:
    """The mean of some arms minus that of others, in one condition; empty where one is missing."""
    every = plain(at.wide().dropna(axis=1))
    others = [arm for arm in every if arm not in plus] if minus == ALL else list(minus)
    wide = at.rivals() if {*plus, *others} <= {*every} else at.wide()
    if not others or not {*plus, *others} <= {*wide.dropna(axis=1)}:
        return {}
    groups: dict[str, dict[str, float]] = {}
    for arms, sign in ((plus, 1.0), (others, -1.0)):
        for arm in arms:
            groups.setdefault(at.base(arm), {})[arm] = sign / len(arms)
    values = wide[list(plus)].mean(axis=1) - wide[others].mean(axis=1)
    measured = at.measured(values, groups, "recall_at_1")
    test = measured.test()
    low, high = test["low"], test["high"]
    return {
        "condition": at.name, "effect": test["difference"], "low": low, "high": high,
        "least": test["least"], "n": len(values), "margin": 0.01,
        "word": "ahead" if low > 0 else "behind" if high < 0 else "not separated",
    }  # fmt: skip


def _shown(lesson: str, what: str, row: Mapping[str, Any]) -> dict[str, Any]:
    points = {
        key: None if row.get(key) is None else round(100 * float(row[key]), 3)
        for key in ("effect", "low", "high", "least", "margin", "printed")
    }
    known = {key: row.get(key, "") for key in ("claim", "condition", "n", "word", "stands")}
    return {"lesson": lesson, "what": what} | known | points


def table() -> pd.DataFrame:
    """All rows as a table."""
    return pd.DataFrame(list(rows()), columns=COLUMNS)


if __name__ == "__main__":
    write_whole({ROOT / "data" / "evidence" / TABLE: partial(table().to_csv, index=False)})
