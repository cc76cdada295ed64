"""A wait at every dispatch of a loop: how much longer the epoch gets tells how many of them it exposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from overhead.measure import spin
from overhead.measure.preparation import Turn
from overhead.measure.process import WorkerFailed
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

OP_BY_OP = ["tf-eager", "jax-op-by-op", "cupy"]  # numpy is spun with the loops that have a budget
LEVELS = (0.0, 0.5, 1.0)  # of the longest spin
LONGEST_NS = 50_000  # or what makes an epoch longer by half, where a loop dispatches too seldom to show this
STEPS = {"ops": 60, "model:train_function": 150}  # of a sample; an epoch for the others


def take(turn: Turn, round_: int) -> None:
    """One sample at each length of the wait, in an order that changes from round to round."""
    worker, case, process, *_ = turn
    loop, workload = case.contestant.loop, case.workload
    point = spin.point_of(loop)
    if point is None:
        raise WorkerFailed("declined", f"{loop} does not say where it dispatches")
    expected = spin.expected(point, workload)
    steps = min(STEPS.get(point.where, workload.steps), workload.steps)
    epochs = [process[0] for process in case.epochs()[-1:]]
    times = point.outlasts or 0.5
    least = LONGEST_NS * max(1.0, times)
    longest = max([least, *(1e9 * times * epoch_s / expected for epoch_s in epochs)])
    for level in np.random.default_rng(round_).permutation(LEVELS):
        answer = worker.ask("spin", spin_ns=int(level * longest), steps=steps)
        if answer["dispatches"] * workload.steps != expected * steps:
            made = f"{answer['dispatches']} dispatches in {steps} steps"
            raise WorkerFailed("failed", f"must make {expected} an epoch, made {made}")
        case.keep(f"spin:{level:g}", steps, process, round_, [answer["wall_ns"]])
        case.keep(f"spun:{level:g}", steps, process, round_, [answer["spun_ns"]])


def frame_of(records: Sequence[Record], workload: Workload) -> pd.DataFrame:
    """One row a loop: backend, expected dispatches an epoch, slope and hidden_us (Intervals over rounds), points.

    `points` is a frame of level, spin_us (mean wait a dispatch) and epoch_s, medians over rounds. The slope of
    a round is that of the least-squares line of its epoch's time against the time waited at a dispatch; of loops
    with `outlasts` in their point, against the longer waits. `hidden_us` is the wait at a dispatch at which that
    line leaves the epoch without waits; below 0, any wait at all costs that much more than it lasts.
    """
    rows = []
    for r in records:
        if r.op is not None or r.status != "ok" or not r.processes("spin:0") or not r.workload:
            continue
        point = spin.point_of(r.loop)
        if point is None:  # no longer in the table
            continue
        expected, steps = spin.expected(point, workload), workload.steps
        x, y = _per_step(r, "spun") * steps / expected, _per_step(r, "spin") * steps  # seconds: a wait, an epoch
        lasting = slice(1 if point.outlasts else 0, None)
        lines = [np.polyfit(x[lasting, i], y[lasting, i], 1) for i in range(x.shape[1])]
        hidden = [1e6 * (y[0, i] - start) / slope for i, (slope, start) in enumerate(lines)]
        points = pd.DataFrame({"spin_us": np.median(x, axis=1) * 1e6, "epoch_s": np.median(y, axis=1)})
        rows.append(
            {
                "backend": f"{r.loop} ({r.device})",
                "expected": expected,
                "slope": stats.difference_interval(slope for slope, _ in lines),
                "hidden_us": stats.difference_interval(hidden),
                "threaded": point.outlasts is not None,
                "points": points,
            }
        )
    return pd.DataFrame(rows)


def sentences(frame: pd.DataFrame) -> list[str]:
    """A line of Markdown a loop: how many of its dispatches it exposes."""
    lines = []
    for row in frame.itertuples():
        slope: Interval = row.slope
        share = slope.median / row.expected
        noun = "dispatch" if row.expected == 1 else "dispatches"
        if slope.high - slope.low > row.expected:
            lines.append(
                f"- **{row.backend}** makes {row.expected:,} {noun} an epoch; this run varied too much to tell "
                f"{'whether it exposes it' if row.expected == 1 else 'how many of them it exposes'} "
                f"(slope {_count_of(slope)})."
            )
            continue
        lines.append(
            f"- **{row.backend}** makes {row.expected:,} {noun} an epoch and exposes {_count_of(slope)} of "
            f"them ({share:.0%})" + _hidden(row)
        )
    return lines


def _hidden(row: Any) -> str:
    """The end of a sentence: what a dispatch may last before it costs anything, where some of it hides."""
    if not row.threaded:
        return "."
    hidden: Interval = row.hidden_us
    if hidden.low > 0:
        return f" once they last longer than the work that they hide behind, {tables.interval(hidden)} us each."
    if hidden.high < 0:
        cost = Interval(-hidden.median, -hidden.high, -hidden.low, hidden.n)
        return f"; any wait costs {tables.interval(cost)} us more than it lasts, since other threads fall asleep."
    return "."


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """A row a loop: dispatches expected, slope with interval, their ratio."""
    rows = []
    for row in frame.itertuples():
        s: Interval = row.slope
        of = [v / row.expected for v in (s.median, s.low, s.high)]
        rows.append(
            {
                "loop": row.backend,
                "dispatches an epoch": f"{row.expected:,}",
                "slope": _count_of(s),
                "slope / dispatches": tables.with_interval(*of),
                "hidden at a dispatch, us": tables.interval(row.hidden_us),
                "longest wait, us": f"{row.points['spin_us'].iloc[-1]:,.0f}",
                "rounds": s.n,
            }
        )
    return pd.DataFrame(rows)


def _per_step(record: Record, what: str) -> np.ndarray:
    """Seconds a step at each length of the wait: (levels, rounds)."""
    found = {f"{what}:{level:g}": [] for level in LEVELS}
    for samples in record.timing.samples if record.timing else []:
        if samples.clock in found:
            found[samples.clock] += [value / samples.steps for value in samples.values_s]
    return np.array(list(found.values()))


def _count_of(slope: Interval) -> str:
    if abs(slope.median) < 100:
        return tables.interval(slope)
    return f"{slope.median:,.0f} [{slope.low:,.0f}, {slope.high:,.0f}]"
