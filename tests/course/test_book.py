"""The course as one book: findings, links, index and notation."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

import dmlkit
from course import book, findings

FOLDER = dmlkit.ROOT / "notebooks"
NOTEBOOKS = book.course()


def problems(notebook: NotebookNode, glossary: dict[str, str], line: str) -> list[str]:
    """What a notebook lacks; ``line`` is the line of links that it should have."""
    found = list(_symbols(notebook, glossary))
    if notebook.cells[0].source.split("\n\n")[1:2] != [line]:
        found.append(f"beneath the title there is not {line!r}")
    return found


def _symbols(notebook: NotebookNode, glossary: dict[str, str]) -> Iterator[str]:
    for symbol, meaning in book.notation(notebook):
        if symbol not in glossary:
            yield f"the glossary does not have ${symbol}$ ({meaning})"
        elif not meaning.startswith(glossary[symbol]):
            yield f"${symbol}$ is {meaning!r}, but in the glossary {glossary[symbol]!r}"


@pytest.fixture(scope="module")
def glossary() -> dict[str, str]:
    return dict(book.notation(nbformat.read(FOLDER / "glossary.ipynb", as_version=4)))


@pytest.fixture(scope="module")
def titles() -> dict[str, str]:
    return {name: book.facts(notebook).title for name, notebook in NOTEBOOKS.items()}


@pytest.fixture(scope="module")
def records(committed_figures: Path) -> dict[str, Any]:
    paths = committed_figures.glob("*.json")
    return {path.stem: json.loads(path.read_text("utf-8")) for path in paths}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_numbers_in_prose_are_those_of_the_figures(name: str, records: dict[str, Any]) -> None:
    assert list(findings.problems(NOTEBOOKS[name], name, records)) == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_keeps_the_standard(
    name: str, glossary: dict[str, str], titles: dict[str, str]
) -> None:
    assert problems(NOTEBOOKS[name], glossary, book.navigation(name, titles)) == []


def test_the_index_is_that_of_the_notebooks() -> None:
    committed = nbformat.read(FOLDER / "index.ipynb", as_version=4)
    assert committed == book.index(NOTEBOOKS), "run python -m course.book"
    targets = re.findall(r"\]\(([^)#]+)\)", "".join(cell.source for cell in committed.cells))
    assert targets
    assert not [target for target in targets if not (FOLDER / target).exists()]


def test_prerequisites_come_before() -> None:
    for name, notebook in NOTEBOOKS.items():
        assert all(needed < book.number(name) for needed in book.facts(notebook).needs), name


def test_a_symbol_has_one_meaning_in_the_glossary() -> None:
    table = book.notation(nbformat.read(FOLDER / "glossary.ipynb", as_version=4))
    assert len({symbol for symbol, _ in table}) == len(table) > 40
    assert len({meaning for _, meaning in table}) == len(table)


def test_symbols_are_read_one_by_one_with_their_meanings() -> None:
    table = """## Notation

| symbol | meaning | shape | in code |
|---|---|---|---|
| $a, p$ | anchor, positive | $(d,)$ | `a` |
| $D_{i,j}$, $\\lvert x \\rvert$ | distance; and length | $(a|b)$ | |
| $m$ | margin, a scalar | | `m` |
| nprobe | effort | | |

text"""
    notebook = new_notebook(cells=[new_markdown_cell(table)])
    assert book.notation(notebook) == [
        ("a", "anchor"), ("p", "positive"), ("D_{i,j}", "distance"),
        ("\\lvert x \\rvert", "length"), ("m", "margin, a scalar"), ("nprobe", "effort"),
    ]  # fmt: skip


def test_the_template_shows_the_standard_and_what_it_lacks_is_seen(
    glossary: dict[str, str],
) -> None:
    template = nbformat.read(FOLDER / "template.ipynb", as_version=4)
    line = "[index](index.ipynb) · [glossary](glossary.ipynb)"
    assert problems(template, glossary, line) == []
    for cell in template.cells:
        for old, new in (("| $d$ |", "| $\\Xi$ |"), (line, "")):
            cell.source = cell.source.replace(old, new)
    assert len(problems(template, glossary, line)) == 2


def test_writing_the_index_and_the_links_again_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    shutil.copytree(FOLDER, tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    book.main()
    for path in FOLDER.glob("*.ipynb"):
        assert (tmp_path / "notebooks" / path.name).read_bytes() == path.read_bytes()
