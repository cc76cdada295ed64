"""Pairs: samples of two records are compared only where they were taken in the same round of the same set.

A set is the fresh processes that were alive together and took turns. A host whose speed drifts is the same for
all that is measured in one round, and not for two rounds. Samples are therefore joined on set and round, never on
their position in a list.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval

Rounds = dict[int, dict[int, float]]  # set → round → the round's value


def typical(samples: Sequence[tuple[int, int, float]]) -> Rounds:
    """From (set, round, value) the median of each round: samples of one turn are not independent of each other."""
    found: dict[int, dict[int, list[float]]] = {}
    for set_, round_, value in samples:
        found.setdefault(set_, {}).setdefault(round_, []).append(value)
    return {set_: {r: median(values) for r, values in rounds.items()} for set_, rounds in found.items()}


def epochs(record: Record) -> Rounds:
    """Wall seconds per epoch of each round; where a set has several processes, those of its best one (`best`).

    Empty for a record that was not timed.
    """
    return best([record])


def best(records: Sequence[Record]) -> Rounds:
    """Wall seconds per epoch of each round, from the best process of each set over all the records.

    Of two processes the better is the one that takes less in the median of the rounds that both have, since a host
    may have been faster in the rounds that only one has; of two that share no round, the one with the lower median.
    """
    lowest: Rounds = {}
    for record in records:
        found: dict[int, list[tuple[int, int, float]]] = {}
        for samples in record.timing.samples if record.timing and record.status == "ok" else []:
            if samples.clock == "wall":
                seconds = samples.epochs_s(record.steps_per_epoch)
                found.setdefault(samples.process, []).extend(
                    (samples.set_number, r, s) for r, s in zip(samples.round, seconds, strict=True)
                )
        for taken in found.values():
            for set_, rounds in typical(taken).items():
                if set_ not in lowest or _better(rounds, lowest[set_]):
                    lowest[set_] = rounds
    return lowest


def _better(ours: dict[int, float], others: dict[int, float]) -> bool:
    shared = set(ours) & set(others)
    if not shared:
        return median(ours.values()) < median(others.values())
    return median(ours[r] / others[r] for r in shared) < 1


def joined(*sides: Rounds) -> list[list[tuple[float, ...]]]:
    """One list a set, with one tuple a round that every side has; a set without such a round is left out."""
    found = []
    for set_ in sorted(set.intersection(*(set(side) for side in sides))):
        shared = sorted(set.intersection(*(set(side[set_]) for side in sides)))
        if shared:
            found.append([tuple(side[set_][r] for side in sides) for r in shared])
    return found


def quotient(over: Sequence[Rounds], under: Sequence[Rounds]) -> Interval | None:
    """The product of `over` through that of `under`, round by round, with its interval; None without a shared round.

    Sets are resampled first, then rounds (`stats.median_interval`); `n` is the number of rounds.
    """
    sets = joined(*over, *under)
    split = len(over)
    values = [[math.prod(row[:split]) / math.prod(row[split:]) for row in rows] for rows in sets]
    return stats.median_interval(values) if values else None


def ratio(over: Rounds, under: Rounds) -> Interval | None:
    """`over` through `under` with its interval; None where they share no round."""
    return quotient([over], [under])
