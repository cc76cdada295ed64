"""What the readers say of profiles whose contents are known."""

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from make_big_profile import SCHEMA, global_pid, write_export
from overhead.profiles import ProfileError, difference, example, nsys, read_events, read_profile
from overhead.profiles.command import profile
from overhead.profiles.events import merge, union_ns, within
from overhead.profiles.frames import label, three_times
from overhead.profiles.text import show

MS = 1_000_000
TABLE = "CUPTI_ACTIVITY_KIND_"
PID = 100
DESIGNED = {
    "processes", "devices", "launches", "api", "waits", "kernels", "copies", "memsets", "busy", "warnings",
}  # fmt: skip


class Export:
    """A small export, row by row."""

    def __init__(self, path: Path) -> None:
        self.path, self.strings = path, []
        self.sql = sqlite3.connect(path)
        self.sql.executescript(SCHEMA)
        self.sql.execute(
            f"CREATE TABLE {TABLE}GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
            "correlationId INTEGER, globalPid INTEGER, graphId INTEGER)"
        )

    def name(self, text: str) -> int:
        if text not in self.strings:
            self.strings.append(text)
            self.sql.execute("INSERT INTO StringIds VALUES (?, ?)", (self.strings.index(text), text))
        return self.strings.index(text)

    def call(self, name: str, start: int, end: int, correlation: int = 0, thread: int = 1, process: int = 0) -> None:
        row = (start, end, global_pid(process) + thread, correlation, self.name(name))
        self.sql.execute(f"INSERT INTO {TABLE}RUNTIME VALUES (?, ?, 0, ?, ?, ?, 0, NULL)", row)

    def kernel(
        self, start: int, end: int, correlation: int = 0, stream: int = 7, device: int = 0, process: int = 0,
        name: str = "k", node: int | None = None,
    ) -> None:  # fmt: skip
        number = self.name(name)
        row = (start, end, device, stream, correlation, global_pid(process), number, number, node)
        self.sql.execute(f"INSERT INTO {TABLE}KERNEL VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, 1, 1, 1, ?)", row)

    def range(self, text: str, start: int, end: int, thread: int = 1) -> None:
        row = (start, end, text, global_pid(0) + thread)
        self.sql.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?, NULL)", row)

    def read(self):
        self.sql.commit()
        return read_profile(self.path)


@pytest.fixture
def export(tmp_path):
    made = Export(tmp_path / "made.sqlite")
    yield made
    made.sql.close()


@pytest.fixture(scope="module")
def h100():
    return read_profile(example())


def run(*arguments, code=0):
    result = CliRunner().invoke(profile, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def test_the_h100_export_has_its_known_counts():
    found = json.loads(run(example(), "--json").stdout)

    assert set(found) >= DESIGNED
    assert found["launches"] == {"kernel": 3346, "graph": 0, "total": 3346}
    counts = {row["name"]: row["count"] for row in found["api"]}
    assert counts["cudaLaunchKernel"] == 2788
    assert counts["cudaLaunchKernelExC"] == 558
    assert sum(counts.values()) == 5796
    assert found["kernels"]["count"] == 3442
    assert (found["kernels"]["matched"], found["kernels"]["unmatched"]) == (1632, 1810)
    assert sum(row["count"] for row in found["copies"]) == 904
    assert found["memsets"] == 22
    (wait,) = found["waits"]
    assert (wait["name"], wait["count"], wait["total_ns"]) == ("cudaStreamSynchronize", 8, 856_929_451)
    assert (found["processes"], found["devices"]) == (2, 2)
    assert [row["device"] for row in found["busy"]] == [0, 1]
    assert all(0 < row["busy_share"] <= 1 for row in found["busy"])
    assert any("1810 kernels were launched by calls outside" in warning for warning in found["warnings"])


def test_the_parts_of_the_h100_export_add_up(h100):
    for by in ("process", "device"):
        parts = [part for part in h100.parts if part.by == by]
        assert len(parts) == 2
        assert sum(part.launches.total for part in parts) == 3346
        assert sum(part.kernels.count for part in parts) == 3442
        assert sum(row.count for part in parts for row in part.copies) == 904
        assert sum(part.waits[0].total_ns for part in parts) == 856_929_451
    for row in h100.busy:
        assert row.union_ns + row.idle_host_ns + row.idle_gap_ns + row.idle_unknown_ns == row.span_ns


def test_the_h100_figures_agree_with_sql():
    sql = sqlite3.connect(example().as_uri() + "?mode=ro&immutable=1", uri=True)
    (kernels_ns,) = sql.execute(f"SELECT sum(end - start) FROM {TABLE}KERNEL").fetchone()
    late = sql.execute(
        f"SELECT k.start - r.end q FROM {TABLE}KERNEL k JOIN {TABLE}RUNTIME r ON r.correlationId = k.correlationId "
        "AND r.globalTid >> 24 = k.globalPid >> 24 WHERE q >= 0"
    ).fetchall()
    sql.close()
    found = read_profile(example())

    assert found.kernels.total_ns == kernels_ns
    assert (found.queue.count, found.queue.total_ns) == (len(late), sum(q for (q,) in late))
    assert found.queue.early == 3


def test_two_streams_are_busy_once_and_summed_twice(export):
    export.kernel(0, 100 * MS, stream=7)
    export.kernel(0, 100 * MS, stream=8)
    summary = export.read()

    (busy,) = summary.busy
    assert (busy.span_ns, busy.union_ns, busy.sum_ns, busy.busy_share) == (100 * MS, 100 * MS, 200 * MS, 1.0)
    shown = show(summary)
    assert "union 100.000 ms = 100.0% of 100.000 ms; sum 200.000 ms" in shown


@pytest.mark.parametrize(
    ("intervals", "union", "total"),
    [
        ([], 0, 0),
        ([(5, 5)], 0, 0),  # zero length
        ([(0, 10), (10, 20)], 20, 20),  # adjacent
        ([(0, 100), (20, 40)], 100, 120),  # nested
        ([(0, 10), (5, 15), (30, 40)], 25, 30),
        ([(30, 40), (0, 10), (5, 15), (7, 7)], 25, 30),
    ],
)
def test_busy_time_is_the_union_of_intervals(export, intervals, union, total):
    export.call("cudaLaunchKernel_v7000", 0, 1)
    for start, end in intervals:
        export.kernel(start, end)
    summary = export.read()

    assert summary.kernels.count == len(intervals)
    assert [(row.union_ns, row.sum_ns) for row in summary.busy] == ([(union, total)] if intervals else [])
    assert all(row.busy_share is None or row.busy_share <= 1 for row in summary.busy)


def test_union_and_clipping_agree_with_counting_each_nanosecond():
    rng = np.random.default_rng(7)
    for _ in range(200):
        start = rng.integers(0, 60, rng.integers(1, 12))
        end = start + rng.integers(0, 20, len(start))
        edges = np.sort(rng.choice(90, 4, replace=False))
        low, high = edges[::2], edges[1::2]
        covered = np.zeros(100, int)
        for a, b in zip(start, end, strict=True):
            covered[a:b] += 1
        windows = [covered[a:b] for a, b in zip(low, high, strict=True)]
        assert union_ns(start, end) == (covered > 0).sum()
        assert within(start, end, low, high) == sum(w.sum() for w in windows)
        assert within(*merge(start, end), low, high) == sum((w > 0).sum() for w in windows)


def test_idle_time_has_a_cause(export):
    export.call("cudaLaunchKernel_v7000", 0, 5, correlation=1)
    export.call("cudaLaunchKernel_v7000", 6, 9, correlation=2)
    export.call("cudaLaunchKernel_v7000", 40, 45, correlation=3)
    export.kernel(10, 20, correlation=1)
    export.kernel(23, 30, correlation=2)  # launched long before the device ran dry
    export.kernel(50, 60, correlation=3)  # launched after it
    export.kernel(70, 80, correlation=99)  # its launch is not in the profile
    summary = export.read()

    (busy,) = summary.busy
    assert (busy.idle_gap_ns, busy.idle_host_ns, busy.idle_unknown_ns) == (3, 20, 10)
    assert (summary.kernels.matched, summary.kernels.unmatched) == (3, 1)
    assert (summary.queue.count, summary.queue.median_ns, summary.queue.early) == (3, 5.0, 0)


def test_a_kernel_belongs_to_the_launch_of_its_own_process(export):
    export.call("cudaLaunchKernel_v7000", 0, 5, correlation=1, process=0)
    export.call("cudaLaunchKernel_v7000", 0, 7, correlation=1, process=1)
    export.kernel(20, 30, correlation=1, process=0)
    export.kernel(20, 30, correlation=1, process=1, device=1)
    summary = export.read()

    assert sorted(row.queue_median_ns for row in summary.three_times) == [13.0, 15.0]
    assert {row.process for row in summary.three_times} == {PID, PID + 1}


def test_a_driver_call_inside_a_runtime_call_is_one_launch(export):
    export.call("cudaLaunchKernel_v7000", 0, 100, correlation=1)
    export.call("cuLaunchKernel", 10, 90, correlation=2)  # inside it
    export.call("cudaLaunchKernelExC_v11060", 200, 300, correlation=3)
    export.call("cuLaunchKernelEx", 310, 320, correlation=3)  # the same correlation id
    export.call("cuLaunchKernel", 400, 500, correlation=4)  # a direct one
    export.call("cuLaunchKernel", 10, 90, correlation=5, thread=2)  # another thread's
    export.kernel(120, 130, correlation=2)
    export.kernel(330, 340, correlation=3)
    summary = export.read()

    assert summary.launches.total == 4
    assert {row.name: row.count for row in summary.api} == {
        "cudaLaunchKernel": 1, "cudaLaunchKernelExC": 1, "cuLaunchKernel": 2,
    }  # fmt: skip
    assert summary.kernels.matched == 2
    assert {(row.api, row.queue_median_ns) for row in summary.three_times} == {
        ("cudaLaunchKernel", 20.0), ("cudaLaunchKernelExC", 30.0),
    }  # fmt: skip


def test_a_graph_launch_is_one_host_call(export):
    export.call("cudaGraphLaunch_v10000", 0, 10, correlation=1)
    for start in range(20, 80, 10):
        export.kernel(start, start + 5, correlation=1, node=start)
    summary = export.read()

    assert summary.launches.model_dump() == {"kernel": 0, "graph": 1, "total": 1}
    assert summary.graph_trace == "node"
    assert (summary.kernels.count, summary.kernels.matched) == (6, 6)


def test_a_graph_traced_whole_is_busy_time_and_says_what_it_hides(export):
    export.call("cudaGraphLaunch_v10000", 0, 10, correlation=1)
    export.sql.execute(f"INSERT INTO {TABLE}GRAPH_TRACE VALUES (20, 70, 0, 7, 1, {global_pid(0)}, 5)")
    summary = export.read()

    assert (summary.graph_trace, summary.graphs, summary.kernels.count) == ("graph", 1, 0)
    assert summary.busy[0].union_ns == 50
    assert any("--cuda-graph-trace=node" in warning for warning in summary.warnings)


@pytest.mark.parametrize(("train", "validate"), [(1500, 375), (1875, 0)])
def test_ranges_settle_what_1875_graph_launches_were(export, train, validate):
    """The count is the same for an epoch with a split and for one of all images without; the ranges differ."""
    at = 0
    for name, steps in (("train", train), ("validate", validate)):
        begin = at
        for _ in range(steps):
            export.call("cuGraphLaunch", at, at + 5, correlation=at + 1, thread=2)  # a thread of the framework's
            export.kernel(at + 6, at + 9, correlation=at + 1)
            at += 10
        if steps:
            export.range(name, begin, at)
    export.range("epoch", 0, at)
    summary = export.read()

    assert summary.launches.graph == 1875
    ranges = {part.name: part for part in summary.parts if part.by == "range"}
    assert {name: part.launches.graph for name, part in ranges.items()} == (
        {"epoch": 1875, "train": train} | ({"validate": validate} if validate else {})
    )
    assert ranges["train"].kernels.count == train
    assert ranges["epoch"].busy[0].busy_share == pytest.approx(0.3)


def test_a_program_that_never_used_the_gpu_says_so_without_zeros(export):
    summary = export.read()

    assert "no CUDA activity in this profile; likely causes" in summary.warnings[0]
    assert summary.launches is None
    assert summary.kernels is None
    assert summary.memsets is None
    assert "launches" not in show(summary)
    assert "no CUDA activity" in run(export.path).output


def test_an_export_of_another_version_may_lack_tables_and_columns(tmp_path):
    path = tmp_path / "old.sqlite"
    sql = sqlite3.connect(path)
    sql.executescript(f"""
        CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
        INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'relu');
        CREATE TABLE {TABLE}RUNTIME (start, end, globalTid, correlationId, nameId);
        INSERT INTO {TABLE}RUNTIME VALUES (0, 10, {global_pid(0) + 1}, 1, 1), (20, NULL, NULL, NULL, 1);
        INSERT INTO {TABLE}RUNTIME VALUES (40, 30, 0, 2, 1);
        CREATE TABLE {TABLE}KERNEL (start, end, deviceId, correlationId, shortName);
        INSERT INTO {TABLE}KERNEL VALUES (15, 25, 0, 1, 2);
    """)
    sql.close()
    summary = read_profile(path)

    assert summary.launches.total == 1
    assert summary.kernel_names[0].name == "relu"
    assert (summary.processes, summary.kernels.matched, summary.queue.median_ns) == (1, 1, 5.0)
    assert "1 rows of CUPTI_ACTIVITY_KIND_RUNTIME end before they start" in summary.warnings[0]


@pytest.mark.parametrize("name", ["__cudaLaunchKernel_v13000", "_ZN7somebodyE", "hipLaunchKernel"])
def test_a_call_that_started_kernels_is_a_launch_whatever_its_name(export, name):
    """Field case N6: CUDA 13 calls it __cudaLaunchKernel_v13000."""
    for i in range(4):
        export.call(name, 1000 * i, 1000 * i + 500, correlation=i + 1)
        export.kernel(1000 * i + 3500, 1000 * i + 4000, correlation=i + 1)
    export.call(name, 9000, 9500, correlation=99)  # and one whose kernel the profile was cut before
    export.call("cudaStreamSynchronize", 10_000, 20_000, correlation=1)  # an id of another process, say
    summary = export.read()

    known = name.startswith("__cuda")
    assert summary.launches.model_dump() == {"kernel": 4 + known, "graph": 0, "total": 4 + known}
    assert (summary.kernels.count, summary.kernels.matched, summary.kernels.unmatched) == (4, 4, 0)
    assert (summary.queue.count, summary.queue.median_ns) == (4, 3000)
    assert {row.name for row in summary.api} == {"cudaLaunchKernel" if known else name, "cudaStreamSynchronize"}


def test_a_driver_call_inside_a_launch_of_cuda_13_is_one_launch(export):
    export.call("__cudaLaunchKernel_v13000", 0, 100, correlation=1)
    export.call("cuLaunchKernel", 10, 90, correlation=2)
    export.kernel(200, 300, correlation=2)
    summary = export.read()

    assert summary.launches.total == 1
    assert (summary.kernels.matched, summary.queue.median_ns) == (1, 100)


def without(export, *tables):
    for table in tables:
        export.sql.execute(f"DROP TABLE {TABLE}{table}")


def test_an_export_without_a_table_of_kernels_has_null_and_a_sentence(export):
    """Field case G: none is not zero."""
    export.call("cudaLaunchKernel", 0, 5, correlation=1)
    without(export, "KERNEL", "MEMCPY")
    summary = export.read()

    assert summary.launches.total == 1
    assert (summary.kernels, summary.memsets, summary.queue) == (None, None, None)
    (says,) = [warning for warning in summary.warnings if "no table of kernels" in warning]
    assert summary.to_json()["kernels"] is None
    assert says in show(summary)
    assert "kernels: 0" not in show(summary)
    assert says in run(export.path, "--json").stderr


def test_an_export_without_a_table_of_calls_has_null_and_a_sentence(export):
    export.kernel(0, 5, correlation=1)
    without(export, "RUNTIME")
    summary = export.read()

    assert (summary.launches, summary.queue) == (None, None)
    assert (summary.kernels.count, summary.kernels.matched, summary.kernels.unmatched) == (1, None, None)
    assert any("no table of CUDA calls" in warning for warning in summary.warnings)
    assert not any("launched by calls outside" in warning for warning in summary.warnings)


@pytest.mark.parametrize("version", ["_V2", "_V3"])
def test_tables_of_another_version_are_named_as_not_read(export, version):
    """Field case N4: a new version of a table is not an empty one."""
    export.call("cudaLaunchKernel", 0, 5, correlation=1)
    export.kernel(10, 20, correlation=1)
    for table in (f"{TABLE}KERNEL", f"{TABLE}MEMCPY", "NVTX_EVENTS"):
        export.sql.execute(f"ALTER TABLE {table} RENAME TO {table}{version}")
    summary = export.read()

    assert summary.kernels is None
    assert f"{TABLE}KERNEL{version}, {TABLE}MEMCPY{version}, NVTX_EVENTS{version}" in summary.warnings[0]
    assert "not read, of a version that is not known here" in show(summary)


def test_an_export_with_nothing_but_tables_of_another_version_is_refused_by_their_names(tmp_path):
    path = tmp_path / "new.sqlite"
    sql = sqlite3.connect(path)
    sql.executescript("".join(f"CREATE TABLE {TABLE}{name}_V3 (start, end);" for name in ("KERNEL", "RUNTIME")))
    sql.close()
    with pytest.raises(ProfileError, match=f"new.sqlite: its tables are of a version .*: {TABLE}KERNEL_V3, "):
        read_profile(path)


def test_the_environment_in_an_export_is_never_touched(export, monkeypatch):
    secret = "AKIA-SECRET-0123"
    for table in ("META_DATA_CAPTURE", "PROCESSES", "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_GPU"):
        export.sql.execute(f"CREATE TABLE {table} (name TEXT, value TEXT)")
        export.sql.execute(f"INSERT INTO {table} VALUES ('HOME', ?)", (secret,))
    export.call("cudaLaunchKernel_v7000", 0, 5, correlation=1)
    export.kernel(10, 20, correlation=1)
    export.sql.commit()
    asked = []
    connect = sqlite3.connect

    def listening(*arguments, **more):
        connection = connect(*arguments, **more)
        connection.set_authorizer(lambda action, table, *_: asked.append(str(table)) or sqlite3.SQLITE_OK)
        return connection

    monkeypatch.setattr(nsys.sqlite3, "connect", listening)
    summary = read_profile(export.path)

    assert any("KERNEL" in table for table in asked)
    assert not [table for table in asked if table.startswith(("META", "PROC", "TARGET"))]
    assert secret not in json.dumps(summary.to_json()) + show(summary)


def test_a_view_in_the_place_of_a_table_is_not_run(tmp_path):
    path = tmp_path / "endless.sqlite"
    sql = sqlite3.connect(path)
    sql.execute(
        f"CREATE VIEW {TABLE}KERNEL AS WITH RECURSIVE n(start, end) AS "
        "(SELECT 0, 1 UNION ALL SELECT start + 1, end + 1 FROM n) SELECT start, end, 0 AS deviceId FROM n"
    )
    sql.close()
    with pytest.raises(ProfileError, match="no table of Nsight Systems"):
        read_profile(path)


def test_reading_leaves_nothing_beside_the_export(export):
    export.kernel(0, 5)
    export.sql.commit()
    export.sql.close()
    export.path.chmod(0o444)
    before = export.path.read_bytes()
    read_profile(export.path)

    assert [file.name for file in export.path.parent.iterdir()] == ["made.sqlite"]
    assert export.path.read_bytes() == before


def test_names_are_text_and_never_markup(export):
    name = "<script>alert('x & \"y\"')</script>[bold]\x1b[31m" + "T<int>" * 400
    export.call("cudaLaunchKernel_v7000", 0, 5, correlation=1)
    export.kernel(10, 20, correlation=1, name=name)
    summary = export.read()
    assert summary.kernel_names[0].name == name
    html = three_times(summary).to_html()
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert "\x1b" not in show(summary)
    assert len(label(name)) <= 60
    assert label("a$b$") == r"a\$b\$"


def test_a_synthetic_export_has_the_counts_it_was_made_with(tmp_path):
    write_export(tmp_path / "made.sqlite", 20_000)
    summary = read_profile(tmp_path / "made.sqlite")

    assert sum(row.count for row in summary.api) == 20_000
    assert (summary.launches.total, summary.kernels.count, summary.kernels.matched) == (6_000, 6_000, 6_000)
    assert (summary.copies[0].kind, summary.copies[0].count, summary.copies[0].bytes) == (
        "host-to-device", 667, 667 * 100_352,
    )  # fmt: skip
    assert (summary.processes, summary.devices) == (2, 2)
    ranges = [(part.name, part.process, part.count) for part in summary.parts if part.by == "range"]
    assert sorted(ranges) == [("step", PID, 200), ("step", PID + 1, 200)]


def test_more_names_than_a_byte_counts(export):
    for i in range(700):
        export.call(f"cudaFunction{i}", i * 10, i * 10 + 1 + i % 3, thread=i)
        export.kernel(i * 10, i * 10 + 4, name=f"kernel{i}", stream=i)
    summary = export.read()

    assert len(summary.api) == 700
    assert {row.count for row in summary.api} == {1}
    assert len(summary.kernel_names) == 700
    assert sum(row.total_ns for row in summary.api) == sum(1 + i % 3 for i in range(700))
    assert set(read_events(export.path).activities.stream.tolist()) == set(range(700))


def test_calls_longer_than_four_seconds_keep_their_length(export):
    export.call("cudaDeviceSynchronize_v3020", 0, 9_000 * MS)
    export.call("cudaDeviceSynchronize_v3020", 9_000 * MS, 9_001 * MS)
    summary = export.read()

    assert summary.waits[0].total_ns == 9_001 * MS


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"SQLite format 3\x00" + bytes(80), "SQLite cannot read it"),
        (b"\x1f\x8b\x08\x00garbage", "not a whole gzip file"),
        (b'{"a": 1}', "no list of traceEvents"),
        (b"Name,Value\n1,2\n", "no report of nsys stats"),
        (b"\x00\x01\x02", "neither a profile"),
    ],
)
def test_what_is_no_profile_is_refused_in_one_line(tmp_path, content, says):
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    result = run(path, code=1)

    assert says in result.stderr
    assert result.stderr.startswith("Error: file.bin: ")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_raw_report_gets_the_command_that_exports_it(tmp_path):
    path = tmp_path / "my run.nsys-rep"
    path.write_bytes(b"anything")
    result = run(path, code=1)

    assert "nsys export --type=sqlite --output='my run.sqlite' 'my run.nsys-rep'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "one profile, or two"),
        (["a", "b", "c"], "got 3"),
        (["a", "--loop", "numpy"], "--loop goes with --capture"),
        (["a", "--capture"], "--capture makes a profile"),
    ],
)
def test_wrong_use_exits_with_2(arguments, says):
    assert says in run(*arguments, code=2).stderr


def test_a_missing_file_is_named(tmp_path):
    assert "gone.sqlite: cannot be read: No such file" in run(tmp_path / "gone.sqlite", code=1).stderr


def test_the_difference_of_two_profiles(export, h100, tmp_path):
    export.call("cudaLaunchKernel_v7000", 0, 5, correlation=1)
    export.kernel(10, 20, correlation=1)
    small = export.read()
    rows = {row.what: row for row in difference(h100, small).rows}

    assert (rows["launches total"].a, rows["launches total"].b, rows["launches total"].change) == (3346, 1, -3345)
    assert rows["api cudaMemcpyAsync count"].b is None
    assert rows["api cudaMemcpyAsync count"].change is None
    assert all(row.change in (0, None) for row in difference(h100, h100).rows)
    found = json.loads(run(example(), export.path, "--json").stdout)
    assert found["a"]["launches"]["total"] == 3346
    assert found["b"]["launches"]["total"] == 1
    assert "launches total" in run(example(), export.path).stdout


def test_importing_profiles_loads_no_framework():
    heavy = ("jax", "tensorflow", "keras", "pandas")
    code = f"import sys, overhead.profiles; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
