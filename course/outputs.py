"""What of a run stays in a committed notebook: its figures, printed lines, verdicts and tables.

``dmlkit reproduce --profile ci`` writes them by one rule:

- of pictures, those of saved figures, each equal to its file in ``figures/``, with the caption and
  the alt text beneath it;
- no widget and no progress bar, nothing from the standard error, no error;
- no printed line and no table that tells a time, an absolute path, an address in memory, or how
  many trainings were "found on disk";
- nothing at all of a cell that is tagged ``volatile``;
- the n-th code cell is numbered n, wherever it keeps an output;
- a check says nothing of a reader's answer: what is right is the course's (``exercises.PASSES``).
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output

from dmlkit.exercises import PASSES, unanswered

#: Tag of a cell whose words are the same in every profile, on every machine.
CHECKED = "nbval-check-output"
_KEPT = ("text/plain", "text/html", "text/markdown", "text/latex")
_TIME = r"(?<![\w.])\d[\d.,]*\s?(?:ns|µs|us|ms|s|sec|seconds?|min|minutes?|h|hours?)\b|\bseconds\b"
_PATH = r"""(?:^|[\s"'(=,\[])(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\"""
_OBJECT = r"\b0x[0-9a-f]{6,}\b|<(?:matplotlib|IPython)\.|\r"
_VARIES = re.compile("|".join((_TIME, _PATH, _OBJECT, r"\bfound on disk\b")), re.MULTILINE)


def kept(source: NotebookNode, executed: NotebookNode, figures: Path) -> NotebookNode:
    """A notebook with what lasts of the outputs of its executed copy, and of that run's figures.

    Raises ValueError where the copy ran other code than the notebook holds now.
    """
    ran, written = _ran(executed), bare(source)
    if [cell.source for cell in ran] != [cell.source for cell in code(written)]:
        raise ValueError("it was edited while it ran: run it once more")
    for number, (cell, run) in enumerate(zip(code(written), ran, strict=True), start=1):
        if "volatile" not in tags(cell):
            cell.outputs = list(lasting(run.outputs, figures))
        cell.execution_count = number if cell.outputs else None
    return written


def moved(notebook: NotebookNode, executed: NotebookNode, figures: Path) -> Iterator[str]:
    """What cells say otherwise in an executed copy, each in a line.

    That is the words of those tagged `CHECKED`, and whether the course's answers pass.
    """
    for cell, run in zip(code(notebook), _ran(executed), strict=False):
        before, now = (_words(each) for each in (cell.outputs, lasting(run.outputs, figures)))
        if before != now and (CHECKED in tags(cell) or before.count(PASSES) != now.count(PASSES)):
            yield f"{cell.source.splitlines()[-1]!r}: committed {before!r}, now {now!r}"


def _words(outputs: Iterable[NotebookNode]) -> str:
    return "".join(each.get("text") or each.data.get("text/plain", "") for each in outputs)


def _ran(executed: NotebookNode) -> list[NotebookNode]:
    """The notebook's own code cells, in a copy that papermill ran."""
    return [cell for cell in code(executed) if "injected-parameters" not in tags(cell)]


def code(notebook: NotebookNode) -> list[NotebookNode]:
    """The code cells of a notebook."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def tags(cell: NotebookNode) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))


def bare(notebook: NotebookNode) -> NotebookNode:
    """A copy without outputs and without what widgets left."""
    empty = nbformat.from_dict(notebook)
    empty.metadata.pop("widgets", None)
    for cell in code(empty):
        cell.outputs, cell.execution_count = [], None
        cell.metadata.pop("dmlkit", None)
    return empty


def lasting(outputs: Sequence[NotebookNode], figures: Path) -> Iterator[NotebookNode]:
    """The outputs of a cell that are worth keeping; a progress bar between lines parts none."""
    printed = ""
    for output in outputs:
        if output.output_type == "stream":
            printed += output.text if output.name == "stdout" else ""
        elif shown := list(_shown(output, figures)):
            yield from _lines(printed)
            yield from shown
            printed = ""
    yield from _lines(printed)


def _lines(text: str) -> Iterator[NotebookNode]:
    if lines := [line for line in re.findall(r".*\n|.+$", text) if not _VARIES.search(line)]:
        yield _printed(unanswered("".join(lines)))


def _printed(text: str) -> NotebookNode:
    return new_output("stream", name="stdout", text=text)


def _shown(output: NotebookNode, figures: Path) -> Iterator[NotebookNode]:
    """A figure as it is committed, with its words beneath; of any other display the texts."""
    data = output.get("data", {})
    if name := _figure(output):
        record = json.loads((figures / f"{name}.json").read_text(encoding="utf-8"))
        alt, caption = record["alt"], record["caption"]
        png = base64.b64encode((figures / f"{name}.png").read_bytes()).decode()
        width = output.metadata["image/png"].get("width", 624)
        about = {"image/png": {"alt": alt, "figure": name, "width": width}}
        plain = {"image/png": png, "text/plain": f"Figure {name}: {alt}"}
        yield new_output("display_data", plain, metadata=about)
        words = f"<details><summary>The picture in words</summary>\n\n{_escaped(alt)}\n\n</details>"
        texts = {"text/markdown": f"{_escaped(caption)}\n\n{words}", "text/plain": caption}
        yield new_output("display_data", texts, metadata={"caption_of": name})
    elif not any("image" in kind or "widget" in kind for kind in data):
        texts = {kind: text for kind, text in data.items() if kind in _KEPT}
        if texts and not any(map(_VARIES.search, texts.values())):
            yield new_output("display_data", texts)


def _figure(output: NotebookNode) -> str:
    """The name of the saved figure that an output shows; '' if it shows none."""
    return str(output.get("metadata", {}).get("image/png", {}).get("figure", ""))


def _escaped(text: str) -> str:
    """Text as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_{}\[\]<>#$|~])", r"\\\1", text)


def pictures(notebook: NotebookNode) -> dict[str, bytes]:
    """The PNG of every saved figure that a notebook keeps, by its name."""
    found = [output for cell in code(notebook) for output in cell.outputs if _figure(output)]
    return {_figure(output): base64.b64decode(output.data["image/png"]) for output in found}
