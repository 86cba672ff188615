"""The notebooks at the profile smoke, for nbval: ``python -m course.smoke`` writes build/nbval.

One that ``make figures`` has run here as it is now is left out: the same cells have run, with more
steps, and what nbval would compare, ``dmlkit reproduce --check`` has compared.

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

from course import reproduce
from course.outputs import code
from dmlkit import ROOT

FILES = 6  # more than cores, so that all are busy to the end


def small(path: Path) -> NotebookNode:
    """A notebook whose parameters are those of the profile smoke."""
    return parameterize_notebook(load_notebook_node(str(path)), {"profile": "smoke"})


def has_run(path: Path, build: Path) -> bool:
    """Whether a build has a run of a notebook as it is now, and that says what is committed."""
    job = reproduce.plan(path, "ci", {}, build)
    return reproduce.is_run(job) and not any(reproduce.moved(job))


def main() -> None:
    """Write them to build/nbval, a sixth of the course into one file."""
    folder = ROOT / "build" / "nbval"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    paths = [p for p in sorted((ROOT / "notebooks").glob("*.ipynb")) if code(nbformat.read(p, 4))]
    paths = [path for path in paths if not has_run(path, ROOT / "build" / "ci")]
    each = max(1, -(-len(paths) // FILES))
    for first in range(0, len(paths), each):
        cells, some = [], paths[first:][:each]
        for path in some:
            cells += [new_code_cell(f"# {path.name}\n%reset -f"), *code(small(path))]
        for number, cell in enumerate(cells):
            cell.id = f"cell-{number}"
        whole = new_notebook(cells=cells, metadata=nbformat.read(some[0], 4).metadata)
        nbformat.write(whole, folder / f"{first // each}.ipynb")


if __name__ == "__main__":
    main()
