"""Events → summary: totals, and the same by process, device and named range."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from overhead.profiles.counts import count, duration_ns, groups, launched, names_of, queue_ns
from overhead.profiles.events import Bools, Events, Ints, Kind, inside, median, merge, total, union_ns, within
from overhead.profiles.summary import NO_ACTIVITY, BusyRow, Counts, Part, ProfileSummary, ThreeTimes, most_frequent

MOST_RANGES = 50  # range names with parts of their own; libraries mark thousands
MOST_ROWS = 500  # pairs of call and kernel in `three_times`


class Idle(NamedTuple):
    """A device's gaps: start, length and cause (0: waiting for the host, 1: the next work was queued, 2: unknown)."""

    start: Ints
    length: Ints
    cause: Ints

    def within(self, low: Ints, high: Ints, cause: int) -> int:
        """Time of the gaps of one cause inside disjoint windows."""
        of = self.cause == cause
        start = self.start[of]
        return within(start, start + self.length[of], low, high)


def summarise(events: Events) -> ProfileSummary:
    """The summary of a profile whose single events are known."""
    calls, activities, ranges = events.calls, events.activities, events.ranges
    warnings = list(events.warnings)
    everything = np.ones(len(activities), bool)
    whole = count(events, np.ones(len(calls), bool), everything)
    span = _span(events)
    idle = [_idle(events, device) for device in range(len(activities.devices))]
    pids = {pid for pid, _ in calls.threads}.union(*(np.unique(f.process).tolist() for f in (activities, ranges)))
    pids = pids - {0} or pids  # 0 stands for a process that an event does not name
    three, more = _three_times(events)
    names = np.unique(ranges.name)
    if not len(calls) and not len(activities):
        warnings.append(NO_ACTIVITY)
    if len(names) > MOST_RANGES:
        warnings.append(f"{len(names) - MOST_RANGES} range names beyond the {MOST_RANGES} longest are not shown")
    if more:
        warnings.append(f"{more} pairs of call and kernel beyond the {MOST_ROWS} most frequent are not shown")
    if whole.kernels and whole.kernels.unmatched:
        warnings.append(
            f"{whole.kernels.unmatched} kernels were launched by calls outside this profile: "
            "they have no queue time and belong to no range"
        )
    return ProfileSummary(
        source=events.source,
        processes=len(pids) or None,
        devices=len(activities.devices) or None,
        span_ns=span,
        executions=events.executions,
        graph_trace=events.graph_trace,
        kernel_names=names_of(events, everything, Kind.KERNEL),
        three_times=three,
        parts=(
            *_by_process(events, sorted(pids), idle, span),
            *_by_device(events, idle, span),
            *_by_range(events, idle, span),
        ),
        warnings=tuple(warnings),
        busy=_busy(events, everything, idle, span),
        **_fields(whole),
    )


def _fields(counts: Counts) -> dict[str, Any]:
    return {name: getattr(counts, name) for name in Counts.model_fields if name != "busy"}


def _span(events: Events) -> int | None:
    starts, ends = [], []
    for found in (events.activities, events.ranges):
        if len(found):
            starts.append(int(found.start.min()))
            ends.append(int(found.end.max()))
    calls = events.calls
    if len(calls):
        starts.append(int(calls.start.min()))
        last = 0
        for i in range(0, len(calls), 1_000_000):  # a large export's ends would be one more column
            last = max(last, int((calls.start[i : i + 1_000_000] + calls.duration[i : i + 1_000_000]).max()))
        ends.append(last)
    return max(ends) - min(starts) if starts else None


def _idle(events: Events, device: int) -> Idle:
    a, calls = events.activities, events.calls
    at = np.flatnonzero((a.device == device) & (a.kind != Kind.RUN))
    start, end = merge(a.start[at], a.end[at])
    if len(start) < 2:
        return Idle(*(np.empty(0, np.int64) for _ in range(3)))
    dry, next_start = end[:-1], start[1:]
    call = a.call[at[np.searchsorted(a.start[at], next_start)]]
    cause = np.full(len(dry), 2, np.uint8)
    if len(calls):
        returned = calls.start[call] + calls.duration[call]
        cause = np.where(call < 0, 2, returned <= dry).astype(np.uint8)
    length = next_start - dry
    return Idle(dry, length.astype(np.uint32) if length.max() < 1 << 32 else length, cause)


def _busy(
    events: Events, chosen: Bools, idle: list[Idle], span: int | None,
    window: tuple[Ints, Ints] | None = None,
) -> tuple[BusyRow, ...]:  # fmt: skip
    """A row a device that has some of the chosen activities, within disjoint windows or its own span."""
    a, rows = events.activities, []
    for device, label in enumerate(a.devices):
        mine = chosen & (a.device == device) & (a.kind != Kind.RUN)
        start, end = a.start[mine], a.end[mine]
        if not len(start):
            continue
        if window is None:
            low, high = start.min(keepdims=True), end.max(keepdims=True)
            whole, union = total(end - start), union_ns(start, end)
        else:
            low, high = window
            whole, union = within(start, end, low, high), within(*merge(start, end), low, high)
        length = total(high - low)
        del start, end
        causes = [idle[device].within(low, high, cause) for cause in range(3)]
        rows.append(
            BusyRow(
                device=label, span_ns=length, union_ns=union, sum_ns=whole,
                busy_share=union / length if length else None,
                idle_host_ns=causes[0], idle_gap_ns=causes[1], idle_unknown_ns=causes[2],
                profile_share=union / span if span else None,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: str(row.device)))


def _calls_of(events: Events, pids: set[int]) -> Bools:
    """The calls of some processes."""
    calls = events.calls
    mine = np.asarray([pid in pids for pid, _ in calls.threads], bool)
    return np.ones(len(calls), bool) if mine.all() else mine[calls.thread]


def _by_process(events: Events, pids: list[int], idle: list[Idle], span: int | None) -> list[Part]:
    parts = []
    for pid in pids:
        events.check_time()
        activity = events.activities.process == pid
        counts = count(events, _calls_of(events, {pid}), activity)
        busy = _busy(events, activity, idle, span)
        parts.append(Part(by="process", name=str(pid), process=pid, busy=busy, **_fields(counts)))
    return parts


def _by_device(events: Events, idle: list[Idle], span: int | None) -> list[Part]:
    """A device has the calls of the processes that use no other, and those that are known to have started its work."""
    a, parts = events.activities, []
    for device, label in enumerate(a.devices):
        events.check_time()
        mine = a.device == device
        pids = set(np.unique(a.process[mine]).tolist()) - set(np.unique(a.process[~mine]).tolist())
        call = _calls_of(events, pids).copy()
        call[a.call[mine & (a.call >= 0)]] = True
        busy = _busy(events, mine, idle, span)
        parts.append(Part(by="device", name=str(label), busy=busy, **_fields(count(events, call, mine))))
    return sorted(parts, key=lambda part: part.name)


def _by_range(events: Events, idle: list[Idle], span: int | None) -> list[Part]:
    """A range has the calls of its process that began inside it, on any thread, and what they started.

    Frameworks launch from threads of their own, so the thread that entered the range does not tell.
    """
    ranges, calls, a = events.ranges, events.calls, events.activities
    parts = []
    for name, rows in groups(ranges.name, len(ranges.names)):
        events.check_time()
        for pid in np.unique(ranges.process[rows]).tolist():
            mine = rows[ranges.process[rows] == pid]
            parts.append((total(ranges.end[mine] - ranges.start[mine]), name, pid, mine))
    parts.sort(key=lambda part: (-part[0], ranges.names[part[1]], part[2]))
    shown = []
    for _, name, pid, mine in parts[:MOST_RANGES]:
        events.check_time()
        low, high = merge(ranges.start[mine], ranges.end[mine])
        call = inside(calls.start, low, high) & _calls_of(events, {pid})
        activity = (a.call >= 0) & call[a.call] if len(calls) else np.zeros(len(a), bool)
        busy = _busy(events, a.process == pid, idle, span, (low, high))
        shown.append(
            Part(
                by="range", name=ranges.names[name], process=pid, count=len(mine), span_ns=total(high - low),
                busy=busy, **_fields(count(events, call, activity)),
            )
        )  # fmt: skip
    return shown


def _three_times(events: Events) -> tuple[tuple[ThreeTimes, ...], int]:
    """Call, queue and kernel medians by thread, device, call and kernel; and how many rows were left out."""
    a, calls = events.activities, events.calls
    at = launched(events, np.ones(len(a), bool))
    if not len(at):
        return (), 0
    columns = (calls.thread[a.call[at]], a.device[at], calls.name[a.call[at]], a.name[at])
    sizes = [len(calls.threads), len(a.devices), len(calls.names), len(a.names)]
    pair = np.zeros(len(at), np.int32 if math.prod(sizes) < 2**31 else np.int64)
    for column, size in zip(columns, sizes, strict=True):
        pair *= size
        pair += column.astype(pair.dtype)
    del columns
    distinct, counts = _occurring(pair, math.prod(sizes))
    rows = []
    for code in distinct[np.argsort(-counts, kind="stable")][:MOST_ROWS].tolist():
        events.check_time()
        these = at[pair == code]
        call, queue = a.call[these], queue_ns(events, these)
        late, (pid, tid) = queue[queue >= 0], calls.threads[calls.thread[call[0]]]
        row = ThreeTimes(
            process=pid, thread=tid, device=a.devices[a.device[these[0]]],
            api=calls.names[calls.name[call[0]]], kernel=a.names[a.name[these[0]]],
            count=len(these), queued=len(late), api_median_ns=median(calls.duration[call]),
            queue_median_ns=median(late), kernel_median_ns=median(duration_ns(events, these)),
        )  # fmt: skip
        rows.append(row)
    rows.sort(key=most_frequent)
    return tuple(rows), max(0, len(distinct) - MOST_ROWS)


def _occurring(codes: Ints, bound: int) -> tuple[Ints, Ints]:
    """The distinct codes, all below `bound`, and how often each occurs."""
    if bound > 1_000_000:
        return np.unique(codes, return_counts=True)
    counts = np.bincount(codes)
    return np.flatnonzero(counts), counts[counts > 0]
