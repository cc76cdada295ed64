"""The `overhead` command: what it prints, what it refuses, and what a stop leaves behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

from overhead import cli
from overhead.cli import main
from overhead.machine import host

ROOT = Path(__file__).resolve().parents[1]

TESTS = Path(__file__).parent


def command(*arguments: str, **env: str) -> list[str]:
    return [sys.executable, "-m", "overhead", *arguments]


def finish(*arguments: str, cwd: Path, module: str = "overhead", **env: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, whose lock and files are under `cwd`."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, timeout=500, cwd=cwd,
        env={**os.environ, "TMPDIR": str(cwd), "PYTHONPATH": str(TESTS), **env},
    )  # fmt: skip


def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
    """The status and the message of a command that must fail; it may say one or two lines, on stderr only."""
    handler = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(sys, "argv", ["overhead", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    signal.signal(signal.SIGTERM, handler)
    out, err = capsys.readouterr()
    assert out == ""
    assert 1 <= len(err.splitlines()) <= 2, err
    assert err.startswith("overhead: ")
    return int(caught.value.code or 0), err


def contents(folder: Path) -> dict[str, str]:
    """Every file under `folder` by its checksum, and every folder."""
    return {
        str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "a folder"
        for p in folder.rglob("*")
    }


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder that an earlier run filled, as the present one."""
    folder = tmp_path / "results"
    (folder / "local").mkdir(parents=True)
    for name in ("host.json", "05-batch-sweep.jsonl", "05-batch-sweep.ipynb"):
        (folder / "local" / name).write_text(json.dumps({"kept": name}))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OVERHEAD_RESULTS", raising=False)
    return folder


SWEEP = "05-batch-sweep"
no_gpu = pytest.mark.skipif(bool(host.gpus()), reason="this host has a GPU")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no-such-notebook"], r"notebook must be one of .*05-batch-sweep.*, got 'no-such-notebook'"),
        ([""], "notebook must be one of .*, got ''"),
        (
            [SWEEP, "-p", "batch_size", "256"],
            r"a parameter of 05-batch-sweep \(.*batch_sizes.*\), got batch_size$",
        ),
        (["-p", "batch_sise", "256"], r"must be a parameter of the notebooks \(.*\), got batch_sise$"),
        ([SWEEP, "-p", "batch_sizes", "big"], r"batch_sizes must be a list such as \[32, 128\].*, got 'big'"),
        ([SWEEP, "-p", "batch_sizes", "32"], "batch_sizes must be a list .*, got 32"),
        ([SWEEP, "-p", "batch_sizes", "[]"], r"batch_sizes must be a list .*, got \[\]"),
        ([SWEEP, "-p", "batch_sizes", "[0]"], r"batch_sizes must be whole numbers between 1 and 48000 .*, got 0"),
        ([SWEEP, "-p", "batch_sizes", "[-1]"], "batch_sizes must be .* between 1 and 48000 .*, got -1"),
        ([SWEEP, "-p", "batch_sizes", "[48001]"], "batch_sizes must be .* between 1 and 48000 .*, got 48001"),
        ([SWEEP, "-p", "batch_sizes", "[1.5]"], "batch_sizes must be whole numbers .*, got 1.5"),
        ([SWEEP, "-p", "batch_sizes", "[true]"], "batch_sizes must be whole numbers .*, got True"),
        ([SWEEP, "-p", "batch_sizes", "[32,"], "-p batch_sizes: must be YAML, got '\\[32,'"),
        ([SWEEP, "-p", "loops", "[numpi]"], "loops must be of numpy, .*, got 'numpi'"),
        ([SWEEP, "-p", "loops", "numpi"], "loops must be a list .*, got 'numpi'"),
        ([SWEEP, "-p", "loops", "[[numpy]]"], r"loops must be of numpy, .*, got \['numpy'\]"),
        ([SWEEP, "-p", "remainder", "half"], "remainder must be 'drop' or 'keep', got 'half'"),
        ([SWEEP, "-p", "learning_rate", "0"], "learning_rate must be a finite number above 0, got 0"),
        ([SWEEP, "-p", "learning_rate", "-1"], "learning_rate must be a finite number above 0, got -1"),
        ([SWEEP, "-p", "learning_rate", "nan"], "learning_rate must be a finite number above 0, got 'nan'"),
        ([SWEEP, "-p", "learning_rate", ".nan"], "learning_rate must be a finite number above 0, got nan"),
        ([SWEEP, "-p", "learning_rate", "abc"], "learning_rate must be a finite number above 0, got 'abc'"),
        (
            [SWEEP, "-p", "host", "007"],
            "host must be .*, got 7; YAML reads it so without quotes of its own: -p host '\"NAME\"'",
        ),
        ([SWEEP, "-p", "host", "no"], "host must be .*, got False; YAML reads it so without quotes"),
        ([SWEEP, "-p", "learning_rate", "no"], "learning_rate must be a finite number above 0, got False"),
        ([SWEEP, "--host", "a/b"], "host must be 1 to 64 letters, .*, got 'a/b'"),
        ([SWEEP, "--host", ".."], "host must be 1 to 64 letters, .*, got '..'"),
        ([SWEEP, "--host", ""], "host must be 1 to 64 letters, .*, got ''"),
        ([SWEEP, "--host", "a\nb"], r"host must be 1 to 64 letters, .*, got 'a\\nb'"),
        ([SWEEP, "--preset", "fast"], "'--preset': 'fast' is not one of 'quick', 'workshop', 'full'"),
        ([SWEEP, "--nonsense"], "No such option: --nonsense|No such option '--nonsense'"),
        pytest.param([SWEEP, "--device", "gpu"], "got gpu: no NVIDIA GPU was found", marks=no_gpu),
        (["01-per-op-breakdown", "-p", "steps", "1"], "steps must be .* 50, got 1"),
        (["01-per-op-breakdown", "-p", "batch_size", "48001"], "batch_size must be .* 48000, got 48001"),
    ],
)
def test_run_refuses_before_it_measures(capsys, monkeypatch, earlier, arguments, says):
    before = contents(earlier)
    status, message = refused(capsys, monkeypatch, "run", *arguments)
    assert status == 2
    assert re.search(says, message.strip()), message
    assert contents(earlier) == before


def test_run_refuses_a_results_folder_that_is_none(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("kept")
    status, message = refused(capsys, monkeypatch, "run", SWEEP, "--results", str(tmp_path / "file"))
    assert status == 1
    assert "results folder must be one that can be made, got " in message.splitlines()[-1]
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.skipif(getattr(os, "getuid", lambda: 0)() == 0, reason="root may write anywhere")
def test_run_refuses_a_results_folder_that_cannot_be_written(capsys, monkeypatch, earlier):
    (earlier / "local").chmod(0o555)
    try:
        status, message = refused(capsys, monkeypatch, "run", SWEEP)
    finally:
        (earlier / "local").chmod(0o755)
    assert status == 1
    assert "results folder must be writable, got results" in message


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (json.dumps({**host.facts(), "cpu_model": "another"}), "cpu_model was 'another'"),
        ("{", "its host.json is no JSON"),
        ("[]", "it holds no facts"),
    ],
)
def test_run_refuses_to_mix_two_hosts(capsys, monkeypatch, earlier, kept, why):
    (earlier / "local" / "host.json").write_text(kept)
    before = contents(earlier)
    status, message = refused(capsys, monkeypatch, "run", SWEEP)
    assert status == 2
    assert f"host 'local' was measured on another machine ({why}" in message
    assert contents(earlier) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--loops", "numpi"], "--loops must be of numpy, .*, got 'numpi'"),
        (["--loops", ""], "--loops must be of numpy, .*, got ''"),
        (["--threads", "0"], r"--threads must be between 1 and \d+ \(cores allowed\), got '0'"),
        (["--threads", "1,100000"], r"--threads must be between 1 and \d+ \(cores allowed\), got '100000'"),
        (["--threads", "two"], "--threads must be between .*, got 'two'"),
        (["--batch-sizes", "0"], r"batch_size must be between 1 and 48000 \(training images\), got 0"),
        (["--batch-sizes", "-1"], "batch_size must be between 1 and 48000 .*, got -1"),
        (["--batch-sizes", "48001"], "batch_size must be between 1 and 48000 .*, got 48001"),
        (["--batch-sizes", "65", "--images", "64"], r"batch_size must be between 1 and 64 \(training images\), got 65"),
        (["--batch-sizes", "1.5"], "--batch-sizes: must be whole numbers .*, got '1.5'"),
        (["--batch-sizes", ""], "--batch-sizes: must be whole numbers .*, got ''"),
        (["--images", "0"], "images must be greater than 0, got 0"),
        (["--layers", "784"], r"layers must have at least 2 entries, got \(784,\)"),
        (["--layers", "784,0,10"], "layers must be greater than 0, got 0"),
        (["--learning-rate", "abc"], "learning_rate must be a finite number above 0, got 'abc'"),
        (["--learning-rate", "0"], "learning_rate must be a finite number above 0, got '0'"),
        (["--preset", "fast"], "'--preset'"),
        pytest.param(["--device", "gpu"], "--device must name a device of this host .*, got gpu", marks=no_gpu),
    ],
)
def test_bench_refuses_before_it_measures(capsys, monkeypatch, arguments, says):
    status, message = refused(capsys, monkeypatch, "bench", *arguments)
    assert status == 2
    assert re.search(says, message), message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--batch-size", "0"], "batch_size must be between 1 and 48000 .*, got 0"),
        (["--batch-size", "x"], "'x' is not a valid integer"),
        (["--images", "0"], "images must be greater than 0, got 0"),
        (["--peak-tflops", "11", "--device-model", "H200"], "exclude each other"),
        (["--device-model", "no such device"], "no such device"),
        (["--peak-tflops", "-1"], "-1"),
    ],
)
def test_bounds_refuses(capsys, monkeypatch, arguments, says):
    status, message = refused(capsys, monkeypatch, "bounds", *arguments)
    assert status == 2
    assert re.search(says, message), message


@pytest.mark.parametrize("name", cli.cli.list_commands(click.Context(cli.cli)))
def test_every_command_has_help_with_an_example(capsys, name):
    cli.cli.main([name, "--help"], prog_name="overhead", standalone_mode=False)
    assert f"Example: overhead {name}" in " ".join(capsys.readouterr().out.split())


# The commands as a user starts them


def test_bounds_of_the_article(tmp_path):
    done = finish("bounds", "--batch-size", "32", "--peak-tflops", "11", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["gemms"][0]["flops"] == 6_422_528
    assert found["gemms"][0]["flops_bound_us"] == pytest.approx(0.584, abs=5e-4)
    assert (found["step_flops"], found["epoch_flops"]) == (13_090_816, 19_636_224_000)
    assert found["steps_per_epoch"] == 1500


def test_doctor_lists_the_host_and_what_is_wrong_with_it(tmp_path):
    # One process for both: pinned to one core, and held back where the CPU could do better.
    arguments = command("doctor", "--json")
    if taskset := shutil.which("taskset"):
        arguments = [taskset, "-c", str(min(os.sched_getaffinity(0))), *arguments]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "OPENBLAS_CORETYPE": "Haswell"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)

    assert {"host", "devices", "frameworks", "blas", "warnings", "clock"} <= set(found)
    assert found["devices"][0]["kind"] == "cpu"
    for name in ("numpy", "jax", "tensorflow", "keras", "cupy"):
        assert set(found["frameworks"][name]) in ({"version"}, {"missing"})
    for pool in found["blas"]:
        assert {"library", "version", "architecture", "threads"} <= set(pool)
    for warning in found["warnings"]:
        assert set(warning) == {"what", "why", "do"}
        assert all(warning.values())
    whats = [warning["what"] for warning in found["warnings"]]
    if taskset:
        assert found["host"]["cores_allowed"] == found["host"]["threads_used"] == 1
    if "avx512f" in host.cpu_flags():
        assert [what for what in whats if "Haswell kernels (AVX2) on a CPU that offers AVX-512" in what]
    for name, entry in found["frameworks"].items():
        assert (f"{name} is missing" in whats) == ("missing" in entry)


def test_doctor_says_it_to_people_too(tmp_path):
    done = finish("doctor", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "device: cpu" in done.stdout
    assert re.search(r"^BLAS: \w+ [\d.]+, \w+ kernels, \d+ threads$", done.stdout, re.M)
    for name, entry in host.frameworks().items():
        if "missing" in entry:
            assert re.search(rf"^warning: {name} is missing: .*; pip install ", done.stdout, re.M)


@pytest.mark.slow
def test_bench_prints_one_document_with_a_row_a_case(tmp_path):
    loops = "numpy,fake_loops:Steady,fake_loops:LearnsSomethingElse,cupy"
    done = finish(
        "bench",
        "--loops",
        loops,
        "--batch-sizes",
        "32,640",
        "--images",
        "640",
        "--threads",
        "1",
        "--json",
        cwd=tmp_path,
        module="brief",
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert set(found) >= {"host", "rows", "floors", "ratios"}
    rows: dict[tuple[str, int], dict[str, Any]] = {(r["loop"], r["batch_size"]): r for r in found["rows"]}
    assert len(rows) == 8
    for size in (32, 640):
        numpy, steady = rows["numpy", size], rows["fake_loops:Steady", size]
        for row in (numpy, steady):
            assert (row["status"], row["reason"]) == ("ok", None)
            assert 0 < row["epoch_s"]["low"] <= row["epoch_s"]["median"] <= row["epoch_s"]["high"]
            assert row["epoch_s"]["n"] >= 5
            assert row["times_floor"]["median"] > 0
            assert row["peak_rss_bytes"] > 10**7
        assert numpy["val_accuracy"] == steady["val_accuracy"]
        assert rows["fake_loops:LearnsSomethingElse", size]["status"] == "disagrees"
        assert rows["fake_loops:LearnsSomethingElse", size]["epoch_s"] is None
        if not host.gpus():  # shown with the reason, not left out
            assert rows["cupy", size]["status"] in ("declined", "failed")
            assert rows["cupy", size]["reason"]
    for floor in found["floors"]:
        assert floor["epoch_s"] > 0
    assert [floor["batch_size"] for floor in found["floors"]] == [32, 640]
    assert {(r["batch_size"], *sorted((r["slower"], r["faster"]))) for r in found["ratios"]} == {
        (32, "fake_loops:Steady", "numpy"), (640, "fake_loops:Steady", "numpy"),
    }  # fmt: skip
    assert str(tmp_path) not in done.stdout
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) < 20


@pytest.mark.parametrize(
    ("number", "status", "says"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_stop_ends_the_workers_and_leaves_nothing(tmp_path, number, status, says):
    env = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(TESTS)}
    arguments = command("bench", "--loops", "fake_loops:Hangs", "--batch-sizes", "32", "--images", "640")
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as bench:
        try:
            children: list[psutil.Process] = []
            while not children and bench.poll() is None:
                children = psutil.Process(bench.pid).children()
                time.sleep(0.05)
            time.sleep(1.0)
            children = psutil.Process(bench.pid).children()
            bench.send_signal(number)
            out, err = bench.communicate(timeout=60)
        finally:
            bench.kill()
    assert (bench.returncode, out) == (status, "")
    assert err.split() == ["overhead:", *says.split()]
    assert children
    for child in children:
        assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_reader_that_leaves_is_no_fault(tmp_path):
    """`overhead doctor | head -1`: whoever reads has had enough."""
    with subprocess.Popen(
        command("doctor"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path
    ) as doctor:  # fmt: skip
        assert doctor.stdout is not None
        assert doctor.stderr is not None
        doctor.stdout.close()
        assert doctor.stderr.read() == b""


# psutil has another module of its own there. What native Windows lacks besides is taken away.
WITHOUT_UNIX = """
import os, psutil, signal, sys
sys.modules.update(fcntl=None, resource=None, pwd=None, grp=None, termios=None)
for name in ("sched_getaffinity", "sysconf", "getuid", "getloadavg", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    vars(os).pop(name, None)
from overhead.cli import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "--loops", "numpy"],
        ["sweep", "--rates", "0.1", "--images", "640", "--epochs", "1"],
        ["run", "01-per-op-breakdown", "-p", "steps", "50"],
    ],
)
def test_what_needs_another_system_says_so_in_a_line(tmp_path, arguments):
    """Native Windows has neither fcntl nor resource."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "overhead: measuring needs Linux, macOS or WSL; here bounds, profile and book work"
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["bounds"],
        ["bounds", "--host", "epyc-2core", "--results", str(ROOT / "results")],
        ["doctor", "--json"],
        ["check-host", str(ROOT / "results" / "epyc-2core")],
        ["profile", "--help"],
        ["advise", "--help"],
        ["book", "--help"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_what_needs_no_other_system_runs_without_it(tmp_path, arguments):
    """Field case N24."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_UNIX, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")


READS = """
from pathlib import Path
import msvcrt_stand_in
from overhead.book import build
root = build.checkout()
found = build.survey(root, root / "results")
with build._alone(Path("out")):
    print(*found.hosts)
"""


def test_the_book_s_results_are_read_and_its_folder_is_locked_without_fcntl(tmp_path):
    """Field case N24: native Windows locks with a module of its own."""
    (tmp_path / "msvcrt_stand_in.py").write_text(
        "import sys, types\n"
        "sys.modules['msvcrt'] = types.SimpleNamespace(LK_NBLCK=2, locking=lambda handle, how, size: print('locked'))\n"
    )
    code = WITHOUT_UNIX.split("from overhead")[0] + READS
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=100, env=env
    )
    assert (done.stdout.split()[0], done.stderr) == ("locked", "")
    assert "epyc-2core" in done.stdout


def test_a_chapter_that_is_there_is_named_with_the_preset_that_it_was_measured_with(tmp_path, capsys, monkeypatch):
    from test_book import sample_book

    folder = sample_book.write_host(tmp_path / "results", "local", sample_book.sweep(host="local"))
    facts = {**host.facts(), "runs": {SWEEP: {"given": {"preset": "quick"}}}}
    (folder / "host.json").write_text(json.dumps(facts))
    arguments = ["run", SWEEP, "--preset", "full", "--if-missing", "--results", str(tmp_path / "results")]
    monkeypatch.setattr(sys, "argv", ["overhead", *arguments])
    main()
    assert capsys.readouterr().err.startswith(f"{SWEEP}: measured already, preset quick (ask for it again")


def test_a_run_says_the_values_in_force(tmp_path, capsys, monkeypatch):
    from overhead.book import execute

    monkeypatch.setattr(execute, "run", lambda *_, **__: tmp_path / "mybox" / "page.ipynb")
    arguments = ["run", SWEEP, "-p", "host", "mybox", "-p", "preset", "full", "--results", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["overhead", *arguments])
    main()
    assert capsys.readouterr().err.splitlines()[0] == f"{SWEEP}: measuring on mybox, preset full"
