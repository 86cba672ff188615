"""The course as one book: its index, its notation, the links between its notebooks.

``python -m course.book`` writes ``notebooks/index.ipynb`` and the links at the top of each
notebook anew.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

import dmlkit
from dmlkit.files import write_whole

#: The figure that the index shows.
POSTER = "16_poster"
_POSTER_TEXT = (
    "## All losses on one sheet\n\nEquation, year, force and cost of each loss; notebook 16 draws "
    "it from the package itself, and says how to read it. Open the picture by itself to enlarge "
    "it.\n\n"
)

#: Tag of a cell that is folded in the printed book; in JupyterLab ``jupyter.source_hidden`` is.
HIDDEN = "hide-input"

_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
_LINKS = re.compile(r"^.*\]\(index\.ipynb\).*$\n*", re.MULTILINE)


@dataclass(frozen=True)
class Facts:
    """What the first cell of a notebook says of it."""

    title: str
    objectives: tuple[str, ...]
    prerequisites: str
    needs: tuple[str, ...]  # numbers of earlier notebooks
    minutes: Mapping[str, str]  # by profile


def course(folder: Path | None = None) -> dict[str, NotebookNode]:
    """Every notebook of the course by its name, in order."""
    paths = sorted((folder or dmlkit.ROOT / "notebooks").glob("[0-9]*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


# --- Index and links ------------------------------------------------------------------------------


def facts(notebook: NotebookNode) -> Facts:
    """Title, objectives, prerequisites and minutes from the first cell of a notebook.

    Raises:
        ValueError: the cell lacks one of them.
    """
    text = notebook.cells[0].source
    title = re.match(r"# (?:\d+ · )?(.+)", text)
    goals = re.findall(r"^- (.+)", text.partition("**Objectives.**")[2], re.MULTILINE)
    needs = re.search(r"\*\*Prerequisites\.\*\* (.+)", text)
    minutes = dict(re.findall(r"^\| *`(\w+)` *\|.*\| *([^|]+?) *\|$", text, re.MULTILINE))
    if not (title and goals and needs and minutes):
        raise ValueError(f"{text[:40]!r} lacks a title, objectives, prerequisites or minutes")
    return Facts(
        title[1], tuple(goals), needs[1], tuple(dict.fromkeys(_numbers(needs[1]))), minutes
    )


def _numbers(prerequisites: str) -> Iterator[str]:
    """Numbers of the notebooks that a sentence names: "Notebooks 00 to 02; the softmax"."""
    for part in re.findall(r"[Nn]otebooks? ([^;.]+)", prerequisites):
        for first, last in re.findall(r"\b(\d\d)\b(?: to (\d\d)\b)?", part):
            yield from (f"{i:02d}" for i in range(int(first), int(last or first) + 1))


def navigation(name: str, titles: Mapping[str, str]) -> str:
    """The line of links that a notebook has beneath its title; ``titles`` are those of the course.

    >>> navigation("01_b", {"00_a": "A", "01_b": "B"})
    '[← 00 A](00_a.ipynb) · [index](index.ipynb) · [glossary](glossary.ipynb)'
    """
    names = list(titles)
    place = names.index(name)
    links = [f"[← {n[:2]} {titles[n]}]({n}.ipynb)" for n in names[:place][-1:]]
    links += ["[index](index.ipynb)", "[glossary](glossary.ipynb)"]
    links += [f"[{n[:2]} {titles[n]} →]({n}.ipynb)" for n in names[place + 1 :][:1]]
    return " · ".join(links)


def linked(text: str, line: str) -> str:
    """The source of a first cell with this line of links beneath the title.

    >>> old = linked("# Title\\n\\nText", "[index](index.ipynb), old")
    >>> linked(old, "[index](index.ipynb)")
    '# Title\\n\\n[index](index.ipynb)\\n\\nText'
    """
    title, _, rest = _LINKS.sub("", text).partition("\n")
    return f"{title}\n\n{line}\n\n{rest.lstrip()}"


def index(notebooks: Mapping[str, NotebookNode]) -> NotebookNode:
    """The map of the course: minutes, prerequisites as a graph, and what each notebook teaches."""
    known = {name: facts(notebook) for name, notebook in notebooks.items()}
    rows = ["| notebook | needs | minutes (`smoke`, `ci`) |", "|---|---|---|"]
    for name, each in known.items():
        minutes = ", ".join(each.minutes.get(profile, "–") for profile in ("smoke", "ci"))
        needs = " ".join(each.needs) or "–"
        rows.append(f"| [{name[:2]} · {each.title}]({name}.ipynb) | {needs} | {minutes} |")
    graph = ["```mermaid", "graph LR"]
    graph += [f'  n{name[:2]}["{name[:2]} {each.title}"]' for name, each in known.items()]
    graph += [f"  n{n} --> n{name[:2]}" for name, each in known.items() for n in each.needs]
    goals = [
        f"**[{name[:2]} · {each.title}]({name}.ipynb)** {each.prerequisites}\n\n"
        + "\n".join(f"- {goal}" for goal in each.objectives)
        for name, each in known.items()
    ]
    alt = _alt(notebooks, POSTER)
    sources = [
        "# The course: index\n\nMinutes are those on two cores of a laptop, without a GPU. "
        "Symbols and words are in the [glossary](glossary.ipynb). `dmlkit student FOLDER` writes a "
        "version in which the exercises have no solutions.",
        "\n".join(rows),
        "## What needs what\n\nAn arrow leads from a notebook to one that builds on it.\n\n"
        + "\n".join([*graph, "```"]),
        *([_POSTER_TEXT + f"![{alt}](../figures/{POSTER}.png)"] if alt else []),
        "## What you can do afterwards\n\nEach with what it needs.\n\n" + "\n\n".join(goals),
    ]
    cells = [new_markdown_cell(source, id=f"page-{i}") for i, source in enumerate(sources)]
    return new_notebook(cells=cells, metadata={"kernelspec": _KERNEL})


def _alt(notebooks: Mapping[str, NotebookNode], figure: str) -> str:
    """The alt text of a figure's reference picture; '' if no notebook shows it."""
    text = "\n".join(cell.source for each in notebooks.values() for cell in each.cells)
    found = re.search(rf"!\[([^\]]+)\]\(\.\./figures/{figure}\.png\)", text)
    return found[1] if found else ""


# --- Notation -------------------------------------------------------------------------------------


def notation(notebook: NotebookNode) -> list[tuple[str, str]]:
    """Each symbol of a notebook's notation tables with its meaning, one symbol at a time.

    A row that has several symbols is split at the commas, and so is its meaning, where it has as
    many parts.
    """
    found = []
    for cell in notebook.cells:
        tables = re.findall(
            r"^\| *symbol *\| *meaning.*\n\|[-| :]+\n((?:\|.*\n?)+)", cell.source, re.M
        )
        for row in "".join(table.rstrip("\n") + "\n" for table in tables).splitlines():
            symbol, meaning = (part.strip() for part in _cells(row)[:2])
            symbols = _split(symbol) if "$" in symbol else [symbol]
            meanings = re.split(r"[,;] (?:and )?", meaning)
            same = len(meanings) == len(symbols)
            found += list(zip(symbols, meanings if same else [meaning] * len(symbols), strict=True))
    return found


def _cells(row: str) -> list[str]:
    """The cells of a row of a table, without its outer bars; a bar within $…$ is not one."""
    return re.findall(r"((?:\$[^$]*\$|`[^`]*`|[^|$`])+)", row.strip())


def _split(symbols: str) -> list[str]:
    """Symbols of a cell, '$a, p$, $x_{i,j}$' -> ['a', 'p', 'x_{i,j}'], without spaces."""
    outside = r"(?<!\\),(?![^{(\[]*[})\]])"  # of brackets
    spans = [re.split(outside, span) for span in re.findall(r"\$([^$]+)\$", symbols)]
    return [re.sub(r"\s+", " ", symbol).strip() for span in spans for symbol in span]


# --- The command ----------------------------------------------------------------------------------


def main() -> None:
    """Write what is made from the notebooks."""
    folder, notebooks = dmlkit.ROOT / "notebooks", course()
    titles = {name: facts(notebook).title for name, notebook in notebooks.items()}
    pages = {"index": index(notebooks), **notebooks}
    for name, notebook in notebooks.items():
        first = notebook.cells[0]
        first.source = linked(first.source, navigation(name, titles))
    texts = {folder / f"{name}.ipynb": nbformat.writes(each) + "\n" for name, each in pages.items()}
    write_whole({path: partial(Path.write_text, data=text) for path, text in texts.items()})


if __name__ == "__main__":
    main()
