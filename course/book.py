"""The course as one book: its index and the links between its notebooks.

``python -m course.book`` writes what is made from the notebooks: their index, the links at the top
of each, the README's table, and the numbers and minutes in the glossary and the teacher's guide.
"""

import re
import textwrap
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell, new_notebook

import dmlkit
from course import minutes, quiz
from dmlkit.files import write_between, write_whole

#: Tag of a cell that is folded in the printed book; in JupyterLab ``jupyter.source_hidden`` is.
HIDDEN = "hide-input"

_KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
_LINKS = re.compile(r"^.*\]\(index\.ipynb\).*$\n*", re.MULTILINE)


#: "*Read 15 minutes, do 35; the machine works 1. Needs: 00, 02.*"
STUDY = re.compile(
    r"^\*Read (?P<read>\d+) minutes, do (?P<do>\d+); the machine works (?P<works>[\d.]+)\. "
    r"Needs: (?P<needs>.+)\*$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Facts:
    """What a notebook says of itself."""

    title: str
    sentence: str  # the answer to the title's question
    read: int  # minutes of study
    do: int
    needs: tuple[str, ...]  # numbers of earlier notebooks


def course(folder: Path | None = None) -> dict[str, NotebookNode]:
    """Every notebook of the course by its name, in order."""
    paths = sorted((folder or dmlkit.ROOT / "notebooks").glob("[0-9]*.ipynb"))
    return {path.stem: nbformat.read(path, as_version=4) for path in paths}


# --- Index and links ------------------------------------------------------------------------------


def facts(notebook: NotebookNode) -> Facts:
    """Title, minutes of study and needs from the first cell of a notebook, and its last sentence.

    Raises:
        ValueError: one of them is missing.
    """
    text, prose = notebook.cells[0].source, "\n".join(cell.source for cell in notebook.cells)
    title = re.match(r"# (?:\d+ · )?(.+)", text)
    sentence = re.search(r"\*\*In one sentence\.\*\* (.+)", prose)
    study = STUDY.search(text)
    if not (title and sentence and study):
        raise ValueError(f"{text[:40]!r} lacks a title, its sentence or the minutes of study")
    needs = tuple(dict.fromkeys(re.findall(r"\b\d\d\b", study["needs"])))
    said = re.sub(r" ?<!--.*?-->", "", sentence[1])
    return Facts(title[1], said, int(study["read"]), int(study["do"]), needs)


def navigation(name: str, titles: Mapping[str, str]) -> str:
    """The line of links that a notebook has beneath its title; ``titles`` are those of the course.

    >>> navigation("01_b", {"00_a": "A", "01_b": "B"})
    '[← 00 A](00_a.ipynb) · [index](index.ipynb) · [glossary](glossary.ipynb)'
    """
    names = list(titles)
    place = names.index(name)
    links = [f"[← {number(n)} {titles[n]}]({n}.ipynb)" for n in names[:place][-1:]]
    links += ["[index](index.ipynb)", "[glossary](glossary.ipynb)"]
    links += [f"[{number(n)} {titles[n]} →]({n}.ipynb)" for n in names[place + 1 :][:1]]
    return " · ".join(links)


def linked(text: str, line: str) -> str:
    """The source of a first cell with this line of links beneath the title.

    >>> old = linked("# Title\\n\\nText", "[index](index.ipynb), old")
    >>> linked(old, "[index](index.ipynb)")
    '# Title\\n\\n[index](index.ipynb)\\n\\nText'
    """
    title, _, rest = _LINKS.sub("", text).partition("\n")
    return f"{title}\n\n{line}\n\n{rest.lstrip()}"


def timed(text: str, read: int, do: int) -> str:
    """The source of a first cell with these minutes.

    >>> timed("*Read 9 minutes, do 9; the machine works 1. Needs: 08.*", 20, 24)
    '*Read 20 minutes, do 24; the machine works 1. Needs: 08.*'
    """
    return re.sub(
        r"^\*Read \d+ minutes, do \d+;", f"*Read {read} minutes, do {do};", text, flags=re.M
    )


#: Parts of the course: the notebook that each begins with, and what is learned there.
PARTS = {
    "See it": ("00_start_here", "what an embedding is, and what a score of it tells"),
    "Pairs": ("02_pairs", "what a loss pulls and pushes; which triplets and batches teach"),
    "Classes": ("06_prototypes", "prototypes, clusters, proxies, angular margins"),
    "More": ("10_memory", "memories, ensembles, hyperbolic space"),
    "The sphere": ("13_norms_and_gradients", "norms, the constraint SEC, SEE's synthetic points"),
    "Evidence": ("18_reading_papers", "papers' tables, fair comparisons, SEC and SEE"),
    "Look": ("22_embedding_maps", "UMAP maps, hubs"),
    "Practice on photographs": ("24_photographs", "fine-tuning, search, without labels, words"),
}
#: What stands beside another notebook's part, not where its number is.
_BESIDE = {"29_sphere_expansion": "21_sphere_constraint"}
#: Ways through the course.
PATHS = {
    "One evening": ("00_start_here", "01_measuring_retrieval", "02_pairs", "24_photographs"),
    "My own photographs": (
        "00_start_here", "01_measuring_retrieval", "24_photographs", "26_search_and_deploy",
    ),
    "Reading papers": (
        "00_start_here", "01_measuring_retrieval", "02_pairs", "18_reading_papers",
        "19_fair_comparison",
    ),
}  # fmt: skip
#: Words of an answer in the index: at most, if it can pause before; at least, before a semicolon.
_ANSWER, _CLAUSE = 22, 10
#: Where a sentence may pause, outside of brackets; at a comma only where another one follows.
_PAUSE = re.compile(r"([;:.](?= |$)|,(?= (?:and|but|so|where|which|while|as) ))(?![^(]*\))")


def number(name: str) -> str:
    """That of a notebook: "09_margins" -> "09"."""
    return name.partition("_")[0]


def part_of(name: str) -> str:
    """The part of the course that a notebook belongs to.

    >>> part_of("05_batches")
    'Pairs'
    """
    name = _BESIDE.get(name, name)
    return [part for part, (first, _) in PARTS.items() if first <= name][-1]


def answer(sentence: str) -> str:
    """A lesson's sentence up to a pause outside of brackets, so that it is short but whole.

    What ends at a semicolon after a few words says too little by itself.

    >>> answer("It falls in most trainings, but not in all of them (see: 3); so " + 30 * "wait ")
    'It falls in most trainings, but not in all of them (see: 3).'
    >>> answer("It grows with the batch, as long as that has " + 30 * "many " + "classes.")
    'It grows with the batch.'
    """
    pauses = {m.start(): len(sentence[: m.start()].split()) for m in _PAUSE.finditer(sentence)}
    least = {".": 1, ":": 2, ";": _CLAUSE, ",": _CLAUSE}
    whole = {at: words for at, words in pauses.items() if words >= least[sentence[at]]}
    fit = [at for at, words in whole.items() if words <= _ANSWER and sentence[at] != ","]
    fit = fit or [at for at, words in pauses.items() if words <= _ANSWER and sentence[at] == ","]
    said = sentence[: fit[-1] if fit else min(whole, default=len(sentence))]
    return said + "." * (not said.endswith("?"))


def index(notebooks: Mapping[str, NotebookNode]) -> NotebookNode:
    """The map of the course: three ways through it, and each notebook with its answer."""
    known = {name: facts(notebook) for name, notebook in notebooks.items()}
    direct = reduced(known)
    ways = []
    for way, path in PATHS.items():
        there = [name for name in path if name in known]
        links = " → ".join(f"[{number(n)} {n[3:].replace('_', ' ')}]({n}.ipynb)" for n in there)
        ways.append(f"- **{way}** ({_minutes(known[n] for n in there)} minutes): {links}")
    parts = []
    for part in PARTS:
        rows = [f"## {part}", "", "| | |", "|---|---|"]
        for name in (name for name in known if part_of(name) == part):
            each = known[name]
            picture = f"../figures/small_{number(name)}.svg"
            shown = f'<img src="{picture}" width="200" height="120" alt="">'
            after = f"; after {', '.join(map(number, direct[name]))}" * bool(direct[name])
            rows.append(
                f"| {shown} | **[{number(name)} · {each.title}]({name}.ipynb)**<br>"
                f"{answer(each.sentence)}<br>*Read {each.read}, do {each.do}{after}.* |"
            )
        parts.append("\n".join(rows))
    drawn = b64encode(drawing(direct).encode()).decode()
    sources = [
        "# The course\n\nEach lesson asks one question, and takes about an hour; below it are the "
        "minutes to read it and to do it, and what to know before. Words and symbols are in the "
        "[glossary](glossary.ipynb). To do the exercises, make copies without their solutions, "
        "`dmlkit student student`, and open student/notebooks. To teach, begin with the "
        "[teacher's guide](../docs/teach.md).",
        "## Three ways through\n\n" + "\n".join(ways),
        "## What builds on what\n\n"
        f'<img src="data:image/svg+xml;base64,{drawn}" alt="A drawing of the course: each lesson '
        'stands to the right of those that it builds on, which are named below, too.">',
        *parts,
    ]
    cells = [new_markdown_cell(source, id=f"page-{i}") for i, source in enumerate(sources)]
    return new_notebook(cells=cells, metadata={"kernelspec": _KERNEL})


def _minutes(known: Iterable[Facts]) -> int:
    return sum(each.read + each.do for each in known)


def table(notebooks: Mapping[str, NotebookNode]) -> str:
    """The README's: each part of the course, its notebooks and its minutes."""
    lines = ["| part | what it teaches | lessons | minutes |", "|---|---|---|---|"]
    for part, (_, about) in PARTS.items():
        mine = [name for name in notebooks if part_of(name) == part]
        links = " ".join(f"[{number(name)}](notebooks/{name}.ipynb)" for name in mine)
        minutes = _minutes(facts(notebooks[name]) for name in mine)
        lines.append(f"| **{part}** | {about} | {links} | {minutes} |")
    return "\n".join(lines)


def renumbered(text: str) -> str:
    """A page whose links to notebooks show their numbers, as those are now.

    >>> renumbered("see [06](../notebooks/05_batches.ipynb)")
    'see [05](../notebooks/05_batches.ipynb)'
    """
    return re.sub(r"\[\d\d\](?=\([./\w]*?(\d\d)_\w+\.ipynb)", r"[\1]", text)


def guide(text: str, notebooks: Mapping[str, NotebookNode]) -> str:
    """The teacher's guide with title, minutes and needs of each notebook as they are now.

    Below its heading each has a line of these, and then questions that people write. A week of the
    plan has the minutes of its lessons.
    """

    def head(found: re.Match[str]) -> str:
        name = found[1]
        if name not in known:
            return found[0]
        needs = f"; needs {', '.join(map(number, direct[name]))}" * bool(direct[name])
        title = f"### [{number(name)} · {known[name].title}](../notebooks/{name}.ipynb)"
        return f"{title}\n\nRead {read[name]} minutes, do {known[name].do}{needs}."

    def week(found: re.Match[str]) -> str:
        names = re.findall(r"notebooks/(\w+)\.ipynb", found[1])
        minutes_ = sum(read[name] + known[name].do for name in names if name in known)
        return f"{found[1]}| {minutes_} |"

    known = {name: facts(notebook) for name, notebook in notebooks.items()}
    read = {name: minutes.study(notebook)[0] for name, notebook in notebooks.items()}
    direct = reduced(known)
    text = re.sub(r"^(\| \d+ \| .+? )\| \d+ \|", week, text, flags=re.M)
    return re.sub(r"^### \[.+\]\(\.\./notebooks/(\w+)\.ipynb\)\n\n.+$", head, text, flags=re.M)


# --- What builds on what --------------------------------------------------------------------------


def reduced(known: Mapping[str, Facts]) -> dict[str, list[str]]:
    """The names that each notebook builds on, but not what one of these builds on itself."""
    names = {number(name): name for name in known}
    needs = {name: [names[n] for n in each.needs if n in names] for name, each in known.items()}

    def all_of(name: str) -> set[str]:
        return {name}.union(*map(all_of, needs[name]))

    return {
        name: sorted(need for need in mine if not any(need in all_of(o) for o in mine if o != need))
        for name, mine in needs.items()
    }


#: Of a box of the drawing, and the space between two, in pixels.
_WIDE, _HIGH, _GAP, _ROW = 124, 38, 20, 45


def drawing(direct: Mapping[str, Sequence[str]]) -> str:
    """An SVG in which each notebook stands to the right of those that it builds on."""
    column: dict[str, int] = {}
    for name, mine in direct.items():
        column[name] = 1 + max((column[need] for need in mine), default=-1)
    below: dict[str, list[str]] = {name: [] for name in direct}
    for name, mine in direct.items():
        if mine:  # the one that it stands beside
            below[max(mine, key=lambda need: (column[need], need))].append(name)
    row: dict[str, float] = {}

    def place(name: str, first: int) -> int:
        """Set the rows of a notebook and of all that hang on it; the next row that is free."""
        free = first
        for after in below[name]:
            free = place(after, free)
        row[name] = (row[below[name][0]] + row[below[name][-1]]) / 2 if below[name] else first
        return max(free, first + 1)

    rows = 0
    for name in (name for name, mine in direct.items() if not mine):
        rows = place(name, rows)
    wide = (max(column.values()) + 1) * (_WIDE + _GAP)
    lines, boxes = [], []
    for name, mine in direct.items():
        x, y = column[name] * (_WIDE + _GAP) + _GAP // 2, row[name] * _ROW + _ROW / 2
        for need in mine:
            x0, y0 = (column[need] + 1) * (_WIDE + _GAP) - _GAP // 2, row[need] * _ROW + _ROW / 2
            half = (x + x0) / 2
            lines.append(f'<path d="M{x0} {y0:g}C{half:g} {y0:g} {half:g} {y:g} {x} {y:g}"/>')
        said = textwrap.wrap(name.partition("_")[2].replace("_", " "), 13)
        top = y + 5 - 8 * (len(said) - 1)
        boxes.append(
            f'<rect x="{x}" y="{y - _HIGH / 2:g}" width="{_WIDE}" height="{_HIGH}" rx="6"/>'
            f'<text x="{x + 7}" y="{y + 5:g}" font-weight="bold">{number(name)}</text>'
            + "".join(
                f'<text x="{x + 39}" y="{top + 16 * i:g}">{each}</text>'
                for i, each in enumerate(said)
            )
        )
    size = f"{wide} {rows * _ROW}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{wide}" '
        f'font-family="sans-serif" font-size="14"><rect width="100%" height="100%" fill="#fff"/>'
        f'<g fill="none" stroke="#8a939c" stroke-width="1.3">{"".join(lines)}</g>'
        f'<g fill="#eef3fb" stroke="#0072b2">'
        + "".join(boxes).replace("<text", '<text fill="#111" stroke="none"')
        + "</g></svg>"
    )


# --- The command ----------------------------------------------------------------------------------


def main() -> None:
    """Write what is made from the notebooks."""
    folder, notebooks = dmlkit.ROOT / "notebooks", course()
    titles = {name: facts(notebook).title for name, notebook in notebooks.items()}
    for name, notebook in notebooks.items():
        first = notebook.cells[0]
        first.source = linked(first.source, navigation(name, titles))
        if quiz.items(name):  # else it is not yet in the form of docs/lesson.md
            quiz.write(name, notebook)
        first.source = timed(first.source, *minutes.study(notebook))
    pages = {"index": index(notebooks), **notebooks}
    texts = {folder / f"{name}.ipynb": nbformat.writes(each) + "\n" for name, each in pages.items()}
    for path in (folder / "glossary.ipynb", dmlkit.ROOT / "README.md"):
        texts[path] = renumbered(path.read_text(encoding="utf-8"))
    teach = dmlkit.ROOT / "docs" / "teach.md"
    texts[teach] = guide(renumbered(teach.read_text(encoding="utf-8")), notebooks)
    write = partial(Path.write_text, encoding="utf-8")
    write_whole({path: partial(write, data=text) for path, text in texts.items()})
    write_between(dmlkit.ROOT / "README.md", "course", table(notebooks))


if __name__ == "__main__":
    main()
