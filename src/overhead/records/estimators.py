"""Which estimate of a loop's time repeats best: the spread between independent runs, from the records of many runs.

A run is a fresh process. Its turns are estimated in several ways; an estimator is as good as its estimates are alike
from run to run, for the same seconds spent. Two runs of a reader may differ in what else his host does, so what decides
is the spread over all runs, those beside a load among them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from overhead.records.headline import decile
from overhead.records.record import Record
from overhead.records.stats import Interval

QUIET, LOADED, ALL = "quiet", "beside a load", "all runs"
HEADLINE = "lower decile"
ESTIMATORS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "minimum": min,
    HEADLINE: decile,
    "lower quartile": lambda values: float(np.quantile(values, 0.25)),
    "median": lambda values: float(np.median(values)),
    "trimmed mean": lambda values: float(stats.trim_mean(values, 0.1)),  # without a tenth at either end
}
ONE_SAMPLE, TURN, LONG = "one sample", "a turn", "five turns"
LENGTHS = {ONE_SAMPLE: 0, TURN: 1, LONG: 5}  # turns whose mean is one value; 0: each sample by itself
FEWEST = 2  # runs that have a spread
RESAMPLES = 1_000

Runs = Mapping[int, Mapping[int, Sequence[float]]]  # run → turn → its samples, seconds a step
Estimates = NDArray[np.float64]  # (loops, conditions, runs): seconds a step


class Spread(NamedTuple):
    """How far estimates of one loop lie apart: the largest over the smallest, and the deviation of their logarithms."""

    loop: str
    condition: str
    estimator: str
    length: str
    runs: int
    range_ratio: float
    sd_log: float


def runs_of(record: Record, condition: str) -> Runs:
    """The samples of a condition, by run and turn."""
    found: dict[int, dict[int, list[float]]] = {}
    for samples in record.timing.samples if record.timing and record.status == "ok" else []:
        if samples.clock == condition:
            for turn, value in zip(samples.round, samples.values_s, strict=True):
                found.setdefault(samples.process, {}).setdefault(turn, []).append(value / samples.steps)
    return found


def values(turns: Mapping[int, Sequence[float]], length: str) -> list[float]:
    """What is estimated from: samples by themselves, means of turns, or means of so many turns one after the other.

    Turns that are left over at the end, too few for one more value, belong to the last value.
    """
    at_once = LENGTHS[length]
    if at_once == 0:
        return [value for turn in sorted(turns) for value in turns[turn]]
    means = [float(np.mean(turns[turn])) for turn in sorted(turns)]
    whole = max(1, len(means) // at_once)
    return [float(np.mean(means[n * at_once : (n + 1) * at_once if n < whole - 1 else None])) for n in range(whole)]


def estimates(records: Sequence[Record], estimator: str, length: str = TURN) -> Estimates:
    """Every loop's estimate of every run, quiet and loaded: (loops, 2, runs), of the runs that all loops have.

    Loops that were not timed are left out. Empty where nothing was timed in both conditions.
    """
    by_loop = [(runs_of(r, QUIET), runs_of(r, LOADED)) for r in timed(records)]
    shared = sorted(set.intersection(*(set(runs) for both in by_loop for runs in both))) if by_loop else []
    estimate = ESTIMATORS[estimator]
    found = [[[estimate(values(runs[run], length)) for run in shared] for runs in both] for both in by_loop]
    return np.array(found, dtype=float).reshape(len(by_loop), 2, len(shared))


def timed(records: Sequence[Record]) -> list[Record]:
    """The records that hold runs of both conditions."""
    return [r for r in records if runs_of(r, QUIET) and runs_of(r, LOADED)]


def spreads(records: Sequence[Record]) -> list[Spread]:
    """A row a loop, condition (quiet, beside a load, all runs), estimator and length."""
    names = [f"{r.loop} ({r.device})" for r in timed(records)]
    rows = []
    for length in LENGTHS:
        for estimator in ESTIMATORS:
            found = estimates(records, estimator, length)
            if not names or found.shape[2] < FEWEST:
                continue
            for name, (quiet, loaded) in zip(names, found, strict=True):
                for condition, of in ((QUIET, quiet), (LOADED, loaded), (ALL, np.concatenate([quiet, loaded]))):
                    sd = float(np.log(of).std(ddof=1))
                    rows.append(Spread(name, condition, estimator, length, of.size, float(of.max() / of.min()), sd))
    return rows


def scores(records: Sequence[Record], condition: str = ALL, length: str = TURN) -> dict[str, float]:
    """Estimator → the mean over loops of the deviation of its logarithms between runs. Empty below two runs."""
    found = {name: _score(estimates(records, name, length), condition) for name in ESTIMATORS}
    return {name: float(score) for name, score in found.items() if np.isfinite(score)}


def against_headline(records: Sequence[Record], condition: str = ALL) -> dict[str, Interval]:
    """Each other estimator's score over that of the headline's, of turns, with its interval; `n` is the number of runs.

    Runs are resampled, the same ones for every loop, condition and estimator, since what disturbs a run disturbs all.
    """
    by_name = {name: estimates(records, name) for name in ESTIMATORS}
    runs = by_name[HEADLINE].shape[2]
    if runs < FEWEST or not len(by_name[HEADLINE]):
        return {}
    draws = np.random.default_rng(0).integers(runs, size=(RESAMPLES, runs))
    draws = draws[(draws != draws[:, :1]).any(axis=1)]  # of one run alone there is no spread
    whole = {name: _score(found, condition) for name, found in by_name.items()}
    drawn = {
        name: np.array([_score(found[:, :, draw], condition) for draw in draws]) for name, found in by_name.items()
    }
    ratios = {}
    for name in ESTIMATORS:
        if name != HEADLINE and whole[HEADLINE] > 0:
            low, high = np.quantile(drawn[name] / drawn[HEADLINE], [0.025, 0.975])
            value = float(whole[name] / whole[HEADLINE])
            ratios[name] = Interval(value, min(float(low), value), max(float(high), value), runs)
    return ratios


def moved(records: Sequence[Record], estimator: str) -> float | None:
    """How many times as long a loop's estimate is beside the load: the geometric mean over loops and runs."""
    found = estimates(records, estimator)
    return float(np.exp(np.log(found[:, 1] / found[:, 0]).mean())) if found.size else None


def _score(found: Estimates, condition: str) -> np.float64:
    chosen = {QUIET: found[:, :1], LOADED: found[:, 1:], ALL: found}[condition]
    loops, conditions, runs = chosen.shape
    if not loops or conditions * runs < FEWEST:
        return np.float64("nan")
    return np.log(chosen.reshape(loops, conditions * runs)).std(axis=1, ddof=1).mean()
