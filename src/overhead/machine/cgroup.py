"""What the control groups of this process allow it: cores and memory, of version 1 and 2, parents included.

A limit of a parent holds for all its children, so the smallest on the way to the root counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")  # a line a hierarchy: number, controllers, path of this process's group
NO_LIMIT = 1 << 60  # version 1 writes "no limit" as the largest multiple of a page


def quota_cores(root: Path = ROOT, own: Path = OWN) -> float | None:
    """Cores that the quotas allow; None without a quota."""
    found = []
    for folder in _folders("cpu", root, own):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit() and int(quota) and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def memory_limit_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """The smallest memory limit; None without one."""
    return min((limit for limit, _ in _memory(root, own)), default=None)


def memory_left_bytes(root: Path = ROOT, own: Path = OWN) -> int | None:
    """What the memory limits leave; None without one. File pages that can be dropped do not count as used."""
    return min((max(0, limit - used) for limit, used in _memory(root, own)), default=None)


def _memory(root: Path, own: Path) -> Iterator[tuple[int, int]]:
    """(limit, used) in bytes of every group that has a limit."""
    for folder in _folders("memory", root, own):
        for limit, used, kept in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            most, now = _text(folder / limit), _text(folder / used)
            if most.isdigit() and int(most) < NO_LIMIT:
                stat = dict(line.split(" ", 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
                droppable = stat.get(kept, "0")
                yield int(most), max(0, int(now or 0) - (int(droppable) if droppable.isdigit() else 0))


def _folders(controller: str, root: Path, own: Path) -> Iterator[Path]:
    """The groups that this process is in, from its own up to the root, in both versions' places."""
    paths = {"": "/", controller: "/"}
    for line in _text(own).splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        paths |= {name: path for name in names.split(",") if name in paths}
    for name, path in paths.items():
        # Inside a container the path may be the host's, of which there is nothing here, or lead out of the root.
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for depth in range(len(parts), -1, -1):
            yield (root / name).joinpath(*parts[:depth])


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
