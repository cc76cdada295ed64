"""Pages of hosts: the switcher on top of a chapter, how each page was made, the page Hosts and the page Status."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from overhead.book import folder, pages, status
from overhead.book.fragments import hosts_table, plain, title_of
from overhead.chapters import CHAPTERS, chapter_of
from overhead.chapters.base import injected_values
from overhead.records.record import Record

Made = Mapping[str, Mapping[str, dict[str, Any]]]  # host → chapter → the notebook of its page
HOSTS_INTRO = """(hosts)=
# The hosts

Each host is one machine on which the same notebooks were run. A page of its own stands for every chapter; the line
at its top leads to the same chapter of the others. {ref}`compare` sets them side by side, {ref}`status` says how fresh
they are.

"""
STATUS_INTRO = """(status)=
# Status: every page

When each page was measured, how, and whether the code that measures it has changed since. The same from a terminal:
`overhead status`. Claims are counted as *holds*, *does not hold here* and *not measured here* ({ref}`ledger`).

"""


def switcher(host: str, chapter: str, hosts: Mapping[str, Sequence[str]]) -> str:
    """A line of links to the same chapter on the other hosts, to stand under the title."""
    links = [
        f"**{name}**" if name == host else f"{{doc}}`{name} </results/{name}/{chapter}>`"
        for name, chapters in hosts.items()
        if chapter in chapters
    ]
    others = "" if len(links) > 1 else " (on no other host yet: {ref}`reproduce`)"
    return f":::{{div}} overhead-hosts\nThis chapter on: {' · '.join(links)}{others} · {{ref}}`compare`\n:::\n"


def under_title(source: str, block: str, host: str) -> str:
    """A page's first cell with the host in its title and `block` under it."""
    lines = source.splitlines()
    for number, line in enumerate(lines):
        if line.startswith("# "):
            return "\n".join([*lines[:number], f"{line} · {host}", "", block, *lines[number + 1 :]])
    return f"{block}\n{source}"


def given_parameters(page: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that a page was made with, as its injected cell says; empty where none were."""
    cell = next((cell for cell in page["cells"] if cell["id"] == "injected"), None)
    return injected_values("".join(cell["source"])) if cell else {}


def command(host: str, chapter: str, page: Mapping[str, Any], preset: str | None) -> str:
    """The command line that measures a page again, for a shell."""
    given = given_parameters(page)
    fields = chapter_of(chapter).model_fields
    parts = ["overhead", "run", chapter, "--host", host, "--preset", str(given.get("preset") or preset or "quick")]
    for name, value in given.items():
        known = name in fields and value != fields[name].default
        if not known or name in ("host", "preset") or (name, value) == ("devices", ["auto"]):
            continue
        if name == "devices" and isinstance(value, list) and len(value) == 1:
            parts += ["--device", str(value[0])]
        else:
            parts += ["-p", name, str(value)]
    return shlex.join(parts)


def made_by(
    host: str, chapter: str, page: Mapping[str, Any], records: Sequence[Record], seconds: float | None
) -> str:  # fmt: skip
    """How to make a page again, in a sentence: the command, minutes and memory."""
    preset = next((r.preset for r in records if r.preset), None)
    asked = command(host, chapter, page, preset).replace("`", "'")
    return f"Made by `{asked}`; {_took(chapter, preset, seconds)}, {_memory(records)}.\n"


def _took(chapter: str, preset: str | None, seconds: float | None) -> str:
    if seconds is not None:
        return f"it took {seconds / 60:.1f} minutes"
    presets = ("quick", "workshop", "full")
    about = CHAPTERS[chapter].seconds[presets.index(preset) if preset in presets else 0]
    return f"about {about / 60:.1f} minutes on two cores (this run's own were not kept)"


def _memory(records: Sequence[Record]) -> str:
    most = max((r.peak_rss_bytes or 0 for r in records), default=0)
    return f"at most {most / 2**30:.1f} GiB a process" if most else "memory was not recorded"


def with_command(cells: Sequence[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """The cells of a page, `words` behind the one that shows the host's card."""
    made = {"cell_type": "markdown", "id": "made-by", "metadata": {}, "source": words}
    found = []
    for cell in cells:
        found.append(cell)
        if cell["cell_type"] == "code" and pages.called("".join(cell["source"])) == "host_card":
            found.append(made)
    return found


def page(root: Path, results: Path, made: Made) -> str:
    """The page Hosts in Markdown: the machines, and how each page of each host is made again."""
    hosts = {host: list(chapters) for host, chapters in made.items()}
    parts = [HOSTS_INTRO, hosts_table(root, results, hosts)]
    for host, chapters in made.items():
        took = status.seconds_of(results / host)
        lines = [f"## {host}\n", "| page | made by | minutes | memory, GiB a process |", "|---|---|--:|--:|"]
        for chapter, notebook in chapters.items():
            records = folder.read_records(results / host, chapter)
            preset = next((r.preset for r in records if r.preset), None)
            most = max((r.peak_rss_bytes or 0 for r in records), default=0)
            minutes = f"{took[chapter] / 60:.1f}" if chapter in took else "–"
            asked = command(host, chapter, notebook, preset).replace("`", "'").replace("|", " ")
            lines.append(
                f"| {{doc}}`{title_of(root, chapter)} </results/{host}/{chapter}>` | `{asked}` | {minutes} | "
                f"{f'{most / 2**30:.1f}' if most else '–'} |"
            )
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def status_page(root: Path, results: Path, made: Made) -> str:
    """The page Status in Markdown, from what `overhead status` says."""
    entries = status.pages(results)
    parts = [STATUS_INTRO]
    for host in dict.fromkeys(entry["host"] for entry in entries):
        lines = [f"## {plain(host)}\n", "| chapter | preset | measured | minutes | claims | state |"]
        lines.append("|---|---|---|--:|---|---|")
        of = [entry for entry in entries if entry["host"] == host]
        lines += [_status_row(root, entry, entry["chapter"] in made.get(host, {})) for entry in of]
        why = list(dict.fromkeys(entry["why"] for entry in of if entry["stale"]))
        parts.append("\n".join(lines) + "\n")
        parts += [f"Stale means here: {'; '.join(map(plain, why))}.\n"] if why else []
    return "\n".join(parts)


def _status_row(root: Path, entry: Mapping[str, Any], shown: bool) -> str:
    host, chapter, claims = entry["host"], entry["chapter"], entry["claims"]
    title = title_of(root, chapter)
    cells = [
        f"{{doc}}`{title} </results/{host}/{chapter}>`" if shown else f"{title} (left out)",
        plain(entry["preset"] or "–"),
        plain((entry["started"] or "–")[:10]),
        "–" if entry["minutes"] is None else f"{entry['minutes']:g}",
        f"{claims['holds']} hold, {claims['fails']} not, {claims['not_measured']} open",
        "stale" if entry["stale"] else "fresh",
    ]
    return "| " + " | ".join(cells) + " |"
