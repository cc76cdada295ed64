"""A summary or a difference as plain text for a terminal. Absent figures are absent, never zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from overhead.profiles.difference import Difference
from overhead.profiles.summary import Counts, ProfileSummary, one_line

SHOWN = 12  # rows of a table
WIDEST = 56  # characters of a name


def show(summary: ProfileSummary) -> str:
    """The summary, a screen or two."""
    return "\n".join(_lines(summary))


def _lines(s: ProfileSummary) -> Iterator[str]:
    known = [(s.processes, "process", "processes"), (s.devices, "device", "devices")]
    counts = [f"{n} {one if n == 1 else many}" for n, one, many in known if n is not None]
    span = [f"wall span {_ms(s.span_ns)} ms"] if s.span_ns is not None else []
    yield ", ".join([s.source, *counts, *span])
    yield from _counts(s)
    for part in s.parts:
        if part.by == "range":
            entered = "" if part.count is None else f", entered {part.count} times"
            yield ""
            yield f"range {one_line(part.name, WIDEST)}{entered}, {_ms(part.span_ns)} ms"
            yield from (f"  {line}" for line in _counts(part, brief=True))
    for warning in s.warnings:
        yield f"note: {warning}"


def _counts(c: Counts, *, brief: bool = False) -> Iterator[str]:
    if c.launches:
        yield f"launches: {c.launches.total} = {c.launches.kernel} plain + {c.launches.graph} of graphs"
    if c.queue:
        what = "runs of programs" if c.ops else "kernels"
        median = "" if c.queue.median_ns is None else f", median {_us(c.queue.median_ns)} us"
        yield f"queue time: {c.queue.count} {what}{median}; {c.queue.early} started before their call returned"
    if c.kernels:
        matched = "" if c.kernels.matched is None else f", {c.kernels.matched} with their launch in the profile"
        yield f"kernels: {c.kernels.count}, sum {_ms(c.kernels.total_ns)} ms{matched}"
    for copy in c.copies:
        size = "" if copy.bytes is None else f", {copy.bytes / 1e6:.3f} MB"
        time = "" if copy.total_ns is None else f", {_ms(copy.total_ns)} ms"
        yield f"copies {copy.kind}: {copy.count}{size}{time}"
    if c.memsets is not None:
        yield f"memsets: {c.memsets}"
    for row in c.busy:
        share = "" if row.busy_share is None else f" = {row.busy_share:.1%} of {_ms(row.span_ns)} ms"
        yield f"device {row.device} busy: union {_ms(row.union_ns)} ms{share}; sum {_ms(row.sum_ns)} ms"
        yield (
            f"device {row.device} idle: {_ms(row.idle_host_ns)} ms waiting for the host, "
            f"{_ms(row.idle_gap_ns)} ms with the next work queued, {_ms(row.idle_unknown_ns)} ms unknown"
        )
    if brief:
        return
    work = [r for r in c.api if not r.waiting]
    for title, rows in (("waiting", c.waits), ("host calls", work), ("XLA operations", c.ops)):
        if rows:
            yield ""
            table = [(one_line(r.name, WIDEST), str(r.count), _us(r.median_ns), _ms(r.total_ns)) for r in rows[:SHOWN]]
            yield from _table((title, "count", "median us", "sum ms"), table)
            if len(rows) > SHOWN:
                yield f"({len(rows) - SHOWN} more with --json)"


def show_difference(found: Difference) -> str:
    """The figures of two profiles, a line each; those that are equal in both are left out."""
    changed = [row for row in found.rows if row.a != row.b]
    table = [
        (one_line(r.what, WIDEST), _number(r.a), _number(r.b), "" if r.ratio is None else f"{r.ratio:.3g}")
        for r in changed
    ]
    same = len(found.rows) - len(changed)
    lines = list(_table(("figure", "a", "b", "b / a"), table)) if changed else ["no figure differs"]
    return "\n".join([*lines, f"({same} figures are equal)", *(f"note: {warning}" for warning in found.warnings)])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        first, *others = (c.rjust(w) if i else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        yield "  ".join([first, *others]).rstrip()


def _ms(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1e6:.3f}"


def _us(ns: float | None) -> str:
    return "-" if ns is None else f"{ns / 1e3:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
