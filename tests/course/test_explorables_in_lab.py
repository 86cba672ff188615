"""What a reader sees of explorables in JupyterLab is what torch computes."""

from collections.abc import Iterator
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course import explorables

from .conftest import complaints, jupyterlab, run_all
from .test_explorables import Reader, tour

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]
#: In JupyterLab a share of them, to save minutes: one stage and one widget serve all.
IN_LAB = explorables.names()[::4]


@pytest.fixture(scope="module")
def in_lab(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Any]:
    """A notebook with some explorables, which has run in JupyterLab."""
    folder = tmp_path_factory.mktemp("lab") / "course"
    folder.mkdir()
    cells = [new_code_cell("from dmlkit import figures")]
    cells += [new_code_cell(f"figures.explore({name!r}, None)") for name in IN_LAB]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=spec), folder / "all.ipynb")
    with jupyterlab(folder) as address:
        ran = run_all(chromium, address, "all.ipynb", limit=240)
        assert [o for c in ran for o in c["outputs"] if o["output_type"] == "error"] == []
        yield chromium


@pytest.mark.parametrize("place, name", [*enumerate(IN_LAB, start=1)])
def test_in_a_notebook(place: int, name: str, in_lab: Any) -> None:
    show = "jupyterapp.shell.currentWidget.content.scrollToItem(arguments[0], 'center')"
    in_lab.execute_script(show, place)
    tour(Reader(in_lab, name))
    assert complaints(in_lab) == []
