"""What each rung under the floor has to do: FLOPs and bytes of its own, and the least time they take on this host."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd

from overhead.loops import FLOORS, LOOPS
from overhead.loops.sparse import BLOCK
from overhead.measure import calibration, probing
from overhead.problem import bounds
from overhead.problem.nonzeros import PIXEL_BYTES
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

OFTEN = 1 / 8  # as in `loops/products.py`, which imports SciPy's BLAS
WORD = bounds.WORD_BYTES


class Limits(NamedTuple):
    """What this host can do at most."""

    flops_per_s: float
    bytes_per_s: float  # of memory
    near_bytes_per_s: float  # of the second-level caches of all threads; nan where it was not measured


class Work(NamedTuple):
    """What a step of a rung has to do."""

    pixels: float  # an image that are multiplied
    flops: float
    bytes: float  # that it cannot avoid, from memory or wherever they lie
    near_bytes: float  # of the first weights between the cores and their second-level caches; nan: a library's affair


def part(records: Sequence[Record], name: str | None) -> list[Record]:
    """The records of one part of the page; None: the rungs and their floors."""
    return [r for r in records if r.part == name and probing.kind(r) is None]


def counted(records: Sequence[Record]) -> dict[str, Any] | None:
    """The counts of non-zeros; None where they are missing."""
    return next((r.cost for r in part(records, "digits") if r.cost), None)


def pixels(loop: str, digits: dict[str, Any], batch_size: int) -> float:
    """Pixels of an image that a rung multiplies in the first layer."""
    uses, images = digits["by_pixel"], digits["images"]
    if loop == "sorted":
        often = [n for n in uses if n >= OFTEN * images]
        return len(often) + (sum(uses) - sum(often)) / images
    found = {"sparse": sum(uses) / images, "gathered": digits["rows"].get(str(batch_size)), "dropped": digits["used"]}
    return float(found.get(loop) or len(uses))


def work(loop: str, digits: dict[str, Any], workload: Workload) -> Work:
    """What a step of `loop` has to do on these images."""
    inputs, hidden, _ = workload.layers
    size, each = workload.batch_size, pixels(loop, digits, workload.batch_size)
    later = sum(w.flops for w in bounds.gemms(workload) if w.name not in ("z1", "dw1"))
    flops = 2 * 2 * size * each * hidden + later
    rows = {"dropped": digits["used"]}.get(loop, digits["rows"].get(str(size), inputs))
    rows = rows if loop in LOOPS and LOOPS[loop].less_arithmetic else inputs
    index = size * each * (WORD + (PIXEL_BYTES if loop == "sparse" else 0))
    bytes_ = index + WORD * (size + 2 * (workload.parameters - (inputs - rows) * hidden))
    near = math.nan
    if loop == "sparse":
        blocks = -(-size // BLOCK)
        of_block = digits["rows"].get(str(min(size, BLOCK)), inputs)
        near = WORD * hidden * (size * each + 2 * blocks * of_block)
    return Work(each, flops, bytes_, near)


def limits(records: Sequence[Record]) -> Limits | None:
    """What this host was seen to reach; None where it was not measured."""
    found = [r for r in records if calibration.is_part(r)]
    try:
        ceiling = calibration.ceiling(calibration.ceilings(found), "cpu")
    except (calibration.NoCalibration, ValueError):
        return None
    near = probing.select(records, "near")
    rate = math.nan
    if near:
        fastest = min(probing.per_call_us(near[0], "end"))
        rate = ceiling["threads"] * 1e6 * probing.facts(near[0])["bytes"] / fastest
    return Limits(ceiling["flops_per_s"], ceiling["bandwidth_bytes_per_s"], rate)


class Row(NamedTuple):
    """A rung at a batch size; what was not measured is None."""

    record: Record
    seconds: Interval | None  # an epoch
    times_floor: Interval | None
    work: Work | None
    bound_s: float | None  # of an epoch, by its own work


def rows(records: Sequence[Record]) -> list[Row]:
    """A row a rung and batch size in the order of the records."""
    here, digits, found = part(records, None), counted(records), limits(records)
    made = []
    for record in here:
        if record.loop in FLOORS or record.workload is None:
            continue
        asked = work(record.loop, digits, record.workload) if digits else None
        bound = None
        if asked and found:
            near = asked.near_bytes / found.near_bytes_per_s
            times = [asked.flops / found.flops_per_s, asked.bytes / found.bytes_per_s, 0 if math.isnan(near) else near]
            bound = record.steps_per_epoch * max(times)
        seconds = tables.headline(record) if record.status == "ok" else None
        made.append(Row(record, seconds, tables.times_floor(record, here) if seconds else None, asked, bound))
    return made


def name(record: Record) -> str:
    """The rung, with its threads where a loop has rows of several."""
    return f"{record.loop}, 1 thread" if record.loop == "sparse" and record.threads == 1 else record.loop


def kind(loop: str) -> str:
    """Whether the dense floor bounds a loop."""
    return "does less arithmetic" if loop in LOOPS and LOOPS[loop].less_arithmetic else "dense"


def table(records: Sequence[Record]) -> pd.DataFrame:
    """A row a rung and batch size: seconds, times the dense floor, its own work and bound, and its preparation."""
    made, dash = [], tables.NOT_MEASURED
    for row in rows(records):
        record = row.record
        shown = {"rung": name(record), "arithmetic": kind(record.loop), "batch size": record.trained.batch_size}
        prepared = record.placed_s
        made.append(
            {
                **shown,
                "seconds per epoch": tables.interval(row.seconds) if row.seconds else dash,
                "times the dense floor": tables.interval(row.times_floor) if row.times_floor else dash,
                "pixels multiplied, an image": tables.number(row.work.pixels) if row.work else dash,
                "MFLOP a step": tables.number(row.work.flops / 1e6) if row.work else dash,
                "own bound, s": tables.number(row.bound_s) if row.bound_s else dash,
                "placing, index included, s": tables.number(prepared) if prepared else dash,
                "first epoch with placing, s": tables.number(prepared + record.timing.first_s)
                if prepared and record.timing and record.timing.first_s
                else dash,
                "note": "" if record.status == "ok" else f"{record.status}: {record.reason}",
            }
        )
    return pd.DataFrame(made)


def roofline_frame(records: Sequence[Record], batch_size: int) -> pd.DataFrame:
    """For `showing.roofline`: a row a rung, by its own FLOPs and the bytes that it cannot avoid."""
    found = limits(records)
    if found is None:
        return pd.DataFrame()
    made = [
        {
            "backend": "floor (dense arithmetic)" if kind(row.record.loop) == "dense" else "numpy (less arithmetic)",
            "group": kind(row.record.loop),
            "op": name(row.record),
            "intensity_flops_per_byte": row.work.flops / row.work.bytes,
            "achieved_flops_per_s": row.work.flops * row.record.steps_per_epoch / row.seconds.median,
            "launch_flops_per_s": math.nan,
            "peak_flops_per_s": found.flops_per_s,
            "bandwidth_bytes_per_s": found.bytes_per_s,
        }
        for row in rows(records)
        if row.seconds and row.work and row.record.trained.batch_size == batch_size
    ]
    return pd.DataFrame(made)
