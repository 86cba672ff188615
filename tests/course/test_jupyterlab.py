"""JupyterLab as `make lab` opens it: figures, where a student stops, and what moves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course import explorables, smoke
from course.student import copies

from .conftest import complaints, jupyterlab, run_all
from .reader import Reader, first_step, tour

pytestmark = pytest.mark.timeout(900)

SHOW = """
const [test, done] = arguments, content = jupyterapp.shell.currentWidget.content;
const i = content.widgets.findIndex((cell) => cell.model.id === test);
content.scrollToItem(i, "center").then(() => setTimeout(done, 1000));
"""


#: Between them these have all that a stage can have; JupyterLab sees the whole of no other.
WHOLE = ("norm_race", "springs")


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student's notebooks at the profile smoke, and one with all explorables."""
    folder = tmp_path_factory.mktemp("lab") / "course"
    for copy in copies(folder):
        nbformat.write(smoke.small(copy), copy)
    seen = "import os\n\ndel os.environ['DMLKIT_FIGURES']  # a reader reproduces nothing"
    cells = [new_code_cell(f"{seen}\nfrom dmlkit import figures")]
    cells += [new_code_cell(f"figures.explore({name!r}, None)") for name in explorables.names()]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=spec), folder / "moving.ipynb")
    return folder


@pytest.fixture(scope="module")
def lab(course: Path, chromium: Any) -> Iterator[str]:
    """The address of a JupyterLab with the course as its root."""
    with jupyterlab(course, DMLKIT_FIGURES=str(course.parent / "figures")) as address:
        yield address
        chromium.get("about:blank")  # what it complains of as it is left is no other test's
        complaints(chromium)


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


@pytest.fixture(scope="module")
def moving(chromium: Any, lab: str) -> Any:
    """The notebook with all explorables, which has run."""
    assert errors(run_all(chromium, lab, "moving.ipynb", limit=120)) == []
    return chromium


def seen(browser: Any, name: str) -> Reader:
    show = "jupyterapp.shell.currentWidget.content.scrollToItem(arguments[0], 'center')"
    browser.execute_script(show, 1 + explorables.names().index(name))
    return Reader(browser, name)


@pytest.mark.parametrize("name", explorables.names())
def test_an_explorable_answers(name: str, moving: Any) -> None:
    """On the stage of the site, where each is tried whole; numbers are Python's, keys those that
    JupyterLab leaves."""
    act = tour if name in WHOLE else first_step
    act(seen(moving, name))
    assert complaints(moving) == []


def test_a_lost_kernel_leaves_the_last_picture_and_a_sentence(moving: Any) -> None:
    from selenium.webdriver import Keys

    reader = seen(moving, "springs")
    numbers = "return [...arguments[0].querySelectorAll('[data-of]')].map((el) => el.textContent)"
    before = moving.execute_script(numbers, reader.root)
    shut = "jupyterapp.shell.currentWidget.sessionContext.shutdown().then(arguments[0])"
    moving.execute_async_script(shut)
    reader.all(".handle")[0].send_keys(Keys.ARROW_UP)
    reader.wait.until(lambda _: "run the cell again" in reader.all(".said")[0].text)
    assert moving.execute_script(numbers, reader.root)[1:] == before[1:]
    assert reader.all(".spring"), "the last picture stands"
