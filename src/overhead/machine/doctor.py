"""What would spoil a measurement on this host, and the report of `overhead doctor`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from overhead.loops import frameworks as known
from overhead.machine import cpu, disturbance, host
from overhead.machine import gpus as gpu_driver
from overhead.machine import timer as timers
from overhead.machine.pools import blas

IMPORT_LIMIT_S = 180.0  # a first import of TensorFlow from a cold disk takes a minute and more
FOLDERS = re.compile(r"(?<![\w./~-])/(?:[\w.+@~-]+/)+")
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


class Warned(NamedTuple):
    """What is wrong, why it matters, and what to do."""

    what: str
    why: str
    do: str


def warnings(pools: list[dict[str, Any]], frameworks_found: dict[str, dict[str, str]]) -> list[Warned]:
    """What would spoil a measurement on this host now."""
    found = [*blas_warnings(pools, cpu.best_simd(cpu.cpu_flags()), dict(os.environ)), *isa_warnings(dict(os.environ))]
    cores = host.cores_allowed()
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
    available = host.memory_available_bytes()
    if available < 4 * 1024**3:
        found.append(
            Warned(
                f"{available / 1e9:.1f} GB of memory available",
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
    if governor.exists() and (name := governor.read_text(encoding="utf-8").strip()) == "powersave":
        found.append(Warned(f"CPU governor {name}", "clocks drift during a run", "set the performance governor"))
    for name, entry in frameworks_found.items():
        if "missing" in entry:
            found.append(Warned(f"{name} is missing", entry["missing"], known.of(name).hint))
    return found + gpu_warnings(frameworks_found)


def gpu_warnings(frameworks_found: dict[str, dict[str, str]]) -> list[Warned]:
    """What would spoil a measurement on the GPU, or keep a framework from it; empty on a host without one."""
    cards = host.gpus()
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
    for row in known.listed():
        if not row.brings_cuda or row.only_gpu:
            continue
        if "version" in frameworks_found.get(row.name, {}) and row.name not in cudas:
            found.append(
                Warned(
                    f"no CUDA packages for {row.name} were found",
                    f"unless the system has its own, {row.name} cannot use the GPU and its rows say so",
                    row.install_gpu or row.hint,
                )
            )
    if shutil.which("nsys") is None:
        found.append(
            Warned(
                "nsys is missing",
                "the profiles of chapter 4 are those that come with the book",
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


def imported(name: str) -> dict[str, Any]:
    """Whether a framework can be imported, tried in a process of its own: its seconds, or the reason why not."""
    code = f"import time; start = time.perf_counter(); import {name}; print(f'\\n{{time.perf_counter() - start:.2f}}')"
    try:
        run = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a framework may print what it likes
            timeout=IMPORT_LIMIT_S,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"installed, but its import took over {IMPORT_LIMIT_S:g} s"}
    if run.returncode == 0:
        return {"import_s": float(run.stdout.split()[-1])}
    said = ([line for line in run.stderr.splitlines() if line.strip()] or ["it said nothing"])[-1]
    if run.returncode < 0:
        number = -run.returncode
        said = f"ended by {signal.Signals(number).name if number in set(signal.Signals) else f'signal {number}'}"
    return {"missing": f"installed, but cannot be imported: {FOLDERS.sub('…/', said)[:300]}"}


def doctor(imports: bool = False) -> dict[str, Any]:
    """Everything `overhead doctor --json` prints: host, devices, frameworks, blas, clock, warnings.

    With `imports`, each framework that is installed is imported in a process of its own; one that cannot is missing.
    """
    found, pools = host.frameworks(), blas()
    if imports:
        for name, entry in found.items():
            if "version" in entry:
                tried = imported(name)
                found[name] = tried if "missing" in tried else {**entry, **tried}
    return {
        "host": host.facts(),
        "devices": [{"kind": "cpu", "name": cpu.cpu_model()}] + [{"kind": "gpu", **card} for card in host.gpus()],
        "frameworks": found,
        "blas": pools,
        "clock": {
            "name": "perf_counter_ns",
            "pair_cost_ns": round(timers.pair_cost_ns(), 1),
            "resolution_ns": timers.resolution_ns(),
        },
        "warnings": [warning._asdict() for warning in warnings(pools, found)],
    }


def as_text(found: dict[str, Any]) -> str:
    """The report for people: a line a fact."""
    facts = found["host"]
    lines = [
        f"{facts['cpu_model']}, {facts['cores_allowed']} of {facts['cores_present']} cores allowed, {facts['simd']}",
        f"{facts['memory_bytes'] / 2**30:.0f} GiB, {facts['os']}, Python {facts['python']}",
        *(f"device: {device['kind']} {device['name']}" for device in found["devices"]),
    ]
    for name, entry in found["frameworks"].items():
        tried = f"imported in {entry['import_s']:.1f} s" if "import_s" in entry else "installed"
        told = f"missing: {entry['missing']}" if "missing" in entry else f"{entry['version']} {tried}"
        lines.append(f"{name}: {told}")
    lines += [
        f"BLAS: {pool['library']} {pool['version']}, {pool['architecture']} kernels, {pool['threads']} threads"
        for pool in found["blas"]
    ]
    lines += [f"warning: {w['what']}: {w['why']}; {w['do']}" for w in found["warnings"]]
    return "\n".join(lines)
