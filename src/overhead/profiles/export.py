"""An Nsight Systems SQLite export as it lies on disk: its tables, their columns, and rows as whole numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import chain

import numpy as np

from overhead.profiles.events import Ints, Kind, valid_times
from overhead.profiles.summary import ProfileError

CUPTI = "CUPTI_ACTIVITY_KIND_"
CALLS = (CUPTI + "RUNTIME", CUPTI + "DRIVER")
ACTIVITIES = {
    CUPTI + "KERNEL": Kind.KERNEL,
    CUPTI + "MEMCPY": Kind.COPY,
    CUPTI + "MEMSET": Kind.MEMSET,
    CUPTI + "GRAPH_TRACE": Kind.GRAPH,
}
CHUNK = 50_000  # rows


class Codes:
    """Gives the distinct values of a column small whole numbers, in the order in which they appear."""

    def __init__(self) -> None:
        self.code: dict[int, int] = {}

    def __call__(self, values: Ints) -> Ints:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = [self.code.setdefault(value, len(self.code)) for value in distinct.tolist()]
        return np.asarray(codes, np.int32)[inverse]


class Export:
    """An open export: which tables and columns it has, and their rows as whole numbers."""

    def __init__(self, connection: sqlite3.Connection, size: int) -> None:
        self.sql, self.size = connection, size
        self.tables: dict[str, set[str]] = {}
        # A view or a virtual table of a wanted name could compute for ever: only real tables are read.
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0")
        wanted = {*CALLS, *ACTIVITIES, "NVTX_EVENTS", "StringIds"}
        found = [n for n, sql in rows if n in wanted and "VIRTUAL" not in str(sql)[:20].upper()]
        for name in found:
            columns = connection.execute(f"PRAGMA table_info({name})")
            self.tables[name] = {str(row[1]) for row in columns}
        self.lost: dict[str, int] = {}

    def column(self, table: str, name: str, absent: int = -1) -> str:
        return f'ifnull("{name}", {absent})' if name in self.tables[table] else str(absent)

    def process(self, table: str, name: str) -> str:
        return f'ifnull("{name}" >> 24 & 16777215, 0)' if name in self.tables[table] else "0"

    def rows(self, table: str, columns: list[str], where: str = "") -> Iterator[Ints]:
        """Chunks (rows, 2 + columns) int64 of start, end and `columns`, without rows that end before they start."""
        for needed in ("start", "end"):
            if needed not in self.tables[table]:
                raise ProfileError(f"{table} has no column {needed}: not an Nsight Systems export")
        select = f'SELECT "start", "end", {", ".join(columns)} FROM {table} WHERE "start" + "end" NOTNULL {where}'
        cursor, width, seen = self.sql.execute(select), 2 + len(columns), 0
        while rows := cursor.fetchmany(CHUNK):
            seen += len(rows)
            if seen > self.size:
                raise ProfileError(f"{table} has more rows than the file has bytes: the file is damaged")
            try:
                chunk = np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * width).reshape(-1, width)
            except (TypeError, ValueError, OverflowError):
                raise ProfileError(f"{table} holds values that are no whole numbers: the file is damaged") from None
            keep = valid_times(chunk[:, 0], chunk[:, 1], table)
            if not keep.all():
                self.lost[table] = self.lost.get(table, 0) + int((~keep).sum())
                chunk = chunk[keep]
            yield chunk

    def table(self, table: str, columns: list[str], where: str = "") -> Ints:
        """All rows at once: (rows, 2 + columns) int64."""
        chunks = list(self.rows(table, columns, where)) if table in self.tables else []
        return np.concatenate(chunks) if chunks else np.empty((0, 2 + len(columns)), np.int64)

    def string(self, number: int) -> str:
        if "StringIds" in self.tables:
            row = self.sql.execute("SELECT value FROM StringIds WHERE id = ?", (number,)).fetchone()
            if row is not None and row[0] is not None:
                return str(row[0])
        return f"(name {number} is not in the export)"
