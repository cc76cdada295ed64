"""Chapter 0's runs of whole loops: when the call returned, when the device was done, and how the first run differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from overhead.chapters import pages
from overhead.chapters.clocks import figures
from overhead.records import stats
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.figures import Figure, dots, error_bars

FAKE = "overhead.harness.fake_device"
PRETENDED = {
    f"{FAKE}:Synchronised": "pretended device",
    f"{FAKE}:Unsynchronised": "pretended device that nobody waits for",
}
CLOCKS = {"dispatch": "the call returned", "wall": "the device was done"}
WAITING = "when a call returns and when the device is done"
COLD = "the first run of a loop beside later ones"


class Runs:
    """The part of the page that shows what a stopped clock says of a run, and how the first run differs."""

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
            return pages.missing(WAITING, records)
        return pages.Markdown(
            "**To remember: a clock that stops when the call returns times the handing over, not the work.**\n\n"
            + "\n".join(_told(row) for row in frame.itertuples())
        )

    def waiting_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """Dispatch against wall time of the same runs, milliseconds."""
        timed = self.devices_frame(records).query("status == 'ok'")
        if timed.empty:
            return pages.missing(WAITING, records)
        values = {label: [i.median for i in timed[clock]] for clock, label in CLOCKS.items()}
        spans = {label: error_bars(timed[clock]) for clock, label in CLOCKS.items()}
        alt = "Milliseconds of a run of 100 steps: " + "; ".join(
            f"{row.name}: returned {tables.number(row.dispatch.median)}, done {tables.number(row.wall.median)}"
            for row in timed.itertuples()
        )
        unit = "milliseconds for 100 steps (median, 95 % interval; batch size 32)"
        return dots(timed["name"].tolist(), values, unit, alt, spans)

    def cold(self, records: Sequence[Record]) -> pages.Markdown:
        """How the first run differs from later ones, to remember."""
        frame = self._loops(records)
        if frame.empty:
            return pages.missing(COLD, records)
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

    def cold_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """The first run and later ones in order, milliseconds."""
        frame = self._loops(records)
        if frame.empty:
            return pages.missing(COLD, records)
        series = {row.name: [1e3 * s for s in row.runs_s] for row in frame.itertuples()}
        alt = "Milliseconds of the first run and the median later one: " + "; ".join(
            f"{row.name} {tables.number(1e3 * row.first_s)}, {tables.number(row.wall.median)}"
            for row in frame.itertuples()
        )
        return figures.runs(series, "milliseconds for 100 steps", alt)

    def _loops(self, records: Sequence[Record]) -> pd.DataFrame:
        """The frame's rows of loops that were timed, without pretended devices."""
        frame = self.devices_frame(records)
        return frame[(frame["status"] == "ok") & ~frame["name"].isin(PRETENDED.values())]


def _told(row: Any) -> str:
    """A contestant's line: both of its times, or why it has none."""
    if row.status == "ok":
        return (
            f"- **{row.name}**: the call returned after {tables.interval(row.dispatch)} ms, the device was done after "
            f"{tables.interval(row.wall)} ms (n = {row.wall.n})."
        )
    refused = row.name in PRETENDED.values()
    return f"- **{row.name}** " + (f"was not timed: {row.status}, " if refused else "is missing: ") + f"{row.reason}."


def _name(record: Record) -> str:
    return PRETENDED.get(record.loop, f"{record.loop} ({record.device})")
