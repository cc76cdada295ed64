"""Loops against the measured floor without a notebook: what `overhead bench` prints."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from overhead.chapters.base import ParameterError
from overhead.chapters.provenance import revision, stamped
from overhead.loops import FLOORS, LOOPS
from overhead.machine import host
from overhead.measure.contestant import Contestant, floors
from overhead.measure.journal import Journal
from overhead.measure.rounds import run_cases
from overhead.measure.session import PRESETS, Session
from overhead.problem import bounds, data, nonzeros
from overhead.problem.workload import TRAINING_IMAGES, Workload
from overhead.records.record import Record, write
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.tables import EpochRow


def bench(
    loops: str,
    batch_sizes: Sequence[int],
    layers: Sequence[int],
    preset: str,
    device: str = "auto",
    remainder: str = "drop",
    images: int | None = None,
    learning_rate: Any = "0.1",
    threads: str = "all",
    processes: int | None = None,
    without_floor: bool = False,
    records: Path | None = None,
    force: bool = False,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure; returns host, rows, floors and ratios, ready for `json.dumps` (no nan).

    `loops`: "all", or names with commas between; `package.module:Class` names a loop of one's own. A loop that
    runs on no device of this host has a row that says so. With a file for the `records` each finished case is kept in
    a journal beside it, and a bench that is asked for again goes on there. Raises `ParameterError` for a name that is
    no loop and a device that this host lacks.
    """
    names = list(LOOPS) if loops == "all" else list(dict.fromkeys(name.strip() for name in loops.split(",")))
    for name in names:
        if name not in LOOPS and ":" not in name:
            raise ParameterError(f"--loops must be of {', '.join(LOOPS)}, or package.module:Class, got {name!r}")
    has_gpu = bool(host.gpus())
    if device == "gpu" and not has_gpu:
        raise ParameterError("--device must name a device of this host (cpu), got gpu: no NVIDIA GPU was found")
    devices = ["cpu", "gpu"] if device == "auto" and has_gpu else ["cpu"] if device == "auto" else [device]
    workloads = [
        Workload(
            layers=tuple(layers), batch_size=size, images=TRAINING_IMAGES if images is None else images,
            remainder=remainder, learning_rate=learning_rate,  # type: ignore[arg-type]
        )
        for size in dict.fromkeys(batch_sizes)
    ]  # fmt: skip
    counts = [host.cores_allowed() if part == "all" else _threads(part) for part in threads.split(",")]
    contestants = [
        Contestant(name, kind, count)
        for name in names
        for kind in _devices_of(name, devices)
        for count in dict.fromkeys(counts)
    ]
    commit, dirty = revision()
    provenance = {"host": "local", "notebook": "bench", "commit": commit, "dirty": dirty, "preset": preset}
    chosen = PRESETS[preset]
    session = Session(chosen._replace(processes=processes or chosen.processes), provenance, say, force=force)
    everyone = contestants if without_floor else contestants + floors(devices)
    return report(_kept(everyone, workloads, session, records))


def _kept(
    contestants: Sequence[Contestant], workloads: Sequence[Workload], session: Session, path: Path | None
) -> list[Record]:
    """The records of the cases; with a path in a file there, which is whole or not at all."""
    if path is None:
        return run_cases(contestants, workloads, session)
    asked = [[*c.resolved()] for c in contestants], [w.model_dump(mode="json") for w in workloads]
    journal = Journal(path.with_name(f".{path.stem}.journal"), {**session.provenance, "asked": asked})
    complete = False
    try:
        found = stamped(run_cases(contestants, workloads, session._replace(journal=journal)))
        write(path, found)
        complete = True
    finally:
        journal.close(complete=complete)
    return found


def _devices_of(name: str, devices: Sequence[str]) -> list[str]:
    """Those of `devices` that the loop runs on; else its own first one, on which its worker says why it cannot."""
    able = LOOPS[name].devices if name in LOOPS else ("cpu", "gpu")
    return [kind for kind in devices if kind in able] or list(able[:1])


def _threads(text: str) -> int:
    if not text.strip().isdigit() or not 1 <= int(text) <= host.cores_allowed():
        raise ParameterError(f"--threads must be between 1 and {host.cores_allowed()} (cores allowed), got {text!r}")
    return int(text)


def report(found: Sequence[Record]) -> dict[str, Any]:
    """Records in the form of design's `bench --json`."""
    rows = tables.epoch_rows(found)
    sizes = list(dict.fromkeys(row.record.trained.batch_size for row in rows))
    floor_rows = [
        {
            "batch_size": size,
            "device": device,
            "threads": floor[0].threads,
            "epoch_s": floor[1].median,
            "low": floor[1].low,
            "high": floor[1].high,
            "library": floor[0].loop.removeprefix("floor-"),
        }
        for size in sizes
        for device in ("cpu", "gpu")
        if (floor := tables.floor_of(found, size, device))
    ]
    return {
        "host": host.facts(),
        "rows": [_row(row) for row in rows],
        "floors": floor_rows,
        "ratios": ratios(found, sizes),
    }


def _row(row: EpochRow) -> dict[str, Any]:
    """A row of `report`; what was not measured, or is no finite number, is None."""
    record, workload = row.record, row.record.trained
    timing = record.timing if row.epoch_s else None
    return {
        "loop": record.loop,
        "device": record.device,
        "threads": record.threads,
        "batch_size": workload.batch_size,
        "status": record.status,
        "reason": record.reason,
        "does_less_arithmetic": does_less_arithmetic(record.loop),
        "nonzero_step": nonzero_step(workload) if does_less_arithmetic(record.loop) else None,
        "epoch_s": row.epoch_s._asdict() if row.epoch_s else None,
        "headline_s": _headline(row.headline_s) if row.headline_s else None,
        "first_s": _finite(timing.first_s) if timing else None,
        "placed_s": _finite(record.placed_s),
        "val_accuracy": _finite(record.val_accuracy[-1]) if record.val_accuracy else None,
        "times_floor": _ends(row.times_floor) if row.times_floor else None,
        "peak_rss_bytes": record.peak_rss_bytes,
        "steps": workload.steps,
        "images_seen": workload.images_seen,
        "stopped": timing.stopped if timing else None,
        "disturbed": "; ".join(record.disturbed),
        "spread": row.spread._asdict() if row.spread else None,
        "cores_allowed": record.cores_allowed,
        "busy_threads": record.busy_threads,
    }


def _headline(found: Interval) -> dict[str, float]:
    return {"value": found.median, "low": found.low, "high": found.high, "n": found.n}


def _ends(ratio: Interval) -> dict[str, float]:
    return {"median": ratio.median, "low": ratio.low, "high": ratio.high}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def does_less_arithmetic(loop: str) -> bool:
    """Whether the dense floor is no bound for the loop, since it leaves out multiplications by zero."""
    return loop in LOOPS and LOOPS[loop].less_arithmetic


@cache
def nonzero_step(workload: Workload) -> dict[str, float]:
    """FLOPs and bytes of a step that multiplies by no zero pixel, beside those of the dense step."""
    found = nonzeros.count(data.for_workload(workload).x, workload)
    return {
        "flops": nonzeros.step_flops(workload, found),
        "bytes": nonzeros.step_bytes(workload, found),
        "dense_flops": bounds.step_flops(workload),
        "dense_bytes": bounds.step_bytes(workload),
    }


def _undisturbed(record: Record) -> float:
    found = tables.headline(record)
    return found.median if found else math.inf


def ratios(found: Sequence[Record], sizes: Sequence[int]) -> list[dict[str, Any]]:
    """At each batch size, each timed loop against the next faster one, and every loop against the fastest."""
    out = []
    for size in sizes:
        at_size = [r for r in found if r.trained.batch_size == size]
        timed = [r for r in at_size if r.status == "ok" and r.loop not in FLOORS]
        ordered = sorted(timed, key=_undisturbed)
        pairs = list(pairwise(ordered)) + [(ordered[0], other) for other in ordered[2:]]
        for faster, slower in pairs:
            ratio = tables.ratio(slower, faster)
            if ratio:
                out.append(
                    {
                        "slower": slower.loop,
                        "slower_device": slower.device,
                        "faster": faster.loop,
                        "faster_device": faster.device,
                        "batch_size": size,
                        "threads": [slower.threads, faster.threads],
                        "ratio": _ends(ratio),
                        "verdict": tables.verdict(slower, faster, ratio),
                    }
                )
    return out


def _threads_used(row: dict[str, Any]) -> str:
    """What to say where the threads that worked are not those that were allowed; nothing where they are."""
    busy, allowed = row["busy_threads"], row["cores_allowed"]
    if busy is None or allowed is None or busy == min(allowed, row["threads"]):
        return ""
    return f"{busy} {'thread' if busy == 1 else 'threads'} worked, {allowed} allowed"


def _typical(row: dict[str, Any]) -> str:
    """The median, where it parts from the undisturbed time."""
    median, headline = row["epoch_s"]["median"], row["headline_s"]
    return f" (typically {tables.number(median)})" if median > headline["high"] else ""


def _less(step: dict[str, float]) -> str:
    share = step["flops"] / step["dense_flops"]
    return f", does less arithmetic ({100 * share:.0f} % of the FLOPs that the floor does)"


def as_text(found: dict[str, Any]) -> str:
    """The report for people: a line a case, in order of batch size and time."""
    lines = []
    for floor in found["floors"]:
        lines.append(
            f"floor at {floor['batch_size']}: {tables.with_interval(floor['epoch_s'], floor['low'], floor['high'])} "
            f"s an epoch ({floor['library']}, {floor['device']}, {floor['threads']} threads)"
        )
    ordered = sorted(found["rows"], key=lambda r: (r["batch_size"], (r["headline_s"] or {"value": math.inf})["value"]))
    for row in ordered:
        name = f"{row['loop']} ({row['device']}, {row['threads']} threads) at {row['batch_size']}"
        if row["status"] != "ok":
            lines.append(f"{name}: {row['status']}: {row['reason']}")
            continue
        times = row["times_floor"]
        lines.append(
            f"{name}: {tables.with_interval(*(row['headline_s'][k] for k in ('value', 'low', 'high')))} s an epoch"
            + _typical(row)
            + (f", {tables.with_interval(**times)} times the floor" if times else "")
            + (_less(row["nonzero_step"]) if row["nonzero_step"] else "")
            + (f", placed in {tables.number(row['placed_s'])} s" if row["placed_s"] is not None else "")
            + (f", validation accuracy {100 * row['val_accuracy']:.2f} %" if row["val_accuracy"] is not None else "")
            + (f", {_threads_used(row)}" if _threads_used(row) else "")
            + (f" [{row['disturbed']}]" if row["disturbed"] else "")
        )
    return "\n".join(lines)
