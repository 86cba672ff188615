"""The course's own answers to its exercises: written in the open, and kept where nobody reads.

An author writes an answer between markers, as nbgrader has them. When the notebook is published,
the answer goes, packed, into ``dmlkit/answers.json``, and its key into a decorator
(`dmlkit.exercises.solution`) of a stub: the notebook still runs whole, and who reads it sees no
answer. A cell that begins with ``### CHECK`` goes there, too, and becomes a call of
`dmlkit.exercises.check`: a check knows what is right. ``python -m course.solutions 09`` opens a
notebook again, for its author.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping

import nbformat
from nbformat import NotebookNode

import dmlkit
from dmlkit.exercises import YOUR_TURN, answer, pack

#: What a solution becomes; an exercise that still holds it was not begun.
STUB = f'raise NotImplementedError("{YOUR_TURN}")'
BEGIN = "### BEGIN SOLUTION"
#: The first line of a cell that checks an answer.
CHECK = "### CHECK\n"

_SOLUTION = re.compile(rf"^([ \t]*){BEGIN}$.*?^[ \t]*### END SOLUTION$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^def (\w+)", re.MULTILINE)
_PACKED = re.compile(r'^@exercises\.solution\(\s*"([^"]*)"\s*\)\n', re.MULTILINE)
_CHECKED = re.compile(r'exercises\.check\("([^"]*)"\)')


def without(source: str) -> str:
    """Code whose solutions have become stubs.

    >>> print(without("def f():\\n  ### BEGIN SOLUTION\\n  return 1\\n  ### END SOLUTION"))
    def f():
      raise NotImplementedError("your turn: put your answer here, run this cell, then the next")
    """
    return _SOLUTION.sub(rf"\1{STUB}", _solved(source))


def packed(notebook: NotebookNode, name: str, known: Mapping[str, str]) -> dict[str, str]:
    """Make stubs of solutions and calls of checks in a notebook; give them, packed, by their keys.

    ``known`` are those before: the notebook's own that it has no more are left out.

    >>> from nbformat.v4 import new_code_cell, new_notebook
    >>> secret = "def f():\\n  ### BEGIN SOLUTION\\n  return 1\\n  ### END SOLUTION"
    >>> cell = new_code_cell(secret, metadata={"tags": ["hide-input"]})
    >>> found = packed(new_notebook(cells=[cell]), "02_pairs", {"pairs/g": "", "mining/h": ""})
    >>> sorted(found), cell.source.partition("\\n")[0], cell.metadata
    (['mining/h', 'pairs/f'], '@exercises.solution("pairs/f")', {})
    """
    topic = name.partition("_")[2]  # not its number, which may change
    new: dict[str, str] = {}

    def stub(text: str) -> str:
        text = own(text)  # an author may have written below the old key
        key = f"{topic}/{_NAME.findall(text)[0]}"
        new[key] = pack(text)
        return f'@exercises.solution("{key}")\n{without(text)}'

    for cell in notebook.cells:
        if cell.cell_type == "code" and BEGIN in cell.source:
            cell.source = _replaced(cell.source, lambda text: BEGIN in text, stub)
            cell.metadata.clear()  # it was folded, and is where a reader is to write
        elif cell.cell_type == "code" and cell.source.startswith(CHECK):
            key = f"{topic}/{cell.id}"
            new[key] = pack(cell.source.removeprefix(CHECK))
            cell.source = f'exercises.check("{key}")'
            cell.metadata.clear()
    there = set(keys(notebook))
    others = {k: text for k, text in known.items() if k in there or k.split("/")[0] != topic}
    return others | new


def keys(notebook: NotebookNode) -> Iterator[str]:
    """The keys of the course's answers and checks that a notebook asks for."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            yield from _PACKED.findall(cell.source) + _CHECKED.findall(cell.source)


def written(answers: Mapping[str, str]) -> str:
    """The text of ``dmlkit/answers.json``: an answer in each line."""
    return json.dumps(answers, indent=0, sort_keys=True) + "\n"


def opened(source: str) -> str:
    """Code whose packed solutions stand between their markers again; of a check, what it runs.

    >>> opened('exercises.check("pairs/not-there")')
    Traceback (most recent call last):
    LookupError: this dmlkit has no answer 'pairs/not-there' of the course: take the notebook ...
    """
    if found := _CHECKED.fullmatch(source):
        return CHECK + answer(found[1])
    return _solved(source)


def _solved(source: str) -> str:
    return _replaced(
        source,
        lambda text: bool(_PACKED.match(text)) and BEGIN not in text,
        lambda text: answer(text.split('"')[1]),
    )


def own(source: str) -> str:
    """Code of a student, without the decorators that would put the course's answers in its place.

    >>> own("@exercises.solution(\\"abc\\")\\ndef f():\\n  return 2")
    'def f():\\n  return 2'
    """
    return _PACKED.sub("", source)


def _replaced(source: str, chosen: Callable[[str], bool], replacement: Callable[[str], str]) -> str:
    """Code in which each chosen function, decorators and all, is another text."""
    if BEGIN not in source and not _PACKED.search(source):
        return source
    lines = source.split("\n")
    for node in reversed(ast.parse(source).body):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
            last = node.end_lineno or first
            while lines[last : last + 1] and lines[last].strip().startswith("###"):
                last += 1  # a marker after the last statement is no part of the tree
            text = "\n".join(lines[first:last])
            if chosen(text):
                lines[first:last] = replacement(text).split("\n")
    return "\n".join(lines)


if __name__ == "__main__":
    for path in sorted((dmlkit.ROOT / "notebooks").glob(f"{sys.argv[1]}*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.source = opened(cell.source)
        nbformat.write(notebook, path)
