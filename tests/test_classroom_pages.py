"""Guesses and the test in a real browser: by keyboard, without scripts, dark, on a telephone, after a reload, axe."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

import chromium
import sample_book
from overhead.book import classes, quiz
from overhead.chapters import CHAPTERS, guesses
from overhead.chapters.claims import claims
from overhead.records import record as records
from overhead.records.stats import Interval
from sample_book import CPU_HOST, GPU_HOST, SWEEP

ROOT = Path(__file__).resolve().parents[1]
# axe-core 4.14.1 (Deque Systems, Mozilla Public License 2.0), unchanged but for the compression.
AXE = ROOT / "tests" / "data" / "axe-core-4.14.1.min.js.gz"
needs_chromium = pytest.mark.skipif(chromium.BINARY is None, reason="no Chromium on this machine")

STATE = """(() => {
  const box = document.querySelector('.overhead-guess');
  const shown = element => Boolean(element) && element.getClientRects().length > 0;
  const root = document.documentElement;
  return {
    figure: [...box.querySelectorAll('img')].some(shown),
    record: shown(box.querySelector('.overhead-guess-record')),
    form: shown(box.querySelector('form')),
    result: (box.querySelector('.overhead-guess-result') || {textContent: ''}).textContent,
    output: (box.querySelector('output') || {textContent: ''}).textContent,
    spoken: (box.querySelector('[type=range]') || {getAttribute: () => ''}).getAttribute('aria-valuetext'),
    focus: document.activeElement.className || document.activeElement.value || document.activeElement.tagName,
    overflow: root.scrollWidth - root.clientWidth,
    theme: root.dataset.theme,
  };
})()"""
AXE_RUN = """axe.run(%s, {preload: false}).then(found => found.violations.map(
  violation => `${violation.id}: ${violation.nodes.length} ${violation.nodes[0].html.slice(0, 120)}`))"""


@pytest.fixture
def opened(browser: chromium.Chromium, html: Path) -> Any:
    """A function that opens a page in a browser that keeps nothing of an earlier test."""

    def open_(name: str, **how: Any) -> chromium.Page:
        page = browser.page(html / f"{name}.html", **how)
        page.__enter__()
        pages.append(page)
        if how.get("scripts", True):
            page.evaluate("localStorage.clear()")
            page.reload()
        return page

    pages: list[chromium.Page] = []
    yield open_
    for page in pages:
        page.__exit__()


def sweep_page(host: str = CPU_HOST) -> str:
    return f"results/{host}/{SWEEP}"


def tab_to(page: chromium.Page, selector: str) -> None:
    """Press Tab until an element of `selector` has the focus."""
    for _ in range(150):
        if page.evaluate(f"document.activeElement.matches({json.dumps(selector)})"):
            return
        page.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


# Guesses


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [375, 1280])
def test_a_guess_is_made_by_keyboard_alone_and_survives_a_reload(opened, width, dark):
    page = opened(sweep_page(), width=width, dark=dark)
    covered = page.evaluate(STATE)
    assert (covered["figure"], covered["record"], covered["form"]) == (False, False, True)
    assert covered["overflow"] <= 0
    assert covered["theme"] == ("dark" if dark else "light")

    tab_to(page, ".overhead-guess [type=radio]")
    page.press(" ", "Tab")
    page.press(*["ArrowRight"] * 48)
    asked = page.evaluate(STATE)
    assert asked["output"] == asked["spoken"] == "Keras's fit takes 3.0 times as long as the NumPy loop"
    page.press("Tab", "Enter")

    told = page.evaluate(STATE)
    assert (told["figure"], told["form"], told["focus"]) == (True, False, "overhead-guess-result")
    assert "Your guessKeras's fit takes 3.0 times as long as the NumPy loop" in told["result"]
    assert re.search(r"The recordKeras's fit takes [\d.]+ \[[\d., ]+\] times as long", told["result"])
    assert "The right direction, and a factor of 2" in told["result"]
    assert guesses.GUESSES[SWEEP].gap in told["result"]
    assert told["overflow"] <= 0

    page.reload()
    assert page.evaluate(STATE)["result"] == told["result"]
    assert page.errors == []


@needs_chromium
def test_a_guess_in_the_other_direction_is_called_so(opened):
    page = opened(sweep_page())
    tab_to(page, ".overhead-guess [type=radio]")
    page.press("ArrowDown", "Tab", *["ArrowRight"] * 10, "Tab", "Enter")

    told = page.evaluate(STATE)["result"]
    assert "the NumPy loop takes 1.3 times as long as Keras's fit" in told
    assert "The other direction" in told


@needs_chromium
def test_no_guess_is_taken_without_a_direction(opened):
    page = opened(sweep_page())
    page.evaluate("document.querySelector('.overhead-guess [type=submit]').click()")

    assert not page.evaluate(STATE)["figure"]
    assert page.evaluate("localStorage.getItem('overhead-guesses')") is None


@needs_chromium
def test_a_figure_may_be_seen_without_a_guess_and_guessed_anew(opened):
    page = opened(sweep_page())
    page.evaluate("document.querySelector('.overhead-guess-skip').click()")
    seen = page.evaluate(STATE)
    assert (seen["figure"], seen["record"], seen["result"]) == (True, True, "")
    page.reload()
    assert page.evaluate(STATE)["figure"]

    page.evaluate("document.querySelector('.overhead-guess-place button').click()")
    assert page.evaluate(STATE)["form"]


@needs_chromium
def test_without_scripts_the_figure_simply_shows(opened):
    page = opened(sweep_page(), scripts=False, width=375)

    seen = page.evaluate(STATE)

    assert (seen["figure"], seen["record"], seen["form"]) == (True, True, False)


@needs_chromium
def test_guesses_are_listed_saved_and_forgotten(opened, html):
    page = opened(sweep_page())
    tab_to(page, ".overhead-guess [type=radio]")
    page.press(" ", "Tab", "ArrowRight", "Tab", "Enter")
    link = page.evaluate("document.querySelector('.overhead-guess-result a').href")
    assert link == (html / "book" / "workshop" / "guesses.html").as_uri()

    page.go(html / "book" / "workshop" / "guesses.html")
    rows = "[...document.querySelectorAll('.overhead-guesses tbody tr')].map(row => row.children[0].textContent)"
    assert page.evaluate(rows) == [SWEEP]
    saved = page.evaluate("""new Promise(done => {
      const plain = URL.createObjectURL;
      URL.createObjectURL = blob => { blob.text().then(done); return plain(blob); };
      [...document.querySelectorAll('.overhead-guesses button')].find(b => b.textContent.startsWith('Save')).click();
    })""")
    (entry,) = json.loads(saved).values()
    assert entry["factor"] == pytest.approx(10**0.01)
    page.evaluate("[...document.querySelectorAll('.overhead-guesses button')].pop().click()")
    assert page.evaluate("document.querySelector('.overhead-guesses').textContent").startswith("This browser keeps no")
    assert page.errors == []


@needs_chromium
def test_what_the_browser_keeps_is_text_and_never_markup(opened):
    page = opened("book/workshop/guesses")
    bad = {
        "<img src=x onerror=alert(1)>@x": {"factor": 2, "median": 3, "over": "<b>a</b>", "under": "b", "host": "<i>"}
    }
    for kept in (json.dumps(bad), "[]", "null", "{", '{"a": 1, "b": {"factor": "x"}}'):
        page.evaluate(f"localStorage.setItem('overhead-guesses', {json.dumps(kept)})")
        page.reload()
        assert page.evaluate("document.querySelectorAll('.overhead-guesses :is(img, b, i)').length") == 0
        assert page.errors == []


# The test


@needs_chromium
@pytest.mark.parametrize("width", [375, 1280])
def test_the_test_is_graded_before_and_after_and_kept(opened, width):
    page = opened("book/workshop/test", width=width)
    shown = "[...document.querySelectorAll('.overhead-item details')].filter(d => d.getClientRects().length).length"
    grade = "[...document.querySelectorAll('.overhead-test button')].find(b => b.textContent === 'Grade').click()"
    said = "document.querySelector('.overhead-score').textContent"

    def choose(answers: list[int]) -> None:
        for index, answer in enumerate(answers):
            page.evaluate(f"document.querySelector('[name=item-{index}][value=\"{answer}\"]').click()")

    page.evaluate(grade)
    assert page.evaluate(said) == f"Not answered yet: {', '.join(str(n) for n in range(1, 13))}."
    choose([1] * 12)
    page.evaluate(grade)
    ones = sum(item.right == 1 for item in quiz.ITEMS)
    assert page.evaluate(said) == f"before the class: {ones} of 12"
    assert page.evaluate(shown) == 0  # which were right is not told yet

    page.reload()
    assert page.evaluate("document.querySelector('[name=round]:checked').value") == "after"
    choose([item.right for item in quiz.ITEMS])
    page.evaluate(grade)
    assert page.evaluate(said) == f"before the class: {ones} of 12; after the class: 12 of 12"
    assert page.evaluate(shown) == 12
    kept = page.evaluate("JSON.parse(localStorage.getItem('overhead-test'))")
    assert kept["before"]["score"] == ones
    assert kept["after"]["answers"] == {f"test-{item.name}": item.right for item in quiz.ITEMS}
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    assert page.errors == []


@needs_chromium
def test_without_scripts_the_test_has_its_answers_behind_buttons(opened):
    page = opened("book/workshop/test", scripts=False)

    assert page.evaluate("document.querySelectorAll('.overhead-item > ul > li').length") == 48
    assert page.evaluate("[...document.querySelectorAll('.overhead-item details')].filter(d => d.open).length") == 0


@needs_chromium
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize(
    ("name", "of"),
    [(sweep_page(), ".overhead-guess"), ("book/workshop/test", "article"), ("book/workshop/guesses", "article")],
)
def test_axe_finds_nothing(opened, name, of, dark):
    page = opened(name, dark=dark)
    page.evaluate(f"{gzip.decompress(AXE.read_bytes()).decode()};0")

    assert page.evaluate(AXE_RUN % json.dumps(of)) == []
    page.evaluate("""document.querySelectorAll('.overhead-guess [type=radio]').forEach((r, i) => i || r.click());
                  document.querySelectorAll('.overhead-guess [type=submit]').forEach(button => button.click());
                  document.querySelectorAll('.overhead-item [value="1"]').forEach(radio => radio.click());
                  document.querySelectorAll('.overhead-test [type=button]').forEach((b, i) => i || b.click());""")
    assert page.evaluate(AXE_RUN % json.dumps(of)) == []


# What the pages are made of


def test_every_chapter_with_records_has_a_guess_with_an_answer():
    assert set(guesses.GUESSES) <= set(CHAPTERS)
    for path in sorted((ROOT / "results" / "epyc-2core").glob("*.jsonl")):
        found = records.read(path)
        guess = guesses.of_chapter(path.stem, found)
        assert guess is not None, path.stem
        assert guesses.answer(guess, found) is not None, path.stem


def test_on_a_gpu_host_the_guess_is_about_the_devices():
    found = sample_book.sweep(gpu=True, host=GPU_HOST)

    guess = guesses.of_chapter(SWEEP, found)

    assert guess is guesses.DEVICES
    answer = guesses.answer(guess, found)
    assert answer is not None
    assert answer.median == pytest.approx(3.0, rel=0.1)  # cupy 0.3 s, jax-epoch 0.1 s


def test_a_page_without_an_answer_stays_as_it_is():
    page = {"cells": [{"cell_type": "code", "source": "chapter.figure(records)", "outputs": []}]}

    assert classes.covered(page, CPU_HOST, SWEEP, []) is page
    assert classes.covered(page, CPU_HOST, SWEEP, sample_book.sweep()) is page


def test_an_answer_is_a_ratio_above_zero_or_none():
    for ratio in (Interval(0, 0, 0, 1), Interval(float("nan"), 1, 2, 3), None):
        guess = guesses.GUESSES[SWEEP]._replace(ratio=lambda found, ratio=ratio: ratio)
        assert guesses.answer(guess, []) is None


def test_twelve_items_name_a_chapter_and_a_claim_and_hold_each_misreading_once():
    known = {claim.name: claim.chapter for claim in claims()}

    assert len(quiz.ITEMS) == 12
    assert len({item.misreading for item in quiz.ITEMS}) == len({item.name for item in quiz.ITEMS}) == 12
    for item in quiz.ITEMS:
        assert known[item.claim] == item.chapter, item.name
        assert len(set(item.answers)) == 4
        assert 1 <= item.right <= 4
    assert {item.right for item in quiz.ITEMS} == {1, 2, 3, 4}
