"""Faults at any instant: kills, full folders, surroundings that lack something. The long form is `make faults`."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

import faults
from overhead import sweep
from overhead.measure import rounds
from overhead.measure.contestant import Contestant
from overhead.measure.process import Process
from overhead.measure.session import PRESETS, Session
from overhead.problem.workload import Workload
from overhead.sweep import passing, scaling
from overhead.sweep.plan import Sweep

TESTS = Path(__file__).parent
SESSION = Session(PRESETS["quick"], {"host": "h", "notebook": "n"})
BENCH = ("bench", "--loops", "numpy", "--batch-sizes", "32", "--images", "640", "--json")


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_twenty_kills_damage_lose_and_leave_nothing():
    early = tuple(kind._replace(latest_s=kind.latest_s / 2) for kind in faults.KINDS)
    found = faults.campaign(20, 150, seed=20, kinds=early, whole=False)
    assert found["kills"] > 0
    assert {what: found[what] for what in faults.FAULTS} == dict.fromkeys(faults.FAULTS, 0)


@pytest.mark.parametrize(
    "measure",
    [
        lambda: rounds.time_cases([Contestant("numpy")], [Workload()], SESSION),
        lambda: scaling.time_models([Contestant("stacked")], Workload(), [1], SESSION),
        lambda: sweep.run(Sweep(rates=(0.1,), engine="jax-pool"), keep=False),
        passing.measure,
    ],
    ids=["rounds", "models", "pool", "passing"],
)
def test_a_temporary_folder_of_40_mb_is_named_before_workers_start(monkeypatch, measure):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=40_000_000))
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a worker was started"))
    with pytest.raises(OSError, match=r"^the temporary folder needs 188 MB, 40 MB are free; set TMPDIR$"):
        measure()


@pytest.mark.parametrize(
    "times", [pytest.param(30, marks=pytest.mark.slow), pytest.param(200, marks=[pytest.mark.slow, pytest.mark.long])]
)
@pytest.mark.timeout(1200)
def test_workers_in_a_row_leave_memory_descriptors_and_threads_as_they_were(times):
    def start(times: int) -> tuple[int, int, int]:
        for _ in range(times):
            worker = Process(Contestant("numpy", "cpu", 1))
            worker.ask("hello")
            worker.close()
            for reader in worker._readers:
                reader.join(timeout=30)
        me = psutil.Process()
        return me.num_fds(), me.num_threads(), me.memory_info().rss

    before, after = start(5), start(times)
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 5_000_000


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [BENCH, ("sweep", "--rates", "0.1", "--images", "640", "--engine", "sequential", "--json"), ("doctor", "--json")],
    ids=["bench", "sweep", "doctor"],
)
def test_a_start_up_file_that_prints_shifts_no_answer(tmp_path, arguments):
    """Field case N10: every process of the user's environment greets, with what looks like an answer."""
    (tmp_path / "site").mkdir()
    greets = 'import os; print(\'welcome\'); os.write(1, b\'{"number": 1, "status": "ok"}\\n\')'
    (tmp_path / "site" / "sitecustomize.py").write_text(greets)
    paths = os.pathsep.join([str(tmp_path / "site"), str(TESTS)])
    env = {"PYTHONPATH": paths, "TMPDIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = finish(arguments, tmp_path, code="import runpy; runpy.run_module('brief', run_name='__main__')", **env)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    rows = found.get("rows", [])
    assert {row["status"] for row in rows} <= {"ok"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "lacks",
    [pytest.param("HOME", marks=pytest.mark.long), pytest.param("TMPDIR", marks=pytest.mark.long), "both, in /"],
)
def test_a_bench_needs_neither_a_home_nor_a_temporary_folder_of_its_own(tmp_path, lacks):
    without = {"HOME", "TMPDIR"} if "both" in lacks else {lacks}
    env = {name: value for name, value in os.environ.items() if name not in without}
    env["PYTHONPATH"] = str(TESTS)
    where = Path("/") if "both" in lacks else tmp_path
    done = subprocess.run(
        [sys.executable, "-m", "brief", *BENCH], capture_output=True, text=True, cwd=where, env=env, timeout=300
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


NAMES = {
    "USER": "zoe-quagga", "LOGNAME": "zoe-quagga", "HOSTNAME": "quagga-box", "OVERHEAD_TOKEN": "s3cr3t-quagga",
    "OMP_TOKEN": "s3cr3t-quagga", "JAX_SETTING": "s3cr3t-quagga", "XLA_SETTING": "10.9.8.7",
}  # fmt: skip


@pytest.mark.slow
def test_nothing_of_the_user_or_the_machine_reaches_results_or_pages(tmp_path):
    home = tmp_path / "home-of-quagga"
    for made in (home, tmp_path / "tmp"):
        made.mkdir()
    folders = {"HOME": str(home), "TMPDIR": str(tmp_path / "tmp"), "OVERHEAD_LOCK": str(tmp_path / "lock")}
    env = {**NAMES, **folders, "PYTHONPATH": str(TESTS)}
    results, out = tmp_path / "results", tmp_path / "out"
    done = finish(
        ("run", faults.CHAPTER, "-p", "steps", "50", "--results", str(results)), tmp_path, code=faults.TINY, **env
    )
    assert done.returncode == 0, done.stderr
    done = finish(("book", "--results", str(results), "--out", str(out)), tmp_path, code=faults.TINY, **env)
    assert done.returncode == 0, done.stderr

    secret = [*NAMES.values(), "quagga", str(tmp_path), str(TESTS.parent) + "/"]
    secret += [name for name in [socket.gethostname()] if len(name) > 5]
    pattern = re.compile("|".join(map(re.escape, secret)).encode())
    read = 0
    for path in [*results.rglob("*"), *(out / "html").rglob("*")]:
        if path.is_file():
            read += 1
            data = path.read_bytes()
            images = [base64.b64decode(text) for text in re.findall(rb"iVBORw0KGgo[A-Za-z0-9+/=]+", data)]
            for part in (str(path.relative_to(tmp_path)).encode(), data, *images):
                assert not pattern.search(part), (path.name, pattern.search(part))
            for image in [*images, *([data] if path.suffix == ".png" else [])]:
                assert not re.search(rb"tEXt|iTXt|zTXt|eXIf|tIME", image[:4096]), path.name
    assert read > 10


def finish(
    arguments: tuple[str, ...], cwd: Path, code: str = "from overhead.cli import main; main()", **env: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, **env}, timeout=400,
    )  # fmt: skip
