"""Facts of the host, on pretended hosts."""

from __future__ import annotations

import getpass
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from overhead.loops import frameworks
from overhead.machine import cgroup, host

# Cores


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (3.9, 3), (0.5, 1), (100.0, 8)])
def test_the_smaller_of_affinity_and_quota_is_allowed(monkeypatch, quota, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cgroup, "quota_cores", lambda: quota)
    assert host.cores_allowed() == cores


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
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2", "TF_CLI_CONFIG_FILE": "/etc/terraform", "SECRET_TOKEN": "x",
        "NPY_DISABLE_CPU_FEATURES": "AVX2",
    }  # fmt: skip
    assert host.telling_environment(env) == {
        "MALLOC_ARENA_MAX": "1", "NPY_DISABLE_CPU_FEATURES": "AVX2", "OMP_NUM_THREADS": "2",
        "TF_XLA_FLAGS": "--tf_xla_auto_jit=2", "XLA_FLAGS": "(a path)",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("release", "told"),
    [
        ("5.15.0-105-generic", "Linux 5.15.0"),
        ("6.6.87.2-microsoft-standard-WSL2", "Linux 6.6.87.2 (WSL2)"),
        ("4.4.0-19041-Microsoft", "Linux 4.4.0 (WSL1)"),
        ("6.1.0-of-somebody", "Linux 6.1.0"),
    ],
)
def test_the_system_is_told_without_the_builder_and_with_the_windows_under_it(release, told):
    assert host.system("Linux", release) == told


GIB = 2**30


@pytest.mark.parametrize(("limit", "counts"), [(None, 64), (16 * GIB, 16), (128 * GIB, 64)])
def test_the_smaller_of_the_machine_s_memory_and_the_container_s_limit_counts(monkeypatch, limit, counts):
    memory = type("Memory", (), {"total": 64 * GIB, "available": 60 * GIB})
    monkeypatch.setattr("psutil.virtual_memory", lambda: memory)
    monkeypatch.setattr(cgroup, "memory_limit_bytes", lambda: limit)
    monkeypatch.setattr(cgroup, "memory_left_bytes", lambda: limit and limit - GIB)
    assert host.memory_bytes() == host.facts()["memory_bytes"] == counts * GIB
    assert host.memory_available_bytes() == min(60 * GIB, (limit or 100 * GIB) - GIB)


# Frameworks


def test_a_framework_is_there_with_its_version_or_missing_with_the_reason(monkeypatch):
    monkeypatch.setattr(host.importlib.util, "find_spec", lambda name: None if name == "jax" else object())
    monkeypatch.setattr(frameworks.importlib.metadata, "version", lambda package: f"1.0 of {package}")
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
