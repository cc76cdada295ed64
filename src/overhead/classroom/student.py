"""Instructor's notebooks to student versions and sheets, from which solutions are truly removed.

`python -m overhead.classroom.student` writes `book/workshop/student/` anew; a test compares it with what is there.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overhead.chapters.provenance import checkout
from overhead.records.record import write_text

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
SOLUTION = "solution"  # the tag of a cell that only the instructor has
YOURS = "answer = ...  # yours"
LINE = "\\_" * 8
ROOM = Path("book") / "workshop"


def student_version(notebook: Mapping[str, Any]) -> dict[str, Any]:
    """The notebook without solutions: a marked stretch becomes a place to fill in, a tagged cell goes.

    Raises `ValueError` for a stretch that is not closed or not opened.
    """
    cells = [dict(cell) for cell in notebook["cells"] if SOLUTION not in cell["metadata"].get("tags", [])]
    for cell in cells:
        if cell["cell_type"] == "code":
            cell |= {"source": without_solution("".join(cell["source"])).splitlines(keepends=True), "outputs": []}
    return {**notebook, "cells": cells}


def without_solution(source: str) -> str:
    """A cell's source with each marked stretch replaced by `answer = ...`."""
    kept, inside = [], False
    for line in source.splitlines():
        if line.strip() == BEGIN and not inside:
            inside = True
            kept.append(YOURS)
        elif line.strip() == END and inside:
            inside = False
        elif line.strip() in (BEGIN, END):
            raise ValueError(f"{line.strip()} stands where none is expected")
        elif not inside:
            kept.append(line)
    if inside:
        raise ValueError(f"{BEGIN} without {END}")
    return "\n".join(kept)


def solutions(notebook: Mapping[str, Any]) -> list[str]:
    """What no student file may hold: lines of code inside the marks, and paragraphs of tagged cells."""
    found = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if SOLUTION in cell["metadata"].get("tags", []):
            found += [part.strip() for part in source.split(". ") if part.strip()]
            continue
        inside = False
        for line in source.splitlines():
            if line.strip() in (BEGIN, END):
                inside = line.strip() == BEGIN
            elif inside and line.strip():
                found.append(line.strip())
    return found


def sheet(notebook: Mapping[str, Any]) -> str:
    """The questions of a student version on paper: no code, a line for a guess and one for the answer."""
    parts = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code":
            continue
        parts.append(text)
        if text.startswith("## ") and "\n" in text and "desk.done" not in text:
            name = text.splitlines()[0].removeprefix("## ")
            parts.append(
                f"My guess: {LINE}  The record: {LINE}  The gap is: {2 * LINE}\n\n    overhead check {name} ANSWER"
            )
    return "\n\n".join(part for part in parts if "desk.done" not in part) + "\n"


def generated(root: Path) -> dict[str, str]:
    """File name → text of everything that belongs into `book/workshop/student/`."""
    found = {}
    for path in sorted((root / ROOM / "instructor").glob("*.ipynb")):
        made = student_version(json.loads(path.read_text(encoding="utf-8")))
        found[path.name] = json.dumps(made, indent=1, ensure_ascii=False) + "\n"
        found[f"{path.stem}.md"] = sheet(made)
    return found


def main() -> None:
    """Write the student's files; what no instructor's notebook makes goes."""
    root = checkout()
    if root is None:
        sys.exit("student files are made in a checkout; the instructor's notebooks are not in the package")
    folder, made = root / ROOM / "student", generated(root)
    for path in folder.glob("*") if folder.exists() else ():
        if path.name not in made:
            path.unlink()
    for name, text in made.items():
        write_text(folder / name, text)


if __name__ == "__main__":
    main()
