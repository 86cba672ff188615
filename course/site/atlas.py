"""What the site knows of each loss: words, settings, cost, and what the studies measured."""

import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from course.results import RESULTS, section
from dmlkit import ROOT, losses, study
from dmlkit.losses.table import Entry
from studies.rules import protocol

#: The studies that rank losses, and how their trainings begin.
STUDIES = {"scratch": "from random weights", "transfer": "fine-tuned from a pretrained network"}


def atlas() -> list[dict[str, Any]]:
    """Every registered loss in the course's order, as its page shows it."""
    measured = RESULTS.read_text(encoding="utf-8")
    cost, defaults = (
        {row["what"]: row for row in section(measured, part)} for part in ("losses", "defaults")
    )
    when = tomllib.loads((Path(__file__).parent / "when.toml").read_text(encoding="utf-8"))
    scores = {name: recall(name) for name in STUDIES}
    found = []
    for entry in losses.entries():
        cls: Any = getattr(entry.make, "func", entry.make)  # a partial, where a name fixes settings
        rows = {size: cost.get(f"{entry.name}, B = {size}, d = 128") for size in (512, 2048)}
        found.append(
            {
                "entry": entry,
                "title": entry.title,
                "cls": f"{cls.__module__}.{cls.__qualname__}",
                "first": (inspect.getdoc(cls) or "").partition("\n")[0],
                "when": when["losses"].get(entry.name, when["families"][entry.family]),
                "settings": list(_settings(entry)),
                "cost": {size: row for size, row in rows.items() if row},
                "default": defaults.get(entry.name),
                "results": {name: each.get(entry.name) for name, each in scores.items()},
            }
        )
    return found


def _settings(entry: Entry) -> Iterator[tuple[str, str, str]]:
    """Name, default and tuned range of each setting."""
    for name, parameter in losses.signature(entry.name).items():
        default = "" if parameter.default is parameter.empty else repr(parameter.default)
        scale, low, high = (entry.space or {}).get(name, ("", "", ""))
        yield name, default, f"{low} to {high}, {scale}" if scale else ""


def recall(name: str) -> dict[str, dict[str, Any]]:
    """Recall@1 of each arm that is complete in a study: mean, low, high (95 % t-interval), rank."""
    rules = protocol(name).repetitions
    evidence = pd.read_csv(ROOT / "data" / "evidence" / f"{name}.csv").groupby("arm")["recall_at_1"]
    found = pd.DataFrame(
        {
            arm: study.interval(s, overlap=rules.overlap)
            for arm, s in evidence
            if len(s) == rules.count
        }
    ).T.sort_values("mean", ascending=False)
    return found.assign(rank=range(1, len(found) + 1), of=len(found)).to_dict("index")
