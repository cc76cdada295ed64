"""What Sphinx leaves undone: marked places, the switcher's role, a page's neighbours, its description, the icons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape, unescape
from pathlib import Path

ICONS = Path("_static") / "scripts" / "fontawesome.js"
# A drawing of the icon script: `"bars":[448,512,[…],"f0c9","M0 96…"]`, names with hyphens or digits in quotes.
DRAWING = re.compile(r'(?<=[{,])"?([\w-]+)"?:\[\d+,\d+,\[([^\]]*)\],"[0-9a-f]+",(?:"[^"]*"|\[[^\]]*\])\],?')
NAMED = re.compile(r"fa-([a-z0-9-]+)")
SWITCHER = re.compile(r'<div class="overhead-hosts docutils">\s*(<p>.*?</p>)\s*</div>', re.S)
NEIGHBOUR = re.compile(r'<a class="(?:left-prev|right-next)"\s+href="([^"]+)".*?</a>', re.S)
RELATION = re.compile(r'<link rel="(?:next|prev)" title="[^"]*" href="([^"]+)" />')
TABLE = re.compile(r'<div class="overhead-table">(?=<table>(?:<caption>(.*?)</caption>)?)', re.S)
FIRST_WORDS = re.compile(r"<p>(.*?)</p>", re.S)
LONGEST = 160  # characters of a description


def finish(html: Path, slots: Mapping[str, str]) -> None:
    """Put `slots` (class of a marked place → our own markup) and the rest into the pages of a built book."""
    pages = [path for path in sorted(html.rglob("*.html")) if path.relative_to(html).parts[0] != "_static"]
    for path in pages:
        text = path.read_text(encoding="utf-8")
        path.write_text(finished(text, path.relative_to(html), slots), encoding="utf-8")
    prune_icons(html, pages)


def finished(text: str, page: Path, slots: Mapping[str, str]) -> str:
    """One page's markup; `page` is its path in the book."""
    for name, markup in slots.items():
        text = re.sub(rf'<div class="{name} docutils">.*?</div>', lambda _, markup=markup: markup, text, flags=re.S)
    text = SWITCHER.sub(r'<nav class="overhead-hosts" aria-label="This chapter on other hosts">\1</nav>', text)
    text = TABLE.sub(_reachable, text)
    if len(page.parts) == 3 and page.parts[0] == "results":
        # The chapter after a host's last one would be another host's first.
        for pattern in (NEIGHBOUR, RELATION):
            text = pattern.sub(lambda found: found[0] if _of_the_host(page, unescape(found[1])) else "", text)
    return _described(text)


def _reachable(found: re.Match[str]) -> str:
    """A table's box, which scrolls sideways, as a region that the keyboard reaches."""
    words = " ".join(unescape(re.sub(r"<[^>]+>", "", found[1] or "")).split())[:80]
    return f'<div class="overhead-table" tabindex="0" role="region" aria-label="{escape(words or "table")}">'


def _of_the_host(page: Path, address: str) -> bool:
    there = (Path("/") / page.parent / address).as_posix()
    parts: list[str] = []
    for part in there.split("/"):
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "results" not in parts or page.parts[1] in parts


def _described(text: str) -> str:
    """The page with a description for search engines and for links that are sent on: its first words."""
    title = re.search(r"<title>(.*?)</title>", text, re.S)
    article = text.find("<article")
    said = FIRST_WORDS.search(text, max(article, 0))
    if title is None or said is None or article < 0:
        return text
    words = " ".join(unescape(re.sub(r"<[^>]+>", "", said[1])).split())
    words = words if len(words) <= LONGEST else words[: words.rfind(" ", 0, LONGEST)] + " …"
    name = " ".join(unescape(title[1]).split())
    meta = (
        f'<meta name="description" content="{escape(words)}">\n<meta property="og:title" content="{escape(name)}">\n'
        f'<meta property="og:description" content="{escape(words)}">\n<meta property="og:type" content="article">\n'
    )
    return text.replace("</head>", f"{meta}</head>", 1)


def prune_icons(html: Path, pages: list[Path]) -> None:
    """Leave out of the theme's script of 1.5 MB every drawing that no page and no script of the book names."""
    path = html / ICONS
    if not path.exists():
        return
    others = [script for script in html.rglob("*.js") if script != path]
    texts = [page.read_text(encoding="utf-8") for page in [*pages, *others]]
    names = {name for text in texts for name in NAMED.findall(text)}

    def kept(found: re.Match[str]) -> str:
        also = re.findall(r'"([\w-]+)"', found[2])
        return found[0] if names & {found[1], *also} else ""

    path.write_text(DRAWING.sub(kept, path.read_text(encoding="utf-8")), encoding="utf-8")
