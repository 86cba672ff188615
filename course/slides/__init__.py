"""A deck of slides for each lesson: ``dmlkit slides FOLDER``.

A deck is one HTML file that needs no network: the lesson's title, its guesses with their answers
on the slide after, its pictures, what the reader moves, its verdict, and the questions of the
teacher's guide. All of it is read from the committed lesson; nothing is executed or written twice.
"""

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

from course import book, explorables, quiz
from course.explorables.export import CLOSED
from course.explorables.widget import bundle
from course.site.conf import mathml
from dmlkit import ROOT
from dmlkit.files import write_whole

_PREDICT = re.compile(
    r"\*\*Predict\.\*\* (?P<asked>.+?)\s*<details><summary>Answer</summary>\n"
    r"(?P<answer>.+?)</details>",
    re.DOTALL,
)
_BOX = re.compile(r"^> \*\*(The idea|What the evidence says)\.\*\* (.+?)(?=\n[^>]|\Z)", re.M | re.S)
_USE = re.compile(r"^\*\*(When would I use this)\?\*\* (.+?)(?=\n\n|\Z)", re.M | re.S)
_LINK = re.compile(r"(?<!!)\[([^]]+)\]\((?!https?:)[^)]+\)")


@dataclass(frozen=True)
class Slide:
    """One slide, and what its speaker may say."""

    html: str
    kind: str = ""  # title, picture, moves
    notes: str = ""


def write(folder: Path) -> Iterator[Path]:
    """Write a deck for each lesson and a page that lists them; give each path.

    Raises ValueError where the folder is a file.
    """
    if folder.is_file():
        raise ValueError(f"expected a folder for the decks, got the file {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    guide = (ROOT / "docs" / "teach.md").read_text(encoding="utf-8")
    titles = {}
    for name, notebook in book.course().items():
        titles[name] = book.facts(notebook).title
        page = _page("deck.html", title=titles[name], slides=list(deck(name, notebook, guide)))
        yield _save(folder / f"{name}.html", page)
    yield _save(folder / "index.html", _page("list.html", titles=titles))


def deck(name: str, notebook: NotebookNode, guide: str) -> Iterator[Slide]:
    """The slides of a lesson, in its order.

    ``guide`` is the text of docs/teach.md.
    """
    facts = book.facts(notebook)
    told = _section(name, guide)
    number = book.number(name)
    yield Slide(f"<p>{number}</p><h1>{_html(facts.title)}</h1>", "title", _minutes(facts))
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            if mark := quiz.MARK.match(cell.source):
                yield from _asked(quiz.items(name)[mark[1]])
            yield from _told(cell.source)
        else:
            yield from _shown(cell)
    yield Slide(f"<h2>In one sentence</h2>{_html(facts.sentence)}")
    questions = re.findall(r"^- (.+)", told, re.M)
    asked = "".join(f"<li>{_html(each)}</li>" for each in questions)
    yield Slide(f"<h2>To discuss</h2><ol>{asked}</ol>", notes=_html(told))


def _asked(item: quiz.Item) -> Iterator[Slide]:
    """A guess with choices, and again with the right one and its reason."""
    choices = "".join(f"<li>{_html(text)}</li>" for text, _ in item.choices)
    asked = f'<h2>What do you think?</h2>{_html(item.question)}<ol type="a">{choices}</ol>'
    reason = _html(f"({item.letter}) {item.choices[item.right][1]}")
    yield Slide(asked, notes=reason)
    yield Slide(f'{asked}<div class="answer">{reason}</div>')


def _told(text: str) -> Iterator[Slide]:
    """Guesses with their answers, the idea and the evidence, as they stand in a cell."""
    found = [each for part in (_PREDICT, _BOX, _USE) for each in part.finditer(text)]
    for each in sorted(found, key=re.Match.start):
        if each.re is _PREDICT:
            asked = f"<h2>What do you think?</h2>{_html(each['asked'])}"
            yield Slide(asked, notes=_html(each["answer"]))
            yield Slide(f'{asked}<div class="answer">{_html(each["answer"])}</div>')
        else:
            yield Slide(f"<h2>{each[1]}</h2>{_html(each[2].replace(chr(10) + '>', chr(10)))}")


def _shown(cell: NotebookNode) -> Iterator[Slide]:
    """The figures of a cell; where one moves, it moves here, if it needs no graph."""
    captions = {
        output.metadata.get("caption_of"): output.data["text/plain"]
        for output in cell.outputs
        if output.get("metadata", {}).get("caption_of")
    }
    for output in cell.outputs:
        about = output.get("metadata", {}).get("image/png", {})
        if figure := about.get("figure"):
            source = f"data:image/png;base64,{output.data['image/png']}"
            image = f'<img alt="{escape(about["alt"])}" src="{source}">'
            caption = captions.get(figure, "")
            moves = explorables.of_figures().get(figure)
            if moves and (module := _module(moves)):
                yield Slide(
                    f'<div class="moves" data-module="{module}">{image}</div>'
                    f'<script type="application/json">{_settings(moves)}</script>',
                    "moves",
                    explorables.load(moves).discover,
                )
            else:
                yield Slide(f"{image}<p>{escape(caption)}</p>", "picture")


@cache
def _module(name: str) -> str:
    """An explorable's module as a data URL, which a page without a server may import; '' if none.

    One that computes by a graph needs the runtime, which a server has to send.
    """
    text = bundle(name)
    if CLOSED not in text:
        return ""
    return "data:text/javascript;base64," + base64.b64encode(text.encode()).decode()


@cache
def _settings(name: str) -> str:
    known = explorables.load(name)
    first = known.answer(*known.begin())
    return json.dumps({**known.describe(), "first": first}).replace("<", "\\u003c")


def _section(name: str, guide: str) -> str:
    """What the teacher's guide says of a lesson: questions, answers and a typical mistake."""
    head = rf"^### \[[^\n]+\]\(\.\./notebooks/{name}\.ipynb\)\n\n[^\n]+\n"
    found = re.search(rf"{head}(.+?)(?=^#|\Z)", guide, re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def _minutes(facts: book.Facts) -> str:
    return f"Read {facts.read} minutes, do {facts.do}."


@cache
def _markdown() -> MarkdownIt:
    def formula(text: str, options: dict[str, Any]) -> str:
        return mathml(text, "block" if options["display_mode"] else "inline")

    return MarkdownIt("commonmark", {"html": True}).use(dollarmath_plugin, renderer=formula)


def _html(text: str) -> str:
    """Markdown of a lesson as HTML: links into the course are words, and places of numbers go."""
    text = _LINK.sub(r"\1", re.sub(r" ?<!--.*?-->", "", text, flags=re.DOTALL))
    html: str = _markdown().render(text)
    return html


def _page(template: str, **given: Any) -> str:
    place = FileSystemLoader(Path(__file__).parent)
    return Environment(loader=place, undefined=StrictUndefined).get_template(template).render(given)


def _save(path: Path, text: str) -> Path:
    write_whole({path: partial(Path.write_text, data=text, encoding="utf-8")})
    return path
