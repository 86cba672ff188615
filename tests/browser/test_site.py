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
