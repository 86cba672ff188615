"""Where the course can be opened without installing anything, by the repository's own address.

Whoever clones the project has its address in git: nothing here names one. Where there is none,
there are no links. ``python -m course.launch`` writes the notebooks, each with a cell that
installs dmlkit, and the README with addresses and badges into ``build/launch``; CI pushes them as
the branch ``launch``, which Colab and Kaggle open.
"""

import posixpath
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

import dmlkit
from course import book, outputs

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


def colab(path: str, repository: str) -> str:
    """The address at which Colab opens a notebook of the repository."""
    return f"https://colab.research.google.com/github/{repository}/blob/launch/{path}"


def site(repository: str) -> str:
    """The address at which GitHub publishes the site.

    >>> site("Owner/dmlkit")
    'https://owner.github.io/dmlkit/'
    """
    owner, name = repository.split("/")
    return f"https://{owner.lower()}.github.io/{name}/"


def badges(path: str, repository: str) -> str:
    """Links that open a notebook of the repository, as Markdown; none without an address.

    >>> badges("notebooks/index.ipynb", "owner/dmlkit").split(" · ")[-1]
    '[open in Binder](https://mybinder.org/v2/gh/owner/dmlkit/HEAD?urlpath=lab/tree/notebooks/index.ipynb)'
    """
    links = {
        "Colab": colab(path, repository),
        "Kaggle": f"https://kaggle.com/kernels/welcome?src=https://github.com/{repository}/blob/launch/{path}",
        "Binder": f"https://mybinder.org/v2/gh/{repository}/HEAD?urlpath=lab/tree/{path}",
    }
    shown = [f"[open in {service}]({address})" for service, address in links.items()]
    return " · ".join(shown) if repository else ""


def absolute(text: str, folder: str, repository: str) -> str:
    """Markdown of a folder whose links and pictures are found from anywhere.

    >>> absolute("![Map](../figures/00_map.png)", "notebooks", "owner/dmlkit")
    '![Map](https://raw.githubusercontent.com/owner/dmlkit/HEAD/figures/00_map.png)'
    """

    def address(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, found[2]))
        if path.endswith(".ipynb"):
            return found[1] + colab(path, repository)
        if path.endswith((".png", ".gif", ".svg", ".webp")):
            return f"{found[1]}https://raw.githubusercontent.com/{repository}/HEAD/{path}"
        return f"{found[1]}https://github.com/{repository}/blob/HEAD/{path}"

    return re.sub(r'(\]\(|src=")(?!\w+:|#)([^)"\s#]+)', address, text)


def readme(repository: str) -> str:
    """The README with badges and with links that lead to the repository."""
    text = (dmlkit.ROOT / "README.md").read_text(encoding="utf-8")
    tests = f"https://github.com/{repository}/actions/workflows/tests.yml"
    links = badges("notebooks/index.ipynb", repository)
    line = f"[![tests]({tests}/badge.svg)]({tests}) · [site]({site(repository)}) · {links}"
    return absolute(book.linked(text, line), ".", repository)


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

    There, and in the README beside them, links and pictures have the repository's address.

    Raises ValueError where the repository has no address.
    """
    if not repository:
        raise ValueError("git knows no origin on GitHub: there is nothing to launch from")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "notebooks").mkdir(parents=True)
    for source in sorted((dmlkit.ROOT / "notebooks").glob("*.ipynb")):
        notebook = nbformat.read(source, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "markdown":
                cell.source = absolute(cell.source, "notebooks", repository)
        if outputs.code(notebook):
            notebook.cells.insert(1, bootstrap(repository))
        nbformat.write(notebook, folder / "notebooks" / source.name)
    (folder / "README.md").write_text(readme(repository), encoding="utf-8")


if __name__ == "__main__":
    write(dmlkit.ROOT / "build" / "launch", repository())
