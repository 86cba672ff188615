"""The reality check: every loss tuned alike and compared alike, by rules that are written first.

A protocol, ``data/studies/NAME.toml``, says what all trainings have in common, what is tuned
between which bounds, how the searches go, and what a repetition is. All that follows from it is a
list of trainings, each of which is one row of a table on disk. A row that is there is not trained
again: so a study goes on where it was broken off, on whatever machine.
"""

from studies.answers import (
    ELEVEN,
    SEVEN,
    STUDIES,
    Answer,
    answer,
    beyond,
    complete,
    decided,
    kept,
    lead,
    nearness,
    published,
    scores,
)
from studies.arms import SEC_ON, SEE_ON, VISITS_ON, arms
from studies.candidates import candidates, near, space, widened
from studies.checks import asked_for, trained_anew
from studies.choice import behind_the_best, plain, which_loss, write_choice
from studies.designs import contrast, designed
from studies.follow import (
    chosen_arms,
    command,
    follow,
    remaining,
    sample,
    tables,
)
from studies.protocol import (
    Arm,
    Protocol,
    experiment,
    merged,
    overlap,
    protocol,
    repetition,
    searching,
    set_at,
)
from studies.repetitions import baselines, compare
from studies.searches import agreement, ends, recipes, search
from studies.trainings import METRICS, How, Plan, Table, trained, work_off

__all__ = [
    "ELEVEN",
    "METRICS",
    "SEC_ON",
    "SEE_ON",
    "SEVEN",
    "STUDIES",
    "VISITS_ON",
    "Answer",
    "Arm",
    "How",
    "Plan",
    "Protocol",
    "Table",
    "agreement",
    "answer",
    "arms",
    "asked_for",
    "baselines",
    "behind_the_best",
    "beyond",
    "candidates",
    "chosen_arms",
    "command",
    "compare",
    "complete",
    "contrast",
    "decided",
    "designed",
    "ends",
    "experiment",
    "follow",
    "kept",
    "lead",
    "merged",
    "near",
    "nearness",
    "overlap",
    "plain",
    "protocol",
    "published",
    "recipes",
    "remaining",
    "repetition",
    "sample",
    "scores",
    "search",
    "searching",
    "set_at",
    "space",
    "tables",
    "trained",
    "trained_anew",
    "which_loss",
    "widened",
    "work_off",
    "write_choice",
]
