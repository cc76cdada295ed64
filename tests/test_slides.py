"""Slides and the poster: a part a chapter, own figures and claims, nothing from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

import chromium
from overhead.book import policy
from sample_book import CPU_HOST, GPU_HOST, SWEEP

PAGES = [f"slides/{name}{host}" for host in (CPU_HOST, GPU_HOST) for name in ("", "poster-")]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_stands_alone_offline_with_the_hosts_figures(page: str, html: Path) -> None:
    text = (html / f"{page}.html").read_text(encoding="utf-8")

    assert policy.foreign(text) is None
    assert "Content-Security-Policy" in text
    assert "<script" not in text
    assert text.count('class="overhead-figure for-light"') >= 1
    assert "alt=" in text


def test_a_slide_a_chapter_says_what_to_remember_and_leads_to_its_page(html: Path) -> None:
    text = (html / "slides" / f"{CPU_HOST}.html").read_text(encoding="utf-8")

    assert text.count("<section>") == 2  # the first one, and the one chapter of the sample
    assert text.count("<li><strong>") == 3
    assert f'href="../results/{CPU_HOST}/{SWEEP}.html"' in text
    plan = (html / "book" / "workshop" / "plan.html").read_text(encoding="utf-8")
    for page in PAGES:
        assert f'href="../../{page}.html"' in plan


@pytest.mark.parametrize("width", [375, 1280])
@pytest.mark.parametrize("page", PAGES[:2])
def test_nothing_is_wider_than_the_screen_and_figures_have_a_size(
    page: str, width: int, browser: chromium.Chromium, html: Path
) -> None:
    found = browser.open(
        html / f"{page}.html",
        "({ wide: document.documentElement.scrollWidth, "
        "sizes: [...document.images].map(i => [i.clientWidth, i.clientHeight]) })",
        width=width,
    ).answer

    assert found["wide"] <= width
    assert found["sizes"]
    assert all(min(size) > 50 for size in found["sizes"])
