"""JAX traces → events: `xplane.pb` through `jax.profiler.ProfileData`, or `trace.json.gz`; CPU and GPU.

Only the names, times and the few statistics listed here are read: traces also hold paths of source files.
"""

from __future__ import annotations

import gzip
import json
import math
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.profiles import limits
from overhead.profiles.events import COPY_KINDS, Activities, Calls, Events, Kind, Ranges, api_name, valid_times
from overhead.profiles.limits import Deadline
from overhead.profiles.summary import ProfileError, Source, one_line
from overhead.profiles.xplane_size import messages

VIEWER_EVENTS = 1_000_000  # JAX writes no more into a trace.json.gz
STATS = {
    "hlo_op", "hlo_module", "run_id", "correlation_id", "step_num", "memcpy_details", "memset_details",
    "kernel_details",
}  # fmt: skip
RANGES = {"epoch", "train", "validate", "step"}  # annotations that `capture` writes
COPIES = {"H": "host", "D": "device", "P": "peer"}
NUMBER = {name: number for number, name in COPY_KINDS.items()}


class Event(NamedTuple):
    """An event of a trace: where it stands, what it is, when it was (ns), and its wanted statistics."""

    plane: str
    line: str
    name: str
    start: int
    duration: int
    stats: dict[str, str]


def read_xplane(path: Path) -> Events:
    """The events of a JAX `xplane.pb`. Raises `ProfileError` for a damaged or too large file, or without jax."""
    size = path.stat().st_size
    limits.check("bytes of an xplane.pb", limits.LARGEST_XPLANE_BYTES, size)
    deadline, raw = Deadline(size), path.read_bytes()
    if size > limits.SMALL_XPLANE_BYTES:
        most = limits.MOST_XPLANE_MESSAGES
        limits.check("events and their statistics in an xplane.pb", most, messages(raw, most))
    try:
        from jax.profiler import ProfileData
    except ImportError:
        raise ProfileError("reading an xplane.pb needs jax; the trace.json.gz beside it can be read without") from None
    with _quiet():
        try:
            found = list(_xplane(ProfileData.from_serialized_xspace(raw), deadline))
        except ProfileError:
            raise
        except (RuntimeError, ValueError, OverflowError, UnicodeDecodeError) as error:
            raise ProfileError(f"not a whole xplane.pb: {one_line(str(error))}") from None
    return _events("jax-xplane", found, deadline)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the C++ parser's remarks about damaged text out of the terminal; what is wrong is raised."""
    try:
        kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # no standard error, nothing to keep out
        yield
        return
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def _xplane(data: Any, deadline: Deadline) -> Iterator[Event]:
    for plane in data.planes:
        name = plane.name
        if not name.startswith(("/host:", "/device:")) or name == "/host:metadata":
            continue
        for line in plane.lines:
            label = line.name
            deadline.check()
            for event in line.events:
                text = event.name
                if text.startswith(("$", "Threadpool", "end: ")):  # the Python tracer's and the pool's own
                    continue
                stats = {key: str(value) for key, value in event.stats if key in STATS}
                yield Event(name, label, text, round(event.start_ns), round(event.duration_ns), stats)


def read_trace_json(path: Path) -> Events:
    """The events of a `trace.json.gz` or `trace.json`. Raises `ProfileError` for one that is damaged or too large."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            text = file.read(limits.LARGEST_JSON_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"not a whole gzip file: {error}") from None
    deadline = Deadline(len(text))
    brackets = text.count(b"{") + text.count(b"[")
    for what, most, got in (
        ("bytes of a trace, unpacked,", limits.LARGEST_JSON_BYTES, len(text)),
        ("brackets in a trace", limits.MOST_JSON_BRACKETS, brackets),
        ("commas in a trace", limits.MOST_JSON_COMMAS, text.count(b",")),
    ):
        if got > most:
            raise ProfileError(f"{what} must be at most {most:,}, got {got:,}; read the xplane.pb beside it")
    try:
        document = json.loads(text)
        rows = document.get("traceEvents") if isinstance(document, dict) else None
    except (ValueError, RecursionError) as error:
        raise ProfileError(f"not a trace in JSON: {one_line(str(error))}") from None
    if not isinstance(rows, list):
        raise ProfileError("not a trace in JSON: no list of traceEvents")
    events = _events("jax-trace-json", list(_trace_json(rows)), deadline)
    if len(rows) >= VIEWER_EVENTS:
        events.warnings.append("trace.json.gz holds at most a million events, later ones are lost: read the xplane.pb")
    return events


def _trace_json(rows: list[Any]) -> Iterator[Event]:
    planes: dict[Any, str] = {}
    lines: dict[Any, str] = {}
    rows = [row for row in rows if isinstance(row, dict)]
    for row in rows:
        if row.get("ph") == "M" and isinstance(row.get("args"), dict):
            label = str(row["args"].get("name"))
            if row.get("name") == "process_name":
                planes[str(row.get("pid"))] = label
            elif row.get("name") == "thread_name":
                lines[str(row.get("pid")), str(row.get("tid"))] = label
    for row in rows:
        name = str(row.get("name"))
        if row.get("ph") != "X" or name.startswith(("$", "Threadpool", "end: ")):
            continue
        pid = str(row.get("pid"))
        args = row.get("args")
        stats = {k: str(v) for k, v in args.items() if k in STATS} if isinstance(args, dict) else {}
        line = lines.get((pid, str(row.get("tid"))), "")
        yield Event(planes.get(pid, ""), line, name, _ns(row.get("ts")), _ns(row.get("dur", 0)), stats)


def _ns(us: Any) -> int:
    if isinstance(us, bool) or not isinstance(us, int | float) or not math.isfinite(us) or abs(us) > 2**52:
        raise ProfileError(f"a time must be a number of microseconds, got '{one_line(str(us), 40)}'")
    return round(us * 1000)


def _events(source: Source, trace: list[Event], deadline: Deadline) -> Events:
    """Sort a trace into host calls, activities and ranges, and link what ran to the call that started it."""
    deadline.check()
    device = [e for e in trace if e.plane.startswith("/device:") and e.line.startswith("Stream")]
    host = [e for e in trace if e.plane.startswith("/host:")]
    on_cpu = [e for e in host if e.stats.get("hlo_op") and not device]
    dispatches = _outermost([e for e in host if e.name.startswith("PjitFunction(")])
    started = {e.stats["correlation_id"] for e in device if e.stats.get("correlation_id")}
    driver = [
        e for e in host
        if (number := e.stats.get("correlation_id")) and (number in started or api_name(e.name).startswith("cu"))
    ]  # fmt: skip
    calls = _calls(dispatches + driver)
    ranges = _ranges([e for e in host if e.name in RANGES or "step_num" in e.stats])
    if device:
        call = {e.stats["correlation_id"]: row for row, e in enumerate(driver, len(dispatches))}
        return Events(source, calls, _on_gpu(device, call), ranges, deadline=deadline)
    activities, executions, warnings = _on_cpu(on_cpu, len(dispatches))
    return Events(source, calls, activities, ranges, executions, warnings=warnings, deadline=deadline)


def _outermost(events: list[Event]) -> list[Event]:
    """Events of a thread that lie in no other of the list, in order of time: a call is traced as nested twins."""
    found: list[Event] = []
    ends: dict[str, int] = {}
    for e in sorted(events, key=lambda e: (e.start, -e.duration)):
        end = e.start + e.duration
        last = ends.get(e.line, e.start)
        if e.start >= last:
            found.append(e)
        ends[e.line] = max(last, end)
    return found


def _codes(values: list[Any], what: str, most: int) -> tuple[list[Any], np.ndarray]:
    names = {value: code for code, value in enumerate(dict.fromkeys(values))}
    limits.check(what, most, len(names))
    return list(names), np.asarray([names[value] for value in values], np.int32)


def _times(events: list[Event]) -> tuple[np.ndarray, np.ndarray]:
    try:
        start = np.asarray([e.start for e in events], np.int64)
        end = np.asarray([e.start + e.duration for e in events], np.int64)
    except OverflowError:
        raise ProfileError("times must be 0 to 2^62 ns, the file is damaged") from None
    if not valid_times(start, end, "trace").all():
        raise ProfileError("an event ends before it starts: the file is damaged")
    return start, end


def _calls(events: list[Event]) -> Calls:
    names, name = _codes([api_name(e.name) for e in events], "names of calls", limits.MOST_NAMES)
    lines, thread = _codes([e.line for e in events], "threads", limits.MOST_THREADS)
    start, end = _times(events)
    return Calls(names, [(0, number) for number in range(len(lines))], start, end - start, name, thread)


def _ranges(events: list[Event]) -> Ranges:
    names, name = _codes([e.name for e in events], "names of ranges", limits.MOST_RANGE_NAMES)
    start, end = _times(events)
    return Ranges(names, start, end, name, np.zeros(len(events), np.int32))


def _activities(events: list[Event], kinds: list[Kind], devices: list[int | str], calls: list[int]) -> Activities:
    order = sorted(range(len(events)), key=lambda row: events[row].start)
    events, kinds = [events[row] for row in order], [kinds[row] for row in order]
    devices, calls = [devices[row] for row in order], [calls[row] for row in order]
    labels, device = _codes(devices, "devices", limits.MOST_DEVICES)
    names, name = _codes([e.name for e in events], "names of kernels and operations", limits.MOST_NAMES)
    _, stream = _codes([e.line for e in events], "streams", limits.MOST_THREADS)
    start, end = _times(events)
    copies = [_copy(e.name) if kind is Kind.COPY else 0 for e, kind in zip(events, kinds, strict=True)]
    return Activities(
        names, labels, start, end, np.asarray(kinds, np.uint8), device, stream, np.zeros(len(events), np.int32), name,
        np.asarray([_size(e) for e in events], np.int64), np.asarray(copies, np.int16), np.asarray(calls, np.int32),
    )  # fmt: skip


def _on_gpu(events: list[Event], call: dict[str, int]) -> Activities:
    kinds = [
        Kind.COPY if e.name.startswith("Memcpy") else Kind.MEMSET if e.name.startswith("Memset") else Kind.KERNEL
        for e in events
    ]
    devices: list[int | str] = [_device(e.plane.rpartition(":")[2]) for e in events]
    return _activities(events, kinds, devices, [call.get(e.stats.get("correlation_id", ""), -1) for e in events])


def _device(number: str) -> int | str:
    return int(number) if number.isdecimal() and len(number) < 5 else number


def _on_cpu(ops: list[Event], dispatches: int) -> tuple[Activities, int, list[str]]:
    """Operations and runs of programs. Runs belong to calls in order of time where there are as many of each."""
    runs: dict[str, list[Event]] = {}
    for e in ops:
        runs.setdefault(e.stats.get("run_id", ""), []).append(e)
    runs.pop("", None)
    order = sorted(runs, key=lambda run: min(e.start for e in runs[run]))
    warnings = []
    if order and len(order) != dispatches:
        warnings.append(f"{len(order)} runs of programs, {dispatches} calls: which call started which run is not known")
    call = {run: at if len(order) == dispatches else -1 for at, run in enumerate(order)}
    whole = []
    for run in order:
        start, end = min(e.start for e in runs[run]), max(e.start + e.duration for e in runs[run])
        first = runs[run][0]
        whole.append(first._replace(name=first.stats.get("hlo_module", "program"), start=start, duration=end - start))
    events = ops + whole
    kinds = [Kind.OP] * len(ops) + [Kind.RUN] * len(whole)
    rows = [call.get(e.stats.get("run_id", ""), -1) for e in ops] + [call[run] for run in order]
    return _activities(events, kinds, ["cpu"] * len(events), rows), len(order), warnings


def _size(event: Event) -> int:
    """Bytes of a copy or a memset, blocks of a kernel's grid; 0 where the trace does not tell."""
    grid = re.search(r"\bgrid:(\d{1,9}),(\d{1,5}),(\d{1,5})\b", event.stats.get("kernel_details", ""))
    if grid:
        return int(grid[1]) * int(grid[2]) * int(grid[3])
    details = event.stats.get("memcpy_details") or event.stats.get("memset_details") or ""
    match = re.search(r"\b(?:size|num_bytes):(\d{1,15})\b", details)
    return int(match[1]) if match else 0


def _copy(name: str) -> int:
    match = re.match(r"Memcpy([HDP])2([HDP])$", name)
    return NUMBER.get(f"{COPIES[match[1]]}-to-{COPIES[match[2]]}", 0) if match else 0
