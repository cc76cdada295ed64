"""Writes a synthetic nsys export of any size and measures reading it; at 10 million rows not for CI.

    python tests/make_big_profile.py big.sqlite --rows 10000000
    python tests/make_big_profile.py big.sqlite --measure

A tenth of the rows is a step: three launches with a kernel each, events and a wait; every third has a copy.
"""

import argparse
import json
import resource
import sqlite3
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

PROCESSES = 2
CALLS = ["cudaLaunchKernel_v7000"] * 3 + ["cudaMemcpyAsync_v3020"] + ["cudaEventRecord_v3020"] * 5
CALLS += ["cudaStreamSynchronize_v3020"]
KERNELS = ["void gemm<float, 128>(float *, T1)", "relu", "sgd_update"]
STRINGS = [*dict.fromkeys(CALLS), *KERNELS, "step"]
STEP_NS = 60_000
CALL_NS = [5_000, 5_100, 5_200, 6_000, 900, 900, 900, 900, 900, 20_000]

SCHEMA = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, textId INTEGER);
"""


def global_pid(process: int) -> int:
    return 1 << 48 | (100 + process) << 24


def steps(rows: int) -> Iterator[tuple[int, int, int]]:
    """Process, start and first correlation id of each step."""
    for step in range(-(-rows // len(CALLS))):
        yield step % PROCESSES, 10**9 + step // PROCESSES * STEP_NS, 1 + step * len(CALLS)


def call_rows(rows: int) -> Iterator[tuple]:
    ids = [STRINGS.index(name) for name in CALLS]
    for process, start, first in steps(rows):
        for i, name in enumerate(ids):
            jitter = (first * 31 + i) % 97
            yield start, start + CALL_NS[i] + jitter, global_pid(process) + process + 1, first + i, name
            start += CALL_NS[i] + 200


def kernel_rows(rows: int) -> Iterator[tuple]:
    names = [STRINGS.index(name) for name in KERNELS]
    for process, start, first in steps(rows):
        for i, name in enumerate(names):
            begin = start + 9_000 + 8_000 * i
            yield begin, begin + 3_000 + first % 89, process, 7, first + i, global_pid(process), name, name, 4 + i


def copy_rows(rows: int) -> Iterator[tuple]:
    for process, start, first in islice(steps(rows), 0, None, 3):
        begin = start + 34_000
        yield begin, begin + 2_000, process, 7, first + 3, global_pid(process), 100_352, 1


def range_rows(rows: int) -> Iterator[tuple]:
    name = STRINGS.index("step")
    for process, start, _ in islice(steps(rows), 0, None, 5):
        yield start, start + STEP_NS - 1, global_pid(process) + process + 1, name


def write_export(path: Path, rows: int) -> None:
    """An export with `rows` host calls in two processes on two devices."""
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + SCHEMA)
    connection.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(STRINGS))
    table = "CUPTI_ACTIVITY_KIND_"
    connection.executemany(
        f"INSERT INTO {table}RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)", islice(call_rows(rows), rows)
    )
    connection.executemany(
        f"INSERT INTO {table}KERNEL VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, 1, 1, NULL)", kernel_rows(rows)
    )
    connection.executemany(f"INSERT INTO {table}MEMCPY VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?)", copy_rows(rows))
    connection.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, ?)", range_rows(rows))
    connection.commit()
    connection.close()


def measure(path: Path) -> dict:
    """Seconds (wall and this process's CPU) and peak memory of reading the export, imports included."""
    began = time.perf_counter()
    from overhead.profiles import read_profile

    summary = read_profile(path)
    seconds = time.perf_counter() - began
    scale = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
    calls = sum(row.count for row in summary.api)
    kernels = summary.kernels.count if summary.kernels else 0
    cpu = time.process_time()  # what a machine that does nothing else would take
    return {
        "calls": calls,
        "kernels": kernels,
        "read_s": round(seconds, 2),
        "cpu_s": round(cpu, 2),
        "peak_rss_mib": round(peak / 2**20),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--measure", action="store_true", help="read it instead of writing it")
    wanted = parser.parse_args()
    if wanted.measure:
        print(json.dumps(measure(wanted.path)))
    else:
        write_export(wanted.path, wanted.rows)
