"""The clock of this machine: what it can tell, what a reading costs, and how that is taken out of a sample."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

Clock = Callable[[], int]  # nanoseconds, never going back

clock: Clock = time.perf_counter_ns

READINGS = 10_000_000  # in vain before a clock counts as standing still: about half a second of readings

NEGLIGIBLE = 100  # times the cost of reading the clock: what is longer keeps its reading


class ClockStandsStill(RuntimeError):
    """The clock did not move while it was read again and again, so nothing can be timed with it."""


def after(start: int, now: Clock) -> int:
    """The first reading later than `start`. Raises `ClockStandsStill`."""
    for _ in range(READINGS):
        if (reading := now()) > start:
            return reading
    raise ClockStandsStill(f"the clock must move within {READINGS:,} readings, got {start} ns every time")


def pair_cost_ns(pairs: int = 2000, now: Clock = clock) -> float:
    """The mean cost of one start-stop pair of readings with nothing between them, nanoseconds."""
    start = after(now(), now)
    for _ in range(pairs):
        now()
        now()
    return (after(start, now) - start) / pairs


def empty_ns(pairs: int = 2000, now: Clock = clock) -> list[int]:
    """What start-stop pairs with nothing between them show, nanoseconds each: what every sample holds too."""
    after(now(), now)
    return [-(now() - now()) for _ in range(pairs)]


def resolution_ns(readings: int = 2000, now: Clock = clock) -> int:
    """The smallest step above 0 that the clock was seen to make, nanoseconds. Raises `ClockStandsStill`."""
    seen = [after(now(), now), *(now() for _ in range(readings))]
    steps = [b - a for a, b in pairwise(seen) if b > a]
    return min(steps, default=0) or after(seen[-1], now) - seen[-1]


class Timer(NamedTuple):
    """What the clock of this process can tell and what asking it costs, nanoseconds."""

    resolution_ns: int  # its smallest step
    pair_cost_ns: float  # of a start-stop pair
    empty_ns: float  # median of what a pair shows with nothing between


def measured(now: Clock = clock) -> Timer:
    """The clock, measured now; of five passes the median, since one may be interrupted."""
    costs = [pair_cost_ns(now=now) for _ in range(5)]
    empty = statistics.median(statistics.median(empty_ns(now=now)) for _ in range(5))
    return Timer(resolution_ns(now=now), statistics.median(costs), empty)


def net(values: Sequence[float], empty: float, pair_cost: float) -> list[float]:
    """Samples less what an empty pair shows, where their median is below 100 times a pair's cost; one unit throughout.

    A sample that is no longer than an empty one keeps a hundredth of itself: too short for this clock, but no
    claim that it took no time.
    """
    if not values or statistics.median(values) >= NEGLIGIBLE * pair_cost:
        return list(values)
    return [max(value - empty, value / 100) for value in values]
