"""The course as a static site: ``dmlkit site``.

The pages are made from what is committed: the notebooks with their outputs, ``figures/``, the
ledger, the table of losses, ``benchmarks/RESULTS.md``, the evidence of the studies and the
docstrings. Nothing of the course is executed. Sphinx with MyST-NB sets them (``conf.py``); their
words are in ``templates``.
"""

import re
import shutil
from collections.abc import Sequence
from functools import cache
from html import escape, unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from fontTools import subset
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from PIL import Image

from course import book, explorables, launch, ledger, poster
from course.site import atlas, drawings, notebooks
from dmlkit import ROOT, __version__, losses
from studies import choice, claims

SITE = Path(__file__).parent
#: What ``make playground explainer`` leaves in build/: the site has each where it is there.
LIVE = ("explorables", "playground", "explainer")
#: Pages of one look, each a tab of the others: the folder, and what the tab says.
TABS = {"playground": "Forces", "explainer": "Training", "losses": "Atlas"}
_SHARE = re.compile(r"([\d.]+) %\W*<!-- 24_")


def build(out: Path) -> None:
    """Make the site in a folder.

    Raises:
        ValueError: Sphinx failed, or warned of a link that leads nowhere; it has printed of what.
    """
    from sphinx.cmd.build import build_main

    with TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        write(source)
        options = ["-q", "-b", "html", "-W", "--keep-going", "-j", "auto", "-c", str(SITE)]
        options += ["-D", f"html_extra_path={source / '_extra'}", "-d", str(source / "_doctrees")]
        if status := build_main([*options, str(source), str(out)]):
            raise ValueError(f"Sphinx ended with status {status}: see what it printed above")
    _finish(out)


def _finish(out: Path) -> None:
    """Say to screen readers what Sphinx's pages leave out; keep the letters of formulas alone."""
    letters: set[str] = set()
    for page in out.rglob("*.html"):
        if page.relative_to(out).parts[0] in LIVE:
            continue
        text = page.read_text(encoding="utf-8")
        for formula in re.findall(r"<math\b.*?</math>", text, re.DOTALL):
            letters |= {*unescape(formula)}
        text = text.replace('class="caption" role="heading"', 'class="caption"')
        text = text.replace('<summary aria-label="Toggle hidden content">', "<summary>")
        page.write_text(text, encoding="utf-8")
    (path,) = (out / "_static").glob("STIX*.ttf")
    options = subset.Options(layout_features=["*"])
    with subset.load_font(path, options) as font:
        cut = subset.Subsetter(options)
        cut.populate(text="".join(letters))
        cut.subset(font)
        subset.save_font(font, path, options)


def write(source: Path) -> None:
    """Write the sources of the site into a new folder."""
    shutil.copytree(ROOT / "figures", source / "_extra" / "figures")
    there = [part for part in LIVE if (ROOT / "build" / part).exists()]
    for part in there:
        shutil.copytree(ROOT / "build" / part, source / "_extra" / part)
    for part in {"playground", "explainer"} & set(there):
        page = source / "_extra" / part / "index.html"
        linked = '<link rel="stylesheet" href="../_static/tabs.css">' + tabs(part, there)
        text = page.read_text(encoding="utf-8").replace("<!-- tabs -->", linked)
        page.write_text(text, encoding="utf-8")
    figures, course, frame = notebooks.figures(), book.course(), claims.ledger()
    facts = {name: book.facts(notebook) for name, notebook in course.items()}
    notebooks.write(source / "notebooks", course, figures)
    told = {
        "head": ledger_head(),
        "dots": drawings.dots(ledger.counts(frame)),
        "table": ledger_by_conditions(frame),
        "text": re.sub(r"^## (\w+) · ", _target, ledger.markdown(frame), flags=re.M),
    }
    _set(source / "ledger" / "index.md", "ledger.md", **told)
    _write_atlas(source / "losses", there)
    for name in ("teach.md", "plans.md"):
        (source / name).write_text(teach(name), encoding="utf-8")
    still = Image.open(ROOT / "figures" / "explainer_still.webp").size
    context = front() | {
        "repository": launch.repository(),
        "figures": figures,
        "still": still,
        "curves": [(e.name, e.title, drawings.curve(e.name)) for e in losses.entries()],
        "dots": drawings.dots(ledger.counts(frame)),
        "parts": {
            part: [name for name in course if book.part_of(name) == part] for part in book.PARTS
        },
        "facts": facts,
        "in_short": ledger.in_short(frame),
        "losses": len(losses.entries()),
        "cff": (ROOT / "CITATION.cff").read_text(encoding="utf-8"),
        "live": there,
        "moving": [
            (name, book.number(name), facts[name].title, each.figure)
            for each in map(explorables.load, explorables.names())
            for name in [figures[each.figure]["provenance"]["notebook"]]
        ],
        "version": __version__,
    }
    for name in ("index", "gallery", "play", "cite"):
        _set(source / f"{name}.md", f"{name}.md", **context)


def tabs(current: str, there: Sequence[str]) -> str:
    """Links between the pages that move and the atlas, as HTML.

    >>> tabs("playground", ["playground"]).count("<a ")
    3
    """
    links = ['<a href="../index.html">dmlkit</a>'] + [
        f'<a href="../{part}/index.html"{" aria-current=page" * (part == current)}>{name}</a>'
        for part, name in TABS.items()
        if part in (*there, "losses")
    ]
    return f'<nav class="tabs" aria-label="Play">{"".join(links)}</nav>'


def front() -> dict[str, str]:
    """What the first page takes from the README: three paragraphs and its first commands."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    after, *_, before = _SHARE.findall(text)
    text = re.sub(r" ?<!--.*?-->", "", text, flags=re.DOTALL)
    text = text.replace("(notebooks/24_photographs.ipynb)", "(notebooks/24_photographs.html)")
    _, _, caption, lead, number, _, commands, *_ = text.split("\n\n")
    return {
        "caption": _html(caption.strip("*")),
        "lead": _html(lead),
        "number": _html(number),
        "after": after,
        "before": before,
        "commands": commands.removeprefix("```sh\n").removesuffix("\n```"),
    }


def _html(text: str) -> str:
    html: str = MarkdownIt().renderInline(text)
    return html


def teach(page: str) -> str:
    """A page of docs/ for teachers, whose links lead to pages of the site."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.replace("](../notebooks/", "](notebooks/").replace("(ledger.md", "(ledger/index.md")


def which_loss() -> str:
    """The recommendation of docs/which_loss.md, without what it rests on."""
    text = (ROOT / "docs" / "which_loss.md").read_text(encoding="utf-8")
    text = text.partition("\n\n")[2].partition("\n## ")[0]
    return re.sub(r" ?<!--.*?-->", "", text)


def ledger_head() -> str:
    """What docs/ledger.md says before its rows, without links to pages that the site has not."""
    head = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8").partition("<!-- claims -->")[0]
    return re.sub(r"\[([^]]+)\]\(\w+\.md\)", r"\1", head).partition("\n")[2].strip()


def ledger_by_conditions(frame: pd.DataFrame) -> str:
    """A table as HTML: a row for each claim, a column for each condition, a sign for each word."""
    shown = frame[frame["word"].isin(claims.WORDS)]
    wide = list(dict.fromkeys(shown.sort_values("claim", kind="stable")["condition"]))
    heads = "".join(f'<th scope="col"><span>{claims.placed(at)}</span></th>' for at in wide)
    lines = [f'<tr><th scope="col">Claim</th>{heads}</tr>']
    for name, rows in shown.groupby("claim", sort=False):
        cells = (
            " ".join(map(_sign, rows[rows["condition"] == at].itertuples(index=False)))
            for at in wide
        )
        about = escape(claims.table()[name]["claim"])
        lines.append(
            f'<tr><th scope="row"><a href="#{name.lower()}"><b>{name}</b> {about}</a></th>'
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    return f'<div class="wide"><table class="claims">{"".join(lines)}</table></div>'


def _target(found: re.Match[str]) -> str:
    return f"({found[1].lower()})=\n{found[0]}"


def _sign(row: Any) -> str:
    """What stands for a word, and the word for those who hover or listen."""
    found = ledger.outcome(row.word, row.stands).replace(" ", "-")
    word = row.word + ", but not after correction" * (row.word in claims.DECIDED and not row.stands)
    return f'<span class="sign {found}" title="{word}"><span class="away">{word}</span></span>'


def _write_atlas(folder: Path, there: Sequence[str]) -> None:
    known = atlas.atlas()
    families = list(dict.fromkeys(loss["entry"].family for loss in known))
    results = [loss["results"] for loss in known]
    powers = {name: row["power"] for each in results for name, row in each.items() if row}
    shown: dict[str, Any] = {"losses": known, "families": families, "conditions": list(results[0])}
    shown |= {"which": which_loss(), "symbols": poster.SYMBOLS, "tabs": tabs("losses", there)}
    live = "playground" in there
    _set(folder / "index.md", "losses.md", **shown, powers=powers)
    for loss in known:
        name = loss["entry"].name
        _set(folder / f"{name}.md", "loss.md", **loss, springs=drawings.springs(name), live=live)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(SITE / "templates"),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    found.filters["plain"] = plain
    found.filters["group"] = choice.title
    found.filters["number"] = book.number
    found.globals |= {"picture": notebooks.picture}
    return found


def plain(text: str) -> str:
    r"""Text as Markdown that shows it letter by letter, but for a docstring's ``code``.

    >>> print(plain("x_i < 3, by ``x_i``"))
    x\_i \< 3, by `x_i`
    """
    return "".join(
        f"`{part}`" if i % 2 else re.sub(r"([\\`*_{}\[\]<>#$|~])", r"\\\1", part)
        for i, part in enumerate(re.split("``(.+?)``", text))
    )


def _set(path: Path, template: str, **context: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_templates().get_template(template).render(**context), encoding="utf-8")
