"""Nsight Systems SQLite exports of any version → events. Opened read-only; nothing is written beside them.

Tables and columns exist only when there was data for them, so each is probed for. The tables that hold the
capturing machine's environment, processes and paths are never touched.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np

from overhead.profiles.events import (
    Activities,
    Calls,
    Events,
    Ints,
    Kind,
    Ranges,
    api_name,
    issues_work,
    launches_graph,
    launches_kernel,
)
from overhead.profiles.export import ACTIVITIES, CALLS, CUPTI, Codes, Columns, Export
from overhead.profiles.summary import ProfileError, one_line

NVTX_RANGES = (59, 60)  # event types push/pop and start/end
LONGEST_NAME = 1 << 20  # bytes of a text or a row's blob; a damaged file claims gigabytes
CORRELATION_BITS = 38  # a key is the process id (24 bits) above the correlation id


def read_sqlite(path: Path) -> Events:
    """The events of an Nsight Systems SQLite export.

    Raises `ProfileError` for a file that SQLite cannot read, that has no table of Nsight Systems, or whose
    values are impossible.
    """
    try:
        uri = path.absolute().as_uri() + "?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST_NAME)
            for pragma in ("query_only = ON", "trusted_schema = OFF", "temp_store = MEMORY"):
                connection.execute(f"PRAGMA {pragma}")
            export = Export(connection, path.stat().st_size)
            if not export.tables:
                raise ProfileError("no table of Nsight Systems in this SQLite file")
            return _events(export)
    except (sqlite3.Error, sqlite3.Warning) as error:
        raise ProfileError(f"SQLite cannot read it: {one_line(str(error), 200)}") from None
    except UnicodeDecodeError:  # the error itself could not be decoded
        raise ProfileError("SQLite cannot read it: its schema is damaged") from None


def _events(export: Export) -> Events:
    activities, keys = _activities(export)
    calls, matched = _calls(export, keys)
    activities.call = matched
    pids = {pid for pid, _ in calls.threads if pid}
    if len(pids) == 1 and not _names_processes(export):
        activities.process[:] = pids.pop()
    events = Events("nsys-sqlite", calls, activities, _ranges(export))
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


def _activities(export: Export) -> tuple[Activities, Ints]:
    """The device's activities, and each one's key of process and correlation id (-1: none)."""
    devices, names = Codes(), Codes()
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
    names, threads, texts = Codes(), Codes(), list[str]()
    kept = Columns(export.count(CALLS), start=np.int64, duration=np.uint32, name=np.uint8, thread=np.uint8)
    launches: list[tuple[Ints, Ints]] = []  # rows and keys, kept only where both APIs were traced
    both, processes = _both_apis(export), _names_processes(export)
    for table in (t for t in CALLS if t in export.tables):
        wanted = [export.column(table, c) for c in ("globalTid", "correlationId", "nameId")]
        for c in export.rows(table, wanted):
            name, rows = names(c[:, 4]), kept.rows
            texts += [api_name(export.string(number)) for number in list(names.code)[len(texts) :]]
            at = np.flatnonzero(_each(issues_work, texts)[name])
            key = _key(_process(c[at, 2]) if processes else np.zeros_like(at), c[at, 3])
            _match(known, started_by, key, (rows + at).astype(np.int32))
            if both:
                launch = _each(_launches, texts)[name[at]]
                launches.append(((rows + at[launch]).astype(np.int32), key[launch]))
            kept.add(start=c[:, 0], duration=c[:, 1] - c[:, 0], name=name, thread=threads(c[:, 2]))
    calls = Calls()
    for column in list(kept.columns):
        setattr(calls, column, kept.pop(column))
    calls.threads = [(int(_process(np.int64(t))), max(t, 0) & 0xFFFFFF) for t in threads.code]
    calls.names = list(dict.fromkeys(texts))
    if len(calls.names) < len(texts):  # versions of one function are one name
        calls.name = np.asarray([calls.names.index(text) for text in texts], np.int32)[calls.name]
    matched = started_by[activity]
    matched[unknown] = -1
    if launches:
        calls, matched = _fold_driver_calls(calls, matched, launches)
    return calls, matched


def _process(global_tid: Ints | np.int64) -> Ints:
    return np.where(global_tid < 0, 0, global_tid >> 24 & 0xFFFFFF)


def _each(test: Callable[[str], bool], names: list[str]) -> Ints:
    return np.asarray([test(name) for name in names], bool)


def _launches(name: str) -> bool:
    return launches_kernel(name) or launches_graph(name)


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
    start = "SELECT 1 FROM StringIds WHERE value LIKE '{0}Launch%' OR value LIKE '{0}GraphLaunch%' LIMIT 1"
    return all(export.sql.execute(start.format(api)).fetchone() for api in ("cu", "cuda"))


def _fold_driver_calls(calls: Calls, matched: Ints, launches: list[tuple[Ints, Ints]]) -> tuple[Calls, Ints]:
    """Leave out driver launches that a runtime launch made: they are the same launch, not another.

    They are those inside a runtime launch of the same thread, or with its correlation id. Kernels matched
    to one are matched to the runtime call instead.
    """
    row, key = (np.concatenate(column) for column in zip(*launches, strict=True))
    runtime = calls.named([name.startswith("cuda") for name in calls.names])[row]
    outer, outer_key, inner, inner_key = row[runtime], key[runtime], row[~runtime], key[~runtime]
    made_by = np.full(len(calls), -1, np.int32)
    if len(outer) and len(inner):
        order = np.argsort(outer_key, kind="stable")
        at = np.minimum(np.searchsorted(outer_key[order], inner_key), len(outer) - 1)
        same = (outer_key[order][at] == inner_key) & (inner_key >= 0)
        made_by[inner[same]] = outer[order][at[same]]
        for thread in range(len(calls.threads)):
            o, i = outer[calls.thread[outer] == thread], inner[calls.thread[inner] == thread]
            o = o[np.argsort(calls.start[o], kind="stable")]
            if not len(o) or not len(i):
                continue
            at = np.searchsorted(calls.start[o], calls.start[i], side="right") - 1
            around = o[np.maximum(at, 0)]
            ends = calls.start[around] + calls.duration[around]
            within = (at >= 0) & (calls.start[i] + calls.duration[i] <= ends)
            made_by[i[within]] = around[within]
    keep = made_by < 0
    target = np.where(keep, np.arange(len(calls), dtype=np.int32), made_by)
    renumbered = (np.cumsum(keep) - 1).astype(np.int32)
    matched = np.where(matched < 0, -1, renumbered[target[matched]]).astype(np.int32)
    for column in ("start", "duration", "name", "thread"):
        setattr(calls, column, getattr(calls, column)[keep])
    return calls, matched


def _ranges(export: Export) -> Ranges:
    """NVTX ranges of all threads; marks and ranges without an end are left out."""
    table = "NVTX_EVENTS"
    if table not in export.tables:
        return Ranges()
    has = export.tables[table]
    kinds = f'AND "eventType" IN {NVTX_RANGES}' if "eventType" in has else ""
    text = '"text"' if "text" in has else "NULL"
    number = '"textId"' if "textId" in has else "NULL"
    if "StringIds" in export.tables:
        text = f"coalesce({text}, (SELECT value FROM StringIds WHERE id = {number}))"
    codes: dict[str, int] = {}

    def code(value: object) -> int:
        return codes.setdefault("(unnamed)" if value is None else str(value), len(codes))

    export.sql.create_function("range_code", 1, code)
    c = export.table(table, [f"range_code({text})", export.process(table, "globalTid")], kinds)
    return Ranges(list(codes), c[:, 0].copy(), c[:, 1].copy(), c[:, 2].astype(np.int32), c[:, 3].astype(np.int32))
