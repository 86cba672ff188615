"""The template of a notebook runs, and its answers are those that it gives."""

import io
import json
import shutil
from pathlib import Path

import nbformat
from rich.console import Console

import dmlkit
from course import findings, reproduce

FOLDER = dmlkit.ROOT / "notebooks"


def test_the_template_runs(tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    shutil.copy(FOLDER / "template.ipynb", tmp_path / "notebooks")
    page = io.StringIO()
    done = reproduce.reproduce(["template"], project=tmp_path, console=Console(file=page))
    assert done, page.getvalue()
    made = tmp_path / "build" / "smoke" / "template" / "figures"
    assert (made / "template_spread.png").exists()
    paths = [*(dmlkit.ROOT / "figures").glob("15_*.json"), *made.glob("*.json")]
    records = {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
    notebook = nbformat.read(FOLDER / "template.ipynb", as_version=4)
    assert list(findings.problems(notebook, "template", records)) == []
