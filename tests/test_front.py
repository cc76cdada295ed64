"""The front page: who wins in a sentence, the step as a bar, what others published, the price list."""

from __future__ import annotations

import re
from typing import Any

import pytest

import sample_book
from overhead.book import folder, front
from overhead.diagnose.pitfalls import PITFALLS
from overhead.records.record import Record, Samples, Timing
from sample_book import CPU_HOST, GPU_HOST, SWEEP

REFERENCE = sample_book.ROOT / "results" / "epyc-2core"
MOST_WORDS = 30
# What is no part of a word that is read: links and roles keep their text, markup goes.
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
ROLE = re.compile(r"\{[\w-]+\}`([^`<]*)(?:<[^>]*>)?`")


def facts(**more: Any) -> folder.Facts:
    return folder.Facts.model_validate({**sample_book.FACTS, **more})


def sentences(markdown: str) -> list[str]:
    """The sentences of prose: no table, fence, label or heading."""
    text = re.sub(r"^(```|:::).*$|^\|.*$|^\(.*\)=$|^#.*$", "\n", markdown, flags=re.M)
    text = ROLE.sub(r"\1", LINK.sub(r"\1", text))
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text)
    return [part for block in blocks for part in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())) if part]


def test_no_sentence_of_the_front_page_is_longer_than_thirty_words() -> None:
    made = front.front(sample_book.results(), {CPU_HOST: [SWEEP], GPU_HOST: [SWEEP]})
    alone = front.front(sample_book.results(), {CPU_HOST: [SWEEP]})
    prose = (sample_book.ROOT / "book" / "intro.md").read_text()

    models = front.modelled({"box": folder.read_records(REFERENCE, front.MODELLED)})
    for text in (prose, made.answers, made.prices, alone.answers, models):
        for sentence in sentences(text):
            assert len(sentence.split()) <= MOST_WORDS, sentence


def test_the_winner_is_the_device_whose_fastest_loop_takes_less_with_an_interval() -> None:
    gpu = {"gpus": [sample_book.GPU]}
    slow = [sample_book.record("numpy", 0.1), sample_book.record("cupy", 0.3, device="gpu")]
    fast = [sample_book.record("numpy", 0.3), sample_book.record("cupy", 0.1, device="gpu")]
    twice = [two_processes(record) for record in slow], [two_processes(record) for record in fast]

    cpu_wins, gpu_wins = (front.sentence(GPU_HOST, found, facts(**gpu), None) for found in twice)

    assert re.search(
        r"the \*\*CPU wins\*\* at batch 32: the GPU takes \*\*[23]\.\d+ \[[\d.]+, [\d.]+\] times", cpu_wins
    )
    assert re.search(
        r"the \*\*GPU wins\*\* at batch 32: the CPU takes \*\*[23]\.\d+ \[[\d.]+, [\d.]+\] times", gpu_wins
    )


def two_processes(record: Record) -> Record:
    assert record.timing is not None
    (samples,) = record.timing.samples
    again = samples.model_copy(update={"process": 1})
    return record.model_copy(update={"timing": record.timing.model_copy(update={"samples": [samples, again]})})


def test_no_winner_is_named_between_devices_that_are_not_told_apart() -> None:
    same = [two_processes(sample_book.record("numpy", 0.1)), two_processes(sample_book.record("cupyx", 0.1))]
    same[1] = same[1].model_copy(update={"loop": "cupy", "device": "gpu"})

    assert "neither the CPU nor the GPU is shown to win" in front.sentence(GPU_HOST, same, facts(), None)


def test_where_no_gpu_was_measured_published_figures_stand_there_labelled() -> None:
    alone = front.front(sample_book.results(), {CPU_HOST: [SWEEP]}).answers
    both = front.front(sample_book.results(), {CPU_HOST: [SWEEP], GPU_HOST: [SWEEP]}).answers

    assert "*Published*, not measured here" in alone
    assert "**CPU won**" in " ".join(alone.split())
    assert "ublished" not in both


def test_the_articles_gpu_is_modelled_from_a_calibrated_host_and_labelled() -> None:
    records = folder.read_records(REFERENCE, front.MODELLED)
    text = front.modelled({"box": records})

    assert text.startswith("*Modelled*, no such GPU is here: a Quadro RTX 5000 driven by box takes **")
    assert len(re.findall(r"\*\*[\d.]+ \[[\d.]+, [\d.]+\] s\*\*", text)) == 2
    assert front.modelled({}) == ""
    assert front.modelled({"box": [sample_book.record("numpy", 0.1)]}) == ""


def test_a_bar_s_parts_fill_it_and_stand_in_words_beside_it() -> None:
    made = front.bar_of(folder.read_records(REFERENCE, front.BUDGETS))

    assert made is not None
    assert list(made.parts) == ["calls", "arithmetic", "waiting and the rest"]
    markup = front.bar_html(made)
    widths = [float(width) for width in re.findall(r"width:([\d.]+)%", markup)]
    assert sum(widths) == pytest.approx(100, abs=0.05)
    for name, us in made.parts.items():
        assert f"{name} {us:,.0f} us" in markup
        assert f"{name} {us:,.0f} us" in front.bar_words(made)


def test_a_habit_s_price_is_the_ratio_of_its_pairs() -> None:
    def habit(name: str, times: float) -> Record:
        values = {"plain": [100, 110, 90, 105, 95], "pitfall": [round(times * v) for v in (100, 110, 90, 105, 95)]}
        samples = [
            Samples(clock=clock, steps=1, process=0, round=list(range(5)), ns=ns) for clock, ns in values.items()
        ]
        return sample_book.record("numpy", 0.1).model_copy(update={"op": name, "timing": Timing(samples=samples)})

    text = front.price_list({"box": [habit("float64", 2.0)]})

    assert f"| {PITFALLS['float64'].does} | 2.00 [2.00, 2.00] |" in text
    assert f"| {PITFALLS['print-each-step'].does} | – |" in text
    assert all(pitfall.does in front.price_list({}) for pitfall in PITFALLS.values())
