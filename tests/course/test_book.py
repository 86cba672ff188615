"""The course as one book: findings, links, index, notation, and code that draws out of sight.

What holds for every notebook now is tested for all. What the rewriting of a notebook brings is
tested for those in ``FINISHED``: whoever has rewritten one adds its name.
"""

import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

import dmlkit
from course import book, findings

FOLDER = dmlkit.ROOT / "notebooks"
NOTEBOOKS = book.course()
#: Notebooks that were rewritten, and keep the whole standard below.
FINISHED: tuple[str, ...] = (
    "00_start_here",
    "01_measuring_retrieval",
    "02_pairs",
    "03_mining",
    "04_batches",
    "05_prototypes",
    "06_clustering",
    "07_proxies",
    "08_memory_ensembles_curvature",
    "09_norms_and_gradients",
    "10_spherical_constraint",
    "11_norms_and_groups",
    "12_expansion_geometry",
    "13_expansion_training",
    "14_reading_papers",
    "15_fair_comparison",
    "16_what_matters",
    "17_embedding_maps",
    "18_failures_and_hubs",
    "19_your_own_images",
    "20_what_came_after",
    "21_fine_tuning",
)
#: The largest share of the code in sight that may draw.
DRAWN = 0.15


def problems(notebook: NotebookNode, glossary: dict[str, str], line: str) -> list[str]:
    """What a rewritten notebook lacks; ``line`` is the line of links that it should have."""
    checks = (_found(notebook), _drawn(notebook), _symbols(notebook, glossary))
    found = [problem for check in checks for problem in check]
    if notebook.cells[0].source.split("\n\n")[1:2] != [line]:
        found.append(f"beneath the title there is not {line!r}")
    return found


def _found(notebook: NotebookNode) -> Iterator[str]:
    """ "What we found": five sentences to quote, each number in them held against a figure."""
    prose = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    section = re.search(r"^## What we found\n(.*?)(?=^#|\Z)", prose, re.MULTILINE | re.DOTALL)
    items = re.findall(r"^(?:\d\.|-) (.+)", section[1], re.MULTILINE) if section else []
    if len(items) != 5:
        yield f"'## What we found' has {len(items)} points, expected 5"
    for item in items:
        numbers = re.findall(r"\d\.\d+|\d\s*\\?%", re.sub(r"<!--.*?-->", "", item))
        if len(numbers) > len(list(findings.findings(item))):
            yield f"a number is not marked with its figure in {item!r}"
    if section and not list(findings.findings(section[1])):
        yield "'## What we found' has no number of a figure"


def _drawn(notebook: NotebookNode) -> Iterator[str]:
    drawn, visible = book.drawing(notebook)
    if drawn > DRAWN * visible:
        yield f"{drawn} of {visible} lines in sight draw: fold their cells"


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


def test_finished_notebooks_are_in_the_course() -> None:
    assert set(FINISHED) <= NOTEBOOKS.keys()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_keeps_the_standard_or_is_to_be_rewritten(
    name: str, glossary: dict[str, str], titles: dict[str, str]
) -> None:
    found = problems(NOTEBOOKS[name], glossary, book.navigation(name, titles))
    if name in FINISHED:
        assert found == []
    else:
        assert found, f"{name} keeps the whole standard: add it to FINISHED"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_links_are_none_yet_or_the_right_ones(name: str, titles: dict[str, str]) -> None:
    first = NOTEBOOKS[name].cells[0].source
    if "](index.ipynb)" in first or name in FINISHED:
        assert book.navigation(name, titles) in first.split("\n\n")[1]


def test_the_index_is_that_of_the_notebooks() -> None:
    committed = nbformat.read(FOLDER / "index.ipynb", as_version=4)
    assert committed == book.index(NOTEBOOKS), "run python -m course.book"
    targets = re.findall(r"\]\(([^)#]+)\)", "".join(cell.source for cell in committed.cells))
    assert targets
    assert not [target for target in targets if not (FOLDER / target).exists()]


def test_prerequisites_come_before() -> None:
    for name, notebook in NOTEBOOKS.items():
        assert all(needed < name[:2] for needed in book.facts(notebook).needs), name


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


DRAWING = """
# 4 of these 10 lines of code draw
import matplotlib.pyplot as plt
x = 1

def dots(x):
    plt.plot(x)  # so that dots draws
    figures.save(
        fig, "a", {})

def mean(x):
    return figures.sample(x)
for i in range(3):
    x += 1
"""


@pytest.mark.parametrize(
    "cells, expected",
    [
        ([new_code_cell(DRAWING)], (4, 10)),
        ([new_code_cell(DRAWING), new_code_cell("dots(3)\n%time\nmean(3)")], (5, 12)),
        ([new_code_cell(DRAWING, metadata={"tags": ["hide-input"]})], (0, 0)),
        ([new_code_cell(DRAWING, metadata={"jupyter": {"source_hidden": True}})], (0, 0)),
        ([new_code_cell("for x in y:\n    axes.plot(x)\n    z = 1")], (1, 3)),
        ([new_code_cell("for x in y:\n    axes.plot(x)\nelse:\n    plt.show()")], (3, 3)),
        ([new_code_cell("fig, axes = plt.subplots()"), new_markdown_cell("text")], (1, 1)),
    ],
)
def test_lines_in_sight_that_draw_are_counted(
    cells: list[NotebookNode], expected: tuple[int, int]
) -> None:
    assert book.drawing(new_notebook(cells=cells)) == expected


@pytest.fixture
def template() -> NotebookNode:
    return copy.deepcopy(nbformat.read(FOLDER / "template.ipynb", as_version=4))


LINE = "[index](index.ipynb) · [glossary](glossary.ipynb)"


def test_the_template_shows_the_standard(template: NotebookNode, glossary: dict[str, str]) -> None:
    assert problems(template, glossary, LINE) == []


def _replace(old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        assert any(old in cell.source for cell in notebook.cells)
        for cell in notebook.cells:
            cell.source = cell.source.replace(old, new)

    return change


def _unfold(notebook: NotebookNode) -> None:
    for cell in notebook.cells:
        cell.metadata.pop("jupyter", None)
        cell.metadata["tags"] = []


BROKEN: list[tuple[str, Callable[[NotebookNode], Any]]] = [
    ("has 0 points, expected 5", _replace("## What we found", "## Results")),
    ("has 4 points, expected 5", _replace("\n5. ", "\n\n")),
    ("a number is not marked", _replace("<!-- template_spread: theory/-1 -->", "")),
    ("has no number of a figure", _replace("<!-- template_spread:", "<!-- see")),
    ("lines in sight draw", _unfold),
    ("does not have $\\Xi$", _replace("| $d$ |", "| $\\Xi$ |")),
    ("but in the glossary 'dimension", _replace("| dimension of the", "| size of the")),
    ("beneath the title", _replace(LINE, "[index](index.ipynb)")),
]


@pytest.mark.parametrize("expected, change", BROKEN, ids=[text for text, _ in BROKEN])
def test_the_checker_sees_what_is_missing(
    template: NotebookNode,
    glossary: dict[str, str],
    expected: str,
    change: Callable[[NotebookNode], Any],
) -> None:
    change(template)
    assert any(expected in problem for problem in problems(template, glossary, LINE))


def test_writing_the_index_and_the_links_twice_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, titles: dict[str, str]
) -> None:
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "notebooks").mkdir()
    for name, notebook in NOTEBOOKS.items():
        nbformat.write(notebook, tmp_path / "notebooks" / f"{name}.ipynb")
    contents = []
    for _ in range(2):
        book.main()
        contents.append({path.name: path.read_bytes() for path in tmp_path.rglob("*.*")
                         if path.is_file()})  # fmt: skip
    assert contents[0] == contents[1]
    for name, notebook in book.course().items():
        title, line, *_ = notebook.cells[0].source.split("\n\n")
        assert title.startswith("# ")
        assert line == book.navigation(name, titles)
