"""Ratios across runs: of records that took no turns with each other, such as those of two hosts."""

from __future__ import annotations

import math

from overhead.records import headline, pairs, stats
from overhead.records.pairs import Rounds
from overhead.records.record import Record
from overhead.records.stats import Interval

OF_A_CALL = ("op", "end")  # clocks of what is no whole epoch, the first that a record has


def ratio(a: Record, b: Record) -> Interval | None:
    """How many times as long `a` takes as `b`, with its interval; None where either has no time.

    Two records of one and the same run (a copied folder) are joined round by round. Two runs share no round: there
    the intervals of both, which are independent, are put together on their logarithms (Zou and Donner 2008,
    "Construction of confidence limits about effect measures: a general approach"). `n` is the smaller number of turns.
    """
    ours, theirs = turns(a), turns(b)
    if not ours or not theirs:
        return None
    if same_run(a, b) and (paired := _quotient(a, ours, theirs)):
        return paired
    one, other = _interval(a, ours), _interval(b, theirs)
    low = math.hypot(math.log(one.median / one.low), math.log(other.high / other.median))
    high = math.hypot(math.log(one.high / one.median), math.log(other.median / other.low))
    value = one.median / other.median
    return Interval(value, value * math.exp(-low), value * math.exp(high), min(one.n, other.n))


def same_run(a: Record, b: Record) -> bool:
    """Whether two records are of one run, so that a round of the one is that round of the other."""
    return a.started is not None and (a.host, a.started) == (b.host, b.started)


def turns(record: Record) -> Rounds:
    """Set → round → seconds an epoch where epochs were timed, else seconds a call; empty without a time."""
    if whole := headline.turns(record):
        return whole
    for clock in OF_A_CALL:
        values = [
            (samples.set_number, round_, value / samples.steps)
            for samples in (record.timing.samples if record.timing else [])
            if samples.clock == clock
            for round_, value in zip(samples.round, samples.values_s, strict=True)
            if value > 0
        ]
        if values:
            return pairs.typical(values)
    return {}


def _interval(record: Record, side: Rounds) -> Interval:
    whole = headline.headline(side) if headline.turns(record) else None
    return whole or stats.median_interval([list(of_set.values()) for of_set in side.values()])


def _quotient(record: Record, over: Rounds, under: Rounds) -> Interval | None:
    return headline.quotient(over, under) if headline.turns(record) else pairs.ratio(over, under)
