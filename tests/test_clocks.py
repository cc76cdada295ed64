"""Chapter 0: what it measures, and that its sentences, figures and table are made from the records."""

from __future__ import annotations

import itertools
import re

import pytest

from overhead.chapters.base import ParameterError
from overhead.chapters.clocks import chapter as clocks
from overhead.chapters.clocks.chapter import Clocks
from overhead.harness import comparisons, experiments
from overhead.harness.experiments import PAIRS, SHARES, Sizes
from overhead.measure.session import Session
from overhead.records import record as records
from overhead.records import stats
from overhead.records.record import Record
from overhead.showing import tables

PARTS = ["timer", "itself", "slowdown", "waiting", "looking", "beside", "cold"]


@pytest.fixture(scope="module")
def taken(tmp_path_factory):
    """The chapter's records, really measured, as few as there can be, and without other frameworks than NumPy."""
    chapter = Clocks()
    few = Sizes(comparisons=3, fresh=1, trials=1, trial_s=0.0, loads=1, fakes=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(clocks.SIZES, "quick", few)
        patch.setattr(clocks, "ASYNCHRONOUS", [])
        patch.setattr(experiments, "LOAD_PAIRS", 6)
        patch.setattr(experiments, "LONG_MS", 2.0)
        found = chapter.take(Session(chapter.settings, chapter.provenance(), force=True))
    path = tmp_path_factory.mktemp("results") / "00-clocks.jsonl"
    records.write(path, found)
    return records.read(path)


def test_every_experiment_leaves_its_samples(taken):
    ops = {r.op for r in taken if r.status == "ok"}

    assert {"timer", "a-a", "fresh", "step", "empty", "load quiet", None} <= ops
    assert {f"injection-{percent} 1" for percent in SHARES} <= ops
    assert len(comparisons.in_one_process(taken)) == 3
    assert {ratio.n for ratio in comparisons.in_one_process(taken)} == {PAIRS}
    assert [ratio.n for ratio in comparisons.in_fresh_processes(taken, 1)] == [PAIRS]
    a, b = comparisons.arms(taken, "load interleaved 1")
    assert len(a[0]) == len(b[0]) == 12


def test_what_is_not_waited_for_has_no_time(taken):
    fake = next(r for r in taken if r.loop.endswith(":Unsynchronised"))

    assert (fake.status, fake.reason) == ("failed", "returned before the device was done")
    assert fake.timing is None


def test_the_device_is_done_after_the_call_has_returned(taken):
    honest = next(r for r in taken if r.loop.endswith(":Synchronised"))

    (returned,), (done,) = honest.processes("dispatch"), honest.processes("wall")
    assert max(returned) < 0.05 <= min(done)


def test_steps_of_a_slowed_arm_are_those_of_the_other(taken):
    for percent in SHARES:
        sampled = next(r for r in taken if r.op == f"injection-{percent} 1").timing.samples
        assert len({s.steps for s in sampled}) == 1
    quiet = next(r for r in taken if r.op == "load quiet").timing.samples
    a, b = (next(s.steps for s in quiet if s.clock == side) for side in "ab")
    assert a < b <= 1.25 * a + 1


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_one_sentence_to_remember_and_one_figure(taken, part):
    chapter = Clocks()
    text = getattr(chapter, part)(taken).text
    figure = getattr(chapter, f"{part}_figure")(taken)

    assert text.count("**To remember: ") == 1
    assert re.search(r"\d", text)
    assert not re.search(r"\b(nan|inf|None)\b", text + figure.alt)
    assert figure.alt
    shown = figure._repr_mimebundle_()["text/html"]
    assert shown.count("<img") == 2  # light and dark


def test_numbers_on_the_page_are_the_records_own(taken):
    chapter = Clocks()
    quiet = comparisons.beside_a_load(taken)[0]
    timer = taken[0].timer

    assert tables.interval(quiet) in chapter.beside(taken).text
    assert f"{timer['pair_cost_ns']:.0f} ns" in chapter.timer(taken).text
    assert f"{comparisons.different(comparisons.in_one_process(taken))} of 3 comparisons" in chapter.itself(taken).text
    sums = chapter.looking_frame(taken)
    assert tables.interval(sums["the same calls, one wait"]) in chapter.looking(taken).text
    assert sums["thirteen empty pairs of readings"].median < sums["the same calls, one wait"].median


def test_the_table_has_a_row_a_trial_with_interval_and_pairs(taken):
    text = Clocks().table(taken).text

    for op in (*(f"injection-{percent}" for percent in SHARES), "load interleaved"):
        (ratio,) = comparisons.trials(taken, op)
        assert tables.interval(ratio, 4) in text
        assert stats.verdict(ratio) in text
    assert "95 % interval" in text
    assert "batch size" in text


def test_one_in_twenty_is_said_with_its_interval(taken):
    low, high = comparisons.share_of(comparisons.different(comparisons.in_one_process(taken)), 3)[1:]

    assert f"[{100 * low:.1f}, {100 * high:.1f}]" in Clocks().itself(taken).text


def test_a_host_that_could_not_be_measured_says_so():
    broken = [
        Record(host="local", notebook="00-clocks", status="failed", reason="out of memory", loop="numpy", device="cpu")
    ]

    for part in ("timer", "itself", "slowdown", "looking", "beside"):
        assert "out of memory" in getattr(Clocks(), part)(broken).text
    assert "numpy (cpu)** is missing: out of memory" in Clocks().waiting(broken).text


def test_presets_change_how_often_and_nothing_else():
    sizes = [clocks.SIZES[name] for name in ("quick", "workshop", "full")]

    for less, more in itertools.pairwise(sizes):
        assert all(a <= b for a, b in zip(less, more, strict=True))
    assert all(s.trials >= 1 and s.fresh >= comparisons.PROCESSES for s in sizes)
    assert sizes[-1].comparisons >= 1000
    assert sizes[-1].trials >= 10


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match="has no parameter batch_sizes"):
        Clocks.checked(batch_sizes=[32])
