"""The course's standard, as far as a machine can check it, for every notebook in notebooks/."""

import ast
import copy
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_output

import dmlkit
from course import book, check, outputs, solutions
from dmlkit import checks, exercises
from tests import lesson

FOLDER = dmlkit.ROOT / "notebooks"
#: Made by course.book, from the others.
PAGES = ("index", "glossary")
NOTEBOOKS = [path for path in sorted(FOLDER.glob("*.ipynb")) if path.stem not in PAGES]
COURSE = [path for path in NOTEBOOKS if path.stem[0].isdigit()]
#: All notebooks with their pictures, photographs too, in bytes: a repository cloned in seconds.
BUDGET = 11_000_000
#: Notebooks that show evidence, for which the project's other packages may be imported.
EVIDENCE = ("18", "19", "20", "21", "29")
ANNOTATIONS = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def problems(notebook: NotebookNode, name: str) -> list[str]:
    """What a notebook called ``name`` lacks of the standard."""
    checks = (_parameters, _outputs, _cells, _figures, _widgets, _exercises, lesson.problems)
    found = [problem for check in checks for problem in check(notebook)]
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("the kernel is not called python3")
    starts = [call for call in _calls(notebook.cells) if _name(call) == "figures.begin_notebook"]
    if [_text(call.args[0]) for call in starts if call.args] != [name]:
        found.append(f"figures.begin_notebook is not called once, with {name!r}")
    return found


def _code(cells: list[NotebookNode]) -> list[NotebookNode]:
    return [cell for cell in cells if cell.cell_type == "code"]


def _calls(cells: list[NotebookNode]) -> Iterator[ast.Call]:
    for cell in _code(cells):
        plain = "\n".join(line for line in cell.source.splitlines() if line[:1] not in ("%", "!"))
        yield from (node for node in ast.walk(ast.parse(plain)) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _text(node: ast.expr | None) -> str:
    """A literal string, or the code of what is not one; '' for nothing."""
    if node is None:
        return ""
    return node.value if isinstance(node, ast.Constant) else ast.unparse(node)


def _parameters(notebook: NotebookNode) -> Iterator[str]:
    code = _code(notebook.cells)
    tagged = [cell for cell in code if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        yield f"{len(tagged)} cells are tagged parameters, expected one"
        return
    names = set()
    for statement in ast.parse(tagged[0].source).body:
        code = ast.unparse(statement)
        if not isinstance(statement, ast.AnnAssign) or statement.value is None:
            yield f"parameters: {code!r} is not annotated, such as 'seeds: int = 3'"
            continue
        names.add(ast.unparse(statement.target))
        try:
            value = ast.literal_eval(statement.value)
            literal = json.loads(json.dumps(value)) == value
        except (ValueError, TypeError):
            literal = False
        kind = ANNOTATIONS.get(ast.unparse(statement.annotation).split("[")[0])
        if not literal or kind is None or type(value) is not kind:
            yield f"parameters: {code!r} is not a JSON literal of its type"
    if any("=" in line.partition("#")[2] for line in tagged[0].source.splitlines()):
        yield "parameters: a comment holds '=', which papermill takes for a value"
    if missing := {"profile", "seeds", "device"} - names:
        yield f"parameters: {', '.join(sorted(missing))} missing"
    if "}.get(profile, (" not in "\n".join(cell.source for cell in _code(notebook.cells)):
        yield "sizes are not looked up: seeds, steps = {...}.get(profile, (seeds, steps))"


def _outputs(notebook: NotebookNode) -> Iterator[str]:
    for cell in _code(notebook.cells):
        first = cell.source.partition("\n")[0]
        checked = outputs.CHECKED in cell.metadata.get("tags", [])
        if checked and not cell.outputs:
            yield f"{first!r} should keep its output, but has none"
        if cell.outputs and cell.execution_count is None:
            yield f"{first!r} keeps its output without an execution count: nbval refuses that"
        if cell.execution_count is not None and not cell.outputs:
            yield f"{first!r} has an execution count, but no output"
        if any(output.get("data", {}).keys() == {"text/plain"} for output in cell.outputs):
            yield f"{first!r} shows what its last expression is, which nobody asked for"
        if checked and any("text" not in output for output in cell.outputs):
            yield f"{first!r} is compared word for word, but shows more than words"


def _cells(notebook: NotebookNode) -> Iterator[str]:
    cells, seen, introduced = notebook.cells, 0, 0
    for before, cell in zip([None, *cells], cells, strict=False):
        if cell.cell_type != "code":
            continue
        if (lines := len(cell.source.splitlines())) > 25:
            yield f"{cell.source.partition(chr(10))[0]!r} has {lines} lines, above 25"
        folded = "hide-input" in cell.metadata.get("tags", [])
        if not folded and not cell.source.startswith("exercises.check"):
            seen += 1
            introduced += before is not None and before.cell_type == "markdown"
    if introduced < 0.8 * seen:
        yield f"only {introduced} of {seen} code cells that readers see follow a sentence"


def _figures(notebook: NotebookNode) -> Iterator[str]:
    for name, given in saved(notebook.cells):
        for argument in ("alt", "caption"):
            if not _text(given.get(argument)).strip():
                yield f"figure {name!r} has no {argument}"


def saved(cells: list[NotebookNode]) -> Iterator[tuple[str, dict[str, ast.expr]]]:
    """Name and arguments of every figure that cells save."""
    for call in _calls(cells):
        if _name(call) == "figures.save":
            places = ("fig", "name", "data", "alt", "caption")
            given: dict[str, Any] = dict(zip(places, call.args, strict=False))
            given |= {str(keyword.arg): keyword.value for keyword in call.keywords}
            yield _text(given.get("name")), given


def _widgets(notebook: NotebookNode) -> Iterator[str]:
    # Plain papermill can wait for ever for a cell whose widget captures outputs (nbclient, 312).
    for name in map(_name, _calls(notebook.cells)):
        if re.search(r"\b(interact|interact_manual|interactive_output|Output)$", name):
            yield f"{name} captures what a cell shows: draw into an ipywidgets.HTML"
    outputs = [output for cell in _code(notebook.cells) for output in cell.outputs]
    kept = [kind for output in outputs for kind in output.get("data", {}) if "widget" in kind]
    if kept or "widgets" in notebook.metadata:
        yield "a widget is kept, which is nothing without its kernel: run dmlkit reproduce"


def _exercises(notebook: NotebookNode) -> Iterator[str]:
    exercises = 0
    for cell in _code(notebook.cells):
        lines = [line.strip() for line in solutions.opened(cell.source).splitlines()]
        begins, ends = lines.count("### BEGIN SOLUTION"), lines.count("### END SOLUTION")
        exercises += begins
        if begins != ends:
            yield f"{lines[0]!r} has {begins} BEGIN SOLUTION and {ends} END SOLUTION"
    if exercises < 2:
        yield f"{exercises} exercises between ### BEGIN SOLUTION and ### END SOLUTION, expected 2"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_meets_the_standard(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert problems(notebook, path.stem) == []


def test_each_answer_of_the_course_has_one_exercise() -> None:
    found = [key for each in book.course().values() for key in solutions.keys(each)]
    assert sorted(exercises.answers()) == sorted(found)


def test_no_solution_stands_open() -> None:
    open_ = [path.stem for path in COURSE if solutions.BEGIN in path.read_text(encoding="utf-8")]
    assert open_ == [], "dmlkit reproduce --profile ci packs them"


@pytest.mark.parametrize("name", lesson.LIVED)
def test_a_lived_lesson_has_the_form(name: str) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    assert list(lesson.lived(notebook, name)) == []


@pytest.fixture(scope="module")
def margins() -> NotebookNode:
    return nbformat.read(FOLDER / "09_margins.ipynb", as_version=4)


@pytest.mark.parametrize(
    "expected, old, new",
    [
        ("words in the core", "## Recap", "word " * 1600 + "\n\n## Recap"),
        ("visible lines of code", "def train(", "x = 1\n" * 90 + "def train("),
        ("minutes to read and to do", "(10 minutes)", "(10 minutes) (30 minutes)"),
        ("not those counted", "*Read ", "*Read 1"),
        ("the claim is not in the first cell", "**The claim.**", "The claim."),
        ("no table of its numbers", "|---", "---"),
        ("nothing says '**When would", "**When would I use this?**", "When?"),
        ("no exercise", "(10 minutes)", "(9 minutes)"),
        ("are not three or more", "<!-- quiz scale -->", "<!-- quiz fall -->"),
        ("not as its source has it", "**Not so.**", "**No.**"),
        ("takes a student's letters", "guesses = {", "letters = {"),
        ("nothing calls figures.verdict", "figures.verdict(", "figures.other("),
        ("nothing calls figures.explore", "figures.explore(", "figures.other("),
    ],
)
def test_what_a_lived_lesson_lacks_is_seen(
    margins: NotebookNode, expected: str, old: str, new: str
) -> None:
    notebook = copy.deepcopy(margins)
    _replace(old, new)(notebook)
    assert any(expected in problem for problem in lesson.lived(notebook, "09_margins"))


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_a_lesson_imports_dmlkit_and_no_other_package_of_the_project(path: Path) -> None:
    if path.stem[:2] not in EVIDENCE:
        code = "\n".join(cell.source for cell in _code(nbformat.read(path, as_version=4).cells))
        found = re.findall(r"^\s*(?:from|import) (course|studies|benchmarks|tests)\b", code, re.M)
        assert found == []


@pytest.mark.parametrize("name, notebook", book.course().items())
def test_the_pictures_kept_are_those_of_the_figures(name: str, notebook: NotebookNode) -> None:
    paths = (dmlkit.ROOT / "figures").glob("*.json")
    records = {path.stem: json.loads(path.read_text("utf-8")) for path in paths}
    own = {key: each for key, each in records.items() if each["provenance"]["notebook"] == name}
    kept = outputs.pictures(notebook)
    assert list(check.pictures(own, kept, dmlkit.ROOT / "figures")) == []
    assert kept.keys() == own.keys()


def test_all_notebooks_are_cloned_in_seconds() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.ipynb")) < BUDGET


def test_every_figure_has_one_notebook_and_is_committed(committed_figures: Path) -> None:
    names = [name for path in COURSE for name, _ in saved(nbformat.read(path, as_version=4).cells)]
    assert len(names) == len(set(names))
    committed = {path.stem for path in committed_figures.glob("*.json")}
    pictures = {path.stem for path in committed_figures.glob("*.png")}
    assert committed == pictures == set(names)


@pytest.mark.parametrize("path", COURSE, ids=lambda path: path.stem)
def test_committed_figures_have_the_words_of_their_notebook(
    path: Path, committed_figures: Path
) -> None:
    for name, given in saved(nbformat.read(path, as_version=4).cells):
        committed = json.loads((committed_figures / f"{name}.json").read_text("utf-8"))
        for argument in ("alt", "caption"):
            if isinstance(given[argument], ast.Constant):  # else it holds parameters
                assert committed[argument] == _text(given[argument]), name


@pytest.fixture(scope="module")
def template() -> NotebookNode:
    return nbformat.read(FOLDER / "template.ipynb", as_version=4)


def _replace(old: str, new: str) -> Callable[[NotebookNode], None]:
    def change(notebook: NotebookNode) -> None:
        changed = 0
        for cell in notebook.cells:
            changed += old in cell.source
            cell.source = cell.source.replace(old, new)
        assert changed, f"the template does not hold {old!r}"

    return change


def _append(**cell: Any) -> Callable[[NotebookNode], None]:
    return lambda notebook: notebook.cells.append(new_code_cell("x = 1", **cell))


#: What JupyterLab saves of a widget: a view, whose state is not there.
VIEW = new_output("display_data", {"application/vnd.jupyter.widget-view+json": {"model_id": "1"}})
#: What the last line of a cell leaves, as drawing does.
LEFT = new_output("display_data", {"text/plain": "Text(0, 0.5, 'place')"})
BROKEN: list[tuple[str, Callable[[NotebookNode], Any]]] = [
    ("is not a JSON literal", _replace("seeds: int = 5", "seeds: list = (1, 2)")),
    ("a comment holds '='", _replace("# smoke, ci or full", "# default=smoke")),
    ("sizes are not looked up", _replace("}.get(profile, (", "}.get(name, (")),
    ("keep its output, but has none", _append(metadata={"tags": [outputs.CHECKED]})),
    ("shows what its last", _append(execution_count=1, outputs=[LEFT])),
    ("not called python3", lambda nb: nb.metadata.kernelspec.update(name="dml")),
    ("has 26 lines", lambda nb: nb.cells.append(new_code_cell("x = 1\n" * 26))),
    ("has no alt", _replace("    alt=", "    other=")),
    ("0 exercises", _replace("SOLUTION", "ANSWER")),
    ("captures", lambda nb: nb.cells.append(new_code_cell("ipywidgets.interact(f, a=1)"))),
    ("a widget is kept", lambda nb: nb.metadata.update(widgets={})),
    ("a widget is kept", _append(execution_count=1, outputs=[VIEW])),
    ("a <details> is not closed", _replace("</details>", "")),
    ("asks no question", _replace("random directions?", "random directions")),
    ("2 predictions", _replace("**Predict.** From 2", "From 2")),
    ("no box '> **The idea.**'", _replace("> **The idea.**", "The idea.")),
    ("nor a box '> **What the evidence", _replace("> **What the evidence says.**", "We know:")),
    ("words before the first picture", _replace("**The picture.**", "word " * 400)),
    ("'arm' is not a word of the field", _replace("Recap", "Recap\n\nAn arm.\n\n## Recap")),
]


@pytest.mark.parametrize("expected, change", BROKEN, ids=[text for text, _ in BROKEN])
def test_the_checker_sees_what_is_broken(
    template: NotebookNode, expected: str, change: Callable[[NotebookNode], Any]
) -> None:
    notebook = copy.deepcopy(template)
    change(notebook)
    assert any(expected in problem for problem in problems(notebook, "template"))


@pytest.mark.parametrize("name", ["22_embedding_maps"])
def test_more_groups_than_there_are_classes_for_are_refused(name: str) -> None:
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    (start,) = (cell.source for cell in notebook.cells if cell.id == "start")
    (line,) = re.findall(r"^check_\w+\(.*\)$", start, re.MULTILINE)
    with pytest.raises(ValueError, match="seeds must be a number from 1 to 3, but is 6"):
        exec(line, vars(checks) | {"seeds": 6})
