"""The course's notebooks as the site shows them: their own outputs, and nothing executed."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_output
from PIL import Image

from course import book, launch
from course.site import drawings
from dmlkit import ROOT

_SOLUTION = "### BEGIN SOLUTION"
_REFERENCE = re.compile(r"!\[([^\]]*)\]\((\.\./figures/\w+\.(?:png|gif))\)")


@dataclass(frozen=True)
class Figure:
    """A committed figure: its picture, its words, its numbers' file and where it was made."""

    name: str
    alt: str
    caption: str
    provenance: dict[str, Any]
    size: tuple[int, int]

    @property
    def notebook(self) -> str:
        return str(self.provenance["notebook"])

    def html(self, up: str = "../") -> str:
        """The picture, with an anchor; ``up`` leads from the page to the root of the site."""
        width, height = (2 * pixels // 3 for pixels in self.size)  # as in JupyterLab
        return (
            f'<figure class="figure" id="fig-{self.name}"><a href="{up}figures/{self.name}.png">'
            f'<img src="{up}figures/{self.name}.png" alt="{escape(self.alt)}" loading="lazy" '
            f'width="{width}" height="{height}"></a></figure>'
        )


def figures(folder: Path | None = None) -> dict[str, Figure]:
    """Every committed figure by its name."""
    found = {}
    for path in sorted((folder or ROOT / "figures").glob("*.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        with Image.open(path.with_suffix(".png")) as picture:
            size = picture.size
        alt, caption, provenance = (record[key] for key in ("alt", "caption", "provenance"))
        found[path.stem] = Figure(path.stem, alt, caption, provenance, size)
    return found


def pages(
    notebooks: dict[str, NotebookNode], facts: dict[str, book.Facts], known: dict[str, Figure]
) -> Iterator[tuple[str, str]]:
    """Each notebook's place in the site and its text, as JSON; then the index and the glossary.

    Where the repository has an address, the notebooks have links that open them elsewhere.
    """
    titles = {name[:2]: each.title for name, each in facts.items()}
    drawn = drawings.course_map(titles, {name[:2]: each.needs for name, each in facts.items()})
    repository = launch.repository()
    for name, notebook in notebooks.items():
        first = notebook.cells[0]
        badges = launch.badges(f"notebooks/{name}.ipynb", repository)
        first.source = book.linked(first.source, badges)  # the page has links to its neighbors
        for cell in notebook.cells:
            if cell.cell_type == "code":
                _show(cell, known)
            else:
                cell.source = _REFERENCE.sub(_picture, cell.source)
        yield f"notebooks/{name}.ipynb", nbformat.writes(notebook)
    for name in ("index", "glossary"):
        notebook = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
        for cell in notebook.cells:
            before, graph, rest = cell.source.partition("```mermaid")
            if graph:
                cell.source = before + drawn + rest.partition("```")[2]
            cell.source = _REFERENCE.sub(_picture, cell.source)
        if name == "index":
            names = "\n".join([*notebooks, "glossary"])
            contents = f"```{{toctree}}\n:hidden:\n\n{names}\n```"
            notebook.cells.append(new_markdown_cell(contents, id="contents"))
        yield f"notebooks/{name}.ipynb", nbformat.writes(notebook)


def _picture(found: re.Match[str]) -> str:
    """A picture that a text shows as an element, as Sphinx would copy it to a place of its own."""
    return f'<img src="{found[2]}" alt="{escape(found[1])}" loading="lazy">'


def _show(cell: NotebookNode, known: dict[str, Figure]) -> None:
    """Fold what draws and what solves; a picture is the file that the gallery has, too."""
    if _SOLUTION in cell.source:
        cell.metadata["tags"] = sorted({*cell.metadata.get("tags", []), book.HIDDEN})
        cell.metadata["mystnb"] = {"code_prompt_show": "Show the solution"}
    for i, output in enumerate(cell.outputs):
        about = output.get("metadata", {}).get("image/png", {})
        if "figure" in about:
            html = known[about["figure"]].html()
            cell.outputs[i] = new_output("display_data", {"text/html": html})
