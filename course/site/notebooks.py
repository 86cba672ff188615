"""The course's notebooks as the site shows them: their own outputs, and nothing executed."""

import json
import re
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output
from PIL import Image

from course import book, explorables, launch, outputs, quiz, solutions
from dmlkit import ROOT

#: Where the site has what is a page of docs/.
_PAGES = {
    "teach.md": "teach.md",
    "ledger.md": "ledger/index.md",
    "which_loss.md": "losses/index.md",
}
_BESIDE = re.compile(r"(?<!!)\[([^]]+)\]\(\.\./(?!figures/)(?:docs/)?([^)#]+)(?:#[^)]*)?\)")
#: A guess with its folded answer, which the page sets apart.
_GUESS = re.compile(r"^\*\*Predict\.\*\* .+?</details>", re.MULTILINE | re.DOTALL)
_REFERENCE = re.compile(r"!\[([^\]]*)\]\((\.\./figures/\w+\.(?:png|gif))\)")


def figures() -> dict[str, dict[str, Any]]:
    """The record of every committed figure, by its name: words, numbers and where it was made."""
    paths = sorted((ROOT / "figures").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def picture(name: str, alt: str, up: str = "../") -> str:
    """A committed figure, with an anchor; ``up`` leads from the page to the root of the site.

    Where it moves, its explorable will stand in its place.
    """
    place = f"{up}figures/{name}"
    with Image.open(ROOT / "figures" / f"{name}.png") as drawn:
        wide, high = drawn.size
    still = (
        f'<figure class="figure"><a href="{place}.png"><img src="{place}.png" width="{wide}" '
        f'height="{high}" loading="lazy" alt="{escape(alt)}"></a><figcaption>'
        f'<a href="{place}.json">Numbers (JSON)</a></figcaption></figure>'
    )
    moves = explorables.of_figures().get(name)
    about = f' data-explorable="{moves}"' if moves else ""
    return f'<div id="fig-{name}"{about}>{still}</div>'


def _here(found: re.Match[str]) -> str:
    """A link out of notebooks/: to a page of the site, or, where it has none, its words."""
    return f"[{found[1]}](../{_PAGES[found[2]]})" if found[2] in _PAGES else found[1]


def _facts(found: re.Match[str]) -> str:
    """A lesson's line of minutes and needs."""
    read, do, works, needs = found.groups()
    minutes = f"<li>Read <b>{read}</b> min</li><li>Do <b>{do}</b> min</li>"
    machine = f"<li>The machine works {works} min</li>"
    return f'<ul class="facts">{minutes}{machine}<li>Needs {escape(needs)[:-1]}</li></ul>'


def _of_copies(cell: NotebookNode) -> bool:
    """Whether a cell is for those alone who work in the notebook: their guesses, its imports."""
    told = ("Write your letters here", "The imports, and one call")
    return bool(cell.source.startswith((f"{quiz.GUESSES} = ", *told)))


def _apart(found: re.Match[str]) -> str:
    return f'<div class="predict">\n\n{found[0]}\n\n</div>'


def write(folder: Path, course: dict[str, NotebookNode], known: dict[str, dict[str, Any]]) -> None:
    """Write each notebook, the index and the glossary into a folder of the sources.

    Where the repository has an address, the notebooks have links that open them elsewhere.
    """
    folder.mkdir(parents=True)
    repository = launch.repository()
    others = ("index", "glossary")
    pages = {n: nbformat.read(ROOT / "notebooks" / f"{n}.ipynb", as_version=4) for n in others}
    contents = "```{toctree}\n:hidden:\n\n" + "\n".join([*course, "glossary"]) + "\n```"
    pages["index"].cells.append(new_markdown_cell(contents, id="contents"))
    for name, notebook in course.items():
        first = notebook.cells[0]
        badges = launch.badges(f"notebooks/{name}.ipynb", repository)
        first.source = book.linked(first.source, badges)  # the page has links to its neighbors
        first.source = book.STUDY.sub(_facts, first.source)
    for name, notebook in (course | pages).items():
        notebook.cells = pictures_first([cell for cell in notebook.cells if not _of_copies(cell)])
        for cell in notebook.cells:
            if cell.cell_type == "code":
                _show(cell, known)
            else:  # else Sphinx would copy the picture to a place of its own
                cell.source = _REFERENCE.sub(
                    lambda found: f'<img src="{found[2]}" alt="{escape(found[1])}">', cell.source
                )
                cell.source = _BESIDE.sub(_here, cell.source)
                guess = re.compile(".+", re.DOTALL) if quiz.MARK.match(cell.source) else _GUESS
                cell.source = guess.sub(_apart, cell.source)
        nbformat.write(notebook, folder / f"{name}.ipynb")


def pictures_first(cells: list[NotebookNode]) -> list[NotebookNode]:
    """The cells of a page: code that prepares a picture is a part of that picture's folded code.

    So no page begins with settings and imports, and each picture has one line to unfold. What
    prepares nothing that is shown stays where it is.
    """
    found: list[NotebookNode] = []
    waiting: list[NotebookNode] = []
    for cell in cells:
        marks = outputs.tags(cell) if cell.cell_type == "code" else []
        solves = cell.cell_type == "code" and solutions.BEGIN in solutions.opened(cell.source)
        if solves or not {book.HIDDEN, "parameters"} & {*marks}:
            found.append(cell)
        elif cell.outputs:
            cell.source = "\n\n".join(each.source for each in (*waiting, cell))
            found.append(cell)
            waiting = []
        else:
            waiting.append(cell)
    for cell in waiting:
        cell.metadata["tags"] = sorted({*outputs.tags(cell), book.HIDDEN})
    return found + waiting


def _show(cell: NotebookNode, known: dict[str, dict[str, Any]]) -> None:
    """Fold what solves; say what a fold hides; a picture is the file that the gallery has, too."""
    if solutions.BEGIN in (text := solutions.opened(cell.source)):
        cell.source = text
        cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), book.HIDDEN})
        _prompt(cell, "Show the solution")
    elif not any("image/png" in output.get("data", {}) for output in cell.outputs):
        _prompt(cell, "Code")
    for i, output in enumerate(cell.outputs):
        about = output.get("metadata", {}).get("image/png", {})
        if name := about.get("figure"):
            html = picture(name, known[name]["alt"])
            cell.outputs[i] = new_output("display_data", {"text/html": html})


def _prompt(cell: NotebookNode, text: str) -> None:
    cell.metadata["mystnb"] = {"code_prompt_show": text}
