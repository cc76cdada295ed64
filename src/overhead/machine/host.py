"""The host: facts that stand beside every figure, and warnings about what would spoil a measurement."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from overhead.machine import disturbance
from overhead.machine import gpus as gpu_driver
from overhead.machine.disturbance import frequency_mhz

FRAMEWORKS = {
    "numpy": ("numpy",),
    "jax": ("jax",),
    "tensorflow": ("tensorflow", "tensorflow-cpu"),
    "keras": ("keras",),
    "cupy": ("cupy-cuda12x", "cupy-cuda13x", "cupy"),
}
INSTALL = {
    "numpy": "pip install numpy",
    "jax": "pip install 'overhead[cpu]', or 'overhead[gpu]' on a GPU host",
    "tensorflow": "pip install 'overhead[cpu]', or 'overhead[gpu]' on a GPU host",
    "keras": "pip install keras",
    "cupy": "pip install 'overhead[gpu]' on a host with an NVIDIA GPU",
}
INSTALL_GPU = {"jax": "pip install 'jax[cuda12]'", "tensorflow": "pip install 'tensorflow[and-cuda]'"}
# Variables that change what is measured; recorded with every record when they are set.
TELLING = (
    *("OMP_", "OPENBLAS_", "MKL_", "BLIS_", "GOTO_", "NPROC", "NPY_", "ONEDNN_", "DNNL_", "MALLOC_", "GLIBC_TUNABLES"),
    # TensorFlow's by their second word: Terraform's variables begin with TF_ too.
    *(f"TF_{word}" for word in ("NUM", "XLA", "CPP", "ENABLE", "DISABLE", "FORCE", "GPU", "CUD", "DETERM", "USE")),
    *("XLA_", "JAX_", "KERAS_", "CUPY_", "CUDA_VISIBLE", "NVIDIA_TF32"),
)
# Variables that keep a library from the CPU's best instructions, and what in their value says so.
HOLDING_BACK = {
    "NPY_DISABLE_CPU_FEATURES": "",
    "ONEDNN_MAX_CPU_ISA": "",
    "DNNL_MAX_CPU_ISA": "",
    "MKL_ENABLE_INSTRUCTIONS": "",
    "XLA_FLAGS": "--xla_cpu_max_isa",
}
# Kernel architectures of OpenBLAS for x86 by the instructions they use, poorest first.
OPENBLAS_RANKS = {
    **dict.fromkeys(
        ("prescott", "core2", "penryn", "dunnington", "nehalem", "barcelona", "athlon", "atom"), ("SSE", 0)
    ),
    **dict.fromkeys(("sandybridge", "bulldozer", "piledriver"), ("AVX", 1)),
    **dict.fromkeys(("haswell", "zen", "excavator", "steamroller"), ("AVX2", 2)),
    **dict.fromkeys(("skylakex", "cooperlake", "sapphirerapids"), ("AVX-512", 3)),
}
RELEASE = re.compile(r"^[\d.]+")  # a kernel's number without the builder's marks


class Warned(NamedTuple):
    """What is wrong, why it matters, and what to do."""

    what: str
    why: str
    do: str


def cores_allowed() -> int:
    """Cores this process may use: the affinity mask, less where a cgroup quota is smaller."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota()
    return max(1, min(affinity, int(quota) if quota else affinity))


def cgroup_quota(root: Path = Path("/sys/fs/cgroup")) -> float | None:
    """Cores that the cgroup's quota allows; None without a quota."""
    try:
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        pass
    try:  # cgroup v1
        quota = int((root / "cpu" / "cpu.cfs_quota_us").read_text())
        return None if quota <= 0 else quota / int((root / "cpu" / "cpu.cfs_period_us").read_text())
    except (OSError, ValueError):
        return None


def cpu_flags() -> set[str]:
    """Instruction sets that the CPU offers, as Linux names them; empty elsewhere."""
    return set(_cpuinfo("flags").split())


def cpu_model() -> str:
    """The CPU's name."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _cpuinfo(key: str) -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.partition(":")[0].strip() == key:
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def caches() -> dict[str, int]:
    """Bytes of the data caches that one core sees, by level."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            if (index / "type").read_text().strip() != "Instruction":
                size = (index / "size").read_text().strip()
                scale = {"K": 1024, "M": 1024**2}.get(size[-1], 1)
                found[f"L{(index / 'level').read_text().strip()}"] = int(size.rstrip("KM")) * scale
        except (OSError, ValueError):
            continue
    return found


def allocator() -> dict[str, str]:
    """The C library and the variables that steer its allocator."""
    name, version = platform.libc_ver()
    settings = {k: v for k, v in os.environ.items() if k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    preload = os.environ.get("LD_PRELOAD", "")
    other = [lib for lib in ("jemalloc", "tcmalloc", "mimalloc") if lib in preload]
    return {
        "libc": f"{name} {version}".strip() or "unknown",
        **settings,
        **({"preload": other[0]} if other else {}),
    }


def gpus() -> list[dict[str, Any]]:
    """NVIDIA GPUs that this process may use, the used one first (see `overhead.machine.gpus`); empty without one."""
    return gpu_driver.gpus()


def gpu_processes() -> int | None:
    """Compute processes on the GPU that is used; None without a GPU or where it cannot be read."""
    cards = gpus()
    return gpu_driver.processes(cards[0]["index"] if cards else None)


def frameworks() -> dict[str, dict[str, str]]:
    """Version of each framework, or the reason of its absence. Imports none of them."""
    found = {}
    for name, packages in FRAMEWORKS.items():
        if importlib.util.find_spec(name) is None:
            found[name] = {"missing": "not installed"}
            continue
        for package in packages:
            try:
                found[name] = {"version": importlib.metadata.version(package)}
                break
            except importlib.metadata.PackageNotFoundError:
                continue
        else:
            found[name] = {"version": "unknown"}
    if "version" in found["cupy"] and not gpus():
        found["cupy"] = {"missing": f"installed ({found['cupy']['version']}), but there is no NVIDIA GPU to use it"}
    return found


def blas(env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """NumPy's and SciPy's BLAS pools as a fresh process sees them: library, version, architecture, threads."""
    code = (
        "import json, numpy, numpy.linalg, scipy.linalg; from overhead.measure.worker import thread_pools; "
        "numpy.ones((64, 64)) @ numpy.ones((64, 64)); print(json.dumps(thread_pools()))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )
    return json.loads(run.stdout) if run.returncode == 0 else []


def telling_environment(env: dict[str, str]) -> dict[str, str]:
    """Variables that change what is measured; a value that is a path, or a card's own number, is not shown."""

    def shown(value: str) -> str:
        return "(a UUID)" if value.startswith(("GPU-", "MIG-")) else "(a path)" if "/" in value else value

    return {name: shown(value) for name, value in sorted(env.items()) if name.startswith(TELLING)}


def facts() -> dict[str, Any]:
    """What is true of this host for a whole run; no host name, user name, address or serial number."""
    import psutil

    return {
        "cpu_model": cpu_model(),
        "architecture": platform.machine(),
        "cores_present": os.cpu_count(),
        "cores_allowed": cores_allowed(),
        "cgroup_quota_cores": cgroup_quota(),
        "threads_used": cores_allowed(),
        "simd": best_simd(cpu_flags()),
        "caches_bytes": caches(),
        "memory_bytes": psutil.virtual_memory().total,
        "os": f"{platform.system()} {''.join(RELEASE.findall(platform.release())[:1])}".strip(),
        "virtual": "hypervisor" in cpu_flags(),
        "frequency_mhz": frequency_mhz(),
        "allocator": allocator(),
        "gpus": gpus(),
        "python": platform.python_version(),
        "env": telling_environment(dict(os.environ)),
    }


SAME_HOST = ("cpu_model", "architecture", "cores_allowed")
SAME_MEMORY = 0.01  # what a kernel keeps for itself differs a little from start to start


def other_host(old: dict[str, Any], new: dict[str, Any]) -> str | None:
    """Why two sets of facts are not of one host, or None. Runs of unlike hosts are never pooled."""
    for key in SAME_HOST:
        if old.get(key) != new.get(key):
            return f"{key} was {old.get(key)!r}, is {new.get(key)!r}"
    before, now = (facts.get("memory_bytes") or 0 for facts in (old, new))
    if abs(before - now) > SAME_MEMORY * max(before, now):
        return f"memory_bytes was {before!r}, is {now!r}"
    if [g.get("name") for g in old.get("gpus", [])] != [g.get("name") for g in new.get("gpus", [])]:
        return "the GPUs differ"
    return None


def best_simd(flags: set[str]) -> str:
    """The widest of SSE, AVX, AVX2 and AVX-512 that the CPU offers; "unknown" where flags cannot be read."""
    for name, flag in (("AVX-512", "avx512f"), ("AVX2", "avx2"), ("AVX", "avx"), ("SSE", "sse2")):
        if flag in flags:
            return name
    return "unknown"


def warnings(pools: list[dict[str, Any]], frameworks_found: dict[str, dict[str, str]]) -> list[Warned]:
    """What would spoil a measurement on this host now."""
    import psutil

    found = [*blas_warnings(pools, best_simd(cpu_flags()), dict(os.environ)), *isa_warnings(dict(os.environ))]
    cores = cores_allowed()
    if cores < (os.cpu_count() or 1):
        found.append(
            Warned(
                f"{cores} of {os.cpu_count()} cores allowed",
                "an affinity mask or a cgroup quota holds this process back",
                "measure with all cores, or let the record say how many (it does)",
            )
        )
    for pool in pools:
        if pool["threads"] and pool["threads"] > cores:
            found.append(
                Warned(
                    f"{pool['library']} uses {pool['threads']} threads on {cores} allowed cores",
                    "threads that wait for a core slow each other",
                    f"set OPENBLAS_NUM_THREADS={cores} and OMP_NUM_THREADS={cores}",
                )
            )
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5 * cores:
        found.append(
            Warned(
                f"load average {os.getloadavg()[0]:.1f} on {cores} cores",
                "other processes share the cores",
                "stop them, or wait; a disturbed run is marked",
            )
        )
    memory = psutil.virtual_memory()
    if memory.available < 4 * 1024**3:
        found.append(
            Warned(
                f"{memory.available / 1e9:.1f} GB of memory available",
                "a TensorFlow worker holds over 1 GB",
                "close other programs; fewer workers are kept alive at once",
            )
        )
    if (waits := disturbance.pressure("memory")) > 1:
        found.append(
            Warned(
                f"tasks waited for memory {waits:.0f} % of the last minute",
                "pages that come from disk are charged to whoever reads them",
                "close other programs, or wait; a disturbed run is marked",
            )
        )
    if (stolen := disturbance.stolen_share()) > disturbance.DISTURBED_STEAL:
        found.append(
            Warned(
                f"steal time {stolen:.0%} of the cores since boot",
                "another virtual machine has the cores at times",
                "measure when the machine's host is quieter; a disturbed run is marked",
            )
        )
    governor = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    if governor.exists() and (name := governor.read_text().strip()) == "powersave":
        found.append(Warned(f"CPU governor {name}", "clocks drift during a run", "set the performance governor"))
    for name, entry in frameworks_found.items():
        if "missing" in entry:
            found.append(Warned(f"{name} is missing", entry["missing"], INSTALL[name]))
    return found + gpu_warnings(frameworks_found)


def gpu_warnings(frameworks_found: dict[str, dict[str, str]]) -> list[Warned]:
    """What would spoil a measurement on the GPU, or keep a framework from it; empty on a host without one."""
    cards = gpus()
    if not cards:
        hidden = gpu_driver.VISIBLE in os.environ and gpu_driver.processes() is not None
        what = f"{gpu_driver.VISIBLE}={os.environ.get(gpu_driver.VISIBLE)} hides every GPU"
        return [Warned(what, "only the CPU is measured", f"unset {gpu_driver.VISIBLE}")] if hidden else []
    card, found = cards[0], []
    if len(cards) > 1:
        found.append(
            Warned(
                f"{len(cards)} GPUs, of which GPU {card['index']} ({card['name']}) is used",
                "a loop of this book trains on one",
                f"set {gpu_driver.VISIBLE} to choose another one by its number in nvidia-smi",
            )
        )
    cudas = gpu_driver.cudas()
    for name, cuda, least in gpu_driver.driver_too_old(card["driver"], cudas):
        found.append(
            Warned(
                f"driver {card['driver']} is too old for the CUDA {cuda} of {name} ({least} or newer)",
                f"{name} cannot use the GPU",
                "update the driver, or install the framework's wheels for an older CUDA",
            )
        )
    for name in ("jax", "tensorflow"):
        if "version" in frameworks_found.get(name, {}) and name not in cudas:
            found.append(
                Warned(
                    f"no CUDA packages for {name} were found",
                    f"unless the system has its own, {name} cannot use the GPU and its rows say so",
                    INSTALL_GPU[name],
                )
            )
    if shutil.which("nsys") is None:
        found.append(
            Warned(
                "nsys is missing",
                "the profiles of chapter 03 are those that come with the book",
                "install NVIDIA Nsight Systems",
            )
        )
    if others := gpu_driver.processes(card["index"]):
        found.append(
            Warned(
                f"{others} other {'process' if others == 1 else 'processes'} on the GPU",
                "they share its time and memory",
                "stop them, or wait",
            )
        )
    now = gpu_driver.state(card["index"])
    if now is None:
        found.append(Warned("the GPU does not answer", "its driver tells nothing of it", "look at nvidia-smi"))
    elif now.utilisation is not None and now.utilisation > gpu_driver.BUSY:
        found.append(
            Warned(f"the GPU is busy {now.utilisation:.0%} of the time", "another program has it", "stop it, or wait")
        )
    if now and now.held_back:
        found.append(
            Warned(
                f"the GPU's clocks are held back by {' and '.join(now.held_back)}",
                "its times change with its clocks",
                "cool it, or raise its power limit; a disturbed run is marked",
            )
        )
    return found


def blas_warnings(pools: list[dict[str, Any]], simd: str, env: dict[str, str]) -> list[Warned]:
    """A BLAS whose kernels use poorer instructions than the CPU offers, with the variable that causes it."""
    ranks = {"SSE": 0, "AVX": 1, "AVX2": 2, "AVX-512": 3}
    found, seen = [], set()
    for pool in pools:
        name = str(pool.get("architecture") or "")
        kernels, rank = OPENBLAS_RANKS.get(name.lower(), (None, None))
        # OpenBLAS has no kernels of its own for AVX-512 on Zen before Zen 4, nor a better one than its newest.
        if rank is None or simd not in ranks or rank >= ranks[simd] or name in seen:
            continue
        seen.add(name)
        causes = [v for v in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE") if v in env]
        found.append(
            Warned(
                f"{pool['library']} runs {name} kernels ({kernels}) on a CPU that offers {simd}",
                f"{' and '.join(causes)} set: NumPy's products run slower than they need to"
                if causes
                else "NumPy's products run slower than they need to",
                f"unset {' '.join(causes)}" if causes else "install a newer NumPy",
            )
        )
    return found


def isa_warnings(env: dict[str, str]) -> list[Warned]:
    """Variables other than OpenBLAS's that hold a library back."""
    return [
        Warned(f"{name} is set", "a library may not use the CPU's best instructions", f"unset {name}")
        for name, telling in HOLDING_BACK.items()
        if env.get(name) and telling in env[name]
    ]


def doctor() -> dict[str, Any]:
    """Everything `overhead doctor --json` prints: host, devices, frameworks, blas, clock, warnings."""
    from overhead.machine import timer as timers

    found, pools = frameworks(), blas()
    cards = gpus()
    return {
        "host": facts(),
        "devices": [{"kind": "cpu", "name": cpu_model()}] + [{"kind": "gpu", **card} for card in cards],
        "frameworks": found,
        "blas": pools,
        "clock": {
            "name": "perf_counter_ns",
            "pair_cost_ns": round(timers.pair_cost_ns(), 1),
            "resolution_ns": timers.resolution_ns(),
        },
        "warnings": [warning._asdict() for warning in warnings(pools, found)],
    }
