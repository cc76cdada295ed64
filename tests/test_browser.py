"""The built book in a real browser, from the disk: both modes, wide and narrow, no console error, no other address."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pytest

import chromium
from overhead.book import parts
from overhead.book.build import PROSE
from sample_book import CPU_HOST, GPU_HOST, SWEEP

pytestmark = pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium on this machine")

CHAPTERS = [f"results/{host}/{SWEEP}" for host in (CPU_HOST, GPU_HOST)]
PARTS = [f"results/{CPU_HOST}/{name}" for name in parts.names(SWEEP)[1:]]
LOOK = """(() => {
  document.querySelectorAll('.overhead-guess-skip').forEach(button => button.click());  // figures that are covered
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


def seen(browser: chromium.Chromium, html: Path, page: str, **how: Any) -> dict[str, Any]:
    """What `LOOK` says of a page that opened without an error and asked for nothing from elsewhere."""
    found = browser.open(html / f"{page}.html", LOOK, **how)
    assert found.errors == []
    assert [address for address in found.requests if not address.startswith(("file:", "data:"))] == []
    return found.answer


@pytest.mark.parametrize("page", [*PROSE, *CHAPTERS, *PARTS])
def test_a_page_opens_from_the_disk_and_fits_a_telephone(browser: chromium.Chromium, html: Path, page: str) -> None:
    narrow = seen(browser, html, page, width=375)

    assert narrow["overflow"] <= 0
    assert narrow["without_alt"] == []
    assert narrow["title"]


FIRST = """(() => {
  const walker = document.createTreeWalker(document.querySelector('article'), NodeFilter.SHOW_TEXT);
  let text = '';
  while (walker.nextNode()) {
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const box = range.getBoundingClientRect();
    if (box.height > 0 && box.bottom <= 700) text += walker.currentNode.data + ' ';
  }
  return text;
})()"""


def test_the_first_screen_answers_who_wins_on_which_host_and_by_how_much(
    browser: chromium.Chromium, html: Path
) -> None:
    text = " ".join(browser.open(html / "book" / "intro.html", FIRST).answer.split())

    assert GPU_HOST in text
    assert re.search(r"(CPU|GPU) ?wins", text)
    assert re.search(r"\d+(\.\d+)? \[\d+(\.\d+)?, \d+(\.\d+)?\] times", text)


def test_stable_anchors_of_the_front_page_are_there(browser: chromium.Chromium, html: Path) -> None:
    ids = browser.open(html / "book" / "intro.html", "[...document.querySelectorAll('[id]')].map(e => e.id)").answer

    assert {"why", "what-to-do", "price-list"} <= set(ids)


SWITCH = """(() => {
  const links = [...document.querySelectorAll('nav.overhead-hosts a')];
  const first = links[0];
  first.focus();
  return {name: document.querySelector('nav.overhead-hosts').getAttribute('aria-label'), to: first.getAttribute('href'),
          focused: document.activeElement === first, tabbed: first.tabIndex};
})()"""


def test_the_host_switcher_is_reached_by_keyboard_and_leads_to_the_same_chapter(
    browser: chromium.Chromium, html: Path
) -> None:
    found = browser.open(html / f"{CHAPTERS[0]}.html", SWITCH).answer

    assert found["focused"]
    assert found["tabbed"] == 0
    assert found["name"] == "This chapter on other hosts"
    assert (html / CHAPTERS[0]).parent.joinpath(found["to"]).resolve() == (html / f"{CHAPTERS[1]}.html").resolve()


def test_a_page_with_all_that_it_loads_weighs_at_most_a_megabyte_and_a_half(
    browser: chromium.Chromium, html: Path
) -> None:
    for page in (*PROSE, *CHAPTERS):
        asked = browser.open(html / f"{page}.html").requests
        files = {Path(unquote(urlparse(address).path)) for address in asked if address.startswith("file:")}

        assert sum(path.stat().st_size for path in files) <= 1.5e6, page


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
