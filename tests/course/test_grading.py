"""Students' notebooks, right, wrong, unfinished and broken, are graded by the course's checks."""

import ast
import re
from pathlib import Path

import nbformat
import pandas as pd
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from rich.console import Console
from typer.testing import CliRunner

import dmlkit
from course import book, grade, quiz, solutions
from course.student import copies
from dmlkit.cli import terminal
from dmlkit.cli.app import app
from dmlkit.exercises import PASSES, RIGHT

# As it does where it is not Linux.
pytestmark = pytest.mark.filterwarnings("ignore:this system does not keep students' answers from")
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


def check(code: str, printed: str) -> NotebookNode:
    return new_code_cell(code, outputs=[new_output("stream", name="stdout", text=printed)])


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
        check(CHECK, "right\nas large as 8\n"),
        new_markdown_cell("**2. In order.**"),
        solution("ordered", "return sorted(x)"),
        check(SORTED, "of 2: right\nof 3: right\n"),
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
    assert outcomes(grade.grade(places, minutes=0.2, workers=2)) == {
        "all": [("passed", ""), ("passed", "")],
        "none": [("open", ""), ("open", "")],
        "half": [
            ("failed", "not right: that is the square"),
            ("failed", "of 3: right for two only"),
        ],
        "raises": [
            (
                "failed",
                "NameError: name 'y' is not defined; of a student's notebook only the cells of "
                "exercises are run",
            ),
            ("failed", "AssertionError: nothing is returned"),
        ],
        "endless": [("failed", "it did not end within the time"), ("passed", "")],
        "exits": [("failed", "it ended its process"), ("passed", "")],
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


def test_an_answer_below_its_stub_counts(hand_in):
    """The stub was left in place: the last cell that defines the function without it is meant.

    Lines for Jupyter alone are no part of it.
    """
    place = hand_in("anna")
    path = place / "notebooks" / "00_tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    for body in ("return 16", "return 2 * x"):
        notebook.cells.append(new_code_cell(f"%%time\n!ls\ndef twice(x):\n    {body}"))
    nbformat.write(notebook, path)
    assert outcomes(grade.grade([place])) == {"anna": [("passed", ""), ("open", "")]}


def test_two_copies_and_two_students_of_one_name_have_rows_of_their_own(hand_in, tmp_path):
    one, other = hand_in("a/anna", twice="return x * x"), hand_in("b/anna", twice="return 2 * x")
    first = one / "notebooks" / "00_tiny.ipynb"
    first.with_name("00_tiny-Copy1.ipynb").write_bytes(
        (other / "notebooks" / "00_tiny.ipynb").read_bytes()
    )
    result = CliRunner().invoke(app, ["grade", str(one), str(other), "--csv", f"{tmp_path}/g.csv"])
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "g.csv").set_index(["student", "notebook", "number"])["status"]
    assert found[:, :, 1].to_dict() == {
        (str(one), "00_tiny"): "failed",
        (str(one), "00_tiny-Copy1"): "passed",
        (str(other), "00_tiny"): "passed",
    }


@pytest.mark.parametrize(
    "other, equal",
    [
        ("def f(z):\n    # mine\n    return sum(q for q in z)", True),
        ('def f(x: list) -> int:\n    "Sum."\n    return sum([y for y in x])', False),
        ("def f(x):\n    return sum(y + 0 for y in x)", False),
        ("def f(x):\n    return max(y for y in x)", False),
        ("def f(x) return", False),
    ],
)
def test_which_answers_are_equal(other, equal):
    assert (grade.normal(other) == grade.normal("def f(x): return sum(y for y in x)")) == equal


def test_what_is_equal_to_the_solution_is_nobodys_copy(hand_in):
    own = {"twice": "return x + x", "ordered": "return sorted(x)"}
    places = [hand_in("anna", **own), hand_in("bert", **own), hand_in("carl")]
    found = grade.grade(places).set_index(["student", "number"])["equal"]
    assert found.to_dict() == {
        ("anna", 1): "anna, bert", ("anna", 2): "", ("bert", 1): "anna, bert", ("bert", 2): "",
        ("carl", 1): "", ("carl", 2): "",
    }  # fmt: skip


def test_what_cannot_be_read_stops_nobody(hand_in):
    broken, lacking = hand_in("broken"), hand_in("lacking", ordered="return sorted(x)")
    (broken / "notebooks" / "00_tiny.ipynb").write_text("{")
    path = lacking / "notebooks" / "00_tiny.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = [c for c in notebook.cells if "def twice" not in c.source]
    nbformat.write(notebook, path)
    nothing = ("failed", "no cell that can be read defines twice")
    found = outcomes(grade.grade([broken, lacking]))
    assert found["broken"][0] == nothing
    assert found["lacking"] == [nothing, ("passed", "")]


def test_a_place_without_notebooks_of_the_course(hand_in, tmp_path):
    (tmp_path / "empty").mkdir()
    found = grade.grade([hand_in("anna"), tmp_path / "empty"]).set_index("student")
    assert found.loc["empty", ["number", "said"]].tolist() == [0, "hands in none of 00_tiny"]
    with pytest.raises(ValueError, match=r"got .*typo, which is not there"):
        grade.grade([hand_in("anna"), tmp_path / "typo"])


def test_the_command_prints_a_row_for_each_student(hand_in, tmp_path, monkeypatch):
    monkeypatch.setattr(terminal, "console", Console(markup=False, width=200))
    places = [hand_in("anna", twice="return 8"), hand_in("bert", twice="return 16")]
    args = [*map(str, places), "--only", "00", "--csv", str(tmp_path / "grades.csv")]
    args += ["--pages", str(tmp_path / "pages")]
    result = CliRunner().invoke(app, ["grade", *args])
    assert result.exit_code == 0, result.output
    assert re.search(r"anna +│ +00_tiny +│ +passed +│ +open", result.output)
    assert "bert, 00_tiny, exercise 1 (twice): not right: that is the square" in result.output
    assert list(pd.read_csv(tmp_path / "grades.csv")["status"]) == [
        "passed", "open", "failed", "open",
    ]  # fmt: skip
    page = (tmp_path / "pages" / "bert.html").read_text()
    assert "0 of 2 exercises passed" in page
    assert "not right: that is the square" in page
    assert "anna" not in page


@pytest.mark.parametrize("name", COURSE)
def test_every_solution_of_the_course_passes(name):
    """By what its check printed when the outputs were written; that is no reader's merit."""
    cells = {cell.id: cell for cell in COURSE[name].cells}
    found = grade.exercises(COURSE[name])
    assert len(found) >= 2
    for exercise in found:
        text = "".join(o.get("text", "") for check in exercise.checks for o in cells[check].outputs)
        assert PASSES in text, exercise.name
        assert not RIGHT.search(text), exercise.name
        assert not re.search(r"\bnot (?:right|yet|equal|as)\b|\bwrong\b", text), exercise.name


@pytest.mark.parametrize("name", COURSE)
def test_a_wrong_answer_is_told_something(name):
    """No check is silent when all is well, and none fails without words."""
    cells = {cell.id: cell for cell in COURSE[name].cells}
    for exercise in grade.exercises(COURSE[name]):
        trees = [ast.parse(solutions.opened(cells[check].source)) for check in exercise.checks]
        nodes = [node for tree in trees for node in ast.walk(tree)]
        called = {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)}
        assert called & {"print", "check"}, exercise.name
        silent = [n for n in nodes if isinstance(n, ast.Assert) and n.msg is None]
        assert not silent, f"{exercise.name}: {ast.unparse(silent[0])}"


def test_a_guess_is_a_row_with_the_reason_why_it_is_wrong(hand_in, tmp_path, monkeypatch):
    toml = (
        '[way]\nquestion = "?"\nchoices = [{ text = "left", reason = "It is not." },\n'
        '{ text = "right", right = true, reason = "Yes." }]\n'
    )
    (tmp_path / "00_tiny.toml").write_text(toml)
    monkeypatch.setattr(quiz.items, "__defaults__", (tmp_path,))
    places = []
    for letter in "ab":
        places.append(hand_in(letter))
        path = places[-1] / "notebooks" / "00_tiny.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.cells.append(new_code_cell(f'guesses = {{"way": "{letter}"}}'))
        nbformat.write(notebook, path)
    found = grade.grade(places)
    guessed = found[found["exercise"] == "guess: way"]
    assert guessed["status"].tolist() == ["failed", "passed"]
    assert guessed["said"].tolist() == ["It is not.", ""]
    assert (found[found["number"] > 0]["status"] == "open").all()
