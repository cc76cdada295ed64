"""What the page on the thirteen operations claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overhead.chapters.per_op.chapter import PerOp
from overhead.loops.base import STEP_OPS
from overhead.problem import bounds
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing.claims import Claim, Finding, above, below, largest, missing

CHAPTER = "01-per-op-breakdown"
GEMMS = tuple(work.name for work in bounds.gemms(Workload()))


def row_of(records: Sequence[Record], backend: str) -> Any:
    """The row of `PerOp.steps_frame` of a backend; None where it was not timed."""
    frame = PerOp().steps_frame(records)
    return next((row for row in frame.itertuples() if row.backend == backend), None)


def looking(records: Sequence[Record]) -> Finding:
    row = row_of(records, "numpy (cpu)")
    return missing("NumPy was not timed op by op") if row is None else above(row.ratio)


def on_one_processor(records: Sequence[Record]) -> Finding:
    ours, other = row_of(records, "numpy (cpu)"), row_of(records, "tf-eager (cpu)")
    if ours is None or other is None:
        return missing("NumPy and TensorFlow were not both timed on the CPU")
    # apart in time, so that only intervals that do not touch can tell them apart
    low, high = other.sum.low / ours.sum.high, other.sum.high / ours.sum.low
    return above(Interval(other.sum.median / ours.sum.median, low, high, min(other.sum.n, ours.sum.n)))


def largest_op(records: Sequence[Record]) -> Finding:
    frame = PerOp().frame(records)
    ours = frame[frame["backend"] == "numpy (cpu)"] if len(frame) else frame
    found = {row.op: Interval(row.median_us, row.low_us, row.high_us, row.n) for row in ours.itertuples()}
    if not found:
        return missing("NumPy was not timed op by op")
    return largest(found, max(found, key=lambda op: found[op].median), " us")


def elementwise(records: Sequence[Record]) -> Finding:
    frame = PerOp().frame(records)
    ours = frame[frame["backend"] == "numpy (cpu)"].set_index("op") if len(frame) else frame
    if set(STEP_OPS) - set(ours.index):
        return missing("NumPy was not timed op by op")
    rest = ours.loc[[op for op in STEP_OPS if op not in GEMMS]].sum()
    whole = ours["median_us"].sum()
    low, high = 100 * rest["low_us"] / whole, 100 * rest["high_us"] / whole
    share = Interval(100 * rest["median_us"] / whole, low, high, int(ours["n"].min()))
    flops = {work.name: work.flops for work in bounds.ops(Workload())}
    of_arithmetic = 100 * sum(count for op, count in flops.items() if op not in GEMMS) / sum(flops.values())
    return above(share, of_arithmetic, f"% of the summed time, {of_arithmetic:.1f} % of the arithmetic")


def gpu(records: Sequence[Record]) -> Finding:
    ours, other = row_of(records, "numpy (cpu)"), row_of(records, "tf-eager (gpu)")
    if ours is None or other is None:
        return missing("no GPU was timed")
    low, high = ours.sum.low / other.sum.high, ours.sum.high / other.sum.low
    return below(Interval(ours.sum.median / other.sum.median, low, high, ours.sum.n))


CLAIMS = [
    Claim(
        "looking-costs",
        "Timed one by one, NumPy's thirteen operations are slower than the same calls with one wait at the end.",
        CHAPTER,
        looking,
        ("S1",),
    ),
    Claim(
        "library-alone-differs",
        "TensorFlow's thirteen operations are slower than NumPy's on one and the same processor: a gap "
        "without a device.",
        CHAPTER,
        on_one_processor,
        ("S1",),
    ),
    Claim(
        "synchronised-cpu-faster",
        "With a wait after each operation, NumPy on the CPU is faster than TensorFlow on the GPU.",
        CHAPTER,
        gpu,
        ("S1",),
    ),
    Claim("one-op-is-largest", "One of NumPy's operations is the largest beyond doubt.", CHAPTER, largest_op),
    Claim(
        "time-is-not-arithmetic",
        "The operations that are no product take a larger share of NumPy's time than of the arithmetic.",
        CHAPTER,
        elementwise,
        ("S4",),
    ),
]
