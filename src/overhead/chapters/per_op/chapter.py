"""Chapter 1: the thirteen operations of one training step, timed one by one, and what that looking costs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import BeforeValidator, Field

from overhead.chapters import pages
from overhead.chapters.base import Chapter, whole
from overhead.chapters.per_op.frames import Frames, added, backend_of, by_backend, interval_of
from overhead.loops import LOOPS, numpy_
from overhead.loops.base import STEP_OPS
from overhead.measure.contestant import Contestant
from overhead.measure.rounds import time_cases, time_ops
from overhead.measure.session import Session
from overhead.problem.workload import TRAINING_IMAGES, LearningRate, Workload
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables

BACKENDS = ["numpy", "tf-eager", "jax-op-by-op", "cupy"]
STEPS_A_TURN = 50
A_STEP = "a step op by op"
WAYS = {"sum": "sum of timed ops", "unread": "same calls, one wait", "loop": "the loop's own step"}


class PerOp(Frames, Chapter, frozen=True, strict=True, extra="forbid"):
    """Microseconds of each operation of a step, for every library that runs a step op by op."""

    name: ClassVar[str] = "01-per-op-breakdown"

    learning_rate: LearningRate = 0.1
    batch_size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=TRAINING_IMAGES)] = 32
    steps: Annotated[int, BeforeValidator(whole), Field(ge=STEPS_A_TURN, le=2000)] = 1000

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

    def code(self) -> pages.Markdown:
        """The thirteen operations as the source file of the NumPy loop has them."""
        return pages.source_of([numpy_.step_ops])

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
                lines.append(f"- **{backend_of(record)}** is missing: {record.reason}.")
        if not lines:
            return pages.missing(A_STEP, records)
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

    def figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """The thirteen ops side by side, a bar a backend, logarithmic microseconds."""
        frame = self.frame(records)
        if frame.empty:
            return pages.missing(A_STEP, records)
        backends = list(dict.fromkeys(frame["backend"]))
        values, spans = {}, {}
        for backend in backends:
            rows = frame[frame["backend"] == backend].set_index("op").reindex(list(STEP_OPS))
            values[backend] = rows["median_us"].tolist()
            spans[backend] = [rows["median_us"] - rows["low_us"], rows["high_us"] - rows["median_us"]]
        alt = f"Microseconds of each op at batch size {self.batch_size}: " + "; ".join(
            f"{row.backend} {row.op} {tables.number(row.median_us)}" for row in frame.itertuples()
        )
        unit = f"microseconds per op (median, 95 % interval; batch size {self.batch_size})"
        return figures.bars(list(STEP_OPS), values, unit, alt, spans)

    def steps_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """The step timed three ways, a row a backend: the gap between the markers is the cost of measuring."""
        frame = self.steps_frame(records)
        if frame.empty:
            return pages.missing(f"{A_STEP} and as a whole", records)
        names = frame["backend"].tolist()
        values = {WAYS[way]: [i.median for i in frame[way]] for way in WAYS}
        spans = {words: figures.error_bars(frame[way]) for way, words in WAYS.items()}
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
        for op, group in STEP_OPS.items() if len(frame) else ():
            row = {"op": op, "group": group}
            for found in frame[frame["op"] == op].itertuples():
                row[f"{found.backend}: median, us"] = tables.with_interval(found.median_us, found.low_us, found.high_us)
                row[f"{found.backend}: mean, us"] = tables.number(found.mean_us)
            rows.append(row)
        return pages.Html(tables.as_html(pd.DataFrame(rows), self._caption(records), A_STEP))

    def groups_table(self, records: Sequence[Record]) -> pages.Html:
        """Forward, loss, backward and update: the ops of each group added up step by step, microseconds."""
        rows = []
        backends = by_backend(records)
        for group in dict.fromkeys(STEP_OPS.values()) if backends else ():
            row: dict[str, Any] = {"group": group}
            for backend, of_backend in backends.items():
                chosen = [r for r in of_backend if STEP_OPS.get(r.op or "") == group]
                row[f"{backend}, us a step"] = _us(interval_of(added(chosen)["us"])) if chosen else tables.NOT_MEASURED
            rows.append(row)
        return pages.Html(tables.as_html(pd.DataFrame(rows), self._caption(records), A_STEP))

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
        return pages.Html(tables.as_html(pd.DataFrame(rows), self._caption(records), A_STEP))

    def _caption(self, records: Sequence[Record]) -> str:
        timed = next((r for r in records if r.status == "ok" and r.op in STEP_OPS), None)
        steps = sum(len(samples) for samples in timed.processes("op")) if timed else 0
        return f"n = {steps:,} steps a backend in turns of {STEPS_A_TURN}. " + pages.caption(records, self.settings)


def _us(interval: Interval) -> str:
    return tables.interval(interval)
