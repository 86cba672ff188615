"""The playground in a browser gives what torch gives, for every loss that it has."""

import shutil
from collections.abc import Callable
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any

import pytest
import torch

import dmlkit
from dmlkit import losses

from .conftest import PHONE, complaints, scrolls_sideways, set_look

pytestmark = pytest.mark.timeout(600)

#: What the page computes for one loss: its graph, chosen by the settings, on our inputs.
EVALUATE = """
const [name, settings, points, proxies, draws, done] = arguments;
const entry = playground.catalog().losses.find((loss) => loss.name === name);
playground.evaluate(entry, settings, points, proxies, draws).then(
  done, (error) => done(String(error)));
"""


@pytest.fixture(scope="module")
def page(
    chromium: Any,
    serve: Callable[[Path], str],
    tmp_path_factory: pytest.TempPathFactory,
    forks: BaseContext,
) -> Any:
    """The browser on the page: that of the site, or else a new one."""
    folder = dmlkit.ROOT / "build" / "playground"
    if not (folder / "losses.json").exists():
        pytest.importorskip("onnxscript", reason="the exporter (dmlkit[site]) is not installed")
        pytest.importorskip("onnxruntime", reason="onnxruntime (dmlkit[site]) is not installed")
        if shutil.which("npm") is None:
            pytest.skip("no npm, from which the page's runtime comes")
        from course import playground

        folder = tmp_path_factory.mktemp("site") / "playground"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(playground, "get_context", lambda _: forks)
            playground.write(folder)
    complaints(chromium)
    chromium.get(serve(folder))
    chromium.execute_async_script("playground.ready.then(arguments[0])")
    return chromium


def test_every_loss_is_there_or_is_named(page: Any) -> None:
    catalog = page.execute_script("return playground.catalog()")
    there = [loss["name"] for loss in catalog["losses"]]
    assert sorted(there + [loss["name"] for loss in catalog["missing"]]) == sorted(losses.names())
    assert len(there) >= 40
    assert all(loss["why"] for loss in catalog["missing"])
    assert len(page.find_elements("css selector", "#missing li")) == len(catalog["missing"])


def test_the_browser_computes_what_torch_computes(page: Any) -> None:
    from course import playground

    for entry in page.execute_script("return playground.catalog()")["losses"]:
        name = entry["name"]
        for seed in range(11, 14):
            settings = {
                s["name"]: s["stops"][seed % len(s["stops"])]
                if s["stops"]
                else playground.spread(name, s["name"], 9)[seed - 9]
                for s in entry["settings"]
            }
            module = playground.build(name, **settings)
            inputs = playground.sample(module, seed)
            rest = [z.flatten().tolist() for z in inputs[1:]]
            proxies = rest.pop(0) if entry["proxies"] else []
            arguments = name, settings, inputs[0].tolist(), proxies, rest
            told = page.execute_async_script(EVALUATE, *arguments)
            assert not isinstance(told, str), f"{name}: {told}"
            for ours, theirs in zip(playground.forces(module, inputs), told, strict=True):
                largest = ours.abs().max().clamp_min(1e-2)
                apart = (torch.tensor(theirs).view_as(ours) - ours).abs().max() / largest
                assert apart < 1e-4, f"{name} with {settings}: {apart:.1e}"
    assert complaints(page) == []


def test_arrow_keys_and_the_mouse_move_a_point(page: Any) -> None:
    from selenium.webdriver import ActionChains, Keys

    def value() -> str:
        page.execute_async_script("setTimeout(arguments[0], 300)")
        return str(page.find_element("id", "value").text)

    first = page.find_element("css selector", "#handles g")
    values = [value()]
    first.send_keys(Keys.ARROW_UP)
    values.append(value())
    ActionChains(page).drag_and_drop_by_offset(first, 40, 25).perform()
    values.append(value())
    assert len(set(values)) == 3
    assert "x" in first.get_attribute("aria-label")


def test_a_setting_changes_the_loss(page: Any) -> None:
    from selenium.webdriver import Keys

    page.execute_script("location.hash = 'arcface'")
    page.execute_async_script("setTimeout(arguments[0], 1000)")
    before = page.find_element("id", "value").text
    page.find_element("id", "setting-scale").send_keys(Keys.HOME)
    page.execute_async_script("setTimeout(arguments[0], 500)")
    assert page.find_element("id", "value").text != before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [None, PHONE], ids=["desk", "phone"])
def test_it_fits_the_screen(page: Any, scheme: str, size: tuple[int, int] | None) -> None:
    set_look(page, scheme, size)
    assert not scrolls_sideways(page)
    paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") == (scheme == "light")
    assert complaints(page) == []
