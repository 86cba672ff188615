"""Numbers in prose that are held against figures."""

import json
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course import findings

NUMBERS: dict[str, Any] = {
    "recall": {
        "SEC": {"values": [[0.8, 0.9], [0.9, 1.0]], "mean": [0.85, 0.95], "n": 2},
        "glyphs, Adam": {"values": [0.5, 0.7], "low": -0.123},
        "m = 0.5": {"R/1": 0.25},
    },
    "percent": 83.74,
    "seconds": {"timing": 12.0},
    "pairs": 47616,
    "list": [1.0, 2.0, 6.0],
    "claims": [{"claim": "C1", "condition": "all, Adam", "effect": -0.0573}],
}
RECORDS = {"10_recall": {"numbers": NUMBERS}}


def problems(*cells: str) -> list[str]:
    notebook = new_notebook(cells=list(map(new_markdown_cell, cells)))
    return list(findings.problems(notebook, "10_toy", RECORDS))


@pytest.mark.parametrize(
    "prose",
    [
        "SEC has 0.85 <!-- 10_recall: recall/SEC/mean/0 -->.",
        "SEC has 85 % <!-- 10_recall: recall/SEC/mean/0 -->.",
        "SEC has an R@2 of 95.0 percent<!-- 10_recall: recall/SEC/mean/-1 -->.",
        "The mean is 60 % <!-- 10_recall: recall/glyphs, Adam/mean -->.",
        "A margin of 0.5: 0.25 <!-- 10_recall: recall/m = 0.5/R/1 -->",
        "It reaches 83.7 % <!-- 10_recall: percent in % -->",
        "It takes 12 s <!-- 10_recall: seconds -->",
        "There are 47,616 <!-- 10_recall: pairs --> pairs.",
        "From 1 to 6 <!-- 10_recall: list/min; list/max -->, 3.0 <!-- 10_recall: list/mean -->",
        "Its interval is [−3.6, 9.6] <!-- 10_recall: list/low; list/high -->",  # 3 ± 4.303 · 1.528
        "It loses −5.7 points <!-- 10_recall: claims/C1, all, Adam/effect -->",
        "It loses -5.73 points <!-- 10_recall: claims/0/effect -->",
        "Lower by −75 points [0, −12.3] <!-- 10_recall: recall/m = 0.5/R/1 minus list/0; "
        "list/0 minus list/0; recall/glyphs, Adam/low -->",
        "It is 6 times <!-- 10_recall: list/2 over list/0 --> as large.",
        "Unmarked numbers such as 17 are free. <!-- a remark -->",
    ],
)  # fmt: skip
def test_prose_that_agrees_with_its_figure_passes(prose: str) -> None:
    assert problems(prose) == []


@pytest.mark.parametrize(
    "prose, message",
    [
        ("Old. SEC has 0.86 <!-- 10_recall: recall/SEC/mean/0 -->.",
         "10_toy: 'SEC has 0.86': 0.86: 10_recall has 0.85 at recall/SEC/mean/0"),
        ("It loses 5.7 points <!-- 10_recall: claims/0/effect -->", "10_recall has -5.73 at"),
        ("It has 83.8 % <!-- 10_recall: percent in % -->", "83.8: 10_recall has 83.74 at percent"),
        ("It has 83.7 % <!-- 10_recall: percent -->", "has 8374 at percent"),
        ("It has 83.7 <!-- 13_other: percent -->", "there is no figure 13_other"),
        ("It has 83.7 <!-- 10_recall: gain -->", "'gain' is not there; there is recall, percent"),
        ("It has 83.7 <!-- 10_recall: recall -->", "'' is not there; there is SEC"),
        ("It is 1 <!-- 10_recall: list/0 over nothing -->", "'nothing' is not there"),
    ],
)  # fmt: skip
def test_prose_that_disagrees_is_named_with_sentence_number_and_figure(
    prose: str, message: str
) -> None:
    (problem,) = problems("Fine: 12 <!-- 10_recall: seconds -->", prose)
    assert message in problem


@pytest.mark.parametrize(
    "prose",
    ["It has 83.7 <!-- 10_recall: a; b -->", "It has 83.7\n\n<!-- 10_recall: a -->",
     "R@1 is C10 <!-- 10_recall: a -->"],
)  # fmt: skip
def test_a_comment_without_its_numbers_is_an_error(prose: str) -> None:
    with pytest.raises(ValueError, match=r"no [12] numbers before"):
        problems(prose)


#: One thing that two figures hold, each by a key of its own.
SAME = [
    ("14_verdict: SEC minus none (four losses)/drawings, from scratch/high",
     "21_sec: claims/A1, from scratch/high in points"),
]  # fmt: skip


@pytest.mark.parametrize("here, there", SAME)
def test_one_thing_has_one_value(here: str, there: str, committed_figures: Path) -> None:
    values = []
    for place in (here, there):
        name, path = place.split(": ")
        record = json.loads((committed_figures / f"{name}.json").read_text(encoding="utf-8"))
        value = findings.lookup(record["numbers"], path.removesuffix(" in points"))
        values.append(100 * value if path != path.removesuffix(" in points") else value)
    assert values[0] == pytest.approx(values[1], abs=2e-3)


def test_words_are_bound_to_inequalities():
    said = (
        "SEC finds more <!-- holds 10_recall: recall/SEC/mean/1 > recall/SEC/mean/0; pairs > 5 -->."
    )
    assert problems(said) == []
    (fault,) = problems("Less is found <!-- holds 10_recall: recall/glyphs, Adam/mean < −0.1 -->.")
    assert "does not hold: 0.6 and -0.1" in fault
