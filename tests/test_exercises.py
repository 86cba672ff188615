"""The check of an exercise: its words for right answers, usual mistakes and anything else."""

import math
from typing import Any

import pytest
import torch

from dmlkit.exercises import STANDS_IN, YOUR_TURN, pack, solution, verdict

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


@pytest.mark.parametrize("body, said", [(f"raise NotImplementedError({YOUR_TURN!r})", STANDS_IN),
                                        ("return 3", "")])  # fmt: skip
def test_only_where_the_course_answers_is_it_said(body: str, said: str, capsys: Any) -> None:
    names: dict[str, Any] = {"solution": solution}
    exec(f"@solution({pack('def two(): return 2')!r})\ndef two():\n    {body}", names)
    assert capsys.readouterr().out.strip() == said
    assert names["two"]() == (2 if said else 3)
