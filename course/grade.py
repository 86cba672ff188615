"""Who passed what: the exercises in students' notebooks, run and judged by the course's checks.

Of a student's notebook only the cells of its exercises are taken. They stand in the course's own
notebook in place of the solutions, so that every check is the course's. An answer passes when its
check says "right" and nothing else, but what it also said of the solution when the outputs of the
course were written, up to the numbers. An error or an endless loop ends that exercise alone. This
guards against mistakes, not against malice: it runs the students' code.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import pandas as pd
from nbformat import NotebookNode
from tqdm.auto import tqdm

from course import book
from course.execution import Job, begun, run_all
from course.outputs import code, tags
from course.student import STUB

_SLOW_CELLS = 10  # of one notebook may take all of their time
_RIGHT = re.compile(r"(?:^|: )right(?=$|[:;.,])")
_NUMBER = re.compile(r"[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\b(?:nan|inf)\b")
_DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Exercise:
    """One exercise of a notebook: what is to be written, and the cells that check it."""

    name: str  # of the function or class that is to be written
    cell: str  # the id of the cell that it is written in
    checks: list[str]  # ids of the cells that check it


def exercises(notebook: NotebookNode) -> list[Exercise]:
    """The exercises of one of the course's notebooks, in order.

    A check is a code cell below a solution, above the next exercise or heading.
    """
    found: list[Exercise] = []
    inside = False
    for cell in notebook.cells:
        if "### BEGIN SOLUTION" in cell.source:
            found.append(Exercise(_DEFINED.findall(cell.source)[0], cell.id, []))
            inside = True
        elif cell.cell_type == "markdown":
            inside = inside and not re.match(r"#+ |\*\*\d+\. ", cell.source)
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
    ``numbers`` ("00", "03") choose among the notebooks; ``minutes`` is what one cell may take, and
    a tenth of what one notebook may; ``parameters`` override those of the notebooks.

    Columns: student, notebook, number, exercise, status (passed, failed, or open: not begun), said.
    A place that is there without a notebook of the course has one row, with number 0.

    Raises ValueError for a place that is not there.
    """
    sources = {n: nb for n, nb in book.course().items() if not numbers or n[:2] in numbers}
    handed_in = {place: list(_work(place, sources)) for place in places}
    work = [(*found, sources[found[1]]) for each in handed_in.values() for found in each]
    ran: dict[str, dict[str, NotebookNode]] = {}
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for key, (_, _, answers, source) in enumerate(work):
            if any(STUB not in answer for answer in answers.values()):
                path, given = Path(folder, f"{key}.ipynb"), dict(parameters or {})
                nbformat.write(_answered(source, answers), path)
                job = Job(str(key), path, given, Path(folder), cell_seconds=round(60 * minutes))
                jobs.append(job)
        done = run_all(jobs, workers, 60 * minutes * _SLOW_CELLS)
        for job, *_ in tqdm(done, "notebooks", len(jobs), leave=False):
            ran[job.name] = {cell.id: cell for cell in begun(job)}
    nothing = ("", 0, "", "open", f"hands in none of {', '.join(sources)}")
    rows = [(place.resolve().name, *nothing) for place, found in handed_in.items() if not found]
    for key, (student, name, answers, source) in enumerate(work):
        ours = {cell.id: cell for cell in source.cells}
        for number, each in enumerate(exercises(source), start=1):
            judged = _judged(each, answers.get(each.cell, ""), ran.get(str(key), {}), ours)
            rows.append((student, name, number, each.name, *judged))
    columns = ["student", "notebook", "number", "exercise", "status", "said"]
    return pd.DataFrame(rows, columns=columns)


def _work(place: Path, sources: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Student, notebook and answers; a copy may have a longer name, such as anna_00_start_here."""
    folder = place / "notebooks" if (place / "notebooks").is_dir() else place
    paths = [place] if place.is_file() else sorted(folder.glob("*.ipynb"))
    found = [(path, name) for path in paths for name in sources if name in path.stem]
    if not place.exists():
        raise ValueError(
            f"expected students' folders or notebooks, got {place}, which is not there"
        )
    for path, name in found:
        student = place.stem if place.is_file() else place.resolve().name
        yield student, name, _answers(path, sources[name])


def _answers(path: Path, source: NotebookNode) -> dict[str, str]:
    """What a student wrote for each exercise: in its cell, or in the last one that defines it."""
    try:
        cells = code(nbformat.read(path, as_version=4))
    except Exception:  # of whatever a broken file makes nbformat raise
        return {}
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
                cell.metadata["tags"] = [*tags(cell), "raises-exception"]
    return notebook


def _judged(
    exercise: Exercise,
    answer: str,
    theirs: Mapping[str, NotebookNode],
    ours: Mapping[str, NotebookNode],
) -> tuple[str, str]:
    """The status of an exercise, and what is to be said of it."""
    if not answer:
        return "failed", f"no cell that can be read defines {exercise.name}"
    if STUB in answer:
        return "open", ""
    cells = [theirs[i] for i in (exercise.cell, *exercise.checks) if i in theirs]
    errors = [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    if errors:
        ended = errors[0].ename == "KeyboardInterrupt"
        said = f"{errors[0].ename}: {errors[0].evalue}".partition("\n")[0]
        said = re.sub(r"\(\d+\.py, line", "(of its cell, line", said)
        return "failed", "it did not end within the time" if ended else said
    # A kernel that dies counts its last cell, but does not answer that it is done.
    done = [cell for cell in cells if "shell.execute_reply" in cell.metadata.get("execution", {})]
    if len(done) <= len(exercise.checks):
        return "failed", "it was not reached within the time, or ended the kernel"
    lines, expected = (
        [line for i in exercise.checks for line in _lines(side[i])] for side in (theirs, ours)
    )
    also = {_NUMBER.sub("#", line) for line in expected}
    others = [line for line in lines if not _RIGHT.search(line)]
    wrong = [line for line in others if _NUMBER.sub("#", line) not in also]
    if wrong or len(others) == len(lines):
        return "failed", (wrong or ["its check does not say that it is right"])[0]
    return "passed", ""


def _lines(cell: NotebookNode) -> list[str]:
    text = "".join(output.text for output in cell.outputs if output.get("name") == "stdout")
    return [line for line in text.splitlines() if line.strip()]
