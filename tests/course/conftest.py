"""Headless Chromium, a local server, and what a page may not do."""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest

import dmlkit
from course import live

PHONE = 390, 844
AXE = """
const done = arguments[1];
axe.run(arguments[0], {resultTypes: ["violations"]}).then(
  ({violations}) => done(violations.map((v) => v.id + ": " + v.nodes.map((n) => n.html).join(" "))),
  (error) => done([String(error)]));
"""
#: The checker of accessibility, from npm: its version and the MD5 of its archive.
AXE_CORE, AXE_MD5 = "axe-core@4.10.3", "d207912d8fd85eb733c60e41a3787b86"
OPEN = "jupyterapp.commands.execute('docmanager:open', {path: arguments[0]})"
RUN_ALL = """
const panel = jupyterapp.shell.currentWidget;
window.ran = null;
panel.context.ready.then(() => panel.sessionContext.ready)
  .then(() => jupyterapp.commands.execute("notebook:run-all-cells"))
  .then(() => { window.ran = JSON.stringify(panel.content.model.sharedModel.toJSON()); },
        (error) => { window.ran = JSON.stringify({error: String(error)}); });
"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """The test's own output is enough."""


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def axe(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[str]]:
    """What is wrong, for readers with handicaps, with a part of a page: names, contrast."""
    folder = tmp_path_factory.mktemp("axe") / "files"
    live.from_npm(AXE_CORE, AXE_MD5, ["axe.min.js"], folder)
    source = (folder / "axe.min.js").read_text(encoding="utf-8")

    def violations(browser: Any, root: Any) -> list[str]:
        if not browser.execute_script("return Boolean(window.axe)"):
            browser.execute_script(source)
        return list(browser.execute_async_script(AXE, root))

    return violations


@contextmanager
def phone(browser: Any) -> Iterator[None]:
    """The browser as a phone: its size in CSS pixels, and fingers."""
    metrics = dict(zip(("width", "height"), PHONE, strict=True))
    metrics |= {"deviceScaleFactor": 0, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def without_webassembly(browser: Any) -> Iterator[None]:
    """Pages that are opened meanwhile find no WebAssembly."""
    source = {"source": "delete globalThis.WebAssembly"}
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


def ready(browser: Any, name: str) -> None:
    """Wait until the page's module has run, which a slow machine may do after the page is there."""
    browser.execute_async_script(
        "const [name, done] = arguments;"
        "const wait = () => name in window ? window[name].ready.then(done) : setTimeout(wait, 50);"
        "wait();",
        name,
    )


def fits(browser: Any) -> bool:
    """Whether the page is no wider than the screen."""
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


@contextmanager
def jupyterlab(folder: Path, **environment: str) -> Iterator[str]:
    """The address of a JupyterLab with a folder as its root."""
    settings = {
        "ServerApp.ip": "127.0.0.1", "ServerApp.port": "0", "ServerApp.port_retries": "0",
        "ServerApp.open_browser": "False", "ServerApp.allow_root": "True",
        "IdentityProvider.token": "''", "LabApp.expose_app_in_browser": "True",
        "LabApp.news_url": "None", "LabApp.check_for_updates_class":
        "jupyterlab.NeverCheckForUpdate", "LabApp.workspaces_dir": str(folder.parent / "w"),
    }  # fmt: skip
    own = {
        "PYTHONPATH": str(dmlkit.ROOT), "PYTHONUNBUFFERED": "1",
        "JUPYTER_RUNTIME_DIR": str(folder.parent / "run"),
        "JUPYTER_CONFIG_DIR": str(folder.parent / "config"),
    }  # fmt: skip
    command = [sys.executable, "-m", "jupyter", "lab", str(folder)]
    with (folder.parent / "lab.log").open("w+") as log:
        server = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in settings.items())],
            stdout=log, stderr=log, env=os.environ | own | environment,
        )  # fmt: skip
        try:
            yield _address(folder.parent / "lab.log", limit=120)
        finally:
            server.terminate()
            server.wait(timeout=30)


def _address(log: Path, limit: float) -> str:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        if found := re.search(r"http://127\.0\.0\.1:(\d+)/lab", log.read_text()):
            address = found[0].removesuffix("/lab")
            urllib.request.urlopen(f"{address}/api", timeout=10).close()
            return address
        time.sleep(0.5)
    raise TimeoutError(f"JupyterLab did not start in {limit} s:\n{log.read_text()}")


def run_all(browser: Any, lab: str, path: str, limit: float = 420) -> list[dict[str, Any]]:
    """Open a notebook, run all of it, and give its code cells."""
    from selenium.webdriver.support.ui import WebDriverWait

    complaints(browser)
    if browser.current_url.startswith(lab):
        browser.execute_script(OPEN, path)
    else:
        browser.get(f"{lab}/lab/tree/{path}?reset")
    ready = "return Boolean(window.jupyterapp?.shell.currentWidget?.context?.path === arguments[0])"
    WebDriverWait(browser, 90).until(lambda b: b.execute_script(ready, path))
    browser.execute_script(RUN_ALL)
    ran = WebDriverWait(browser, limit, 1).until(lambda b: b.execute_script("return window.ran"))
    notebook = json.loads(ran)
    assert "error" not in notebook, notebook
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
