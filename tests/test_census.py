"""The census: the same whole numbers in every fresh process, and what they are for loops whose code can be counted."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from overhead import loops
from overhead.measure import census
from overhead.measure.census import COUNTS, calls, faults, program_counts
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload

LOOPS = ("numpy", "numpy-preallocated", "jax-step", "jax-epoch")
PROCESSES = 10

# Counts loops on made-up images; NumPy's come first, so that what JAX starts cannot disturb them.
SCRIPT = """
import json, sys
import numpy as np
from overhead import loops
from overhead.measure import census
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.workload import Workload

batch_size, census.LEAST_STEPS = int(sys.argv[1]), int(sys.argv[2])
w = Workload(images=2 * batch_size, batch_size=batch_size)
rng = np.random.default_rng(0)
x, y = rng.random((w.images, 784), dtype=np.float32), rng.integers(0, 10, w.images).astype(np.int32)
for name in sys.argv[3:]:
    loop = loops.make(name)
    state = loop.run(loop.place(mlp.init(w), Split(x, y, x[:9], y[:9], "made-up"), w), w.steps)
    print(json.dumps(census.census(loop, state, w)))
"""


def counted(batch_size: int, least_steps: int, *names: str) -> dict[str, dict[str, float]]:
    """The census of each loop in one fresh process."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(batch_size), str(least_steps), *names],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(zip(names, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.fixture(scope="module")
def one() -> dict[str, dict[str, float]]:
    """The loops' censuses in one fresh process."""
    pytest.importorskip("jax")
    return counted(256, 32, *LOOPS)


@pytest.fixture(scope="module")
def fresh() -> list[dict[str, dict[str, float]]]:
    """The loops' censuses in ten fresh processes, two at a time: what is counted does not depend on the load."""
    pytest.importorskip("jax")
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda _: counted(256, 32, *LOOPS), range(PROCESSES)))


@pytest.mark.long
@pytest.mark.parametrize("name", LOOPS)
def test_a_census_is_the_same_in_ten_fresh_processes(name, fresh):
    found = [process[name] for process in fresh]
    exact = [{k: v for k, v in counts.items() if k != "page_faults"} for counts in found]

    assert len(exact) == PROCESSES
    assert all(counts == exact[0] for counts in exact)


@pytest.mark.long
@pytest.mark.parametrize("name", ["numpy", "numpy-preallocated"])
def test_page_faults_are_the_same_in_ten_fresh_processes_within_2_percent(name, fresh):
    """Of NumPy alone: which thread's heap XLA's pool writes a result to is chance, and with it who gives pages back."""
    pages = [process[name]["page_faults"] for process in fresh]

    assert max(pages) - min(pages) <= 0.02 * float(np.median(pages))


@pytest.mark.slow
def test_numpy_makes_the_calls_that_its_code_shows(one):
    # sgd_step, softmax, and the Python part of max (one) and sum (three).
    assert one["numpy"]["python_calls"] == 6
    # dots and operators call nothing that Python counts; append, max, exp, sum, maximum, len, arange … do
    assert one["numpy"]["c_calls"] == 13
    assert one["numpy-preallocated"]["page_faults"] == 0


@pytest.mark.slow
def test_a_compiled_step_is_one_call_and_a_compiled_epoch_none(one):
    step, epoch = one["jax-step"], one["jax-epoch"]

    assert (step["python_calls"], step["c_calls"]) == (0, 1)
    assert (epoch["python_calls"], epoch["c_calls"]) == (0, 0)  # of a step: the epoch's call falls out
    for counts in (step, epoch):
        assert counts["compilations"] == 1
        assert counts["products"] == 5  # the step's five; whoever fused or split one would show here
        assert counts["transfers"] == 0


@pytest.mark.slow
def test_arrays_made_beforehand_fault_in_no_page_at_a_large_batch():
    found = counted(4096, 4, "numpy-preallocated")["numpy-preallocated"]

    assert found["page_faults"] == 0


def small(name: str) -> tuple[Any, Any, Workload]:
    workload = Workload(images=64, batch_size=16)
    rng = np.random.default_rng(1)
    x, y = rng.random((64, 784), dtype=np.float32), rng.integers(0, 10, 64).astype(np.int32)
    loop = loops.make(name)
    return loop, loop.place(mlp.init(workload), Split(x, y, x[:4], y[:4], "made-up"), workload), workload


@pytest.mark.parametrize("name", ["numpy", "numpy-preallocated", "numpy-per-image"])
def test_a_census_has_no_negative_count_and_nothing_that_a_loop_cannot_tell(name):
    found = census.census(*small(name))

    assert set(found) == {"python_calls", "c_calls", "page_faults"}
    assert all(count >= 0 for count in found.values())
    assert set(found) <= set(COUNTS)


def test_an_image_at_a_time_costs_python_calls_in_proportion_to_the_batch():
    per_image, batched = (census.census(*small(name))["python_calls"] for name in ("numpy-per-image", "numpy"))

    assert per_image >= 16 * 4  # forward and backward of two layers, 16 images
    assert batched < 16


def test_what_a_call_of_run_costs_once_is_not_of_a_step():
    def run(steps: int) -> None:
        for _ in range(100):
            str(0)  # noise before the steps
        for _ in range(steps):
            abs(steps)
            (lambda: None)()

    one, two = calls(run, 10), calls(run, 20)

    assert (two[0] - one[0], two[1] - one[1]) == (10, 10)


def test_profiling_ends_when_a_run_fails():
    def run(steps: int) -> None:
        raise ValueError(steps)

    with pytest.raises(ValueError, match="3"):
        calls(run, 3)
    assert sys.getprofile() is None


@pytest.mark.skipif(sys.platform != "linux", reason="counts Linux's page faults")
def test_fresh_memory_is_counted_as_page_faults():
    # Fresh from the system: the allocator may hand out pages that an earlier test has touched.
    def touch(pages: int) -> None:
        with mmap.mmap(-1, pages * 4096) as fresh:
            fresh[::4096] = bytes(pages)

    found = faults(touch, 4096)

    assert 8 <= found <= 1.1 * 4096  # 16 MiB in huge pages of 2 MiB, in small ones, or in some of each
    assert min(faults(lambda _: None, 0) for _ in range(3)) == 0


def test_a_program_is_counted_by_what_it_holds():
    text = """
      %f = f32[2]{0} fusion(%a), kind=kLoop
      %g = (f32[2], f32[2]) fusion(%a)
      %d = f32[2,2]{1,0} dot(%a, %b), lhs_contracting_dims={1}
      %m = f32[2,2]{1,0} custom-call(%a), custom_call_target="__onednn$matmul"
      %c = f32[2]{0} custom-call(%a), custom_call_target="Sharding"
    """
    assert program_counts(text) == {"fusions": 1, "products": 2, "custom_calls": 2}
