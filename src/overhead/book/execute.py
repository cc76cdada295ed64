"""Notebook source to executed copy. The only place that knows papermill."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from overhead.chapters import CHAPTERS, chapter_of
from overhead.chapters.base import ParameterError, checkout

START_LIMIT_S = 120


class NotebookFailed(RuntimeError):
    """An executed notebook that failed or did not reach its last cell; says where and why in one or two lines."""


def run(chapter: str, parameters: Mapping[str, Any], results: Path, notebooks: Path | None = None) -> Path:
    """Execute one notebook on this host and put NAME.ipynb and NAME.jsonl into `results`/<host> together.

    Everything is checked before a kernel starts. A failure leaves what an earlier run put there. Returns
    the executed notebook's path. Raises `ParameterError`, `NotebookFailed`, or `OSError`.
    """
    source = find(chapter, notebooks)
    folder = check(chapter, parameters, results)
    with tempfile.TemporaryDirectory(dir=results, prefix=".staging-") as staging:
        with _environment(OVERHEAD_RESULTS=str(results.resolve()), OVERHEAD_STAGING=str(Path(staging).resolve())):
            executed = _papermill(source, Path(staging) / f"{chapter}.ipynb", dict(parameters))
        made = Path(staging) / f"{chapter}.jsonl"
        if not made.exists():
            raise NotebookFailed(f"{chapter}: its cells wrote no records")
        executed["metadata"]["overhead"] = {"records_sha256": checksum(made)}
        (Path(staging) / f"{chapter}.ipynb").write_text(json.dumps(executed, indent=1, ensure_ascii=False) + "\n")
        for name in ("host.json", f"{chapter}.jsonl", f"{chapter}.ipynb"):
            os.replace(Path(staging) / name, folder / name)
    return folder / f"{chapter}.ipynb"


def again(chapter: str, host: str, results: Path, notebooks: Path | None = None) -> Path:
    """Execute a notebook anew on the records that `host` has, with the parameters that it had; measures nothing.

    For a page whose words or tables changed. Raises as `run` does, and `ParameterError` where nothing was measured.
    """
    find(chapter, notebooks)
    if not is_complete(results, host, [chapter]):
        raise ParameterError(f"--from-records needs {host}/{chapter} as a run left it under the results folder")
    executed = json.loads((results / host / f"{chapter}.ipynb").read_text())
    parameters = executed["metadata"]["papermill"]["parameters"]
    with _environment(OVERHEAD_KEPT="1"):
        return run(chapter, parameters, results, notebooks)


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
    """The source notebook of `chapter`. Raises `ParameterError` for one that is unknown."""
    if chapter not in CHAPTERS:
        raise ParameterError(f"notebook must be one of {', '.join(CHAPTERS)}, got {chapter!r}")
    root = checkout()
    folder = notebooks or (root / "notebooks" if root else Path("notebooks"))
    path = folder / f"{chapter}.ipynb"
    if not path.exists():
        raise ParameterError(f"notebooks/{chapter}.ipynb was not found; run in a checkout of the book")
    return path


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
        wrote = json.loads(notebook.read_text()).get("metadata", {}).get("overhead", {}).get("records_sha256")
    except (ValueError, AttributeError):
        return f"{folder.name}/{notebook.name} is no notebook"
    if wrote != checksum(lines):
        return f"{folder.name}/{notebook.name} and {lines.name} are not of one run; run the notebook again"
    return None


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _papermill(source: Path, target: Path, parameters: dict[str, Any]) -> dict[str, Any]:
    """Run the notebook; returns it without paths and with a kernel name that is true."""
    import papermill

    try:
        papermill.execute_notebook(
            str(source), str(target), parameters=parameters, kernel_name="python3", cwd=str(target.parent),
            progress_bar=sys.stderr.isatty(), log_output=False, start_timeout=START_LIMIT_S,
            extra_arguments=["--Application.log_level=ERROR"],  # not: "Kernel is running over TCP without encryption"
        )  # fmt: skip
    except papermill.PapermillExecutionError as error:
        what = error.evalue or "the notebook kept no more of it"
        raise NotebookFailed(f"{source.stem}: cell {error.exec_count} raised {error.ename}: {what}") from None
    except Exception as error:  # a dead kernel, a kernel that did not start
        raise NotebookFailed(f"{source.stem}: {type(error).__name__}: {str(error).splitlines()[0]}") from None
    notebook = json.loads(target.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code" and "".join(cell["source"]).strip()]
    if code and code[-1].get("execution_count") is None:
        raise NotebookFailed(f"{source.stem}: the last cell was not reached")
    for cell in code:
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                raise NotebookFailed(f"{source.stem}: {output['ename']}: {output['evalue']}")
    # papermill leaves the name of the source's kernel, whichever one it started.
    notebook["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook["metadata"]["papermill"].update(
        input_path=f"notebooks/{source.name}", output_path=source.name, environment_variables={}
    )
    return notebook


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


def hosts(results: Path) -> dict[str, list[str]]:
    """Every host under `results` with its chapters, in order; `local` last. A folder that starts with . is none."""
    found: dict[str, list[str]] = {}
    folders = sorted(p for p in results.glob("*") if p.is_dir() and not p.name.startswith("."))
    for folder in sorted(folders, key=lambda p: (p.name == "local", p.name)):
        chapters = [chapter for chapter in CHAPTERS if (folder / f"{chapter}.ipynb").exists()]
        if chapters:
            found[folder.name] = chapters
    return found
