"""The page of parameters: what each notebook takes, read from its cell `parameters`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from overhead.book.fragments import plain, title_of
from overhead.chapters import CHAPTERS

LINE = re.compile(r"(?P<name>\w+): (?P<kind>[\w\[\], |]+) = (?P<default>.+?)  # (?P<what>.+)")
INTRO = """(parameters)=
# Parameters of every notebook

What a chapter takes, with its type and what it is where nothing is given. From a terminal:
`overhead run CHAPTER -p NAME VALUE`, where VALUE is YAML. Each is checked before anything is measured.

"""
HEADER = "| parameter | type | without it | is |\n|---|---|---|---|"


class Parameter(NamedTuple):
    """A line of a notebook's cell of parameters."""

    name: str
    kind: str
    default: str
    what: str


def of(notebook: Path) -> list[Parameter]:
    """The parameters of a source notebook, in order. Raises `ValueError` for a line of another form."""
    found = []
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if "parameters" not in cell["metadata"].get("tags", []):
            continue
        for line in "".join(cell["source"]).splitlines():
            if not line.strip() or line.startswith("#"):
                continue
            if (match := LINE.fullmatch(line)) is None:
                form = "`name: type = literal  # what it is`"
                raise ValueError(f"{notebook.name}: a parameter must be {form}, got {line!r}")
            found.append(Parameter(*match.group("name", "kind", "default", "what")))
    return found


def page(root: Path) -> str:
    """The page in Markdown: a table a chapter."""
    parts = [INTRO]
    for chapter in CHAPTERS:
        lines = [f"## {title_of(root, chapter)}\n", f"`{chapter}`\n", HEADER]
        for p in of(root / "notebooks" / f"{chapter}.ipynb"):
            lines.append(f"| `{p.name}` | `{p.kind}` | `{p.default}` | {plain(p.what)} |")
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)
