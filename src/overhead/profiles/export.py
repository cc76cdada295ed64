"""An Nsight Systems SQLite export as it lies on disk: its tables, their columns, and rows as whole numbers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
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
CHUNK = 20_000  # rows


class Codes:
    """Gives the distinct values of a column small whole numbers, in the order in which they appear."""

    def __init__(self) -> None:
        self.code: dict[int, int] = {}

    def __call__(self, values: Ints) -> Ints:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = [self.code.setdefault(value, len(self.code)) for value in distinct.tolist()]
        return np.asarray(codes, np.int32)[inverse]


class Columns:
    """Columns of rows that come in chunks, allocated once; one whose values outgrow its dtype gets a wider one."""

    def __init__(self, rows: int, **dtypes: type) -> None:
        self.columns: dict[str, Ints] = {name: np.empty(rows, dtype) for name, dtype in dtypes.items()}
        self.room, self.rows = rows, 0

    def add(self, **chunk: Ints) -> None:
        """Append parallel columns of one chunk."""
        length = len(next(iter(chunk.values())))
        if self.rows + length > self.room:
            raise ProfileError("a table has more rows than it counts: the file is damaged")
        for name, values in chunk.items():
            if length:
                self._widen(name, int(values.min()), int(values.max()))
            self.columns[name][self.rows : self.rows + length] = values
        self.rows += length

    def _widen(self, name: str, low: int, high: int) -> None:
        limits = np.iinfo(self.columns[name].dtype)
        if not limits.min <= low <= high <= limits.max:
            wider = np.result_type(self.columns[name].dtype, np.min_scalar_type(low), np.min_scalar_type(high))
            # Sums of int64 and uint64 would be floats.
            self.columns[name] = self.columns[name].astype(wider if np.can_cast(wider, np.int64) else np.int64)

    def pop(self, name: str) -> Ints:
        """The whole of one column."""
        return self.columns.pop(name)[: self.rows]


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

    def count(self, tables: Iterable[str]) -> int:
        """Rows of some of the tables, as far as they exist."""
        present = [table for table in tables if table in self.tables]
        rows = sum(self.sql.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in present)
        if rows > self.size:
            raise ProfileError("more rows than the file has bytes: the file is damaged")
        return rows

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
