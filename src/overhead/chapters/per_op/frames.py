"""Chapter 1's records as frames: each operation of a step, and the step timed three ways."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from overhead.loops.base import STEP_OPS
from overhead.records import pairs, stats
from overhead.records.record import Record, without_clock
from overhead.records.stats import Interval

FRAME_COLUMNS = ["loop", "device", "backend", "op", "group", "median_us", "low_us", "high_us", "mean_us", "n"]
STEPS_COLUMNS = [
    "backend", "loop_name", "device", "sum", "unread", "loop", "reading", "difference", "ratio", "closure", "own",
]  # fmt: skip


class Frames:
    """The frames that every table, figure and sentence of the page is made from."""

    def frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a backend and op: loop, device, op, group, median_us, low_us, high_us, mean_us, n."""
        rows = []
        for record in records:
            if record.op in STEP_OPS and record.status == "ok":
                micro = [[s * 1e6 for s in process] for process in without_clock(record)]
                interval = stats.median_interval(micro)
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
                    "sum": interval_of(sums["us"]),
                    "unread": interval_of(unread["us"]),
                    "loop": interval_of(loop["us"]),
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


def interval_of(us: pd.Series) -> Interval:
    return stats.median_interval([us.to_numpy()])


def backend_of(record: Record) -> str:
    return f"{record.loop} ({record.device})"


def by_backend(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok":
            found.setdefault(backend_of(record), []).append(record)
    return found
