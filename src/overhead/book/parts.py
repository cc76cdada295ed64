"""A chapter whose page would be too long is read as several: which of its sections go to a page of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Part(NamedTuple):
    """A page beside a chapter's own: what its name ends in, its title, its question, the sections that it takes."""

    suffix: str
    title: str
    question: str
    sections: tuple[str, ...]  # headings of the notebook


PARTS: dict[str, tuple[Part, ...]] = {
    "05-batch-sweep": (
        Part(
            "-protocol",
            "The article's protocol, beside a controlled one",
            "The article compared whole calls of `fit()` with bare training loops. How much of its gaps is that, how "
            "much the libraries, and what caused the figures that it could not explain?",
            ("The article's protocol beside the controlled one", "Causes, switched on and off"),
        ),
        Part(
            "-quality",
            "Time to a quality",
            "A larger batch makes an epoch shorter. Does it also make training to a given accuracy shorter?",
            ("Fewer updates, or smoother ones?", "Time to a quality"),
        ),
    ),
}


def names(chapter: str) -> list[str]:
    """The pages of a chapter, its own first."""
    return [chapter, *(f"{chapter}{part.suffix}" for part in PARTS.get(chapter, ()))]


def titles() -> dict[str, str]:
    """The titles of the pages beside chapters' own."""
    return {f"{chapter}{part.suffix}": part.title for chapter, parts in PARTS.items() for part in parts}


def split(chapter: str, cells: Sequence[dict[str, Any]], host: str, block: str) -> dict[str, list[dict[str, Any]]]:
    """Page → its cells. `block` stands under each title, as on the chapter's own page."""
    parts = PARTS.get(chapter, ())
    found: dict[str, list[dict[str, Any]]] = {chapter: []}
    for part in parts:
        found[f"{chapter}{part.suffix}"] = [_first(chapter, part, host, block)]
    here = chapter
    for cell in cells:
        if cell["cell_type"] == "markdown" and (heading := _heading(cell)) is not None:
            here = next((f"{chapter}{part.suffix}" for part in parts if heading in part.sections), chapter)
            if cell["id"] == "remember" and parts:
                found[chapter].append(_onward(chapter, host))
        found[here].append(cell)
    return found


def _heading(cell: Mapping[str, Any]) -> str | None:
    line = "".join(cell["source"]).lstrip().partition("\n")[0]
    return line[3:].strip() if line.startswith("## ") else None


def _first(chapter: str, part: Part, host: str, block: str) -> dict[str, Any]:
    where = f"{{doc}}`Batch size </results/{host}/{chapter}>`"
    about = f"The rows are those of {where}, which has the records, the host and the code."
    text = f"# {part.title} · {host}\n\n{block}\n{part.question}\n\n{about}"
    return {"cell_type": "markdown", "id": f"part{part.suffix}", "metadata": {}, "source": text}


def _onward(chapter: str, host: str) -> dict[str, Any]:
    lines = [
        f"- {{doc}}`{part.title} </results/{host}/{chapter}{part.suffix}>`: {part.question}" for part in PARTS[chapter]
    ]
    text = "\n".join(["## Two pages go on from here", "", *lines])
    return {"cell_type": "markdown", "id": "onward", "metadata": {}, "source": text}
