"""`nsys stats` reports: the same run in every header, unit and locale gives the same figures."""

import sqlite3
import statistics

import pytest

from make_big_profile import write_export
from overhead.profiles import ProfileError, read_profile
from overhead.profiles.text import show

TABLE = "CUPTI_ACTIVITY_KIND_"
KINDS = {1: ("[CUDA memcpy HtoD]", "[CUDA memcpy Host-to-Device]")}
NEW = "Time (%),Total Time ({u}),{n},Avg ({u}),Med ({u}),Min ({u}),Max ({u}),StdDev ({u}),{l}"
OLD = "Time(%),Total Time ({u}),{n},Average,Median,Minimum,Maximum,StdDev,{l}"
TITLES = {
    "cuda_api_sum": ("CUDA API Summary", "cudaapisum"),
    "cuda_gpu_kern_sum": ("CUDA GPU Kernel Summary", "gpukernsum"),
    "cuda_gpu_mem_time_sum": ("CUDA GPU MemOps Summary (by Time)", "gpumemtimesum"),
    "cuda_gpu_mem_size_sum": ("CUDA GPU MemOps Summary (by Size)", "gpumemsizesum"),
    "cuda_kern_exec_sum": ("CUDA Kernel Launch & Exec Time Summary", "kernexecsum"),
}
UNITS = {"ns": 1, "us": 1_000, "ms": 1_000_000}


class Writer:
    """An independent rendering of an export's rows as `nsys stats` prints them."""

    def __init__(self, path, *, old=False, unit="ns", comma=False, thousands=False):
        self.sql = sqlite3.connect(path)
        self.old, self.unit, self.comma, self.thousands = old, unit, comma, thousands

    def number(self, value):
        text = f"{value:,}" if self.thousands else str(value)
        return text.translate(str.maketrans(",.", ".,")) if self.comma else text

    def time(self, ns):
        if self.unit == "ns":
            return self.number(int(ns) if ns == int(ns) else round(ns, 1))
        return self.number(round(ns / UNITS[self.unit], 9))

    def line(self, cells):
        mark = ";" if self.comma else ","
        return mark.join(f'"{c.replace(chr(34), chr(34) * 2)}"' if mark in c or '"' in c else c for c in cells)

    def head(self, text):
        return text.replace(",", ";") if self.comma else text

    def sum(self, report, count, label, groups):
        lines = [self.head((OLD if self.old else NEW).format(u=self.unit, n=count, l=label))]
        whole = sum(sum(times) for _, times in groups)
        for name, times in sorted(groups, key=lambda group: -sum(group[1])):
            cells = [self.number(round(100 * sum(times) / whole, 1)), self.time(sum(times)), self.number(len(times))]
            cells += [self.time(f(times)) for f in (statistics.mean, statistics.median, min, max)]
            lines.append(self.line([*cells, self.time(round(statistics.pstdev(times), 1)), name]))
        return self.report(report, lines)

    def report(self, name, lines):
        title, old = TITLES[name]
        if self.old:
            return [
                "Using made.sqlite for SQL queries.",
                f"Running [/opt/reports/{old}.py made.sqlite]...",
                "",
                *lines,
                "",
            ]
        return [
            f"Processing [made.sqlite] with [/opt/nvidia/reports/{name}.py]...",
            "",
            f" ** {title} ({name}):",
            "",
            *lines,
            "",
        ]

    def groups(self, query):
        found = {}
        for *names, start, end in self.sql.execute(query):
            found.setdefault(tuple(names), []).append(end - start)
        return found

    def api(self):
        rows = self.groups(f"SELECT value, start, end FROM {TABLE}RUNTIME JOIN StringIds ON id = nameId")
        return self.sum("cuda_api_sum", "Num Calls", "Name", [(n.split("_v")[0], t) for (n,), t in rows.items()])

    def kernels(self):
        rows = self.groups(f"SELECT value, start, end FROM {TABLE}KERNEL JOIN StringIds ON id = demangledName")
        return self.sum("cuda_gpu_kern_sum", "Instances", "Name", [(n, t) for (n,), t in rows.items()])

    def copies(self):
        rows = self.groups(f"SELECT copyKind, start, end FROM {TABLE}MEMCPY")
        groups = [(KINDS[kind][not self.old], times) for (kind,), times in rows.items()]
        return self.sum("cuda_gpu_mem_time_sum", "Operations" if self.old else "Count", "Operation", groups)

    def sizes(self):
        head = "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation"
        lines = [self.head(head)]
        rows = self.groups(f"SELECT copyKind, 0, bytes FROM {TABLE}MEMCPY")
        for (kind,), sizes in rows.items():
            cells = [self.number(round(f(sizes) / 1e6, 6)) for f in (sum, statistics.mean, statistics.median, min, max)]
            lines.append(self.line([cells[0], self.number(len(sizes)), *cells[1:], self.number(0.0), KINDS[kind][1]]))
        return self.report("cuda_gpu_mem_size_sum", lines)

    def executed(self):
        names = [f"{t}{s} ({self.unit})" for t in "TAQK" for s in ("Avg", "Med", "Min", "Max", "StdDev")]
        lines = [self.head(",".join(["PID", "TID", "DevId", "Count", "QCount", *names, "API Name", "Kernel Name"]))]
        found = {}
        for pid, tid, device, api, kernel, a0, a1, k0, k1 in self.sql.execute(
            f"SELECT r.globalTid >> 24 & 16777215, r.globalTid & 16777215, deviceId, a.value, n.value, r.start, r.end, "
            f"k.start, k.end FROM {TABLE}KERNEL k JOIN {TABLE}RUNTIME r ON r.correlationId = k.correlationId AND "
            "r.globalTid >> 24 = k.globalPid >> 24 JOIN StringIds a ON a.id = r.nameId "
            "JOIN StringIds n ON n.id = demangledName"
        ):
            key = pid, tid, device, api.split("_v")[0], kernel
            found.setdefault(key, []).append((max(a1, k1) - a0, a1 - a0, k0 - a1, k1 - k0))
        for (pid, tid, device, api, kernel), rows in found.items():
            t, a, q, k = ([row[i] for row in rows] for i in range(4))
            q = [x for x in q if x >= 0]
            cells = [str(pid), str(tid), str(device), self.number(len(rows)), self.number(len(q))]
            for times in (t, a, q, k):
                stats = (statistics.mean, statistics.median, min, max, statistics.pstdev)
                cells += [self.time(round(f(times), 1)) if times else "" for f in stats]
            lines.append(self.line([*cells, api, kernel]))
        return self.report("cuda_kern_exec_sum", lines)

    def everything(self):
        parts = [self.api(), self.kernels(), self.copies(), self.sizes(), self.executed()]
        self.sql.close()
        return "\n".join(line for part in parts for line in part)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "made.sqlite"
    write_export(path, 2_000)
    return path


FORMS = {
    "new": {},
    "old": {"old": True},
    "microseconds": {"unit": "us"},
    "milliseconds": {"unit": "ms"},
    "decimal commas": {"unit": "us", "comma": True},
    "thousands marks": {"thousands": True},
    "both": {"unit": "us", "comma": True, "thousands": True},
    "old, nanoseconds, commas and thousands": {"old": True, "comma": True, "thousands": True},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_run_gives_the_same_summary_in_every_form(made, tmp_path, form):
    path = tmp_path / "stats.csv"
    path.write_text(Writer(made, **FORMS[form]).everything())
    ours, truth = read_profile(path), read_profile(made)

    for figure in ("launches", "api", "waits", "copies", "three_times", "kernel_names", "processes", "devices"):
        assert getattr(ours, figure) == getattr(truth, figure), figure
    for figure in ("count", "total_ns", "matched", "unmatched"):
        assert getattr(ours.kernels, figure) == getattr(truth.kernels, figure)
    assert (ours.queue.count, ours.queue.early) == (truth.queue.count, truth.queue.early)
    # What is shown is the same but for what a summary cannot know.
    shown = {
        line for line in show(truth).splitlines() if not line.startswith(("device", "range", "  ", "queue", "nsys"))
    }
    assert shown <= set(show(ours).splitlines())
    assert ours.busy == ()
    assert "busy share cannot be known" in ours.warnings[0]


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "stats.csv"
    path.write_text(text, encoding=encoding)
    return read_profile(path)


HEADER = "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"


def test_graph_launches_are_launches(tmp_path):
    rows = "60.0,300,3,100.0,100.0,90,110,8.2,cuGraphLaunch\n40.0,200,10,20.0,20.0,10,30,5.0,cudaLaunchKernel\n"
    found = read(tmp_path, HEADER + rows)

    assert found.launches.model_dump() == {"kernel": 10, "graph": 3, "total": 13}
    assert found.kernels is None
    assert found.memsets is None


def test_both_apis_add_up_and_a_long_wait_is_waiting(tmp_path):
    rows = (
        "90.0,900000,8,112500.0,6412.5,1,800000,9.9,cudaStreamSynchronize\n"
        "6.0,60,4,15.0,15.0,15,15,0.0,cudaLaunchKernel_v7000\n4.0,40,2,20.0,20.0,20,20,0.0,cuLaunchKernel\n"
        "1.0,9,9,1.0,1.0,1,1,0.0,cudaLaunchHostFunc\n"
    )
    found = read(tmp_path, HEADER + rows)

    assert found.launches.total == 6
    assert [(row.name, row.total_ns) for row in found.waits] == [("cudaStreamSynchronize", 900_000)]
    assert "overhead of sync" not in show(found)


EXECUTED = (
    "PID,TID,DevId,Count,QCount,TAvg (ns),TMed (ns),AAvg (ns),AMed (ns),QAvg (ns),QMed (ns),KAvg (ns),KMed (ns),"
    "API Name,Kernel Name\n"
)


def test_a_launch_of_cuda_13_is_a_launch(tmp_path):
    """Field case N6."""
    found = read(tmp_path, HEADER + "40.0,200,10,20.0,20.0,10,30,5.0,__cudaLaunchKernel_v13000\n")

    assert found.launches.model_dump() == {"kernel": 10, "graph": 0, "total": 10}
    assert found.api[0].name == "cudaLaunchKernel"


def test_a_call_that_started_kernels_is_a_launch_whatever_its_name(tmp_path):
    rows = "40.0,200,10,20.0,20.0,10,30,5.0,someLaunch\n60.0,300,7,42.0,42.0,10,90,5.0,poll\n"
    executed = "7,8,0,10,10,1,1,20,20,3000,3000,5,5,someLaunch,gemm\n"
    found = read(tmp_path, HEADER + "1.0,5,1,5.0,5.0,5,5,0.0,cudaMalloc\n" + rows + "\n" + EXECUTED + executed)

    assert found.launches.total == 10
    assert {row.name for row in found.api} == {"cudaMalloc", "someLaunch"}


COLUMN_FORMS = {
    "2024": """
 ** CUDA API Summary (cuda_api_sum):

 Time (%)  Total Time (ns)  Num Calls  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)          Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  ----------------------
     60.0              300          3     100.0     100.0        90       110          8.2  cuGraphLaunch
""",
    "2021": """
CUDA API Statistics:

 Time(%)  Total Time (ns)  Num Calls   Average    Minimum   Maximum            Name
 -------  ---------------  ---------  ---------- --------- --------- -----------------------
    60.0              300          3      100.0        90       110  cuGraphLaunch
""",
    "sizes": """
 Total (MB)  Count  Avg (MB)  Med (MB)  Min (MB)  Max (MB)  StdDev (MB)           Operation
 ----------  -----  --------  --------  --------  --------  -----------  ------------------------------
     10.000      4     2.500     2.500     2.500     2.500        0.000  [CUDA memcpy Host-to-Device]
""",
}


@pytest.mark.parametrize("form", COLUMN_FORMS)
def test_the_default_text_of_nsys_stats_gets_the_option_that_makes_it_readable(tmp_path, form):
    """Field case N31."""
    with pytest.raises(ProfileError, match=r"column form of nsys stats, .*; use `nsys stats --format csv`"):
        read(tmp_path, COLUMN_FORMS[form])


@pytest.mark.parametrize(
    "text",
    [
        HEADER,
        "SKIPPED: made.sqlite does not contain CUDA trace data.\n",
        "Processing [made.sqlite] with [cuda_api_sum.py]... \nSKIPPED: made.sqlite does not contain CUDA trace data.\n",
        "SKIPPED: /home/someone/made.sqlite does not contain CUDA kernel data.\n" + HEADER,
    ],
)
def test_no_data_is_said_and_not_shown_as_zero(tmp_path, text):
    found = read(tmp_path, text)

    assert "no CUDA activity in this profile; likely causes" in found.warnings[0]
    assert found.launches is None
    assert "someone" not in str(found.to_json())


def test_an_unknown_header_is_listed(tmp_path):
    with pytest.raises(ProfileError, match=r"found 'Start \(ns\),Duration \(ns\),CorrId'"):
        read(tmp_path, "Start (ns),Duration (ns),CorrId\n1,2,3\n")


def test_other_libraries_calls_are_no_cuda_calls(tmp_path):
    found = read(tmp_path, HEADER + "90.0,900,8,112.0,112.0,1,800,9.9,poll\n")

    assert "no CUDA activity" in found.warnings[0]


def test_a_report_that_comes_twice_is_refused(tmp_path):
    row = "40.0,200,10,20.0,20.0,10,30,5.0,cudaLaunchKernel\n\n"
    with pytest.raises(ProfileError, match="cuda_api_sum comes twice"):
        read(tmp_path, HEADER + row + HEADER + row)


def test_a_truncated_row_is_refused(tmp_path):
    with pytest.raises(ProfileError, match="a row has 4 cells, its header 9"):
        read(tmp_path, HEADER + "40.0,200,10,20.0\n")


def test_a_folder_of_reports_is_one_profile(made, tmp_path):
    writer = Writer(made)
    (tmp_path / "run_cuda_api_sum.csv").write_text("\n".join(writer.api()))
    (tmp_path / "run_cuda_gpu_kern_sum.csv").write_text("\n".join(writer.kernels()))
    found = read_profile(tmp_path)

    assert found.launches.total == 600
    assert found.kernels.count == 600
    assert found.kernels.matched is None


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "cp1252"])
def test_a_file_saved_on_windows_is_read(tmp_path, encoding):
    text = HEADER.replace("ns", "µs").replace("\n", "\r\n") + "40.0,200.5,10,20.05,20.0,10,30,5.0,cudaLaunchKernel\r\n"
    found = read(tmp_path, text, encoding)

    assert (found.api[0].total_ns, found.api[0].median_ns) == (200_500, 20_000.0)


def test_names_with_separators_and_quotes_stay_whole(tmp_path):
    header = HEADER.replace("Num Calls", "Instances")
    name = 'void f<int, "x">(float *, T1)'
    found = read(tmp_path, header + '40.0,200,10,20.0,20.0,10,30,5.0,"' + name.replace('"', '""') + '"\n')

    assert found.kernel_names[0].name == name


def test_old_sizes_without_a_unit_are_kib(tmp_path):
    text = "Total,Operations,Average,Minimum,Maximum,Operation\n4096.000,4,1024.000,1.0,2.0,[CUDA memcpy DtoH]\n"
    found = read(tmp_path, text)

    assert (found.copies[0].kind, found.copies[0].count, found.copies[0].bytes) == ("device-to-host", 4, 4 << 20)
    assert found.copies[0].total_ns is None


def test_nvtx_ranges_of_a_summary_have_counts_alone(tmp_path):
    header = HEADER.replace("Num Calls", "Instances").replace("Name", "Style,Range")
    text = header + "40.0,200,10,20.0,20.0,10,30,5.0,PushPop,:train\n\n" + HEADER + "9,9,1,9,9,9,9,0,cudaLaunchKernel\n"
    (part,) = read(tmp_path, text).parts

    assert (part.name, part.count, part.span_ns, part.launches) == ("train", 10, 200, None)
