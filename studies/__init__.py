"""The reality check: every loss tuned alike and compared alike, by rules that are written first.

A protocol, ``data/studies/NAME.toml``, says what all trainings have in common, what is tuned
between which bounds, how the searches go, and what a repetition is (``rules``). All that follows
from it is a list of trainings, each of which is one row of a table on disk (``search``,
``trainings``). A row that is there is not trained again: so a study goes on where it was broken
off (``follow``). ``answers`` and ``choice`` read the tables; ``judge`` puts a new loss through.
"""

from importlib import import_module
from typing import Any

#: What notebooks use, by the file that it is written in.
_NAMES = {
    "answers": "ELEVEN SEVEN by_class conditions kept rows scores stronger",
    "condition": "plain",
    "check": "sample",
    "choice": "settings standings",
    "rules": "SEE_ON VISITS_ON arms protocol",
    "search": "agreement ends recipes",
    "sphere": "forms",
    "trainings": "METRICS baselines tables",
}


def __getattr__(name: str) -> Any:
    """One of these names, whose file is loaded now: the commands' help need not wait for torch."""
    for file, names in _NAMES.items():
        if name in names.split():
            return getattr(import_module(f"studies.{file}"), name)
    raise AttributeError(f"module 'studies' has no attribute {name!r}")
