"""What of a run a committed notebook keeps, and how what is stale is found out."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course import outputs

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


def displayed(count: int | None = None, **data: str) -> NotebookNode:
    data = {kind.replace("_", "/"): text for kind, text in data.items()}
    kind = "display_data" if count is None else "execute_result"
    return new_output(kind, data, **({} if count is None else {"execution_count": count}))


def picture(name: str = "00_line", png: bytes = PNG) -> NotebookNode:
    data = {"image/png": base64.b64encode(png).decode(), "text/html": "<img>", "text/plain": "x"}
    return new_output("display_data", data, metadata={"image/png": {"figure": name, "width": 432}})


def source() -> NotebookNode:
    cells = [
        new_markdown_cell("# Toy"),
        new_code_cell("seeds: int = 1", metadata={"tags": ["parameters"]}),
        new_code_cell("train()"),
        new_code_cell("draw()"),
        new_code_cell("look()", metadata={"tags": ["volatile"]}),
        new_code_cell("settle()", metadata={"tags": ["nbval-check-output"]}),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return new_notebook(cells=cells, metadata={"dmlkit": {"profiles": {"ci": {"seeds": 5}}}})


def run(notebook: NotebookNode) -> NotebookNode:
    """A copy as papermill leaves it."""
    copy = nbformat.from_dict(notebook)
    _, given, train, draw, look, settle = copy.cells
    given.execution_count, settle.execution_count = 1, 6
    widget = displayed(text_plain="runs: 0%")
    widget.data["application/vnd.jupyter.widget-view+json"] = {"model_id": "1"}
    train.outputs = [printed("warning", "stderr"), widget, printed("R@1 0.8\nit took 3 s\n")]
    draw.outputs = [displayed(image_png="AAAA", text_plain="<Figure size>"), picture()]
    look.outputs = [printed("here\n")]
    settle.outputs = [printed("reproduced\n")]
    injected = new_code_cell("seeds = 5", metadata={"tags": ["injected-parameters"]})
    copy.cells.insert(2, injected)
    return copy


@pytest.fixture
def notebook(figures: Path) -> NotebookNode:
    return outputs.kept(source(), run(source()), figures)


def test_what_lasts_is_kept_and_the_picture_is_the_figure(notebook: NotebookNode) -> None:
    nbformat.validate(notebook)
    _, given, train, draw, look, settle = notebook.cells
    assert given.outputs[0].text.endswith("those of the profile ci: seeds = 5.\n")
    assert train.outputs == [printed("R@1 0.8\n")]
    assert outputs.pictures(notebook) == {"00_line": PNG}
    shown, words = draw.outputs
    assert shown.data.keys() == {"image/png", "text/plain"}
    assert shown.metadata["image/png"] == {"alt": "A line.", "figure": "00_line", "width": 432}
    assert words.data["text/markdown"].startswith(r"It rises to 0.8 \* x\_1 \< 1. A flat line")
    assert "A line." in words.data["text/markdown"]
    assert look.outputs == []
    assert settle.outputs == [printed("reproduced\n")]
    counts = [cell.execution_count for cell in notebook.cells[1:]]
    assert counts == [1, 2, 3, None, 5]


def test_a_second_run_of_the_kept_notebook_keeps_the_same(
    notebook: NotebookNode, figures: Path
) -> None:
    assert outputs.kept(notebook, run(notebook), figures) == notebook
    assert list(outputs.problems(notebook, "00_toy", figures)) == []


def test_a_copy_that_ran_other_code_is_refused(figures: Path) -> None:
    edited = source()
    edited.cells[2].source = "train(more)"
    with pytest.raises(ValueError, match="edited while it ran"):
        outputs.kept(edited, run(source()), figures)


def test_bare_leaves_the_code_alone(notebook: NotebookNode) -> None:
    assert outputs.bare(notebook) == source()


@pytest.mark.parametrize(
    "text",
    [
        "12 s", "network  26.53 ms a step", "3 minutes", "seconds for each: many", "0.4 µs",
        "saved in /home/someone/data", "at 'C:\\\\data'", "<Thing at 0x7f737ca98350>", "a\rb",
        "<matplotlib.legend.Legend object>", "found on disk: 2 of 5",
    ],
)  # fmt: skip
def test_what_differs_from_run_to_run_goes(text: str) -> None:
    assert list(outputs.lasting([printed(f"{text}\n"), displayed(1, text_plain=text)])) == []


@pytest.mark.parametrize(
    "text",
    [
        "5 seeds", "R@1: 83.5 %", "40 classes, s = 0.5", "12 steps", "3 mins", "2-d / 64-d",
        "alpha/beta", "classes 1 2 s_ij", "the second half", "0x12", "ms",
        "C18 (margin): REPRODUCED",
    ],
)  # fmt: skip
def test_what_lasts_stays(text: str) -> None:
    kept = list(outputs.lasting([printed(text), displayed(1, text_plain=text, text_html="<b>")]))
    assert kept == [printed(text), displayed(text_plain=text, text_html="<b>")]


def test_lines_printed_in_several_pieces_are_one_output() -> None:
    pieces = [printed("a\nb"), printed("x", "stderr"), printed("c\n")]
    assert list(outputs.lasting(pieces)) == [printed("a\nbc\n")]
    error = new_output("error", ename="E", evalue="e", traceback=["/home/a/b"])
    assert list(outputs.lasting([error])) == []


STALE: list[tuple[str, Callable[[NotebookNode, Path], Any]]] = [
    ("keeps the output of other code", lambda nb, _: nb.cells[2].update(source="train(1)")),
    ("keeps the output of other code", lambda nb, _: nb.metadata.dmlkit.profiles.ci.update(x=1)),
    ("keeps the output of other code", lambda nb, _: nb.cells[3].metadata.pop("dmlkit")),
    ("another picture than figures/00_line.png", lambda _, f: _write(f / "00_line.png", b"new")),
    ("other words than its figure", lambda _, f: _caption(f, "It falls.")),
    ("which is not in figures/", lambda _, f: (f / "00_line.png").unlink()),
    ("00_line: in figures/, but not in the notebook", lambda nb, _: nb.cells[3].update(outputs=[])),
    ("what does not last", lambda nb, _: nb.cells[2].outputs.append(printed("2 s\n"))),
    ("what does not last", lambda nb, _: nb.cells[3].outputs.append(picture())),
    ("what does not last", lambda nb, _: nb.cells[4].outputs.append(printed("here\n"))),
    ("has the execution count 7", lambda nb, _: nb.cells[2].update(execution_count=7)),
]


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _caption(figures: Path, caption: str) -> None:
    path = figures / "00_line.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"caption": caption}))


@pytest.mark.parametrize("expected, change", STALE, ids=[text for text, _ in STALE])
def test_what_is_stale_is_named(
    notebook: NotebookNode,
    figures: Path,
    expected: str,
    change: Callable[[NotebookNode, Path], Any],
) -> None:
    change(notebook, figures)
    assert any(expected in line for line in outputs.problems(notebook, "00_toy", figures))


def test_a_notebook_that_was_not_written_yet_keeps_only_what_nbval_compares(figures: Path) -> None:
    fresh = source()
    fresh.cells[5].update(outputs=[printed("reproduced\n")], execution_count=9)
    assert list(outputs.problems(fresh, "00_toy", figures)) == []
    fresh.cells[2].outputs = [printed("R@1 0.8\n")]
    (problem,) = outputs.problems(fresh, "00_toy", figures)
    assert problem == "'train()' keeps an output that 'dmlkit reproduce' did not write"


def test_a_progress_bar_between_lines_does_not_part_them() -> None:
    bar = nbformat.v4.new_output("display_data", {"application/vnd.jupyter.widget-view+json": {}})
    lines = [nbformat.v4.new_output("stream", name="stdout", text=f"{n}\n") for n in (1, 2)]
    found = list(outputs.lasting([lines[0], bar, lines[1]]))
    assert [output.text for output in found] == ["1\n2\n"]
    assert list(outputs.lasting(found)) == found
