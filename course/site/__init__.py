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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course import book, explorables, launch, ledger
from course.site import atlas, drawings, notebooks
from dmlkit import ROOT, __version__, losses
from studies import choice, claims

SITE = Path(__file__).parent
#: What ``make playground explainer`` leaves in build/: the site has each where it is there.
LIVE = ("explorables", "playground", "explainer")
#: Pages of one look, each a tab of the others: the folder, and what the tab says.
TABS = {"playground": "Forces", "explainer": "Training", "losses": "Atlas"}
#: On the front page, beside the README's.
BEST_FIGURES = ("00_map", "02_force_field", "16_sphere", "19_groups")


#: The three ways on the first screen, which are told below.
_WAYS = """
<div class="doors">
<a href="#three-ways-to-begin"><b>Run it</b>git clone, make lab</a>
<a href="#three-ways-to-begin"><b>Use it</b>Five lines of Python</a>
<a href="notebooks/index.html"><b>Read it</b>Here, or in Colab</a>
</div>
"""


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


def write(source: Path) -> None:
    """Write the sources of the site into a new folder."""
    shutil.copytree(ROOT / "figures", source / "_extra" / "figures")
    there = [part for part in LIVE if (ROOT / "build" / part).exists()]
    for part in there:
        shutil.copytree(ROOT / "build" / part, source / "_extra" / part)
    for part in {"playground", "explainer"} & set(there):
        page = source / "_extra" / part / "index.html"
        text = page.read_text(encoding="utf-8").replace("<!-- tabs -->", tabs(part, there))
        page.write_text(text, encoding="utf-8")
    figures, course, frame = notebooks.figures(), book.course(), claims.ledger()
    facts = {name: book.facts(notebook) for name, notebook in course.items()}
    notebooks.write(source / "notebooks", course, figures)
    _set(
        source / "ledger" / "index.md", "ledger.md", head=ledger_head(),
        text=ledger.markdown(frame), table=ledger_by_conditions(frame),
    )  # fmt: skip
    _write_atlas(source / "losses")
    (source / "teach.md").write_text(teach(), encoding="utf-8")
    context = {
        "front": front(launch.repository()),
        "figures": figures,
        "best": {name: figures[name] for name in BEST_FIGURES},
        "tally": ledger.tally(frame),
        "facts": facts,
        "claims": len(claims.table()),
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
    2
    """
    links = [
        f'<a href="../{part}/index.html"{" aria-current=page" * (part == current)}>{name}</a>'
        for part, name in TABS.items()
        if part in (*there, "losses")
    ]
    return f'<nav class="tabs" aria-label="Play">{"".join(links)}</nav>'


def front(repository: str) -> str:
    """The README up to the course, as the first page has it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## The course")[0]
    text = re.sub(r" ?<!--.*?-->", "", launch.addressed(text, repository), flags=re.DOTALL)
    text = re.sub(r"\[([^]]+)\]\(figures/[\w.]+\.md\)", r"\1", text)
    shown = r"!\[([^]]*)\]\(figures/(\w+\.(?:png|webp))\)"
    small = r'<img src="figures/\2" alt="\1">'
    return re.sub(shown, small, text).replace("\n## ", f"\n{_WAYS}\n## ", 1)


def teach() -> str:
    """The teacher's guide of docs/, whose links lead to pages of the site."""
    text = (ROOT / "docs" / "teach.md").read_text(encoding="utf-8")
    return text.replace("](../notebooks/", "](notebooks/").replace("(ledger.md", "(ledger/index.md")


def ledger_head() -> str:
    """What docs/ledger.md says before its rows, without links to pages that the site has not."""
    head = (ROOT / "docs" / "ledger.md").read_text(encoding="utf-8").partition("<!-- claims -->")[0]
    return re.sub(r"\[([^]]+)\]\(\w+\.md\)", r"\1", head).strip()


def ledger_by_conditions(frame: pd.DataFrame) -> str:
    """A table of words: a row for each claim, a column for each condition."""
    shown = frame[frame["word"].isin(claims.WORDS)]
    wide = list(dict.fromkeys(shown.sort_values("claim", kind="stable")["condition"]))
    heads = map(claims.placed, wide)
    lines = ["| claim | " + " | ".join(heads) + " |", "|---" * (len(wide) + 1) + "|"]
    for name, rows in shown.groupby("claim", sort=False):
        words = {
            at: " ".join(
                f'<span class="word {_look(row.word, row.stands)}">{row.word}</span>'
                for row in rows[rows["condition"] == at].itertuples()
            )
            for at in wide
        }
        about = plain(claims.table()[name]["claim"])
        lines.append(f"| **{name}** {about} | " + " | ".join(words.values()) + " |")
    return "\n".join(lines)


def _look(word: str, stands: bool) -> str:
    return word.split()[0] if stands or word not in claims.DECIDED else "falls"


def _write_atlas(folder: Path) -> None:
    known = atlas.atlas()
    families = list(dict.fromkeys(loss["entry"].family for loss in known))
    results = [loss["results"] for loss in known]
    powers = {name: row["power"] for each in results for name, row in each.items() if row}
    shown = {"losses": known, "families": families, "conditions": list(results[0])}
    _set(folder / "index.md", "losses.md", **shown, powers=powers)
    for loss in known:
        name = loss["entry"].name
        drawings.forces(name).savefig(folder / f"{name}.png", dpi=150)
        _set(folder / f"{name}.md", "loss.md", **loss)


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
