"""What the harness's experiments found: ratios of two arms whose answer is known, read from their records."""

from __future__ import annotations

from collections.abc import Sequence

from scipy import stats as distributions

from overhead.harness.experiments import PAIRS
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval

PROCESSES = 5  # of one comparison with process-level intervals
POINTS = 0.005  # an injected slowdown is recovered within this, or the interval's half-width


def arms(records: Sequence[Record], op: str) -> tuple[list[list[float]], list[list[float]]]:
    """Samples of the two arms of an experiment in seconds, a list a process each; empty where it did not take place."""
    chosen = [r for r in records if r.op == op and r.status == "ok"]
    return tuple([s for r in chosen for s in r.processes(side)] for side in "ab")  # type: ignore[return-value]


def trials(records: Sequence[Record], op: str) -> list[Interval]:
    """The ratio b/a of each trial of an experiment, in order; an op is `op` and a number."""
    found: dict[int, str] = {}
    for record in records:
        name, _, number = (record.op or "").rpartition(" ")
        if name == op and record.status == "ok":
            found[int(number)] = record.op or ""
    both = [arms(records, found[number]) for number in sorted(found)]
    return [stats.paired_ratio(b, a) for a, b in both]


def in_one_process(records: Sequence[Record]) -> list[Interval]:
    """The ratios of a loop with itself, cut from one long series of pairs."""
    a, b = arms(records, "a-a")
    return [
        stats.paired_ratio([ours[at : at + PAIRS]], [others[at : at + PAIRS]])
        for ours, others in zip(b, a, strict=True)
        for at in range(0, len(ours) - PAIRS + 1, PAIRS)
    ]


def in_fresh_processes(records: Sequence[Record], processes: int) -> list[Interval]:
    """The ratios of a loop with itself in two fresh processes, `processes` of each a comparison."""
    a, b = arms(records, "fresh")
    whole = range(0, min(len(a), len(b)) - processes + 1, processes)
    return [stats.paired_ratio(b[at : at + processes], a[at : at + processes]) for at in whole]


def beside_a_load(records: Sequence[Record]) -> tuple[Interval | None, list[Interval], list[Interval]]:
    """The quiet ratio, the interleaved ones beside a load, and those of one arm after the other."""
    a, b = arms(records, "load quiet")
    quiet = stats.paired_ratio(b, a) if a else None
    return quiet, trials(records, "load interleaved"), trials(records, "load one-after-the-other")


def different(ratios: Sequence[Interval]) -> int:
    """How many of the ratios are called different from one."""
    return sum(stats.verdict(ratio) != "no difference shown" for ratio in ratios)


def share_of(times: int, of: int) -> tuple[float, float, float]:
    """A share and its 95 % interval (Clopper and Pearson 1934)."""
    interval = distributions.binomtest(times, of).proportion_ci(0.95, method="exact")
    return times / of, float(interval.low), float(interval.high)


def recovered(ratio: Interval, share: float) -> bool:
    """Whether a slowdown shows the right sign and is within 0.5 points or the interval's half-width."""
    close = max(POINTS, (ratio.high - ratio.low) / 2)
    return (ratio.median > 1) == (share > 0) and abs(ratio.median - 1 - share) <= close
