"""From samples to claims: the median and its interval, the ratio of pairs, the verdict, spread and drift.

Samples come as `processes`: one series a process, in round order, in any one unit (usually seconds).
A process is the larger unit of chance, since the same code can be slow for a process's whole life
(Kalibera and Jones 2013, "Rigorous benchmarking in reasonable time").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Samples = NDArray[np.float64]
Series = Sequence[float] | Samples  # one process's samples, in round order
Processes = Sequence[Series]
Verdict = Literal["faster", "slower", "no difference shown"]
NO_DIFFERENCE: Verdict = "no difference shown"

RESAMPLES = 1_000
RANGE_SHORTFALL = 0.015  # the range of five covers 93.75 %, which passes for 95 %
SMALLEST_DRIFT = 0.03  # relative; a smaller change over a series is no reason to distrust its median
NORMAL_IQR = 1.349  # interquartile range of a normal distribution, in standard deviations
DRIFT_ALPHA = 0.02  # of each of two tests, so that at most 4 % of steady series are marked
FEWEST_FOR_DRIFT = 5  # samples; in order by chance once in 60
LONGEST_FOR_DRIFT = 200  # samples; the slopes between all pairs are taken


class Interval(NamedTuple):
    """A median and its confidence interval, in the unit of the samples; `n` is the number of samples."""

    median: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the median: 0.02 is ±2 %."""
        return (self.high - self.low) / 2 / self.median


class Spread(NamedTuple):
    """Two standard deviations as shares of the median, which must not be pooled.

    `between` processes: of their medians, None for a single process (unknown, not zero); `within` a
    process: of its rounds.
    """

    between: float | None
    within: float


class Drift(NamedTuple):
    """Whether a series has one level, in words why, and the largest change found as a share of its level."""

    settled: bool
    reason: str
    change: float


def median_interval(processes: Processes, level: float = 0.95) -> Interval:
    """The median over processes of each process's median, and its confidence interval.

    One process: the interval between two order statistics that scipy inverts from the sign test. It
    holds for any distribution; the bootstrap of a median, percentile or BCa, covered 86 to 91 % of the
    log-normal and bimodal medians at 7 and 8 samples, where this one covers 98 to 99 %.

    Several processes: processes are resampled first, then the rounds of each. That bootstrap alone is
    too narrow where processes differ (91 % at 6 to 8 processes), so it is widened to the interval that
    the process medians give by themselves.

    Below 5 samples of the one process, or below 5 processes, their range falls short of `level` (2, 3, 4:
    50, 75, 87.5 %) and is widened to Student's t on logarithms, which is right for log-normal samples
    and the best that so few can say. A single sample gives an interval of no width.

    Raises ValueError for a series that is empty or has a sample that is not finite and above 0.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, got {level}")
    series = _checked(processes)
    medians = np.array([np.median(samples) for samples in series])
    median, n = float(np.median(medians)), sum(map(len, series))
    if len(series) == 1:
        low, high = _of_independent(series[0], level)
    else:
        bounds = [_of_independent(medians, level), _resampled(series, level)]
        low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    # The t interval is centred on the geometric mean, and must hold the median too.
    return Interval(median, min(low, median), max(high, median), n)


def _of_independent(values: Samples, level: float) -> tuple[float, float]:
    """Interval of the median of independent `values`: (n,)."""
    n = len(values)
    first, last = order_statistics(n, level)
    low, high = np.sort(values)[[first, last]]
    range_covers = 1 - 2.0 ** (1 - n)
    if n > 1 and range_covers < level - RANGE_SHORTFALL:
        logs = np.log(values / values[0])
        reach = stats.t.ppf((1 + level) / 2, n - 1) * logs.std(ddof=1) / n**0.5
        with np.errstate(over="ignore"):
            low = min(low, values[0] * np.exp(logs.mean() - reach))
            high = max(high, values[0] * np.exp(logs.mean() + reach))
    return float(low), float(high)


def difference_interval(differences: Iterable[float], level: float = 0.95) -> Interval:
    """The median of paired differences and its interval (sign test); unlike a time it may be negative.

    Raises `ValueError` when there is none.
    """
    ordered = np.sort(np.asarray(list(differences), dtype=float))
    if not ordered.size:
        raise ValueError("differences must hold at least one pair, got none")
    first, last = order_statistics(ordered.size, level)
    return Interval(float(np.median(ordered)), float(ordered[first]), float(ordered[last]), ordered.size)


@lru_cache(maxsize=1024)
def order_statistics(n: int, level: float) -> tuple[int, int]:
    """Positions in `n` sorted samples that hold the median with probability `level`, or the whole range.

    Found once for each n, since an adaptive run asks after every round.
    """
    found = stats.quantile_test(np.arange(n), p=0.5).confidence_interval(level)
    # scipy says nan where even the range covers less than `level`.
    first = 0 if np.isnan(found.low) else int(found.low)
    last = n - 1 if np.isnan(found.high) else int(found.high)
    return first, last


def _resampled(series: list[Samples], level: float) -> tuple[float, float]:
    """Percentile interval of the median of process medians; processes are drawn first, then rounds."""
    rng = np.random.default_rng(0)
    ordered = [np.sort(samples) for samples in series]

    def median_of_medians(chosen: NDArray[np.intp], axis: int) -> Samples:  # chosen: (resamples, processes)
        medians = np.empty(chosen.shape)
        for process, samples in enumerate(ordered):
            slots = chosen == process
            medians[slots] = resampled_medians(samples, int(slots.sum()), rng)
        return np.median(medians, axis=axis)

    found = stats.bootstrap(
        (np.arange(len(series)),),
        median_of_medians,
        n_resamples=RESAMPLES,
        confidence_level=level,
        method="percentile",
        vectorized=True,
        rng=rng,
    ).confidence_interval
    return float(found.low), float(found.high)


def resampled_medians(ordered: Samples, count: int, rng: np.random.Generator) -> Samples:
    """Medians of `count` bootstrap resamples of a sorted series: (count,).

    Drawn straight from their distribution, which is exact and needs no sorting: a resample is the
    series at n uniform positions, and the median of uniforms is a beta variate (David and Nagaraja
    2003, "Order Statistics", section 2.2).
    """
    n = len(ordered)
    half, odd = divmod(n, 2)
    if odd:
        return ordered[_position(rng.beta(half + 1, half + 1, count), n)]
    lower = rng.beta(half, half + 1, count)
    upper = lower + (1 - lower) * rng.beta(1, half, count)  # the next of the n uniforms, given `lower`
    return (ordered[_position(lower, n)] + ordered[_position(upper, n)]) / 2


def _position(uniform: Samples, n: int) -> NDArray[np.intp]:
    return np.minimum((n * uniform).astype(np.intp), n - 1)  # rounding may reach n


def mean(processes: Processes) -> float:
    """The mean of all samples, in their unit."""
    return float(np.concatenate(_checked(processes)).mean())


def iqr(processes: Processes) -> float:
    """The interquartile range of all samples, in their unit."""
    return float(stats.iqr(np.concatenate(_checked(processes))))


def paired_ratio(a: Processes, b: Processes, level: float = 0.95) -> Interval:
    """The median of a/b over pairs, with its interval; `n` is the number of pairs.

    By position, so only for arms that one call samples in turns: `a[p][r]` and `b[p][r]` are then one pair. Of records
    that were measured apart `pairs.ratio` joins the rounds. What has no partner is left out. Processes are resampled
    first, then pairs. Raises what `median_interval` raises.
    """
    pairs = zip(_checked(a), _checked(b), strict=False)
    return median_interval([(x[: len(y)] / y[: len(x)]).tolist() for x, y in pairs], level)


def verdict(ratio: Interval) -> Verdict:
    """What a ratio of times a/b says of a against b. A single pair shows nothing."""
    if ratio.n > 1 and ratio.high < 1:
        return "faster"
    if ratio.n > 1 and ratio.low > 1:
        return "slower"
    return NO_DIFFERENCE


def reached(interval: Interval, target: float) -> bool:
    """Whether the half-width, a share of the median, is within `target`; never from a single sample."""
    return interval.n > 1 and interval.half_width <= target


def spread(processes: Processes) -> Spread:
    """Relative spread between processes and within a process, kept apart.

    Within: the interquartile range scaled to a normal distribution's standard deviation, so that a few
    slow rounds do not show; the median over processes. Between: the plain standard deviation of the
    process medians, so that one slow process does show; the rounds' noise / √rounds is part of it.
    """
    series = _checked(processes)
    medians = np.array([np.median(samples) for samples in series])
    relative = [stats.iqr(samples) / NORMAL_IQR / np.median(samples) for samples in series]
    between = float(medians.std(ddof=1) / np.median(medians)) if len(series) > 1 else None
    return Spread(between, float(np.median(relative)))


def drift(series: Series) -> Drift:
    """Whether one process's samples, in order, keep one level; warming up and slowing down both show.

    Two rank tests, each at `DRIFT_ALPHA`: Kendall's tau against time for a trend, and for a change point
    the largest excursion of the cumulative ranks, which on a steady series is a Brownian bridge's
    (Pettitt 1979). What they find counts when Theil and Sen's line, or the medians on either side of the
    change point, differ by `SMALLEST_DRIFT` or more. Raises ValueError as `median_interval` does.
    """
    samples = _checked([series])[0]
    given = len(samples)
    if given < FEWEST_FOR_DRIFT:
        return Drift(True, f"too few samples to tell: {given}, at least {FEWEST_FOR_DRIFT} are needed", 0.0)
    if given > LONGEST_FOR_DRIFT:
        samples = np.array([np.median(block) for block in np.array_split(samples, LONGEST_FOR_DRIFT)])
    n, median = len(samples), np.median(samples)
    ranks = stats.rankdata(samples)
    if ranks.std() == 0:
        return Drift(True, f"all {given} samples are equal", 0.0)

    time = np.arange(n)
    _, trend_p = np.asarray(stats.kendalltau(time, samples))
    slope, intercept = np.asarray(stats.theilslopes(samples, time))[:2]
    rise = float(slope * (n - 1) / median)

    excursion = np.abs(np.cumsum(ranks - ranks.mean()))[:-1]
    split = int(excursion.argmax()) + 1
    shift_p = stats.kstwobign.sf(excursion.max() / (ranks.std() * n**0.5))
    before, after = np.median(samples[:split]), np.median(samples[split:])
    shift = float(after / before - 1)

    found = []  # (what the fit leaves over, change, in words)
    if trend_p < DRIFT_ALPHA and abs(rise) >= SMALLEST_DRIFT:
        left = np.abs(samples - intercept - slope * time).sum()
        verb = "rises" if rise > 0 else "falls"
        found.append((left, rise, f"{verb} by {abs(rise):.1%} over {given} samples"))
    if shift_p < DRIFT_ALPHA and abs(shift) >= SMALLEST_DRIFT:
        left = np.abs(samples - np.where(time < split, before, after)).sum()
        found.append((left, shift, f"shifts by {shift:+.1%} after sample {split * given // n} of {given}"))
    if not found:
        largest = max(rise, shift, key=abs)
        return Drift(True, f"no trend or shift of {SMALLEST_DRIFT:.0%} shown in {given} samples", largest)
    _, change, reason = min(found)
    return Drift(False, reason, change)


def _checked(processes: Processes) -> list[Samples]:
    """The series as float64 arrays, each with at least one sample, all finite and above 0."""
    if len(processes) == 0:
        raise ValueError("processes must hold at least one series of samples, got none")
    series = []
    for process, given in enumerate(processes):
        samples = np.asarray(given, dtype=np.float64)
        if samples.ndim != 1:
            raise ValueError(f"process {process} must be a series of samples, got {samples.ndim} dimensions")
        if samples.size == 0:
            raise ValueError(f"process {process} must have at least one sample, got none")
        bad = np.flatnonzero(~(np.isfinite(samples) & (samples > 0)))
        if bad.size:
            where = f"process {process}, sample {bad[0]}"
            raise ValueError(f"samples must be finite and above 0, got {samples[bad[0]]} ({where})")
        series.append(samples)
    return series
