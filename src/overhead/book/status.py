"""`overhead status`: every page that was measured, with its date and versions, whether it is stale, and its claims."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from overhead.book import folder
from overhead.book.folder import FolderError
from overhead.chapters import provenance
from overhead.chapters.base import results_folder
from overhead.chapters.claims import findings
from overhead.records.record import Record
from overhead.showing.claims import FAILS, HOLDS, NOT_MEASURED

KEYS = {HOLDS: "holds", FAILS: "fails", NOT_MEASURED: "not_measured"}


def pages(results: Path) -> list[dict[str, Any]]:
    """An entry a host and chapter: host, chapter, preset, started, minutes, versions, stale, why, claims.

    `minutes` is None where the host's facts do not say how long the run took. `claims` counts holds, fails and
    not_measured. Of records that cannot be read, `why` says so. Raises `FolderError` without a host's folder.
    """
    found = []
    for host in folder.hosts(results):
        seconds = seconds_of(results / host)
        for chapter in folder.chapters(results / host):
            try:
                read = folder.read_records(results / host, chapter)
            except FolderError as error:
                found.append(_entry(host, chapter, [], None, str(error)))
                continue
            found.append(_entry(host, chapter, read, seconds.get(chapter), None))
    return found


def _entry(host: str, chapter: str, read: Sequence[Record], seconds: float | None, fault: str | None) -> dict[str, Any]:
    versions: dict[str, str] = {}
    for record in read:
        versions |= record.versions
    why = fault or provenance.stale(read)
    said = Counter(KEYS[finding.status] for claim, finding in findings({chapter: read}) if claim.chapter == chapter)
    return {
        "host": host,
        "chapter": chapter,
        "preset": next((r.preset for r in read if r.preset), None),
        "started": min((r.started for r in read if r.started), default=None),
        "minutes": None if seconds is None else round(seconds / 60, 1),
        "versions": dict(sorted(versions.items())),
        "stale": why is not None,
        "why": why,
        "claims": {key: said.get(key, 0) for key in KEYS.values()},
    }


def seconds_of(host: Path) -> dict[str, float]:
    """Chapter → seconds that its run took, of those that host.json tells of."""
    try:
        runs: Any = folder.read_json(host / "host.json").get("runs")
    except FolderError:
        return {}
    return {
        chapter: float(about["seconds"])
        for chapter, about in (runs.items() if isinstance(runs, dict) else ())
        if isinstance(about, dict) and type(about.get("seconds")) in (int, float) and about["seconds"] >= 0
    }


def as_text(found: Sequence[Mapping[str, Any]]) -> str:
    """A line a page, under a heading."""
    lines = [f"{'host':<14} {'chapter':<24} {'preset':<9} {'measured':<21} {'min':>5}  {'claims':<22} state"]
    for page in found:
        claims = page["claims"]
        said = f"{claims['holds']} hold, {claims['fails']} not, {claims['not_measured']} open"
        minutes = "–" if page["minutes"] is None else f"{page['minutes']:g}"
        state = f"stale: {page['why']}" if page["stale"] else "fresh"
        lines.append(
            f"{page['host']:<14} {page['chapter']:<24} {page['preset'] or '–':<9} {page['started'] or '–':<21} "
            f"{minutes:>5}  {said:<22} {state}"
        )
    return "\n".join(lines)


@click.command()
@click.option(
    "--results", type=click.Path(path_type=Path), help="Results folder (default: OVERHEAD_RESULTS, else ./results)."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def status(results: Path | None, as_json: bool) -> None:
    """Every page: host, chapter, preset, date, minutes, claims that hold, and whether it is stale. Measures nothing.

    Example: overhead status --json
    """
    try:
        found = pages((results or results_folder()).resolve())
    except FolderError as error:
        raise click.ClickException(str(error)) from None
    click.echo(json.dumps({"pages": found}, indent=1, ensure_ascii=False) if as_json else as_text(found))
