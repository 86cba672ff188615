"""The pages of the site that `make site` has built: light, dark and on a phone."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dmlkit

from .conftest import PHONE, complaints, scrolls_sideways, set_look

SITE = dmlkit.ROOT / "build" / "site"
KINDS = {"home": "index.html", "gallery": "gallery/00_*.html", "notebook": "notebooks/00_*.html"}
KINDS |= {"ledger": "ledger/index.html", "losses": "losses/index.html", "claim": "ledger/*1.html"}

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_in_every_light(kind: str, chromium: Any, serve: Callable[[Path], str]) -> None:
    if not SITE.is_dir():
        pytest.skip("no build/site: run `make site` first")
    pages = sorted(SITE.glob(KINDS[kind]))
    assert pages, f"the site has no page {KINDS[kind]}"
    address = f"{serve(SITE)}/{pages[0].relative_to(SITE)}"
    complaints(chromium)
    for scheme, size in (("light", None), ("dark", None), ("light", PHONE), ("dark", PHONE)):
        set_look(chromium, scheme, size)
        chromium.get(address)
        assert complaints(chromium) == [], f"{kind}, {scheme}"
        assert size is None or not scrolls_sideways(chromium), f"{kind} is wider than a phone"


def test_on_paper_nothing_is_dark_covered_or_cut_off(
    chromium: Any, serve: Callable[[Path], str]
) -> None:
    if not SITE.is_dir():
        pytest.skip("no build/site: run `make site` first")
    address = serve(SITE)
    set_look(chromium, "dark", (700, 990))  # A4 within its margins, in CSS pixels
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    try:
        for page in sorted(SITE.glob("notebooks/02_*.html")):
            chromium.get(f"{address}/{page.relative_to(SITE)}")
            assert chromium.execute_script(ON_PAPER) == ["none", "#0000b8", []]
    finally:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


# A formula may be a pixel wider than its line, in a browser's own rounding.
ON_PAPER = """
const style = (name) => getComputedStyle(document.querySelector(name));
const wide = [...document.querySelectorAll("article pre, .formula")].filter(
  (part) => part.offsetParent && part.scrollWidth > part.clientWidth + 1);
return [style(".skip-to-content").display, style("body").getPropertyValue("--hue0").trim(),
        wide.map((part) => part.textContent.slice(0, 60))];
"""
