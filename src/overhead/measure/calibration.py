"""What this host can do at most and what it asks at least: measured once a run, kept with the host's results."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from overhead.machine import host as hosts
from overhead.measure import probing
from overhead.measure.contestant import Contestant
from overhead.measure.probes import FIXED
from overhead.measure.probing import Ask
from overhead.measure.session import Preset, Session
from overhead.problem.workload import Workload
from overhead.records import record as records
from overhead.records.record import Record

SCHEMA = 1
FILE = "calibration.json"
KINDS = (FIXED, "rate", "product")
RUN = "OVERHEAD_RUN"  # set by `overhead run`: chapters of one run share one calibration


class NoCalibration(ValueError):
    """A host whose ceilings cannot be used; says why and what to do."""


def asks(devices: Sequence[str]) -> list[Ask]:
    """NumPy with one and with all threads; JAX, TensorFlow (through Keras's process) and CuPy where they run."""
    cores = hosts.cores_allowed()
    found = [Ask(Contestant("numpy", "cpu", threads), KINDS) for threads in sorted({1, cores})]
    for device in devices:
        found.append(Ask(Contestant("jax-step", device, cores), KINDS))
        found.append(Ask(Contestant("keras-fit", device, cores), (*KINDS, "frame")))
        if device == "gpu":
            found.append(Ask(Contestant("cupy", device, cores), KINDS))
    return found


def measure(devices: Sequence[str], session: Session, also: Sequence[Ask] = ()) -> list[Record]:
    """The calibration's records, and those of what is `also` asked of the same processes."""
    return probing.measure([*asks(devices), *also], Workload(), session)


def is_part(record: Record) -> bool:
    """Whether a record belongs to the calibration and not to what was asked besides."""
    return probing.kind(record) in (*KINDS, "frame") and not record.env


def for_chapter(
    host: str, devices: Sequence[str], session: Session, results: Path, also: Sequence[Ask] = ()
) -> list[Record]:
    """This run's calibration of `host` and what is `also` asked; measured only where this run has none yet.

    The calibration is kept as `results`/`host`/calibration.json.
    """
    path = results / host / FILE
    kept = _of_this_run(path)
    if kept is not None:
        return kept + (probing.measure(also, Workload(), session) if also else [])
    found = measure(devices, session, also)
    write(path, [r for r in found if is_part(r) or r.op is None])
    return found


def _of_this_run(path: Path) -> list[Record] | None:
    run = os.environ.get(RUN)
    if not run or not path.exists():
        return None
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("run") != run or hosts.other_host(content["host"], hosts.facts()):
        return None
    return [Record.model_validate(line) for line in content["records"]]


def write(path: Path, found: Sequence[Record]) -> None:
    """Keep a calibration, whole or not at all."""
    content = {"schema": SCHEMA, "run": os.environ.get(RUN), **report(found), "records": [r.as_json() for r in found]}
    records.write_text(path, json.dumps(content, indent=None, ensure_ascii=False) + "\n")


def calibrate(host: str, devices: Sequence[str], preset: Preset, results: Path, force: bool = False) -> dict[str, Any]:
    """Measure, keep as `results`/`host`/calibration.json, and return the report."""
    found = measure(devices, Session(preset, {"host": host, "notebook": "calibration"}, force=force))
    write(results / host / FILE, found)
    return report(found)


def as_text(found: dict[str, Any]) -> str:
    """The report for people: a line a ceiling, then a line a floor."""
    lines = [
        f"{c['device']}, {c['threads']} threads: at most {c['flops_per_s'] / 1e9:,.1f} GFLOP/s ({c['flops_by']}), "
        f"{c['bandwidth_bytes_per_s'] / 1e9:,.1f} GB/s ({c['bandwidth_by']})"
        for c in found["ceilings"]
    ]
    for f in found["floors"]:
        each = f["each_us"]
        lines.append(
            f"{f['loop']} ({f['device']}, {f['threads']} threads) {f['name']}: "
            f"{each['median']:.3g} [{each['low']:.3g}, {each['high']:.3g}] us waited for ({f['does']})"
        )
    return "\n".join(lines)


def report(found: Sequence[Record]) -> dict[str, Any]:
    """host (its facts), ceilings and floors, ready for JSON: what `overhead bench --calibrate --json` prints."""
    return {"host": hosts.facts(), "ceilings": ceilings(found), "floors": floors(found)}


def ceilings(found: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry a device and number of threads: flops_per_s and bandwidth_bytes_per_s, with what reached them.

    A ceiling is the fastest block that was seen of any large or step-shaped product, and of any copy or triad, with
    that many threads or fewer.
    """
    rows = []
    for device, threads in dict.fromkeys((r.device, r.threads) for r in found if probing.kind(r) == "rate"):
        here = [r for r in found if r.status == "ok" and r.device == device and (r.threads or 0) <= (threads or 0)]
        products = [r for r in here if probing.kind(r) in ("rate", "product") and (r.op or "") not in ("copy", "triad")]
        streams = [r for r in here if probing.kind(r) == "rate" and r.op in ("copy", "triad")]
        flops, flops_by = max((_rate(r, "flops"), f"{r.loop} {r.op}") for r in products)
        bandwidth, bandwidth_by = max((_rate(r, "bytes"), f"{r.loop} {r.op}") for r in streams)
        rows.append(
            {
                "device": device, "threads": threads, "flops_per_s": flops, "flops_by": flops_by,
                "bandwidth_bytes_per_s": bandwidth, "bandwidth_by": bandwidth_by,
            }
        )  # fmt: skip
    return rows


def _rate(record: Record, of: str) -> float:
    """Units of `of` per second in the fastest block."""
    blocks = probing.per_call_us(record, "end") + probing.per_call_us(record, "each")
    return 1e6 * probing.facts(record)[of] / min(blocks)


def floors(found: Sequence[Record]) -> list[dict[str, Any]]:
    """One entry a floor: loop, device, threads, name, does, and microseconds waited for (each) and not (end)."""
    rows = []
    for r in found:
        if r.status == "ok" and probing.kind(r) in (FIXED, "frame"):
            row = {
                "loop": r.loop,
                "device": r.device,
                "threads": r.threads,
                "name": r.op,
                "does": probing.facts(r)["does"],
            }
            for clock in ("each", "end"):
                i = probing.interval_us(r, clock)
                row[f"{clock}_us"] = {"median": i.median, "low": i.low, "high": i.high, "n": i.n}
            rows.append(row)
    return rows


def ceiling(found: Sequence[dict[str, Any]], device: str, threads: int | None = None) -> dict[str, Any]:
    """The entry of `ceilings` of a device: with `threads`, else with the most. Raises `NoCalibration` without one."""
    of_device = [row for row in found if row["device"] == device and threads in (None, row["threads"])]
    if not of_device:
        had = ", ".join(sorted({row["device"] for row in found})) or "none"
        raise NoCalibration(f"device must be one whose ceilings were measured ({had}), got {device!r}")
    return max(of_device, key=lambda row: row["threads"])


def of_host(results: Path, host: str, device: str = "cpu") -> dict[str, Any]:
    """A host's measured ceilings for `bounds.report`: flops_per_s, bandwidth_bytes_per_s, name.

    Raises `NoCalibration` for a host that has none.
    """
    path = results / host / FILE
    if not path.exists():
        measured = sorted(p.parent.name for p in results.glob(f"*/{FILE}"))
        raise NoCalibration(
            f"--host must be a host with a calibration ({', '.join(measured) or 'none yet'}), got {host!r}; "
            "overhead bench --calibrate --host NAME makes one"
        )
    row = ceiling(json.loads(path.read_text(encoding="utf-8"))["ceilings"], device)
    return {
        "name": f"{host}, {device}, {row['threads']} threads",
        "flops_per_s": row["flops_per_s"],
        "bandwidth_bytes_per_s": row["bandwidth_bytes_per_s"],
    }
