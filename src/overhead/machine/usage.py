"""What this process has used: the processor seconds of its threads, and its memory."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def thread_seconds() -> dict[int, float]:
    """Processor seconds of every thread of this process so far, by thread id; empty where unknown."""
    found = {}
    ticks = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
    for task in Path("/proc/self/task").glob("*/stat"):
        try:
            fields = task.read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue  # the thread has just ended
        found[int(task.parent.name)] = (int(fields[11]) + int(fields[12])) / ticks
    return found


def busy_threads(before: dict[int, float], after: dict[int, float], share: float = 0.1) -> int | None:
    """Threads that did at least `share` of the busiest thread's work; None when too short to tell."""
    spent = [seconds - before.get(thread, 0.0) for thread, seconds in after.items()]
    most = max(spent, default=0.0)
    return sum(s >= share * most for s in spent) if most >= 0.1 else None


def resident_bytes() -> int:
    """This process's resident memory now."""
    import psutil

    return psutil.Process().memory_info().rss


def peak_rss_bytes() -> int:
    """This process's peak resident memory so far.

    `getrusage` would count what the process that started this one held at that moment; Linux's VmHWM does not.
    """
    import resource

    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
