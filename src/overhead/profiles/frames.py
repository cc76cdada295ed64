"""What the profile chapter draws, as pandas frames. Names are plain text: escape them where markup is written."""

from __future__ import annotations

import numpy as np
import pandas as pd

from overhead.profiles.events import Events, Kind
from overhead.profiles.summary import ProfileError, ProfileSummary, one_line

LABEL_LENGTH = 60
MOST_INTERVALS = 5_000  # more cannot be told apart in a figure


def label(name: str, length: int = LABEL_LENGTH) -> str:
    """A name for a figure: printable, at most `length` characters, and with no `$` for Matplotlib to read as math."""
    return one_line(name, length).replace("$", r"\$")


def three_times(summary: ProfileSummary) -> pd.DataFrame:
    """Host call, queue and kernel side by side, a row a pair of call and kernel; medians in us.

    Columns: process, device, api, kernel, count, queued, api_us, queue_us, kernel_us. A queue time is absent
    where no kernel of the row waited for its call to return.
    """
    rows = [(*row.model_dump(exclude={"thread"}).values(),) for row in summary.three_times]
    names = ["process", "device", "api", "kernel", "count", "queued", "api_us", "queue_us", "kernel_us"]
    frame = pd.DataFrame(rows, columns=names)
    times = ["api_us", "queue_us", "kernel_us"]
    frame[times] = frame[times].astype(float) / 1000
    return frame


def totals(summary: ProfileSummary) -> pd.DataFrame:
    """The sums that are often set beside the wall time, with what each counts: time, total_ms, share_of_wall.

    Only the union is a share. Absent rows were not measured.
    """
    rows: list[tuple[str, int | None]] = [
        ("wall span", summary.span_ns),
        ("host calls, sum", sum(r.total_ns for r in summary.api if not r.waiting) if summary.api else None),
        ("waiting calls, sum", sum(r.total_ns for r in summary.waits) if summary.api else None),
        ("queue times, sum", summary.queue.total_ns if summary.queue else None),
        ("kernels, sum", summary.kernels.total_ns if summary.kernels else None),
    ]
    rows += [(f"device {row.device} busy, union", row.union_ns) for row in summary.busy]
    frame = pd.DataFrame([row for row in rows if row[1] is not None], columns=["time", "total_ms"])
    frame["share_of_wall"] = frame["total_ms"] / summary.span_ns if summary.span_ns else np.nan
    frame["total_ms"] /= 1e6
    return frame


def ranges(summary: ProfileSummary) -> pd.DataFrame:
    """What happened in each named range.

    Columns: range, process, entered, total_ms, launches, graph_launches, kernels, busy_share (largest device's).
    """
    rows = [
        (
            part.name,
            part.process,
            part.count,
            None if part.span_ns is None else part.span_ns / 1e6,
            part.launches.total if part.launches else None,
            part.launches.graph if part.launches else None,
            part.kernels.count if part.kernels else None,
            max((row.busy_share or 0.0 for row in part.busy), default=None),
        )
        for part in summary.parts
        if part.by == "range"
    ]
    names = ["range", "process", "entered", "total_ms", "launches", "graph_launches", "kernels", "busy_share"]
    return pd.DataFrame(rows, columns=names)


def timeline(
    events: Events, start_ns: int | None = None, length_ns: int = 1_000_000, *, range_name: str | None = None,
    first: int = 0, count: int = 3, process: int | None = None,
) -> pd.DataFrame:  # fmt: skip
    """A few steps drawn to scale: lane, start_us, end_us, kind, name, sorted by lane and time.

    The window is that of entries `first` to `first + count` of the range `range_name`; else `length_ns` from
    `start_ns`, which counts from the start of the profile (None: the first activity with a known launch).
    An interval that is cut by the window is clipped. Raises `ProfileError` for a range that is not there.
    """
    calls, a, r = events.calls, events.activities, events.ranges
    begins = [int(f.start.min()) for f in (calls, a, r) if len(f)]
    zero = min(begins, default=0)
    if range_name is not None:
        low, high = _window(events, range_name, first, count, process)
    else:
        known = np.flatnonzero(a.call >= 0)
        begin = int(calls.start[a.call[known]].min()) if len(known) else zero
        low = begin if start_ns is None else zero + start_ns
        high = low + length_ns
    rows: list[tuple[str, int, int, str, str]] = []
    pids = np.asarray([pid for pid, _ in calls.threads])
    for i in np.flatnonzero((calls.start < high) & (calls.start + calls.duration > low)).tolist():
        if process is None or pids[calls.thread[i]] == process:
            pid, tid = calls.threads[calls.thread[i]]
            start, end = int(calls.start[i]), int(calls.start[i]) + int(calls.duration[i])
            rows.append((f"host {pid}/{tid}", start, end, "call", calls.names[calls.name[i]]))
    for i in np.flatnonzero((a.start < high) & (a.end > low) & (a.kind != Kind.RUN)).tolist():
        if process is None or a.process[i] == process:
            lane = f"device {a.devices[a.device[i]]} stream {a.stream[i]}"
            rows.append((lane, int(a.start[i]), int(a.end[i]), Kind(a.kind[i]).name.lower(), a.names[a.name[i]]))
    for i in np.flatnonzero((r.start < high) & (r.end > low)).tolist():
        if process is None or r.process[i] == process:
            rows.append((f"range {r.process[i]}", int(r.start[i]), int(r.end[i]), "range", r.names[r.name[i]]))
    if len(rows) > MOST_INTERVALS:
        raise ProfileError(f"a timeline shows at most {MOST_INTERVALS} intervals, this window has {len(rows)}")
    frame = pd.DataFrame(rows, columns=["lane", "start_us", "end_us", "kind", "name"])
    for column in ("start_us", "end_us"):
        frame[column] = (frame[column].astype("int64").clip(low, high) - low) / 1000
    return frame.sort_values(["lane", "start_us", "end_us"], ignore_index=True)


def _window(events: Events, name: str, first: int, count: int, process: int | None) -> tuple[int, int]:
    r = events.ranges
    mine = np.flatnonzero(np.asarray([n == name for n in r.names], bool)[r.name]) if r.names else np.empty(0, int)
    if process is not None:
        mine = mine[r.process[mine] == process]
    mine = mine[np.argsort(r.start[mine], kind="stable")][first : first + count]
    if not len(mine):
        known = ", ".join(r.names[:20]) or "none"
        raise ProfileError(f"range must be one of {known}, entered more than {first} times, got {name!r}")
    return int(r.start[mine].min()), int(r.end[mine].max())


def grid_sizes(events: Events, sm_count: int) -> pd.DataFrame:
    """Blocks launched by kernels: blocks, kernels, fewer_than_sms, sorted by blocks.

    Blocks launched, not SMs active: a grid smaller than the device's `sm_count` cannot use them all, a
    larger one need not. Kernels of unknown grid are left out.
    """
    a = events.activities
    blocks = a.size[(a.kind == Kind.KERNEL) & (a.size > 0)]
    sizes, kernels = np.unique(blocks, return_counts=True)
    return pd.DataFrame({"blocks": sizes, "kernels": kernels, "fewer_than_sms": sizes < sm_count})
