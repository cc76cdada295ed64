"""Profiles made to take for ever or to fill the memory: each is refused, in seconds, by file, limit and value."""

import gzip
import os
import resource
import sqlite3
import struct
import subprocess
import sys
import time

import pytest

from make_big_profile import SCHEMA, global_pid, write_export
from overhead.profiles import ProfileError, limits, nsys, read_profile

TABLE = "CUPTI_ACTIVITY_KIND_"
PAGE = 4096
SECONDS = 20  # on a busy machine; none takes more than a few on an idle one
RUNTIME = f"INSERT INTO {TABLE}RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)"


def refused(path, within_s=SECONDS) -> str:
    """What is said of the file; it takes seconds at most, and is one line that begins with the file's name."""
    began = time.monotonic()
    with pytest.raises(ProfileError) as raised:
        read_profile(path)
    assert time.monotonic() - began < within_s
    said = str(raised.value)
    assert said.startswith(f"{path.name}: ")
    assert "\n" not in said
    return said


def new_export(path, schema=SCHEMA):
    sql = sqlite3.connect(path)
    sql.executescript(f"PRAGMA page_size = {PAGE}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF;" + schema)
    return sql


def share_children(path, table, levels=8, cells=300):
    """Put inner pages above the table's only page, all whose children are one and the same page."""
    sql = sqlite3.connect(path)
    (root,) = sql.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    sql.close()
    raw = bytearray(path.read_bytes())
    pages = len(raw) // PAGE
    raw += raw[(root - 1) * PAGE : root * PAGE]  # the leaf, whose place the first inner page takes
    for level in range(levels):
        number = root if level == 0 else pages + 1 + level
        child = pages + 1 if level == levels - 1 else pages + 2 + level
        cell = struct.pack(">I", child) + b"\x01"
        at = PAGE - len(cell)
        inner = struct.pack(">BHHHBI", 5, 0, cells, at, 0, child) + struct.pack(">H", at) * cells
        inner = inner.ljust(at, b"\0") + cell
        if number > len(raw) // PAGE:
            raw += inner
        else:
            raw[(number - 1) * PAGE : number * PAGE] = inner
    raw[28:32] = struct.pack(">I", len(raw) // PAGE)
    path.write_bytes(raw)


def test_pages_that_share_their_children_are_not_followed_for_ever(tmp_path):
    path = tmp_path / "shared.sqlite"
    sql = new_export(path)
    sql.execute(RUNTIME, (0, 5, global_pid(0) + 1, 1, 0))
    sql.execute("INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel')")
    sql.commit()
    sql.close()
    share_children(path, f"{TABLE}RUNTIME")

    assert path.stat().st_size < 100_000
    assert "more rows than the file has bytes" in refused(path)


def test_rows_without_end_that_none_is_wanted_of_are_ended_by_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "SHORTEST_S", 1.0)
    path = tmp_path / "filtered.sqlite"
    sql = new_export(path)
    sql.execute("INSERT INTO NVTX_EVENTS VALUES (0, 5, 1, 'a mark', 1, NULL)")  # no range, so never a row
    sql.commit()
    sql.close()
    share_children(path, "NVTX_EVENTS")

    assert "reading must take at most 1 s (by the file's size) and has not ended" in refused(path)


def test_sqlite_is_interrupted_within_a_step_of_its_own(tmp_path, monkeypatch):
    """One instruction, such as the count of all rows, may itself never end."""
    monkeypatch.setattr(limits, "SHORTEST_S", 1.0)
    path = tmp_path / "counted.sqlite"
    sql = new_export(path)
    sql.execute(RUNTIME, (0, 5, global_pid(0) + 1, 1, 0))
    sql.commit()
    sql.close()
    share_children(path, f"{TABLE}RUNTIME")
    monkeypatch.setattr(nsys, "_events", lambda export: export.sql.execute(f"SELECT count(*) FROM {TABLE}RUNTIME"))

    assert "reading must take at most 1 s" in refused(path)


def test_a_schema_that_shares_its_pages_ends_too(tmp_path):
    path = tmp_path / "schema.sqlite"
    new_export(path).close()
    raw = bytearray(path.read_bytes())
    leaf, pages = raw[100:PAGE], len(raw) // PAGE
    cell = struct.pack(">I", pages + 1) + b"\x01"
    inner = struct.pack(">BHHHBI", 5, 0, 300, PAGE - 5, 0, pages + 1) + struct.pack(">H", PAGE - 5) * 300
    raw[100:PAGE] = inner.ljust(PAGE - 105, b"\0") + cell
    raw += leaf[: PAGE - 100].ljust(PAGE, b"\0")
    raw[28:32] = struct.pack(">I", len(raw) // PAGE)
    path.write_bytes(raw)

    refused(path)


def test_as_many_threads_as_calls_are_refused(tmp_path):
    path = tmp_path / "threads.sqlite"
    sql = new_export(path)
    sql.execute("INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel'), (1, 'cuLaunchKernel')")
    rows = ((10 * i, 10 * i + 5, global_pid(0) + i, i + 1, i % 2) for i in range(300_000))
    sql.executemany(RUNTIME, rows)
    sql.commit()
    sql.close()

    assert "threads must be at most 20,000, got " in refused(path)


def test_as_many_threads_as_are_allowed_take_seconds(tmp_path):
    """Launches of both APIs on every thread: which one made which is not looked for thread by thread."""
    path = tmp_path / "threads.sqlite"
    sql = new_export(path)
    sql.execute("INSERT INTO StringIds VALUES (0, 'cudaLaunchKernel'), (1, 'cuLaunchKernel')")
    inner = [(10 * i + 1, 10 * i + 4, global_pid(0) + i, 0, 1) for i in range(20_000)]
    outer = [(10 * i, 10 * i + 5, global_pid(0) + i, i + 1, 0) for i in range(20_000)]
    sql.executemany(RUNTIME, inner + outer)
    sql.commit()
    sql.close()
    began = time.monotonic()

    assert read_profile(path).launches.total == 20_000
    assert time.monotonic() - began < SECONDS


@pytest.mark.parametrize(
    ("column", "says"),
    [("process", "processes must be at most 1,000, got "), ("device", "devices must be at most 256, got "),
     ("kernel", "names of kernels must be at most 20,000, got "),
     ("call", "names of calls must be at most 20,000, got "),
     ("range", "names of ranges must be at most 200,000, got ")],
)  # fmt: skip
def test_more_of_anything_than_a_summary_can_hold_is_refused(tmp_path, column, says):
    path = tmp_path / "many.sqlite"
    sql = new_export(path)
    count = 250_000 if column == "range" else 30_000

    def of(name, i):
        return i if name == column else 0

    sql.executemany(
        f"INSERT INTO {TABLE}KERNEL VALUES (?, ?, ?, 1, 7, ?, ?, ?, 0, 1, 1, 1, NULL)",
        (
            (10 * i, 10 * i + 5, of("device", i), i, global_pid(of("process", i)), of("kernel", i))
            for i in range(30_000)
        ),
    )
    sql.executemany(RUNTIME, ((10 * i, 10 * i + 5, global_pid(0) + 1, i, of("call", i)) for i in range(30_000)))
    sql.executemany(
        "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)",
        ((10 * i, 10 * i + 5, f"step {of('range', i)}", global_pid(0) + 1) for i in range(count)),
    )
    sql.commit()
    sql.close()

    assert says in refused(path)


def test_names_without_a_key_are_read_once_and_not_once_a_name(tmp_path):
    path = tmp_path / "keyless.sqlite"
    sql = new_export(path, SCHEMA.replace("id INTEGER NOT NULL PRIMARY KEY", "id INTEGER NOT NULL"))
    names = 15_000
    sql.executemany("INSERT INTO StringIds VALUES (?, ?)", ((i, f"cudaCall{i}") for i in range(150_000)))
    sql.executemany(RUNTIME, ((10 * i, 10 * i + 5, global_pid(0) + 1, i, 150_000 - 1 - i) for i in range(names)))
    sql.executemany(
        "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, ?, ?)",
        ((10 * i, 10 * i + 5, global_pid(0) + 1, i) for i in range(names)),
    )
    sql.commit()
    sql.close()
    began = time.monotonic()

    assert len(read_profile(path).api) == names
    assert time.monotonic() - began < SECONDS


def test_thirty_million_events_are_counted_and_not_read(tmp_path):
    pytest.importorskip("jax", reason="needs JAX")

    def field(number, content):
        length, size = b"", len(content)
        while size > 127:
            length += bytes([size & 127 | 128])
            size >>= 7
        return bytes([number << 3 | 2]) + length + bytes([size]) + content

    path = tmp_path / "events.xplane.pb"
    events = b"\x22\x00" * 30_000_000
    path.write_bytes(field(1, field(2, b"/host:CPU") + field(3, field(2, b"a thread") + events)))

    assert "events and their statistics in an xplane.pb must be at most 4,000,000, got 4,000,001" in refused(path)


MEASURED = """
import sys
from overhead.machine.usage import peak_rss_bytes
from overhead.profiles import read_profile
try:
    read_profile(sys.argv[1])
except ValueError as error:
    print(error)
print(peak_rss_bytes() // 2**20)
"""


@pytest.mark.parametrize(
    ("unit", "blocks", "says"),
    [(b"{},", 254, "brackets in a trace must be at most 8,000,000"), (b"[" * 2, 254, "brackets in a trace"),
     (b"1,", 254, "commas in a trace must be at most 32,000,000"),
     (b" " * 4, 256, "bytes of a trace, unpacked, must be at most 268,435,456")],
)  # fmt: skip
def test_a_quarter_megabyte_of_gzip_takes_less_than_one(tmp_path, unit, blocks, says):
    path = tmp_path / "bomb.trace.json.gz"
    with gzip.open(path, "wb", 6) as file:
        file.write(b'{"traceEvents": [')
        for _ in range(blocks):
            file.write(unit * (1_050_000 // len(unit)))
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(path)], capture_output=True, text=True, timeout=120, check=True
    )

    said, peak_mib = done.stdout.splitlines()
    assert path.stat().st_size < 300_000
    assert said.startswith(f"bomb.trace.json.gz: {says}")
    assert int(peak_mib) < 1024
    assert time.monotonic() - began < SECONDS


def bad_file(tmp_path, kind):
    """A path that is no file to be read, and what is said of it."""
    path = tmp_path / "given"
    if kind == "pipe":
        os.mkfifo(path)
        return path, "it must be a file, got a pipe"
    if kind == "device":
        path.symlink_to("/dev/zero")
        return path, "it must be a file, got a device"
    if kind == "loop":
        path.symlink_to(path)
        return path, "Too many levels of symbolic links"
    if kind == "folder":
        path.mkdir()
        return path, "in this folder"
    if kind == "empty":
        path.touch()
        return path, "the file is empty"
    path.write_text("x")
    path.chmod(0)
    return path, "Permission denied"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("kind", ["pipe", "device", "loop", "folder", "empty", "locked"])
def test_what_is_no_file_is_refused_at_once(tmp_path, kind):
    if kind == "locked" and os.geteuid() == 0:
        pytest.skip("root may read every file")
    path, says = bad_file(tmp_path, kind)

    assert says in refused(path, within_s=5)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("name", ["a.csv", "a.xplane.pb", "a.trace.json.gz"])
def test_a_pipe_in_a_folder_is_refused_at_once(tmp_path, name):
    os.mkfifo(tmp_path / name)

    assert "it must be a file, got a pipe" in refused(tmp_path, within_s=5)


def test_a_whole_export_is_far_from_every_limit(tmp_path):
    path = tmp_path / "whole.sqlite"
    write_export(path, 20_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    read_profile(path)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_utime - before < limits.Deadline(path.stat().st_size).limit_s / 4
