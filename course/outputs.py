"""What of a run stays in a committed notebook: its pictures, printed lines, verdicts and tables.

``dmlkit reproduce --profile ci`` writes them, whole or not at all, by one rule (``lasting``):

- of pictures, those of saved figures only, each equal to its file in ``figures/``, with the caption
  and the alt text beneath it;
- no widget and no progress bar, nothing from the standard error, no error;
- no printed line and no table that tells a time, an absolute path, an address in memory, or how
  many trainings were "found on disk";
- nothing at all of a cell that is tagged ``volatile``, where what it shows differs otherwise;
- the n-th code cell is numbered n, wherever it keeps an output.

A cell that keeps an output has the digest of all code up to it, and of the parameters of ``ci``, in
``metadata.dmlkit.code``: outputs of other code are named as stale by ``problems``.
"""

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_output

#: Tag of a cell whose output differs from run to run.
VOLATILE = "volatile"
#: Tag of a cell whose output nbval compares word for word.
CHECKED = "nbval-check-output"

_KEPT = ("text/plain", "text/html", "text/markdown", "text/latex")
_TIME = r"(?<![\w.])\d[\d.,]*\s?(?:ns|µs|us|ms|s|sec|seconds?|min|minutes?|h|hours?)\b|\bseconds\b"
_PATH = r"""(?:^|[\s"'(=,\[])(?:/[\w.+-]+){2,}|\b[A-Za-z]:\\"""
_OBJECT = r"\b0x[0-9a-f]{6,}\b|<(?:matplotlib|IPython)\.|\r"
_VARIES = re.compile("|".join((_TIME, _PATH, _OBJECT, r"\bfound on disk\b")), re.MULTILINE)


def kept(source: NotebookNode, executed: NotebookNode, figures: Path) -> NotebookNode:
    """A notebook with what lasts of the outputs of its executed copy.

    Pictures come from ``figures``, the folder of that run.

    Raises:
        ValueError: the copy ran other code than the notebook holds now.
    """
    ran = [cell for cell in _code(executed) if "injected-parameters" not in _tags(cell)]
    if [cell.source for cell in ran] != [cell.source for cell in _code(source)]:
        raise ValueError("it was edited while it ran: run it once more")
    written = nbformat.from_dict(source)
    for number, ((cell, seal), run) in enumerate(zip(_sealed(written), ran, strict=True), start=1):
        outputs = [] if VOLATILE in _tags(cell) else list(lasting(run.outputs))
        if "parameters" in _tags(cell):
            outputs = [new_output("stream", name="stdout", text=_profile_line(written))]
        cell.outputs = [part for each in outputs for part in _stored(each, figures)]
        cell.execution_count = number if cell.outputs else None
        cell.metadata.pop("dmlkit", None)
        if cell.outputs:
            cell.metadata["dmlkit"] = {"code": seal}
    return written


def bare(notebook: NotebookNode) -> NotebookNode:
    """A notebook without its outputs, and without any trace of them."""
    empty = nbformat.from_dict(notebook)
    for cell in _code(empty):
        cell.outputs, cell.execution_count = [], None
        cell.metadata.pop("dmlkit", None)
    return empty


def lasting(outputs: Sequence[NotebookNode]) -> Iterator[NotebookNode]:
    """The outputs of a cell that are worth keeping, by the rule above.

    >>> lines = "R@1: 83.5 %\\nit took 12 s\\n"
    >>> next(lasting([new_output("stream", name="stdout", text=lines)])).text
    'R@1: 83.5 %\\n'
    """
    printed = ""
    for output in [*outputs, None]:
        if output is not None and output.output_type == "stream":
            printed += output.text if output.name == "stdout" else ""
            continue
        shown = [] if output is None or output.output_type == "error" else list(_shown(output))
        if shown or output is None:  # a progress bar, which is not kept, parts no lines
            lines = [line for line in re.findall(r".*\n|.+$", printed) if not _VARIES.search(line)]
            if lines:
                yield new_output("stream", name="stdout", text="".join(lines))
            printed = ""
        yield from shown


def _shown(output: NotebookNode) -> Iterator[NotebookNode]:
    """A display as it is kept: of a figure its picture alone, of anything else the texts."""
    data = output.data
    if figure := _figure(output):
        about = {"image/png": {**output.metadata["image/png"], "figure": figure}}
        texts = {"text/plain": data.get("text/plain", "")}
        yield new_output("display_data", {"image/png": data["image/png"], **texts}, metadata=about)
    if figure or "caption_of" in output.metadata:  # which is written again with its picture
        return
    texts = {kind: text for kind, text in data.items() if kind in _KEPT}
    varies = any(_VARIES.search(text) for text in texts.values())
    if texts and not varies and not {kind for kind in data if "widget" in kind or "image" in kind}:
        yield new_output("display_data", texts)


def _figure(output: NotebookNode) -> str:
    """The name of the saved figure that an output shows; '' if it shows none."""
    about = output.get("metadata", {}).get("image/png", {})
    return about.get("figure", "") if "image/png" in output.get("data", {}) else ""


def _stored(output: NotebookNode, figures: Path) -> Iterator[NotebookNode]:
    """A picture as it is committed, with its words beneath; any other output as it is."""
    name = _figure(output)
    if not name:
        yield output
        return
    record = json.loads((figures / f"{name}.json").read_text(encoding="utf-8"))
    png = base64.b64encode((figures / f"{name}.png").read_bytes()).decode()
    alt, width = record["alt"], output.metadata["image/png"].get("width", 624)
    about = {"image/png": {"alt": alt, "figure": name, "width": width}}
    plain = f"Figure {name}: {alt}"
    yield new_output("display_data", {"image/png": png, "text/plain": plain}, metadata=about)
    words = _escaped(record["caption"])
    words += (
        f"\n\n<details><summary>The picture in words</summary>\n\n{_escaped(alt)}\n\n</details>"
    )
    texts = {"text/markdown": words, "text/plain": record["caption"]}
    yield new_output("display_data", texts, metadata={"caption_of": name})


def _escaped(text: str) -> str:
    """Text as Markdown that shows it letter by letter."""
    return re.sub(r"([\\`*_{}\[\]<>#$|~])", r"\\\1", text)


def _profile_line(notebook: NotebookNode) -> str:
    values = ", ".join(f"{key} = {value!r}" for key, value in _settings(notebook).items())
    return f"The outputs below are those of the profile ci: {values or 'the values above'}.\n"


def _settings(notebook: NotebookNode) -> dict[str, Any]:
    return dict(notebook.metadata.get("dmlkit", {}).get("profiles", {}).get("ci", {}))


def _code(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def _tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def _sealed(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, str]]:
    """Every code cell, with the digest of all code up to it and of the parameters of ``ci``."""
    digest = hashlib.sha256(json.dumps(_settings(notebook), sort_keys=True).encode())
    for cell in _code(notebook):
        digest.update(hashlib.sha256(cell.source.encode()).digest())
        yield cell, digest.hexdigest()[:16]


def pictures(notebook: NotebookNode) -> dict[str, bytes]:
    """The PNG of every saved figure that a notebook keeps, by its name."""
    outputs = [output for cell in _code(notebook) for output in cell.outputs]
    return {_figure(o): base64.b64decode(o.data["image/png"]) for o in outputs if _figure(o)}


def is_written(notebook: NotebookNode) -> bool:
    """Whether a notebook keeps outputs that ``reproduce`` wrote, or any picture."""
    sealed = any("dmlkit" in cell.metadata for cell in _code(notebook))
    return sealed or any(
        "image/png" in output.get("data", {}) for cell in _code(notebook) for output in cell.outputs
    )


def problems(notebook: NotebookNode, name: str, figures: Path) -> Iterator[str]:
    """What is wrong with the outputs that a notebook keeps, and has to be written anew.

    A notebook that was not written yet may keep the outputs that nbval compares, and no others.
    """
    if not is_written(notebook):
        for cell in _code(notebook):
            if cell.outputs and CHECKED not in _tags(cell):
                yield f"{_first(cell)} keeps an output that 'dmlkit reproduce' did not write"
        return
    again = f"run 'dmlkit reproduce {name} --profile ci'"
    for number, (cell, seal) in enumerate(_sealed(notebook), start=1):
        if cell.outputs and cell.metadata.get("dmlkit", {}).get("code") != seal:
            yield f"{_first(cell)} keeps the output of other code: {again}"
        if cell.execution_count != (number if cell.outputs else None):
            yield f"{_first(cell)} has the execution count {cell.execution_count}: {again}"
        yield from (f"{_first(cell)} {fault}" for fault in _faults(cell, figures))
    records = {path.stem: json.loads(path.read_text("utf-8")) for path in figures.glob("*.json")}
    own = {key for key, record in records.items() if record["provenance"]["notebook"] == name}
    if missing := own - pictures(notebook).keys():
        yield f"{', '.join(sorted(missing))}: in figures/, but not in the notebook: {again}"


def _faults(cell: NotebookNode, figures: Path) -> Iterator[str]:
    """What of a cell's outputs is not as the rule and the figures have it."""
    shown = [output for output in cell.outputs if _figure(output)]
    for name in map(_figure, shown):
        if not (figures / f"{name}.png").exists():
            yield f"shows {name}, which is not in figures/"
            return
    for output in shown:
        name = _figure(output)
        if base64.b64decode(output.data["image/png"]) != (figures / f"{name}.png").read_bytes():
            yield f"shows another picture than figures/{name}.png"
    expected = [part for each in lasting(cell.outputs) for part in _stored(each, figures)]
    if (VOLATILE in _tags(cell) and cell.outputs) or expected != list(cell.outputs):
        yield "keeps what does not last, or other words than its figure has"


def _first(cell: NotebookNode) -> str:
    return repr(cell.source.partition("\n")[0])
