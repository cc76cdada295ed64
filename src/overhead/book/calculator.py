"""The calculator on the built pages: its form where a page has a place for it, its script beside the pages."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from overhead.chapters.crossover.chapter import Crossover
from overhead.chapters.crossover.kept import constants_of
from overhead.model import calculator
from overhead.model.constants import Constants
from overhead.records import record as records

PLACE = "The calculator stands here where scripts run."  # the paragraph that the form takes the place of
PARAGRAPH = re.compile(rf"<p>{re.escape(PLACE)}</p>")


def on_pages(html: Path, hosts: Mapping[str, Path]) -> list[str]:
    """Put the calculator on the pages under `html` that have a place for it; returns their names.

    `hosts`: by name, the folder with a host's records. A chapter's page takes its own host's constants; any other page
    those of the first host that has some. A page without constants loses the place.
    """
    known = {name: found for name, folder in hosts.items() if (found := kept(folder)) is not None}
    changed = []
    for path in sorted(html.rglob("*.html")):
        name = path.relative_to(html).as_posix()
        text = path.read_text(encoding="utf-8")
        if PLACE not in text or name.startswith("_"):
            continue
        own = re.match(r"results/([^/]+)/", name)
        constants = known.get(own[1]) if own else next(iter(known.values()), None)
        shown = calculator.form(constants) + _script(path, html) if constants else ""
        path.write_text(PARAGRAPH.sub(lambda _, shown=shown: shown, text, count=1), encoding="utf-8")
        changed += [name] if constants else []
    if changed:
        shutil.copyfile(calculator.SCRIPT, html / "_static" / calculator.SCRIPT.name)
    return changed


def kept(folder: Path) -> Constants | None:
    """The constants among the records of a host's folder, if any can be used."""
    path = folder / f"{Crossover.name}.jsonl"
    try:
        return constants_of(records.read(path)) if path.exists() else None
    except (OSError, ValueError):
        return None


def _script(page: Path, html: Path) -> str:
    where = Path(os.path.relpath(html / "_static" / calculator.SCRIPT.name, page.parent)).as_posix()
    return f'<script defer src="{where}"></script>'
