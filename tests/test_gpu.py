"""What a GPU host shows first, in about a minute: `pytest -m gpu`. Each test says why it skips.

Needs pytest and what the loops need. The kit runs it on a rented machine, where there is neither hypothesis nor this
folder's conftest.py: `pytest -c /dev/null --noconftest -m gpu tests/test_gpu.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from importlib.util import find_spec
from typing import Any

import pytest

from overhead.loops import LOOPS, Declined
from overhead.loops.cupy_ import usable_cupy
from overhead.machine import gpus
from overhead.measure.contestant import Contestant, environment
from overhead.measure.rounds import run_cases
from overhead.measure.session import Preset, Session
from overhead.problem.workload import Workload
from overhead.profiles.capture import capture
from overhead.profiles.nvml import NvmlSampler
from overhead.profiles.summary import ProfileError
from overhead.records.record import Record

pytestmark = pytest.mark.gpu

EPOCH = Workload(images=3200)  # a hundred steps
BRIEF = Preset("gpu", 0.5, 5.0, 1, (2, 2))
SLOW = ("cupy-per-image",)  # an epoch of it takes minutes; test_loops_cupy.py has it
ON_GPU = [name for name, info in LOOPS.items() if "gpu" in info.devices and name not in SLOW]
# What a sanitizer watches: a step in a graph, and an epoch in one kernel.
SANITIZED = """
from overhead.loops import make
from overhead.problem import data, mlp
from overhead.problem.workload import Workload
workload = Workload(images=224)
for name in ("cupy-graph", "cupy-graph-epoch", "cupy-persistent"):
    loop = make(name, "gpu")
    state = loop.run(loop.place(mlp.init(workload), data.for_workload(workload), workload), 14)
    loop.block(state)
"""


@pytest.fixture(scope="module")
def card() -> dict[str, Any]:
    """The GPU that is used, as its driver tells of it."""
    cards = gpus.gpus()
    if not cards:
        pytest.skip("no NVIDIA GPU was found (nvidia-smi lists none)")
    return cards[0]


@pytest.fixture(scope="module")
def records(card: dict[str, Any]) -> dict[str, Record]:
    """Every loop of the GPU, compared with the reference and timed for a moment, in a process each."""
    session = Session(BRIEF, {"host": "local", "notebook": "gpu-tests"}, learns=False)
    return {record.loop: record for record in run_cases([Contestant(n, "gpu", 1) for n in ON_GPU], [EPOCH], session)}


@pytest.fixture(scope="module")
def cupy(card: dict[str, Any]) -> Any:
    try:
        return usable_cupy()
    except Declined as declined:
        pytest.skip(str(declined))


@pytest.mark.parametrize("name", ON_GPU)
def test_a_loop_learns_what_the_reference_learns_with_its_arrays_on_the_gpu(
    name: str, records: dict[str, Record], card: dict[str, Any]
) -> None:
    record = records[name]
    if record.status == "declined":
        pytest.skip(record.reason or "declined")
    assert (record.status, record.device) == ("ok", "gpu"), record.reason
    assert record.agreement is not None
    assert record.agreement["error"] <= record.agreement["tolerance"]
    assert record.epochs()[0]


def test_clocks_are_read_while_a_loop_works(records: dict[str, Record]) -> None:
    looked = [r.host_state["gpu"] for r in records.values() if r.host_state and "gpu" in r.host_state]
    if not looked:
        pytest.skip("no loop ran on the GPU")
    assert all(min(state["sm_clock_mhz"]) > 0 for state in looked)


def test_the_drivers_library_and_its_command_tell_the_same(card: dict[str, Any]) -> None:
    told = gpus.state(card["index"])
    assert told is not None
    try:
        with NvmlSampler(card["index"]) as sampler:
            time.sleep(0.2)
    except ProfileError as missing:
        pytest.skip(str(missing))
    read = sampler.samples[-1].state
    assert len(sampler.samples) >= 3
    assert abs((read.temperature_c or 0) - (told.temperature_c or 0)) < 20
    assert (read.sm_clock_mhz is None) == (told.sm_clock_mhz is None)


def test_events_and_the_wall_clock_agree_on_long_work(cupy: Any) -> None:
    a = cupy.ones((4096, 4096), cupy.float32)
    out = a @ a
    began, ended = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.cuda.get_current_stream().synchronize()
    start = time.perf_counter()
    began.record()
    for _ in range(200):
        cupy.matmul(a, a, out=out)
    ended.record()
    returned_s = time.perf_counter() - start
    ended.synchronize()
    wall_s = time.perf_counter() - start
    assert cupy.cuda.get_elapsed_time(began, ended) * 1e-3 == pytest.approx(wall_s, rel=0.05)
    assert returned_s < wall_s / 2  # the calls returned early


@pytest.mark.parametrize("name", ["jax-step", "cupy-graph"])
def test_a_profile_shows_kernels_on_the_gpu(name: str, card: dict[str, Any]) -> None:
    try:
        made = capture(name, "gpu", images=3200, timeout_s=60)
    except ProfileError as missing:
        pytest.skip(str(missing))
    assert made.summary.kernels is not None
    assert made.summary.kernels.count > 0
    assert made.device_name


def test_tensorflows_labels_are_in_the_memory_of_the_gpu(card: dict[str, Any]) -> None:
    if find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    code = (
        "import numpy as np\nfrom overhead.loops.tensorflow_ import device_labels, tf\n"
        "print(tf.constant(device_labels(np.arange(3, dtype=np.int32))).backing_device)"
    )
    env = {**os.environ, **environment(Contestant("tf-step", "gpu", 1))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    assert "GPU:0" in done.stdout, done.stderr[-2000:]


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_a_sanitizer_finds_nothing(tool: str, cupy: Any) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("compute-sanitizer is not installed")
    command = [sanitizer, f"--tool={tool}", "--error-exitcode=9", sys.executable, "-c", SANITIZED]
    env = {**os.environ, **environment(Contestant("cupy-graph", "gpu", 1))}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stdout[-2000:]
