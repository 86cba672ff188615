"""A prediction has one source: the lesson's cell, its folds, and what grade says of a letter."""

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from course import minutes, quiz
from tests import lesson

TOML = """
[turn]
question = "Which way?"
choices = [
  { text = "left", reason = "It is not." },
  { text = "right", right = true, reason = "As computed." },
]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "00_toy.toml").write_text(TOML)
    monkeypatch.setattr(quiz.items, "__defaults__", (tmp_path,))
    return tmp_path


def test_a_cell_is_written_from_its_source_each_time(folder):
    notebook = new_notebook(cells=[new_markdown_cell("<!-- quiz turn --> old")])
    for _ in range(2):
        quiz.write("00_toy", notebook)
        text = notebook.cells[0].source
        assert text.count("<details><summary>(a) left</summary>\n\n**Not so.** It is not.") == 1
        assert text.count("<details><summary>(b) right</summary>\n\n**Right.** As computed.") == 1
        assert text.count("<details>") == text.count("</details>") == 2


def test_a_question_without_a_cell_or_a_source_is_refused(folder):
    with pytest.raises(ValueError, match=r"has no \[lost\]"):
        quiz.write("00_toy", new_notebook(cells=[new_markdown_cell("<!-- quiz lost -->")]))
    with pytest.raises(ValueError, match="but there are turn"):
        quiz.write("00_toy", new_notebook())


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("right = true, ", "", "0 of 2 are"),
        ('reason = "It is not."', "right = true", "2 of 2 are"),
        (', reason = "It is not."', "", "no reason for 'left'"),
    ],
)
def test_a_question_has_one_right_choice_and_reasons(folder, old, new, said):
    (folder / "00_toy.toml").write_text(TOML.replace(old, new))
    with pytest.raises(ValueError, match=said):
        quiz.items("00_toy")


@pytest.mark.parametrize(
    "code, expected",
    [
        ('guesses = {"turn": "b"}', ("turn", "passed", "")),
        ('guesses = {"turn": " A "}', ("turn", "failed", "It is not.")),
        ('guesses = {"turn": ""}', ("turn", "open", "")),
        ('guesses = {"turn": "h"}', ("turn", "open", "")),
        ("guesses = {", ("turn", "open", "")),
        ("guesses = dict(turn=1 / 0)", ("turn", "open", "")),
        ("x = 1", ("turn", "open", "")),
    ],
)
def test_letters_are_read_and_never_run(folder, code, expected):
    assert list(quiz.judged("00_toy", [new_code_cell(code)])) == [expected]


@pytest.mark.parametrize("name", lesson.LIVED)
def test_the_right_letter_is_not_always_the_same(name):
    assert len({item.letter for item in quiz.items(name).values()}) > 1


def test_minutes_are_counted():
    hidden = {"jupyter": {"source_hidden": True}}
    cells = [
        new_markdown_cell("word " * 396 + "(10 minutes) <!-- not this -->\n\n"),
        new_code_cell("x = 1\n\ny = 2\nz = 3"),
        new_code_cell("x = 1\n" * 20, metadata=hidden),
        new_code_cell("seeds: int = 3", metadata={"tags": ["parameters"]}),
        new_markdown_cell("## More (optional)\n\n" + "word " * 500 + "(5 minutes)"),
        new_markdown_cell("## Recap"),
    ]
    assert minutes.study(new_notebook(cells=cells)) == (5, 10)
    assert minutes.lines(minutes.core(new_notebook(cells=cells))) == 3
