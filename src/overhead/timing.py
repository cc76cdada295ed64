"""The clock: what is inside a sample, and what a reading of the clock costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

from overhead.loops.base import Loop, Op

Clock = Callable[[], int]  # nanoseconds, never going back

clock: Clock = time.perf_counter_ns


class Sample(NamedTuple):
    """One run of `steps` training steps: when the call returned, and when the device was done."""

    steps: int
    dispatch_ns: int
    wall_ns: int


def measure(loop: Loop, state: Any, steps: int, now: Clock = clock) -> tuple[Any, Sample]:
    """Run `steps` steps on the two clocks; returns the new state and the sample.

    The device is waited for before the start, so that nothing earlier is charged to this sample.
    """
    loop.block(state)
    start = now()
    state = loop.run(state, steps)
    returned = now()
    loop.block(state)
    done = now()
    return state, Sample(steps, returned - start, done - start)


def measure_ops(ops: list[Op], steps: int, now: Clock = clock) -> list[list[int]]:
    """Time every op of `steps` steps, each from before its call to the end of its wait.

    Returns one list an op, nanoseconds, in the order of `ops`.
    """
    found: list[list[int]] = [[] for _ in ops]
    timed = [(op.call, op.wait, times.append) for op, times in zip(ops, found, strict=True)]
    for _ in range(steps):
        for call, wait, keep in timed:
            start = now()
            call()
            wait()
            keep(now() - start)
    return found


def measure_unread(ops: list[Op], steps: int, now: Clock = clock) -> list[int]:
    """Time whole steps of the same thunks in order, with no clock and no wait between them, nanoseconds each."""
    calls = [op.call for op in ops]
    last = ops[-1].wait
    found = []
    for _ in range(steps):
        start = now()
        for call in calls:
            call()
        last()
        found.append(now() - start)
    return found


def pair_cost_ns(pairs: int = 2000, now: Clock = clock) -> float:
    """The mean cost of one start-stop pair of readings with nothing between them, nanoseconds."""
    start = now()
    for _ in range(pairs):
        now()
        now()
    return (now() - start) / pairs


def resolution_ns(readings: int = 2000, now: Clock = clock) -> int:
    """The smallest step above 0 that the clock was seen to make, nanoseconds; 0 where it stood still."""
    seen = [now() for _ in range(readings)]
    steps = [b - a for a, b in pairwise(seen) if b > a]
    return min(steps, default=0)


def rss_bytes() -> int:
    """This process's peak resident memory so far."""
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
