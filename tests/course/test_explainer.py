"""The Explainer trains in a browser as torch does, and its experiments show what they say."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnxscript", reason="the exporter (dmlkit[site]) is not installed")
pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from course.explainer import graphs, images, page, step, training
from dmlkit import ROOT

from .conftest import complaints, fits, phone, ready, without_webassembly
from .reader import touch

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]  # the exporters'

#: A share of the losses: what mines, and what has proxies. Where `make explainer` has left a page,
#: and nothing that it is made of has changed since, that page is tested, with all of them.
FEW = ("triplet_semihard", "triplet_hard", "cosface")
BUILT = ROOT / "build" / "explainer"
STEPS = 50
#: Of the largest number. All losses were seen to differ by less than 1e-9.
CLOSE = 1e-3
TRAIN = """
const [settings, count, done] = arguments;
explainer.change(settings).then(() => explainer.steps(count)).then((frame) =>
  done({ value: frame.value, points: Array.from(frame.points), settings: frame.settings,
    same: frame.same, different: frame.different, recall: frame.recall, norms: explainer.norms() }),
  (error) => done(String(error)));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if subprocess.run(["make", "-q", BUILT / page.CATALOG], cwd=ROOT, check=False).returncode == 0:
        return BUILT
    if shutil.which("npm") is None:
        pytest.skip("no npm, from which the page's runtime comes")
    folder = tmp_path_factory.mktemp("explainer") / "page"
    page.write(folder, [*FEW, "structured_clustering"])
    return folder


@pytest.fixture(scope="module")
def reader(folder: Path, chromium: Any, serve: Callable[[Path], str]) -> Iterator[Any]:
    """A browser with the page."""
    complaints(chromium)
    chromium.get(serve(folder))
    ready(chromium, "explainer")
    yield chromium
    assert complaints(chromium) == []


def trained(browser: Any, count: int, **settings: Any) -> dict[str, Any]:
    """What the page shows after steps of a training from its start."""
    told = browser.execute_async_script(TRAIN, settings, count)
    assert not isinstance(told, str), f"{settings}: {told}"
    return dict(told)


def test_the_page_is_small_and_says_what_is_missing(folder: Path) -> None:
    files = [f for f in folder.rglob("*") if f.is_file() and "ort" not in f.parts]
    assert sum(f.stat().st_size for f in files) < 5e6
    catalog = json.loads((folder / page.CATALOG).read_text())
    assert {*FEW} <= {loss["name"] for loss in catalog["losses"]}
    assert [loss["name"] for loss in catalog["missing"]] == ["structured_clustering"]
    assert "its steps depend on where the points are" in catalog["missing"][0]["why"]


def test_the_film_of_the_readme_is_small() -> None:
    assert (ROOT / "figures" / "explainer.webp").stat().st_size <= 600_000


def test_fifty_steps_are_torch_s(reader: Any) -> None:
    sets = images.glyphs(), images.groceries()
    names = [loss["name"] for loss in reader.execute_script("return explainer.catalog().losses")]
    for i, name in enumerate(names):
        found, dim, classes = sets[i % 2], (3, 2, 16)[i % 3], (8, 4, 16)[i % 3]
        asked = {"data": found.title, "loss": name, "dim": dim, "classes": classes, "sec": 0.5}
        told = trained(reader, STEPS, **asked)
        chosen = told["settings"]
        numbers = {setting: chosen[setting] for setting in graphs.LOSSES[name]}
        settings = training.Settings(name, numbers, classes, dim, chosen["lr"], 0.5)
        *_, (value, unseen) = islice(training.train(found, settings), STEPS)
        points = unseen()
        apart = (torch.tensor(told["points"], dtype=points.dtype).view_as(points) - points).abs()
        assert apart.max() < CLOSE * points.abs().max(), name
        assert told["value"] == pytest.approx(value, rel=CLOSE), name


def test_a_preset_shows_what_it_says(reader: Any) -> None:
    """On glyphs, from seed 1; in the page's documentation are the numbers of three seeds."""
    works, hard, large, sec = reader.execute_script("return explainer.presets")
    start, after = (trained(reader, count, **works) for count in (0, 100))
    assert after["same"] - after["different"] > 0.3
    assert after["recall"] > start["recall"] + 0.1
    collapsed = trained(reader, 20, **hard)
    assert collapsed["different"] > 0.98
    assert collapsed["recall"] < 0.2
    assert collapsed["value"] > 0.2
    assert trained(reader, 150, **large)["different"] > 0.98
    assert trained(reader, 150, **large | {"scale": 4})["different"] < 0.2
    gathered, astray = (trained(reader, 100, **sec | {"sec": weight}) for weight in (1, 0))
    assert np.std(gathered["norms"]) < 0.3 < 1.5 < np.std(astray["norms"])
    assert np.mean(gathered["norms"]) < 2 < 6 < np.mean(astray["norms"])
    assert gathered["recall"] < astray["recall"]


def test_keys_suffice_and_a_link_shares(reader: Any, axe: Callable[..., list[str]]) -> None:
    from selenium.webdriver import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    def until(holds: Callable[[], bool]) -> None:
        WebDriverWait(reader, 30, 0.1).until(lambda _: holds())

    def at() -> int:
        return int(reader.find_element("id", "step").text)

    reader.find_element("css selector", "#presets button:nth-child(2)").send_keys(Keys.ENTER)
    until(lambda: at() > 0)
    go = reader.find_element("id", "go")
    go.send_keys(Keys.SPACE)
    until(lambda: go.text == "Go on")  # it rests
    reader.execute_async_script("explainer.steps(0).then(arguments[0])")  # all that was begun ended
    before = at()
    reader.find_element("id", "one").send_keys(Keys.ENTER)
    until(lambda: at() == before + 1)
    picture = reader.find_element("id", "plane").screenshot_as_png
    reader.find_element("id", "plane").send_keys(Keys.ARROW_RIGHT)
    assert reader.find_element("id", "plane").screenshot_as_png != picture
    reader.find_element("id", "setting-margin").send_keys(Keys.END)
    until(lambda: "margin=1" in reader.current_url)
    assert "loss=triplet_hard" in reader.current_url
    shared = reader.current_url
    reader.get("about:blank")
    reader.get(shared)
    ready(reader, "explainer")
    assert reader.execute_script("return explainer.frame().settings")["margin"] == 1
    for theme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": theme}
        reader.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        reader.execute_async_script("setTimeout(arguments[0], 600)")
        assert axe(reader, reader.find_element("css selector", "body")) == [], theme
    reader.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    with phone(reader):
        assert fits(reader)
        _by_touch(reader)


#: A change while a step of the run before is still computed: steps of the curves.
LATE = """
const done = arguments[0];
explainer.change({ loss: "triplet_hard" })
  .then(() => { explainer.steps(8); return explainer.change({ loss: "triplet_semihard" }); })
  .then(() => explainer.steps(2))
  .then(() => done(explainer.seen()), (error) => done(String(error)));
"""
#: Two changes of the learning rate while it trains.
TWICE = """
const rate = document.getElementById("lr");
for (const value of [-2.4, -2.2]) { rate.value = value; rate.dispatchEvent(new Event("change")); }
"""


def test_a_change_begins_anew_and_trains_on(reader: Any) -> None:
    from selenium.webdriver.support.ui import WebDriverWait

    assert reader.execute_async_script(LATE) == [0, 2], "nothing of the run before"
    go = reader.find_element("id", "go")
    go.click()
    reader.execute_script(TWICE)
    trains = "return explainer.frame().settings.lr > 0.006 && explainer.frame().step > 2"
    WebDriverWait(reader, 30, 0.1).until(lambda _: reader.execute_script(trains))
    go.click()
    assert go.text == "Go on"


def test_an_experiment_pauses_and_a_rewind_keeps_the_run_before(reader: Any) -> None:
    from selenium.webdriver.support.ui import Select, WebDriverWait

    def until(script: str) -> None:
        WebDriverWait(reader, 30, 0.1).until(lambda _: reader.execute_script(f"return {script}"))

    semihard, hard, *_ = reader.find_elements("css selector", "#presets button")
    hard.click()
    until("document.getElementById('go').textContent === 'Pause'")
    Select(reader.find_element("id", "pace")).select_by_value("1000")
    until("document.getElementById('go').textContent === 'Go on'")
    assert reader.find_element("id", "step").text == "100"
    assert hard.get_attribute("aria-pressed") == "true"
    semihard.click()
    until("explainer.frame().settings.loss === 'triplet_semihard' && explainer.seen().length > 4")
    reader.find_element("id", "rewind").click()
    until("explainer.frame().step === 0")
    legend = reader.find_element("css selector", ".key.past").text
    assert legend == "the run before: hard triplets"
    assert semihard.get_attribute("aria-pressed") == "false"


def _by_touch(reader: Any) -> None:
    """A finger turns the sphere to the side, chooses a dot, and scrolls the page up or down."""
    plane = reader.find_element("id", "plane")
    reader.execute_script("arguments[0].scrollIntoView({block: 'center'})", plane)
    query = "return document.getElementById('found').ariaLabel"
    before = plane.screenshot_as_png, reader.execute_script(query)
    touch(reader, plane, right=60)
    assert plane.screenshot_as_png != before[0]
    assert reader.execute_script(query) == before[1]
    touch(reader, plane, at=0.2)
    assert reader.execute_script(query) != before[1]
    before = reader.execute_script("return scrollY")
    touch(reader, plane, down=80)
    assert reader.execute_script("return scrollY") < before, "the page scrolls"


def test_without_webassembly_there_is_a_film(reader: Any) -> None:
    decoded = "arguments[0].decode().then(() => arguments[1](true))"
    with without_webassembly(reader), phone(reader):
        reader.refresh()
        ready(reader, "explainer")
        film = reader.find_element("css selector", "#film img")
        assert reader.execute_async_script(decoded, film)
        assert film.is_displayed()
        assert fits(reader)


def test_the_same_numbers_in_python_and_javascript() -> None:
    if (node := shutil.which("node")) is None:
        pytest.skip("no node")
    module = (ROOT / "course" / "explainer" / "random.js").as_uri()
    script = f"import({module!r}).then(r => console.log(JSON.stringify([...r.draws(7, 3, 50)])))"
    told = subprocess.run([node, "-e", script], capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == step.draws(7, 3, 50).tolist()
