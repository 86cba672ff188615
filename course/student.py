"""The course for students: the notebooks without their solutions and their outputs."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat

import dmlkit
from course import launch, outputs, solutions

# What the notebooks show, link to or read, beside themselves; of data/ the published part.
_BESIDE = (
    *("notebooks/index.ipynb", "notebooks/glossary.ipynb", "figures/*", "data/*.csv", "data/*.md"),
    *("data/reported/*", "data/tuning/*", "data/evidence/*", "data/studies/*", "data/pretrained/*"),
    *("data/features/*", "docs/*.md"),
)


def copies(folder: Path, solved: bool = False) -> Iterator[Path]:
    """Write each notebook without its solutions and outputs, and give its path.

    With ``solved``, for a teacher, the solutions stand open instead.

    They lie in ``folder/notebooks``; what they refer to (the index, the reference pictures, the
    published data) goes with them, so that the folder can be taken anywhere. Where the project has
    an address on GitHub, each notebook begins with a cell that installs dmlkit if it is missing.

    Raises ValueError where the folder is the project's.
    """
    if folder.resolve() == dmlkit.ROOT.resolve():
        raise ValueError(f"{folder} is the project itself: name another folder, such as student")
    repository = launch.repository()
    (folder / "notebooks").mkdir(parents=True, exist_ok=True)
    for source in sorted((dmlkit.ROOT / "notebooks").glob("[0-9]*.ipynb")):
        notebook = outputs.bare(nbformat.read(source, as_version=4))
        for cell in outputs.code(notebook):
            text = (solutions.opened if solved else solutions.without)(cell.source)
            if text != cell.source:
                cell.source = text
                cell.metadata.clear()  # it was folded, and is where the reader is to write
        if repository:
            notebook.cells.insert(1, launch.bootstrap(repository))
        copy = folder / "notebooks" / source.name
        nbformat.write(notebook, copy)
        yield copy
    for source in (path for pattern in _BESIDE for path in dmlkit.ROOT.glob(pattern)):
        copy = folder / source.relative_to(dmlkit.ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
