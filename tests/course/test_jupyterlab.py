"""JupyterLab as `make lab` opens it: figures, where a student stops, a slider."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import dmlkit
from course import smoke
from course.student import copies

from .conftest import complaints, jupyterlab, run_all

pytestmark = pytest.mark.timeout(900)

SLIDER, WITH_A_SLIDER = "ipywidgets.interactive", "13_norms_and_gradients.ipynb"
SHOW = """
const [test, done] = arguments, content = jupyterapp.shell.currentWidget.content;
const i = content.widgets.findIndex((cell) => cell.model.id === test);
content.scrollToItem(i, "center").then(() => setTimeout(done, 1000));
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The student's notebooks at the profile smoke, and one with a slider.

    Of that what follows on the slider is left out: it has nothing to do with it, and takes most of
    the time.
    """
    folder = tmp_path_factory.mktemp("lab") / "course"
    for copy in copies(folder):
        nbformat.write(smoke.small(copy), copy)
    notebook = smoke.small(dmlkit.ROOT / "notebooks" / WITH_A_SLIDER)
    (place,) = (i for i, cell in enumerate(notebook.cells) if SLIDER in cell.source)
    notebook.cells = notebook.cells[: place + 1]
    nbformat.write(notebook, folder / WITH_A_SLIDER)
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


def test_the_slider_moves_the_figure(chromium: Any, lab: str) -> None:
    from selenium.webdriver import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    cells = run_all(chromium, lab, WITH_A_SLIDER)
    assert errors(cells) == []
    assert all(cell["execution_count"] for cell in cells)
    (widget,) = [c for c in cells if SLIDER in c["source"]]
    chromium.execute_async_script(SHOW, widget["id"])
    image = "document.querySelector('.jp-OutputArea .widget-html img')"
    picture = f"return {image}?.src"
    before = WebDriverWait(chromium, 30).until(lambda b: b.execute_script(picture))
    about = f"const i = {image}; return [i.alt, i.naturalWidth, i.clientWidth]"
    alt, own, shown = chromium.execute_script(about)
    assert alt
    assert shown <= own, "it is not blown up"
    handle = chromium.find_elements("css selector", ".widget-slider .noUi-handle")[1]
    handle.send_keys(Keys.ARROW_RIGHT)
    WebDriverWait(chromium, 30).until(lambda b: b.execute_script(picture) != before)


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
