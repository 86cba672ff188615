"""Reads a finished site as a browser would, and names what it lacks or would fetch elsewhere."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches without being asked: elements, and the attributes that hold addresses.
_FETCHED = {
    ("img", "src"), ("img", "srcset"), ("script", "src"), ("iframe", "src"), ("source", "src"),
    ("source", "srcset"), ("video", "src"), ("video", "poster"), ("audio", "src"),
    ("embed", "src"), ("object", "data"), ("input", "src"), ("track", "src"), ("image", "href"),
    ("use", "href"),
}  # fmt: skip
_OUTSIDE = re.compile(r"\s*(?:https?:)?//", re.IGNORECASE)
_IN_STYLE = re.compile(r"(?:url\(|@import)\s*['\"]?\s*((?:https?:)?//[^'\")\s]+)", re.IGNORECASE)
# A script that names an address may only link there; these are the ways to load from it.
_IN_SCRIPT = re.compile(
    r"(?:\bfetch|\bimport|importScripts|\.open|new (?:Worker|WebSocket|EventSource))\s*\("
    r"[^)]{0,40}?['\"`]((?:https?|wss?):)?//[^'\"`]+|\bfrom\s*['\"]https?://|"
    r"\.src\s*=\s*['\"`](?:https?:)?//",
)


@dataclass
class _Page(HTMLParser):
    """What one page points at."""

    fetched: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    without_alt: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.ids |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag == "img" and not found.get("alt", "").strip():
            self.without_alt.append(found.get("src", "?"))
        self.styles.append(found.get("style", ""))
        rel = set(found.get("rel", "").split())
        if tag == "link" and rel & {"stylesheet", "icon", "preload", "modulepreload", "manifest"}:
            self.fetched.append(found.get("href", ""))
        self.fetched += [found[key] for element, key in _FETCHED if element == tag and key in found]

    def handle_data(self, data: str) -> None:
        if self.lasttag in ("style", "script"):
            self.styles.append(data)


def faults(site: Path) -> Iterator[str]:
    """What is wrong with a site: an address that a page would fetch from another machine, a link or
    anchor that leads nowhere, an image without alt text.

    Scripts and styles are read as text: what they would load, not what they only name.
    """
    pages: dict[Path, _Page] = {}
    site = site.resolve()
    for path in sorted(site.rglob("*.html")):
        pages[path] = _Page()
        pages[path].feed(path.read_text(encoding="utf-8"))
    for path, page in pages.items():
        where = path.relative_to(site)
        yield from (f"{where}: no alt text: {image}" for image in page.without_alt)
        for address in page.fetched:
            if _OUTSIDE.match(address):
                yield f"{where}: would fetch {address}"
            elif not address.startswith("data:") and not _target(path, address).is_file():
                yield f"{where}: fetches {address}, which is not there"
        yield from (f"{where}: {fault}" for fault in _loads("\n".join(page.styles)))
        yield from (f"{where}: {fault}" for fault in _broken(path, page, pages))
    for path in sorted(site.rglob("*")):
        if path.suffix in (".css", ".js", ".mjs", ".svg"):
            text = path.read_text(encoding="utf-8", errors="replace")
            yield from (f"{path.relative_to(site)}: {fault}" for fault in _loads(text))


def _target(page: Path, address: str) -> Path:
    """The file that an address within the site means."""
    found = (page.parent / unquote(urlsplit(address).path)).resolve()
    return found / "index.html" if found.is_dir() else found


def _broken(path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for address in dict.fromkeys(page.links):
        parts = urlsplit(address)
        if parts.scheme or parts.netloc:
            continue  # the reader follows it, or does not
        target = _target(path, address) if parts.path else path
        if not target.is_file():
            yield f"link to {address}, which is not there"
        elif parts.fragment and target in pages and not _is_there(parts.fragment, pages[target]):
            yield f"link to {address}, but there is no such anchor"


def _is_there(fragment: str, page: _Page) -> bool:
    return unquote(fragment) in page.ids | {"top"}


def _loads(text: str) -> Iterator[str]:
    for found in [*_IN_STYLE.finditer(text), *_IN_SCRIPT.finditer(text)]:
        yield f"would load {found[0][:100]}"
