"""The course's own answers to its exercises: written in the open, and packed where they are read.

An author writes an answer between markers, as nbgrader has them. When the notebook is published,
the answer becomes a decorator (`dmlkit.exercises.solution`) of a stub: the notebook still runs
whole, and who reads it sees no answer.
"""

import ast
import re
from collections.abc import Callable

from dmlkit.exercises import YOUR_TURN, pack, unpack

#: What a solution becomes; an exercise that still holds it was not begun.
STUB = f'raise NotImplementedError("{YOUR_TURN}")'
BEGIN = "### BEGIN SOLUTION"

_SOLUTION = re.compile(rf"^([ \t]*){BEGIN}$.*?^[ \t]*### END SOLUTION$", re.MULTILINE | re.DOTALL)
_PACKED = re.compile(r'^@exercises\.solution\(\s*"([^"]*)"\s*\)\n', re.MULTILINE)


def without(source: str) -> str:
    """Code whose solutions have become stubs.

    >>> print(without("def f():\\n  ### BEGIN SOLUTION\\n  return 1\\n  ### END SOLUTION"))
    def f():
      raise NotImplementedError("your turn: put your answer here, run this cell, then the next")
    """
    return _SOLUTION.sub(rf"\1{STUB}", opened(source))


def packed(source: str) -> str:
    """Code whose functions with solutions have become stubs that still give the solutions.

    >>> secret = "def f():\\n  ### BEGIN SOLUTION\\n  return 1\\n  ### END SOLUTION"
    >>> "return 1" in packed(secret)
    False
    >>> opened(packed(secret)) == secret
    True
    """
    return _replaced(
        source,
        lambda text: BEGIN in text,
        lambda text: f'@exercises.solution(\n    "{pack(text)}"\n)\n{without(text)}',
    )


def opened(source: str) -> str:
    """Code whose packed solutions stand between their markers again."""
    return _replaced(
        source,
        lambda text: bool(_PACKED.match(text)),
        lambda text: unpack(text.partition('"')[2].partition('"')[0]),
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
