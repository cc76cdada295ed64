"""What changed between two profiles, figure by figure; nothing is compared that only one of them measured."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from overhead.profiles.summary import Frozen, ProfileSummary


class Change(Frozen):
    """One figure of both profiles, in the unit that ends its name; null where it was not measured."""

    what: str
    a: float | None
    b: float | None
    change: float | None  # b - a
    ratio: float | None  # b / a


class Difference(Frozen):
    """The figures of `a` and `b` side by side."""

    rows: tuple[Change, ...]
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def difference(a: ProfileSummary, b: ProfileSummary) -> Difference:
    """The figures of two profiles side by side, with `b` less `a` and `b` over `a`."""
    before, after = dict(_figures(a)), dict(_figures(b))
    rows = []
    for what in [*before, *(what for what in after if what not in before)]:
        x, y = before.get(what), after.get(what)
        change = None if x is None or y is None else y - x
        ratio = None if x is None or y is None or not x else y / x
        rows.append(Change(what=what, a=x, b=y, change=change, ratio=ratio))
    warnings = []
    if a.source != b.source:
        warnings.append(f"{a.source} and {b.source} measure different things; compare two profiles of one kind")
    if (a.graph_trace or b.graph_trace) and a.graph_trace != b.graph_trace:
        warnings.append("CUDA graphs were traced in two ways: kernel counts and times cannot be compared")
    return Difference(rows=tuple(rows), warnings=tuple(warnings))


def _figures(profile: ProfileSummary) -> Iterator[tuple[str, float | None]]:
    """Every figure that can be compared, by a name that both profiles would give it."""
    yield "span_ns", profile.span_ns
    yield "executions", profile.executions
    if profile.launches:
        for kind in ("kernel", "graph", "total"):
            yield f"launches {kind}", getattr(profile.launches, kind)
    for row in profile.api:
        kind = "wait" if row.waiting else "api"
        yield f"{kind} {row.name} count", row.count
        yield f"{kind} {row.name} total_ns", row.total_ns
        yield f"{kind} {row.name} median_ns", row.median_ns
    if profile.queue:
        yield "queue median_ns", profile.queue.median_ns
    if profile.kernels:
        yield "kernels count", profile.kernels.count
        yield "kernels total_ns", profile.kernels.total_ns
        yield "kernels median_ns", profile.kernels.median_ns
    for row in profile.copies:
        yield f"copies {row.kind} count", row.count
        yield f"copies {row.kind} bytes", row.bytes
        yield f"copies {row.kind} total_ns", row.total_ns
    yield "memsets", profile.memsets
    for row in profile.busy:
        yield f"busy {row.device} union_ns", row.union_ns
        yield f"busy {row.device} busy_share", row.busy_share
        yield f"busy {row.device} idle_host_ns", row.idle_host_ns
