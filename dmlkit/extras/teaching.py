"""The course for students: the notebooks without their solutions and their outputs."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat

import dmlkit
from dmlkit import outputs

_SOLUTION = re.compile(
    r"^([ \t]*)### BEGIN SOLUTION$.*?^[ \t]*### END SOLUTION$", re.MULTILINE | re.DOTALL
)


def without_solution(source: str) -> str:
    """Code whose solution, marked as nbgrader marks it, has become a stub.

    >>> print(without_solution("a\\n  ### BEGIN SOLUTION\\n  b\\n  ### END SOLUTION\\nc"))
    a
      raise NotImplementedError("your turn")
    c
    """
    return _SOLUTION.sub(r'\1raise NotImplementedError("your turn")', source)


def _unfold(cell: nbformat.NotebookNode) -> None:
    """A folded solution becomes a stub in sight, where the reader is to write."""
    cell.metadata.pop("jupyter", None)
    tags = [tag for tag in cell.metadata.pop("tags", []) if tag != "hide-input"]
    if tags:
        cell.metadata["tags"] = tags


def copies(folder: Path) -> Iterator[Path]:
    """Write each notebook without its solutions and outputs, and give its path.

    The index and the glossary go with them, since every notebook links to both.

    Raises:
        ValueError: there are no notebooks, as this is not run from the project's folder.
    """
    sources = sorted((dmlkit.ROOT / "notebooks").glob("[0-9]*.ipynb"))
    if not sources:
        raise ValueError(f"no notebooks are in {dmlkit.ROOT}: run this in the project's folder")
    folder.mkdir(parents=True, exist_ok=True)
    for source in sources:
        notebook = outputs.bare(nbformat.read(source, as_version=4))
        for cell in notebook.cells:
            if cell.cell_type == "code" and (stub := without_solution(cell.source)) != cell.source:
                cell.source = stub
                _unfold(cell)
        nbformat.write(notebook, folder / source.name)
        yield folder / source.name
    for page in ("index.ipynb", "glossary.ipynb"):
        if (source := dmlkit.ROOT / "notebooks" / page).exists():
            shutil.copyfile(source, folder / page)
