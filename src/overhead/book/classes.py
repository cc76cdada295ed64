"""What the workshop's pages take from files and records: exercises, and minutes."""

from __future__ import annotations

from pathlib import Path

from overhead.book.fragments import title_of


def exercises_table(root: Path) -> str:
    """A row a chapter that has exercises: the student's notebook and sheet, the instructor's notebook."""
    lines = ["| chapter | for students | on paper | for teachers |", "|---|---|---|---|"]
    for path in sorted((root / "book" / "workshop" / "student").glob("*.ipynb")):
        links = [
            f"{{download}}`{kind} <{folder}/{path.stem}{end}>`"
            for kind, folder, end in (
                ("notebook", "student", ".ipynb"),
                ("sheet", "student", ".md"),
                ("with solutions", "instructor", ".ipynb"),
            )
        ]
        lines.append(f"| {title_of(root, path.stem)} | {' | '.join(links)} |")
    return "\n".join(lines) + "\n"
