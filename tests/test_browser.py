"""The built book in a real browser, from the disk: both modes, wide and narrow, no console error, no other address."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import chromium
import sample_book
from overhead.book.build import PROSE
from sample_book import CPU_HOST, GPU_HOST, SWEEP

pytestmark = pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium on this machine")

CHAPTERS = [f"results/{host}/{SWEEP}" for host in (CPU_HOST, GPU_HOST)]
LOOK = """(() => {
  const shown = element => element.getClientRects().length > 0;
  const style = element => getComputedStyle(element);
  const root = document.documentElement;
  const all = selector => [...document.querySelectorAll(selector)];
  return {
    overflow: root.scrollWidth - root.clientWidth,
    theme: root.dataset.theme,
    light: all('.overhead-figure.for-light').map(shown),
    dark: all('.overhead-figure.for-dark').map(shown),
    figures: all('.overhead-figure').filter(shown).map(i => [i.complete && i.naturalWidth, i.clientWidth]),
    column: document.querySelector('article').clientWidth,
    without_alt: [...document.images].filter(i => !i.alt).map(i => i.src.slice(0, 80)),
    table_in: all('.overhead-table').every(t => t.clientWidth <= t.parentElement.clientWidth),
    pinned: all('.overhead-table td:first-child').every(c => style(c).position === 'sticky'),
    right: all('.overhead-table td.number').every(c => style(c).textAlign === 'right'),
    page: style(document.body).backgroundColor,
    ink: all('.overhead-table td, .overhead-host dd').map(e => style(e).color),
    title: document.querySelector('h1').textContent,
  };
})()"""


@pytest.fixture(scope="module")
def browser() -> Iterator[chromium.Chromium]:
    with chromium.Chromium() as started:
        yield started


@pytest.fixture(scope="module")
def html() -> Path:
    return sample_book.html()


def seen(browser: chromium.Chromium, html: Path, page: str, **how: Any) -> dict[str, Any]:
    """What `LOOK` says of a page that opened without an error and asked for nothing from elsewhere."""
    found = browser.open(html / f"{page}.html", LOOK, **how)
    assert found.errors == []
    assert [address for address in found.requests if not address.startswith(("file:", "data:"))] == []
    return found.answer


@pytest.mark.parametrize("page", [*PROSE, *CHAPTERS])
def test_a_page_opens_from_the_disk_and_fits_a_telephone(browser: chromium.Chromium, html: Path, page: str) -> None:
    narrow = seen(browser, html, page, width=375)

    assert narrow["overflow"] <= 0
    assert narrow["without_alt"] == []
    assert narrow["title"]


@pytest.mark.parametrize("page", CHAPTERS)
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 1280])
def test_figures_follow_the_mode_and_fit_the_column(
    browser: chromium.Chromium, html: Path, page: str, dark: bool, width: int
) -> None:
    found = seen(browser, html, page, width=width, dark=dark)

    assert found["theme"] == ("dark" if dark else "light")
    assert found["light"] == [not dark] * len(found["light"])
    assert found["dark"] == [dark] * len(found["dark"])
    assert found["light"]
    for natural, shown in found["figures"]:
        assert natural > 0
        assert 0 < shown <= found["column"]


@pytest.mark.parametrize("dark", [False, True])
def test_tables_scroll_inside_keep_their_first_column_and_align_numbers(
    browser: chromium.Chromium, html: Path, dark: bool
) -> None:
    found = seen(browser, html, CHAPTERS[0], width=375, dark=dark)

    assert found["table_in"]
    assert found["pinned"]
    assert found["right"]


@pytest.mark.parametrize("dark", [False, True])
def test_what_cells_show_can_be_read_in_either_mode(browser: chromium.Chromium, html: Path, dark: bool) -> None:
    found = seen(browser, html, CHAPTERS[0], dark=dark)
    paper = luminance(found["page"])

    for ink in set(found["ink"]):
        lighter, darker = sorted((luminance(ink), paper), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 4.5, f"{ink} on {found['page']}"


def luminance(css: str) -> float:
    """Relative luminance of `rgb(…)` as WCAG 2 defines it."""
    channels = [int(part) / 255 for part in css[css.index("(") + 1 : -1].split(",")[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
