"""What the site knows of each loss: words, settings, cost, and what the studies measured."""

import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dmlkit import ROOT, losses, study
from dmlkit.looks import look
from dmlkit.losses.table import Entry
from studies.rules import protocol

#: The studies that rank losses, in the order of the site.
STUDIES = ("scratch", "transfer")


@dataclass(frozen=True)
class Loss:
    """A registered loss as its page shows it."""

    entry: Entry
    title: str
    path: str  # of its class
    first: str  # sentence of its docstring
    when: str
    settings: list[tuple[str, str, str]]  # argument, default, range that is tuned
    cost: dict[str, dict[str, str]]  # by batch size
    default: dict[str, str]  # Recall@1 at defaults


def atlas() -> Iterator[Loss]:
    """Every registered loss, in the course's order."""
    table, cost = benchmarks("defaults"), benchmarks("losses")
    when = tomllib.loads((Path(__file__).parent / "when.toml").read_text(encoding="utf-8"))
    for entry in losses.entries():
        made = entry.make
        cls: Any = getattr(made, "func", made)  # a partial, where the name fixes arguments
        rows = {
            size: cost.get(f"{entry.name}, B = {size}, d = 128", {}) for size in ("512", "2048")
        }
        yield Loss(
            entry,
            look(entry.name).name,
            f"{cls.__module__}.{cls.__qualname__}",
            inspect.getdoc(cls).partition("\n")[0],  # type: ignore[union-attr] # all have one
            when["losses"].get(entry.name, when["families"][entry.family]),
            list(_settings(entry)),
            {size: row for size, row in rows.items() if row},
            table.get(entry.name, {}),
        )


def _settings(entry: Entry) -> Iterator[tuple[str, str, str]]:
    for name, parameter in losses.signature(entry.name).items():
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        scale, low, high = (entry.space or {}).get(name, ("", "", ""))
        yield name, default, f"{low} to {high}, {scale}" if scale else ""


def benchmarks(section: str) -> dict[str, dict[str, str]]:
    """The rows of one table of ``benchmarks/RESULTS.md``, by their first column.

    >>> sorted(benchmarks("defaults")["contrastive"])
    ['deviation', 'recall_at_1', 'what']
    """
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {section}\n.*?((?:^\|[^\n]*\n)+)", text, re.MULTILINE | re.DOTALL)
    if not found:
        return {}
    rows = [[c.strip() for c in line[1:-1].split("|")] for line in found[1].splitlines()]
    return {row[0]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}


def results() -> dict[str, pd.DataFrame]:
    """Recall@1 of each arm of each study that is there, best first; an empty table for the others.

    Index: arm; columns mean, low, high (95 % t-interval), n and rank.
    """
    found = {}
    for name in STUDIES:
        path = ROOT / "data" / "evidence" / f"{name}.csv"
        evidence, rules = pd.DataFrame(), protocol(name).repetitions
        if path.exists():  # of a study that goes on, the arms that are complete
            evidence = (
                pd.read_csv(path).groupby("arm").filter(lambda arm, n=rules.count: len(arm) == n)
            )
        found[name] = ranked(evidence, rules.correction)
    return found


def ranked(evidence: pd.DataFrame, overlap: float = 0.0) -> pd.DataFrame:
    """The arms of a study's evidence (columns arm, recall_at_1), as ``results`` has them.

    ``overlap`` is what ``study.interval`` takes.

    >>> frame = pd.DataFrame({"arm": ["a", "a", "b", "b"], "recall_at_1": [0.5, 0.7, 0.8, 0.9]})
    >>> ranked(frame)["rank"].to_dict()
    {'b': 1, 'a': 2}
    """
    if evidence.empty:
        return pd.DataFrame(columns=["mean", "low", "high", "n", "rank"])
    scores = evidence.groupby("arm", sort=False)["recall_at_1"]
    frame = pd.DataFrame({arm: study.interval(each, overlap=overlap) for arm, each in scores}).T
    frame = frame.sort_values("mean", ascending=False, kind="stable")
    return frame.assign(rank=range(1, len(frame) + 1))
