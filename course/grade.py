"""Who passed what: the exercises in students' notebooks, judged by the course's checks.

Of a student's notebook only the cells of its exercises are taken. The course's own notebook runs
once for all of them, and at each exercise `course.grading` judges what each student wrote, in a
process that holds nothing but the lesson so far. An answer passes when its check says "right" and
nothing else, but what it also said of the solution when the outputs of the course were written, up
to the numbers.
"""

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from nbformat import NotebookNode
from tqdm.auto import tqdm

from course import book, quiz, solutions
from course.grading.answers import Asked, Heard
from course.grading.lesson import Lesson
from course.outputs import code
from course.solutions import STUB
from dmlkit.exercises import RIGHT
from dmlkit.files import write_whole

_LONGEST = 500  # of what is said: an answer chooses the words of its error
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\b(?:nan|inf)\b")
#: A line for Jupyter alone, as %%time or !ls.
_MAGIC = re.compile(r"^(?:%%?[a-z]|!).*$", re.MULTILINE)
_DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)

_PROGRESS = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{name}: exercises</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 1rem/1.5 system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; }}
th, td {{ border: 0; border-bottom: 1px solid #8888; padding: .3rem 1rem .3rem 0; }}
th, td {{ text-align: left; vertical-align: top; }}
</style>
<h1>{name}</h1><p>{done}.</p>
{rows}
</html>
"""


@dataclass(frozen=True)
class Exercise:
    """One exercise of a notebook: what is to be written, and the cells that check it."""

    name: str  # of the function that is to be written
    cell: str  # the id of the cell that it is written in
    checks: list[str]  # ids of the cells that check it
    functions: list[str]  # all that the solution defines
    names: list[str]  # other names that it gives


@dataclass(frozen=True)
class _HandIn:
    """A student's copy of a notebook."""

    student: str
    notebook: str
    copy: str  # its name, where there are several of one notebook
    answers: dict[str, str]  # by the cell of the exercise
    guesses: tuple[tuple[str, str, str], ...] = ()  # name, status and reason of each prediction

    def is_begun(self, cell: str) -> bool:
        return STUB not in self.answers.get(cell, STUB)


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """The exercises of one of the course's notebooks, in order.

    A check is a code cell below a solution, above the next exercise, heading or box, or paragraph
    that begins in bold.
    """
    found: list[Exercise] = []
    inside = False
    for cell in notebook.cells:
        if solutions.BEGIN in (text := solutions.opened(cell.source)):
            body = ast.parse(text).body
            functions = [each.name for each in body if isinstance(each, ast.FunctionDef)]
            given = [each.targets for each in body if isinstance(each, ast.Assign)]
            names = [ast.unparse(target) for targets in given for target in targets]
            found.append(Exercise(functions[0], cell.id, [], functions, names))
            inside = True
        elif cell.cell_type == "markdown":
            inside = inside and not re.search(r"^#+ |^> |\A\*\*", cell.source, re.M)
        elif inside:
            found[-1].checks.append(cell.id)
    return found


def grade(
    places: Sequence[Path],
    numbers: Sequence[str] = (),
    minutes: float = 3,
    workers: int = 1,
    parameters: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Grade the exercises of every notebook in these folders: one row for each.

    A place is a student's folder, with notebooks in it or in its ``notebooks/``, or one notebook.
    ``numbers`` ("00", "03") choose among the notebooks; ``minutes`` is what one answer and its
    check may take; ``parameters`` override those of the notebooks.

    Columns: student, notebook, number, exercise, status (passed, failed, open: not begun, or not
    run: the lesson itself fails here), said, equal (the
    students who have this answer, by `normal`).
    A prediction is a row "guess: NAME" with number 0, which says why a wrong letter is wrong. A
    place that is there without a notebook of the course has one row, with number 0. Warns where
    this system cannot refuse answers something.

    Raises ValueError for a place that is not there.
    """
    sources = {n: nb for n, nb in book.course().items() if not numbers or n[:2] in numbers}
    handed_in = {name: list(_work(name, place, sources)) for name, place in _named(places).items()}
    work = [each for found in handed_in.values() for each in found]
    heard = _heard(work, sources, 60 * minutes, workers, dict(parameters or {}))
    rows: list[tuple[Any, ...]] = [
        (name, "", 0, "", "open", f"hands in none of {', '.join(sources)}", "")
        for name, found in handed_in.items()
        if not found
    ]
    for key, each in enumerate(work):
        ours = {cell.id: cell for cell in sources[each.notebook].cells}
        for number, exercise in enumerate(exercises(sources[each.notebook]), start=1):
            answer = each.answers.get(exercise.cell, "")
            status = _status(exercise, answer, heard.get((key, exercise.cell)), ours)
            equal = _equal(each, exercise, work, solutions.opened(ours[exercise.cell].source))
            rows.append((each.student, each.copy, number, exercise.name, *status, equal))
        for name, guessed, said in each.guesses:
            rows.append((each.student, each.copy, 0, f"guess: {name}", guessed, said, ""))
    columns = ["student", "notebook", "number", "exercise", "status", "said", "equal"]
    return pd.DataFrame(rows, columns=columns)


def progress(found: pd.DataFrame, folder: Path) -> Iterator[Path]:
    """Write a page for each student of what `grade` found: each exercise, and what to mend.

    A student's page tells nothing of others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for student, rows in found[found["number"] > 0].groupby("student", sort=False):
        table = rows[["notebook", "number", "exercise", "status", "said"]]
        done = f"{(rows['status'] == 'passed').sum()} of {len(rows)} exercises passed"
        page = _PROGRESS.format(
            name=escape(str(student)), done=done, rows=table.to_html(index=False)
        )
        path = folder / (re.sub(r"[^\w.-]+", "_", str(student)) + ".html")
        write_whole({path: partial(Path.write_text, data=page, encoding="utf-8")})
        yield path


# --- What was handed in ---------------------------------------------------------------------------


def _named(places: Sequence[Path]) -> dict[str, Path]:
    """The places by their students: by the whole path where two have one name."""
    for place in places:
        if not place.exists():
            raise ValueError(
                f"expected students' folders or notebooks, got {place}, which is not there"
            )
    names = [place.stem if place.is_file() else place.resolve().name for place in places]
    twice = Counter(names)
    return {
        name if twice[name] == 1 else str(place): place
        for name, place in zip(names, places, strict=True)
    }


def _work(student: str, place: Path, sources: Mapping[str, Any]) -> Iterator[_HandIn]:
    """A student's notebooks; a copy may have a longer name, such as anna_00_start_here.

    What a link finds outside the place was not handed in: it may be the course's own, or another's.
    """
    folder = place / "notebooks" if (place / "notebooks").is_dir() else place
    paths = [place] if place.is_file() else sorted(folder.glob("*.ipynb"))
    found = [(path, name) for path in paths for name in sources if name in path.stem]
    copies = Counter(name for _, name in found)
    for path, name in found:
        copy = name if copies[name] == 1 else path.stem
        own = path.is_file() and path.resolve().is_relative_to(place.resolve())
        cells = _cells(path) if own else []
        guesses = tuple(quiz.judged(name, cells))
        yield _HandIn(student, name, copy, _answers(cells, sources[name]), guesses)


def _cells(path: Path) -> list[NotebookNode]:
    """The code cells of a student's notebook; none of a broken file."""
    try:
        return list(code(nbformat.read(path, as_version=4)))
    except Exception:  # of whatever a broken file makes nbformat raise
        return []


def _answers(cells: list[NotebookNode], source: NotebookNode) -> dict[str, str]:
    """What a student wrote for each exercise.

    It is in the exercise's cell; where that has the stub or is gone, in the last that defines it.
    """
    found = {}
    for exercise in exercises(source):
        own = [cell.source for cell in cells if cell.get("id") == exercise.cell]
        if not own or STUB in own[0]:
            others = [c.source for c in cells if exercise.name in _DEFINED.findall(c.source)]
            own = [text for text in others if STUB not in text][-1:] or own or others
        if own:
            found[exercise.cell] = _MAGIC.sub("", solutions.own(own[0]))
    return found


def _equal(each: _HandIn, exercise: Exercise, work: Sequence[_HandIn], solution: str) -> str:
    """The students with this one's answer, if there are others and it is not the course's own."""
    if not each.is_begun(exercise.cell):
        return ""
    mine = normal(each.answers[exercise.cell])
    equal = {
        other.student
        for other in work
        if other.notebook == each.notebook and other.is_begun(exercise.cell)
        if normal(other.answers[exercise.cell]) == mine
    }
    return ", ".join(sorted(equal)) if len(equal) > 1 and mine != normal(solution) else ""


@cache
def normal(answer: str) -> str:
    """An answer as a tree: without comments, layout, docstrings, annotations and own names.

    >>> normal("def f(x: int): return x # one") == normal("def f(z): return z")
    True
    >>> normal("def f(x): return 2 * x") == normal("def f(x): return x * 2")
    False
    """
    try:
        return _tree(answer)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the latter two if it is deep
        return answer.strip()


def _tree(answer: str) -> str:
    tree = ast.parse(answer)
    own: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            if ast.get_docstring(node) is not None:
                node.body = node.body[1:]
        elif isinstance(node, ast.arg):
            node.annotation = None
            own.setdefault(node.arg, f"name {len(own)}")
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            own.setdefault(node.id, f"name {len(own)}")
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.arg = own[node.arg]
        elif isinstance(node, ast.Name):
            node.id = own.get(node.id, node.id)
    return ast.dump(tree)


# --- Judged ---------------------------------------------------------------------------------------


def _heard(
    work: Sequence[_HandIn],
    sources: Mapping[str, NotebookNode],
    seconds: float,
    workers: int,
    parameters: Mapping[str, Any],
) -> dict[tuple[int, str], Heard]:
    """What each check said, by the place of the hand-in in ``work`` and the exercise's cell."""
    heard: dict[tuple[int, str], Heard] = {}
    lessons: list[Lesson] = []
    total = sum(each.is_begun(cell) for each in work for cell in each.answers)
    bar = tqdm(total=total, desc="answers", leave=False)

    def judge(name: str) -> None:
        with Lesson(sources[name], parameters) as lesson:
            lessons.append(lesson)
            for exercise in exercises(sources[name]):
                for key, each in enumerate(work):
                    if each.notebook == name and each.is_begun(exercise.cell):
                        said = _judged(lesson, exercise, each, sources[name], seconds)
                        heard[key, exercise.cell] = said
                        bar.update()

    with bar, ThreadPoolExecutor(workers) as pool:
        try:
            begun = {each.notebook for each in work if any(map(each.is_begun, each.answers))}
            for done in as_completed([pool.submit(judge, name) for name in sorted(begun)]):
                done.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for lesson in lessons:
                lesson.end()
            raise
    if missing := {each for said in heard.values() for each in said.missing}:
        warnings.warn(
            f"this system does not keep students' answers from {', '.join(sorted(missing))}: grade "
            "in a container, as docs/teach.md says",
            stacklevel=3,
        )
    return heard


def _judged(
    lesson: Lesson, exercise: Exercise, work: _HandIn, source: NotebookNode, seconds: float
) -> Heard:
    """What the check of an exercise says of an answer.

    A check that shares an array with the answer sees what the answer changes in it. So an answer
    that changes one has to be right without that, too.
    """
    if error := lesson.run_to(exercise.cell):
        return Heard("", f"the lesson itself ends with {error}", ran=False)
    ours = {cell.id: cell for cell in source.cells}
    cells = [each.cell for each in exercises(source)]
    above = [cell for cell in cells[: cells.index(exercise.cell) + 1] if work.is_begun(cell)]
    theirs = [work.answers[cell] for cell in above]
    checks = [solutions.opened(ours[cell].source) for cell in exercise.checks]
    asked = Asked(exercise.functions, exercise.names, seconds)
    heard = lesson.judge(asked, theirs, checks)
    if heard.changed and not _wrong(exercise, heard, ours):
        again = lesson.judge(replace(asked, keep_changes=False), theirs, checks)
        if _wrong(exercise, again, ours):
            return replace(again, error="it is right only because it changes what it is given")
    return heard


# --- What is said ---------------------------------------------------------------------------------


def _status(
    exercise: Exercise, answer: str, heard: Heard | None, ours: Mapping[str, NotebookNode]
) -> tuple[str, str]:
    """The status of an exercise, and what is to be said of it."""
    if not answer:
        return "failed", f"no cell that can be read defines {exercise.name}"
    if heard is None:
        return "open", ""
    if not heard.ran:
        return "not run", heard.error
    wrong = _wrong(exercise, heard, ours)
    plain = "".join(c if c.isprintable() else "\ufffd" for c in wrong[:_LONGEST])
    return ("failed", plain) if wrong else ("passed", "")


def _wrong(exercise: Exercise, heard: Heard, ours: Mapping[str, NotebookNode]) -> str:
    """What is wrong with an answer by what its check said; '' where that is "right"."""
    if heard.error.startswith("NameError"):
        return f"{heard.error}; of a student's notebook only the cells of exercises are run"
    if heard.error:
        return heard.error
    expected = [line for i in exercise.checks for line in _printed(ours[i]).splitlines()]
    also = {_NUMBER.sub("#", line) for line in expected}
    lines = [line for line in heard.lines.splitlines() if line.strip()]
    others = [line for line in lines if not _says_right(line)]
    wrong = [line for line in others if _NUMBER.sub("#", line) not in also]
    if wrong or len(others) == len(lines):
        return (wrong or ["its check does not say that it is right"])[0]
    return ""


def _says_right(line: str) -> bool:
    found = RIGHT.search(line)
    return found is not None and "not" not in line[: found.start()].split()


def _printed(cell: NotebookNode) -> str:
    return "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
