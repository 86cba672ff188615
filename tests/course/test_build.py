"""The site is whole: nothing is fetched from elsewhere, no link is broken, no image lacks words."""

import json
import re
import subprocess
import sys
from html import unescape
from pathlib import Path

import nbformat
import numpy as np
import pandas as pd
import pytest

from course import book
from dmlkit import ROOT, claims, losses

for package in ("sphinx", "myst_nb", "furo", "latex2mathml"):
    pytest.importorskip(package, reason="the site needs: pip install --editable '.[site]'")

from course import launch, site  # noqa: E402
from course.site import atlas, drawings, links, notebooks  # noqa: E402
from course.site.sphinx import mathml  # noqa: E402

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, str]:
    """The whole site, made as `make site` makes it, and what was printed.

    A warning or a fault ends it with an error.
    """
    out = tmp_path_factory.mktemp("build") / "site"
    command = [sys.executable, "-m", "course.site", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, done.stdout


@pytest.fixture(scope="module")
def built(made) -> Path:
    """The folder of the site."""
    return made[0]


@pytest.fixture(scope="module")
def sources(built) -> dict[str, str]:
    """Every page before it was set."""
    folder = built.with_name(f"{built.name}-source")
    pages = (path for path in folder.rglob("*.*") if path.suffix in (".md", ".rst", ".ipynb"))
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for path in pages
        if not path.relative_to(folder).parts[0].startswith("_")
    }


def text(built: Path, page: str) -> str:
    return unescape((built / page).read_text(encoding="utf-8"))


# --- The finished site ----------------------------------------------------------------------------


def test_nothing_is_fetched_no_link_is_broken_and_every_image_has_words(made):
    """Which is what links.faults looks for, before the command ends."""
    out, printed = made
    assert printed.splitlines()[-1] == f"{out / 'index.html'}: 0 faults"


def test_there_is_a_page_for_each_notebook_claim_loss_and_module(built):
    expected = [f"notebooks/{name}.html" for name in (*book.course(), "index", "glossary")]
    expected += [f"ledger/{claim}.html" for claim in claims.table()]
    expected += [f"losses/{entry.name}.html" for entry in losses.entries()]
    assert [page for page in expected if not (built / page).is_file()] == []
    api = "".join(path.read_text() for path in built.glob("api/*.html"))
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "dmlkit").rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    ]
    assert [module for module in modules if f'id="module-{module}"' not in api] == []


def test_every_figure_is_in_the_gallery_and_in_its_notebook(built):
    for name, figure in notebooks.figures().items():
        for page in (f"gallery/{figure.notebook}.html", f"notebooks/{figure.notebook}.html"):
            found = text(built, page)
            assert f'id="fig-{name}"' in found, (name, page)
            assert figure.alt in found, (name, page)
        assert f"../notebooks/{figure.notebook}.html#fig-{name}" in text(
            built, f"gallery/{figure.notebook}.html"
        )
        numbers = json.loads((built / "figures" / f"{name}.json").read_text())["numbers"]
        assert numbers == json.loads((ROOT / "figures" / f"{name}.json").read_text())["numbers"]


def test_formulas_are_set_as_the_site_is_built(built):
    for page in (*built.glob("notebooks/*.html"), *built.glob("losses/*.html")):
        found = re.sub(r"<(pre|code|script)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r"\$[^$\n<]+\$|\\(?:frac|sum|lVert|cos)\b", found), page.name
        assert not [f for f in re.findall(r"<math\b.*?</math>", found, re.DOTALL) if "\\" in f]
    assert "<math" in text(built, "notebooks/02_pairs.html")


def test_outputs_are_those_of_the_notebooks(built):
    page = re.sub(r"<[^>]+>", "", (built / "notebooks" / "02_pairs.html").read_text())
    notebook = nbformat.read(ROOT / "notebooks" / "02_pairs.ipynb", as_version=4)
    printed = [o.text for c in notebook.cells for o in c.get("outputs", []) if "text" in o]
    assert len(printed) > 5
    assert [lines for lines in printed if lines.strip() not in unescape(page)] == []


def test_what_draws_and_what_solves_is_folded(built):
    page = text(built, "notebooks/02_pairs.html")
    cells = nbformat.read(ROOT / "notebooks" / "02_pairs.ipynb", as_version=4).cells
    solved = ["### BEGIN SOLUTION" in cell.source for cell in cells]
    hidden = [book.HIDDEN in cell.metadata.get("tags", []) for cell in cells]
    assert page.count("Show the solution") == sum(solved) > 0
    folded = sum(a or b for a, b in zip(solved, hidden, strict=True))
    assert len(re.findall(r'<details class="[^"]*hide', page)) == folded


# --- The sources ----------------------------------------------------------------------------------


def test_each_claim_says_its_design_and_its_verdict(sources):
    frame = claims.verdicts()
    for name, row in claims.table().items():
        page = sources[f"ledger/{name}.md"]
        for key in ("sentence", "measure", "for", "against", "primary"):
            assert site.plain(row[key]) in page, (name, key)
        primary = frame[(frame["claim"] == name) & frame["primary"]]["verdict"].tolist()
        assert f">{(primary or ['open'])[0]}</b>" in page


def test_the_forest_plot_has_the_intervals_of_the_figures():
    frame = claims.verdicts()
    parts = frame[frame["claim"] == "B4"]
    drawn = site.forest(parts)
    assert drawn.count("<svg") == parts["low"].notna().sum() > 0
    for row in parts.dropna(subset=["low"]).to_dict("records"):
        assert f"{row['effect']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]" in drawn


# No force at all: where only words are read, those of 45 losses are not computed.
STILL = drawings.Forces(np.array([90]), np.zeros(1), np.zeros((6, 2)), np.zeros((6, 2)))


def test_studies_that_are_not_there_are_not_measured_yet(monkeypatch):
    none = {name: atlas.ranked(pd.DataFrame()) for name in atlas.STUDIES}
    scores = {
        "arm": ["contrastive"] * 2 + ["margin + SEC"] * 2,
        "recall_at_1": [0.7, 0.8, 0.6, 0.6],
    }
    some = none | {"scratch": atlas.ranked(pd.DataFrame(scores))}
    monkeypatch.setattr(drawings, "forces", lambda name: STILL)
    monkeypatch.setattr(atlas, "results", lambda: none)
    pages = dict(site.atlas_pages())
    assert pages["losses/which.md"].count("**not measured yet**") == len(none)
    assert pages["losses/contrastive.md"].count(": not measured yet") == len(none)
    monkeypatch.setattr(atlas, "results", lambda: some)
    pages = dict(site.atlas_pages())
    assert "| 1 | [contrastive](contrastive.md) | 75.0 |" in pages["losses/which.md"]
    assert "Recall@1 75.0 %" in pages["losses/contrastive.md"]
    assert pages["losses/margin.md"].count(": not measured yet") == len(none)


def test_every_loss_has_a_sentence_on_when_to_use_it_and_none_is_of_another_name():
    named = [loss.when for loss in atlas.atlas()]
    assert all(len(sentence) > 40 for sentence in named)
    assert len(set(named)) == len(named)


def test_the_teachers_guide_has_objectives_and_questions_for_each_notebook(sources):
    for name, notebook in book.course().items():
        section = sources["teach.md"].split(f"(notebooks/{name}.ipynb)")[1].split("\n### ")[0]
        assert all(goal in section for goal in book.facts(notebook).objectives)
        assert "To discuss:" in section


@pytest.mark.parametrize("repository", ["owner/name", ""])
def test_each_notebook_can_be_opened_elsewhere_if_the_repository_has_an_address(
    repository, monkeypatch
):
    monkeypatch.setattr(launch, "repository", lambda: repository)
    read, known = book.course(), notebooks.figures()
    facts = {name: book.facts(notebook) for name, notebook in read.items()}
    pages = dict(notebooks.pages(read, facts, known))
    for name in read:
        first = json.loads(pages[f"notebooks/{name}.ipynb"])["cells"][0]["source"]
        links = re.findall(r"\[open in (\w+)\]\((https://\S+)\)", "".join(first))
        assert [service for service, _ in links] == ["Colab", "Kaggle", "Binder"][: len(links)]
        assert len(links) == (3 if repository else 0)
        assert all(f"notebooks/{name}.ipynb" in link and repository in link for _, link in links)


def test_the_playground_is_linked_where_it_was_made_else_it_says_how(tmp_path, monkeypatch):
    monkeypatch.setattr(drawings, "forces", lambda name: STILL)
    monkeypatch.setattr(site, "playground", lambda: tmp_path / "none")
    pages = dict(site.pages())
    assert "\nplay\n" in pages["index.md"]
    assert "make playground" in pages["play.md"]
    assert "playground/index.html" not in pages["play.md"]
    monkeypatch.setattr(site, "playground", lambda: tmp_path)
    play = dict(site.pages())["play.md"]
    assert "playground/index.html" in play
    assert "make playground" not in play


def test_which_loss_leads_to_the_losses_and_says_how_the_studies_differ(sources):
    page = sources["losses/which.md"]
    assert "| [proxy\\_anchor](proxy_anchor.md) |" in page
    assert "| triplet\\_all + SEC |" in page
    assert "## The study transfer: fine-tuned from a pretrained network" in page


def test_the_atlas_shows_names_of_code_as_code(sources):
    atlas_page = sources["losses/index.md"]
    assert "Classify into `dim` meta-classes" in atlas_page
    assert "\\`" not in atlas_page


def test_a_formula_is_mathml():
    assert mathml(r"\arg\max_i x_i").startswith("<math")
    assert "\\" not in mathml(r"\arg\max_i \bigl\{ x_i \bigr\}")
    assert "mspace" in mathml(r"\sin\theta")
    assert "mspace" not in mathml(r"\sin^2 \theta")


@pytest.mark.parametrize("tex", [r"\lVert f \rVert^2", r"\|f\|^2", r"P(a \mid b)"])
def test_a_bar_is_as_tall_as_a_letter_unless_it_is_made_taller(tex):
    """Browsers stretch it to the tallest part of the line, as they find it."""
    bars = re.findall("<mo([^>]*)>(?:&#x02016|&#x02223);", mathml(tex))
    assert bars
    assert all('stretchy="false"' in attributes for attributes in bars)


# --- The scan -------------------------------------------------------------------------------------

FAULTY = {
    '<img src="https://example.org/a.png" alt="a">': "would fetch https://example.org/a.png",
    '<script src="//example.org/a.js"></script>': "would fetch //example.org/a.js",
    '<link rel="stylesheet" href="http://example.org/a.css">': "would fetch http://example.org",
    "<style>@import url(https://example.org/a.css)</style>": "would load",
    '<p style="background: url(https://example.org/a.png)">': "would load",
    '<script>fetch("https://example.org/x")</script>': "would load",
    '<script>await import("https://example.org/x.js")</script>': "would load",
    '<img src="here.png">': "no alt text",
    '<a href="nowhere.html">x</a>': "link to nowhere.html",
    '<a href="#nowhere">x</a>': "no such anchor",
    '<img src="missing.png" alt="a">': "fetches missing.png",
}


@pytest.mark.parametrize(("html", "fault"), FAULTY.items())
def test_the_scan_names_each_kind_of_fault(html, fault, tmp_path):
    (tmp_path / "here.png").touch()
    (tmp_path / "index.html").write_text(f"<html><body>{html}</body></html>")
    (found,) = links.faults(tmp_path)
    assert fault in found


def test_the_scan_reads_styles_and_scripts_beside_the_pages(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url(https://example.org/f.woff2) }")
    (tmp_path / "a.js").write_text('new Worker("https://example.org/w.js")')
    assert len(list(links.faults(tmp_path))) == 2


def test_links_that_a_reader_follows_are_no_fault(tmp_path):
    (tmp_path / "index.html").write_text(
        '<a href="https://example.org">x</a><a href="b.html#c">y</a><a href="#top">z</a>'
    )
    (tmp_path / "b.html").write_text('<p id="c">c</p>')
    (tmp_path / "a.js").write_text('const about = "https://example.org/licence";')
    assert list(links.faults(tmp_path)) == []


def test_the_figures_on_the_front_page_are_there():
    assert set(site.BEST_FIGURES) <= notebooks.figures().keys()
