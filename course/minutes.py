"""How long a lesson takes, counted for a student from another country."""

import re

from nbformat import NotebookNode

from course import solutions
from course.outputs import tags

#: Words a minute, and minutes for a line of visible code.
WORDS, LINE = 100, 20 / 60
#: Heading of what need not be read.
MORE = "More"
_ASKED = re.compile(r"\((\d+) minutes?\)")
_HIDDEN = re.compile(r"<!--.*?-->", re.DOTALL)


def core(notebook: NotebookNode) -> list[NotebookNode]:
    """The cells that everybody reads: all but those under "## More"."""
    kept, inside = [], True
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^## (.+)", cell.source, re.MULTILINE):
                inside = heading.split(" (")[0] != MORE
        kept += [cell] * inside
    return kept


def words(cells: list[NotebookNode]) -> int:
    """Words of the prose; comments with the places of numbers do not count."""
    prose = (cell.source for cell in cells if cell.cell_type == "markdown")
    return sum(len(re.sub(_HIDDEN, "", text).split()) for text in prose)


def captions(cells: list[NotebookNode]) -> int:
    """Words of the captions: outputs in Markdown, without their folded picture in words."""
    shown = (out for cell in cells if cell.cell_type == "code" for out in cell.outputs)
    data = (out.get("data", {}) for out in shown)
    return sum(len(each["text/plain"].split()) for each in data if "text/markdown" in each)


def lines(cells: list[NotebookNode]) -> int:
    """Lines of code to read: not folded, not empty, neither the parameters nor an exercise."""
    seen = [
        cell.source
        for cell in cells
        if cell.cell_type == "code"
        and not cell.metadata.get("jupyter", {}).get("source_hidden")
        and "parameters" not in tags(cell)
        and solutions.opened(cell.source) == cell.source  # an exercise asks for its own minutes
    ]
    return sum(bool(line.strip()) for text in seen for line in text.splitlines())


def study(notebook: NotebookNode) -> tuple[int, int]:
    """Minutes to read the core and to do it.

    Reading is 100 words a minute, captions as well, and 20 seconds for a line of visible code.
    Doing is what the core asks for in words such as "(10 minutes)": exercises and tasks, by trial.
    """
    there = core(notebook)
    prose = (cell.source for cell in there if cell.cell_type == "markdown")
    asked = sum(int(found) for text in prose for found in _ASKED.findall(text))
    read = (words(there) + captions(there)) / WORDS + lines(there) * LINE
    return round(read), asked
