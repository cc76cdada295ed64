"""Where a chapter's records go: finished steps to a journal, a finished measurement to a folder, then beside its page.

In a host's folder: `.NAME.journal` while it is measured; `.NAME.measured/` once it is, until its page is made, with
NAME.jsonl, host.json and run.json; at last NAME.jsonl and NAME.ipynb, which are put in place together.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from overhead.chapters import provenance
from overhead.chapters.base import Chapter, ParameterError, host_facts
from overhead.measure.journal import OLDEST_S, Journal
from overhead.measure.session import Session
from overhead.records import record as records

PAIR = ("host.json", "{name}.jsonl", "{name}.ipynb")


def measured_folder(host_folder: Path, name: str) -> Path:
    """Where a finished measurement waits for its page."""
    return host_folder / f".{name}.measured"


def journal_of(host_folder: Path, name: str) -> Path:
    """Where the finished steps of a run lie while it goes on, and after it was ended early."""
    return host_folder / f".{name}.journal"


def identity(chapter: Chapter) -> dict[str, Any]:
    """What makes two runs of a chapter the same: its parameters and the code."""
    commit, dirty = provenance.revision()
    return {"chapter": chapter.name, "parameters": chapter.model_dump(mode="json"), "commit": commit, "dirty": dirty}


def measure(
    chapter: Chapter,
    given: Mapping[str, Any],
    host_folder: Path,
    *,
    fresh: bool = False,
    say: Callable[[str], None] = print,
) -> Path:
    """Measure a chapter into `measured_folder`, which it returns; goes on where a run of the same was ended early.

    `given` are the parameters that were asked for, of which the page tells. Whatever fails, the steps that were
    finished stay in the journal. Raises what the chapter raises.
    """
    folder, run = measured_folder(host_folder, chapter.name), identity(chapter)
    if not fresh and (kept := waiting(folder)) and kept["run"] == run and time.time() - kept["began"] <= OLDEST_S:
        say(f"{chapter.name}: measured already, its page is to be made")
        return folder
    about = {"given": dict(given), "facts": host_facts([])}
    journal = Journal(journal_of(host_folder, chapter.name), run, fresh=fresh, about=about)
    if journal.continues:
        say(f"{chapter.name}: goes on where a run was ended early (FRESH=1 or --fresh measures it all anew)")
    began, started, complete = time.time(), time.monotonic(), False
    try:
        taken = chapter.take(Session(chapter.settings, chapter.provenance(), say, journal=journal))
        found = provenance.stamped(taken)
        kept = {"run": run, "given": dict(given), "began": began, "seconds": round(time.monotonic() - started, 1)}
        put(folder, found, kept, chapter.name)
        complete = True
    finally:
        journal.close(complete=complete)
    return folder


def put(
    folder: Path, found: list[records.Record], about: dict[str, Any], name: str, facts: dict[str, Any] | None = None
) -> None:
    """Write the folder of a finished measurement whole or not at all; `facts` of its host where it is not this one."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".overhead-{os.getpid()}-") as made:
        whole = Path(made) / "measured"
        whole.mkdir()
        records.write(whole / f"{name}.jsonl", found)
        host = {**(facts or host_facts(found)), "runs": {**_runs(folder.parent), name: about}}
        records.write_text(whole / "host.json", json.dumps(host, indent=1) + "\n")
        records.write_text(whole / "run.json", json.dumps(about) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(whole, folder)


def _runs(host_folder: Path) -> dict[str, Any]:
    """What host.json says of the runs of this host's chapters."""
    try:
        runs = json.loads((host_folder / "host.json").read_text(encoding="utf-8"))["runs"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return runs if isinstance(runs, dict) else {}


def waiting(folder: Path) -> dict[str, Any] | None:
    """What run.json says of a measurement that waits for its page; None where none does."""
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        whole = (folder / f"{about['run']['chapter']}.jsonl").exists() and isinstance(about["began"], float)
        return about if whole else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def parameters_of(host_folder: Path, name: str) -> dict[str, Any]:
    """The parameters that a chapter of a host was measured with. Raises `ParameterError` where nothing tells."""
    folder = measured_folder(host_folder, name)
    about = waiting(folder) or _runs(host_folder).get(name)
    if about:
        return about["given"]
    try:
        executed = json.loads((host_folder / f"{name}.ipynb").read_text(encoding="utf-8"))
        return executed["metadata"]["papermill"]["parameters"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ParameterError(
            f"--from-records needs {host_folder.name}/{name} as a run left it under the results folder"
        ) from None


def records_of(host_folder: Path, name: str) -> Path:
    """The folder whose NAME.jsonl and host.json a page is made from: what waits for its page, else the pair's."""
    folder = measured_folder(host_folder, name)
    return folder if waiting(folder) else host_folder


def settle_records(host_folder: Path, name: str) -> Path:
    """Put a finished measurement in place without a page, which is made elsewhere; a page of an earlier one goes."""
    folder = measured_folder(host_folder, name)
    (host_folder / f"{name}.ipynb").unlink(missing_ok=True)
    for path in (folder / f"{name}.jsonl", folder / "host.json"):
        os.replace(path, host_folder / path.name)
    shutil.rmtree(folder, ignore_errors=True)
    return host_folder / f"{name}.jsonl"


def settle(host_folder: Path, name: str) -> bool:
    """Put a measurement and its page in place, the page last; whether there was one whose page is made.

    What a kill left between two of the renames is put in place by the next call.
    """
    folder = measured_folder(host_folder, name)
    if not (folder / f"{name}.ipynb").exists():
        return False
    for part in PAIR:
        path = folder / part.format(name=name)
        if path.exists():
            os.replace(path, host_folder / path.name)
    shutil.rmtree(folder, ignore_errors=True)
    return True
