"""A long chapter is read as several pages, and nothing of it is lost or shown twice."""

from __future__ import annotations

import json
from pathlib import Path

import sample_book
from overhead.book import pages, parts
from sample_book import CPU_HOST, SWEEP

NOTEBOOK = json.loads((sample_book.ROOT / "notebooks" / f"{SWEEP}.ipynb").read_text(encoding="utf-8"))


def test_every_cell_of_the_notebook_is_on_one_page_and_in_order() -> None:
    found = parts.split(SWEEP, NOTEBOOK["cells"], "box", "BLOCK")

    assert list(found) == parts.names(SWEEP)
    ids = [cell["id"] for cells in found.values() for cell in cells]
    given = [cell["id"] for cell in NOTEBOOK["cells"]]
    assert sorted(set(ids) & set(given)) == sorted(given)
    assert len(ids) == len(given) + 2  # the title of each page beside the chapter's own
    for cells in found.values():
        of_page = [given.index(cell["id"]) for cell in cells if cell["id"] in given]
        assert of_page == sorted(of_page)


def test_the_sections_that_a_part_takes_exist() -> None:
    headings = [
        line[3:]
        for cell in NOTEBOOK["cells"]
        for line in "".join(cell["source"]).splitlines()
        if line.startswith("## ")
    ]
    for part in parts.PARTS[SWEEP]:
        assert set(part.sections) <= set(headings)


def test_a_chapter_without_parts_stays_one_page() -> None:
    assert parts.names("06-overhead-ladder") == ["06-overhead-ladder"]
    assert parts.split("06-overhead-ladder", NOTEBOOK["cells"], "box", "")["06-overhead-ladder"] == NOTEBOOK["cells"]


def test_the_built_pages_lead_to_each_other_and_show_all_tables(html: Path) -> None:
    texts = {name: (html / "results" / CPU_HOST / f"{name}.html").read_text("utf-8") for name in parts.names(SWEEP)}

    own, *others = texts
    for other in others:
        assert f'href="{other}.html"' in texts[own]
        assert f'href="{own}.html"' in texts[other]
        assert "overhead-hosts" in texts[other]
        assert "Content-Security-Policy" in texts[other]
    assert "Time to a quality" in texts[others[1]]
    made = pages.count_outputs(json.loads((sample_book.results() / CPU_HOST / f"{SWEEP}.ipynb").read_text()))
    assert sum(text.count(pages.OUTPUTS["tables"]) for text in texts.values()) >= made["tables"]
