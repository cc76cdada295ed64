"""Chapter 1's records as frames: each operation of a step, and the step timed three ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from overhead.loops.base import STEP_OPS
from overhead.records import pairs, stats
from overhead.records.levels import levels, over_turns
from overhead.records.record import Record, without_clock
from overhead.records.stats import Interval

FRAME_COLUMNS = ["loop", "device", "backend", "op", "group", "median_us", "low_us", "high_us", "mean_us", "n"]
STEPS_COLUMNS = [
    "backend", "loop_name", "device", "sum", "unread", "loop", "reading", "difference", "ratio", "closure", "own",
]  # fmt: skip


class Frames:
    """The frames that every table, figure and sentence of the page is made from."""

    def frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a backend and op: loop, device, op, group, median_us, low_us, high_us, mean_us, n (turns)."""
        rows = []
        for record in records:
            if record.op in STEP_OPS and record.status == "ok":
                micro = [[s * 1e6 for s in process] for process in without_clock(record)]
                interval = over_turns(_by_set(pairs.typical(_rounds(record, micro))))
                rows.append(
                    {
                        "loop": record.loop,
                        "device": record.device,
                        "backend": backend_of(record),
                        "op": record.op,
                        "group": STEP_OPS[record.op],
                        "median_us": interval.median,
                        "low_us": interval.low,
                        "high_us": interval.high,
                        "mean_us": stats.mean(micro),
                        "n": interval.n,
                    }
                )
        return pd.DataFrame(rows, columns=FRAME_COLUMNS)

    def two_levels(self, records: Sequence[Record]) -> list[str]:
        """In words, each way of timing a step whose turns fall into two levels, with both."""
        told = []
        for backend, of_backend in by_backend(records).items():
            ops = [r for r in of_backend if r.op in STEP_OPS]
            whole = next((r for r in of_backend if r.op == "step"), None)
            if not ops or whole is None:
                continue
            ways = {"sum of timed ops": added(ops), "same calls, one wait": _samples(whole, "unread")}
            for way, samples in {**ways, "the loop's own step": _samples(whole, "wall")}.items():
                if two := levels([us for turns in _by_set(_turns(samples)) for us in turns]):
                    told.append(
                        f"{backend}, {way}: {two.low:.0f} us in {two.at_low} and {two.high:.0f} us in {two.at_high}"
                    )
        return told

    def steps_frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a backend: the step timed three ways, and what the timing costs, microseconds a step.

        `sum` adds up the thirteen ops of each step; `unread` is the same thunks in order with one wait at the end;
        `loop` is the loop's own step. `reading` is what the sum exceeds unread by for thirteen empty calls: the
        clock's part. `difference` (sum - unread), `ratio` (sum / unread) and `closure` ((sum - reading) / unread)
        pair the medians of the same turn.
        """
        rows = []
        for backend, of_backend in by_backend(records).items():
            ops = [r for r in of_backend if r.op in STEP_OPS]
            whole = next((r for r in of_backend if r.op == "step"), None)
            empty = next((r for r in of_backend if r.op == "empty"), None)
            if not ops or whole is None or empty is None:
                continue
            sums, unread, loop = added(ops), _samples(whole, "unread"), _samples(whole, "wall")
            reading = float(_samples(empty, "op")["us"].median() - _samples(empty, "unread")["us"].median())
            of_sum, of_unread, of_loop = _turns(sums), _turns(unread), _turns(loop)
            shared = pairs.joined(of_sum, of_unread, of_loop)
            if not shared:
                continue
            less_reading = {set_: {t: us - reading for t, us in turns.items()} for set_, turns in of_sum.items()}
            rows.append(
                {
                    "backend": backend,
                    "loop_name": ops[0].loop,
                    "device": ops[0].device,
                    "sum": interval_of(sums),
                    "unread": interval_of(unread),
                    "loop": interval_of(loop),
                    "reading": reading,
                    "difference": stats.difference_interval(
                        summed - plain for turns in shared for summed, plain, _ in turns
                    ),
                    "ratio": pairs.ratio(of_sum, of_unread),
                    "closure": pairs.ratio(less_reading, of_unread),
                    "own": pairs.ratio(of_loop, of_unread),
                }
            )
        return pd.DataFrame(rows, columns=STEPS_COLUMNS)


def _samples(record: Record, clock: str) -> pd.DataFrame:
    """Samples of one clock: set, process, round, us (a step)."""
    parts = [
        pd.DataFrame(
            {"set": s.set_number, "process": s.process, "round": s.round, "us": np.array(s.values_s) / s.steps * 1e6}
        )
        for s in (record.timing.samples if record.timing else [])
        if s.clock == clock
    ]
    return pd.concat(parts, ignore_index=True)


def added(ops: Sequence[Record]) -> pd.DataFrame:
    """The ops of each step added up: set, process, round, us.

    By position: the ops of a step are sampled one after the other in one call, so equal places are one step.
    """
    each = [_samples(record, "op") for record in ops]
    return each[0].assign(us=sum(frame["us"] for frame in each))


def _turns(samples: pd.DataFrame) -> pairs.Rounds:
    """The median microseconds of each turn."""
    return pairs.typical(list(zip(samples["set"], samples["round"], samples["us"], strict=True)))


def interval_of(samples: pd.DataFrame) -> Interval:
    """Over turns: the steps of one turn are not independent of each other. `n` is the number of turns."""
    return over_turns(_by_set(_turns(samples)))


def _by_set(turns: pairs.Rounds) -> list[list[float]]:
    return [list(of_set.values()) for of_set in turns.values()]


def _rounds(record: Record, micro: Sequence[Sequence[float]]) -> list[tuple[int, int, float]]:
    """(process, round, us) of an op's samples, from its values in the order of `Record.processes`."""
    numbers: dict[int, list[int]] = {}
    for samples in record.timing.samples if record.timing else []:
        if samples.clock == "op":
            numbers.setdefault(samples.process, []).extend(samples.round)
    return [
        (process, round_, us)
        for process, of_process in zip(sorted(numbers), micro, strict=True)
        for round_, us in zip(numbers[process], of_process, strict=True)
    ]


def backend_of(record: Record) -> str:
    return f"{record.loop} ({record.device})"


def by_backend(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok":
            found.setdefault(backend_of(record), []).append(record)
    return found
