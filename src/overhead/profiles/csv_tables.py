"""Text of `nsys stats` → tables: which report each is, and its numbers in ns, bytes and counts.

Names, headers and units changed over the years, so a report is known by its columns. Before a header there
may be progress text; several reports may follow each other; `SKIPPED` stands where there was no data.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from overhead.profiles.summary import ProfileError, one_line

DELIMITERS = (",", ";", "\t")
NAMES = {
    "calls": "count",
    "num calls": "count",
    "instances": "count",
    "operations": "count",
    "average": "avg",
    "median": "med",
    "minimum": "min",
    "maximum": "max",
    "device id": "devid",
    "total time": "total",
}
TIME_UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
TIME_WORDS = {"n": "ns", "u": "us", "µ": "us", "μ": "us", "m": "ms", "s": "s"}
SIZE_UNITS = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
OLD_SIZE_UNIT = "kib"  # of the reports whose size columns name no unit
WHOLE = {"count", "qcount", "pid", "tid", "devid"}
NUMBERS = {*WHOLE, "total", "avg", "med", "amed", "qmed", "kmed"}  # the columns that are read as such
GROUPED = {
    ".": re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d*)?([eE][+-]?\d{1,3})?$"),
    ",": re.compile(r"-?(\d+|\d{1,3}(\.\d{3})+)(,\d*)?([eE][+-]?\d{1,3})?$"),
}
FOREIGN = ("Time(%)", "Time (%)", "Total Time", "Start (", "Start(")  # headers of other reports
SPACES = str.maketrans("", "", " \u00a0\u202f'’_")
LARGEST = Decimal(2**62)

Row = dict[str, str | Decimal | None]


class Table(NamedTuple):
    """One report: its kind and its rows, times in ns and sizes in bytes."""

    report: str  # its name since 2023; `calls` is cuda_api_sum or the summary of another library's calls
    rows: list[Row]


class Header(NamedTuple):
    report: str
    delimiter: str
    columns: list[str]
    scales: list[int | None]  # what a number is multiplied by; None for a text


def tables(text: str) -> tuple[list[Table], int, list[str]]:
    """The reports in `text`, how many were `SKIPPED`, and the headers of reports that are not read here.

    Raises `ProfileError` for rows that do not fit their header and for values that are no numbers.
    """
    lines = text.splitlines()
    found, skipped, foreign = [], 0, []
    header, body = None, list[str]()

    def finish() -> None:
        if header is not None:
            found.append(Table(header.report, _rows(header, body)))

    for line in lines:
        if line.lstrip().startswith("SKIPPED"):
            skipped += 1
        new = _header(line)
        if new is not None:
            finish()
            header, body = new, []
        elif line.lstrip('"').startswith(FOREIGN):
            finish()
            header, body = None, []
            foreign.append(line.strip()[:100])
        elif header is not None:
            if not line.strip() and not _open_quote(body):
                finish()
                header, body = None, []
            else:
                body.append(line)
    finish()
    return found, skipped, foreign


def _open_quote(body: list[str]) -> bool:
    return bool(body) and body[-1].count('"') % 2 == 1


def _header(line: str) -> Header | None:
    """The header that a line is, if it is one of a known report."""
    if not 3 < len(line) < 2_000:
        return None
    for delimiter in DELIMITERS:
        cells = line.strip().split(delimiter)
        if len(cells) < 4:
            continue
        named = [_column(cell) for cell in cells]
        report = _report(named)
        if report is not None:
            size = report == "cuda_gpu_mem_size_sum"
            columns = [NAMES.get(name, name) for name, _ in named]
            scales = [_scale(name, unit, size) for name, (_, unit) in zip(columns, named, strict=True)]
            return Header(report, delimiter, columns, scales)
    return None


def _column(cell: str) -> tuple[str, str]:
    """A header cell's name and unit, in small letters: `Total Time (us)` is ("total time", "us")."""
    cell = cell.strip().strip('"').strip().lower()
    match = re.fullmatch(r"([^()]*?)\s*\(([^()]*)\)", cell)
    return (match[1], match[2]) if match else (cell, "")


def _report(named: list[tuple[str, str]]) -> str | None:
    columns = dict(named)
    if {"pid", "tid", "devid", "count", "qcount", "api name", "kernel name"} <= columns.keys():
        return "cuda_kern_exec_sum"
    if "operation" in columns and "category" not in columns:
        if "total time" in columns:
            return "cuda_gpu_mem_time_sum"
        return "cuda_gpu_mem_size_sum" if "total" in columns else None
    if "total time" not in columns or "category" in columns:
        return None
    if "range" in columns and "instances" in columns:
        return "nvtx_sum"
    if "name" in columns and "instances" in columns:
        return "cuda_gpu_kern_sum"
    return "calls" if "name" in columns and {"calls", "num calls"} & columns.keys() else None


def _scale(name: str, unit: str, size: bool) -> int | None:
    if name not in NUMBERS:
        return None
    if name in WHOLE:
        return 1
    if size:
        return SIZE_UNITS.get(unit or OLD_SIZE_UNIT, 1)
    return TIME_UNITS[TIME_WORDS.get(unit[:1], "ns")]


def _rows(header: Header, body: list[str]) -> list[Row]:
    try:
        cells = [row for row in csv.reader(body, delimiter=header.delimiter) if row]
    except csv.Error as error:
        raise ProfileError(f"{header.report}: {error}") from None
    kept = []
    for row in cells:
        if len(row) == len(header.columns):
            kept.append(row)
        elif len(row) > 2:
            raise ProfileError(f"{header.report}: a row has {len(row)} cells, its header {len(header.columns)}")
        # One or two cells: progress text of the next report.
    return _numbers(header, kept)


def _numbers(header: Header, cells: list[list[str]]) -> list[Row]:
    """The rows as numbers, by the decimal mark with which average times count gives the total.

    `1.234` is a thousand in one locale and one in another; the file's own sums settle it.
    """
    problem, readings = "", []
    for mark in (".", ",") if header.delimiter != ";" else (",", "."):
        try:
            rows = [dict(_values(header, row, mark)) for row in cells]
        except ValueError as error:
            problem = problem or str(error)
            continue
        readings.append((sum(map(_disagreement, rows)), len(readings), rows))
    if not readings:
        raise ProfileError(f"{header.report}: {problem}")
    return min(readings, key=lambda reading: reading[:2])[2]


def _values(header: Header, row: list[str], mark: str) -> Iterator[tuple[str, str | Decimal | None]]:
    for name, scale, cell in zip(header.columns, header.scales, row, strict=True):
        yield name, cell.strip() if scale is None else _number(cell, mark, name, scale)


def _number(cell: str, mark: str, name: str, scale: int) -> Decimal | None:
    text = cell.translate(SPACES)
    if text.lower() in ("", "nan", "-"):
        return None
    if len(text) > 40 or not text.isascii() or not GROUPED[mark].match(text):
        raise ValueError(f"{name} must be a number, got '{one_line(cell, 40)}'")
    plain = text.replace("," if mark == "." else ".", "").replace(",", ".")
    try:
        value = Decimal(plain) * scale
    except InvalidOperation:
        raise ValueError(f"{name} must be a number, got '{one_line(cell, 40)}'") from None
    whole = name in WHOLE
    if value < 0 or value > LARGEST or (whole and value != int(value)):
        kind = "a whole number" if whole else "a number"
        raise ValueError(f"{name} must be {kind} from 0 to 2^62, got '{one_line(cell, 40)}'")
    return value


def _disagreement(row: Row) -> int:
    """1 where average times count is not the total, which shows a misread decimal mark."""
    count, average, whole = row.get("count"), row.get("avg"), row.get("total")
    if not (isinstance(count, Decimal) and isinstance(average, Decimal) and isinstance(whole, Decimal)):
        return 0
    return int(abs(count * average - whole) > max(whole / 100, count))
