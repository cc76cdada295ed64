"""The state of the host during a run, and what of it disturbed the run; a disturbed record is marked."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from overhead.machine import gpus

DISTURBED_STEAL, DISTURBED_OTHERS = 0.02, 0.10  # shares of the allowed cores
DISTURBED_WAITS, DISTURBED_FREQUENCY = 0.02, 0.10  # shares of the time, of the frequency
DISTURBED_SWAP_BYTES = 10_000_000


class State(NamedTuple):
    """Counters of the host at one moment; what this system does not tell is 0 or None."""

    at_s: float
    busy_s: float  # processor seconds of the allowed cores so far, ours and others'
    steal_s: float  # … that another virtual machine had
    throttled_s: float  # … that the cgroup's quota withheld
    memory_waits_s: float  # time in which some task waited for memory
    swapped_in_bytes: int
    frequency_mhz: float | None
    load_average: float | None


def frequency_mhz() -> float | None:
    """The CPU's present frequency; None where it cannot be read."""
    import psutil

    try:
        now = psutil.cpu_freq()
    except (OSError, NotImplementedError, AttributeError):
        return None
    return float(now.current) if now and now.current else None


def state() -> State:
    """The host's counters now."""
    import psutil

    busy, steal = _cpu_seconds()
    try:
        swapped = psutil.swap_memory().sin
    except (OSError, RuntimeError):
        swapped = 0
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return State(time.monotonic(), busy, steal, _throttled_s(), _memory_waits_s(), swapped or 0, frequency_mhz(), load)


class Disturbance:
    """What the host did besides between `start()` and `found()`; most of it is told by Linux only."""

    def __init__(self) -> None:
        self.begun: tuple[State, float] | None = None
        self.facts: dict[str, Any] = {}  # of the last `found`: shares of the allowed cores, MHz, load average

    def start(self, own_seconds: float) -> None:
        """Begin; `own_seconds` is the processor time so far of the processes that are ours."""
        self.begun = (state(), own_seconds)

    def found(self, own_seconds: float) -> list[str]:
        """What disturbed the run since `start`, in words with the share of the allowed cores; empty if nothing."""
        if self.begun is None:
            return []
        (before, own_before), after = self.begun, state()
        span = after.at_s - before.at_s
        if span <= 0.25:
            return []
        return self.between(before, after, own_seconds - own_before)

    def between(self, before: State, after: State, own_s: float) -> list[str]:
        """What `found` says, from two states and the processor seconds that were ours."""
        span = after.at_s - before.at_s
        cores = span * len(_affinity() or range(os.cpu_count() or 1))
        shares = {
            "steal": (after.steal_s - before.steal_s) / cores,
            "others": max(0.0, (after.busy_s - before.busy_s - own_s) / cores) if after.busy_s else 0.0,
            "throttled": (after.throttled_s - before.throttled_s) / span,
            "memory_waits": (after.memory_waits_s - before.memory_waits_s) / span,
        }
        self.facts = {
            **{f"{name}_share": round(share, 4) for name, share in shares.items()},
            "load_average": after.load_average,
            "frequency_mhz": [before.frequency_mhz, after.frequency_mhz],
        }
        found = []
        if shares["steal"] > DISTURBED_STEAL:
            found.append(f"steal time {shares['steal']:.0%} of the cores")
        if shares["others"] > DISTURBED_OTHERS:
            found.append(f"other processes used {shares['others']:.0%} of the cores")
        if shares["throttled"] > DISTURBED_WAITS:
            found.append(f"the cgroup's quota held us back {shares['throttled']:.0%} of the time")
        if shares["memory_waits"] > DISTURBED_WAITS:
            found.append(f"tasks waited for memory {shares['memory_waits']:.0%} of the time")
        if after.swapped_in_bytes - before.swapped_in_bytes > DISTURBED_SWAP_BYTES:
            found.append(f"{(after.swapped_in_bytes - before.swapped_in_bytes) / 1e6:.0f} MB were swapped in")
        if before.frequency_mhz and after.frequency_mhz:
            change = after.frequency_mhz / before.frequency_mhz - 1
            if abs(change) > DISTURBED_FREQUENCY:
                found.append(f"the CPU's frequency changed by {change:+.0%}")
        return found


class GpuWatch:
    """One GPU between two looks and more, each while something of ours runs on it: at rest its clocks are others.

    A look costs tens of milliseconds and more, so it belongs between turns.
    """

    EVERY_S = 5.0

    def __init__(self, index: int) -> None:
        self.index = index
        self.looks: list[gpus.State | None] = []
        self._at = -self.EVERY_S

    @property
    def due(self) -> bool:
        return time.monotonic() - self._at >= self.EVERY_S

    def look(self) -> None:
        """Ask the driver."""
        self.looks.append(gpus.state(self.index))
        self._at = time.monotonic()

    def forget_last(self) -> None:
        """As if the last look had not been: what was to be looked at had ended before the driver answered."""
        self.looks.pop()

    def facts(self) -> dict[str, Any]:
        """The GPU's index and the extremes of its clock, temperature, power and memory over all looks."""
        seen = [look for look in self.looks if look is not None]
        found: dict[str, Any] = {"index": self.index}
        for name in ("sm_clock_mhz", "temperature_c", "power_w", "memory_used_mib"):
            values = [value for look in seen if (value := getattr(look, name)) is not None]
            if values:
                found[name] = [min(values), max(values)]
        return found

    def found(self) -> list[str]:
        """What held the GPU back, in how many of the looks; and whether it has stopped answering."""
        seen = [look for look in self.looks if look is not None]
        reasons = dict.fromkeys(why for look in seen for why in look.held_back)
        found = [
            f"the GPU's clocks were held back by {why} ({sum(why in look.held_back for look in seen)} of {len(seen)} "
            "looks)"
            for why in reasons
        ]
        if seen and self.looks[-1] is None:
            found.append("the GPU stopped answering its driver")
        return found


def _affinity() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


def _cpu_seconds() -> tuple[float, float]:
    """Busy and stolen processor seconds of the allowed cores since boot; (0, 0) where Linux does not say."""
    try:
        lines = Path("/proc/stat").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0.0, 0.0
    busy, stolen, mine = 0.0, 0.0, {f"cpu{core}" for core in _affinity()}
    for line in lines:
        name, *fields = line.split()
        if name in mine:
            user, nice, system, _, _, irq, softirq, steal = (int(f) / os.sysconf("SC_CLK_TCK") for f in fields[:8])
            busy, stolen = busy + user + nice + system + irq + softirq, stolen + steal
    return busy, stolen


def _throttled_s(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Seconds that the cgroup's quota has withheld so far (cgroup v2)."""
    try:
        stat = dict(line.split() for line in (root / "cpu.stat").read_text(encoding="utf-8").splitlines())
        return int(stat.get("throttled_usec", 0)) * 1e-6
    except (OSError, ValueError):
        return 0.0


def _memory_waits_s(path: Path = Path("/proc/pressure/memory")) -> float:
    """Seconds so far in which some task waited for memory (pressure stall information)."""
    try:
        return int(path.read_text(encoding="utf-8").splitlines()[0].rpartition("total=")[2]) * 1e-6
    except (OSError, ValueError, IndexError):
        return 0.0


def pressure(of: str) -> float:
    """Percent of the last minute in which some task waited for `of` (cpu, memory or io); 0 where Linux does not say."""
    try:
        return float(re.search(r"avg60=([\d.]+)", Path(f"/proc/pressure/{of}").read_text(encoding="utf-8"))[1])  # type: ignore[index]
    except (OSError, TypeError, ValueError):
        return 0.0


def stolen_share() -> float:
    """Share of the allowed cores' time since boot that another virtual machine had."""
    busy, stolen = _cpu_seconds()
    return stolen / (busy + stolen) if busy else 0.0
