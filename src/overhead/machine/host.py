"""The host: facts that stand beside every figure, and whether two sets of them are of one machine."""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from typing import Any

from overhead.loops import frameworks as known
from overhead.machine import cgroup
from overhead.machine import gpus as gpu_driver
from overhead.machine.cpu import best_simd, caches, cpu_flags, cpu_model
from overhead.machine.disturbance import frequency_mhz
from overhead.machine.environment import shown, telling_environment

RELEASE = re.compile(r"^[\d.]+")  # a kernel's number without the builder's marks


def cores_allowed() -> int:
    """Cores this process may use: the affinity mask, less where a cgroup quota is smaller."""
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.quota_cores()
    return max(1, min(affinity, int(quota) if quota else affinity))


def allocator() -> dict[str, str]:
    """The C library and the variables that steer its allocator."""
    name, version = platform.libc_ver()
    settings = {k: shown(v) for k, v in os.environ.items() if k.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
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
    found: dict[str, dict[str, str]] = {}
    for row in known.listed():
        if importlib.util.find_spec(row.name) is None:
            found[row.name] = {"missing": "not installed"}
            continue
        version = known.version(row) or "unknown"
        found[row.name] = {"version": version}
        if row.only_gpu and not gpus():
            found[row.name] = {"missing": f"installed ({version}), but there is no NVIDIA GPU to use it"}
    return found


def memory_bytes() -> int:
    """Memory that this process may use: the machine's, or the smallest limit of its control groups."""
    import psutil

    total = psutil.virtual_memory().total
    return min(total, cgroup.memory_limit_bytes() or total)


def memory_available_bytes() -> int:
    """Memory that this process could still get now, on the machine and within its control groups."""
    import psutil

    free, left = psutil.virtual_memory().available, cgroup.memory_left_bytes()
    return free if left is None else min(free, left)


def system(name: str | None = None, release: str | None = None) -> str:
    """The system and its kernel's number, without the builder's marks; WSL is named, since its clocks are Windows's."""
    name, release = name or platform.system(), release or platform.release()
    number = f"{name} {''.join(RELEASE.findall(release)[:1])}".strip()
    if "microsoft" not in release.lower():
        return number
    return f"{number} ({'WSL2' if 'wsl2' in release.lower() else 'WSL1'})"


def facts() -> dict[str, Any]:
    """What is true of this host for a whole run; no host name, user name, address or serial number."""
    return {
        "cpu_model": cpu_model(),
        "architecture": platform.machine(),
        "cores_present": os.cpu_count(),
        "cores_allowed": cores_allowed(),
        "cgroup_quota_cores": cgroup.quota_cores(),
        "threads_used": cores_allowed(),
        "simd": best_simd(cpu_flags()),
        "caches_bytes": caches(),
        "memory_bytes": memory_bytes(),
        "os": system(),
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
