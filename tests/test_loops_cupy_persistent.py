"""The kernel of a whole epoch: compiled for its GPU, and run on the host with each of its barriers and without."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cluster_stand_in import ClusterHost, persistent, without_what_is_removed
from cupy_stand_in import on_gpu, reference
from nvrtc import compiled_for_hopper
from overhead.loops import Declined
from overhead.loops.cupy_persistent import BATCH_SIZE, BLOCKS, KERNEL, LAYERS, SHARED_BYTES, THREADS
from overhead.measure import agreement
from overhead.problem import data, mlp
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload

SEVEN_BATCHES = Workload(images=224)
SCHEDULES = range(4)  # seeds; the even ones let a block run ahead
_, NEEDED = without_what_is_removed(KERNEL)


def trained(host: ClusterHost, workload: Workload, *steps: int) -> Params:
    loop, split = persistent(host), data.for_workload(workload)
    state = loop.place(mlp.init(workload), split, workload)
    for count in steps:
        state = loop.run(state, count)
    loop.block(state)
    return loop.fetch(state)


@pytest.mark.parametrize("seed", SCHEDULES)
def test_the_kernel_learns_what_the_reference_learns_however_its_threads_are_scheduled(seed: int) -> None:
    host = ClusterHost(seed)

    ours = trained(host, SEVEN_BATCHES, 3, 17)  # round the epoch of seven twice

    assert mlp.relative_error(ours, reference(SEVEN_BATCHES, data.for_workload(SEVEN_BATCHES), 20)) < 1e-5
    assert host.kernel.launches == 2  # one for any number of steps
    assert host.waits == 1


def test_every_schedule_gives_the_same_parameters_to_the_bit() -> None:
    first, *others = (mlp.flat(trained(ClusterHost(seed), SEVEN_BATCHES, 8)) for seed in SCHEDULES)
    assert all(np.array_equal(a, b) for other in others for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("images", [1600, pytest.param(48_000, marks=pytest.mark.long)])
def test_an_epoch_passes_the_rule_that_comes_before_timing(images: int) -> None:
    workload = Workload(images=images)
    split = data.for_workload(workload)
    rate, epoch = agreement.at_agreement_rate(workload), agreement.at_epoch_rate(workload)

    twenty, whole = trained(ClusterHost(), rate, 20), trained(ClusterHost(), epoch, workload.steps)

    found = agreement.compare(twenty, whole, workload, split)
    assert found.disagreement is None
    assert found.error < 1e-5


def test_every_barrier_and_the_second_copy_are_needed(record_property: Callable[[str, object], None]) -> None:
    expected = reference(SEVEN_BATCHES, data.for_workload(SEVEN_BATCHES), 20)

    def wrong(removed: int) -> bool:
        hosts = (ClusterHost(seed, removed) for seed in SCHEDULES)
        return any(mlp.relative_error(trained(host, SEVEN_BATCHES, 20), expected) > 1e-5 for host in hosts)

    missed = [what for number, what in enumerate(NEEDED) if not wrong(number)]

    caught = len(NEEDED) - len(missed)
    record_property("told", f"cupy-persistent: {caught} of {len(NEEDED)} removals of a barrier or a copy caught")
    assert missed == []
    assert len(NEEDED) == KERNEL.count("__syncthreads();") + KERNEL.count(" cluster_barrier();") + 1 == 11


def test_the_kernel_is_short_enough_to_be_read_at_a_sitting() -> None:
    assert len(KERNEL.strip().splitlines()) <= 150


def test_the_kernel_compiles_for_hopper_without_a_warning_and_without_a_header() -> None:
    program, said = compiled_for_hopper(KERNEL, f"-DSHARED_BYTES={SHARED_BYTES}")
    assert said.strip("\0") == ""
    assert b"train" in program


def test_nvcc_compiles_it_without_a_warning_either(tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc: the kernel is compiled for sm_90")
    (tmp_path / "kernel.cu").write_text(KERNEL)
    options = ["-arch=sm_90", "-Werror", "all-warnings", f"-DSHARED_BYTES={SHARED_BYTES}", "-Xptxas", "-v"]
    done = subprocess.run(
        [nvcc, *options, "-cubin", "-o", "kernel.cubin", "kernel.cu"],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    registers = int(done.stderr.partition("Used ")[2].partition(" registers")[0])
    assert registers * THREADS <= 65_536  # what a processor of sm_90 has


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (Workload(layers=(784, 64, 10)), r"trains layers 784-128-10, got 784-64-10"),
        (Workload(batch_size=64), r"trains batches of 32, got 64"),
        (Workload(images=200, remainder="keep"), r"trains whole batches, got a last one of 8 images"),
    ],
)
def test_other_workloads_are_declined_before_a_gpu_is_asked_for(case: Workload, why: str) -> None:
    loop = persistent(ClusterHost(major=0))
    with pytest.raises(Declined, match=f"^cupy-persistent {why}$"):
        loop.place(mlp.init(case), data.for_workload(case), case)


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ({"name": b"NVIDIA A100", "major": 8}, r"needs .* compute capability 9.0, got 8.0 \(NVIDIA A100\)"),
        ({"name": b"RTX 5090", "major": 12, "sharedMemPerBlockOptin": 101_376},
         r"needs 206512 bytes of shared memory a block, got 101376 \(RTX 5090\)"),
    ],
)  # fmt: skip
def test_other_gpus_are_declined_with_the_reason(gpu: dict[str, object], why: str) -> None:
    loop = persistent(ClusterHost(**gpu))
    with pytest.raises(Declined, match=why):
        loop.place(mlp.init(SEVEN_BATCHES), data.for_workload(SEVEN_BATCHES), SEVEN_BATCHES)


def test_the_images_are_on_the_device_once_and_an_epoch_is_one_call() -> None:
    loop = persistent(ClusterHost())
    split = data.for_workload(SEVEN_BATCHES)
    state = loop.place(mlp.init(SEVEN_BATCHES), split, SEVEN_BATCHES)
    assert sum(size for size in loop.xp.allocated if size >= split.x.nbytes) == split.x.nbytes
    assert loop.steps_per_call(SEVEN_BATCHES) == 7
    assert loop.settings(state) == {"matmul_precision": "float32"}
    assert loop.placed_on(state) == ("cpu", "host memory")  # the stand-in never passes for a GPU


def test_the_loops_numbers_are_the_kernels() -> None:
    pixels, hidden, classes = LAYERS
    assert f"PIXELS = {pixels}, CLASSES = {classes}, IMAGES = {BATCH_SIZE};" in KERNEL
    assert f"BLOCKS = {BLOCKS}, UNITS = {hidden // BLOCKS};" in KERNEL
    assert f"THREADS = {THREADS}," in KERNEL


# On a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("images", [224, 48_000])
def test_it_learns_what_the_reference_learns_on_a_gpu(images: int) -> None:
    workload = Workload(images=images)
    loop, split = on_gpu("cupy-persistent"), data.for_workload(workload)
    try:
        state = loop.place(mlp.init(workload), split, workload)
    except Declined as declined:
        pytest.skip(str(declined))

    ours = loop.fetch(loop.run(loop.run(state, 3), 17))

    assert loop.placed_on(state)[0] == "gpu"
    assert mlp.relative_error(ours, reference(workload, split, 20)) < 1e-5
