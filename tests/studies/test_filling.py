"""Tables of trainings that are filled row by row."""

import pandas as pd
import pytest

from dmlkit import workers
from studies import filling

KEYS = ["way", "repetition"]


def asked(table):
    rows = [{"way": way, "repetition": r} for way in "ba" for r in range(2)]
    return filling.missing(table, KEYS, rows)


def test_only_what_is_missing_is_made_and_rows_are_ordered(tmp_path, monkeypatch):
    path, made = tmp_path / "table.csv", []
    monkeypatch.setattr(
        workers, "outcomes", lambda work, jobs: [(i, work(*args)) for i, args in jobs.items()]
    )

    def work(row):
        made.append(tuple(row.values()))
        return {"score": row["repetition"] / 2}

    filling.fill(path, KEYS, asked, work)
    assert made == [("b", 0), ("b", 1), ("a", 0), ("a", 1)]
    table = pd.read_csv(path)
    assert table[KEYS].to_numpy().tolist() == [["a", 0], ["a", 1], ["b", 0], ["b", 1]]
    table.drop(index=1).to_csv(path, index=False)
    filling.fill(path, KEYS, asked, work)
    assert made[4:] == [("a", 1)]
    assert pd.read_csv(path).equals(table)


def test_an_error_is_raised_after_the_others_are_kept(tmp_path, monkeypatch):
    path = tmp_path / "table.csv"
    outcomes = [(0, ValueError("no")), (1, {"score": 1.0}), (2, {"score": 1.0}), (3, {"score": 1})]
    monkeypatch.setattr(workers, "outcomes", lambda _, __: outcomes)
    with pytest.raises(ValueError, match="no"):
        filling.fill(path, KEYS, asked, lambda row: row)
    assert len(pd.read_csv(path)) == 3
