"""From samples to shares: how much of a step's time goes with each of five limits, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.diagnose.interventions import (
    DOUBLED,
    HALVED,
    IDLE,
    INPUT,
    MEMORY,
    ONE_CORE,
    SPIN,
    WAITS,
)  # fmt: skip
from overhead.diagnose.session import FEWEST_ROUNDS, Measured, Sample
from overhead.records import stats

LIMITS = ("dispatch", "arithmetic", "memory", "input", "wait")
RESAMPLES = 1_000
LEAST_CONTRAST = 0.08  # by which a copy must be slower beside the memory competitor, or that tells nothing
PLAIN_FIRST = (INPUT, WAITS)  # of these pairs the unchanged step is the first

Array = NDArray[np.float64]


class Elasticity(NamedTuple):
    """How much of the time goes with what an intervention changes: 1 all, 0 nothing."""

    intervention: str
    median: float
    low: float
    high: float


class Shares(NamedTuple):
    """Resampled shares of the five limits, (resamples, 5), with what the advice needs, (resamples,) each."""

    of: Array
    scaling: Array  # the share of the step's time that goes with the number of examples
    one_core: Array | None  # time on one core, times the time on all
    input: Array  # seconds of the input over seconds of the step
    input_busy: Array  # the share of them that is processor time
    memory_known: bool
    enough: bool  # rounds for a verdict
    quiet: bool  # the host did nothing else


def ns(measured: Measured, name: str) -> tuple[Array, Array] | None:
    """Nanoseconds a step of an intervention's pairs: changed and reference, (rounds,) each."""
    pairs = measured.pairs.get(name)
    if not pairs:
        return None
    return np.array([a.ns for a, _ in pairs]), np.array([b.ns for _, b in pairs])


def step_ns(measured: Measured) -> list[float]:
    """Nanoseconds of the step as the reader runs it: with the pipeline where there is one."""
    if INPUT in measured.pairs:
        return [whole.ns for _, whole in measured.pairs[INPUT]]
    return [_unchanged(measured, r).ns for r in range(measured.rounds)]


def _unchanged(measured: Measured, r: int) -> Sample:
    for name, pairs in measured.pairs.items():
        if name == SPIN:
            return pairs[r][1]
    raise KeyError(SPIN)


def elasticities(measured: Measured) -> list[Elasticity]:
    """A row an intervention, from the ratio of its pairs."""
    cores = measured.cores
    turned: dict[str, Callable[[float], float]] = {
        INPUT: lambda ratio: 1 - ratio,
        WAITS: lambda ratio: 1 - ratio,
        HALVED: lambda ratio: math.log(ratio) / math.log(0.5),
        DOUBLED: lambda ratio: math.log(ratio) / math.log(2),
        ONE_CORE: lambda ratio: math.log(ratio) / math.log(cores),
    }
    found = []
    for name in measured.pairs:
        pair = ns(measured, name)
        assert pair is not None
        if name in turned:
            interval = stats.paired_ratio([pair[0]], [pair[1]])
            ends = [turned[name](value) for value in (interval.low, interval.high)]
            found.append(Elasticity(name, turned[name](interval.median), min(ends), max(ends)))
        elif name == MEMORY:
            contrast = _contrast(measured)
            if contrast is None:
                continue
            interval = stats.paired_ratio([pair[0]], [pair[1]])
            found.append(Elasticity(name, *((value - 1) / contrast for value in interval[:3])))
        else:  # a busy wait: the share of it that lengthens the step, on a base that keeps ratios above 0
            spun = np.array([a.spun_ns for a, _ in measured.pairs[name]])
            interval = stats.paired_ratio([np.maximum(1 + (pair[0] - pair[1]) / spun, 1e-3)], [np.ones(len(spun))])
            found.append(Elasticity(name, *(value - 1 for value in interval[:3])))
    idle = np.array([1 + _idle(a) / b for a, b in _idle_of(measured)])
    interval = stats.median_interval([idle])
    return [*found, Elasticity(IDLE, *(value - 1 for value in interval[:3]))]


def _idle(sample: Sample) -> float:
    """Nanoseconds a step in which no thread of the process had a processor; right where there is one core."""
    return max(0.0, sample.ns - sample.cpu_ns)


def _idle_of(measured: Measured) -> list[tuple[Sample, float]]:
    """Where idle time is looked for, with the nanoseconds of the unchanged step beside it."""
    if ONE_CORE in measured.pairs:
        return [(changed, reference.ns) for changed, reference in measured.pairs[ONE_CORE]]
    return [(reference, reference.ns) for _, reference in measured.pairs[SPIN]]


def _contrast(measured: Measured) -> float | None:
    """By how much of its time a copy is slower beside the memory competitor; None where it is not."""
    if not measured.copies:
        return None
    found = float(np.median([memory / registers for memory, registers in measured.copies])) - 1
    return found if found >= LEAST_CONTRAST else None


def shares(measured: Measured, resamples: int = RESAMPLES) -> Shares:
    """The shares of the five limits, with rounds resampled.

    input: what the same batch again takes away. wait: time in which no thread runs. dispatch: time that is the same
    for any batch, in stretches no longer than a call may cost, as far as a busy wait of the host is not hidden.
    memory: what a competitor for memory slows as it slows a copy. arithmetic: the rest of the working time.
    """
    rounds = measured.rounds
    rng = np.random.default_rng(0)
    drawn = rng.integers(rounds, size=(resamples, rounds))

    def medians(values: Array) -> Array:
        return np.median(values[:rounds][drawn], axis=1)

    def ratio(name: str) -> Array | None:
        pair = ns(measured, name)
        return None if pair is None else medians(pair[0] / pair[1])

    ones = np.ones(resamples)
    half, double = ratio(HALVED), ratio(DOUBLED)
    assert double is not None
    scaling = np.clip((double - half) / 1.5 if half is not None else double - 1, 0, 1)
    step = medians(np.array([_unchanged(measured, r).ns for r in range(rounds)]))
    one = ratio(ONE_CORE)
    idle = medians(np.array([_idle(a) / b for a, b in _idle_of(measured)]))
    wait = np.clip(idle, 0, 1)
    spin = ns(measured, SPIN)
    assert spin is not None
    exposed = np.clip(medians((spin[0] - spin[1]) / np.array([a.spun_ns for a, _ in measured.pairs[SPIN]])), 0, 1)

    beside = ratio(MEMORY) if _contrast(measured) is not None else None
    in_memory, alone = np.zeros(resamples), None
    if beside is not None and one is not None:
        copies = medians(np.array([memory / registers for memory, registers in measured.copies])) - 1
        in_memory = np.clip((beside - 1) / np.maximum(copies, LEAST_CONTRAST / 2), 0, 1) * one  # of the step's time
        alone = one - idle
    dispatch = np.minimum.reduce(
        [1 - scaling, 1 - measured.beyond_ns / step, 1 - wait, np.maximum(1 - wait - in_memory, 0)]
    )
    dispatch = np.clip(dispatch, 0, 1) * exposed
    working = np.maximum(1 - wait - dispatch, 0)
    memory = np.minimum(in_memory, working)
    if alone is not None:
        # Memory-bound work that more cores share, as in XLA, takes its part of what they save; NumPy's has one core.
        alone = np.maximum(alone - dispatch, 1e-9)
        shared = (working - memory) * measured.cores * 1.1 < alone - in_memory
        memory = np.where(shared, np.minimum(working * in_memory / alone, working), memory)

    off = ratio(INPUT)
    left = ones if off is None else np.clip(off, 0, 1)
    found = np.stack([dispatch * left, (working - memory) * left, memory * left, 1 - left, wait * left], axis=1)
    busy = ones
    if off is not None:
        pairs = measured.pairs[INPUT]
        busy = medians(np.array([(b.cpu_ns - a.cpu_ns) / max(b.ns - a.ns, 1) for a, b in pairs]))
    return Shares(
        found, scaling, one, (1 - left) / np.maximum(left, 1e-3), np.clip(busy, 0, 1), beside is not None,
        enough=rounds >= FEWEST_ROUNDS, quiet=not measured.disturbed,
    )  # fmt: skip
