"""What a reader sees of every explorable on a page is what torch computes."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course import explorables, live
from course.explorables import export
from course.explorables.widget import bundle
from course.site import notebooks
from dmlkit import figures
from dmlkit.data.batches import PK, Uniform

from .conftest import complaints, fits, phone, without_webassembly
from .reader import Reader, every_control_by_keys, touch, touched, tour

HOST = "document.querySelector(`[data-explorable='${arguments[0]}']`)"
pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # the exporters'


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One page with all explorables, in the markup of the site, and one graph of each."""
    pytest.importorskip("onnxscript", reason="the exporter (dmlkit[site]) is not installed")
    if shutil.which("npm") is None:
        pytest.skip("no npm, from which the page's runtime comes")
    folder = tmp_path_factory.mktemp("page")
    settings = export.write(folder / "explorables", most=1)
    missing = {c["why"] for s in settings.values() for c in s["choices"] if "why" in c}
    assert missing <= {"left out"}, "what a module does not compute itself can be exported"
    (folder / "playground").mkdir()
    live.copy_runtime(folder / "playground")
    known = notebooks.figures()
    pictures = [
        notebooks.picture(each.figure, known[each.figure]["alt"], up="")
        for each in map(explorables.load, explorables.names())
    ]
    shutil.copytree(notebooks.ROOT / "figures", folder / "figures")
    head = '<!doctype html><html lang="en"><meta charset="utf-8"><title>All explorables</title>'
    phone = '<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">'
    script = '<script type="module" src="explorables/site.js"></script>'
    style = "<style>img { max-width: 100%; }</style>"
    end = '<p><a href="#">The end</a></p>'  # beyond it keys would leave the page
    body = f"{style}<main><h1>All explorables</h1>{''.join(pictures)}{end}</main>"
    (folder / "index.html").write_text(head + phone + script + body, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def on_page(page: Path, chromium: Any, serve: Callable[[Path], str]) -> Any:
    complaints(chromium)
    chromium.get(serve(page))
    return chromium


@pytest.mark.parametrize("name", explorables.names())
def test_on_the_site(name: str, on_page: Any) -> None:
    on_page.execute_script(f"{HOST}.scrollIntoView()", name)
    reader = Reader(on_page, name)
    tour(reader)
    every_control_by_keys(reader)
    assert complaints(on_page) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_names_and_contrast(theme: str, on_page: Any, axe: Callable[..., list[str]]) -> None:
    """Of all explorables at once, with their numbers open."""
    on_page.execute_script("document.body.dataset.theme = arguments[0]", theme)
    for name in explorables.names():
        on_page.execute_script(f"{HOST}.scrollIntoView()", name)
        Reader(on_page, name)
    assert axe(on_page, on_page.find_element("css selector", "main")) == []


def test_a_finger_moves_it_on_a_phone(on_page: Any) -> None:
    """It drags a handle while the page stays; elsewhere on the picture it scrolls the page."""
    with phone(on_page):
        on_page.refresh()
        for name in explorables.names():
            on_page.execute_script(f"{HOST}.scrollIntoView()", name)
            reader = Reader(on_page, name)
            touched(reader)
            assert fits(on_page), name
        before = on_page.execute_script("return scrollY")
        touch(on_page, reader.all(".frame > .try")[0], down=80)
        assert on_page.execute_script("return scrollY") < before, "beside a handle the page scrolls"
    assert complaints(on_page) == []


def test_where_motion_is_unwelcome_play_shows_its_end_at_once(on_page: Any) -> None:
    """Nothing runs by itself: the numbers of the end stand there, and the button waits again."""
    unwelcome = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    on_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": unwelcome})
    try:
        on_page.refresh()
        on_page.execute_script(f"{HOST}.scrollIntoView()", "norm_race")
        reader = Reader(on_page, "norm_race")
        button = reader.all("button.main")[0]
        label, start = button.text, reader.check()["points"]
        end = reader.after(button.click)["points"]
        assert end != start
        assert button.text == label
        on_page.execute_async_script("setTimeout(arguments[0], 300)")
        assert reader.check()["points"] == end
    finally:
        on_page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_without_webassembly_the_still_picture_says_so(
    page: Path, chromium: Any, serve: Callable[[Path], str]
) -> None:
    with without_webassembly(chromium):
        chromium.get(serve(page))
        reader = Reader(chromium, "annuli")  # a closed form needs none
        chromium.execute_script(f"{HOST}.scrollIntoView()", "springs")
        still = chromium.find_element("css selector", "[data-explorable=springs]")
        reader.wait.until(lambda _: "lacks WebAssembly" in still.text)
        assert still.find_element("css selector", "img").is_displayed()
    assert complaints(chromium) == []


def test_headless_there_is_no_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    picture: Any = object()
    assert figures.explore("springs", picture) is picture
    monkeypatch.setenv("JPY_SESSION_NAME", "a notebook")
    assert type(figures.explore("springs", picture)).__name__ == "Widget"
    monkeypatch.setenv("DMLKIT_FIGURES", "a folder")
    assert figures.explore("springs", picture) is picture


@pytest.mark.parametrize("name", explorables.names())
def test_an_explorable_is_whole(name: str) -> None:
    """Its still picture is there, its text hides the answer, its module stands alone."""
    known = explorables.load(name)
    assert known.figure in notebooks.figures()
    assert "import " not in bundle(name).replace("await import", "")
    answer = known.answer(*known.begin())
    assert {path.partition(".")[0] for path in known.readouts} <= set(answer)
    assert all(np.isfinite(np.asarray(part, dtype=float)).all() for part in answer.values())


@pytest.mark.parametrize(
    ("name", "numbers", "sampler"),
    [
        ("pk", [4, 6], partial(PK, classes=16, per_class=4)),
        ("uniform", [300, 40, 6], partial(Uniform, size=64)),
    ],
)
def test_a_batch_is_counted_as_dmlkit_draws_it(
    name: str, numbers: list[float], sampler: Callable[..., Any]
) -> None:
    """Means of 100 batches are within four standard errors; look-alikes are neighbors in a ring."""
    labels = np.repeat(np.arange(300), 40)
    draw, found = sampler(labels), []
    for step in range(100):
        y = labels[draw(step)]
        apart = np.abs(y[:, None] - y)
        partners = (apart == 0).sum(axis=1) - 1
        alike = ((np.minimum(apart, 300 - apart) <= 3) & (apart > 0)).sum(axis=1)
        triplets = (partners * (63 - partners)).sum() / 1000
        useful = 100 * ((partners > 0) & (alike > 0)).mean()
        met = 100 * (alike > 0).mean()
        classes = len(np.unique(y))
        found.append([classes, partners.mean(), alike.mean(), triplets, met, useful])
    mean, error = np.mean(found, axis=0), np.std(found, axis=0) / 10
    expected = explorables.load("batch").answer(name, numbers, []).values()
    assert (np.abs(mean - np.array([*expected])) <= 4 * error + 1e-9).all()


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected one of .*springs.*, got 'sprigs'"):
        explorables.load("sprigs")
