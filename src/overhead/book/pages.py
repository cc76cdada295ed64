"""A chapter's page: our source notebook, with what a host's executed copy showed, cleaned, in its places.

Of the copy nothing else is taken: no Markdown cell, no code but the injected parameters, no metadata.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from overhead.book import clean, execute, folder
from overhead.book.folder import FolderError
from overhead.chapters import chapter_of
from overhead.chapters.base import injected_values

OUTPUTS = {"figures": 'class="overhead-figure for-light"', "tables": 'class="overhead-table"'}
# Cells that show nothing by design: parameters, and what a notebook asks the book to remove.
SILENT = {"parameters", "injected-parameters", "remove-output", "remove-cell"}
LONGEST_CALL = 3  # lines; a code cell up to this long is shown small, since it only calls
MAX_PARAMETERS = 4_000  # characters of the cell that papermill injects
METADATA = {
    "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
    "language_info": {"name": "python", "file_extension": ".py", "pygments_lexer": "ipython3"},
}


def page(root: Path, host: Path, chapter: str) -> dict[str, Any]:
    """The notebook of a page. Raises `FolderError` for an executed copy that lost its outputs or holds foreign ones."""
    source = folder.read_json(root / "notebooks" / f"{chapter}.ipynb")
    copy = _cells(folder.read_json(host / f"{chapter}.ipynb"))
    if fault := execute.pair_fault(host, chapter):
        raise FolderError(fault.removeprefix(f"{host.name}/"))
    ran = [cell for cell in copy if cell["cell_type"] == "code"]
    for number, cell in enumerate(ran, 1):
        if any(output.get("output_type") == "error" for output in cell["outputs"]):
            raise FolderError(f"{chapter}.ipynb: code cell {number} ({_last_line(cell)}) ended in an error")
    cells, missing = [], 0
    for cell in source["cells"]:
        tags = cell["metadata"].get("tags", [])
        made = {"cell_type": cell["cell_type"], "id": cell["id"], "metadata": {"tags": tags}, "source": cell["source"]}
        if cell["cell_type"] == "code":
            shown, lacks = _outputs(cell, ran, chapter)
            missing += lacks
            small = len(lines_of(cell)) <= LONGEST_CALL and "parameters" not in tags
            made |= {"execution_count": None, "outputs": shown}
            made["metadata"] = {"tags": [*tags, "call"] if small else tags}
        cells.append(made)
        if "parameters" in tags and (given := _parameters(ran, host.name, chapter)):
            cells.append(given)
    if missing == sum(map(shows, source["cells"])):
        raise FolderError(f"{chapter}.ipynb: none of its cells has an output")
    made = {"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": cells}
    for kind, count in count_outputs(made).items():
        if not count:
            raise FolderError(f"{chapter}.ipynb: shows no {kind}")
    return made


def _cells(notebook: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The cells of an executed copy, of a form that can be looked through. Raises `FolderError`."""
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not cells:
        raise FolderError("the notebook has no cells")
    found = []
    for number, cell in enumerate(cells, 1):
        kept = cell if isinstance(cell, dict) else {}
        source, metadata, outputs = kept.get("source"), kept.get("metadata", {}), kept.get("outputs", [])
        text = "".join(source) if isinstance(source, list) and all(isinstance(s, str) for s in source) else source
        tags = metadata.get("tags", []) if isinstance(metadata, dict) else None
        right = isinstance(text, str) and isinstance(tags, list) and isinstance(outputs, list)
        if not right or not all(isinstance(o, dict) and isinstance(o.get("data", {}), dict) for o in outputs):
            raise FolderError(f"the notebook's cell {number} is none")
        found.append(
            {"cell_type": kept.get("cell_type"), "id": kept.get("id"), "source": text, "tags": tags, "outputs": outputs}
        )
    return found


def _outputs(cell: Mapping[str, Any], ran: Sequence[Mapping[str, Any]], chapter: str) -> tuple[list[Any], bool]:
    """A cell's outputs from the executed copy, and whether it lacks one; a note stands in the place then."""
    if not shows(cell):
        return [], False
    call = called("".join(cell["source"]))
    same = [other for other in ran if called(other["source"]) == call]
    if not same:
        words = f"This host's copy of the notebook does not have this cell yet: overhead run {chapter} --from-records"
        return [_output({"text/html": f'<p class="overhead-note">{escape(words)}</p>'})], True
    other = next((other for other in same if other["id"] == cell["id"]), same[0])
    where = f"{chapter}.ipynb: code cell {ran.index(other) + 1} ({_last_line(other)})"
    try:
        found = [clean.output(output["data"]) for output in other["outputs"] if output.get("data")]
    except FolderError as error:
        raise FolderError(f"{where} {error}") from None
    if not any(found):
        raise FolderError(f"{where} has no output; run the notebook again")
    return [_output(data) for data in found if data], False


def _output(data: Mapping[str, str]) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": dict(data)}


def _parameters(ran: Sequence[Mapping[str, Any]], host: str, chapter: str) -> dict[str, Any] | None:
    """The injected parameters, written anew from their values; None where none were."""
    cell = next((cell for cell in ran if "injected-parameters" in cell["tags"]), None)
    if cell is None:
        return None
    if len(cell["source"]) > MAX_PARAMETERS:
        raise FolderError(f"{chapter}.ipynb: parameters must be at most {MAX_PARAMETERS} characters")
    try:
        values = injected_values(cell["source"])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FolderError(f"{chapter}.ipynb: its injected parameters are no Python literals") from None
    unknown = [name[:60] for name in values if name not in chapter_of(chapter).model_fields]
    if unknown:
        raise FolderError(f"{chapter}.ipynb: {chapter} has no parameter {unknown[0]}")
    if "host" in values:
        values["host"] = host  # a copy under another name is another host
    source = "\n".join(["# Parameters", *(f"{name} = {value!r}" for name, value in values.items())])
    return {
        "cell_type": "code", "id": "injected", "metadata": {"tags": ["injected-parameters"]}, "source": source,
        "execution_count": None, "outputs": [],
    }  # fmt: skip


def shows(cell: Mapping[str, Any]) -> bool:
    """Whether a cell of a source notebook is to show the value of its last line."""
    tags = {*cell["metadata"].get("tags", [])}
    return cell["cell_type"] == "code" and not SILENT & tags and ends_in_expression("".join(cell["source"]))


def called(source: str) -> str:
    """The name of what a cell's last line calls (`figure` of `chapter.figure(records)`); that line where it is none."""
    line = ([line for line in source.splitlines() if line.strip()] or [""])[-1].strip()
    try:
        body = ast.parse(line).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return line
    value = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return value.func.attr if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else line


def lines_of(cell: Mapping[str, Any]) -> list[str]:
    """The lines of a cell's source that are not blank."""
    return [line for line in "".join(cell["source"]).splitlines() if line.strip()]


def _last_line(cell: Mapping[str, Any]) -> str:
    line = (lines_of(cell) or [""])[-1].strip()[:60]
    return line if line.isprintable() else "?"


def ends_in_expression(source: str) -> bool:
    """Whether a cell's last statement is an expression, whose value the notebook shows."""
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a cell of IPython's own syntax
        return False
    return bool(body) and isinstance(body[-1], ast.Expr) and not source.rstrip().endswith(";")


def count_outputs(notebook: Mapping[str, Any]) -> dict[str, int]:
    """Figures and tables in a page's outputs."""
    texts = [
        output.get("data", {}).get("text/html", "") for cell in notebook["cells"] for output in cell.get("outputs", [])
    ]
    return {kind: sum(text.count(marker) for text in texts) for kind, marker in OUTPUTS.items()}
