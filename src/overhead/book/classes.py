"""What a class finds in the book: headline figures covered until one has guessed, exercises, the test, their script."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from overhead.book import folder, pages, quiz, status, syllabi
from overhead.book.fragments import title_of
from overhead.chapters import CHAPTERS, guesses
from overhead.records.record import Record
from overhead.showing import tables

GUESSES_PAGE = "../../book/workshop/guesses.html"  # seen from results/HOST/
EXERCISES = "{exercises}"  # where the page of exercises has its table


def add(root: Path, source: Path) -> None:
    """Put the script, the test and the table of exercises into the book's source."""
    shutil.copytree(root / "book" / "_scripts", source / "_extra")
    workshop = source / "book" / "workshop"
    (workshop / "test.md").write_text(quiz.page(), encoding="utf-8")
    text = (workshop / "exercises.md").read_text(encoding="utf-8")
    (workshop / "exercises.md").write_text(text.replace(EXERCISES, exercises_table(root)), encoding="utf-8")


def plans(results: Path, hosts: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The workshop's plans, each with the minutes that its chapters took on the book's first host that ran them."""
    took: dict[str, tuple[float, str]] = {}
    for chapter, info in CHAPTERS.items():
        took[chapter] = float(info.seconds[0]), "about"
        for host, chapters in hosts.items():
            seconds = status.seconds_of(results / host).get(chapter)
            if seconds and chapter in chapters:
                preset = next((r.preset for r in folder.read_records(results / host, chapter) if r.preset), "quick")
                took[chapter] = seconds, f"{host}, {preset}"
                break
    return {
        f"generated/{name.replace('-', '_')}.md": syllabi.table(plan, took) for name, plan in syllabi.SYLLABI.items()
    }


def covered(page: dict[str, Any], host: str, chapter: str, records: Sequence[Record]) -> dict[str, Any]:
    """The page with its question, figure and record in one box; as it is where the host has no answer or figure."""
    guess = guesses.of_chapter(chapter, records)
    found = guesses.answer(guess, records) if guess else None
    if guess is None or found is None:
        return page
    cells = list(page["cells"])
    for index, cell in enumerate(cells):
        if cell["cell_type"] != "code" or pages.called("".join(cell["source"])) != guess.figure:
            continue
        shown = cell["outputs"][0]["data"].get("text/html", "") if len(cell["outputs"]) == 1 else ""
        if pages.OUTPUTS["figures"] not in shown:
            return page
        record = tables.interval(found) if found.low < found.high else tables.number(found.median)
        data = {
            "guess": chapter, "host": host, "question": guess.question, "over": guess.over, "under": guess.under,
            "median": f"{found.median:.6g}", "low": f"{found.low:.6g}", "high": f"{found.high:.6g}", "record": record,
            "gap": guess.gap, "all": GUESSES_PAGE,
        }  # fmt: skip
        attributes = " ".join(f'data-{name}="{escape(value)}"' for name, value in data.items())
        html = (
            f'<div class="overhead-guess" {attributes}>\n'
            f'<details open class="overhead-guess-figure"><summary>The figure</summary>\n{shown}\n</details>\n'
            f'<p class="overhead-guess-record">{escape(guess.question)} On this host {escape(guess.over)} takes '
            f"{escape(record)} times as long as {escape(guess.under)}. {escape(guess.gap)}</p>\n</div>"
        )
        output = {**cell["outputs"][0], "data": {"text/html": html}}
        cells[index] = {**cell, "outputs": [output]}
        return {**page, "cells": cells}
    return page


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
