"""Where the course can be opened without installing anything, by the repository's own address.

Whoever clones the project has its address in git: nothing here names one. Where there is none,
there are no links. ``python -m course.launch`` writes the notebooks, each with a cell that
installs dmlkit, into ``build/launch``; CI pushes them as the branch ``launch``, which Colab and
Kaggle open.
"""

import re
import shutil
import subprocess
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

import dmlkit
from course import outputs

_GITHUB = r"(?:https://(?:[^/@]+@)?|ssh://git@|git@)github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?"


def repository() -> str:
    """``owner/name`` of the repository on GitHub that git calls origin; '' if there is none."""
    command = ["git", "remote", "get-url", "origin"]
    try:
        done = subprocess.run(command, cwd=dmlkit.ROOT, capture_output=True, text=True)
    except OSError:  # no git
        return ""
    found = re.fullmatch(_GITHUB, done.stdout.strip())
    return found[1] if found else ""


def badges(path: str, repository: str) -> str:
    """Links that open a notebook of the repository, as Markdown; none without an address.

    >>> badges("notebooks/index.ipynb", "owner/dmlkit").split(" · ")[-1]
    '[open in Binder](https://mybinder.org/v2/gh/owner/dmlkit/HEAD?urlpath=lab/tree/notebooks/index.ipynb)'
    """
    file = f"{repository}/blob/launch/{path}"
    links = {
        "Colab": f"https://colab.research.google.com/github/{file}",
        "Kaggle": f"https://kaggle.com/kernels/welcome?src=https://github.com/{file}",
        "Binder": f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{path}",
    }
    shown = [f"[open in {service}]({address})" for service, address in links.items()]
    return " · ".join(shown) if repository else ""


def bootstrap(repository: str) -> NotebookNode:
    """A cell that installs dmlkit where it is missing: on Colab and Kaggle, which have torch.

    It installs loosely: without the versions of ``constraints.txt``, so that pip keeps what is
    there and new enough. The clone brings the figures and data that the notebooks refer to.
    """
    folder = repository.split("/")[1]
    source = f"""\
# Only where dmlkit is not installed, as on Colab and Kaggle: a minute or two.
from importlib.util import find_spec

if find_spec("dmlkit") is None:
    !git clone --quiet --depth 1 https://github.com/{repository}.git
    %pip install --quiet --editable {folder}
    import sys

    sys.path.insert(0, "{folder}")"""
    return new_code_cell(source, id="bootstrap", metadata={"tags": ["bootstrap"]})


def write(folder: Path, repository: str) -> None:
    """Write every notebook, with the cell that installs dmlkit, into ``folder/notebooks``.

    Raises ValueError where the repository has no address.
    """
    if not repository:
        raise ValueError("git knows no origin on GitHub: there is nothing to launch from")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "notebooks").mkdir(parents=True)
    for source in sorted((dmlkit.ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(source, as_version=4)
        if outputs.code(notebook):
            notebook.cells.insert(1, bootstrap(repository))
        nbformat.write(notebook, folder / "notebooks" / source.name)


if __name__ == "__main__":
    write(dmlkit.ROOT / "build" / "launch", repository())
