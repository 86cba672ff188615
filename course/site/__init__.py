"""The course as a static site: ``dmlkit site``.

The pages are made from what is committed: the notebooks with their outputs, ``figures/``, the
ledger, the table of losses, ``benchmarks/RESULTS.md``, the evidence of the studies and the
docstrings. Nothing of the course is executed. Sphinx with MyST-NB sets them (``conf.py``); their
words are in ``templates``.
"""

import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course import book, ledger
from course.site import atlas, drawings, notebooks
from dmlkit import ROOT, losses
from studies import claims

SITE = Path(__file__).parent
#: What ``make playground`` writes; the site has it where it is there.
PLAYGROUND = ROOT / "build" / "playground"
#: On the front page.
BEST_FIGURES = ("00_before_after", "19_photograph", "02_force_field", "15_table", "17_losses")


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
    if PLAYGROUND.exists():
        shutil.copytree(PLAYGROUND, source / "_extra" / "playground")
    figures, course, frame = notebooks.figures(), book.course(), claims.ledger()
    facts = {name: book.facts(notebook) for name, notebook in course.items()}
    notebooks.write(source / "notebooks", course, figures)
    _set(source / "ledger" / "index.md", "ledger.md", text=ledger.markdown(frame))
    _write_atlas(source / "losses")
    context = {
        "figures": figures,
        "best": {name: figures[name] for name in BEST_FIGURES},
        "tally": ledger.tally(frame),
        "facts": facts,
        "claims": len(claims.table()),
        "losses": len(losses.entries()),
        "cff": (ROOT / "CITATION.cff").read_text(encoding="utf-8"),
        "playground": PLAYGROUND.exists(),
    }
    for name in ("index", "gallery", "play", "teach", "cite"):
        _set(source / f"{name}.md", f"{name}.md", **context)


def _write_atlas(folder: Path) -> None:
    known = atlas.atlas()
    families = list(dict.fromkeys(loss["entry"].family for loss in known))
    _set(folder / "index.md", "losses.md", losses=known, families=families)
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
    found.globals |= {"picture": notebooks.picture, "studies": atlas.STUDIES}
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
