"""Facts of the host, and the warnings, on pretended hosts."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overhead.machine import host
from overhead.machine.host import blas_warnings, isa_warnings

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


def pool(architecture: str, threads: int = 2) -> dict[str, Any]:
    return {"library": "openblas", "version": "0.3", "architecture": architecture, "threads": threads}


# Cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, None),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "gibberish"}, None),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
    ],
)
def test_the_quota_of_a_cgroup_of_either_version_is_read(tmp_path, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    assert host.cgroup_quota(tmp_path) == cores


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (3.9, 3), (0.5, 1), (100.0, 8)])
def test_the_smaller_of_affinity_and_quota_is_allowed(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(host, "cgroup_quota", lambda: quota)
    assert host.cores_allowed() == cores


@linux
def test_one_allowed_core_is_one_thread_for_everyone():
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os, json; os.sched_setaffinity(0, {{{one}}}); from overhead.machine import host; "
        "print(json.dumps([host.facts(), host.warnings(host.blas(), host.frameworks())]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    facts, warnings = json.loads(done.stdout)

    assert facts["cores_allowed"] == facts["threads_used"] == 1
    if facts["cores_present"] > 1:
        assert f"1 of {facts['cores_present']} cores allowed" in [what for what, _, _ in warnings]


# What a host is


def test_facts_name_neither_the_machine_nor_its_user():
    facts = host.facts()
    text = json.dumps(facts, allow_nan=False)

    assert {"cpu_model", "cores_allowed", "threads_used", "caches_bytes", "memory_bytes", "os", "allocator"} <= set(
        facts
    )
    assert {"cores_present", "simd", "gpus", "python", "env", "frequency_mhz", "cgroup_quota_cores"} <= set(facts)
    assert 1 <= facts["cores_allowed"] <= facts["cores_present"]
    for name in {socket.gethostname(), getpass.getuser(), str(Path.home())} - {"root", "localhost", "user"}:
        assert not re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", text)
    assert not re.search(r'"/\w+/', text)


def test_two_hosts_are_told_apart():
    here = host.facts()
    assert host.other_host(here, json.loads(json.dumps(here))) is None
    for key, value in {"cpu_model": "other", "cores_allowed": 99, "memory_bytes": 1, "architecture": "z80"}.items():
        assert f"{key} was " in str(host.other_host({**here, key: value}, here))
    assert host.other_host({**here, "gpus": [{"name": "a"}]}, {**here, "gpus": []}) == "the GPUs differ"
    restarted = {**here, "memory_bytes": here["memory_bytes"] + 12_288}  # what a kernel keeps for itself varies
    assert host.other_host(restarted, here) is None
    assert host.other_host({**here, "python": "3.99", "frequency_mhz": 1}, here) is None  # still this machine


SMI = {
    "one": ("NVIDIA H200, 550.54, 143771, 700.00, 1980, 3201", ["NVIDIA H200"]),
    "two": ("A, 1, 2, 3, 4, 5\nB, 1, 2, 3, 4, 5", ["A", "B"]),
    "an old driver": ("A, 1, 2", []),
    "none": ("No devices were found", []),
}


@pytest.mark.parametrize("name", SMI)
@pytest.mark.skipif(os.name != "posix", reason="the pretended nvidia-smi is a shell script")
def test_what_nvidia_smi_prints_is_read(tmp_path, monkeypatch, name):
    text, names = SMI[name]
    (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert [card["name"] for card in host.gpus()] == names


@pytest.mark.parametrize("script", [None, "exit 9", "echo 'NVIDIA-SMI has failed'; exit 1"])
def test_a_host_without_a_usable_gpu_has_none(tmp_path, monkeypatch, script):
    if script:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert host.gpus() == []
    assert host.gpu_processes() is None


def test_variables_that_change_a_measurement_are_kept_and_paths_are_not():
    env = {
        "OMP_NUM_THREADS": "2", "XLA_FLAGS": "--xla_dump_to=/opt/dump", "MALLOC_ARENA_MAX": "1", "HOME": "/x",
        "TF_XLA_FLAGS": "--x", "TF_CLI_CONFIG_FILE": "/etc/terraform", "SECRET_TOKEN": "x",
        "NPY_DISABLE_CPU_FEATURES": "AVX2",
    }  # fmt: skip
    assert host.telling_environment(env) == {
        "MALLOC_ARENA_MAX": "1", "NPY_DISABLE_CPU_FEATURES": "AVX2", "OMP_NUM_THREADS": "2",
        "TF_XLA_FLAGS": "--x", "XLA_FLAGS": "(a path)",
    }  # fmt: skip


# Frameworks


def test_a_framework_is_there_with_its_version_or_missing_with_the_reason(monkeypatch):
    monkeypatch.setattr(host.importlib.util, "find_spec", lambda name: None if name == "jax" else object())
    monkeypatch.setattr(host.importlib.metadata, "version", lambda package: f"1.0 of {package}")
    monkeypatch.setattr(host, "gpus", list)
    found = host.frameworks()

    assert found["jax"] == {"missing": "not installed"}
    assert found["numpy"] == {"version": "1.0 of numpy"}
    assert "no NVIDIA GPU to use it" in found["cupy"]["missing"]
    for entry in found.values():
        assert set(entry) in ({"version"}, {"missing"})


def test_listing_frameworks_imports_none():
    code = (
        "import sys; from overhead.machine import host; host.frameworks(); host.facts(); "
        "print([m for m in ('jax', 'tensorflow', 'keras', 'cupy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"


def test_a_missing_framework_comes_with_the_way_to_install_it():
    missing = {name: {"missing": "not installed"} for name in host.FRAMEWORKS}
    warned = {w.what: w for w in host.warnings([], missing)}
    for name in host.FRAMEWORKS:
        assert warned[f"{name} is missing"].do.startswith("pip install ")


# What would spoil a measurement


@pytest.mark.parametrize(
    ("kernels", "simd", "warns"),
    [
        ("Haswell", "AVX-512", True),
        ("Haswell", "AVX2", False),
        ("SkylakeX", "AVX-512", False),
        ("Cooperlake", "AVX-512", False),
        ("Prescott", "AVX2", True),
        ("Sandybridge", "AVX2", True),
        ("Zen", "AVX2", False),
        ("neoversen1", "unknown", False),
        ("Haswell", "unknown", False),
        ("", "AVX-512", False),
    ],
)
def test_kernels_for_an_older_cpu_are_noticed(kernels, simd, warns):
    found = blas_warnings([pool(kernels), pool(kernels)], simd, {"OPENBLAS_CORETYPE": kernels})
    assert len(found) == warns
    for warning in found:
        assert warning.what.startswith(f"openblas runs {kernels} kernels (")
        assert simd in warning.what
        assert "OPENBLAS_CORETYPE set" in warning.why
        assert warning.do == "unset OPENBLAS_CORETYPE"


def test_kernels_for_an_older_cpu_without_a_cause_are_an_old_numpy():
    (found,) = blas_warnings([pool("Haswell")], "AVX-512", {})
    assert found.do == "install a newer NumPy"


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({}, []),
        ({"XLA_FLAGS": "--xla_dump_to=x"}, []),
        ({"XLA_FLAGS": "--xla_cpu_max_isa=AVX2"}, ["XLA_FLAGS"]),
        ({"NPY_DISABLE_CPU_FEATURES": "AVX512F", "DNNL_MAX_CPU_ISA": ""}, ["NPY_DISABLE_CPU_FEATURES"]),
        ({"ONEDNN_MAX_CPU_ISA": "AVX2"}, ["ONEDNN_MAX_CPU_ISA"]),
    ],
)
def test_a_variable_that_holds_a_library_back_is_noticed(env, names):
    assert [w.what for w in isa_warnings(env)] == [f"{name} is set" for name in names]


@given(st.sets(st.sampled_from(["sse2", "avx", "avx2", "avx512f", "fma"])))
def test_the_widest_instructions_are_found(flags):
    order = ["unknown", "SSE", "AVX", "AVX2", "AVX-512"]
    best = host.best_simd(flags)
    assert best in order
    assert order.index(best) == max(
        [0, *(i + 1 for i, f in enumerate(["sse2", "avx", "avx2", "avx512f"]) if f in flags)]
    )


def test_threads_beyond_the_allowed_cores_are_noticed(monkeypatch):
    monkeypatch.setattr(host, "cores_allowed", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.7, 0, 0), raising=False)
    found = [w.what for w in host.warnings([pool("SkylakeX", threads=64)], {})]
    assert "openblas uses 64 threads on 2 allowed cores" in found
    assert "load average 1.7 on 2 cores" in found

    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0, 0), raising=False)
    found = [w.what for w in host.warnings([pool("SkylakeX", threads=2)], {})]
    assert not [what for what in found if "threads" in what or "load" in what]


@pytest.mark.skipif("avx512f" not in host.cpu_flags(), reason="needs a CPU with AVX-512")
def test_openblas_held_back_is_noticed_for_real():
    pools = host.blas({"OPENBLAS_CORETYPE": "Haswell"})
    assert "Haswell" in {p["architecture"] for p in pools}
    (found,) = blas_warnings(pools, host.best_simd(host.cpu_flags()), {"OPENBLAS_CORETYPE": "Haswell"})
    assert "Haswell kernels (AVX2) on a CPU that offers AVX-512" in found.what
    assert blas_warnings(host.blas({"OPENBLAS_CORETYPE": ""}), "AVX-512", {}) == []
