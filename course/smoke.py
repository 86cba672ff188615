"""Copies of the notebooks at the profile smoke, for nbval: ``python -m course.smoke``."""

import shutil

import nbformat
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from dmlkit import ROOT


def main() -> None:
    """Write them to build/nbval."""
    folder = ROOT / "build" / "nbval"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = load_notebook_node(str(path))
        if any("parameters" in cell.metadata.get("tags", []) for cell in notebook.cells):
            notebook = parameterize_notebook(notebook, {"profile": "smoke"})
        nbformat.write(notebook, folder / path.name)


if __name__ == "__main__":
    main()
