"""Numbers in the prose of a notebook, each held against the numbers of a committed figure.

A number is a finding when an HTML comment follows that names a figure and, in its numbers, a path::

    Semi-hard triplets reach 83.7 % <!-- 19_table: recall_at_1/triplet_semihard/mean -->.
    The gain is 46.5 points [45.3, 47.7] <!-- 00_recall: gain/mean; gain/low; gain/high -->.

GitHub and JupyterLab do not show such comments. The rules:

- The last numbers before the comment are meant, as many as it has paths (``;`` between them).
- A path goes from key to key by ``/``, into a list by the place (from 0, or -1 for the last) or,
  among claims, by claim and condition ("A1, fine-tuned"). ``mean``, ``min`` and ``max`` of a
  list, or of a sample, are over its first axis (the repetitions); where that is all it has,
  ``low`` and ``high`` are the ends of its 95 % interval. The marks ``timing`` and
  ``example`` are left out.
- ``a minus b`` and ``a over b`` are the difference and the ratio of two paths of one figure.
- A number with ``%``, ``percent`` or ``points`` is compared with 100 times what the figure has; end
  the comment with ``in %`` where the figure has percent itself.
- Prose and figure agree when the figure's number, rounded to as many decimals as the prose prints,
  is the number in the prose. A sign that is not printed is +.

Words are bound, too: what a sentence says without a number, or the marked answer of a question, is
an inequality of paths and numbers, which the figure must fulfill::

    Only pulls and pushes together find more <!-- holds 02_answer: both minus pulls/low > 0 -->.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from nbformat import NotebookNode

from dmlkit.figures import kind
from dmlkit.statistics import interval

_MARK = re.compile(r"<!--\s*(?P<figure>[a-z0-9][a-z0-9_-]*):\s+(?P<paths>.+?)\s*-->", re.DOTALL)
_HOLDS = re.compile(r"<!--\s*holds (?P<said>.+?)\s*-->", re.DOTALL)
_NUMBER = re.compile(
    r"(?<![\w@.])(?P<number>[+\-−]?\d+(?:,\d{3})*(?:\.\d+)?)(?P<unit>\s*(?:\\?%|percent|points?\b))?"
)


@dataclass(frozen=True)
class Finding:
    """One number in prose, with the place in a figure that it is from."""

    sentence: str
    printed: str
    percent: bool
    figure: str
    path: str


def findings(prose: str) -> Iterator[Finding]:
    """Every number of a text that is marked with its place in a figure.

    Raises:
        ValueError: a comment that has more paths than numbers before it.

    >>> next(findings("It rises to 83.7 % <!-- 19_table: recall/mean -->.")).printed
    '83.7'
    """
    begin = 0
    for mark in _MARK.finditer(prose):
        paths = [path.strip() for path in re.split(r";\s", mark["paths"])]
        before = re.split(r"\n\s*\n", prose[begin : mark.start()])[-1]
        numbers = list(_NUMBER.finditer(before))[-len(paths) :]
        sentence = " ".join(re.split(r"(?<=[.!?])\s", before)[-1].split())
        if len(numbers) < len(paths):
            raise ValueError(f"{sentence!r}: no {len(paths)} numbers before {mark[0]!r}")
        percent = any(number["unit"] for number in numbers)
        for number, path in zip(numbers, paths, strict=True):
            yield Finding(sentence, number["number"], percent, mark["figure"], path)
        begin = mark.end()


def lookup(numbers: Any, path: str) -> float:
    """The number at a path of a figure's numbers, or what the path says of two.

    Raises KeyError where no number is there.

    >>> lookup({"recall": {"values": [0.5, 0.75]}, "chance": 0.125}, "recall/mean minus chance")
    0.5
    """
    try:
        return _step(numbers, path)
    except KeyError:
        for word in (" minus ", " over "):
            left, found, right = path.partition(word)
            if found:
                a, b = lookup(numbers, left), lookup(numbers, right)
                return a - b if word == " minus " else a / b
        raise


def _step(value: Any, path: str) -> float:
    """The number at a path below a value, whose keys may hold the separator themselves."""
    if kind(value) in ("timing", "example"):
        value = next(iter(value.values()))
    if not path and type(value) in (int, float):
        return float(value)
    steps = _steps(value)
    if keys := [key for key in steps if f"{path}/".startswith(f"{key}/")]:
        key = max(keys, key=len)
        return _step(steps[key], path[len(key) + 1 :])
    raise KeyError(f"{path!r} is not there; there is {', '.join(list(steps)[:8]) or 'nothing'}")


def _steps(value: Any) -> dict[str, Any]:
    """What a dict or list holds, by every name that a path may call it."""
    if isinstance(value, dict):
        return (_steps(value["values"]) if kind(value) == "sample" else {}) | value
    if not isinstance(value, list) or not value:
        return {}
    steps = {str(i): part for i, part in enumerate(value)} | {"-1": value[-1]}
    if isinstance(value[0], dict):
        rows = [part for part in value if "condition" in part]
        return steps | {f"{row['claim']}, {row['condition']}": row for row in rows}
    if (array := np.asarray(value)).dtype.kind in "biuf":
        of = {"mean": array.mean(0), "min": array.min(0), "max": array.max(0)}
        if array.ndim == 1:
            of |= {end: np.float64(interval(array)[end]) for end in ("low", "high")}
        steps |= {name: number.tolist() for name, number in of.items()}
    return steps


def problems(
    notebook: NotebookNode, name: str, records: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    """Every finding of a notebook that is not what its figure has: sentence, number and figure.

    ``records`` holds the JSON of the figures by name.
    """
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for finding in findings(cell.source):
                if fault := _fault(finding, records):
                    yield f"{name}: {finding.sentence!r}: {finding.printed}: {fault}"
            for mark in _HOLDS.finditer(cell.source):
                yield from (f"{name}: {fault}" for fault in broken(mark["said"], records))


def broken(said: str, records: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Of inequalities, "FIGURE: a < b; c > 0", those that the figure breaks, with its numbers.

    >>> said = "01_toy: recall/mean > 0.5; recall/low > 0.9"
    >>> list(broken(said, {"01_toy": {"numbers": {"recall": {"mean": 0.8, "low": 0.7}}}}))
    ['01_toy: recall/low > 0.9 does not hold: 0.7 and 0.9']
    """
    figure, _, rest = said.partition(": ")
    for test in re.split(r";\s", rest):
        left, sign, right = re.split(r" ([<>]) ", test)
        ends = []
        for side in (left.strip(), right.strip()):
            try:
                ends.append(float(side.replace("−", "-")))
            except ValueError:
                ends.append(lookup(records[figure]["numbers"], side))
        if not (ends[0] < ends[1] if sign == "<" else ends[0] > ends[1]):
            yield f"{figure}: {test.strip()} does not hold: {ends[0]:.6g} and {ends[1]:.6g}"


def _fault(finding: Finding, records: Mapping[str, Mapping[str, Any]]) -> str:
    """Why prose and figure disagree; '' if they agree."""
    if finding.figure not in records:
        return f"there is no figure {finding.figure}"
    path = finding.path.removesuffix(" in %")
    factor = 100 if finding.percent and path == finding.path else 1
    try:
        there = factor * lookup(records[finding.figure]["numbers"], path)
    except KeyError as error:
        return f"{finding.figure}: {path}: {error.args[0]}"
    digits = finding.printed.replace("−", "-").replace(",", "")
    decimals = len(digits.partition(".")[2])
    # Figures keep six significant digits: a number just between two roundings may be either.
    slack = 0.5 * 10.0**-decimals + 1e-5 * abs(there)
    if abs(float(digits) - there) <= slack:
        return ""
    return f"{finding.figure} has {there:.6g} at {path}"
