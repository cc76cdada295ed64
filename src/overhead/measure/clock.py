"""Samples on the clock: what is inside one, and how two arms take turns."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from overhead.loops.base import Loop, Op
from overhead.machine.timer import Clock, after, clock


class Sample(NamedTuple):
    """One run of `steps` training steps: when the call returned, and when the device was done."""

    steps: int
    dispatch_ns: int
    wall_ns: int


def measure(loop: Loop, state: Any, steps: int, now: Clock = clock) -> tuple[Any, Sample]:
    """Run `steps` steps on the two clocks; returns the new state and the sample.

    The device is waited for before the start, so that nothing earlier is charged to this sample. The clock is
    seen to move before the start and after the end, so that a sample is never 0. Raises `ClockStandsStill`.
    """
    loop.block(state)
    start = after(now(), now)
    state = loop.run(state, steps)
    returned = now()
    loop.block(state)
    done = after(start, now)
    return state, Sample(steps, max(returned - start, 1), done - start)


def measure_ops(ops: list[Op], steps: int, now: Clock = clock) -> list[list[int]]:
    """Time every op of `steps` steps, each from before its call to the end of its wait.

    Returns one list an op, nanoseconds, in the order of `ops`, the cost of reading the clock included (see
    `net`). An op that was done before the clock made a step took less than that step: it is kept as 1 ns.
    """
    after(now(), now)
    found: list[list[int]] = [[] for _ in ops]
    timed = [(op.call, op.wait, times.append) for op, times in zip(ops, found, strict=True)]
    for _ in range(steps):
        for call, wait, keep in timed:
            start = now()
            call()
            wait()
            keep(now() - start or 1)
    return found


def measure_unread(ops: list[Op], steps: int, now: Clock = clock) -> list[int]:
    """Time whole steps of the same thunks in order, with no clock and no wait between them, nanoseconds each."""
    after(now(), now)
    calls = [op.call for op in ops]
    last = ops[-1].wait
    found = []
    for _ in range(steps):
        start = now()
        for call in calls:
            call()
        last()
        found.append(now() - start or 1)
    return found


class Slowed:
    """A loop that waits, busily, for `share` of the time its steps took, after each run."""

    def __init__(self, loop: Loop, share: float, now: Clock = clock) -> None:
        self.loop, self.share, self.now = loop, share, now

    def run(self, state: Any, steps: int) -> Any:
        start = self.now()
        state = self.loop.run(state, steps)
        self.loop.block(state)
        end = self.now()
        until = end + self.share * (end - start)
        while self.now() < until:
            pass
        return state

    def block(self, state: Any) -> None:
        self.loop.block(state)


class Arm(NamedTuple):
    """One side of a comparison: what runs, and how many training steps make one sample."""

    loop: Loop | Slowed
    steps: int


def alternate(
    arms: tuple[Arm, Arm], state: Any, pairs: int, shuffle: random.Random, now: Clock = clock
) -> tuple[Any, list[int], list[int]]:
    """`pairs` samples of each arm, one pair after another, each pair in an order of its own by chance.

    If the arms do not differ, either one of a pair is the longer with the same chance whatever disturbs the
    series, since the disturbance cannot know which arm comes first. Returns the state and nanoseconds of each arm.
    """
    found: tuple[list[int], list[int]] = ([], [])
    for _ in range(pairs):
        for side in shuffle.sample((0, 1), 2):
            state, sample = measure(arms[side].loop, state, arms[side].steps, now)  # type: ignore[arg-type]
            found[side].append(sample.wall_ns)
    return state, *found


def one_after_the_other(
    arms: tuple[Arm, Arm], state: Any, pairs: int, now: Clock = clock
) -> tuple[Any, list[int], list[int]]:
    """All samples of the first arm, then all of the second: how not to compare. Returns as `alternate`."""
    found: tuple[list[int], list[int]] = ([], [])
    for side in (0, 1):
        for _ in range(pairs):
            state, sample = measure(arms[side].loop, state, arms[side].steps, now)  # type: ignore[arg-type]
            found[side].append(sample.wall_ns)
    return state, *found
