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

#: Tag and id of the cell that installs dmlkit where it is not there.
BOOTSTRAP = "bootstrap"
#: The branch whose notebooks have that cell.
BRANCH = "launch"


def repository(folder: Path | None = None) -> str:
    """``owner/name`` of the repository on GitHub that git calls origin; '' if there is none."""
    command = ["git", "remote", "get-url", "origin"]
    try:
        done = subprocess.run(
            command, cwd=folder or dmlkit.ROOT, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return name(done.stdout)


def name(address: str) -> str:
    """``owner/name`` of an address on GitHub, in any of git's forms; '' for an address elsewhere.

    >>> name("git@github.com:owner/dml.kit.git"), name("https://github.com/owner/dmlkit/")
    ('owner/dml.kit', 'owner/dmlkit')
    >>> name("https://example.org/owner/dmlkit")
    ''
    """
    host = r"(?:https://(?:[^/@]+@)?|ssh://git@|git@)github\.com[:/]"
    found = re.fullmatch(rf"{host}([\w.-]+/[\w.-]+?)(?:\.git)?/?", address.strip())
    return found[1] if found else ""


def links(path: str, repository: str) -> dict[str, str]:
    """Addresses that open a notebook of the repository, by the service; none without an address.

    >>> links("notebooks/index.ipynb", "owner/dmlkit")["Binder"]
    'https://mybinder.org/v2/gh/owner/dmlkit/HEAD?urlpath=lab/tree/notebooks/index.ipynb'
    >>> links("notebooks/index.ipynb", "")
    {}
    """
    if not repository:
        return {}
    file = f"{repository}/blob/{BRANCH}/{path}"
    return {
        "Colab": f"https://colab.research.google.com/github/{file}",
        "Kaggle": f"https://kaggle.com/kernels/welcome?src=https://github.com/{file}",
        "Binder": f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{path}",
    }


def badges(path: str, repository: str) -> str:
    """The links as Markdown, without pictures, which a reader's machine would have to fetch.

    >>> badges("notebooks/index.ipynb", "")
    ''
    """
    found = links(path, repository).items()
    return " · ".join(f"[open in {service}]({address})" for service, address in found)


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
    return new_code_cell(source, id=BOOTSTRAP, metadata={"tags": [BOOTSTRAP]})


def write(folder: Path, repository: str) -> list[Path]:
    """Write every notebook, with the cell that installs dmlkit, into ``folder/notebooks``.

    Raises:
        ValueError: the repository has no address.
    """
    if not repository:
        raise ValueError("git knows no origin on GitHub: there is nothing to launch from")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "notebooks").mkdir(parents=True)
    written = []
    for source in sorted((dmlkit.ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(source, as_version=4)
        if any(cell.cell_type == "code" for cell in notebook.cells):
            notebook.cells.insert(1, bootstrap(repository))
        written.append(folder / "notebooks" / source.name)
        nbformat.write(notebook, written[-1])
    return written


if __name__ == "__main__":
    write(dmlkit.ROOT / "build" / BRANCH, repository())
