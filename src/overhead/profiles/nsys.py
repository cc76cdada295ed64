"""Nsight Systems SQLite exports of any version → events. Opened read-only; nothing is written beside them.

Tables and columns exist only when there was data for them, so each is probed for. The tables that hold the
capturing machine's environment, processes and paths are never touched.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from overhead.profiles import limits
from overhead.profiles.driver_calls import fold
from overhead.profiles.events import (
    Activities,
    Calls,
    Events,
    Ints,
    Kind,
    Ranges,
    Unknown,
    api_name,
    issues_work,
    launches,
    waits,
)
from overhead.profiles.export import ACTIVITIES, CALLS, CUPTI, Codes, Columns, Export
from overhead.profiles.limits import Deadline
from overhead.profiles.summary import ProfileError, one_line

LAUNCHES = ("Launch", "GraphLaunch")
NVTX_RANGES = (59, 60)  # event types push/pop and start/end
LONGEST_NAME = 1 << 20  # bytes of a text or a row's blob; a damaged file claims gigabytes
CORRELATION_BITS = 38  # a key is the process id (24 bits) above the correlation id
STEPS = 100_000  # of SQLite's machine between two looks at the clock, about a millisecond


def read_sqlite(path: Path) -> Events:
    """The events of an Nsight Systems SQLite export.

    Raises `ProfileError` for a file that SQLite cannot read, that has no table of Nsight Systems, whose values are
    impossible, and that takes longer or holds more than `limits` says.
    """
    size = path.stat().st_size
    deadline = Deadline(size)
    try:
        uri = path.absolute().as_uri() + "?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_NAME)
            with _ending(connection, deadline):
                for pragma in ("query_only = ON", "trusted_schema = OFF", "temp_store = MEMORY"):
                    connection.execute(f"PRAGMA {pragma}")
                export = Export(connection, size)
                if not export.tables and export.unread:
                    raise ProfileError(f"its tables are of a version that is not read here: {_some(export.unread)}")
                if not export.tables:
                    raise ProfileError("no table of Nsight Systems in this SQLite file")
                events = _events(export)
                events.deadline = deadline
                return events
    except (sqlite3.Error, sqlite3.Warning) as error:
        if deadline.passed:
            raise deadline.error() from None
        raise ProfileError(f"SQLite cannot read it: {one_line(str(error), 200)}") from None
    except UnicodeDecodeError:  # the error itself could not be decoded
        raise ProfileError("SQLite cannot read it: its schema is damaged") from None


@contextmanager
def _ending(connection: sqlite3.Connection, deadline: Deadline) -> Iterator[None]:
    """Ends whatever SQLite does when the time is over: by itself between its steps, and from outside within one."""
    connection.set_progress_handler(lambda: deadline.passed, STEPS)
    timer = threading.Timer(deadline.limit_s, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # it must not interrupt what is closed


def _some(names: list[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _events(export: Export) -> Events:
    activities, keys = _activities(export)
    calls, matched = _calls(export, keys)
    activities.call = matched
    pids = {pid for pid, _ in calls.threads if pid}
    if len(pids) == 1 and not _names_processes(export):
        activities.process[:] = pids.pop()
    events = Events("nsys-sqlite", calls, activities, _ranges(export))
    events.unknown, told = _unknown(export)
    events.warnings += told
    if (activities.kind == Kind.GRAPH).any():
        events.graph_trace = "graph"
        events.warnings.append(
            "CUDA graphs were traced as one block each, the kernels inside them are hidden; "
            "`nsys profile --cuda-graph-trace=node` shows them"
        )
    elif "graphNodeId" in export.tables.get(CUPTI + "KERNEL", ()):
        node = f"SELECT 1 FROM {CUPTI}KERNEL WHERE graphNodeId > 0 LIMIT 1"
        events.graph_trace = "node" if export.sql.execute(node).fetchone() else None
    for table, rows in export.lost.items():
        events.warnings.append(f"{rows} rows of {table} end before they start and were left out")
    return events


def _unknown(export: Export) -> tuple[frozenset[Unknown], list[str]]:
    """What this export has no table for, and how a reader is told."""
    present, told = export.tables, []
    unknown: set[Unknown] = set()
    if CUPTI + "MEMSET" not in present:
        unknown.add("memsets")
    if export.unread:
        told.append(f"not read, of a version that is not known here: {_some(export.unread)}; what they hold is absent")
    if CUPTI + "KERNEL" not in present:
        unknown.add("kernels")
        told.append(
            "this export has no table of kernels that is read here: they are not counted, "
            "and busy time is that of copies and memsets alone"
        )
    if not any(table in present for table in CALLS):
        unknown.add("calls")
        told.append("this export has no table of CUDA calls that is read here: launches and queue times are not known")
    return frozenset(unknown), told


def _activities(export: Export) -> tuple[Activities, Ints]:
    """The device's activities, and each one's key of process and correlation id (-1: none)."""
    devices, names = Codes("devices", limits.MOST_DEVICES), Codes("names of kernels", limits.MOST_NAMES)
    processes = Codes("processes", limits.MOST_PROCESSES)
    kept = Columns(
        export.count(ACTIVITIES), start=np.int64, end=np.int64, kind=np.uint8, device=np.uint8, stream=np.int8,
        process=np.int32, name=np.uint8, size=np.uint32, copy=np.uint8, key=np.int64,
    )  # fmt: skip
    for table, kind in ACTIVITIES.items():
        if table not in export.tables:
            continue
        has = export.tables[table]
        name = next((n for n in ("demangledName", "shortName", "mangledName") if n in has), "")
        grid = '"gridX" * "gridY" * "gridZ"' if {"gridX", "gridY", "gridZ"} <= has else "0"
        columns = [
            export.column(table, "deviceId", 0),
            export.column(table, "streamId", 0),
            export.process(table, "globalPid"),
            export.column(table, "correlationId"),
            export.column(table, name) if kind is Kind.KERNEL else str(-2 - kind),
            f"ifnull({grid}, 0)" if kind is Kind.KERNEL else export.column(table, "bytes", 0),
            export.column(table, "copyKind", 0) if kind is Kind.COPY else "0",
        ]
        for c in export.rows(table, columns):
            processes(c[:, 4])
            kept.add(
                start=c[:, 0], end=c[:, 1], kind=np.full(len(c), kind), device=devices(c[:, 2]), stream=c[:, 3],
                process=c[:, 4], name=names(c[:, 6]), size=c[:, 7], copy=np.clip(c[:, 8], 0, 99),
                key=_key(c[:, 4], c[:, 5]),
            )  # fmt: skip
    order = np.argsort(kept.columns["start"][: kept.rows], kind="stable")
    found = Activities(devices=list(devices.code))
    keys = kept.pop("key")[order]
    for column in list(kept.columns):
        setattr(found, column, kept.pop(column)[order])
    blocks = {-2 - Kind.COPY: "copy", -2 - Kind.MEMSET: "memset", -2 - Kind.GRAPH: "graph"}
    found.names = [blocks.get(number) or export.string(number) for number in names.code]
    return found, keys


def _key(process: Ints, correlation: Ints) -> Ints:
    known = (correlation > 0) & (correlation < 1 << CORRELATION_BITS)
    return np.where(known, process << CORRELATION_BITS | correlation, -1)


def _calls(export: Export, keys: Ints) -> tuple[Calls, Ints]:
    """The host's calls, and for each activity the row of the call that started it (-1: not in the profile)."""
    known, activity = np.unique(keys, return_inverse=True)
    activity, unknown = activity.astype(np.int32), keys < 0
    del keys
    started_by = np.full(len(known), -1, np.int32)
    names, threads = Codes("names of calls", limits.MOST_NAMES), Codes("threads", limits.MOST_THREADS)
    processes_seen, texts = Codes("processes", limits.MOST_PROCESSES), list[str]()
    others = started_by.copy()  # what an unknown call started
    kept = Columns(export.count(CALLS), start=np.int64, duration=np.uint32, name=np.uint8, thread=np.uint8)
    driver: list[tuple[Ints, Ints]] = []  # rows and keys of launches, kept only where both APIs were traced
    both, processes = _both_apis(export), _names_processes(export)
    for table in (t for t in CALLS if t in export.tables):
        wanted = [export.column(table, c) for c in ("globalTid", "correlationId", "nameId")]
        for c in export.rows(table, wanted):
            name, rows = names(c[:, 4]), kept.rows
            texts += [api_name(export.string(number)) for number in list(names.code)[len(texts) :]]
            pid = _process(c[:, 2])
            processes_seen(pid)
            keys = _key(pid if processes else np.zeros_like(pid), c[:, 3])
            issues = _each(issues_work, texts)[name]
            at, rest = np.flatnonzero(issues), np.flatnonzero(~issues & ~_each(waits, texts)[name])
            key = keys[at]
            _match(known, started_by, key, (rows + at).astype(np.int32))
            _match(known, others, keys[rest], (rows + rest).astype(np.int32))
            if both:
                launch = _each(launches, texts)[name[at]]
                driver.append(((rows + at[launch]).astype(np.int32), key[launch]))
            kept.add(start=c[:, 0], duration=c[:, 1] - c[:, 0], name=name, thread=threads(c[:, 2]))
    calls = Calls()
    for column in list(kept.columns):
        setattr(calls, column, kept.pop(column))
    calls.threads = [(int(_process(np.int64(t))), max(t, 0) & 0xFFFFFF) for t in threads.code]
    calls.names = list(dict.fromkeys(texts))
    if len(calls.names) < len(texts):  # versions of one function are one name
        place = {text: code for code, text in enumerate(calls.names)}
        calls.name = np.asarray([place[text] for text in texts], np.int32)[calls.name]
    matched = np.where(started_by < 0, others, started_by)[activity]
    matched[unknown] = -1
    if driver:
        calls, matched = fold(calls, matched, driver)
    return calls, matched


def _process(global_tid: Ints | np.int64) -> Ints:
    return np.where(global_tid < 0, 0, global_tid >> 24 & 0xFFFFFF)


def _each(test: Callable[[str], bool], names: list[str]) -> Ints:
    return np.asarray([test(name) for name in names], bool)


def _match(known: Ints, started_by: Ints, key: Ints, row: Ints) -> None:
    """Note in `started_by`, parallel to the sorted keys `known`, the first row with each key."""
    if not len(known) or not len(key):
        return
    at = np.minimum(np.searchsorted(known, key), len(known) - 1)
    hit = (known[at] == key) & (key >= 0) & (started_by[at] < 0)
    started_by[at[hit][::-1]] = row[hit][::-1]


def _names_processes(export: Export) -> bool:
    """Whether activities say whose they are; very old exports do not."""
    return any("globalPid" in export.tables[table] for table in ACTIVITIES if table in export.tables)


def _both_apis(export: Export) -> bool:
    """Whether launches of the driver (cu…) and of the runtime (cuda…) can both occur."""
    if "StringIds" not in export.tables:
        return False
    like = " OR ".join(f"ltrim(value, '_') LIKE '{{0}}{what}%'" for what in LAUNCHES)
    start = f"SELECT 1 FROM StringIds WHERE {like} LIMIT 1"
    return all(export.sql.execute(start.format(api)).fetchone() for api in ("cu", "cuda"))


def _ranges(export: Export) -> Ranges:
    """NVTX ranges of all threads; marks and ranges without an end are left out."""
    table = "NVTX_EVENTS"
    if table not in export.tables:
        return Ranges()
    has = export.tables[table]
    kinds = f'AND "eventType" IN {NVTX_RANGES}' if "eventType" in has else ""
    text = '"text"' if "text" in has else "NULL"
    number = '"textId"' if "textId" in has else "NULL"
    codes: dict[tuple[str | None, object], int] = {}
    size = 0

    def code(value: object, of: object) -> int:
        nonlocal size
        key = (None, of) if value is None else (str(value), None)
        if key not in codes:
            codes[key] = len(codes)
            size += len(key[0] or "")
        # Not raised here: SQLite would hide what is.
        return -1 if len(codes) > limits.MOST_RANGE_NAMES or size > limits.LONGEST_NAMES_BYTES else codes[key]

    export.sql.create_function("range_code", 2, code)
    kept = []
    processes = Codes("processes", limits.MOST_PROCESSES)
    for chunk in export.rows(table, [f"range_code({text}, {number})", export.process(table, "globalTid")], kinds):
        limits.check("names of ranges", limits.MOST_RANGE_NAMES, len(codes))
        limits.check("bytes of the names of ranges", limits.LONGEST_NAMES_BYTES, size)
        processes(chunk[:, 3])
        kept.append(chunk)
    c = np.concatenate(kept) if kept else np.empty((0, 4), np.int64)
    names: dict[str, int] = {}
    place = [
        names.setdefault(value or ("(unnamed)" if of is None else export.string(of)), len(names)) for value, of in codes
    ]
    name = np.asarray(place, np.int32)[c[:, 2]] if place else np.empty(0, np.int32)
    return Ranges(list(names), c[:, 0].copy(), c[:, 1].copy(), name, c[:, 3].astype(np.int32))
