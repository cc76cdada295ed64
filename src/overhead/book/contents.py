"""The table of contents: the book's prose, a part a host, the loops, reference pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead.book import exhibits, parts

PARTS_BEFORE = {"The question": ["book/intro", "book/article", "book/method", "book/ledger"]}
PARTS_AFTER = {
    "In class": [
        f"book/workshop/{page}"
        for page in ("plan", "two-hours", "four-hours", "questions", "exercises", "test", "guesses")
    ],
    "Hosts": ["book/hosts", "book/compare", "book/status"],
    "The code that was timed": ["book/loops", *(f"book/loops/{name}" for name in exhibits.GROUPS)],
    "Reference": ["book/glossary", "book/reproduce", "book/parameters", "book/references"],
}
PROSE = [page for group in (PARTS_BEFORE, PARTS_AFTER) for pages in group.values() for page in pages]


def contents(hosts: Mapping[str, Sequence[str]], titles: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The table of contents: the book's prose, a part a host, reference pages. Adding a host needs no edit.

    `titles`: of the chapters, which the list of a host's pages shows without the host's name.
    """
    measured = {
        f"Measured on {host}": [f"results/{host}/{name}" for chapter in chapters for name in parts.names(chapter)]
        for host, chapters in hosts.items()
    }
    listed = {**PARTS_BEFORE, **measured, **PARTS_AFTER}
    named = {
        page: title for pages in measured.values() for page in pages if (title := (titles or {}).get(Path(page).name))
    }
    return {
        "format": "jb-book",
        "root": PROSE[0],
        "parts": [
            {
                "caption": caption,
                "chapters": [
                    {"file": page, **({"title": named[page]} if page in named else {})}
                    for page in pages
                    if page != PROSE[0]
                ],
            }
            for caption, pages in listed.items()
        ],
    }
