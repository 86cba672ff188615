"""JupyterLab as `make lab` opens it: figures, and where a student stops."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course import smoke
from course.student import copies

from .conftest import complaints, jupyterlab, run_all

pytestmark = pytest.mark.timeout(900)

SHOW = """
const [test, done] = arguments, content = jupyterapp.shell.currentWidget.content;
const i = content.widgets.findIndex((cell) => cell.model.id === test);
content.scrollToItem(i, "center").then(() => setTimeout(done, 1000));
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student's notebooks at the profile smoke."""
    folder = tmp_path_factory.mktemp("lab") / "course"
    for copy in copies(folder):
        nbformat.write(smoke.small(copy), copy)
    return folder


@pytest.fixture(scope="module")
def lab(course: Path, chromium: Any) -> Iterator[str]:
    """The address of a JupyterLab with the course as its root."""
    with jupyterlab(course, DMLKIT_FIGURES=str(course.parent / "figures")) as address:
        yield address


def errors(cells: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """The error outputs, with the place of the cell."""
    outputs = [(i, output) for i, cell in enumerate(cells) for output in cell["outputs"]]
    return [(i, output) for i, output in outputs if output["output_type"] == "error"]


def test_a_student_sees_the_figures_and_stops_at_the_first_exercise(
    chromium: Any, lab: str
) -> None:
    cells = run_all(chromium, lab, "notebooks/00_start_here.ipynb")
    stub = next(i for i, cell in enumerate(cells) if "NotImplementedError" in cell["source"])
    ((place, error),) = errors(cells)
    assert place == stub + 1, "the check right after the first exercise says so, and nothing else"
    assert "your turn" in error["evalue"]
    assert not any(cell["execution_count"] for cell in cells[place + 1 :])
    drawn = [c for c in cells if any("image/png" in o.get("data", {}) for o in c["outputs"])]
    chromium.execute_async_script(SHOW, drawn[0]["id"])
    width = "return Math.max(...[...document.querySelectorAll('.jp-OutputArea img')].map(\
             (i) => i.naturalWidth))"
    assert chromium.execute_script(width) > 100
    assert [c for c in complaints(chromium) if c.startswith("a request to")] == []
