"""What the site knows of each loss: words, settings, cost, and what the studies measured."""

import inspect
import json
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from course.results import RESULTS, section
from course.site import drawings
from course.site.conf import mathml
from dmlkit import losses
from dmlkit.losses.table import Entry
from studies import choice
from studies.answers import conditions, kept
from studies.rules import protocol

#: Tables whose settings are for photographs, and how the command is told of a reader's own.
_OWN = {"photos_whole": "--data folder --root PHOTOS", "photos": "--data features --root FILE.npz"}


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
                "equation": equation(entry.equation),
                "curve": drawings.curve(entry.name),
                "cls": f"{cls.__module__}.{cls.__qualname__}",
                "first": (inspect.getdoc(cls) or "").partition("\n")[0],
                "when": when["losses"].get(entry.name, when["families"][entry.family]),
                "settings": list(_settings(entry)),
                "cost": {size: row for size, row in rows.items() if row},
                "default": defaults.get(entry.name),
                "results": {name: each.get(entry.name) for name, each in scores.items()},
                "evidence": drawings.evidence(entry.name, scores),
                "paste": paste(entry.name),
            }
        )
    return found


def equation(text: str) -> str:
    """The table's equation, one or two lines with formulas between dollars, as HTML.

    >>> equation("$x$\\nn: nearest").count("<math"), equation("n: nearest")
    (1, '<div>n: nearest</div>')
    """
    return "".join(
        "<div>"
        + "".join(
            mathml(part) if i % 2 else f"<span>{part}</span>" * bool(part) if "$" in line else part
            for i, part in enumerate(line.split("$"))
        )
        + "</div>"
        for line in text.split("\n")
    )


def paste(name: str) -> dict[str, str]:
    """Settings that can be pasted: those that the first search chose on photographs.

    ``python`` builds the loss, ``shell`` trains with it, ``at`` says in which condition; nothing
    where no search on photographs had the loss.
    """
    for table, options in _OWN.items():
        if found := choice.first(table).get(name):
            fields = dict(found)
            for kind, choices in protocol(table).choices.items():
                fields |= choices[fields.pop(kind)]
            start = "loss_args."
            own = {k.removeprefix(start): v for k, v in fields.items() if k.startswith(start)}
            needs = {"num_classes": 60, "dim": 128}
            given = {k: v for k, v in needs.items() if k in losses.signature(name)} | own
            said = ", ".join([f'"{name}"', *(f"{k}={v!r}" for k, v in given.items())])
            sets = [f"--set {shlex.quote(f'{k}={json.dumps(v)}')}" for k, v in fields.items()]
            command = " \\\n  ".join([f"dmlkit train {options} --loss {name}", *sets])
            at = next(c for c, passes in choice.SHOWN.items() if passes == (table,))
            return {"python": f"loss = losses.build({said})", "shell": command, "at": at}
    return {}


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
            table["power"] = str(choice.power(table))
            table["chosen"] = table["chosen"].fillna("")
            found[condition] = table.to_dict("index")
    return found
