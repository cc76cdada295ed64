"""What a profile says, whatever tool wrote it: counts and times, with null for what was not measured."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

Source = Literal["nsys-sqlite", "nsys-csv", "jax-xplane", "jax-trace-json"]

NO_ACTIVITY = (
    "no CUDA activity in this profile; likely causes: the program ran on the CPU, the work was done by a child "
    "process that was not traced, tracing was switched off or not permitted (containers, WSL), or the profile "
    "was cut before the first launch"
)


class ProfileError(ValueError):
    """A file that cannot be read as a profile, or a tool that failed; one line that says why."""


def one_line(text: str, length: int = 100) -> str:
    """Other people's text for one line of a message or a table: printable, at most `length` characters."""
    plain = "".join(c if c.isprintable() else "·" for c in text[: 4 * length])
    return plain if len(plain) <= length else plain[: length - 1] + "…"


class Frozen(BaseModel):
    """A value: compared by content, never changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Launches(Frozen):
    """Host calls that start kernels. A graph launch is one call, whatever the graph holds."""

    kernel: int
    graph: int
    total: int


class ApiRow(Frozen):
    """One host function: its calls overlap GPU work and each other, so totals are no shares of wall time."""

    name: str
    count: int
    total_ns: int
    median_ns: float | None
    waiting: bool  # a synchronising call: its time is waiting for the device, not work of the host


class WaitRow(Frozen):
    name: str
    count: int
    total_ns: int
    median_ns: float | None


class Queue(Frozen):
    """Queue time: kernel start less the return of the call that launched it, where that is not negative."""

    count: int
    total_ns: int | None
    median_ns: float | None
    early: int  # kernels that started before their launch call returned; they have no queue time


class Kernels(Frozen):
    """`matched`: kernels whose launch call is in the profile, by correlation id and process."""

    count: int
    total_ns: int | None
    median_ns: float | None
    matched: int | None
    unmatched: int | None


class KernelRow(Frozen):
    name: str
    count: int
    total_ns: int
    median_ns: float | None


class ThreeTimes(Frozen):
    """Medians of the call, the queue and the kernel for one kernel launched by one call of one thread."""

    process: int
    thread: int
    device: int | str
    api: str
    kernel: str
    count: int
    queued: int  # pairs with a queue time
    api_median_ns: float | None
    queue_median_ns: float | None
    kernel_median_ns: float | None


def most_frequent(row: ThreeTimes) -> tuple:
    """Sort key of `three_times`: the most frequent pair first."""
    return -row.count, row.kernel, row.process, row.thread, str(row.device), row.api


class CopyRow(Frozen):
    kind: str  # host-to-device, device-to-host, device-to-device, …
    count: int
    bytes: int | None
    total_ns: int | None


class BusyRow(Frozen):
    """How long a device had at least one kernel, copy or memset (or traced graph) running.

    `span_ns` goes from the device's first activity to the end of its last; within an NVTX range it is the
    length of the range. `busy_share` is the union of the intervals over that span. `sum_ns` counts
    overlapping activities more than once and so can exceed the span.
    """

    device: int | str
    span_ns: int
    union_ns: int
    sum_ns: int
    busy_share: float | None
    idle_host_ns: int  # nothing was queued: the next launch call had not returned when the device ran dry
    idle_gap_ns: int  # the next work had been launched already: the gap between kernels
    idle_unknown_ns: int  # the launch of the next work is not in the profile
    profile_share: float | None  # the union over the wall span of the whole profile


class Counts(Frozen):
    """What is counted of a whole profile and of each part of it; null is "not measured", never zero."""

    launches: Launches | None = None
    api: tuple[ApiRow, ...] = ()
    waits: tuple[WaitRow, ...] = ()
    queue: Queue | None = None
    kernels: Kernels | None = None
    copies: tuple[CopyRow, ...] = ()
    memsets: int | None = None
    memset_ns: int | None = None
    graphs: int | None = None  # graphs traced as one block each
    ops: tuple[KernelRow, ...] = ()  # XLA's operations on a CPU
    busy: tuple[BusyRow, ...] = ()


class Part(Counts):
    """The same counts for one process, one device or one NVTX range.

    A range holds the calls that began inside it, in its process, and what they launched; its busy share is
    that of the time between its ends.
    """

    by: Literal["process", "device", "range"]
    name: str
    process: int | None = None
    count: int | None = None  # how often the range was entered
    span_ns: int | None = None  # total length of the range


class ProfileSummary(Counts):
    """One profile: its counts, and the same counts by process, device and NVTX range."""

    source: Source
    processes: int | None
    devices: int | None
    span_ns: int | None  # first event to last, host and device
    executions: int | None = None  # runs of compiled XLA programs
    graph_trace: Literal["graph", "node"] | None = None  # were graphs traced whole or kernel by kernel
    kernel_names: tuple[KernelRow, ...] = ()
    three_times: tuple[ThreeTimes, ...] = ()
    parts: tuple[Part, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The summary as JSON types, in the order in which a reader wants it; absent is null."""
        found = self.model_dump(mode="json")
        order = ["source", "span_ns", "processes", "devices", *Counts.model_fields]
        return {key: found[key] for key in [*order, *(key for key in found if key not in order)]}
