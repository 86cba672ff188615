"""The notebooks at the profile smoke, for nbval: ``python -m course.smoke`` writes build/nbval.

Several notebooks are one file, whose kernel begins each with an empty namespace: a kernel of its
own would import torch once more for each, which takes longer than many of them. Neighbors share a
kernel, so that UMAP is compiled once.
"""

import shutil
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from course.outputs import code
from dmlkit import ROOT

FILES = 6  # more than cores, so that all are busy to the end


def small(path: Path) -> NotebookNode:
    """A notebook whose parameters are those of the profile smoke."""
    return parameterize_notebook(load_notebook_node(str(path)), {"profile": "smoke"})


def main() -> None:
    """Write them to build/nbval, a sixth of the course into one file."""
    folder = ROOT / "build" / "nbval"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = [p for p in sorted((ROOT / "notebooks").glob("*.ipynb")) if code(nbformat.read(p, 4))]
    each = -(-len(paths) // FILES)
    for first in range(FILES):
        cells, some = [], paths[first * each :][:each]
        for path in some:
            cells += [new_code_cell(f"# {path.name}\n%reset -f"), *code(small(path))]
        for number, cell in enumerate(cells):
            cell.id = f"cell-{number}"
        kernel = nbformat.read(some[0], 4).metadata
        nbformat.write(new_notebook(cells=cells, metadata=kernel), folder / f"{first}.ipynb")


if __name__ == "__main__":
    main()
