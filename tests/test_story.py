"""The running bar of the chapters, what to remember at the end of each, and the way to the next one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sample_book
from overhead.book import story
from overhead.chapters import CHAPTERS
from overhead.chapters.claims import claims, findings
from overhead.records.record import Record
from sample_book import CPU_HOST, SWEEP


def told(keras: float = 1.2, step: float = 0.4, epoch: float = 0.2, floor: float = 0.1) -> list[Record]:
    by_loop = {"keras-fit": keras, "jax-step": step, "jax-epoch": epoch, "floor-numpy": floor}
    return [sample_book.record(loop, seconds) for loop, seconds in by_loop.items()]


def test_the_shares_are_what_each_loop_has_too_much_and_add_up_to_the_step() -> None:
    found = story.story_of(told())

    assert found is not None
    assert found.batch_size == 32
    assert list(found.shares) == [story.AROUND, story.CALLS, story.BEYOND, story.PRODUCTS]
    assert sum(found.shares.values()) == pytest.approx(found.step_us)
    us = [value * found.step_us / 1.2 for value in (0.8, 0.2, 0.1, 0.1)]
    assert list(found.shares.values()) == pytest.approx(us, rel=0.1)
    assert found.step_us == pytest.approx(1e6 * 1.2 / 1500, rel=0.05)


@pytest.mark.parametrize("of", [{"step": 1.5}, {"epoch": 0.5}, {"floor": 0.3}])
def test_loops_in_another_order_tell_no_story(of: dict[str, float]) -> None:
    assert story.story_of(told(**of)) is None


@pytest.mark.parametrize("loop", ["keras-fit", "jax-step", "jax-epoch", "floor-numpy"])
def test_without_one_of_its_loops_there_is_no_story(loop: str) -> None:
    assert story.story_of([record for record in told() if record.loop != loop]) is None
    assert story.story_of([]) is None


def test_the_bar_shows_a_chapters_own_shares_in_full_and_says_how_much_they_are() -> None:
    found = story.story_of(told())
    assert found is not None
    html = story.bar(found, "02-flop-lower-bound")

    assert html.count('class="share-3"') == 2  # in the bar and in the legend
    assert html.count(" pale") == 6
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", html)]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    part = found.shares[story.PRODUCTS]
    assert f"This chapter is about {part:,.0f} us of it ({part / found.step_us:.0%})." in html
    assert 'role="img"' in html
    assert f"{story.PRODUCTS} {part:,.0f} us" in story.words(found, "02-flop-lower-bound")


def test_every_chapter_has_a_share_or_a_reason_three_claims_of_its_own_and_a_question() -> None:
    known = {claim.name: claim.chapter for claim in claims()}
    for chapter in CHAPTERS:
        assert (chapter in story.ABOUT) != (chapter in story.INSTEAD)
        assert story.QUESTIONS[chapter].endswith("?")
        own = [name for name, of in known.items() if of == chapter]
        chosen = story.REMEMBER.get(chapter, ())
        assert {known[name] for name in chosen} <= {chapter}
        assert len(chosen) == min(3, len(own))


def test_what_to_remember_says_of_each_claim_whether_it_holds_here() -> None:
    found = {claim.name: (claim, finding) for claim, finding in findings({SWEEP: sample_book.sweep()})}
    text = story.remember(SWEEP, CPU_HOST, found, [SWEEP])

    assert text.count("- **") == 3
    for name in story.REMEMBER[SWEEP]:
        verdict = {"holds": "Holds here", "does not hold here": "Does not hold here"}.get(
            found[name][1].status, "Not measured here"
        )
        assert re.search(rf"- \*\*{verdict}\*\* .*claim-{name}\)", text)
    assert "`overhead run 06-overhead-ladder` answers it" in text
    assert "/results/cpu-box/06-overhead-ladder>" in story.remember(
        SWEEP, CPU_HOST, found, [SWEEP, "06-overhead-ladder"]
    )


def test_a_built_page_ends_with_it_before_its_provenance(html: Path) -> None:
    text = (html / "results" / CPU_HOST / f"{SWEEP}.html").read_text(encoding="utf-8")

    assert 0 < text.index("What to remember") < text.index("Where these numbers come from")
