"""JupyterLab as `make lab` opens it: figures, where a student stops, a slider."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import dmlkit
from course import smoke
from course.student import copies

from .conftest import complaints

pytestmark = pytest.mark.timeout(900)

SLIDER, WITH_A_SLIDER = "ipywidgets.interactive", "13_norms_and_gradients.ipynb"
RUN_ALL = """
const panel = jupyterapp.shell.currentWidget;
window.ran = null;
panel.context.ready.then(() => panel.sessionContext.ready)
  .then(() => jupyterapp.commands.execute("notebook:run-all-cells"))
  .then(() => { window.ran = JSON.stringify(panel.content.model.sharedModel.toJSON()); },
        (error) => { window.ran = JSON.stringify({error: String(error)}); });
"""
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
    settings = {
        "ServerApp.ip": "127.0.0.1", "ServerApp.port": "0", "ServerApp.port_retries": "0",
        "ServerApp.open_browser": "False", "ServerApp.allow_root": "True",
        "IdentityProvider.token": "''", "LabApp.expose_app_in_browser": "True",
        "LabApp.news_url": "None", "LabApp.check_for_updates_class":
        "jupyterlab.NeverCheckForUpdate", "LabApp.workspaces_dir": str(course.parent / "w"),
    }  # fmt: skip
    outputs = {
        "DMLKIT_FIGURES": str(course.parent / "figures"), "PYTHONPATH": str(dmlkit.ROOT),
        "JUPYTER_RUNTIME_DIR": str(course.parent / "run"), "PYTHONUNBUFFERED": "1",
        "JUPYTER_CONFIG_DIR": str(course.parent / "config"),
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyter", "lab", str(course)]
    with (course.parent / "lab.log").open("w+") as log:
        server = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in settings.items())],
            stdout=log, stderr=log, env=os.environ | outputs,
        )  # fmt: skip
        try:
            yield _address(course.parent / "lab.log", limit=120)
        finally:
            server.terminate()
            server.wait(timeout=30)


def _address(log: Path, limit: float) -> str:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/lab", log.read_text()):
            address = found[0].removesuffix("/lab")
            urllib.request.urlopen(f"{address}/api", timeout=10).close()
            return address
        time.sleep(0.5)
    raise TimeoutError(f"JupyterLab did not start in {limit} s:\n{log.read_text()}")


def run_all(browser: Any, lab: str, path: str, limit: float = 420) -> list[dict[str, Any]]:
    """Open a notebook, run all of it, and give its code cells."""
    from selenium.webdriver.support.ui import WebDriverWait

    complaints(browser)
    browser.get(f"{lab}/lab/tree/{path}?reset")
    ready = "return Boolean(window.jupyterapp?.shell.currentWidget?.context?.path === arguments[0])"
    WebDriverWait(browser, 90).until(lambda b: b.execute_script(ready, path))
    browser.execute_script(RUN_ALL)
    ran = WebDriverWait(browser, limit, 1).until(lambda b: b.execute_script("return window.ran"))
    notebook = json.loads(ran)
    assert "error" not in notebook, notebook
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


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
