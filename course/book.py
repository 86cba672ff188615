"""The course as one book: its index, its notation, the links between its notebooks.

``python -m course.book`` writes ``notebooks/index.ipynb`` and the links at the top of each
notebook anew.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

import dmlkit
from dmlkit.files import write_whole

#: Tag of a cell that is folded in the printed book; in JupyterLab ``jupyter.source_hidden`` is.
HIDDEN = "hide-input"

_KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}
_LINKS = re.compile(r"^.*\]\(index\.ipynb\).*$\n*", re.MULTILINE)


#: "*Read 15 minutes, do 35; the machine works 1. Needs: 00, 02.*"
_STUDY = re.compile(
    r"^\*Read (?P<read>\d+) minutes, do (?P<do>\d+); the machine works [\d.]+\. "
    r"Needs: (?P<needs>.+)\*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Facts:
    """What the first cell of a notebook says of it."""

    title: str
    sentence: str  # the answer to the title's question
    read: int  # minutes of study
    do: int
    needs: tuple[str, ...]  # numbers of earlier notebooks


def course(folder: Path | None = None) -> dict[str, NotebookNode]:
    """Every notebook of the course by its name, in order."""
    paths = sorted((folder or dmlkit.ROOT / "notebooks").glob("[0-9]*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


# --- Index and links ------------------------------------------------------------------------------


def facts(notebook: NotebookNode) -> Facts:
    """Title, sentence, minutes of study and needs from the first cell of a notebook.

    Raises:
        ValueError: the cell lacks one of them.
    """
    text = notebook.cells[0].source
    title = re.match(r"# (?:\d+\w? · )?(.+)", text)
    sentence = re.search(r"\*\*In one sentence\.\*\* (.+)", text)
    study = _STUDY.search(text)
    if title and not study:  # the older form
        old = re.findall(r"\b\d\d\b", text.partition("**Prerequisites.**")[2].partition("\n")[0])
        said = re.split(r"(?<=[.?]) ", text.split("\n\n")[2].strip("*"))[0]
        return Facts(title[1], said, 20, 40, tuple(dict.fromkeys(old)))
    if not (title and sentence and study):
        raise ValueError(f"{text[:40]!r} lacks a title, its sentence or the minutes of study")
    needs = tuple(dict.fromkeys(re.findall(r"\b\d\d[a-z]?\b", study["needs"])))
    said = re.sub(r" ?<!--.*?-->", "", sentence[1])
    return Facts(title[1], said, int(study["read"]), int(study["do"]), needs)


def navigation(name: str, titles: Mapping[str, str]) -> str:
    """The line of links that a notebook has beneath its title; ``titles`` are those of the course.

    >>> navigation("01_b", {"00_a": "A", "01_b": "B"})
    '[← 00 A](00_a.ipynb) · [index](index.ipynb) · [glossary](glossary.ipynb)'
    """
    names = list(titles)
    place = names.index(name)
    links = [f"[← {number(n)} {titles[n]}]({n}.ipynb)" for n in names[:place][-1:]]
    links += ["[index](index.ipynb)", "[glossary](glossary.ipynb)"]
    links += [f"[{number(n)} {titles[n]} →]({n}.ipynb)" for n in names[place + 1 :][:1]]
    return " · ".join(links)


def linked(text: str, line: str) -> str:
    """The source of a first cell with this line of links beneath the title.

    >>> old = linked("# Title\\n\\nText", "[index](index.ipynb), old")
    >>> linked(old, "[index](index.ipynb)")
    '# Title\\n\\n[index](index.ipynb)\\n\\nText'
    """
    title, _, rest = _LINKS.sub("", text).partition("\n")
    return f"{title}\n\n{line}\n\n{rest.lstrip()}"


#: Parts of the course, each with the numbers that it begins and ends with, and three ways through.
PARTS = {
    "See it": ("00", "01"),
    "Pairs": ("02", "04"),
    "Classes": ("05", "07b"),
    "More": ("08", "08c"),
    "The sphere": ("09", "13"),
    "Evidence": ("14", "16b"),
    "Look": ("17", "18"),
    "Practice on photographs": ("19", "99"),
}
PATHS = {
    "One evening": ("00", "01", "02", "19"),
    "My own photographs": ("00", "01", "19", "22"),
    "Reading papers": ("00", "01", "14", "15"),
}


def number(name: str) -> str:
    """That of a notebook: "07b_margins" -> "07b"."""
    return name.partition("_")[0]


def index(notebooks: Mapping[str, NotebookNode]) -> NotebookNode:
    """The map of the course: three ways through it, and each notebook with its answer."""
    known = {name: facts(notebook) for name, notebook in notebooks.items()}
    names = {number(name): name for name in known}
    ways = ["| you have | then read | minutes |", "|---|---|---|"]
    for way, numbers in PATHS.items():
        there = [names[n] for n in numbers if n in names]
        links = " → ".join(f"[{number(n)} {known[n].title}]({n}.ipynb)" for n in there)
        minutes = sum(known[n].read + known[n].do for n in there)
        ways.append(f"| **{way}** | {links} | {minutes} |")
    parts = []
    for part, (first, last) in PARTS.items():
        rows = [
            f"## {part}",
            "",
            "| | notebook | read, do (minutes) | needs |",
            "|---|---|---|---|",
        ]
        for name, each in known.items():
            if first <= number(name) <= last:
                picture = _first_picture(notebooks[name])
                shown = f'<img src="../figures/{picture}.png" width="150" alt="">' * bool(picture)
                link = f"**[{number(name)} · {each.title}]({name}.ipynb)**<br>{each.sentence}"
                needs = " ".join(each.needs) or "–"
                rows.append(f"| {shown} | {link} | {each.read}, {each.do} | {needs} |")
        parts.append("\n".join(rows))
    sources = [
        "# The course\n\nEach notebook asks one question, and takes about an hour. Words and "
        "symbols are in the [glossary](glossary.ipynb). `dmlkit student FOLDER` writes a version "
        "in which the exercises have no solutions.",
        "## Three ways through\n\n" + "\n".join(ways),
        *parts,
    ]
    cells = [new_markdown_cell(source, id=f"page-{i}") for i, source in enumerate(sources)]
    return new_notebook(cells=cells, metadata={"kernelspec": _KERNEL})


def _first_picture(notebook: NotebookNode) -> str:
    """The name of the first figure that a notebook saves; '' if it saves none."""
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    found = re.search(r"figures\.save\(\s*\w+,\s*\"([\w-]+)\"", code)
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
