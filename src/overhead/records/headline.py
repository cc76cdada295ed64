"""The undisturbed time: the lower decile of turns, since whatever else a host does can only add to them.

Medians of the same loop differed up to twofold between runs of one day on a shared host, their lower deciles by a few
percent (chapter 0 has the records). The minimum argues alike (Chen and Revels 2016, "Robust benchmarking in noisy
environments"; the documentation of Python's `timeit`), but falls with every turn more, and has no interval. A turn is
the mean of its samples and lasts about as long for every loop, so that short samples have no advantage over long ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from overhead.records.pairs import Rounds
from overhead.records.record import Record
from overhead.records.stats import Interval

QUANTILE = 0.1
RESAMPLES = 1_000

Table = NDArray[np.float64]  # (sets, rounds): the turns of one side, nan where a set had fewer rounds than another


def turns(record: Record) -> Rounds:
    """Set → round → wall seconds an epoch, the mean of the turn; of a set with several processes, its best one's.

    Empty for a record that was not timed.
    """
    found: dict[tuple[int, int], dict[int, list[float]]] = {}
    for samples in record.timing.samples if record.timing and record.status == "ok" else []:
        if samples.clock == "wall":
            of_process = found.setdefault((samples.set_number, samples.process), {})
            for round_, seconds in zip(samples.round, samples.epochs_s(record.steps_per_epoch), strict=True):
                of_process.setdefault(round_, []).append(seconds)
    best: Rounds = {}
    for (set_, _), rounds in found.items():
        means = {round_: sum(values) / len(values) for round_, values in rounds.items()}
        if set_ not in best or decile(list(means.values())) < decile(list(best[set_].values())):
            best[set_] = means
    return best


def headline(side: Rounds, level: float = 0.95) -> Interval | None:
    """The lower decile over all turns of all sets, with its interval; None where there is no turn.

    `median` holds the decile, `n` is the number of turns. Sets are resampled first, then the rounds of each; where a
    set by itself gives less or more than that, the interval reaches there.
    """
    return _estimate([side], level)


def quotient(over: Rounds, under: Rounds, level: float = 0.95) -> Interval | None:
    """The headline of `over` through that of `under`, with its interval; None where they share no round of a set.

    Both are taken over the rounds that both have, and resampled together, since what slows a round slows both. `n` is
    the number of those rounds.
    """
    return _estimate([over, under], level)


def decile(values: Sequence[float]) -> float:
    """The lower decile, interpolated between order statistics."""
    return float(np.quantile(values, QUANTILE))


def _estimate(sides: Sequence[Rounds], level: float) -> Interval | None:
    shared = {s: set.intersection(*(set(side[s]) for side in sides)) for s in set.intersection(*map(set, sides))}
    sets = sorted(s for s, rounds in shared.items() if rounds)
    if not sets:
        return None
    rounds = [sorted(shared[s]) for s in sets]
    tables = [_table(side, sets, rounds) for side in sides]
    value = float(_through([_deciles(table.reshape(1, -1)) for table in tables])[0])
    drawn = _resampled(tables, [len(of_set) for of_set in rounds])
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    if len(sets) > 1:
        alone = _through([_deciles(table) for table in tables])
        low, high = min(low, alone.min()), max(high, float(np.median(alone)))
    n = sum(map(len, rounds))
    return Interval(value, min(float(low), value), max(float(high), value), n)


def _table(side: Rounds, sets: Sequence[int], rounds: Sequence[Sequence[int]]) -> Table:
    table = np.full((len(sets), max(map(len, rounds))), np.nan)
    for row, (set_, of_set) in enumerate(zip(sets, rounds, strict=True)):
        table[row, : len(of_set)] = [side[set_][round_] for round_ in of_set]
    return table


def _resampled(tables: Sequence[Table], lengths: Sequence[int]) -> NDArray[np.float64]:
    """Bootstrap estimates, (resamples,): sets drawn with replacement, then rounds of each, alike for every side."""
    rng, (sets, rounds) = np.random.default_rng(0), tables[0].shape
    chosen = rng.integers(sets, size=(RESAMPLES, sets))
    of_chosen = np.asarray(lengths)[chosen][:, :, None]
    picks = (rng.random((RESAMPLES, sets, rounds)) * of_chosen).astype(np.intp)
    outside = np.arange(rounds)[None, None, :] >= of_chosen
    deciles = []
    for table in tables:
        taken = np.where(outside, np.nan, table[chosen[:, :, None], picks])
        deciles.append(_deciles(taken.reshape(RESAMPLES, -1)))
    return _through(deciles)


def _deciles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The lower decile of each row without its nans; nan for a row of nothing else."""
    ordered = np.sort(values, axis=1)  # nan last
    position = QUANTILE * np.maximum((~np.isnan(values)).sum(axis=1) - 1, 0)
    below = position.astype(np.intp)
    above = np.minimum(below + (position > below), values.shape[1] - 1)
    rows = np.arange(len(values))
    return ordered[rows, below] + (position - below) * (ordered[rows, above] - ordered[rows, below])


def _through(deciles: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    return deciles[0] if len(deciles) == 1 else deciles[0] / deciles[1]
