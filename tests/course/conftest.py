"""Headless Chromium, a local server, and what a page may not do."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

PHONE = (390, 844)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """The test's own output is enough."""


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[[Path], str]]:
    """Serve a folder on this machine, and give its address."""
    servers = []

    def start(folder: Path) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser that keeps a log of its console and of its requests."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("no Chromium with its driver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "window-size=1280,900"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    browser = webdriver.Chrome(options, webdriver.ChromeService(driver))
    browser.set_page_load_timeout(60)
    browser.set_script_timeout(60)
    yield browser
    browser.quit()


def fits(browser: Any, size: tuple[int, int]) -> bool:
    """Whether the page is no wider than a screen of this size, in CSS pixels."""
    metrics = {"width": size[0], "height": size[1], "deviceScaleFactor": 0, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    page = "document.documentElement"
    return bool(browser.execute_script(f"return {page}.scrollWidth <= {page}.clientWidth"))


def complaints(browser: Any) -> list[str]:
    """Errors of the console, and requests to other machines, since the last call."""
    found = [e["message"] for e in browser.get_log("browser") if e["level"] == "SEVERE"]
    found = [message for message in found if "/favicon.ico" not in message]  # browsers ask for one
    for entry in browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = urlparse(message["params"]["request"]["url"])
            if url.scheme in ("http", "https", "ws", "wss") and url.hostname != "127.0.0.1":
                found.append(f"a request to {url.hostname}")
    return found
