"""What would spoil a measurement, on pretended hosts, and what `overhead doctor` says of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from overhead.loops import frameworks
from overhead.machine import cpu, doctor, host
from overhead.machine.doctor import blas_warnings, isa_warnings
from overhead.machine.pools import blas

linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


def pool(architecture: str, threads: int = 2) -> dict[str, Any]:
    return {"library": "openblas", "version": "0.3", "architecture": architecture, "threads": threads}


@linux
def test_one_allowed_core_is_one_thread_for_everyone():
    one = min(os.sched_getaffinity(0))
    code = (
        f"import os, json; os.sched_setaffinity(0, {{{one}}}); from overhead.machine import doctor, host, pools; "
        "print(json.dumps([host.facts(), doctor.warnings(pools.blas(), host.frameworks())]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    facts, warnings = json.loads(done.stdout)

    assert facts["cores_allowed"] == facts["threads_used"] == 1
    if facts["cores_present"] > 1:
        assert f"1 of {facts['cores_present']} cores allowed" in [what for what, _, _ in warnings]


def test_a_missing_framework_comes_with_the_way_to_install_it():
    missing = {name: {"missing": "not installed"} for name in [*frameworks.TABLE, "torchlike"]}
    warned = {w.what: w for w in doctor.warnings([], missing)}
    for name in missing:
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


def test_threads_beyond_the_allowed_cores_are_noticed(monkeypatch):
    monkeypatch.setattr(host, "cores_allowed", lambda: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (1.7, 0, 0), raising=False)
    found = [w.what for w in doctor.warnings([pool("SkylakeX", threads=64)], {})]
    assert "openblas uses 64 threads on 2 allowed cores" in found
    assert "load average 1.7 on 2 cores" in found

    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0, 0), raising=False)
    found = [w.what for w in doctor.warnings([pool("SkylakeX", threads=2)], {})]
    assert not [what for what in found if "threads" in what or "load" in what]


@pytest.mark.skipif("avx512f" not in cpu.cpu_flags(), reason="needs a CPU with AVX-512")
def test_openblas_held_back_is_noticed_for_real():
    pools = blas({"OPENBLAS_CORETYPE": "Haswell"})
    assert "Haswell" in {p["architecture"] for p in pools}
    (found,) = blas_warnings(pools, cpu.best_simd(cpu.cpu_flags()), {"OPENBLAS_CORETYPE": "Haswell"})
    assert "Haswell kernels (AVX2) on a CPU that offers AVX-512" in found.what
    assert blas_warnings(blas({"OPENBLAS_CORETYPE": ""}), "AVX-512", {}) == []


# Whether a framework can be imported

BROKEN = {
    "torchlike": ("print('banner')", None),
    "torchless": ("import of_nothing", "ModuleNotFoundError: No module named 'of_nothing'"),
    "torchfile": ("raise ImportError('/opt/of/somebody/libx.so: cannot open')", "ImportError: …/libx.so: cannot open"),
    "torchdead": ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_framework_is_imported_in_a_process_of_its_own(tmp_path, monkeypatch, name):
    code, reason = BROKEN[name]
    (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor.imported(name)
    if reason is None:
        assert found["import_s"] >= 0
    else:
        assert found == {"missing": f"installed, but cannot be imported: {reason}"}
    assert name not in sys.modules


def test_what_was_not_imported_is_called_installed_and_what_cannot_be_is_missing(monkeypatch):
    monkeypatch.setattr(host, "frameworks", lambda: {"jax": {"version": "1"}, "keras": {"missing": "not installed"}})
    monkeypatch.setattr(doctor, "blas", list)
    monkeypatch.setattr(doctor, "imported", lambda name: {"missing": "installed, but cannot be imported: x"})
    plain, tried = doctor.doctor(), doctor.doctor(imports=True)
    assert "jax: 1 installed\nkeras: missing: not installed" in doctor.as_text(plain)
    assert tried["frameworks"]["jax"] == {"missing": "installed, but cannot be imported: x"}
    assert "jax is missing" in [w["what"] for w in tried["warnings"]]

    monkeypatch.setattr(doctor, "imported", lambda name: {"import_s": 1.25})
    assert "jax: 1 imported in 1.2 s" in doctor.as_text(doctor.doctor(imports=True))
