"""What is counted of some calls and some device activities: launches, waits, queue times, kernels, copies."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from overhead.profiles import events as ev
from overhead.profiles.events import BLOCK, Bools, Events, Ints, Kind, median, total
from overhead.profiles.summary import ApiRow, CopyRow, Counts, KernelRow, Kernels, Launches, Queue, WaitRow


def count(events: Events, call: Bools, activity: Bools) -> Counts:
    """What is counted of some calls and some activities, all but the busy share."""
    calls, activities = events.calls, events.activities
    if not len(calls) and not len(activities):
        return Counts()
    on_cpu = activities.kind >= Kind.OP
    if len(activities) and on_cpu.all():  # a trace of a CPU measured no launch, kernel or copy
        api = _api(events, call)
        return Counts(
            api=api,
            waits=_waits(api),
            queue=_queue(events, activity),
            ops=names_of(events, activity, Kind.OP),
        )
    api = _api(events, call)
    kernel = sum(row.count for row in api if ev.launches_kernel(row.name))
    kernel += int(call[events.starters].sum())  # whatever its name, a call that started kernels is a launch
    graph = sum(row.count for row in api if ev.launches_graph(row.name))
    memset, no_memsets = activity & (activities.kind == Kind.MEMSET), "memsets" in events.unknown
    graphs = int((activity & (activities.kind == Kind.GRAPH)).sum())
    return Counts(
        launches=None if "calls" in events.unknown else Launches(kernel=kernel, graph=graph, total=kernel + graph),
        api=api,
        waits=_waits(api),
        queue=_queue(events, activity),
        kernels=None if "kernels" in events.unknown else _kernels(events, activity),
        copies=_copies(events, activity),
        memsets=None if no_memsets else int(memset.sum()),
        memset_ns=None if no_memsets else total(activities.end[memset] - activities.start[memset]),
        graphs=graphs or None,
    )


def groups(codes: Ints, names: int) -> list[tuple[int, Ints]]:
    """Each code that occurs, with its rows."""
    if names <= 64:  # a scan a name: no column of row numbers for a large export
        return [(code, rows) for code in range(names) if len(rows := np.flatnonzero(codes == code))]
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    return [(int(codes[rows[0]]), rows) for rows in np.split(order, cuts) if len(rows)]


def _split(values: Ints, codes: Ints, names: int) -> Iterator[tuple[int, Ints]]:
    """A copy of the values of each code that occurs."""
    if names <= 64:  # masks, not row numbers, for a large export
        for code in range(names):
            if len(found := values[codes == code]):
                yield code, found
    else:
        for code, rows in groups(codes, names):
            yield code, values[rows]


def _api(events: Events, chosen: Bools) -> tuple[ApiRow, ...]:
    calls = events.calls
    if not len(calls):
        return ()
    name, duration = (calls.name, calls.duration) if chosen.all() else (calls.name[chosen], calls.duration[chosen])
    rows = [
        ApiRow(name=text, count=len(found), total_ns=total(found), median_ns=median(found), waiting=ev.waits(text))
        for code, found in _split(duration, name, len(calls.names))
        for text in [calls.names[code]]
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _waits(api: tuple[ApiRow, ...]) -> tuple[WaitRow, ...]:
    return tuple(WaitRow(**row.model_dump(exclude={"waiting"})) for row in api if row.waiting)


def names_of(events: Events, chosen: Bools, kind: Kind) -> tuple[KernelRow, ...]:
    a = events.activities
    at = np.flatnonzero(chosen & (a.kind == kind))
    rows = [
        KernelRow(name=a.names[code], count=len(found), total_ns=total(found), median_ns=median(found))
        for code, found in _split(duration_ns(events, at), a.name[at], len(a.names))
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))


def _kernels(events: Events, chosen: Bools) -> Kernels:
    a = events.activities
    at = np.flatnonzero(chosen & (a.kind == Kind.KERNEL))
    duration = duration_ns(events, at)
    matched = None if "calls" in events.unknown else int((a.call[at] >= 0).sum())
    return Kernels(
        count=len(at),
        total_ns=total(duration),
        median_ns=median(duration),
        matched=matched,
        unmatched=None if matched is None else len(at) - matched,
    )


def queue_ns(events: Events, at: Ints) -> Ints:
    """Start of the activities in rows `at` less the end of their call; all must have one. Negative: early."""
    calls, a = events.calls, events.activities
    found = np.empty(len(at), np.int64)
    for i in range(0, len(at), BLOCK):  # by blocks: a large export has no memory to spare
        rows = at[i : i + BLOCK]
        call = a.call[rows]
        found[i : i + BLOCK] = a.start[rows] - (calls.start[call] + calls.duration[call])
    return found


def duration_ns(events: Events, at: Ints) -> Ints:
    """Lengths of the activities in rows `at`."""
    found = events.activities.end[at]
    found -= events.activities.start[at]
    return found


def launched(events: Events, chosen: Bools) -> Ints:
    """Rows of the kernels (on a CPU: of the runs of compiled programs) with a known launch."""
    kind = events.activities.kind
    at = np.flatnonzero(chosen & ((kind == Kind.KERNEL) | (kind == Kind.RUN)))
    return at[events.activities.call[at] >= 0]


def _queue(events: Events, chosen: Bools) -> Queue | None:
    at = launched(events, chosen)
    if not len(at):
        return None
    times = queue_ns(events, at)
    late = times[times >= 0]
    return Queue(count=len(late), total_ns=total(late), median_ns=median(late), early=len(times) - len(late))


def _copies(events: Events, chosen: Bools) -> tuple[CopyRow, ...]:
    a = events.activities
    at = np.flatnonzero(chosen & (a.kind == Kind.COPY))
    return tuple(
        CopyRow(
            kind=ev.COPY_KINDS.get(kind, "unknown"),
            count=len(rows),
            bytes=total(a.size[rows]),
            total_ns=total(duration_ns(events, rows)),
        )
        for kind in np.unique(a.copy[at]).tolist()
        for rows in [at[a.copy[at] == kind]]
    )
