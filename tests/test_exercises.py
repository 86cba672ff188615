"""The check of an exercise: its words for right answers, usual mistakes and anything else."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from dmlkit import exercises
from dmlkit.exercises import PASSES, verdict

USUAL = {"this is the square": 9.0, "one number is expected": [3.0, 3.0]}


@pytest.mark.parametrize(
    "answer, expected",
    [
        (3, "right"),
        (torch.tensor(3.0, requires_grad=True), "right"),
        (9.0, "not yet: this is the square"),
        ([3, 3], "not yet: one number is expected"),
        ([3, 4], "not yet: the shape is (2,), expected ()"),
        (4.5, "not yet: 4.5 is not it"),
        (math.nan, "not yet: nan is not it"),
        (None, "not yet: nothing is returned"),
        ("three", "not yet: str is neither a number nor an array of numbers"),
        ([[1], [2, 3]], "not yet: list is neither a number nor an array of numbers"),
    ],
)
def test_an_answer_is_told_what_is_wrong(answer: Any, expected: str) -> None:
    assert verdict(answer, 3.0, USUAL) == expected


def test_how_near_is_near_enough_is_said() -> None:
    assert verdict(0.501, 0.5, near=0.01) == "right"
    assert verdict(0.501, 0.5).startswith("not yet")
    assert verdict(1e6 + 0.1, 1e6) == "right"  # of its size


STUB = """
@exercises.solution("toy/two")
def two():
    raise NotImplementedError("your turn: put your answer here, run this cell, then the next")
"""
CHECK = "print('now'); print('two:', exercises.verdict(two(), 2))"


@pytest.fixture
def said(tmp_path: Path, monkeypatch: Any, capsys: Any) -> Iterator[Callable[..., str]]:
    """What cells of a notebook print, where the course answers as told."""
    shell = InteractiveShell.instance(history_length=0)
    monkeypatch.setattr(exercises, "ANSWERS", tmp_path / "answers.json")

    def run(ours: str, *cells: str) -> str:
        exercises.ANSWERS.write_text(json.dumps({"toy/two": exercises.pack(ours)}))
        for cell in ("from dmlkit import exercises", *cells):
            shell.run_cell(cell)
        return capsys.readouterr().out

    yield run
    InteractiveShell.clear_instance()


def test_a_check_of_the_courses_answer_says_so_and_of_the_readers_what_is_right(
    said: Callable[..., str],
) -> None:
    before, ours = sys.stdout, "def two(): return 2"
    assert said(ours, STUB, CHECK) == f"now\ntwo: {PASSES}\n"
    assert said(ours, STUB, CHECK, "print('right')") == f"now\ntwo: {PASSES}\nright\n"
    assert said(ours, STUB, "two(); print('right', end='')") == PASSES
    for own in (ours, STUB.replace("raise", "return 2 #")):
        assert said(ours, STUB, own, CHECK) == "now\ntwo: right\n"
    assert sys.stdout is before


def test_the_courses_answer_is_checked_too(said: Callable[..., str]) -> None:
    assert said("def two(): return 3", STUB, CHECK) == "now\ntwo: not yet: 3.0 is not it\n"


def test_an_answer_that_the_course_lacks_is_an_error_only_where_it_is_needed() -> None:
    stub = STUB.replace("toy/two", "toy/three")
    with pytest.raises(LookupError, match="no answer 'toy/three' of the course: take the notebook"):
        exec(stub, {"exercises": exercises})
    exec(stub.replace("raise", "return 2 #"), {"exercises": exercises})
