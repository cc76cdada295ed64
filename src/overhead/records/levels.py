"""Turns that fall into two levels: then a single figure with a narrow interval would hide one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from overhead.records import stats
from overhead.records.stats import Interval

FEWEST = 12  # turns
LEAST = 0.1  # share of the turns at either level, and never fewer than two
APART = 1.15  # the upper level through the lower one
EMPTY = 0.7  # of the distance between the levels (logarithms) in which no turn lies


class Levels(NamedTuple):
    """The medians of both levels, in the unit of the turns, and how many turns lie at each."""

    low: float
    high: float
    at_low: int
    at_high: int


def levels(turns: Sequence[float]) -> Levels | None:
    """The two levels of `turns` (each above 0, any order); None where they have one.

    They are split at the widest gap that leaves enough turns on either side. It counts where the levels are `APART` and
    most of the way between them is `EMPTY`; turns that only scatter, or drift, leave no such gap.
    """
    n = len(turns)
    if n < FEWEST:
        return None
    logs = np.log(np.sort(np.asarray(turns, dtype=float)))
    least = max(2, int(np.ceil(LEAST * n)))
    gaps = np.diff(logs)[least - 1 : n - least]
    split = least + int(gaps.argmax())
    below, above = float(np.median(logs[:split])), float(np.median(logs[split:]))
    if above - below < np.log(APART) or gaps.max() < EMPTY * (above - below):
        return None
    return Levels(float(np.exp(below)), float(np.exp(above)), split, n - split)


def over_turns(processes: Sequence[Sequence[float]]) -> Interval:
    """The median of turns (a series a process) and its interval, which holds both levels where the turns have two.

    Raises what `stats.median_interval` raises.
    """
    found = stats.median_interval(processes)
    two = levels([turn for process in processes for turn in process])
    return found._replace(low=min(found.low, two.low), high=max(found.high, two.high)) if two else found
