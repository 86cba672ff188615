"""What of a run a committed notebook keeps."""

import base64
import json
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course import outputs
from dmlkit.exercises import PASSES

PNG = b"\x89PNG, a picture"
CAPTION = "It rises to 0.8 * x_1 < 1. A flat line would have contradicted this."


@pytest.fixture
def figures(tmp_path: Path) -> Path:
    record = {"alt": "A line.", "caption": CAPTION, "provenance": {"notebook": "00_toy"}}
    (tmp_path / "00_line.json").write_text(json.dumps(record))
    (tmp_path / "00_line.png").write_bytes(PNG)
    return tmp_path


def printed(text: str, name: str = "stdout") -> NotebookNode:
    return new_output("stream", name=name, text=text)


def displayed(**data: str) -> NotebookNode:
    return new_output("display_data", {kind.replace("_", "/"): text for kind, text in data.items()})


def picture() -> NotebookNode:
    data = {"image/png": base64.b64encode(PNG).decode(), "text/html": "<img>", "text/plain": "x"}
    about = {"image/png": {"figure": "00_line", "width": 432}}
    return new_output("display_data", data, metadata=about)


def bar() -> NotebookNode:
    widget = displayed(text_plain="runs: 0%")
    widget.data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}
    return widget


def source() -> NotebookNode:
    cells = [
        new_markdown_cell("# Toy"),
        new_code_cell("seeds: int = 1", metadata={"tags": ["parameters"]}),
        new_code_cell("train()"),
        new_code_cell("draw()"),
        new_code_cell("look()", metadata={"tags": ["volatile"]}),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new_notebook(cells=cells)


def run(notebook: NotebookNode) -> NotebookNode:
    """A copy as papermill leaves it."""
    copy = nbformat.from_dict(notebook)
    _, given, train, draw, look = copy.cells
    given.execution_count = 1
    train.outputs = [printed("warning", "stderr"), bar(), printed("R@1 0.8\nit took 3 s\n")]
    draw.outputs = [displayed(image_png="AAAA", text_plain="<Figure size>"), picture()]
    look.outputs = [printed("here\n")]
    injected = new_code_cell("seeds = 5", metadata={"tags": ["injected-parameters"]})
    copy.cells.insert(2, injected)
    return copy


def test_what_lasts_is_kept_the_picture_is_the_figure_and_a_second_run_keeps_the_same(
    figures: Path,
) -> None:
    notebook = outputs.kept(source(), run(source()), figures)
    nbformat.validate(notebook)
    _, _, train, draw, look = notebook.cells
    assert train.outputs == [printed("R@1 0.8\n")]
    assert outputs.pictures(notebook) == {"00_line": PNG}
    shown, words = draw.outputs
    assert shown.data.keys() == {"image/png", "text/plain"}
    assert shown.metadata["image/png"] == {"alt": "A line.", "figure": "00_line", "width": 432}
    assert words.data["text/markdown"].startswith(r"It rises to 0.8 \* x\_1 \< 1. A flat line")
    assert "A line." in words.data["text/markdown"]
    assert look.outputs == []
    assert [cell.execution_count for cell in notebook.cells[1:]] == [None, 2, 3, None]
    assert outputs.kept(notebook, run(notebook), figures) == notebook
    assert outputs.bare(notebook) == source()


def test_a_copy_that_ran_other_code_is_refused(figures: Path) -> None:
    edited = source()
    edited.cells[2].source = "train(more)"
    with pytest.raises(ValueError, match="edited while it ran"):
        outputs.kept(edited, run(source()), figures)


@pytest.mark.parametrize(
    "text",
    [
        "12 s", "network  26.53 ms a step", "3 minutes", "seconds for each: many", "0.4 µs",
        "saved in /srv/someone/data", "at 'C:\\\\data'", "<Thing at 0x7f737ca98350>", "a\rb",
        "<matplotlib.legend.Legend object>", "found on disk: 2 of 5",
    ],
)  # fmt: skip
def test_what_differs_from_run_to_run_goes(text: str, figures: Path) -> None:
    assert list(outputs.lasting([printed(f"{text}\n"), displayed(text_plain=text)], figures)) == []


@pytest.mark.parametrize(
    "text",
    [
        "5 seeds", "R@1: 83.5 %", "40 classes, s = 0.5", "12 steps", "3 mins", "2-d / 64-d",
        "alpha/beta", "classes 1 2 s_ij", "the second half", "0x12", "ms",
        "C18 (margin): REPRODUCED",
    ],
)  # fmt: skip
def test_what_lasts_stays(text: str, figures: Path) -> None:
    made = [printed(text), displayed(text_plain=text, text_html="<b>")]
    assert list(outputs.lasting(made, figures)) == made


def test_lines_printed_in_several_pieces_are_one_output(figures: Path) -> None:
    pieces = [printed("a\nb"), printed("x", "stderr"), printed("c\n"), bar(), printed("d\n")]
    assert list(outputs.lasting(pieces, figures)) == [printed("a\nbc\nd\n")]
    error = new_output("error", ename="E", evalue="e", traceback=["/srv/a/b"])
    assert list(outputs.lasting([error], figures)) == []


def test_no_reader_is_told_right_and_a_wrong_answer_of_the_course_is_told(figures: Path) -> None:
    ran = run(source())
    outputs.code(ran)[2].outputs = [printed("of 2: right\n")]
    committed = outputs.kept(source(), ran, figures)
    assert outputs.code(committed)[1].outputs == [printed(f"of 2: {PASSES}\n")]
    assert list(outputs.moved(committed, ran, figures)) == []
    outputs.code(ran)[2].outputs = [printed("of 2: not yet: 3 is not it\n")]
    (line,) = outputs.moved(committed, ran, figures)
    assert line.endswith("now 'of 2: not yet: 3 is not it\\n'")


def test_what_a_checked_cell_says_otherwise_is_told(figures):
    """A time that it took, a progress bar and a picture's bytes are no words."""
    notebook = source()
    outputs.code(notebook)[1].metadata["tags"] = [outputs.CHECKED]
    ran = run(notebook)
    committed = outputs.kept(notebook, ran, figures)
    assert list(outputs.moved(committed, ran, figures)) == []
    outputs.code(committed)[1].outputs.append(printed("and more\n"))
    outputs.code(committed)[2].outputs.append(printed("not checked\n"))
    (line,) = outputs.moved(committed, ran, figures)
    assert line.startswith("'train()': committed ")
    assert "and more" in line.partition("now")[0]
    assert "and more" not in line.partition("now")[2]
