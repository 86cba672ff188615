"""Students' notebooks, right, wrong, unfinished and broken, are graded by the course's checks."""

import ast
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from rich.console import Console
from typer.testing import CliRunner

import dmlkit
from course import book, grade
from course.student import copies
from dmlkit import cli, terminal

COURSE = book.course()
CHECK = """
answer = twice(4)
if answer == 16:
    print("not right: that is the square")
elif answer == 8:
    print("right")
    print("as large as", answer)
else:
    print("not right:", answer)
"""
SORTED = """
assert ordered([2, 1]) is not None, "nothing is returned"
for x in ([2, 1], [3, 1, 2]):
    print(f"of {len(x)}: right" if ordered(x) == sorted(x) else f"of {len(x)}: right for two only")
"""


def solution(name: str, code: str) -> NotebookNode:
    text = f"def {name}(x):\n    ### BEGIN SOLUTION\n    {code}\n    ### END SOLUTION"
    return new_code_cell(text, metadata={"tags": ["hide-input"]})


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A course of one notebook with two exercises, and a folder for each student."""
    folder = tmp_path_factory.mktemp("project")
    cells = [
        new_markdown_cell("# 00 · Tiny\n\n![one](../figures/one.png)"),
        new_code_cell("factor: int = 2", metadata={"tags": ["parameters"]}),
        new_markdown_cell("**1. Twice.**"),
        solution("twice", "return factor * x"),
        new_markdown_cell("The check."),
        new_code_cell(CHECK),
        new_markdown_cell("**2. In order.**"),
        solution("ordered", "return sorted(x)"),
        new_code_cell(SORTED),
        new_markdown_cell("## Recap"),
        new_code_cell("print('the end')"),
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    for name in ("notebooks", "figures"):
        (folder / name).mkdir()
    (folder / "figures" / "one.png").write_bytes(b"PNG")
    nbformat.write(
        new_notebook(cells=cells, metadata=kernel), folder / "notebooks" / "00_tiny.ipynb"
    )
    return folder


@pytest.fixture
def hand_in(project, tmp_path, monkeypatch):
    """Write a student's folder: the copy, with these bodies of the functions that are asked for."""
    monkeypatch.setattr(dmlkit, "ROOT", project)

    def written(student: str, **bodies: str) -> Path:
        list(copies(tmp_path / student))
        path = tmp_path / student / "notebooks" / "00_tiny.ipynb"
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            for name, body in bodies.items():
                if cell.source.startswith(f"def {name}("):
                    cell.source = f"def {name}(x):\n    {body}"
        nbformat.write(notebook, path)
        return tmp_path / student

    return written


def outcomes(grades: pd.DataFrame) -> dict[str, list[tuple[str, str]]]:
    return {
        str(student): list(zip(rows["status"], rows["said"], strict=True))
        for student, rows in grades.groupby("student", sort=False)
    }


def test_who_passed_what_and_what_the_checks_said(hand_in):
    endless = "import time\n    while True: time.sleep(0.01)"
    places = [
        hand_in("all", twice="return x + x", ordered="return sorted(x)"),
        hand_in("none"),
        hand_in("half", twice="return x * x", ordered="return x[::-1]"),
        hand_in("raises", twice="return y", ordered="pass"),
        hand_in("endless", twice=endless, ordered="return sorted(x)"),
        hand_in("exits", twice="import os; os._exit(0)", ordered="return sorted(x)"),
    ]
    ended = "it was not reached within the time, or ended the kernel"
    assert outcomes(grade.grade(places, minutes=0.2, workers=2)) == {
        "all": [("passed", ""), ("passed", "")],
        "none": [("open", ""), ("open", "")],
        "half": [
            ("failed", "not right: that is the square"),
            ("failed", "of 3: right for two only"),
        ],
        "raises": [
            ("failed", "NameError: name 'y' is not defined"),
            ("failed", "nothing is returned"),
        ],
        "endless": [("failed", "it did not end within the time"), ("passed", "")],
        "exits": [("failed", ended), ("failed", ended)],
    }


def test_only_the_answer_counts_of_what_was_handed_in(hand_in):
    """A check that was changed, cells that were added, ids that another editor took away."""
    place = hand_in("anna", twice="return 7", ordered="return sorted(x)")
    path = place / "notebooks" / "00_tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [c for c in notebook.cells if "twice(4)" not in c.source]
    notebook.cells.insert(0, new_code_cell("raise ValueError('scratch')"))
    notebook.cells.append(new_code_cell("print('right')"))
    notebook.nbformat_minor = 4
    for cell in notebook.cells:
        cell.pop("id", None)
    moved = place.parent / "anna_00_tiny (1).ipynb"
    nbformat.write(notebook, moved)
    assert outcomes(grade.grade([moved])) == {
        "anna_00_tiny (1)": [("failed", "not right: 7"), ("passed", "")]
    }


def test_what_cannot_be_read_is_said_and_stops_nobody(hand_in):
    broken, lacking = hand_in("broken"), hand_in("lacking", ordered="return sorted(x)")
    (broken / "notebooks" / "00_tiny.ipynb").write_text("{")
    path = lacking / "notebooks" / "00_tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [c for c in notebook.cells if "def twice" not in c.source]
    nbformat.write(notebook, path)
    found = outcomes(grade.grade([broken, lacking]))
    assert [status for status, _ in found["broken"]] == ["failed", "failed"]
    assert "00_tiny.ipynb cannot be read" in found["broken"][0][1]
    assert found["lacking"] == [("failed", "no cell defines twice"), ("passed", "")]


def test_what_is_said_of_a_whole_notebook_is_said_once(hand_in):
    place = hand_in("anna")
    (place / "notebooks" / "00_tiny.ipynb").write_text("{")
    (line,) = grade.told(grade.grade([place]))
    assert line.startswith("anna, 00, exercises 1 (twice), 2 (ordered): 00_tiny.ipynb cannot be")


def test_one_who_handed_in_nothing_is_missing_and_stops_nobody(hand_in, tmp_path):
    (tmp_path / "empty").mkdir()
    found = grade.grade([hand_in("anna"), tmp_path / "empty"])
    assert outcomes(found) == {"anna": [("open", "")] * 2, "empty": [("missing", "")] * 2}
    assert grade.in_short(found)[1][1] == ["empty", "00_tiny", "missing", "missing", "0 of 2"]
    assert list(grade.told(found)) == []


@pytest.mark.parametrize("place", ["", "anna/notebooks/index.ipynb", "typo"])
def test_a_place_without_notebooks_of_the_course(place, hand_in, tmp_path):
    anna = hand_in("anna")
    (anna / "notebooks" / "index.ipynb").write_text("{}")
    with pytest.raises(ValueError, match="has none of the notebooks 00_tiny: expected a folder"):
        grade.grade([tmp_path / place, *([anna] if place else [])])


def test_the_course_s_own_faults_are_not_the_students(hand_in, project, monkeypatch):
    place = hand_in("anna", twice="return 8", ordered="return x")
    with pytest.raises(RuntimeError, match="the course's own 00_tiny fails here"):
        grade.grade([place], parameters={"factor": "two"})


def test_the_command_prints_a_row_for_each_student(hand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(markup=False, width=200))
    places = [hand_in("anna", twice="return 8"), hand_in("bert", twice="return 16")]
    args = [*map(str, places), "--only", "00", "--csv", str(tmp_path / "grades.csv")]
    result = CliRunner().invoke(cli.app, ["grade", *args])
    assert result.exit_code == 0, result.output
    assert re.search(r"anna +│ +00_tiny +│ +passed +│ +open +│ +1 of 2", result.output)
    assert "bert, 00, exercise 1 (twice): not right: that is the square" in result.output
    assert list(pd.read_csv(tmp_path / "grades.csv")["status"]) == [
        "passed", "open", "failed", "open",
    ]  # fmt: skip


@pytest.mark.parametrize("name", COURSE)
def test_every_solution_of_the_course_passes(name):
    """By what its check printed when the outputs were written."""
    cells = {cell.id: cell for cell in COURSE[name].cells}
    found = grade.exercises(COURSE[name])
    assert len(found) >= 2
    for exercise in found:
        text = "".join(o.get("text", "") for check in exercise.checks for o in cells[check].outputs)
        assert re.search(r"(?:^|: )right(?=$|[:;.,])", text, re.MULTILINE), exercise.name
        assert not re.search(r"\bnot (?:right|yet|equal|as)\b|\bwrong\b", text), exercise.name


@pytest.mark.parametrize("name", COURSE)
def test_a_wrong_answer_is_told_something(name):
    """No check is silent when all is well, and none fails without words."""
    cells = {cell.id: cell for cell in COURSE[name].cells}
    for exercise in grade.exercises(COURSE[name]):
        trees = [ast.parse(cells[check].source) for check in exercise.checks]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        assert called & {"print", "check"}, exercise.name
        silent = [n for n in nodes if isinstance(n, ast.Assert) and n.msg is None]
        assert not silent, f"{exercise.name}: {ast.unparse(silent[0])}"
