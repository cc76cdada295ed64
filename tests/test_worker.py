"""A contestant's process: its protocol, its environment, its silence, and its end."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fake_loops
from fake_loops import contestant
from overhead.machine.usage import busy_threads, thread_seconds
from overhead.measure.contestant import Contestant, environment
from overhead.measure.process import STOPPABLE, Process, WorkerFailed, without_paths
from overhead.measure.reasons import missing
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.stored import save_split
from overhead.problem.workload import Workload

LIMIT_S = 120.0  # generous: the machine may be busy

needs_stopping = pytest.mark.skipif(not STOPPABLE, reason="the system cannot stop a process")
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc or prctl")


@pytest.fixture
def start() -> Iterator[Callable[[Contestant], Process]]:
    """Start workers that end with the test."""
    started: list[Process] = []

    def one(who: Contestant) -> Process:
        started.append(Process(who.resolved(), LIMIT_S))
        return started[-1]

    yield one
    for each in started:
        each.kill()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_workload: Workload, tiny_data: Split) -> dict[str, Any]:
    """The arguments of `place` for the tiny workload."""
    folder = tmp_path_factory.mktemp("data")
    save_split(folder, tiny_data)
    np.savez(folder / "params.npz", *mlp.flat(mlp.init(tiny_workload)))
    return {
        "data": str(folder),
        "params": str(folder / "params.npz"),
        "workload": tiny_workload.model_dump(mode="json"),
    }


def gone(pid: int, within_s: float = 20.0) -> bool:
    """Whether the process ends in time; one that waits to be collected by its parent has ended."""
    for _ in range(int(within_s / 0.05)):
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


# The protocol


def test_what_a_loop_prints_neither_breaks_the_protocol_nor_reaches_us(start, place, tmp_path, capfd):
    chatty, steady = start(contestant("Chatty")), start(contestant("Steady"))
    fetched = []
    for each in (chatty, steady):
        assert each.ask("hello")["versions"]["numpy"] == np.__version__
        each.ask("place", **place)
        assert len(each.ask("run", steps=3, repeats=2)["wall_ns"]) == 2
        out = tmp_path / f"{each.pid}.npz"
        each.ask("fetch", out=str(out))
        with np.load(out) as archive:
            fetched.append([archive[name] for name in archive.files])
        each.close()

    for ours, theirs in zip(*fetched, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert capfd.readouterr() == ("", "")


def test_a_sample_has_two_clocks_that_agree_on_the_order(start, place):
    each = start(contestant("Steady"))
    each.ask("hello")
    each.ask("place", **place)
    answer = each.ask("run", steps=2, repeats=5)
    for dispatch, wall in zip(answer["dispatch_ns"], answer["wall_ns"], strict=True):
        assert 0 < dispatch <= wall


def test_a_process_becomes_another_loop_and_keeps_nothing_of_the_last(start, place):
    each = start(contestant("Steady"))
    each.ask("hello")
    each.ask("place", **place)
    each.ask("become", loop="numpy-preallocated")
    with pytest.raises(WorkerFailed):
        each.ask("run", steps=1)
    each.ask("place", **place)
    assert each.ask("run", steps=1)["wall_ns"][0] > 0


@pytest.mark.parametrize(
    ("name", "status", "reason"),
    [
        ("Declines", "declined", "needs a batch of one"),
        ("NoMemory", "failed", "out of memory: "),
        ("Raises", "failed", "ValueError: cannot open '…/data.bin': no such file second line"),
    ],
)
def test_what_goes_wrong_is_answered_and_the_worker_lives_on(start, place, name, status, reason):
    each = start(contestant(name))
    with pytest.raises(WorkerFailed, match=reason) as caught:
        _place_and_run(each, place)
    assert caught.value.status == status
    assert "\n" not in caught.value.reason
    assert fake_loops.SEEN_PATH not in caught.value.reason
    assert each.ask("memory")["rss_bytes"] > 10**7


@pytest.mark.parametrize(
    ("loop", "reason"),
    [
        ("nowhere_at_all:Loop", "nowhere_at_all is not installed"),
        ("fake_loops:NotALoop", "must name a subclass of overhead.loops.Loop"),
        ("fake_loops:Absent", "must name a subclass of overhead.loops.Loop, got None"),
        ("no-such-loop", "must be one of numpy,"),
    ],
)
def test_a_name_that_is_no_loop_is_declined(start, loop, reason):
    with pytest.raises(WorkerFailed, match=reason) as caught:
        start(contestant("")._replace(loop=loop)).ask("hello")
    assert caught.value.status == "declined"


def _place_and_run(each: Process, place: dict[str, Any]) -> None:
    each.ask("hello")
    each.ask("place", **place)
    each.ask("run", steps=1)


# Its end


def test_a_worker_that_exits_says_with_what_and_its_last_words(start, place):
    each = start(contestant("Exits"))
    each.ask("hello")
    each.ask("place", **place)
    with pytest.raises(WorkerFailed, match=r"^the worker exited with 7: assertion failed in …/data\.bin$"):
        each.ask("run", steps=1)
    with pytest.raises(WorkerFailed, match="exited with 7"):  # whoever asks again hears why
        each.ask("memory")


def test_a_worker_that_is_killed_says_so(start):
    each = start(contestant("Steady"))
    each.ask("hello")
    psutil.Process(each.pid).kill()
    with pytest.raises(WorkerFailed, match=r"ended by SIGKILL \(out of memory\?\)") as caught:
        each.ask("memory")
    assert caught.value.status == "failed"


def test_a_worker_that_hangs_is_killed_at_the_limit(start, place):
    each = start(contestant("Hangs"))
    each.ask("hello")
    each.ask("place", **place)
    with pytest.raises(WorkerFailed, match=r"^no answer to 'run' within 0\.5 s; killed$"):
        each.ask("run", 0.5, steps=1)
    assert gone(each.pid)
    with pytest.raises(WorkerFailed, match="no answer to 'run'"):
        each.ask("memory")


@needs_stopping
@pytest.mark.parametrize("end", [Process.close, Process.kill])
def test_a_stopped_worker_ends(start, end):
    each = start(contestant("Steady"))
    each.ask("hello")
    each.pause()
    end(each)
    assert gone(each.pid)


@linux
@pytest.mark.parametrize("stopped", [True, False])
def test_a_worker_dies_with_its_parent_even_when_it_is_stopped(stopped):
    code = f"""
        import time, fake_loops
        from overhead.measure.process import Process
        worker = Process(fake_loops.contestant("Steady"))
        worker.ask("hello")
        {"worker.pause()" if stopped else ""}
        print(worker.pid, flush=True)
        time.sleep(600)
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, env=env
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        while stopped and psutil.Process(pid).status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)  # a signal takes its time
        parent.kill()
    assert gone(pid)


# Between its turns


@needs_stopping
@linux
def test_an_idle_worker_uses_no_processor_time(start, place):
    each = start(contestant("Spins"))
    each.ask("hello")
    each.ask("place", **place)
    busy_before = each.cpu_seconds()
    for _ in range(600):  # it does spin; how soon depends on who else wants the cores
        if each.cpu_seconds() > busy_before + 0.05:
            break
        time.sleep(0.05)
    assert each.cpu_seconds() > busy_before + 0.05

    each.pause()
    while psutil.Process(each.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    before = each.cpu_seconds()
    time.sleep(0.5)
    assert each.cpu_seconds() == before
    assert each.ask("run", steps=1)["wall_ns"][0] > 0  # and wakes when it is asked


# Its environment


def test_the_environment_is_set_before_the_first_import(start, place):
    each = start(contestant("Steady", threads=1, FAKE="told"))
    pools = each.ask("hello")["pools"]
    settings = each.ask("place", **place)["settings"]

    assert settings == {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "FAKE": "told"}
    assert pools
    assert {pool["threads"] for pool in pools} == {1}
    assert all("/" not in str(value) for pool in pools for value in pool.values())


@given(st.integers(1, 512), st.sampled_from(["cpu", "gpu"]), st.sampled_from(["numpy", "keras-fit", "jax-step"]))
def test_every_pool_gets_the_threads_of_the_contestant(threads, device, loop):
    env = environment(Contestant(loop, device, threads, (("MY_OWN", "1"),)))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS"):
        assert env[name] == str(threads)
    assert env["MY_OWN"] == "1"
    assert (env.get("JAX_PLATFORMS") == "cpu") == (device == "cpu")
    assert all(isinstance(value, str) for value in env.values())


HIDES = """
import importlib.machinery, sys

class Hides(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {names}:
            return super().find_spec(name, path, target)

sys.meta_path = [Hides if finder is importlib.machinery.PathFinder else finder for finder in sys.meta_path]
"""


@pytest.mark.parametrize(
    ("loop", "package"), [("keras-fit", "tensorflow"), ("tf-eager", "tensorflow"), ("jax-step", "jax")]
)
def test_a_framework_that_is_not_installed_is_declined_by_name(start, tmp_path, loop, package):
    (tmp_path / "sitecustomize.py").write_text(HIDES.format(names={package}))
    with pytest.raises(WorkerFailed) as caught:
        start(Contestant(loop, "cpu", 1, (("PYTHONPATH", str(tmp_path)),))).ask("hello")
    assert (caught.value.status, caught.value.reason) == ("declined", f"{package} is not installed")


def test_a_framework_that_cannot_be_imported_is_a_failed_case(start, tmp_path):
    (tmp_path / "tensorflow.py").write_text("raise TypeError('Descriptors cannot be created directly')")
    with pytest.raises(WorkerFailed, match="TypeError: Descriptors cannot be created directly") as caught:
        start(Contestant("keras-fit", "cpu", 1, (("PYTHONPATH", str(tmp_path)),))).ask("hello")
    assert caught.value.status == "failed"


@pytest.mark.parametrize(
    "loop", ["cupy", "cupy-per-image", "cupy-graph", "cupy-graph-epoch", "cupy-fused", "cupy-persistent"]
)
def test_a_cupy_that_imports_and_fails_on_use_is_a_case_with_a_reason(start, place, tmp_path, loop):
    (tmp_path / "cupy.py").write_text(
        "def __getattr__(name):\n"
        "    if name.startswith('__'):\n"
        "        raise AttributeError(name)\n"
        "    raise RuntimeError('libcuda.so.1: cannot open shared object file')\n"
    )
    each = start(Contestant(loop, "gpu", 1, (("PYTHONPATH", str(tmp_path)),)))
    with pytest.raises(WorkerFailed, match=r"libcuda\.so\.1") as caught:
        _place_and_run(each, place)
    assert caught.value.status in ("failed", "declined")


@pytest.mark.slow
def test_a_worker_starts_beside_a_used_framework_without_a_warning():
    pytest.importorskip("jax")
    code = """
        import jax.numpy, fake_loops
        from overhead.measure.process import Process
        jax.numpy.ones(1).block_until_ready()
        worker = Process(fake_loops.contestant("Steady"))
        print(worker.ask("hello")["pid"] == worker.pid)
        worker.close()
    """
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent), "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", "-c", textwrap.dedent(code)],
        capture_output=True, text=True, env=env, timeout=300,
    )  # fmt: skip
    assert done.stdout == "True\n"
    assert "fork" not in done.stderr


# Words and counts


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("cannot open /var/lib/x/y.so", "cannot open …/y.so"),
        ("File '/opt/a/c.py', line 3", "File '…/c.py', line 3"),
        ("path=/opt/a/lib.so: no such file", "path=…/lib.so: no such file"),
        ("2.5 images/s and 1/2", "2.5 images/s and 1/2"),
        ("see https://example.org/a/b", "see https://example.org/a/b"),
        ("two\nlines\t here", "two lines here"),
    ],
)
def test_a_reason_is_one_line_without_folders(said, shown):
    assert without_paths(said) == shown


@given(st.lists(st.sampled_from(["/a/b/c", "lib:/usr/lib/x.so", "(/tmp/y)", "x", "=", "\n", "1/2"]), max_size=80))
def test_a_reason_never_holds_an_absolute_path_and_stays_short(parts):
    shown = without_paths(" ".join(parts))
    assert len(shown) <= 300
    assert not [word for word in shown.split() if word.lstrip("(=:'").startswith("/") or ":/usr" in word]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleNotFoundError("No module named 'jax'", name="jax"), "jax is not installed"),
        (ModuleNotFoundError("No module named 'a.b'", name="a.b"), "cannot be imported: No module named 'a.b'"),
        (ImportError("libx.so: cannot open"), "cannot be imported: libx.so: cannot open"),
    ],
)
def test_a_missing_framework_is_said_in_words(error, reason):
    assert missing(error) == reason


@given(st.dictionaries(st.integers(1, 20), st.floats(0, 10), max_size=10))
def test_busy_threads_are_some_of_the_threads(after):
    found = busy_threads({}, after)
    if found is None:
        assert max(after.values(), default=0.0) < 0.1
    else:
        assert 1 <= found <= len(after)


@linux
def test_the_threads_of_this_process_are_seen():
    assert os.getpid() in thread_seconds()
