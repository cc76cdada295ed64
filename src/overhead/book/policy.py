"""What a page of the book may load and run: its own files, offline, and the theme's scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from html.parser import HTMLParser
from pathlib import Path

# The theme's buttons. Handlers in attributes run by their checksum only.
HANDLERS = ("toggleFullScreen()", "window.print()")
PAGE_NAME = "DOCUMENTATION_OPTIONS.pagename = '{}';"  # what Sphinx writes into each page
# Attributes that make a browser fetch something while it opens a page; a link that a reader follows is none.
LOADS = {"src", "srcset", "poster", "background", "data", "formaction", "manifest"}
LOADING_HREF = {"link", "image", "use", "feimage", "script", "base"}
FOREIGN = re.compile(r"\s*(?:[a-z][a-z0-9+.-]*:|//)", re.I)
OWN = re.compile(r"\s*(?:data:)", re.I)
CSS = re.compile(r"""(?:@import\s+(?:url\()?|url\()\s*["']?\s*((?:https?:)?//[^"')\s]*)""", re.I)


class _Page(HTMLParser):
    """Addresses that a page loads, and its scripts."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.loaded: list[str] = []
        self.scripts: list[str] = []
        self.inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag if tag in ("script", "style") else ""
        given: Mapping[str, str] = {name: value or "" for name, value in attrs}
        if tag == "script" and "src" not in given:
            self.scripts.append("")
        for name, value in given.items():
            if name in LOADS or (name in ("href", "xlink:href") and tag in LOADING_HREF):
                parts = [part.split()[0] for part in value.split(",") if part.split()] if name == "srcset" else [value]
                self.loaded += parts
            if name == "style":
                self.loaded += CSS.findall(value)
        if tag == "meta" and given.get("http-equiv", "").lower() == "refresh":
            self.loaded.append(given.get("content", "").partition("=")[2].strip(" '\"") or "meta refresh:")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.inside = ""

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "script" and self.scripts:
            self.scripts[-1] += data
        if self.inside == "style":
            self.loaded += CSS.findall(data)


def _read(text: str) -> _Page:
    page = _Page()
    page.feed(text)
    page.close()
    return page


def foreign(text: str) -> str | None:
    """The first address that a page loads and that is no file of the book, or None."""
    found = (address for address in _read(text).loaded if FOREIGN.match(address) and not OWN.match(address))
    return next(found, None)


def foreign_style(text: str) -> str | None:
    """The first address of elsewhere that a style sheet loads, or None."""
    return next(iter(CSS.findall(text)), None)


def scripts(pages: Iterable[Path]) -> set[str]:
    """The scripts inside pages that no host's folder has a part in: the theme's."""
    found = {script for path in pages for script in _read(path.read_text(encoding="utf-8")).scripts}
    return {script for script in found if script.strip()}


def policy(text: str, name: str, known: set[str]) -> str:
    """The Content-Security-Policy of a page: own files, the theme's scripts by checksum, no other script."""
    own = PAGE_NAME.format(name)
    allowed = [
        script for script in _read(text).scripts if script.strip() and (script in known or script.strip() == own)
    ]
    sums = " ".join(dict.fromkeys(_checksum(script) for script in [*allowed, *HANDLERS]))
    return (
        f"default-src 'none'; script-src 'self' 'unsafe-hashes' {sums}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'"
    )


def _checksum(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def set_policies(html: Path, measured: set[str]) -> None:
    """Write its policy into every page; `measured` are the pages (without .html) that show a host's outputs."""
    pages = {
        path.relative_to(html).with_suffix("").as_posix(): path
        for path in sorted(html.rglob("*.html"))
        if path.relative_to(html).parts[0] != "_static"  # templates, which nobody opens
    }
    known = {
        script
        for script in scripts(path for name, path in pages.items() if name not in measured)
        if "DOCUMENTATION_OPTIONS.pagename" not in script
    }
    for name, path in pages.items():
        text = path.read_text(encoding="utf-8")
        place = re.search(r"<head\b[^>]*>\s*(?:<meta charset=[^>]*>)?", text)
        at = place.end() if place else 0  # without a head: the page that leads to the first one
        meta = f'<meta http-equiv="Content-Security-Policy" content="{policy(text, name, known)}">'
        path.write_text(f"{text[:at]}\n{meta}{text[at:]}", encoding="utf-8")
