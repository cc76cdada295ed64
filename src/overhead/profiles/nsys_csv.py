"""Reports of `nsys stats` in CSV → summary. Summaries hold no start times, so no busy share."""

from __future__ import annotations

import re
from decimal import Decimal

from overhead.profiles.csv_tables import Row, Table, tables
from overhead.profiles.events import COPY_KINDS, api_name, launches, launches_graph, launches_kernel, waits
from overhead.profiles.summary import (
    NO_ACTIVITY,
    ApiRow,
    CopyRow,
    KernelRow,
    Kernels,
    Launches,
    Part,
    ProfileError,
    ProfileSummary,
    Queue,
    ThreeTimes,
    WaitRow,
    most_frequent,
    one_line,
)

# The header of a table in columns, which nsys writes unless told otherwise: at least two blanks between names.
COLUMNS = re.compile(r"\s*(Time ?\(%\)|Total Time ?\(\w+\)|Total ?\(\w+\)|Start ?\(\w+\))\s{2,}\w.*\s{2,}\w")
LETTERS = {"H": "host", "D": "device", "A": "array", "P": "peer"}
NO_STARTS = "the device's busy share cannot be known from summaries, which hold no start times: read the SQLite export"


def read_csv(text: str) -> ProfileSummary:
    """The summary of one or several reports of one profile.

    Raises `ProfileError` for a text without a known report and for a report that comes twice.
    """
    found, skipped, foreign = tables(text)
    reports = _by_report(found)
    if not reports and not skipped and (column := next(filter(COLUMNS.match, text.splitlines()), None)) is not None:
        raise ProfileError(
            f"column form of nsys stats, which no program can read for certain; use `nsys stats --format csv` "
            f"(found '{_plain(' '.join(column.split()))}')"
        )
    if not reports and not skipped:
        first = foreign[0] if foreign else next((line.strip()[:100] for line in text.splitlines() if line.strip()), "")
        raise ProfileError(f"no report of nsys stats that is read here; found '{_plain(first)}'")
    if not any(rows for report, rows in reports.items() if report.startswith("cuda")):
        return ProfileSummary(source="nsys-csv", processes=None, devices=None, span_ns=None, warnings=(NO_ACTIVITY,))
    warnings = [NO_STARTS]
    if skipped:
        warnings.append(f"nsys stats skipped {skipped} reports for lack of data")
    warnings += [f"not read: a report with the header '{_plain(header)}'" for header in foreign]
    memsets, memset_ns = _memsets(reports)
    executed = _three_times(reports.get("cuda_kern_exec_sum", []))
    started = frozenset(row.api for row in executed)
    api = _api(reports.get("cuda_api_sum"), started)
    return ProfileSummary(
        source="nsys-csv",
        processes=len({row.process for row in executed}) or None,
        devices=len({row.device for row in executed}) or None,
        span_ns=None,
        launches=_launches(api, started) if api is not None else None,
        api=api or (),
        waits=tuple(WaitRow(**row.model_dump(exclude={"waiting"})) for row in api or () if row.waiting),
        queue=_queue(executed),
        kernels=_kernels(reports.get("cuda_gpu_kern_sum"), executed),
        copies=_copies(reports),
        memsets=memsets,
        memset_ns=memset_ns,
        kernel_names=_named(reports.get("cuda_gpu_kern_sum", [])),
        three_times=executed,
        parts=tuple(
            Part(by="range", name=row.name, count=row.count, span_ns=row.total_ns)
            for row in _named(reports.get("nvtx_sum", []), "range")
        ),
        warnings=tuple(warnings),
    )


def _plain(text: str) -> str:
    return one_line(re.sub(r"\[?(/|[A-Za-z]:\\)[^\s\],;]*", "…", text))  # no path of the capturing machine


def _by_report(found: list[Table]) -> dict[str, list[Row]]:
    reports: dict[str, list[Row]] = {}
    for report, rows in found:
        if report == "calls":  # every library's calls have the same columns
            report = "other calls" if rows and not any(map(_of_cuda, rows)) else "cuda_api_sum"
        if rows and reports.get(report):
            raise ProfileError(f"{report} comes twice: give the reports of one profile")
        reports[report] = rows or reports.get(report, [])
    return reports


def _int(row: Row, column: str) -> int:
    value = row.get(column)
    if not isinstance(value, Decimal):
        raise ProfileError(f"{column} is missing in a row of {one_line(str(next(reversed(row.values()))), 60)}")
    return int(value.to_integral_value())


def _float(row: Row, column: str) -> float | None:
    value = row.get(column)
    return float(value) if isinstance(value, Decimal) else None


def _named(rows: list[Row], column: str = "name") -> tuple[KernelRow, ...]:
    """Counts and times by name, the largest first. Rows that share a name lose their median."""
    found: dict[str, KernelRow] = {}
    for row in rows:
        name, median = str(row.get(column)), _float(row, "med")
        name = api_name(name) if column == "name" else name.removeprefix(":")
        count, time = _int(row, "count"), _int(row, "total")
        if name in found:
            count, time, median = count + found[name].count, time + found[name].total_ns, None
        found[name] = KernelRow(name=name, count=count, total_ns=time, median_ns=median)
    return tuple(sorted(found.values(), key=lambda row: (-row.total_ns, row.name)))


def _api(rows: list[Row] | None, started: frozenset[str]) -> tuple[ApiRow, ...] | None:
    """CUDA's calls, and whatever else started kernels."""
    if rows is None:
        return None
    cuda = [row for row in rows if _of_cuda(row) or api_name(str(row["name"])) in started]
    return tuple(ApiRow(**row.model_dump(), waiting=waits(row.name)) for row in _named(cuda))


def _of_cuda(row: Row) -> bool:
    return api_name(str(row["name"])).startswith("cu")


def _launches(api: tuple[ApiRow, ...], started: frozenset[str]) -> Launches:
    """nsys lists a driver call only where it was made directly, so both kinds add up.

    `started`: calls that started kernels, by cuda_kern_exec_sum: launches, whatever their names.
    """
    other = [row for row in api if row.name in started and not launches(row.name)]
    kernel = sum(row.count for row in (*(row for row in api if launches_kernel(row.name)), *other))
    graph = sum(row.count for row in api if launches_graph(row.name))
    return Launches(kernel=kernel, graph=graph, total=kernel + graph)


def _kernels(rows: list[Row] | None, executed: tuple[ThreeTimes, ...]) -> Kernels | None:
    if rows is None:
        return None
    named = _named(rows)
    count = sum(row.count for row in named)
    matched = sum(row.count for row in executed) if executed else None
    return Kernels(
        count=count,
        total_ns=sum(row.total_ns for row in named),
        median_ns=named[0].median_ns if len(named) == 1 else None,
        matched=matched,
        unmatched=None if matched is None else count - matched,
    )


def _three_times(rows: list[Row]) -> tuple[ThreeTimes, ...]:
    found = [
        ThreeTimes(
            process=_int(row, "pid"),
            thread=_int(row, "tid"),
            device=_int(row, "devid"),
            api=api_name(str(row["api name"])),
            kernel=str(row["kernel name"]),
            count=_int(row, "count"),
            queued=_int(row, "qcount"),
            api_median_ns=_float(row, "amed"),
            queue_median_ns=_float(row, "qmed") if _int(row, "qcount") else None,
            kernel_median_ns=_float(row, "kmed"),
        )
        for row in rows
    ]
    return tuple(sorted(found, key=most_frequent))


def _queue(executed: tuple[ThreeTimes, ...]) -> Queue | None:
    """Medians of several rows cannot be combined, and their averages are rounded: counts alone are exact."""
    if not executed:
        return None
    count, median = sum(row.queued for row in executed), None
    if len(executed) == 1:
        median = executed[0].queue_median_ns
    return Queue(count=count, total_ns=None, median_ns=median, early=sum(row.count for row in executed) - count)


def _kind(operation: str) -> str:
    """`[CUDA memcpy HtoD]` and `Host-to-Device` are host-to-device; `memset` is itself; else `unknown`."""
    text = operation.strip("[] ").lower()
    if "memset" in text:
        return "memset"
    unified = "unified-" if "unified" in text else ""
    short = re.search(r"\b([hdap])to([hdap])\b", text)
    long = re.search(r"(host|device|array|peer)-to-(host|device|array|peer)", text)
    if short:
        return f"{unified}{LETTERS[short[1].upper()]}-to-{LETTERS[short[2].upper()]}"
    return unified + long[0] if long else "unknown"


def _by_kind(rows: list[Row] | None) -> dict[str, tuple[int, int]]:
    """Count and total (ns or bytes) by kind of operation."""
    found: dict[str, tuple[int, int]] = {}
    for row in rows or []:
        kind = _kind(str(row["operation"]))
        count, total = found.get(kind, (0, 0))
        found[kind] = count + _int(row, "count"), total + _int(row, "total")
    return found


def _copies(reports: dict[str, list[Row]]) -> tuple[CopyRow, ...]:
    times, sizes = (
        _by_kind(reports.get("cuda_gpu_mem_time_sum")),
        _by_kind(reports.get("cuda_gpu_mem_size_sum")),
    )
    kinds = [kind for kind in (*COPY_KINDS.values(), "unknown") if kind in times or kind in sizes]
    return tuple(
        CopyRow(
            kind=kind,
            count=(times.get(kind) or sizes[kind])[0],
            bytes=sizes[kind][1] if kind in sizes else None,
            total_ns=times[kind][1] if kind in times else None,
        )
        for kind in kinds
    )


def _memsets(reports: dict[str, list[Row]]) -> tuple[int | None, int | None]:
    """Count and total ns, None where not reported."""
    times, sizes = reports.get("cuda_gpu_mem_time_sum"), reports.get("cuda_gpu_mem_size_sum")
    if times is None and sizes is None:
        return None, None
    count, total = _by_kind(times if times is not None else sizes).get("memset", (0, 0))
    return count, total if times is not None else None
