"""An Nsight Systems SQLite export as it lies on disk: its tables, their columns, and rows as whole numbers."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np

from overhead.profiles import limits
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
WANTED = (*CALLS, *ACTIVITIES, "NVTX_EVENTS", "StringIds")
CHUNK = 20_000  # rows


class Codes:
    """Gives the distinct values of a column small whole numbers, in the order in which they appear.

    Raises `ProfileError` for more than `most` of them.
    """

    def __init__(self, what: str, most: int) -> None:
        self.code: dict[int, int] = {}
        self.what, self.most = what, most

    def __call__(self, values: Ints) -> Ints:
        distinct, inverse = np.unique(values, return_inverse=True)
        codes = [self.code.setdefault(value, len(self.code)) for value in distinct.tolist()]
        limits.check(self.what, self.most, len(self.code))
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
        found = [str(n) for n, sql in rows if "VIRTUAL" not in str(sql)[:20].upper()]
        keys: dict[str, list[str]] = {}
        for name in (n for n in found if n in WANTED):
            columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
            self.tables[name] = {str(row[1]) for row in columns}
            keys[name] = [str(row[1]) for row in columns if row[5]]
        another = re.compile(f"({'|'.join(WANTED)})_V[0-9]{{1,4}}")
        self.unread = sorted(n for n in found if another.fullmatch(n))  # of a version that is not known here
        self.lost: dict[str, int] = {}
        self._texts: dict[object, object] | None = None
        self._bytes = 0  # of the names given so far
        if "StringIds" in self.tables and keys["StringIds"] != ["id"]:
            self._texts = self._all_texts()  # without a key each look-up would go through the whole table

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
        # Not count(*) of the table: SQLite then follows the pages without end where they share their children.
        limited = "SELECT count(*) FROM (SELECT 1 FROM {} LIMIT {})"
        rows = sum(self.sql.execute(limited.format(table, self.size + 1)).fetchone()[0] for table in present)
        if rows > self.size:
            raise ProfileError("more rows than the file has bytes: the file is damaged")
        return rows

    def table(self, table: str, columns: list[str], where: str = "") -> Ints:
        """All rows at once: (rows, 2 + columns) int64."""
        chunks = list(self.rows(table, columns, where)) if table in self.tables else []
        return np.concatenate(chunks) if chunks else np.empty((0, 2 + len(columns)), np.int64)

    def string(self, number: object) -> str:
        """The text with a number in StringIds."""
        if self._texts is not None:
            value = self._texts.get(number)
        elif "StringIds" in self.tables:
            row = self.sql.execute("SELECT value FROM StringIds WHERE id = ?", (number,)).fetchone()
            value = None if row is None else row[0]
        else:
            value = None
        text = f"(name {number} is not in the export)" if value is None else str(value)
        self._bytes += len(text)
        limits.check("bytes of all names", limits.LONGEST_NAMES_BYTES, self._bytes)
        return text

    def _all_texts(self) -> dict[object, object]:
        found: dict[object, object] = {}
        size = 0
        for number, value in self.sql.execute("SELECT id, value FROM StringIds"):
            size += len(value) if isinstance(value, str | bytes) else 8
            limits.check("bytes of the names in StringIds", limits.LONGEST_NAMES_BYTES, size)
            limits.check("names in StringIds, which has no key,", limits.MOST_RANGE_NAMES, len(found))
            found.setdefault(number, value)
        return found
