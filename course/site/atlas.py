"""What the site knows of each loss: words, settings, cost, and what the studies measured."""

import inspect
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course.results import RESULTS, section
from dmlkit import losses
from dmlkit.losses.table import Entry
from studies import choice
from studies.answers import conditions, kept


def atlas() -> list[dict[str, Any]]:
    """Every registered loss in the course's order, as its page shows it."""
    measured = RESULTS.read_text(encoding="utf-8")
    cost, defaults = (
        {row["what"]: row for row in section(measured, part)} for part in ("losses", "defaults")
    )
    when = tomllib.loads((Path(__file__).parent / "when.toml").read_text(encoding="utf-8"))
    scores = results()
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


def results() -> dict[str, dict[str, dict[str, Any]]]:
    """What the studies say of each loss in each condition: ``found[condition][loss]``.

    mean, low, high of Recall@1 (95 %), the group (see ``choice.title``), how far the loss lies
    behind the best, how often 3 points are found (``choice.power``), the chosen
    settings, and what a blind choice of them costs.
    """
    known, found = conditions(kept()), {}
    for condition, passes in choice.SHOWN.items():
        if condition in known:
            table = choice.standings(known[condition]).join(choice.settings(*passes))
            table["power"] = choice.power(table)
            table["chosen"] = table["chosen"].fillna("")
            found[condition] = table.to_dict("index")
    return found
