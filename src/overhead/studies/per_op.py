"""Chapter 1: the thirteen operations of one training step, timed one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field

from overhead import figures, runner, stats, tables
from overhead.contestant import Contestant
from overhead.loops import LOOPS, numpy_
from overhead.loops.base import STEP_OPS
from overhead.records import Record
from overhead.stats import Interval
from overhead.studies import pages
from overhead.studies.base import Study
from overhead.workload import TRAINING_IMAGES, Workload

BACKENDS = ["numpy", "tf-eager"]
STEPS_A_TURN = 50


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"must be a whole number, got {value!r}")
    return value


class PerOp(Study, frozen=True, strict=True, extra="forbid"):
    """Microseconds of each operation of a step, for every library that runs a step op by op."""

    stem: ClassVar[str] = "01-per-op-breakdown"

    batch_size: Annotated[int, BeforeValidator(_count), Field(ge=1, le=TRAINING_IMAGES)] = 32
    steps: Annotated[int, BeforeValidator(_count), Field(ge=STEPS_A_TURN, le=2000)] = 1000

    def contestants(self) -> list[Contestant]:
        """Every backend on every device of this host."""
        devices = self.usable_devices()
        return [Contestant(name, device) for name in BACKENDS for device in devices if device in LOOPS[name].devices]

    def take(self, bench: runner.Bench) -> list[Record]:
        """`steps` steps in turns of 50, all samples kept."""
        turns = -(-self.steps // STEPS_A_TURN)
        counted = bench._replace(preset=bench.preset._replace(target=0.0, processes=1, rounds=(turns, turns)))
        workload = Workload(batch_size=self.batch_size, learning_rate=self.learning_rate)
        cases = runner.time_cases(self.contestants(), [workload], counted, partial(runner.time_ops, steps=STEPS_A_TURN))
        return [record for case in cases for record in case.op_records(bench.provenance)]

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
                micro = [[s * 1e6 for s in process] for process in record.processes("op")]
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
        """One row a backend: the ops' sum per step, the same thunks without readings, the loop's own step, in us."""
        rows = []
        for backend, of_backend in _by_backend(records).items():
            ops = [r for r in of_backend if r.op in STEP_OPS]
            whole = next((r for r in of_backend if r.op == "step"), None)
            if not ops or whole is None:
                continue
            sums = np.sum([np.concatenate(r.processes("op")) for r in ops], axis=0) * 1e6
            unread = [[s * 1e6 for s in p] for p in whole.processes("unread")]
            flat = [
                [v / s.steps * 1e6 for v in s.values_s] for s in (whole.timing.samples if whole.timing else [])
                if s.clock == "wall"
            ]  # fmt: skip
            rows.append(
                {
                    "backend": backend,
                    "sum": stats.median_interval([sums.tolist()]),
                    "unread": stats.median_interval(unread),
                    "loop": stats.median_interval(flat),
                    "ratio": stats.paired_ratio([sums.tolist()], unread),
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
            share = most["median_us"] / ops["median_us"].sum()
            cost: Interval = row.ratio
            lines.append(
                f"- **{row.backend}**: the thirteen ops add up to {_us(row.sum)} us a step. The largest is "
                f"`{most['op']}` with {tables.number(most['median_us'])} us ({share:.0%} of the sum). Timing each op "
                f"by itself makes the step {tables.interval(cost)} times as long as the same calls in order "
                f"with one wait at the end ({_us(row.unread)} us)."
            )
        for record in records:
            if record.status != "ok":
                lines.append(f"- **{_backend(record)}** is missing: {record.reason}.")
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
        n = int(frame["n"].max()) if len(frame) else 0
        caption = f"n = {n} steps a backend. " + pages.caption(records, self.settings)
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption))

    def groups_table(self, records: Sequence[Record]) -> pages.Html:
        """Forward, loss, backward and update: sums of the ops' medians, microseconds."""
        frame = self.frame(records)
        backends = list(dict.fromkeys(frame["backend"]))
        rows = []
        for group in dict.fromkeys(STEP_OPS.values()):
            row: dict[str, Any] = {"group": group}
            for backend in backends:
                chosen = frame[(frame["backend"] == backend) & (frame["group"] == group)]
                row[f"{backend}, us"] = tables.number(chosen["median_us"].sum())
            rows.append(row)
        return pages.Html(tables.as_html(pd.DataFrame(rows), "Sums of the ops' medians, microseconds a step"))

    def steps_table(self, records: Sequence[Record]) -> pages.Html:
        """The sum of the ops, the same calls unread, the loop's own step, and the cost of measuring."""
        rows = []
        for row in self.steps_frame(records).itertuples():
            rows.append(
                {
                    "backend": row.backend,
                    "sum of timed ops, us": _us(row.sum),
                    "same calls, one wait, us": _us(row.unread),
                    "the loop's own step, us": _us(row.loop),
                    "sum / same calls": tables.interval(row.ratio),
                }
            )
        return pages.Html(tables.as_html(pd.DataFrame(rows), pages.caption(records, self.settings)))


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
