"""The undisturbed time: the lower decile of turns, since whatever else a host does can only add to them.

Medians of the same loop differed up to twofold between runs of one day on a shared host, their lower deciles by a few
percent (chapter 0 shows the records). The minimum argues alike (Chen and Revels 2016, "Robust benchmarking in noisy
environments"; the documentation of Python's `timeit`), but falls with every turn more, and has no interval. A decile is
of turns of equal length: the mean of the samples of one turn, so that short samples have no advantage over long ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

QUANTILE = 0.1
RESAMPLES = 1_000
FEWEST = 3  # turns; of fewer the smallest is taken, with the range as its interval

Turns = Mapping[int, Mapping[int, float]]  # process → round → seconds an epoch, the mean of the turn's samples


class Headline(NamedTuple):
    """The lower decile of turns and its confidence interval, in the unit of the turns; `n` turns."""

    value: float
    low: float
    high: float
    n: int

    @property
    def half_width(self) -> float:
        """Half the interval as a share of the value."""
        return (self.high - self.low) / 2 / self.value


def headline(turns: Turns, level: float = 0.95) -> Headline:
    """The lower decile over all turns of all processes, and its interval.

    Processes are resampled first, then the turns of each. Raises `ValueError` where there is no turn.
    """
    return quotient(turns, None, level)


def quotient(numerator: Turns, denominator: Turns | None, level: float = 0.95) -> Headline:
    """The headline of one side over that of the other, and its interval; without a denominator the headline itself.

    Both sides are resampled together: the same processes of a set and the same rounds, since what disturbs a round
    disturbs both. `n` is the number of turns of the side that has fewer. Raises `ValueError` where a side has no turn.
    """
    sides = [side for side in (numerator, denominator) if side is not None]
    processes = sorted(set.intersection(*(set(side) for side in sides)))
    counts = [sum(len(side[p]) for p in processes) for side in sides]
    if not processes or 0 in counts:
        raise ValueError("a headline needs at least one turn on each side, got none")
    tables = [[_row(side, p, sides) for p in processes] for side in sides]
    value = _ratio([_decile(np.concatenate([row[~np.isnan(row)] for row in table])) for table in tables])
    rng, drawn = np.random.default_rng(0), np.empty(RESAMPLES)
    for i in range(RESAMPLES):
        chosen = rng.integers(len(processes), size=len(processes))
        picks = [rng.integers(len(tables[0][p]), size=len(tables[0][p])) for p in chosen]
        deciles = []
        for table in tables:
            taken = np.concatenate([table[p][pick] for p, pick in zip(chosen, picks, strict=True)])
            taken = taken[~np.isnan(taken)]
            deciles.append(_decile(taken) if taken.size else np.nan)
        drawn[i] = _ratio(deciles)
    low, high = np.nanquantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    if len(processes) > 1:  # few processes: what each of them alone gives belongs to the interval
        alone = [_ratio([_decile(table[p][~np.isnan(table[p])]) for table in tables]) for p in range(len(processes))]
        low, high = min(low, np.nanmin(alone)), max(high, np.nanmedian(alone))
    return Headline(float(value), float(min(low, value)), float(max(high, value)), min(counts))


def _row(side: Turns, process: int, sides: Sequence[Turns]) -> NDArray[np.float64]:
    """A side's turns of a process, at the rounds that any side has, nan where this one has none."""
    rounds = sorted(set.union(*(set(other[process]) for other in sides)))
    return np.array([side[process].get(round_, np.nan) for round_ in rounds])


def _decile(turns: NDArray[np.float64]) -> float:
    if turns.size == 0:
        return float("nan")
    return float(turns.min() if turns.size < FEWEST else np.quantile(turns, QUANTILE))


def _ratio(deciles: Sequence[float]) -> float:
    return deciles[0] / deciles[1] if len(deciles) == 2 else deciles[0]
