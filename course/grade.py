"""Who passed what: the exercises in students' notebooks, run and judged by the course's checks.

Of a student's notebook only the cells of its exercises are taken. They stand in the course's own
notebook in place of the solutions, so that every check is the course's. An answer passes when its
check says what it says of the solution, but for the numbers. An error or an endless loop ends that
exercise alone. This guards against mistakes, not against malice: it runs the students' code.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from nbformat import NotebookNode
from rich.console import Console

from course import book
from course.execution import Job, run_all
from course.student import STUB

#: What becomes of an exercise; ``open`` was not begun, ``missing`` was not handed in.
PASSED, OPEN, FAILED, MISSING = "passed", "open", "failed", "missing"
_SLOW_CELLS = 10  # of one notebook may take all of their time
_RIGHT = re.compile(r"(?:^|: )right(?=$|[:;.,])")
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\b(?:nan|inf)\b")
_DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise of a notebook: what is to be written, and the cells that check it."""

    name: str  # of the function or class that is to be written
    cell: str  # the id of the cell that it is written in
    checks: tuple[str, ...]  # ids of the cells that check it


@dataclass(frozen=True)
class _Work:
    """A student's notebook: the answers in it by the ids of their cells, or why there are none."""

    student: str
    notebook: str
    answers: Mapping[str, str]
    fault: str = ""
    missing: bool = False

    @property
    def begun(self) -> bool:
        return any(STUB not in answer for answer in self.answers.values())


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """The exercises of one of the course's notebooks, in order.

    A check is a code cell below a solution, above the next exercise or heading.
    """
    found: list[tuple[str, str, list[str]]] = []
    inside = False
    for cell in notebook.cells:
        if "### BEGIN SOLUTION" in cell.source:
            found.append((_DEFINED.findall(cell.source)[0], cell.id, []))
            inside = True
        elif cell.cell_type == "markdown":
            inside = inside and not re.match(r"#+ |\*\*\d+\. ", cell.source)
        elif inside:
            found[-1][2].append(cell.id)
    return [Exercise(name, cell, tuple(checks)) for name, cell, checks in found]


def grade(
    places: Sequence[Path],
    numbers: Sequence[str] = (),
    minutes: float = 3,
    workers: int = 1,
    parameters: Mapping[str, Any] | None = None,
) -> pd.DataFrame:
    """Grade the exercises of every notebook in these folders: one row for each.

    A place is a student's folder, with notebooks in it or in its ``notebooks/``, or one notebook.
    What others handed in and a folder lacks is ``missing``. ``numbers`` ("00", "03") choose among
    the notebooks; ``minutes`` is what one cell may take, and a tenth of what one notebook may;
    ``parameters`` override those of the notebooks. The course's own notebooks run too, since
    their solutions show what a check says of a right answer.

    Columns: student, notebook, number, exercise, status (passed, open, failed or missing), said.

    Raises:
        ValueError: no place has a notebook of the course, or one is neither a folder nor one.
        RuntimeError: one of the course's own notebooks fails here.
    """
    sources = {n: nb for n, nb in book.course().items() if not numbers or n[:2] in numbers}
    work = _handed_in(places, sources)
    with tempfile.TemporaryDirectory() as folder:

        def job(name: str, notebook: NotebookNode) -> Job:
            path = Path(folder, f"{name}.ipynb")
            nbformat.write(notebook, path)
            given = dict(parameters or {})
            return Job(name, path, given, str, Path(folder), cell_seconds=round(60 * minutes))

        jobs = [job(name, sources[name]) for name in dict.fromkeys(w.notebook for w in work)]
        for i, each in enumerate(work):
            if each.begun:
                jobs.append(job(str(i), _answered(sources[each.notebook], each.answers)))
        ran = dict(_run(jobs, workers, 60 * minutes * _SLOW_CELLS))
    rows = []
    for i, each in enumerate(work):
        ours, theirs = ran[each.notebook], ran.get(str(i), {})
        for number, exercise in enumerate(exercises(sources[each.notebook]), start=1):
            about = (each.student, each.notebook, number, exercise.name)
            rows.append((*about, *_judged(exercise, each, ours, theirs)))
    columns = ["student", "notebook", "number", "exercise", "status", "said"]
    return pd.DataFrame(rows, columns=columns)


def in_short(grades: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    """Head and rows of a table: one row for a student's notebook, one column for an exercise."""
    table = grades.pivot(index=["student", "notebook"], columns="number", values="status")
    passed = (
        (table == PASSED).sum(axis=1).astype(str) + " of " + table.notna().sum(axis=1).astype(str)
    )
    rows = [
        [*where, *row, passed[where]]
        for where, row in zip(table.index, table.fillna("").values, strict=True)
    ]
    return ["student", "notebook", *map(str, table.columns), "passed"], rows


def told(grades: pd.DataFrame) -> Iterator[str]:
    """A line for each thing that was said of what failed: who, where, and what."""
    failed = grades[grades["status"] == FAILED]
    for about, rows in failed.groupby(["student", "notebook", "said"], sort=False):
        student, notebook, said = map(str, about)
        which = [f"{row.number} ({row.exercise})" for row in rows.itertuples()]
        what = "exercise" if len(which) == 1 else "exercises"
        yield f"{student}, {notebook[:2]}, {what} {', '.join(which)}: {said}"


def _handed_in(places: Sequence[Path], sources: Mapping[str, NotebookNode]) -> list[_Work]:
    """The notebooks of all students, and for each folder those that only others handed in."""
    found = {place: list(_work(place, sources)) for place in places}
    there = {work.notebook for each in found.values() for work in each}
    for place, each in found.items():
        if not (there if place.is_dir() else each):
            raise ValueError(
                f"{place} has none of the notebooks {', '.join(sources)}: expected a folder for "
                "each student, with them in it or in its notebooks/, or single notebooks"
            )
        if place.is_dir():
            lacking = there - {work.notebook for work in each}
            student = place.resolve().name
            each += [_Work(student, name, {}, missing=True) for name in sorted(lacking)]
    return [work for each in found.values() for work in each]


def _work(place: Path, sources: Mapping[str, NotebookNode]) -> Iterator[_Work]:
    """The notebooks of one student; a copy may have a longer name, such as anna_00_start_here."""
    folder = place / "notebooks" if (place / "notebooks").is_dir() else place
    paths = [place] if place.is_file() else sorted(folder.glob("*.ipynb"))
    for path, name in [(path, name) for path in paths for name in sources if name in path.stem]:
        student = place.stem if place.is_file() else place.resolve().name
        try:
            answers = _answers(nbformat.read(path, as_version=4), sources[name])
            yield _Work(student, name, answers)
        except Exception as error:  # of whatever a broken file makes nbformat raise
            yield _Work(student, name, {}, f"{path.name} cannot be read: {error}".split("\n")[0])


def _answers(notebook: NotebookNode, source: NotebookNode) -> dict[str, str]:
    """What a student wrote for each exercise: in its cell, or in the last one that defines it."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    found = {}
    for exercise in exercises(source):
        own = [cell for cell in cells if cell.get("id") == exercise.cell]
        own = own or [c for c in cells if exercise.name in _DEFINED.findall(c.source)][-1:]
        if own:
            found[exercise.cell] = own[0].source
    return found


def _answered(source: NotebookNode, answers: Mapping[str, str]) -> NotebookNode:
    """The course's notebook with a student's answers, in which an error ends only its own cell."""
    notebook = nbformat.from_dict(source)
    for exercise in exercises(source):
        for cell in notebook.cells:
            if cell.id == exercise.cell:
                cell.source = answers.get(cell.id, "")
            if cell.id in (exercise.cell, *exercise.checks):
                cell.metadata["tags"] = [*cell.metadata.get("tags", []), "raises-exception"]
    return notebook


def _run(
    jobs: Sequence[Job], workers: int, seconds: float
) -> Iterator[tuple[str, dict[str, NotebookNode]]]:
    """The cells of each job by their ids, as far as it ran."""
    for run, complaint in run_all(jobs, workers, seconds, Console()):
        if complaint and not run.job.name.isdigit():
            raise RuntimeError(f"the course's own {run.job.name} fails here: {complaint}")
        cells = {}
        with suppress(OSError, ValueError):  # not there, or cut off in the middle of a write
            executed = nbformat.read(run.job.staging / "executed.ipynb", as_version=4)
            cells = {cell.id: cell for cell in executed.cells}
        yield run.job.name, cells


def _judged(
    exercise: Exercise,
    work: _Work,
    ours: Mapping[str, NotebookNode],
    theirs: Mapping[str, NotebookNode],
) -> tuple[str, str]:
    """The status of an exercise, and what is to be said of it."""
    if work.missing:
        return MISSING, ""
    answer = work.answers.get(exercise.cell, "")
    if work.fault or not answer.strip():
        return FAILED, work.fault or f"no cell defines {exercise.name}"
    if STUB in answer:
        return OPEN, ""
    cells = [theirs[i] for i in (exercise.cell, *exercise.checks) if i in theirs]
    errors = [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    if errors:
        return FAILED, _in_words(errors[0])
    if not cells or not all(map(_ended, cells)):
        return FAILED, "it was not reached within the time, or ended the kernel"
    expected, lines = (
        [line for i in exercise.checks for line in _lines(ran[i])] for ran in (ours, theirs)
    )
    if len(lines) == len(expected) and all(map(_alike, lines, expected)):
        return PASSED, ""
    wrong = [line for line in lines if not any(_alike(line, right) for right in expected)]
    return FAILED, (wrong or ["its check says less than it says of a right answer"])[0]


def _ended(cell: NotebookNode) -> bool:
    """Whether the kernel answered that the cell was done: one that dies may still count it."""
    return "shell.execute_reply" in cell.metadata.get("execution", {})


def _in_words(error: NotebookNode) -> str:
    if error.ename == "KeyboardInterrupt":
        return "it did not end within the time"
    name = "" if error.ename == "AssertionError" and error.evalue else f"{error.ename}: "
    return (name + error.evalue).partition("\n")[0]


def _lines(cell: NotebookNode) -> list[str]:
    text = "".join(o.text for o in cell.outputs if o.get("name") == "stdout")
    return [line for line in text.splitlines() if line.strip()]


def _alike(line: str, expected: str) -> bool:
    """Whether two lines of a check say the same: both "right", or equal but for their numbers.

    >>> _alike("right: 7 of 10", "right: 8 of 10"), _alike("not right: 7", "right: 8")
    (True, False)
    """
    right = bool(_RIGHT.search(line)) and bool(_RIGHT.search(expected))
    return right or _NUMBER.sub("#", line) == _NUMBER.sub("#", expected)
