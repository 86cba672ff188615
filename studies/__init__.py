"""The reality check: every loss tuned alike and compared alike, by rules that are written first.

A protocol, ``data/studies/NAME.toml``, says what all trainings have in common, what is tuned
between which bounds, how the searches go, and what a repetition is (``rules``). All that follows
from it is a list of trainings, each of which is one row of a table on disk (``search``,
``trainings``). A row that is there is not trained again: so a study goes on where it was broken
off (``follow``). ``answers`` and ``choice`` read the tables; ``judge`` puts a new loss through.
"""

from studies import claims, judgment, standing
from studies.answers import (
    ELEVEN,
    SEVEN,
    by_class,
    conditions,
    kept,
    rows,
    scores,
    stronger,
)
from studies.check import sample
from studies.choice import plain, settings, standings
from studies.rules import SEE_ON, VISITS_ON, arms, protocol
from studies.search import agreement, ends, recipes
from studies.trainings import METRICS, baselines, tables

__all__ = [
    "ELEVEN", "METRICS", "SEE_ON", "SEVEN", "VISITS_ON", "agreement", "arms", "baselines",
    "by_class", "claims", "conditions", "ends", "judgment", "kept", "plain",
    "protocol", "recipes", "rows", "sample", "scores", "settings", "standing",
    "standings", "stronger", "tables",
]  # fmt: skip
