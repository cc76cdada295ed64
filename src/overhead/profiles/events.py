"""The events of a profile as columns: host calls, device activities and named ranges. Times in ns."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from overhead.profiles.limits import Deadline
from overhead.profiles.summary import ProfileError, Source

Ints = NDArray[np.integer]
Bools = NDArray[np.bool_]

LONGEST_NS = 2**53  # 104 days; a longer event, or a later clock than 2^62, is a damaged file
BLOCK = 250_000  # rows


class Kind(IntEnum):
    """What a device was doing."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH = 3  # a whole CUDA graph, traced as one block
    OP = 4  # an XLA operation on a CPU
    RUN = 5  # one run of a compiled program on a CPU, first operation to last; its operations are busy, not it


@dataclass
class Calls:
    """Host calls, one row each. `thread` indexes `threads`, which holds (process id, thread id)."""

    names: list[str] = field(default_factory=list)
    threads: list[tuple[int, int]] = field(default_factory=list)
    start: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    duration: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    name: Ints = field(default_factory=lambda: np.empty(0, np.uint16))
    thread: Ints = field(default_factory=lambda: np.empty(0, np.uint16))

    def __len__(self) -> int:
        return len(self.start)

    def named(self, wanted: list[bool]) -> Bools:
        """Rows whose name is wanted; `wanted` is parallel to `names`."""
        return np.asarray(wanted, bool)[self.name] if self.names else np.zeros(len(self), bool)


@dataclass
class Activities:
    """What ran on devices, a row each, in order of start. `call` is the row of the launching call, -1: not known."""

    names: list[str] = field(default_factory=list)
    devices: list[int | str] = field(default_factory=list)
    start: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    end: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    kind: Ints = field(default_factory=lambda: np.empty(0, np.uint8))
    device: Ints = field(default_factory=lambda: np.empty(0, np.uint8))
    stream: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    process: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    name: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    size: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # bytes; of a kernel, blocks of its grid
    copy: Ints = field(default_factory=lambda: np.empty(0, np.int16))  # copy kind, see COPY_KINDS
    call: Ints = field(default_factory=lambda: np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Ranges:
    """Named ranges of the program (NVTX, JAX annotations): one row each time a range was entered."""

    names: list[str] = field(default_factory=list)
    start: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    end: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    name: Ints = field(default_factory=lambda: np.empty(0, np.int32))
    process: Ints = field(default_factory=lambda: np.empty(0, np.int32))

    def __len__(self) -> int:
        return len(self.start)


Unknown = Literal["calls", "kernels", "memsets"]


@dataclass
class Events:
    """Everything that a summary, a timeline or a histogram is computed from."""

    source: Source
    calls: Calls
    activities: Activities
    ranges: Ranges
    executions: int | None = None
    graph_trace: Literal["graph", "node"] | None = None
    warnings: list[str] = field(default_factory=list)
    unknown: frozenset[Unknown] = frozenset()  # what the profile has no place for, so that none is not zero
    deadline: Deadline | None = None

    def check_time(self) -> None:
        """Raise `ProfileError` once the time that the file may take is over."""
        if self.deadline:
            self.deadline.check()

    @cached_property
    def starters(self) -> Ints:
        """Rows of the calls that started kernels and whose names are not known as those of launches, sorted."""
        calls, a = self.calls, self.activities
        other = calls.named([not launches(name) for name in calls.names])
        found = []
        for i in range(0, len(a) if other.any() else 0, BLOCK):  # by blocks: a large export has no memory to spare
            call = a.call[i : i + BLOCK]
            call = call[(a.kind[i : i + BLOCK] == Kind.KERNEL) & (call >= 0)]
            found.append(np.unique(call[other[call]]))
        return np.unique(np.concatenate(found)) if found else np.empty(0, np.int32)


# CUpti_ActivityMemcpyKind.
COPY_KINDS = {
    1: "host-to-device",
    2: "device-to-host",
    3: "host-to-array",
    4: "array-to-host",
    5: "array-to-array",
    6: "array-to-device",
    7: "device-to-array",
    8: "device-to-device",
    9: "host-to-host",
    10: "peer-to-peer",
    11: "unified-host-to-device",
    12: "unified-device-to-host",
    13: "unified-device-to-device",
}

_SUFFIX = re.compile(r"(_ptsz|_ptds)?(_v\d+)?$")
_KERNEL = re.compile(r"(cuda|cu)Launch(?!HostFunc)")
_GRAPH = re.compile(r"(cuda|cu)GraphLaunch$")
_WAIT = re.compile(r"(cuda|cu)(Stream|Device|Event|Ctx|Thread)Synchronize$")
_ISSUES = re.compile(r"(cuda|cu)(Launch(?!HostFunc)|GraphLaunch|Memcpy|Memset|\w*Prefetch)")


def api_name(name: str) -> str:
    """A CUDA function's name without what a version adds to it (cudaLaunchKernel_v7000, __cudaLaunchKernel_v13000)."""
    bare = name.lstrip("_")
    return _SUFFIX.sub("", bare) if bare.startswith("cu") else name


def launches_kernel(name: str) -> bool:
    return bool(_KERNEL.match(name))


def launches_graph(name: str) -> bool:
    return bool(_GRAPH.match(name))


def launches(name: str) -> bool:
    """Whether the call is known to start kernels, by itself or as a graph."""
    return launches_kernel(name) or launches_graph(name)


def waits(name: str) -> bool:
    """Whether the call does nothing but wait for the device."""
    return bool(_WAIT.match(name))


def issues_work(name: str) -> bool:
    """Whether the call can start an activity on a device."""
    return bool(_ISSUES.match(name))


def total(values: Ints) -> int:
    """The exact sum. Raises `ProfileError` where it would not fit 63 bits."""
    if len(values) and float(values.sum(dtype=np.float64)) >= 2**62:
        raise ProfileError("times add up to more than 2^62 ns (146 years): the file is damaged")
    return int(values.sum(dtype=np.int64))


def median(values: Ints) -> float | None:
    """The median, None of nothing. Reorders `values`: give a copy that nobody else needs in order."""
    return float(np.median(values, overwrite_input=True)) if len(values) else None


def valid_times(start: Ints, end: Ints, what: str) -> Bools:
    """Which events end after they start. Raises `ProfileError` for a clock that is impossible."""
    if len(start) and (min(start.min(), end.min()) < 0 or max(start.max(), end.max()) >= 2**62):
        raise ProfileError(f"{what}: times must be 0 to 2^62 ns, the file is damaged")
    if len(start) and (end - start).max() > LONGEST_NS:
        raise ProfileError(f"{what}: an event of more than 104 days, the file is damaged")
    return end >= start


def merge(start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The union of intervals as disjoint, sorted ones; adjacent intervals become one. (n,) → (m,), m ≤ n."""
    if not len(start):
        return start, end
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.r_[True, start[1:] > reach[:-1]]
    return start[first], reach[np.r_[first[1:], True]]


def union_ns(start: Ints, end: Ints) -> int:
    """Time covered by at least one interval."""
    start, end = merge(start, end)
    return total(end - start)


def within(start: Ints, end: Ints, low: Ints, high: Ints) -> int:
    """The time of intervals that lies inside the disjoint windows (low, high).

    Overlapping intervals count as often as they overlap; give merged ones for the union.
    """
    if len(low) == 1 and len(start):
        return total(np.maximum(np.minimum(end, high) - np.maximum(start, low), 0))
    found = 0
    for i in range(0, len(start), BLOCK):  # by blocks: a large export has no memory to spare
        clock = _Clock(start[i : i + BLOCK], end[i : i + BLOCK])
        found += int((clock.before(high) - clock.before(low)).sum())
    return found


class _Clock:
    """Time spent inside intervals up to any moment."""

    def __init__(self, start: Ints, end: Ints) -> None:
        self.zero = int(start.min())
        self.start, self.end = np.sort(start - self.zero), np.sort(end - self.zero)
        # Sums may wrap beyond 64 bits; differences of them come out right all the same.
        self.starts = np.r_[0, np.cumsum(self.start, dtype=np.int64)]
        self.ends = np.r_[0, np.cumsum(self.end, dtype=np.int64)]

    def before(self, moment: Ints) -> Ints:
        t = moment - self.zero
        begun, done = np.searchsorted(self.start, t), np.searchsorted(self.end, t)
        with np.errstate(over="ignore"):
            return (begun * t - self.starts[begun]) - (done * t - self.ends[done])


def inside(moment: Ints, low: Ints, high: Ints) -> Bools:
    """Which moments fall in one of the disjoint, sorted windows low ≤ t < high."""
    found = np.zeros(len(moment), bool)
    for i in range(0, len(moment) if len(low) else 0, BLOCK):  # by blocks: a large export has no memory to spare
        part = moment[i : i + BLOCK]
        at = np.searchsorted(low, part, side="right") - 1
        found[i : i + BLOCK] = (at >= 0) & (part < high[np.maximum(at, 0)])
    return found
