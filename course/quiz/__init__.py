"""The questions of the lessons: one source for notebook, site and ``grade``.

``NAME.toml`` beside this file holds the predictions of lesson NAME. ``course.book`` writes each
into the cell of the lesson that begins with ``<!-- quiz ITEM -->``: every choice is a fold, with a
reason below it, so that it answers on every page, without a kernel. Where a run decides what is
right, ``holds`` says by which numbers of a figure (``course.findings``). A student writes the
letters into ``guesses``, a dict of the lesson, which ``grade`` reads and never runs.
"""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbformat import NotebookNode

HERE = Path(__file__).parent
#: The line that a cell with a question begins with.
MARK = re.compile(r"\A<!-- quiz (\w+) -->")
#: What a student fills in: ``guesses = {"ITEM": "a"}``.
GUESSES = "guesses"


@dataclass(frozen=True)
class Item:
    """A question with its choices: text, reason, which is right, and what must hold for that."""

    name: str
    question: str
    choices: tuple[tuple[str, str], ...]  # text and reason
    right: int
    holds: tuple[str, ...] = ()

    @property
    def letter(self) -> str:
        """That of the right choice.

        >>> Item("x", "Which?", (("this", "no"), ("that", "yes")), 1).letter
        'b'
        """
        return "abcdefgh"[self.right]

    def markdown(self) -> str:
        """The cell of the lesson."""
        folds = [
            f"<details><summary>({letter}) {text}</summary>\n\n"
            f"{'**Right.**' if k == self.right else '**Not so.**'} {reason}\n\n</details>"
            for k, (letter, (text, reason)) in enumerate(
                zip("abcdefgh", self.choices, strict=False)
            )
        ]
        head = f"<!-- quiz {self.name} -->\n**Predict** ({self.name}). {self.question}"
        return "\n\n".join([head, *folds])

    def judged(self, letter: str) -> tuple[str, str]:
        """Status and reason of a letter: passed, failed or open.

        >>> Item("x", "Which?", (("this", "no"), ("that", "yes")), 1).judged("A")
        ('failed', 'no')
        """
        k = "abcdefgh".find(letter.strip().lower() or "?")
        if not 0 <= k < len(self.choices):
            return "open", ""
        return ("passed", "") if k == self.right else ("failed", self.choices[k][1])


def items(lesson: str, folder: Path = HERE) -> dict[str, Item]:
    """The questions of a lesson by name; none where it has no file.

    Raises ValueError for a question that has not exactly one right choice, or lacks a reason.

    >>> [*items("00_no_such_lesson")]
    []
    """
    path = folder / f"{lesson}.toml"
    if not path.is_file():
        return {}
    told = tomllib.loads(path.read_text(encoding="utf-8"))
    return {name: _item(name, path.name, about) for name, about in told.items()}


def _item(name: str, file: str, told: Mapping[str, Any]) -> Item:
    choices = told["choices"]
    right = [k for k, choice in enumerate(choices) if choice.get("right")]
    if len(right) != 1 or not 2 <= len(choices) <= 8:
        raise ValueError(
            f"{file}, {name}: expected 2 to 8 choices and one that is right, but "
            f"{len(right)} of {len(choices)} are"
        )
    if lacking := [choice["text"] for choice in choices if not choice.get("reason")]:
        raise ValueError(f"{file}, {name}: no reason for {lacking[0]!r}")
    pairs = tuple((choice["text"], choice["reason"]) for choice in choices)
    return Item(name, told["question"], pairs, right[0], tuple(told.get("holds", ())))


def write(lesson: str, notebook: NotebookNode) -> None:
    """Put the questions of a lesson into their cells.

    Raises ValueError where a cell asks for one that the lesson's file lacks, or one has no cell.
    """
    known, there = items(lesson), []
    for cell in notebook.cells:
        if found := MARK.match(cell.source):
            there.append(found[1])
            if found[1] not in known:
                raise ValueError(f"{lesson}: course/quiz/{lesson}.toml has no [{found[1]}]")
            cell.source = known[found[1]].markdown()
    if sorted(there) != sorted(known):
        raise ValueError(f"{lesson}: asks {', '.join(there)}, but there are {', '.join(known)}")


def judged(lesson: str, cells: list[NotebookNode]) -> Iterator[tuple[str, str, str]]:
    """Name, status and reason of each question, by the letters in a student's code cells."""
    letters = _letters(cells)
    for name, item in items(lesson).items():
        yield name, *item.judged(str(letters.get(name, "")))


def _letters(cells: list[NotebookNode]) -> dict[str, Any]:
    """The last ``guesses`` that is a dict of literals; nothing is run."""
    found: dict[str, Any] = {}
    for cell in cells:
        try:
            body = ast.parse(cell.source).body
            for node in body:
                if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == GUESSES:
                    value = ast.literal_eval(node.value)
                    found = value if isinstance(value, dict) else found
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            continue  # no Python, no key of a dict, or too deep
    return found
