"""A chapter's page as a whole: the host in its title, the notes above, the notebook's cells, and what ends it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from overhead.book import classes, folder, fragments, status, story
from overhead.book import hosts as host_pages
from overhead.showing.claims import Claim, Finding


class OfHost(NamedTuple):
    """What all pages of a host share."""

    folder: Path
    host: str
    hosts: Mapping[str, Sequence[str]]  # of the book: host → its chapters
    took: Mapping[str, float]  # seconds, by chapter
    judged: Mapping[str, tuple[Claim, Finding]]
    told: story.Story | None


def host_of(
    where: Path, host: str, hosts: Mapping[str, Sequence[str]], said: Sequence[tuple[Claim, Finding]]
) -> OfHost:
    """The facts of a host's pages. Raises `FolderError` for records that cannot be read."""
    sweep = folder.read_records(where, fragments.SWEEP) if fragments.SWEEP in hosts[host] else []
    judged = {claim.name: (claim, finding) for claim, finding in said}
    return OfHost(where, host, hosts, status.seconds_of(where), judged, story.story_of(sweep))


def cells(of: OfHost, chapter: str, page: Mapping[str, Any], slot: str) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The cells of a chapter's page, and the markup that takes the place `slot` after the build, where there is one."""
    read = folder.read_records(of.folder, chapter)
    covered = classes.covered(dict(page), of.host, chapter, read)
    words = host_pages.made_by(of.host, chapter, page, read, of.took.get(chapter))
    first, *rest = host_pages.with_command(covered["cells"], words)
    block = host_pages.switcher(of.host, chapter, of.hosts)
    first = {**first, "source": host_pages.under_title("".join(first["source"]), block, of.host)}
    above, slots = [], {}
    if note := fragments.stale_note(read):
        above.append(_markdown("stale", note))
    if of.told:
        slots[slot] = story.bar(of.told, chapter)
        above.append(_markdown("story", f":::{{div}} {slot}\n{story.words(of.told, chapter)}\n:::\n"))
    others = [other for other in of.hosts if other != of.host and chapter in of.hosts[other]]
    below = [
        _markdown("remember", story.remember(chapter, of.host, of.judged, of.hosts[of.host])),
        _markdown("provenance", fragments.provenance(read, chapter, others)),
    ]
    return [first, *above, *rest, *below], slots


def _markdown(name: str, source: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}
