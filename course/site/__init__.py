"""The course as a static site: ``make site``, or ``python -m course.site``.

The pages are made from what is committed: the notebooks with their outputs, ``figures/``, the
ledger, the table of losses, ``benchmarks/RESULTS.md``, the evidence of the studies and the
docstrings. Nothing of the course is executed. Sphinx with MyST-NB sets them (``site/conf.py``);
their words are templates in ``site/templates``. ``links.faults`` then reads the finished site.
"""

import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from course import book, ledger
from course.site import atlas, drawings, links, notebooks
from dmlkit import ROOT, claims, losses

SITE = Path(__file__).parent
#: What the ledger's short names of papers stand for.
PAPERS = {
    "sec_meta_review": "the meta-review of Zhang, Li and Zhang, *Deep Metric Learning with "
    "Spherical Embedding* (2020)",
    "see_extended_abstract": "Le and Woo, *SEE: Spherical Embedding Expansion for Improving Deep "
    "Metric Learning* (2024)",
    "unbiased_evaluation": "Fehérvári, Ravichandran and Appalaraju, *Unbiased Evaluation of Deep "
    "Metric Learning Algorithms* (2019)",
}
#: On the front page.
BEST_FIGURES = ("00_before_after", "02_force_field", "15_table", "17_losses")


def build(out: Path) -> list[str]:
    """Make the site in a folder, its sources in one beside it, and list what is wrong with it.

    Raises:
        ValueError: Sphinx failed or warned; it has printed of what.
    """
    from sphinx.cmd.build import build_main

    source = out.with_name(f"{out.name}-source")
    gather(source)
    options = ["-q", "-b", "html", "-W", "--keep-going", "-j", "auto", "-d"]
    if status := build_main([*options, str(source / "_doctrees"), str(source), str(out)]):
        raise ValueError(f"Sphinx ended with status {status}: see what it printed above")
    return list(links.faults(out))


def gather(source: Path) -> None:
    """Write the sources of the site; what is there already and equal stays untouched."""
    texts = dict(pages())
    for old in source.rglob("*"):
        place = str(old.relative_to(source))
        if old.is_file() and not place.startswith("_") and place not in texts:
            old.unlink()
    for place, text in texts.items():
        path = source / place
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    shutil.copytree(SITE / "static", source / "_static", dirs_exist_ok=True)
    extra = source / "_extra"
    shutil.rmtree(extra, ignore_errors=True)
    shutil.copytree(ROOT / "figures", extra / "figures")
    if playground().exists():
        shutil.copytree(playground(), extra / "playground")
    if font := _math_font():
        shutil.copy2(font, source / "_static" / "math.ttf")


def playground() -> Path:
    """What ``course.playground`` makes, with an ``index.html``; it need not be there."""
    return ROOT / "build" / "playground"


def _math_font() -> Path | None:
    """STIX Two Math, for browsers on machines that have no font for formulas."""
    spec = find_spec("ziamath")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "fonts" / "STIXTwoMath-Regular.ttf"


# --- Pages ----------------------------------------------------------------------------------------


def pages() -> Iterator[tuple[str, str]]:
    """Every page's place in the sources, and its text."""
    known, read, frame = notebooks.figures(), book.course(), claims.verdicts()
    facts = {name: book.facts(notebook) for name, notebook in read.items()}
    yield "conf.py", (SITE / "conf.py").read_text(encoding="utf-8")
    yield from notebooks.pages(read, facts, known)
    yield from _gallery(known, facts)
    yield from _ledger(known, frame)
    yield from atlas_pages()
    yield from _api()
    changes, cff = ROOT / "CHANGELOG.md", ROOT / "CITATION.cff"
    context = {
        "best": [known[name] for name in BEST_FIGURES if name in known],
        "tally": ledger.tally(frame),
        "facts": facts,
        "counts": (len(facts), len(known), len(claims.table()), len(losses.entries())),
        "cff": cff.read_text(encoding="utf-8") if cff.exists() else "",
        "playground": playground().exists(),
        "changes": changes.exists(),
    }
    for name in ("index", "play", "teach", "cite"):
        yield f"{name}.md", _set(f"{name}.md", **context)
    if changes.exists():
        yield "changelog.md", changes.read_text(encoding="utf-8")
    yield "other_tools.md", (ROOT / "docs" / "other_tools.md").read_text(encoding="utf-8")


def _gallery(
    known: dict[str, notebooks.Figure], facts: dict[str, book.Facts]
) -> Iterator[tuple[str, str]]:
    titles = {name: each.title for name, each in facts.items()}
    groups = {
        name: [figure for figure in known.values() if figure.notebook == name] for name in titles
    }
    groups = {name: found for name, found in groups.items() if found}
    yield "gallery/index.md", _set("gallery.md", groups=groups, titles=titles)
    for name, found in groups.items():
        yield f"gallery/{name}.md", _set("figures.md", name=name, title=titles[name], figures=found)


def _ledger(known: dict[str, notebooks.Figure], frame: pd.DataFrame) -> Iterator[tuple[str, str]]:
    summary = ledger.summary(frame)
    context = {"table": claims.table(), "summary": summary, "papers": PAPERS}
    yield "ledger/index.md", _set("ledger.md", tally=ledger.tally(frame), **context)
    for name, row in claims.table().items():
        mine = frame[frame["claim"] == name].sort_values("primary", ascending=False, kind="stable")
        shown = [known[figure] for figure in dict.fromkeys(mine["figure"])]
        page = _set(
            "claim.md", name=name, row=row, verdict=summary.loc[name], forest=forest(mine),
            parts=mine.to_dict("records"), figures=shown, paper=PAPERS[row["source"]],
        )  # fmt: skip
        yield f"ledger/{name}.md", page


def forest(parts: pd.DataFrame) -> str:
    """The parts of a claim that have an interval, one below the other on one axis, as HTML."""
    drawn = parts.dropna(subset=["low", "high"])
    if drawn.empty:
        return ""
    ends = drawings.span(drawn)
    rows = "".join(
        _forest_row(row["part"], row, ends, "primary" * bool(row["primary"]))
        for row in drawn.to_dict("records")
    )
    axis = f"<span>{ends[0]:+.3g}</span><span>{ends[1]:+.3g}</span>"
    return f'<div class="forest">{rows}<div class="ends" aria-hidden="true">{axis}</div></div>'


def _forest_row(label: str, row: Any, ends: tuple[float, float], kind: str = "") -> str:
    low, mean, high = (row[key] for key in ("low", "effect", "high"))
    numbers = f"{mean:+.3g} [{low:+.3g}, {high:+.3g}], n = {row['n']}"
    word = f'<b class="verdict {row["verdict"].replace(" ", "-")}">{row["verdict"]}</b>'
    return (
        f'<div class="row {kind}"><span>{escape(label)}</span><span>{word} {numbers}</span>'
        f"{drawings.bar(low, mean, high, ends, row['margin'])}</div>"
    )


def atlas_pages() -> Iterator[tuple[str, str]]:
    """The atlas of losses, a page for each of them, and which one to use."""
    known, results = list(atlas.atlas()), atlas.results()
    families: dict[str, list[atlas.Loss]] = {}
    for loss in known:
        families.setdefault(loss.entry.family, []).append(loss)
    yield "losses/index.md", _set("losses.md", families=families, results=results)
    yield "losses/which.md", _set("which.md", losses=known, results=results)
    for loss in known:
        name = loss.entry.name
        curves = drawings.force_field(name), drawings.weight_curve(name)
        yield f"losses/{name}.md", _set("loss.md", loss=loss, curves=curves, results=results)


def _api() -> Iterator[tuple[str, str]]:
    """A page for each room of the package: what its docstrings say, with their examples."""
    rooms: dict[str, list[str]] = {}
    for path in sorted((ROOT / "dmlkit").rglob("*.py")):
        *folders, name = path.relative_to(ROOT).with_suffix("").parts
        if name == "__init__":
            rooms.setdefault(".".join(folders), []).insert(0, ".".join(folders))
        elif name != "__main__":
            package = ".".join(folders)
            rooms.setdefault(package if len(folders) > 1 else f"dmlkit.{name}", []).append(
                f"{package}.{name}"
            )
    del rooms["dmlkit"]
    yield "api/index.rst", _set("api.rst", rooms=rooms)
    for room, modules in rooms.items():
        packages = [module for module in modules if module == room and len(modules) > 1]
        yield f"api/{room}.rst", _set("room.rst", room=room, modules=modules, packages=packages)


@cache
def _templates() -> Environment:
    found = Environment(
        loader=FileSystemLoader(SITE / "templates"),
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    found.filters["plain"] = plain
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


def _set(template: str, **context: Any) -> str:
    return _templates().get_template(template).render(**context)


def main() -> int:
    """Build the site, in the folder that is named, and say what is wrong with it."""
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    faults = build(out)
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201
    print(f"{out / 'index.html'}: {len(faults)} faults")  # noqa: T201
    return 1 if faults else 0
