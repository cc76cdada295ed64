"""Chapter 0: the clock and the harness, measured before anything is measured with them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.chapters.clocks import figures as clock_figures
from overhead.harness import experiments
from overhead.harness import self_check as selfcheck
from overhead.harness.experiments import PAIRS, SHARES, Sizes
from overhead.loops import LOOPS
from overhead.loops.base import STEP_OPS
from overhead.machine import timer as timers
from overhead.measure.contestant import Contestant
from overhead.measure.session import Session
from overhead.problem.workload import LearningRate
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables

SIZES = {
    "quick": Sizes(comparisons=40, fresh=selfcheck.PROCESSES, trials=1, trial_s=1.0, loads=1),
    "workshop": Sizes(comparisons=200, fresh=2 * selfcheck.PROCESSES, trials=3, trial_s=3.0, loads=2),
    "full": Sizes(),
}
Shown = figures.Figure | pages.Markdown  # a drawing, or what is missing for it
FAKE = "overhead.harness.fake_device"
ASYNCHRONOUS = ["jax-step", "jax-epoch", "cupy"]  # their calls may return before the device is done


class Clocks(Chapter, frozen=True, strict=True, extra="forbid"):
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

    # The clock

    def timer(self, records: Sequence[Record]) -> pages.Markdown:
        """What reading the clock costs, to remember."""
        clock = _timer(records)
        if clock is None:
            return _missing(records)
        limit_us = timers.NEGLIGIBLE * clock["pair_cost_ns"] / 1000
        return pages.Markdown(
            f"**To remember: each look at the clock costs.** A start-stop pair of readings takes "
            f"{clock['pair_cost_ns']:.0f} ns here, and the smallest step from one reading to the next was "
            f"{clock['resolution_ns']:.0f} ns. Every sample holds {clock['empty_ns']:.0f} ns of its own reading, which "
            f"is taken off an op that is shorter than {timers.NEGLIGIBLE} pairs ({limit_us:.0f} us)."
        )

    def timer_figure(self, records: Sequence[Record]) -> Shown:
        """What pairs of readings with nothing between them show, nanoseconds."""
        empty = [s * 1e9 for r in records if r.op == "timer" for p in r.processes("empty") for s in p]
        if not empty:
            return pages.missing("readings of the clock with nothing between them", records)
        alt = f"Nanoseconds shown by {len(empty)} start-stop pairs with nothing between: median {np.median(empty):.0f}"
        return clock_figures.histogram(empty, "nanoseconds shown by a pair with nothing between", alt)

    # A loop against itself

    def itself(self, records: Sequence[Record]) -> pages.Markdown:
        """How often a loop is called different from itself, to remember."""
        found = selfcheck.comparisons(records)
        if not found:
            return _missing(records)
        called = selfcheck.different(found)
        _, low, high = selfcheck.share_of(called, len(found))
        text = (
            f"**To remember: a method that is right 95 % of the time cries wolf one time in twenty.** Here {called} of "
            f"{len(found)} comparisons of the NumPy loop with itself in one process, {PAIRS} pairs each, were called "
            f"different: {100 * called / len(found):.1f} % [{100 * low:.1f}, {100 * high:.1f}], where 5 % are expected."
        )
        for count in (1, selfcheck.PROCESSES):
            fresh = selfcheck.fresh_comparisons(records, count)
            if fresh:
                each = "one fresh process" if count == 1 else f"{count} fresh processes"
                text += f" With {each} for each arm it was {selfcheck.different(fresh)} of {len(fresh)}."
        return pages.Markdown(text)

    def itself_figure(self, records: Sequence[Record]) -> Shown:
        """The ratios of a loop with itself, in one process and in fresh ones, with intervals."""
        groups = {
            "one process": selfcheck.comparisons(records),
            "fresh processes:\none each": selfcheck.fresh_comparisons(records, 1),
            f"{selfcheck.PROCESSES} each": selfcheck.fresh_comparisons(records, selfcheck.PROCESSES),
        }
        if not any(groups.values()):
            return pages.missing("a loop beside itself", records)
        alt = "Ratios of a loop with itself: " + "; ".join(
            f"{' '.join(name.split())}: {selfcheck.different(found)} of {len(found)} called different"
            for name, found in groups.items()
        )
        return clock_figures.intervals(groups, f"time / time of the same loop\n(95 % interval, {PAIRS} pairs)", alt)

    # A known slowdown

    def slowdown(self, records: Sequence[Record]) -> pages.Markdown:
        """Whether an injected slowdown is found again, to remember."""
        found = {p: ratios for p in SHARES if (ratios := selfcheck.trials(records, f"injection-{p}"))}
        if not found:
            return _missing(records)
        ratios = [ratio for trials in found.values() for ratio in trials]
        right = sum(selfcheck.recovered(ratio, p / 100) for p, trials in found.items() for ratio in trials)
        seen = [p for p, trials in found.items() if all(stats.verdict(ratio) == "slower" for ratio in trials)]
        least = "Of no slowdown did the interval exclude 1 in every trial"
        if seen:
            least = f"The smallest slowdown whose interval excluded 1 in every trial was {min(seen)} %"
        return pages.Markdown(
            f"**To remember: what is smaller than its interval has not been seen.** "
            f"{least}; {right} of {len(ratios)} trials came within half a point "
            f"of what was injected, or within the half-width of their interval ({min(r.n for r in ratios)} to "
            f"{max(r.n for r in ratios)} pairs a trial)."
        )

    def slowdown_figure(self, records: Sequence[Record]) -> Shown:
        """Slowdowns found against slowdowns injected, percent."""
        found = {p: selfcheck.trials(records, f"injection-{p}") for p in SHARES}
        if not any(found.values()):
            return pages.missing("a slowdown of known size", records)
        alt = "Slowdown injected and found: " + "; ".join(
            f"{p} %: " + ", ".join(f"{100 * (r.median - 1):.1f}" for r in trials) for p, trials in found.items()
        )
        return clock_figures.recovered(found, alt)

    # Forgetting to wait

    def devices_frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a contestant: name, status, reason, first_s, and intervals of dispatch and wall, milliseconds."""
        rows = []
        for record in [r for r in records if r.op is None]:
            row: dict[str, Any] = {"name": _name(record), "status": record.status, "reason": record.reason}
            if record.status == "ok" and record.timing:
                row["first_s"] = record.timing.first_s
                for clock in ("dispatch", "wall"):
                    row[clock] = stats.median_interval([[1e3 * s for s in p] for p in record.processes(clock)])
                row["runs_s"] = [record.timing.first_s, *record.processes("wall")[0]]
            rows.append(row)
        return pd.DataFrame(rows, columns=["name", "status", "reason", "first_s", *CLOCKS, "runs_s"])

    def waiting(self, records: Sequence[Record]) -> pages.Markdown:
        """What a clock that is stopped too early shows, to remember."""
        frame = self.devices_frame(records)
        if frame.empty:
            return _missing(records)
        timed = frame[frame["status"] == "ok"]
        caught = frame[frame["name"].str.startswith("pretended device that")]
        lines = [
            f"- **{row.name}**: the call returned after {tables.interval(row.dispatch)} ms, the device was done after "
            f"{tables.interval(row.wall)} ms (n = {row.wall.n})."
            for row in timed.itertuples()
        ]
        lines += [
            f"- **{row.name}** was not timed: {row.status}, {pages.plain(row.reason)}." for row in caught.itertuples()
        ]
        missing = frame[(frame["status"] != "ok") & ~frame["name"].isin(caught["name"])]
        lines += [f"- **{row.name}** is missing: {pages.plain(row.reason)}." for row in missing.itertuples()]
        return pages.Markdown(
            "**To remember: a clock that stops when the call returns times the handing over, not the work.**\n\n"
            + "\n".join(lines)
        )

    def waiting_figure(self, records: Sequence[Record]) -> Shown:
        """Dispatch against wall time of the same runs, milliseconds."""
        timed = self.devices_frame(records).query("status == 'ok'")
        if timed.empty:
            return pages.missing("when a call returns and when the device is done", records)
        values = {label: [i.median for i in timed[clock]] for clock, label in CLOCKS.items()}
        spans = {
            label: np.array([[i.median - i.low for i in timed[clock]], [i.high - i.median for i in timed[clock]]])
            for clock, label in CLOCKS.items()
        }
        alt = "Milliseconds of a run of 100 steps: " + "; ".join(
            f"{row.name}: returned {tables.number(row.dispatch.median)}, done {tables.number(row.wall.median)}"
            for row in timed.itertuples()
        )
        unit = "milliseconds for 100 steps (median, 95 % interval; batch size 32)"
        return figures.dots(timed["name"].tolist(), values, unit, alt, spans)

    # Timing each op

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
            return _missing(records)
        ops, calls, empty = found.values()
        return pages.Markdown(
            f"**To remember: thirteen looks are not free, and they forbid overlap.** A NumPy step, timed op by op, "
            f"adds up to {tables.interval(ops)} us; the same calls with one wait at the end take "
            f"{tables.interval(calls)} us (n = {ops.n} steps). Thirteen timed calls of nothing take "
            f"{tables.interval(empty)} us: that is the looking."
        )

    def looking_figure(self, records: Sequence[Record]) -> Shown:
        """The step timed op by op, the same calls, and empty readings, microseconds."""
        found = self.looking_frame(records)
        if not found:
            return pages.missing("a step timed op by op", records)
        spans = [[i.median - i.low for i in found.values()], [i.high - i.median for i in found.values()]]
        alt = "Microseconds a step: " + "; ".join(f"{name} {tables.number(i.median)}" for name, i in found.items())
        values = {"numpy (cpu)": [i.median for i in found.values()]}
        unit = "microseconds a step (median, 95 % interval; batch size 32)"
        return figures.bars(list(found), values, unit, alt, {"numpy (cpu)": spans})

    # Beside a load

    def beside(self, records: Sequence[Record]) -> pages.Markdown:
        """What a load that comes and goes does to both ways of comparing, to remember."""
        quiet, together, apart = selfcheck.load_ratios(records)
        if quiet is None or not together or not apart:
            return _missing(records)
        return pages.Markdown(
            f"**To remember: compare in pairs, never one after the other.** Arm b takes {experiments.MORE} times the "
            f"steps of arm a. Without the load it took {tables.interval(quiet)} times as long ({quiet.n} pairs). With "
            f"a load on the same core that comes and goes: {_listed(together)} where the arms took turns, "
            f"{_listed(apart)} where one ran after the other."
        )

    def beside_figure(self, records: Sequence[Record]) -> Shown:
        """Samples of both arms in order beside a load, interleaved and one after the other, milliseconds."""
        _, together, apart = selfcheck.load_ratios(records)
        panels = {}
        for title, op, ratios, turns in (
            ("taking turns", "load interleaved 1", together, True),
            ("one after the other", "load one-after-the-other 1", apart, False),
        ):
            a, b = selfcheck.arms(records, op)
            if ratios:
                panels[f"{title}:\n{tables.interval(ratios[0])} times"] = (a[0], b[0], turns)
        if not panels:
            return pages.missing("two arms beside a load", records)
        alt = f"Samples of two arms beside a load. {'; '.join(' '.join(panel.split()) for panel in panels)}"
        return clock_figures.schedules(panels, alt)

    # Cold and steady

    def cold(self, records: Sequence[Record]) -> pages.Markdown:
        """How the first run differs from later ones, to remember."""
        frame = self.devices_frame(records).query("status == 'ok'")
        frame = frame[~frame["name"].str.startswith("pretended")]
        if frame.empty:
            return _missing(records)
        lines = []
        for row in frame.itertuples():
            steady = stats.drift(row.runs_s[1:])
            lines.append(
                f"- **{row.name}**: the first run took {tables.number(1e3 * row.first_s)} ms, later ones "
                f"{tables.interval(row.wall)} ms (n = {row.wall.n}; {steady.reason}): the first took "
                f"{tables.number(1e3 * row.first_s / row.wall.median)} times as long."
            )
        return pages.Markdown(
            "**To remember: the first run does other work: it compiles, allocates and fills caches.** It is kept, and "
            "kept apart.\n\n" + "\n".join(lines)
        )

    def cold_figure(self, records: Sequence[Record]) -> Shown:
        """The first run and later ones in order, milliseconds."""
        frame = self.devices_frame(records).query("status == 'ok'")
        frame = frame[~frame["name"].str.startswith("pretended")]
        if frame.empty:
            return pages.missing("the first run of a loop beside later ones", records)
        series = {row.name: [1e3 * s for s in row.runs_s] for row in frame.itertuples()}
        alt = "Milliseconds of the first run and the median later one: " + "; ".join(
            f"{row.name} {tables.number(1e3 * row.first_s)}, {tables.number(row.wall.median)}"
            for row in frame.itertuples()
        )
        return clock_figures.runs(series, "milliseconds for 100 steps", alt)

    def table(self, records: Sequence[Record]) -> pages.Html:
        """Every comparison of this page in numbers."""
        quiet, together, apart = selfcheck.load_ratios(records)
        found = {f"injected {p} %": selfcheck.trials(records, f"injection-{p}") for p in SHARES}
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


CLOCKS = {"dispatch": "the call returned", "wall": "the device was done"}


def _timer(records: Sequence[Record]) -> dict[str, float] | None:
    return next((r.timer for r in records if r.timer), None)


def _raw(record: Record, clock: str) -> list[np.ndarray]:
    """Samples of one clock as they were read, seconds, a series a process."""
    chosen = [s for s in (record.timing.samples if record.timing else []) if s.clock == clock]
    return [np.array(s.values_s) for s in chosen]


def _name(record: Record) -> str:
    if record.loop == f"{FAKE}:Synchronised":
        return "pretended device"
    if record.loop == f"{FAKE}:Unsynchronised":
        return "pretended device that nobody waits for"
    return f"{record.loop} ({record.device})"


def _listed(ratios: Sequence[Interval]) -> str:
    return ", ".join(tables.interval(ratio) for ratio in ratios)


def _missing(records: Sequence[Record]) -> pages.Markdown:
    reason = next((r.reason for r in records if r.reason), "no samples were taken")
    return pages.Markdown(f"This was not measured on this host: {pages.plain(reason)}.")
