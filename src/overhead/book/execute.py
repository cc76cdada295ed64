"""A chapter measured, then made a page of: notebook source to executed copy."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from overhead.book import executing, kernel
from overhead.book.executing import NotebookFailed
from overhead.chapters import CHAPTERS, chapter_of, keeping
from overhead.chapters.base import ParameterError
from overhead.chapters.provenance import checkout
from overhead.machine import alone
from overhead.records import record


def run(
    chapter: str,
    parameters: Mapping[str, Any],
    results: Path,
    notebooks: Path | None = None,
    *,
    fresh: bool = False,
    records_only: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Path:
    """Measure a chapter on this host, then make its page: NAME.ipynb and NAME.jsonl in `results`/<host>.

    With `records_only` no page is made, which needs neither papermill nor a kernel: `render` makes it elsewhere.

    Everything is checked before anything is measured. Where measuring fails, the steps that were finished stay, and
    the next run of the same goes on there; where making the page fails, the records stay. Either leaves an earlier pair
    as it was. Returns the path of what was put in place last. Raises `ParameterError`, `NotebookFailed`, or `OSError`.
    """
    find(chapter, notebooks)
    folder = check(chapter, parameters, results)
    clear(folder)
    chosen = chapter_of(chapter).checked(**parameters)
    with _environment(OVERHEAD_RESULTS=str(results.resolve())):
        keeping.measure(chosen, parameters, folder, fresh=fresh, say=say)
    if records_only:
        return keeping.settle_records(folder, chapter)
    try:
        return render(chapter, chosen.host, results, notebooks)
    except (NotebookFailed, OSError) as error:
        raise NotebookFailed(
            f"{error}\nits records are kept: overhead run {chapter} --host {chosen.host} --from-records makes the page"
        ) from None


def render(chapter: str, host: str, results: Path, notebooks: Path | None = None) -> Path:
    """Make a chapter's page from the records that `host` has, with the parameters that they were taken with.

    Measures nothing, and can be repeated. Returns the executed notebook's path. Raises as `run` does, and
    `ParameterError` where nothing was measured.
    """
    source, folder = find(chapter, notebooks), results / host
    parameters = keeping.parameters_of(folder, chapter)
    kept = keeping.records_of(folder, chapter)
    made = kept / f"{chapter}.jsonl"
    if not made.exists():
        raise ParameterError(f"--from-records needs {host}/{chapter} as a run left it under the results folder")
    with alone.scratch() as scratch, kernel.private(scratch) as private:
        kernel_sees = {**private, "OVERHEAD_RESULTS": str(results.resolve()), "OVERHEAD_KEPT": str(kept.resolve())}
        executed = executing.executed(source, scratch, parameters, kernel_sees)
        executed["metadata"]["overhead"] = {"records_sha256": checksum(made)}
    text = json.dumps(executed, indent=1, ensure_ascii=False) + "\n"
    record.write_text(kept / f"{chapter}.ipynb", text)
    keeping.settle(folder, chapter)
    return folder / f"{chapter}.ipynb"


def has_records(folder: Path, chapter: str) -> bool:
    """Whether a host's folder holds a chapter's records, in place or waiting for their page."""
    return (keeping.records_of(folder, chapter) / f"{chapter}.jsonl").exists()


def clear(folder: Path) -> None:
    """Put in place what a kill left between two renames in a host's folder, and remove what it left unfinished."""
    for chapter in CHAPTERS:
        keeping.settle(folder, chapter)
    alone.sweep(folder, ".")


def check(chapter: str, parameters: Mapping[str, Any], results: Path) -> Path:
    """The folder, made if need be, that a run with these parameters writes to.

    Raises `ParameterError` for parameters that cannot be used on this host, `NotebookFailed` for a folder that
    cannot be made or written.
    """
    chosen = chapter_of(chapter).checked(**parameters)
    chosen.usable_devices()
    folder = results / chosen.host
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotebookFailed(f"results folder must be one that can be made, got {results}: {error.strerror}") from None
    if not os.access(folder, os.W_OK) or not os.access(results, os.W_OK):
        raise NotebookFailed(f"results folder must be writable, got {results}")
    with _environment(OVERHEAD_RESULTS=str(results.resolve())):
        chosen.check_host()
    return folder


def find(chapter: str, notebooks: Path | None = None) -> Path:
    """The source notebook of `chapter`. Raises `ParameterError` for one that is unknown or takes no parameters."""
    if chapter not in CHAPTERS:
        raise ParameterError(f"notebook must be one of {', '.join(CHAPTERS)}, got {chapter!r}")
    root = checkout()
    folder = notebooks or (root / "notebooks" if root else Path("notebooks"))
    path = folder / f"{chapter}.ipynb"
    if not path.exists():
        raise ParameterError(f"notebooks/{chapter}.ipynb was not found; run in a checkout of the book")
    _check_tag(path)
    return path


def _check_tag(source: Path) -> None:
    """Raises `ParameterError` for a notebook that papermill can give no parameters: it would run with its defaults."""
    try:
        cells = json.loads(source.read_text(encoding="utf-8"))["cells"]
        if any("parameters" in cell["metadata"].get("tags", []) for cell in cells):
            return
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    raise ParameterError(f"notebooks/{source.name} must have a cell tagged 'parameters'; it has none")


def is_complete(results: Path, host: str, chapters: list[str]) -> bool:
    """Whether `host` has a matching pair of executed notebook and records for every chapter."""
    return all(pair_fault(results / host, chapter) is None for chapter in chapters)


def pair_fault(folder: Path, chapter: str) -> str | None:
    """Why NAME.ipynb and NAME.jsonl are not of one run, or None."""
    notebook, lines = folder / f"{chapter}.ipynb", folder / f"{chapter}.jsonl"
    for path in (notebook, lines):
        if not path.exists():
            return f"{folder.name}/{path.name} is missing"
    try:
        wrote = (
            json.loads(notebook.read_text(encoding="utf-8"))
            .get("metadata", {})
            .get("overhead", {})
            .get("records_sha256")
        )
    except (ValueError, AttributeError):
        return f"{folder.name}/{notebook.name} is no notebook"
    if wrote != checksum(lines):
        return f"{folder.name}/{notebook.name} and {lines.name} are not of one run; run the notebook again"
    return None


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
