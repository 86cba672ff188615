"""Fill a table of trainings: a row after each, on all cores; what is there is not made anew."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from dmlkit import workers
from dmlkit.files import write_whole

Row = dict[str, Any]
Waiting = Callable[[pd.DataFrame], list[Row]]


def fill(path: Path, keys: list[str], waiting: Waiting, work: Callable[[Row], Row]) -> None:
    """Make what a table lacks, until nothing waits, and write it after each row.

    ``waiting`` gives the keys of rows that can be made of those that are there, and ``work`` the
    rest of such a row. $LOKY_MAX_CPU_COUNT limits the processes. Rows are ordered by their keys. An
    error is raised when what waits beside it is made.
    """
    table = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=keys)
    while rows := waiting(table):
        jobs = {number: (row,) for number, row in enumerate(rows)}
        error: Exception | None = None
        for number, rest in tqdm(workers.outcomes(work, jobs), total=len(rows), unit="training"):
            if isinstance(rest, Exception):
                error = rest
                continue
            new = pd.DataFrame([rows[number] | rest])
            table = pd.concat([table, new] if len(table) else [new])
            table = table.sort_values(keys, ignore_index=True)
            write_whole({path: partial(table.to_csv, index=False, lineterminator="\n")})
        if error is not None:
            raise error


def missing(table: pd.DataFrame, keys: list[str], asked: list[Row]) -> list[Row]:
    """Those of the rows that a table has not, by their keys."""
    there = set(table[keys].itertuples(index=False, name=None))
    return [row for row in asked if tuple(row[key] for key in keys) not in there]
