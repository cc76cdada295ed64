"""The clock on a pretended clock: what lies inside a sample, to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.loops.base import Op
from overhead.machine import timer as timers
from overhead.machine.usage import peak_rss_bytes
from overhead.measure import clock as timing

READ_NS = 1  # what a reading of the pretended clock takes


class PretendedClock:
    """Moves only when it is told to, and by `READ_NS` when it is read."""

    def __init__(self) -> None:
        self.ns = 1000

    def __call__(self) -> int:
        self.ns += READ_NS
        return self.ns

    def passes(self, ns: int) -> None:
        self.ns += ns


class PretendedLoop:
    """A device that is done `work_ns` a step after the call, which itself takes `call_ns` a step."""

    def __init__(self, now: PretendedClock, call_ns: int, work_ns: int, waits: bool = True) -> None:
        self.now, self.call_ns, self.work_ns, self.waits = now, call_ns, work_ns, waits
        self.done_at = 0

    def run(self, state: Any, steps: int) -> Any:
        self.now.passes(steps * self.call_ns)
        self.done_at = max(self.done_at, self.now.ns) + steps * self.work_ns
        return state

    def block(self, state: Any) -> None:
        if self.waits:
            self.now.ns = max(self.now.ns, self.done_at)


costs = st.integers(0, 10**6)


@given(steps=st.integers(1, 2000), call_ns=costs, work_ns=costs)
def test_the_wall_clock_ends_when_the_device_is_done_and_dispatch_when_the_call_returns(steps, call_ns, work_ns):
    now = PretendedClock()
    _, sample = timing.measure(PretendedLoop(now, call_ns, work_ns), None, steps, now)  # type: ignore[arg-type]

    assert sample.steps == steps
    assert sample.dispatch_ns == pytest.approx(steps * call_ns, abs=3 * READ_NS)
    assert sample.wall_ns == pytest.approx(steps * (call_ns + work_ns), abs=3 * READ_NS)
    assert 0 < sample.dispatch_ns <= sample.wall_ns


@given(before=st.integers(1, 500), steps=st.integers(1, 500))
def test_work_that_was_queued_before_is_charged_to_nobody(before, steps):
    now = PretendedClock()
    loop = PretendedLoop(now, 10, 1000)
    loop.run(None, before)  # and nobody waited
    _, sample = timing.measure(loop, None, steps, now)  # type: ignore[arg-type]
    assert sample.wall_ns == pytest.approx(steps * 1010, abs=3 * READ_NS)


def test_what_happens_between_two_samples_is_in_neither():
    now = PretendedClock()
    loop = PretendedLoop(now, 5, 50)
    state, first = timing.measure(loop, None, 10, now)  # type: ignore[arg-type]
    now.passes(10**9)
    _, second = timing.measure(loop, state, 10, now)  # type: ignore[arg-type]
    assert first.wall_ns == second.wall_ns


@given(durations=st.lists(st.tuples(costs, costs), min_size=1, max_size=13), steps=st.integers(1, 20))
def test_an_op_is_timed_with_its_wait_and_without_its_neighbours(durations, steps):
    now = PretendedClock()
    ops = [
        Op(f"op{i}", "forward", _passing(now, call), _passing(now, wait)) for i, (call, wait) in enumerate(durations)
    ]
    found = timing.measure_ops(ops, steps, now)

    assert [len(times) for times in found] == [steps] * len(ops)
    for (call, wait), times in zip(durations, found, strict=True):
        assert all(ns == pytest.approx(call + wait, abs=2 * READ_NS) and ns > 0 for ns in times)


@given(durations=st.lists(st.tuples(costs, costs), min_size=1, max_size=13), steps=st.integers(1, 20))
def test_a_step_that_is_not_read_waits_once_at_its_end(durations, steps):
    now = PretendedClock()
    ops = [
        Op(f"op{i}", "forward", _passing(now, call), _passing(now, wait)) for i, (call, wait) in enumerate(durations)
    ]
    expected = sum(call for call, _ in durations) + durations[-1][1]
    for ns in timing.measure_unread(ops, steps, now):
        assert ns == pytest.approx(expected, abs=2 * READ_NS)
        assert ns > 0


def _passing(now: PretendedClock, ns: int) -> Callable[[], None]:
    return lambda: now.passes(ns)


def test_a_clock_that_stands_still_is_refused():
    with pytest.raises(timers.ClockStandsStill, match=r"must move within 10,000,000 readings, got 7 ns"):
        timers.resolution_ns(now=lambda: 7)


def test_the_real_clock_moves_and_can_be_read():
    found = timers.measured()
    assert found.resolution_ns > 0
    assert found.pair_cost_ns > 0
    assert found.empty_ns >= 0


@given(st.integers(1, 1000))
def test_the_smallest_step_of_a_clock_is_found(step):
    ticks = iter(range(0, 10**9, step))
    assert timers.resolution_ns(now=lambda: next(ticks)) == step


def test_peak_memory_is_that_of_a_process():
    assert 10**7 < peak_rss_bytes() < 10**12
