"""The driver alone: the script's own calls on a libcuda in host memory, whose kernel really trains.

Not shown here: that NVIDIA's driver takes the same calls, and any time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cluster_stand_in import cluster_library
from nvrtc import SCRIPT, compiled_for_hopper, driver_only
from overhead.loops.cupy_persistent import KERNEL, SHARED_BYTES
from overhead.records import record as records

IMAGES = 224  # seven batches
HOST = "made-up"


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file that a rented machine needs, of seven batches; its program is none, for the driver that is pretended."""
    path = tmp_path_factory.mktemp("driver") / "kit.zip"
    driver_only.build(path, IMAGES, cubin=b"\x7fELF")
    return path


@pytest.fixture(scope="module")
def measured(kit: Path) -> dict:
    found = driver_only.measure(kit, cluster_library("driver.h"), block_s=1e-4, epochs=2)
    return json.loads(json.dumps(found, allow_nan=False))


def test_what_the_driver_gave_becomes_records_and_the_epoch_agrees_with_the_reference(measured, tmp_path):
    found = driver_only.records(measured, HOST)
    records.write(tmp_path / "driver.jsonl", found)
    *pieces, epoch = records.read(tmp_path / "driver.jsonl")

    assert (epoch.status, epoch.loop, epoch.device_name) == ("ok", "cupy-persistent", "Pretended H200"), epoch.reason
    assert (epoch.agreement or {})["error"] < 1e-5
    assert len(epoch.epochs()[0]) == 2
    assert epoch.versions["cuda-driver"] == "13.0"
    assert [piece.op for piece in pieces] == [
        "launch", "graph-replay", "synchronise", "to-device", "to-device-pinned", "to-host", "to-host-pinned",
    ]  # fmt: skip
    assert all(len(s.seconds or []) == 12 for p in pieces for s in (p.timing.samples if p.timing else []))


def test_an_epoch_that_learnt_something_else_has_no_time(measured):
    wrong = {**measured, "after_epoch": measured["after_steps"]}
    *_, epoch = driver_only.records(wrong, HOST)
    assert epoch.status == "disagrees"
    assert epoch.epochs() == []


def test_pixels_become_the_floats_that_every_loop_sees():
    ours = np.frombuffer(driver_only.floats(bytes(range(256))), np.float32)
    assert np.array_equal(ours, np.arange(256, dtype=np.uint8) / np.float32(255))


def test_another_gpu_is_refused_by_its_name(kit, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_MAJOR", "8")
    with pytest.raises(driver_only.Failed, match=r"for compute capability 9\.0, got 8\.0 \(Pretended H200\)"):
        driver_only.measure(kit, cluster_library("driver.h"))


def test_what_the_driver_refuses_is_named(kit):
    driver = driver_only.Driver(cluster_library("driver.h"))
    with pytest.raises(driver_only.Failed, match=r"^cuModuleGetFunction gave CUDA_ERROR_OTHER \(400\)$"):
        driver.function(1, "train")


def test_its_program_compiles_for_hopper_with_both_kernels():
    program, said = compiled_for_hopper(KERNEL + driver_only.KERNELS, f"-DSHARED_BYTES={SHARED_BYTES}")
    assert said.strip("\0") == ""
    assert program.startswith(b"\x7fELF")
    assert b"nothing" in program
    assert b"train" in program


def test_without_a_driver_it_says_so_in_a_line_and_needs_no_package(kit):
    command = [sys.executable, "-I", "-S", str(SCRIPT), "measure", str(kit)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        pytest.skip("there is a driver here")
    assert done.stderr == "driver_only.py: no NVIDIA driver was found (libcuda.so.1)\n"
