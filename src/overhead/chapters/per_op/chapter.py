"""Chapter 1: the thirteen operations of one training step, timed one by one, and what that looking costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.loops import LOOPS, numpy_
from overhead.loops.base import STEP_OPS
from overhead.measure.contestant import Contestant
from overhead.measure.rounds import time_cases, time_ops
from overhead.measure.session import Session
from overhead.problem.workload import TRAINING_IMAGES, LearningRate, Workload
from overhead.records import stats
from overhead.records.record import Record, without_clock
from overhead.records.stats import Interval
from overhead.showing import figures, tables

BACKENDS = ["numpy", "tf-eager", "jax-op-by-op", "cupy"]
STEPS_A_TURN = 50
WAYS = {"sum": "sum of timed ops", "unread": "same calls, one wait", "loop": "the loop's own step"}


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, got {value!r}")
    return value


class PerOp(Chapter, frozen=True, strict=True, extra="forbid"):
    """Microseconds of each operation of a step, for every library that runs a step op by op."""

    name: ClassVar[str] = "01-per-op-breakdown"

    learning_rate: LearningRate = 0.1
    batch_size: Annotated[int, BeforeValidator(_count), Field(ge=1, le=TRAINING_IMAGES)] = 32
    steps: Annotated[int, BeforeValidator(_count), Field(ge=STEPS_A_TURN, le=2000)] = 1000

    def contestants(self) -> list[Contestant]:
        """Every backend on every device of this host."""
        devices = self.usable_devices()
        return [Contestant(name, device) for name in BACKENDS for device in devices if device in LOOPS[name].devices]

    def take(self, session: Session) -> list[Record]:
        """`steps` steps in turns of 50, all samples kept."""
        turns = -(-self.steps // STEPS_A_TURN)
        counted = session._replace(
            preset=session.preset._replace(target=0.0, processes=1, rounds=(turns, turns)), learns=False
        )
        workload = Workload(batch_size=self.batch_size, learning_rate=self.learning_rate)
        cases = time_cases(self.contestants(), [workload], counted, partial(time_ops, steps=STEPS_A_TURN))
        return [record for case in cases for record in case.op_records(session.provenance)]

    def host_card(self) -> pages.Html:
        """The host and the parameters of this page."""
        return pages.host_card(self)

    def code(self) -> pages.Markdown:
        """The thirteen operations as the source file of the NumPy loop has them."""
        return pages.source_of([numpy_.step_ops])

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
                        "backend": _backend(record),
                        "op": record.op,
                        "group": STEP_OPS[record.op],
                        "median_us": interval.median,
                        "low_us": interval.low,
                        "high_us": interval.high,
                        "mean_us": stats.mean(micro),
                        "n": interval.n,
                    }
                )
        return pd.DataFrame(rows)

    def steps_frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a backend: the step timed three ways, and what the timing costs, microseconds a step.

        `sum` adds up the thirteen ops of each step; `unread` is the same thunks in order with one wait at the end;
        `loop` is the loop's own step. `reading` is what the sum exceeds unread by for thirteen empty calls: the
        clock's part. `difference` (sum - unread), `ratio` (sum / unread) and `closure` ((sum - reading) / unread)
        pair the medians of the same turn.
        """
        rows = []
        for backend, of_backend in _by_backend(records).items():
            ops = [r for r in of_backend if r.op in STEP_OPS]
            whole = next((r for r in of_backend if r.op == "step"), None)
            empty = next((r for r in of_backend if r.op == "empty"), None)
            if not ops or whole is None or empty is None:
                continue
            sums, unread, loop = _added(ops), _samples(whole, "unread"), _samples(whole, "wall")
            reading = float(_samples(empty, "op")["us"].median() - _samples(empty, "unread")["us"].median())
            turns = pd.concat({"sum": _turns(sums), "unread": _turns(unread), "loop": _turns(loop)}, axis=1).dropna()
            rows.append(
                {
                    "backend": backend,
                    "loop_name": ops[0].loop,
                    "device": ops[0].device,
                    "sum": _interval(sums["us"]),
                    "unread": _interval(unread["us"]),
                    "loop": _interval(loop["us"]),
                    "reading": reading,
                    "difference": difference_interval(turns["sum"] - turns["unread"]),
                    "ratio": stats.paired_ratio([turns["sum"].tolist()], [turns["unread"].tolist()]),
                    "closure": stats.paired_ratio([(turns["sum"] - reading).tolist()], [turns["unread"].tolist()]),
                    "own": stats.paired_ratio([turns["loop"].tolist()], [turns["unread"].tolist()]),
                }
            )
        return pd.DataFrame(rows)

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What this host's records say, in words."""
        frame, steps = self.frame(records), self.steps_frame(records)
        lines = []
        for row in steps.itertuples():
            ops = frame[frame["backend"] == row.backend]
            most = ops.loc[ops["median_us"].idxmax()]
            share = most["median_us"] / row.sum.median
            lines.append(
                f"- **{row.backend}**: the thirteen ops add up to {_us(row.sum)} us a step. The largest is "
                f"`{most['op']}` with {tables.number(most['median_us'])} us ({share:.1%} of the sum). Timed one by one "
                f"they take {_us(row.difference)} us more than the same calls in order with one wait at the end "
                f"({_us(row.unread)} us; {tables.interval(row.ratio)} times as long)."
            )
        for record in records:
            if record.status != "ok":
                lines.append(f"- **{_backend(record)}** is missing: {record.reason}.")
        return pages.Markdown("\n".join(lines))

    def confounding(self, records: Sequence[Record]) -> pages.Markdown:
        """How much of the gap between NumPy and TensorFlow is the waiting, the framework and the device, in words."""
        steps = self.steps_frame(records)
        rows = {row.backend: row for row in steps.itertuples()}
        ours = rows.get("numpy (cpu)")
        others = [row for name, row in rows.items() if row.loop_name == "tf-eager"]
        if ours is None or not others:
            return pages.Markdown("NumPy and TensorFlow were not both timed on this host, so there is no gap to split.")
        lines = []
        for row in others:
            waited, free = row.sum.median / ours.sum.median, row.unread.median / ours.unread.median
            lines.append(
                f"- **{row.backend}** against **numpy (cpu)**: {tables.number(waited)} times the time when every op is "
                f"waited for and timed, {tables.number(free)} times when one wait ends the step. The waits and the "
                f"readings are {_us(row.difference)} us of TensorFlow's sum."
            )
        cpu, gpu = rows.get("tf-eager (cpu)"), rows.get("tf-eager (gpu)")
        if cpu is not None and gpu is not None:
            moved = gpu.sum.median / cpu.sum.median
            lines.append(
                f"- The same library on both devices: the GPU's step takes {tables.number(moved)} times the CPU's when "
                f"waited for, {tables.number(gpu.unread.median / cpu.unread.median)} times when not. Only this pair "
                "compares devices; NumPy against TensorFlow on a GPU changes library, waiting and device at once."
            )
        else:
            lines.append(
                "- Both ran on the same processor here, so none of this gap is the device: it is the library, and the "
                "waiting. A comparison of NumPy on a CPU with TensorFlow on a GPU carries the same gap inside it."
            )
        return pages.Markdown("\n".join(lines))

    def figure(self, records: Sequence[Record]) -> figures.Figure:
        """The thirteen ops side by side, a bar a backend, logarithmic microseconds."""
        frame = self.frame(records)
        backends = list(dict.fromkeys(frame["backend"]))
        values, spans = {}, {}
        for backend in backends:
            rows = frame[frame["backend"] == backend].set_index("op").loc[list(STEP_OPS)]
            values[backend] = rows["median_us"].tolist()
            spans[backend] = [rows["median_us"] - rows["low_us"], rows["high_us"] - rows["median_us"]]
        alt = f"Microseconds of each op at batch size {self.batch_size}: " + "; ".join(
            f"{row.backend} {row.op} {tables.number(row.median_us)}" for row in frame.itertuples()
        )
        unit = f"microseconds per op (median, 95 % interval; batch size {self.batch_size})"
        return figures.bars(list(STEP_OPS), values, unit, alt, spans)

    def steps_figure(self, records: Sequence[Record]) -> figures.Figure:
        """The step timed three ways, a row a backend: the gap between the markers is the cost of measuring."""
        frame = self.steps_frame(records)
        names = frame["backend"].tolist()
        values = {WAYS[way]: [i.median for i in frame[way]] for way in WAYS}
        spans = {
            WAYS[way]: np.array([[i.median - i.low for i in frame[way]], [i.high - i.median for i in frame[way]]])
            for way in WAYS
        }
        alt = f"Microseconds of a step at batch size {self.batch_size}, timed three ways: " + "; ".join(
            f"{name} {way} {tables.number(value)}"
            for way, of_way in values.items()
            for name, value in zip(names, of_way, strict=True)
        )
        unit = f"microseconds per step (median, 95 % interval; batch size {self.batch_size})"
        return figures.dots(names, values, unit, alt, spans)

    def table(self, records: Sequence[Record]) -> pages.Html:
        """A row an op, a column a backend: median with interval and mean, microseconds."""
        frame = self.frame(records)
        rows: list[dict[str, str]] = []
        for op, group in STEP_OPS.items():
            row = {"op": op, "group": group}
            for found in frame[frame["op"] == op].itertuples():
                row[f"{found.backend}: median, us"] = tables.with_interval(found.median_us, found.low_us, found.high_us)
                row[f"{found.backend}: mean, us"] = tables.number(found.mean_us)
            rows.append(row)
        return pages.Html(tables.as_html(pd.DataFrame(rows), self._caption(records)))

    def groups_table(self, records: Sequence[Record]) -> pages.Html:
        """Forward, loss, backward and update: the ops of each group added up step by step, microseconds."""
        rows = []
        for group in dict.fromkeys(STEP_OPS.values()):
            row: dict[str, Any] = {"group": group}
            for backend, of_backend in _by_backend(records).items():
                chosen = [r for r in of_backend if STEP_OPS.get(r.op or "") == group]
                row[f"{backend}, us a step"] = _us(_interval(_added(chosen)["us"])) if chosen else tables.NOT_MEASURED
            rows.append(row)
        return pages.Html(tables.as_html(pd.DataFrame(rows), self._caption(records)))

    def steps_table(self, records: Sequence[Record]) -> pages.Html:
        """The step timed three ways, the cost of measuring, and whether the ops' sum closes, microseconds a step."""
        rows = []
        for row in self.steps_frame(records).itertuples():
            rows.append(
                {
                    "backend": row.backend,
                    "sum of timed ops, us": _us(row.sum),
                    "same calls, one wait, us": _us(row.unread),
                    "cost of measuring, us": _us(row.difference),
                    "of it the clock, us": tables.number(row.reading),
                    "(sum - clock) / same calls": tables.interval(row.closure),
                    "the loop's own step, us": _us(row.loop),
                    "own step / same calls": tables.interval(row.own),
                    "turns": f"{row.difference.n}",
                }
            )
        return pages.Html(tables.as_html(pd.DataFrame(rows), self._caption(records)))

    def _caption(self, records: Sequence[Record]) -> str:
        timed = next((r for r in records if r.status == "ok" and r.op in STEP_OPS), None)
        steps = sum(len(samples) for samples in timed.processes("op")) if timed else 0
        return f"n = {steps:,} steps a backend in turns of {STEPS_A_TURN}. " + pages.caption(records, self.settings)


def difference_interval(differences: Iterable[float], level: float = 0.95) -> Interval:
    """The median of paired differences and its interval (sign test); unlike a time it may be negative.

    Raises `ValueError` when there is none.
    """
    ordered = np.sort(np.asarray(list(differences), dtype=float))
    if not ordered.size:
        raise ValueError("differences must hold at least one pair, got none")
    first, last = stats.order_statistics(ordered.size, level)
    return Interval(float(np.median(ordered)), float(ordered[first]), float(ordered[last]), ordered.size)


def _samples(record: Record, clock: str) -> pd.DataFrame:
    """Samples of one clock: process, round, us (a step)."""
    parts = [
        pd.DataFrame({"process": s.process, "round": s.round, "us": np.array(s.values_s) / s.steps * 1e6})
        for s in (record.timing.samples if record.timing else [])
        if s.clock == clock
    ]
    return pd.concat(parts, ignore_index=True)


def _added(ops: Sequence[Record]) -> pd.DataFrame:
    """The ops of each step added up: process, round, us."""
    each = [_samples(record, "op") for record in ops]
    return each[0].assign(us=sum(frame["us"] for frame in each))


def _turns(samples: pd.DataFrame) -> pd.Series:
    return samples.groupby("round")["us"].median()


def _interval(us: pd.Series) -> Interval:
    return stats.median_interval([us.to_numpy()])


def _us(interval: Interval) -> str:
    return tables.interval(interval)


def _backend(record: Record) -> str:
    return f"{record.loop} ({record.device})"


def _by_backend(records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok":
            found.setdefault(_backend(record), []).append(record)
    return found
