"""Chapter 0: the clock and the harness, measured before anything is measured with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.chapters.clocks import figures
from overhead.chapters.clocks.arms import Arms
from overhead.chapters.clocks.runs import FAKE, Runs
from overhead.harness import comparisons, experiments
from overhead.harness.experiments import SHARES, Sizes
from overhead.loops import LOOPS
from overhead.loops.base import STEP_OPS
from overhead.machine import timer as timers
from overhead.measure.contestant import Contestant
from overhead.measure.session import Session
from overhead.problem.workload import LearningRate
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.figures import Figure, bars, error_bars

SIZES = {
    "quick": Sizes(comparisons=40, fresh=comparisons.PROCESSES, trials=1, trial_s=1.0, loads=1),
    "workshop": Sizes(comparisons=200, fresh=2 * comparisons.PROCESSES, trials=3, trial_s=3.0, loads=2),
    "full": Sizes(),
}
ASYNCHRONOUS = ["jax-step", "jax-epoch", "cupy"]  # their calls may return before the device is done
READING = "readings of the clock with nothing between them"
LOOKING = "a step timed op by op"


class Clocks(Arms, Runs, Chapter, frozen=True, strict=True, extra="forbid"):
    """What the clock can tell, and how the harness does on questions whose answer is known."""

    name: ClassVar[str] = "00-clocks"

    learning_rate: LearningRate = 0.1

    def contestants(self) -> list[Contestant]:
        """Loops whose cold runs and whose dispatch are shown, with a pretended device that always queues."""
        loops = [
            Contestant(name, device)
            for name in ASYNCHRONOUS
            for device in self.usable_devices()
            if device in LOOPS[name].devices
        ]
        fakes = [experiments.arm("a", f"{FAKE}:{name}") for name in ("Synchronised", "Unsynchronised")]
        return [experiments.arm("a"), *loops, *fakes]

    def take(self, session: Session) -> list[Record]:
        sizes = SIZES[self.preset]
        workload = experiments.WORKLOAD.model_copy(update={"learning_rate": self.learning_rate})
        return [
            *experiments.in_one_process(session, sizes, workload),
            *experiments.in_fresh_processes(session, sizes, workload),
            *experiments.beside_a_load(session, sizes, workload),
            *experiments.of_devices(self.contestants(), session, workload),
        ]

    def timer(self, records: Sequence[Record]) -> pages.Markdown:
        """What reading the clock costs, to remember."""
        clock = next((r.timer for r in records if r.timer), None)
        if clock is None:
            return pages.missing(READING, records)
        limit_us = timers.NEGLIGIBLE * clock["pair_cost_ns"] / 1000
        return pages.Markdown(
            f"**To remember: each look at the clock costs.** A start-stop pair of readings takes "
            f"{clock['pair_cost_ns']:.0f} ns here, and the smallest step from one reading to the next was "
            f"{clock['resolution_ns']:.0f} ns. Every sample holds {clock['empty_ns']:.0f} ns of its own reading, which "
            f"is taken off an op that is shorter than {timers.NEGLIGIBLE} pairs ({limit_us:.0f} us)."
        )

    def timer_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """What pairs of readings with nothing between them show, nanoseconds."""
        empty = [s * 1e9 for r in records if r.op == "timer" for p in r.processes("empty") for s in p]
        if not empty:
            return pages.missing(READING, records)
        alt = f"Nanoseconds shown by {len(empty)} start-stop pairs with nothing between: median {np.median(empty):.0f}"
        return figures.histogram(empty, "nanoseconds shown by a pair with nothing between", alt)

    def looking_frame(self, records: Sequence[Record]) -> dict[str, Interval]:
        """A NumPy step timed op by op, the same calls with one wait, and thirteen empty pairs, microseconds."""
        ops = [np.concatenate(_raw(r, "op")) for r in records if r.op in STEP_OPS and r.status == "ok"]
        step = next((r for r in records if r.op == "step" and r.status == "ok"), None)
        empty = next((r for r in records if r.op == "empty" and r.status == "ok"), None)
        if not ops or step is None or empty is None:
            return {}
        return {
            "thirteen timed ops, added up": stats.median_interval([1e6 * np.sum(ops, axis=0)]),
            "the same calls, one wait": stats.median_interval([1e6 * s for s in _raw(step, "unread")]),
            "thirteen empty pairs of readings": stats.median_interval([1e6 * s for s in _raw(empty, "op")]),
        }

    def looking(self, records: Sequence[Record]) -> pages.Markdown:
        """What timing each op costs, to remember."""
        found = self.looking_frame(records)
        if not found:
            return pages.missing(LOOKING, records)
        ops, calls, empty = found.values()
        return pages.Markdown(
            f"**To remember: thirteen looks are not free, and they forbid overlap.** A NumPy step, timed op by op, "
            f"adds up to {tables.interval(ops)} us; the same calls with one wait at the end take "
            f"{tables.interval(calls)} us (n = {ops.n} steps). Thirteen timed calls of nothing take "
            f"{tables.interval(empty)} us: that is the looking."
        )

    def looking_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """The step timed op by op, the same calls, and empty readings, microseconds."""
        found = self.looking_frame(records)
        if not found:
            return pages.missing(LOOKING, records)
        alt = "Microseconds a step: " + "; ".join(f"{name} {tables.number(i.median)}" for name, i in found.items())
        values = {"numpy (cpu)": [i.median for i in found.values()]}
        unit = "microseconds a step (median, 95 % interval; batch size 32)"
        return bars(list(found), values, unit, alt, {"numpy (cpu)": error_bars(found.values())})

    def table(self, records: Sequence[Record]) -> pages.Html:
        """Every comparison of this page in numbers."""
        quiet, together, apart = comparisons.beside_a_load(records)
        found = {f"injected {p} %": comparisons.trials(records, f"injection-{p}") for p in SHARES}
        found |= {"beside no load": [quiet] if quiet else [], "taking turns beside a load": together}
        found |= {"one after the other beside a load": apart}
        rows = [
            {"comparison": name, "trial": str(n), "ratio b / a": tables.interval(r, 4), "pairs": str(r.n),
             "verdict": stats.verdict(r)}
            for name, ratios in found.items() for n, r in enumerate(ratios, 1)
        ]  # fmt: skip
        # The share differs from record to record: of each kind of disturbance, the last that sorts.
        marks = {re.sub(r"\d+", "", mark): mark for mark in sorted(mark for r in records for mark in r.disturbed)}
        note = f" Disturbed: {'; '.join(marks.values())}." if marks else ""
        caption = pages.caption(records, self.settings) + "." + note
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "comparisons whose answer is known"))


def _raw(record: Record, clock: str) -> list[np.ndarray]:
    """Samples of one clock as they were read, seconds, a series a process."""
    chosen = [s for s in (record.timing.samples if record.timing else []) if s.clock == clock]
    return [np.array(s.values_s) for s in chosen]
