"""Pairs are a join on set and round: a host that slows down changes no ratio, whatever is missing on a side."""

from __future__ import annotations

import pytest

from overhead.chapters.batch_sweep import article
from overhead.problem.workload import Workload
from overhead.records import pairs
from overhead.records.record import Record, Samples, Timing
from overhead.showing import tables

STEPS = Workload().steps


def slowing(set_: int, round_: int) -> float:
    """Seconds of the faster loop on a host that takes half as long again with each round, and differs by set."""
    return 0.1 * (1 + set_) * 1.5**round_


def record(loop: str, times: float, taken: dict[int, list[int]], sets: dict[int, int] | None = None) -> Record:
    """A loop that takes `times` as long as the faster one; `taken`: process → the round of each of its samples."""
    w = Workload()
    kept = [
        Samples(
            clock="wall", steps=STEPS, process=p, round=rounds, process_set=(sets or {}).get(p),
            seconds=[times * slowing((sets or {}).get(p, p), r) for r in rounds],
        )
        for p, rounds in taken.items()
    ]  # fmt: skip
    return Record(
        host="made-up", notebook="05-batch-sweep", status="ok", loop=loop, device="cpu", timing=Timing(samples=kept),
        workload=w,
    )  # fmt: skip


FULL = [0, 1, 2, 3, 4]
UNEQUAL = {
    "as many": {0: FULL, 1: FULL},
    "more repeats": {0: [r for r in FULL for _ in range(7)], 1: FULL},
    "more processes": {0: FULL, 1: FULL, 2: FULL},
    "a process missing": {1: FULL},
    "a round missing": {0: [0, 2, 3, 4], 1: [1, 2, 4]},
    "out of order": {0: [4, 0, 3, 1, 2], 1: FULL},
}


@pytest.mark.parametrize("taken", UNEQUAL.values(), ids=UNEQUAL)
def test_a_ratio_of_two_is_two_on_a_host_that_slows_down(taken):
    slow, fast = record("numpy", 2.0, taken), record("jax-step", 1.0, {0: FULL, 1: FULL})

    for over, under, truth in ((slow, fast, 2.0), (fast, slow, 0.5)):
        assert tables.ratio(over, under)[:3] == pytest.approx((truth,) * 3)
    assert article.quotient([slow, slow], [fast, fast])[:3] == pytest.approx((4.0,) * 3)


def test_every_set_is_paired_with_the_best_floor_process_of_its_own():
    loop = record("numpy", 2.0, {0: FULL, 1: FULL})
    floor = record("floor-numpy", 1.0, dict.fromkeys(range(4), FULL), sets={0: 0, 1: 0, 2: 1, 3: 1})
    slow = record("floor-xla", 1.3, {0: FULL[:2], 1: FULL[:2]})

    assert tables.times_floor(loop, [loop, slow, floor])[:3] == pytest.approx((2.0,) * 3)


def test_n_counts_rounds_since_samples_of_one_turn_are_not_independent():
    repeated = record("numpy", 2.0, {0: [r for r in FULL for _ in range(7)]})

    assert tables.ratio(repeated, record("jax-step", 1.0, {0: FULL})).n == len(FULL)


def test_records_that_share_no_round_or_were_not_timed_have_no_ratio():
    early, late = record("numpy", 2.0, {0: [0, 1]}), record("jax-step", 1.0, {0: [2, 3]})
    failed = early.model_copy(update={"status": "failed", "reason": "out of memory"})

    assert tables.ratio(early, late) is None
    assert tables.ratio(failed, early) is None
    assert pairs.epochs(failed) == {}
    assert tables.times_floor(early, []) is None
