"""The site is whole: all pages are there, without a warning, and a browser misses nothing."""

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from course import book, ledger, solutions
from dmlkit import ROOT, losses, recipes
from dmlkit.cli.settings import literals
from studies import choice, claims

for package in ("sphinx", "myst_nb", "furo", "latex2mathml"):
    pytest.importorskip(package, reason="the site needs: pip install --editable '.[site]'")

from course import launch, site  # noqa: E402
from course.site import atlas, notebooks  # noqa: E402
from course.site.conf import mathml  # noqa: E402

from .conftest import complaints, fits, phone  # noqa: E402

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole site, as `make site` makes it; a warning ends it with an error."""
    out = tmp_path_factory.mktemp("build") / "site"
    command = [sys.executable, "-m", "dmlkit", "site", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def text(built: Path, page: str) -> str:
    return unescape((built / page).read_text(encoding="utf-8"))


def test_there_is_a_page_for_each_notebook_claim_loss_and_module(built: Path) -> None:
    expected = [f"notebooks/{name}.html" for name in (*book.course(), "index", "glossary")]
    expected += ["ledger/index.html"]
    expected += [f"losses/{entry.name}.html" for entry in losses.entries()]
    assert [page for page in expected if not (built / page).is_file()] == []
    api = "".join(path.read_text() for path in built.glob("api/*.html"))
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "dmlkit").rglob("*.py")
        if path.stem not in ("__init__", "__main__")
    ]
    assert [module for module in modules if f'id="module-{module}"' not in api] == []


def test_every_figure_is_in_the_gallery_and_in_its_notebook(built: Path) -> None:
    gallery = text(built, "gallery.html")
    for name, figure in notebooks.figures().items():
        page = f"notebooks/{figure['provenance']['notebook']}.html"
        assert f'id="fig-{name}"' in text(built, page), name
        assert figure["alt"] in text(built, page), name
        assert f"{page}#fig-{name}" in gallery
        assert json.loads((built / "figures" / f"{name}.json").read_text()) == figure


def test_formulas_are_set_as_the_site_is_built(built: Path) -> None:
    for page in (*built.glob("notebooks/*.html"), *built.glob("losses/*.html")):
        found = re.sub(r"<(pre|code|script)\b.*?</\1>", "", page.read_text(), flags=re.DOTALL)
        assert not re.findall(r"\$[^$\n<]+\$|\\(?:frac|sum|lVert|cos)\b", found), page.name
        assert not [f for f in re.findall(r"<math\b.*?</math>", found, re.DOTALL) if "\\" in f]
    assert "<math" in text(built, "notebooks/02_pairs.html")


def test_a_notebook_has_its_own_outputs_and_folds_what_draws_and_solves(built: Path) -> None:
    page = text(built, "notebooks/07_clustering.html")
    words = re.sub(r"<[^>]+>", "", (built / "notebooks" / "07_clustering.html").read_text())
    cells = nbformat.read(ROOT / "notebooks" / "07_clustering.ipynb", as_version=4).cells
    printed = [o.text for c in cells for o in c.get("outputs", []) if "text" in o]
    assert len(printed) > 4
    assert [lines for lines in printed if lines.strip() not in unescape(words)] == []
    cells = notebooks.pictures_first(cells)  # what prepares a picture is folded with it
    solved = [solutions.BEGIN in solutions.opened(cell.source) for cell in cells]
    hidden = [book.HIDDEN in cell.metadata.get("tags", []) for cell in cells]
    assert page.count("Show the solution") == sum(solved) > 0
    folded = sum(a or b for a, b in zip(solved, hidden, strict=True))
    assert len(re.findall(r'<details class="[^"]*hide', page)) == folded


def test_the_first_page_has_the_claim_of_the_readme_and_leads_to_all_others(built: Path) -> None:
    page = text(built, "index.html")
    said = site.front()
    assert all(part in page for part in (said["lead"], said["number"], said["caption"], "make lab"))
    assert f"untouched, with more pixels, for {said['before']} %." in said["number"]
    assert f"<strong>{said['after']} %</strong>" in said["number"]
    for name in ("notebooks/index", "losses/index", "ledger/index", "play", "teach", "gallery"):
        assert f'href="{name}.html"' in page
    for name in (*book.course(), *(entry.name for entry in losses.entries())):
        assert re.search(rf'href="\w+/{name}\.html"', page), name


def test_a_loss_has_its_equation_settings_and_evidence(built: Path) -> None:
    page = text(built, "losses/multi_similarity.html")
    assert page.partition('class="equation"')[2].count("<math") >= 2
    words = re.sub(r"<[^>]+>", "", page)
    assert 'losses.build("multi_similarity", beta=50.0, base=0.5)' in words
    assert "--set backbone_lr_factor=0.1" in words
    drawn = re.search(r'<svg class="evidence".*?</svg>', page, re.DOTALL)
    assert drawn
    assert drawn[0].count('<circle class="own"') == len(choice.SHOWN)
    assert "not separated from the best" in words


def test_settings_to_paste_make_the_loss_and_the_experiment() -> None:
    """What the page says of a loss is what the package takes; NumPy's repr would be none."""
    for entry in losses.entries():
        if found := atlas.paste(entry.name):
            made = eval(found["python"].partition("= ")[2], {"losses": losses})
            assert isinstance(made, torch.nn.Module)
            words = shlex.split(found["shell"].replace("\\\n", " "))
            asked = literals(words[i + 1] for i, word in enumerate(words) if word == "--set")
            recipe = "photos_features" if "features" in words else "photos_grocery_lite0"
            assert recipes.load(recipe, entry.name, recipes.nested(asked)).loss == entry.name


def test_the_teacher_s_guide_speaks_of_each_lesson() -> None:
    guide = (ROOT / "docs" / "teach.md").read_text(encoding="utf-8")
    assert guide == book.guide(book.renumbered(guide), book.course()), "run python -m course.book"
    asked = re.findall(r"^### \[.+\]\(\.\./notebooks/(\w+)\.ipynb\)\n\n.+\n\n- ", guide, re.M)
    assert asked == [*book.course()], "questions to discuss, in the order of the course"
    assert guide.count("**A typical mistake.**") == len(asked)
    weeks = [int(each) for each in re.findall(r"^\| \d+ \| .+? \| (\d+) \|", guide, re.M)]
    assert len(weeks) == 12
    assert max(weeks) <= 180, "90 minutes together, and as many at home"


def test_the_ledger_has_each_row_of_each_claim(built: Path) -> None:
    page = text(built, "ledger/index.html").replace("’", "'")  # as Sphinx sets it
    for name, condition, word, *_ in ledger.rows(claims.ledger()):
        assert f"{name} · " in page
        assert condition in page
        assert word.strip("*") in page


@pytest.mark.parametrize("repository", ["owner/name", ""])
def test_each_notebook_can_be_opened_elsewhere_if_the_repository_has_an_address(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "repository", lambda: repository)
    course = book.course()
    notebooks.write(tmp_path / "notebooks", course, notebooks.figures())
    for name in course:
        first = nbformat.read(tmp_path / "notebooks" / f"{name}.ipynb", as_version=4).cells[0]
        links = re.findall(r"\[open in (\w+)\]\((https://\S+)\)", first.source)
        assert [service for service, _ in links] == ["Colab", "Kaggle", "Binder"][: len(links)]
        assert len(links) == (3 if repository else 0)
        assert all(f"notebooks/{name}.ipynb" in link and repository in link for _, link in links)


def test_a_formula_is_mathml() -> None:
    assert mathml(r"\arg\max_i x_i").startswith("<math")
    assert "\\" not in mathml(r"\arg\max_i \bigl\{ x_i \bigr\}")
    assert "mspace" in mathml(r"\sin\theta")
    assert "mspace" not in mathml(r"\sin^2 \theta")


@pytest.mark.parametrize("tex", [r"\lVert f \rVert^2", r"\|f\|^2", r"P(a \mid b)"])
def test_a_bar_is_as_tall_as_a_letter_unless_it_is_made_taller(tex: str) -> None:
    """Browsers stretch it to the tallest part of the line, as they find it."""
    bars = re.findall("<mo([^>]*)>(?:&#x02016;|&#x02223;)", mathml(tex))
    assert bars
    assert all('stretchy="false"' in attributes for attributes in bars)


def test_in_a_browser(
    built: Path,
    chromium: Any,
    serve: Callable[[Path], str],
    axe: Callable[..., list[str]],
) -> None:
    """The first page, and what the search finds, without a request to another machine."""
    from selenium.webdriver.support.ui import WebDriverWait

    address = serve(built)
    complaints(chromium)
    chromium.get(f"{address}/index.html")
    # A browser that has just started says now and then that it is there while it still loads.
    ready = "return document.readyState === 'complete' && location.href.startsWith(arguments[0])"
    WebDriverWait(chromium, 60).until(lambda browser: browser.execute_script(ready, address))
    pictures = "return [...document.images].map((picture) => picture.naturalWidth)"
    widths = chromium.execute_script(pictures)
    assert len(widths) == 3 + len(book.course())  # the mark, the neighbors, the still
    assert widths[1] > 0
    sizes = "return performance.getEntries().map((each) => each.encodedBodySize ?? 0)"
    assert sum(chromium.execute_script(sizes)) < 1_000_000
    assert axe(chromium, chromium.find_element("tag name", "body")) == []
    with phone(chromium):
        assert fits(chromium)
    chromium.get(f"{address}/search.html?q=semihard")
    chromium.execute_async_script("setTimeout(arguments[0], 2000)")
    assert chromium.find_elements("css selector", "#search-results li a")
    assert complaints(chromium) == []
