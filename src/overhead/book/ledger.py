"""The ledger: every claim of the book for every host, and the status of the article's statements that follows."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from overhead.book import folder
from overhead.book.fragments import plain, title_of
from overhead.chapters.claims import claims, findings
from overhead.showing.claims import FAILS, HOLDS, NOT_MEASURED, Claim, Finding

SETTLED = re.compile(r"\{settled\}`([SC]\d+)`")
CLAIM = re.compile(r"\{claim\}`([\w-]+)`")
INTRO = """(ledger)=
# The ledger: every claim, on every host

What this book says of the world, beyond definitions, methods and arithmetic, is a claim with a name. Each is checked
on each host's records when the book is built. It *holds*, *does not hold here*, or is *not measured here*. The rules by
which a word such as *slower*, *closes* or *first* may be said are on {ref}`verdicts`. Intervals are 95 %.

"""

Found = Mapping[str, Sequence[tuple[Claim, Finding]]]  # host → each claim with what its records say


def found_on(results: Path, hosts: Mapping[str, Sequence[str]]) -> Found:
    """Every claim on every host. Raises `FolderError` for records that cannot be read."""
    return {
        host: findings({chapter: folder.read_records(results / host, chapter) for chapter in chapters})
        for host, chapters in hosts.items()
    }


def page(root: Path, found: Found) -> str:
    """The page in Markdown: a section a chapter, a claim with its label, and a row a host."""
    parts = [INTRO]
    listed = claims()
    for chapter in dict.fromkeys(claim.chapter for claim in listed):
        parts.append(
            f"## {title_of(root, chapter)}\n\n{{chapter}}`{chapter}`\n" if chapter else "## In no chapter yet\n"
        )
        for claim in (claim for claim in listed if claim.chapter == chapter):
            about = f" Settles {', '.join(claim.about)}." if claim.about else ""
            parts.append(f"({label(claim.name)})=\n**{claim.name}.** {claim.statement}{about}\n")
            rows = ["| host | | figure |", "|---|---|---|"]
            for host, said in found.items():
                finding = next(finding for other, finding in said if other.name == claim.name)
                rows.append(f"| {host} | {finding.status} | {plain(finding.figure)} |")
            parts.append("\n".join(rows) + "\n")
    return "\n".join(parts)


def label(name: str) -> str:
    """The label of a claim in the book."""
    return f"claim-{name}"


def settled(about: str, found: Found) -> str:
    """The status a host of one statement of the article: from all claims that are about it."""
    lines = []
    for host, said in found.items():
        here = [(claim, finding) for claim, finding in said if about in claim.about]
        groups = [
            f"{status} ({', '.join(linked(claim.name) for claim in claims_)})"
            for status in (HOLDS, FAILS, NOT_MEASURED)
            if (claims_ := [claim for claim, finding in here if finding.status == status])
        ]
        lines.append(f"{host}: {'; '.join(groups) or 'no claim'}")
    return ". ".join(lines) or "no host was measured"


def linked(name: str) -> str:
    """A link to a claim on the page of the ledger."""
    return f"[{name}]({label(name)})"


def expand(text: str, found: Found) -> str:
    """Prose with ``{settled}`S1` `` and ``{claim}`NAME` `` replaced: a status a host, with links to the ledger.

    Raises `KeyError` for a claim that does not exist.
    """
    known = {claim.name for claim in claims()}

    def status(match: re.Match[str]) -> str:
        name = match[1]
        if name not in known:
            raise KeyError(name)
        each = ", ".join(
            f"{host}: {finding.status}" for host, said in found.items() for claim, finding in said if claim.name == name
        )
        return f"{linked(name)} ({each or 'no host was measured'})"

    return CLAIM.sub(status, SETTLED.sub(lambda match: settled(match[1], found), text))
