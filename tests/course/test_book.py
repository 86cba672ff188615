"""The course as one book: findings, links, index and glossary."""

import json
import re
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import nbformat
import pytest
from nbformat import NotebookNode

import dmlkit
from course import book, findings, quiz, solutions

ROOT = dmlkit.ROOT
FOLDER = ROOT / "notebooks"
NOTEBOOKS = book.course()


def linked(notebook: NotebookNode, line: str) -> bool:
    """Whether a notebook has this line of links beneath its title."""
    return notebook.cells[0].source.split("\n\n")[1:2] == [line]


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
def test_the_ends_of_an_interval_are_in_order(name: str) -> None:
    text = "\n".join(c.source for c in NOTEBOOKS[name].cells if c.cell_type == "markdown")
    plain = re.sub("<!--.*?-->", "", text).replace("−", "-")
    ends = re.findall(r"\[(-?\d+(?:\.\d+)?), (-?\d+(?:\.\d+)?)\]", plain)
    assert [(low, high) for low, high in ends if float(low) > float(high)] == []


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_what_a_run_makes_right_holds_in_the_figures(name: str, records: dict[str, Any]) -> None:
    said = [each for item in quiz.items(name).values() for each in item.holds]
    assert [fault for each in said for fault in findings.broken(each, records)] == []


def test_each_notebook_has_its_links_beneath_the_title(titles: dict[str, str]) -> None:
    assert [n for n in NOTEBOOKS if not linked(NOTEBOOKS[n], book.navigation(n, titles))] == []


def test_the_index_is_that_of_the_notebooks() -> None:
    committed = nbformat.read(FOLDER / "index.ipynb", as_version=4)
    assert committed == book.index(NOTEBOOKS), "run python -m course.book"
    targets = re.findall(r"\]\(([^)#]+)\)", "".join(cell.source for cell in committed.cells))
    targets += re.findall(r'src="(\.\.[^"]+)"', "".join(cell.source for cell in committed.cells))
    assert len(targets) > 2 * len(NOTEBOOKS)
    assert not [target for target in targets if not (FOLDER / target).exists()]


def test_the_index_is_read_in_minutes() -> None:
    text = re.sub(r"<[^>]*>", " ", _text(book.index(NOTEBOOKS).cells))
    assert len(re.findall(r"\S*\w\S*", text)) <= 47 * len(NOTEBOOKS)
    for name, facts in ((name, book.facts(notebook)) for name, notebook in NOTEBOOKS.items()):
        assert f"[{book.number(name)} · {facts.title}]({name}.ipynb)" in text


def test_every_way_through_the_course_is_there() -> None:
    named = {name for path in book.PATHS.values() for name in path}
    named |= {first for first, _ in book.PARTS.values()}
    assert named <= NOTEBOOKS.keys()


def test_what_follows_from_other_needs_is_not_drawn() -> None:
    facts = {f"{n}_x": book.Facts(n, n, 1, 1, needs) for n, needs in
             (("00", ()), ("01", ("00",)), ("02", ("00", "01")), ("03", ("00",)))}  # fmt: skip
    direct = book.reduced(facts)
    assert direct == {"00_x": [], "01_x": ["00_x"], "02_x": ["01_x"], "03_x": ["00_x"]}
    drawing = ElementTree.fromstring(book.drawing(direct))
    tag = "{http://www.w3.org/2000/svg}"
    assert len(drawing.findall(f".//{tag}path")) == 3
    assert len(drawing.findall(f".//{tag}rect")) == 1 + 4


def test_prerequisites_come_before() -> None:
    for name, notebook in NOTEBOOKS.items():
        assert all(needed < book.number(name) for needed in book.facts(notebook).needs), name


def rows(heading: str) -> list[tuple[list[str], list[str]]]:
    """Cells, and names of the lessons, of each row of the glossary whose head begins so."""
    text = _text(nbformat.read(FOLDER / "glossary.ipynb", as_version=4).cells)
    tables = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text, re.M)
    return [
        (re.split(r" ?\| ?", row)[1:-1], re.findall(r"\((\w+)\.ipynb\)", row))
        for table in tables
        for row in table.splitlines()
    ]


def _text(cells: list[NotebookNode]) -> str:
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def _code(notebook: NotebookNode) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def has_symbol(notebook: NotebookNode, symbol: str) -> bool:
    """Whether a formula of a notebook has a symbol; i, j and k may be other letters there."""
    found = re.findall(r"\$\$(.+?)\$\$|\$([^$\n]+?)\$", _text(notebook.cells), re.S)
    formulas = "\n".join(re.sub(r"\s", "", "".join(each)) for each in found)
    pattern = re.escape(re.sub(r"\s", "", symbol))
    pattern = re.sub(r"_(\\\{[ijk]+\\\}|[ijk])(?!\w)", r"_\\{?\\w+", pattern)
    begin = "" if symbol.startswith("\\") else r"(?<![A-Za-z\\])"
    return bool(re.search(rf"{begin}{pattern}(?![A-Za-z])", formulas))


def test_a_symbol_is_in_the_formulas_and_in_the_code_of_its_lessons() -> None:
    wrong, table = [], rows("symbol")
    for (symbol, meaning, code, _), names in table:
        assert names, symbol
        lessons = [NOTEBOOKS[name] for name in names]
        wrong += [
            f"{name} has no formula with {symbol}, {meaning}"
            for name in names
            if not has_symbol(NOTEBOOKS[name], symbol.strip("$"))
        ]
        word = re.match(r"`(?:geometry\.)?(\w+)", code)
        sources = [
            "\n".join(
                [*map(solutions.opened, _code(lesson)), *re.findall("`[^`]+`", _text(lesson.cells))]
            )
            for lesson in lessons
        ]
        if word and not any(re.search(rf"(?<!\w){word[1]}(?!\w)", each) for each in sources):
            wrong.append(f"no code of {', '.join(names)} has {code} for {symbol}")
    assert len(table) > 40
    assert wrong == []


def test_a_word_is_in_the_text_of_the_lessons_that_teach_it() -> None:
    wrong, table = [], rows("word")
    for cells, names in table:
        word = cells[0].strip("*")
        stems = [re.sub(r"\W", "", each)[:6] for each in re.split(r", | \(", word)]
        for name in names:
            text = re.sub(r"\W", "", _text(NOTEBOOKS[name].cells)).lower()
            if not any(stem.lower() in text for stem in stems):
                wrong.append(f"{name} does not speak of {word}")
        assert names or "../docs/" in cells[2], cells[0]
    assert len(table) > 50
    assert wrong == []


def test_each_symbol_and_each_word_has_one_row() -> None:
    for heading in ("symbol", "word"):
        table = [cells[0] for cells, _ in rows(heading)]
        assert len(set(table)) == len(table)
    meanings = [cells[1] for cells, _ in rows("symbol")]
    assert len(set(meanings)) == len(meanings)


def test_the_template_has_its_links() -> None:
    template = nbformat.read(FOLDER / "template.ipynb", as_version=4)
    assert linked(template, "[index](index.ipynb) · [glossary](glossary.ipynb)")


def test_writing_the_index_and_the_links_again_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dmlkit, "ROOT", tmp_path)
    shutil.copytree(FOLDER, tmp_path / "notebooks", ignore=shutil.ignore_patterns(".*"))
    (tmp_path / "docs").mkdir()
    pages = (*FOLDER.glob("*.ipynb"), ROOT / "README.md", ROOT / "docs" / "teach.md")
    for path in pages[-2:]:
        shutil.copyfile(path, tmp_path / path.relative_to(ROOT))
    book.main()
    for path in pages:
        assert (tmp_path / path.relative_to(ROOT)).read_bytes() == path.read_bytes(), path
