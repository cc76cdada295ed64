"""What is done to built pages: marked places, the switcher, neighbours on the same host, descriptions, icons."""

from __future__ import annotations

from pathlib import Path

import pytest

from overhead.book import finish

HOME = Path("results") / "box.1-b" / "05-batch-sweep.html"


def page(body: str) -> str:
    article = f"<article><p>First <b>words</b>.</p>{body}</article>"
    return f"<html><head><title>T — Overhead</title></head><body>{article}</body></html>"


def test_a_marked_place_gets_our_markup_and_others_stay() -> None:
    text = page('<div class="overhead-slot-0 docutils"><p>in words</p></div><div class="x docutils"><p>y</p></div>')

    made = finish.finished(text, Path("book/intro.html"), {"overhead-slot-0": "<figure>\\1</figure>"})

    assert "<figure>\\1</figure>" in made
    assert "in words" not in made
    assert '<div class="x docutils"><p>y</p></div>' in made


def test_the_switcher_is_navigation_with_a_name() -> None:
    made = finish.finished(
        page('<div class="overhead-hosts docutils">\n<p>On: <a href="x">x</a></p>\n</div>'), HOME, {}
    )

    assert (
        '<nav class="overhead-hosts" aria-label="This chapter on other hosts"><p>On: <a href="x">x</a></p></nav>'
        in made
    )


@pytest.mark.parametrize(
    ("address", "stays"),
    [("06-overhead-ladder.html", True), ("../a-box/00-clocks.html", False), ("../../book/method.html", True)],
)
def test_the_next_page_is_never_another_host_s(address: str, stays: bool) -> None:
    link = f'<a class="right-next"\n   href="{address}"\n   title="next page"><p>Next</p></a>'

    assert ("right-next" in finish.finished(page(link), HOME, {})) is stays


def test_a_page_is_described_by_its_first_words() -> None:
    made = finish.finished(page(""), HOME, {})

    assert '<meta name="description" content="First words.">' in made
    assert '<meta property="og:title" content="T — Overhead">' in made


def test_icons_that_no_page_names_are_left_out_and_aliases_keep_theirs(tmp_path: Path) -> None:
    script = tmp_path / finish.ICONS
    script.parent.mkdir(parents=True)
    drawings = (
        '"bars":[448,512,["navicon"],"f0c9","M0 96"],house:[5,5,[8962,"home"],"f015","M1"],x:[1,1,[],"58",["M","N"]]'
    )
    script.write_text(f'var icons={{{drawings}}};var more={{0:[1,2,[],"30","M2"]}}')
    (tmp_path / "index.html").write_text('<i class="fa-solid fa-bars"></i><i class="fa-solid fa-home"></i>')

    finish.prune_icons(tmp_path, [tmp_path / "index.html"])

    left = script.read_text()
    assert '"bars":' in left
    assert "house:" in left
    assert "x:" not in left
    assert "0:[" not in left


def test_a_table_that_scrolls_is_a_named_region_for_the_keyboard() -> None:
    table = '<div class="overhead-table"><table><caption>Median &amp; more</caption></table></div>'

    made = finish.finished(page(table), HOME, {})

    assert '<div class="overhead-table" tabindex="0" role="region" aria-label="Median &amp; more"><table>' in made
