"""What a reader sees of every explorable is what torch computes: in JupyterLab, and on a page."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course import explorables, live
from course.explorables import export
from course.explorables.widget import bundle
from course.site import notebooks
from dmlkit import figures

from .conftest import PHONE, complaints, fits, jupyterlab, run_all

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # the exporters'

#: In a page and in JupyterLab, the shadow root of the explorable with this alt text.
FIND = """
const hosts = [...document.querySelectorAll("*")].filter((el) => el.shadowRoot);
return hosts.find((el) => el.shadowRoot.querySelector("svg")?.ariaLabel === arguments[0]) ?? null;
"""
SHOWN = """
return [...arguments[0].querySelectorAll("[data-of]")].filter((el) => el.matches("output, span"))
  .map((el) => [el.dataset.of, el.textContent]);
"""
#: What can be reached by keys, and what each is called.
CONTROLS = """
return [...arguments[0].querySelectorAll("select, input, button, summary, [tabindex]")]
  .filter((el) => el.checkVisibility())
  .map((el) => el.ariaLabel || el.labels?.[0]?.textContent || el.textContent);
"""


#: Between them these have all that a stage can have; JupyterLab sees the whole of no other.
WHOLE_IN_LAB = ("norm_race", "springs")


class Reader:
    """What a reader of an explorable does and sees."""

    def __init__(self, browser: Any, name: str) -> None:
        from selenium.webdriver.support.ui import WebDriverWait

        self.browser, self.known = browser, explorables.load(name)
        self.wait = WebDriverWait(browser, 60, 0.1, ignored_exceptions=[Exception])
        host = self.wait.until(lambda b: b.execute_script(FIND, self.known.alt))
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", host)
        self.root = host.shadow_root
        self.wait.until(lambda _: self.question())
        browser.execute_script("arguments[0].querySelector('details').open = true", self.root)

    def all(self, css: str) -> list[Any]:
        return list(self.root.find_elements("css selector", css))

    def question(self) -> dict[str, Any]:
        """What the numbers that are shown answer."""
        found: dict[str, Any] = json.loads(self.all(".frame")[0].get_attribute("data-of"))
        return found

    def check(self) -> dict[str, Any]:
        """Every number that is shown is torch's, to four digits."""
        asked = self.question()
        answer = self.known.answer(asked["choice"], asked["numbers"], asked["points"])
        shown = self.browser.execute_script(SHOWN, self.root)
        assert len(shown) >= len(self.known.readouts) > 0
        for path, text in shown:
            expected: Any = answer
            for key in path.split("."):
                expected = expected[int(key) if isinstance(expected, list) else key]
            found = float(text.replace("−", "-"))
            assert found == pytest.approx(expected, rel=6e-4, abs=1e-4), (asked, path)
        return asked

    def after(self, act: Callable[[], Any]) -> dict[str, Any]:
        """What is asked after an act of the reader, once the numbers answer it."""
        before = self.question()
        act()
        self.wait.until(lambda _: self.question() != before)
        time.sleep(0.3)
        return self.check()

    def drag(self, right: int, down: int) -> dict[str, Any]:
        from selenium.webdriver import ActionChains

        dot = self.all(".handle .halo")[0]
        chain = ActionChains(self.browser, 40).click_and_hold(dot).move_by_offset(right, down)
        return self.after(chain.release().perform)


def tour(reader: Reader) -> None:
    """Drag, keys, menu, sliders, play, reset; nothing but keys from the second step on."""
    from selenium.webdriver import Keys

    start = reader.check()
    if reader.all(".handle"):
        moved = reader.drag(25, 30)
        assert moved["points"][0] != start["points"][0]
        handle = reader.all(".handle")[-1]
        turned = reader.after(lambda: handle.send_keys(Keys.ARROW_UP))
        assert turned["points"][-1] != moved["points"][-1]
    for slider in reader.all("input"):
        before = reader.question()["numbers"]
        assert reader.after(lambda s=slider: s.send_keys(Keys.ARROW_LEFT * 3))["numbers"] != before
    if reader.all("option:not(:disabled):nth-child(2)"):
        before = reader.question()["choice"]
        menu = reader.all("select")[0]
        assert reader.after(lambda: menu.send_keys(Keys.ARROW_DOWN))["choice"] != before
    if reader.all("button.main"):
        button, before = reader.all("button.main")[0], reader.question()["points"]
        label = button.text
        button.send_keys(Keys.ENTER)
        reader.wait.until(lambda _: reader.question()["points"] != before)
        if button.text != label:  # it has not ended yet
            button.send_keys(Keys.ENTER)
        reader.wait.until(lambda _: button.text == label)
        time.sleep(0.3)
        reader.check()
    if reader.all(".handle"):
        handle = reader.all(".handle")[0]
        reader.after(lambda: handle.send_keys(Keys.ARROW_DOWN))
        reset = reader.all(".buttons button")[-1]
        end = reader.after(lambda: reset.send_keys(Keys.ENTER))
        assert end["points"] == reader.known.begin(end["choice"])[2]


def first_step(reader: Reader) -> None:
    """One key on the first thing that can be moved: it reaches the stage, and numbers answer it."""
    from selenium.webdriver import Keys

    reader.check()
    if movable := reader.all(".handle") + reader.all("input"):
        reader.after(lambda: movable[0].send_keys(Keys.ARROW_UP))
    else:
        reader.after(lambda: reader.all("select, button.main")[0].send_keys(Keys.ARROW_DOWN))


def reached(reader: Reader) -> int:
    """How many controls the Tab key reaches, from the first one on."""
    from selenium.webdriver import ActionChains, Keys

    active = "return arguments[0].activeElement"
    first = "arguments[0].querySelector('select, input, button, summary, [tabindex]').focus()"
    reader.browser.execute_script(first, reader.root)
    found = 0
    while reader.browser.execute_script(active, reader.root) is not None:
        found += 1
        ActionChains(reader.browser).send_keys(Keys.TAB).perform()
    return found


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
def test_on_the_site(name: str, on_page: Any, axe: Callable[..., list[str]]) -> None:
    host = "document.querySelector(`[data-explorable='${arguments[0]}']`)"
    on_page.execute_script(f"{host}.scrollIntoView()", name)
    reader = Reader(on_page, name)
    tour(reader)
    called = on_page.execute_script(CONTROLS, reader.root)
    assert all(called), called
    assert reached(reader) == len(called), "each control can be reached by keys"
    for theme in ("light", "dark"):
        on_page.execute_script("document.body.dataset.theme = arguments[0]", theme)
        host = on_page.execute_script(FIND, reader.known.alt)
        assert axe(on_page, host) == [], theme
    assert complaints(on_page) == []


@pytest.fixture(scope="module")
def in_lab(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Iterator[Any]:
    """A notebook with all explorables, which has run in JupyterLab."""
    folder = tmp_path_factory.mktemp("lab") / "course"
    folder.mkdir()
    cells = [new_code_cell("from dmlkit import figures")]
    cells += [new_code_cell(f"figures.explore({name!r}, None)") for name in explorables.names()]
    spec = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(new_notebook(cells=cells, metadata=spec), folder / "all.ipynb")
    with jupyterlab(folder) as address:
        ran = run_all(chromium, address, "all.ipynb", limit=120)
        assert [o for c in ran for o in c["outputs"] if o["output_type"] == "error"] == []
        yield chromium


@pytest.mark.parametrize("place, name", [*enumerate(explorables.names(), start=1)])
def test_in_a_notebook(place: int, name: str, in_lab: Any) -> None:
    """On the stage of the site, where each is tried whole; numbers are Python's, keys those that
    JupyterLab leaves."""
    show = "jupyterapp.shell.currentWidget.content.scrollToItem(arguments[0], 'center')"
    in_lab.execute_script(show, place)
    act = tour if name in WHOLE_IN_LAB else first_step
    act(Reader(in_lab, name))
    assert complaints(in_lab) == []


def test_a_phone_shows_all_of_it(page: Path, chromium: Any, serve: Callable[[Path], str]) -> None:
    """After the notebook: the browser keeps the size of a phone."""
    chromium.get(serve(page))
    assert fits(chromium, PHONE)
    host = "document.querySelector(`[data-explorable='${arguments[0]}']`)"
    for name in explorables.names():
        chromium.execute_script(f"{host}.scrollIntoView()", name)
        assert Reader(chromium, name).all("table, details"), "with all its numbers"
        assert fits(chromium, PHONE), name


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


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected one of .*springs.*, got 'sprigs'"):
        explorables.load("sprigs")
