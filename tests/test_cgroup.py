"""Limits of control groups of either version, wherever on the way to the root they stand."""

from __future__ import annotations

import pytest

from overhead.machine import cgroup

UNLIMITED = "9223372036854771712"


def tree(root, files, own=""):
    for name, text in files.items():
        path = root / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (root / "own").write_text(own)
    return root / "cgroup", root / "own"


@pytest.mark.parametrize(
    ("files", "own", "cores"),
    [
        ({}, "", None),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "150000 100000"}, "0::/", 1.5),
        ({"cpu.max": "gibberish"}, "0::/", None),
        ({"a/b/cpu.max": "max 100000", "a/cpu.max": "200000 100000"}, "0::/a/b", 2.0),
        ({"a/b/cpu.max": "100000 100000", "a/cpu.max": "200000 100000"}, "0::/a/b", 1.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, "1:cpu:/", None),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, "", 0.5),
        ({"cpu/a/cpu.cfs_quota_us": "50000", "cpu/a/cpu.cfs_period_us": "100000"}, "2:cpu,cpuacct:/a/b", 0.5),
    ],
)
def test_the_smallest_quota_on_the_way_to_the_root_is_read(tmp_path, files, own, cores):
    assert cgroup.quota_cores(*tree(tmp_path, files, own)) == cores


@pytest.mark.parametrize(
    ("files", "own", "limit"),
    [
        ({}, "", None),
        ({"memory.max": "max"}, "0::/", None),
        ({"memory.max": "1000"}, "0::/", 1000),  # a container's own root
        ({"a/b/memory.max": "max", "a/memory.max": "2000"}, "0::/a/b", 2000),
        ({"a/b/memory.max": "1000", "a/memory.max": "2000"}, "0::/a/b", 1000),
        ({"a/b/memory.max": "3000", "a/memory.max": "2000"}, "0::/a/b", 2000),
        ({"memory.max": "5000"}, "0::/../../of/the/host", 5000),
        ({"memory/memory.limit_in_bytes": UNLIMITED}, "4:memory:/", None),
        ({"memory/memory.limit_in_bytes": "4000"}, "4:memory:/docker/0123", 4000),  # the path is the host's
        ({"memory/a/memory.limit_in_bytes": "3000", "memory/memory.limit_in_bytes": UNLIMITED}, "4:memory:/a/b", 3000),
        ({"other/memory.max": "10"}, "0::/a", None),
        ({"memory.max": "gibberish"}, "0::/", None),
    ],
)
def test_the_smallest_memory_limit_on_the_way_to_the_root_holds(tmp_path, files, own, limit):
    assert cgroup.memory_limit_bytes(*tree(tmp_path, files, own)) == limit


def test_what_is_left_is_the_least_of_any_group_and_droppable_pages_count_as_free(tmp_path):
    files = {
        "a/memory.max": "1000", "a/memory.current": "700", "a/memory.stat": "anon 300\ninactive_file 400",
        "memory.max": "2000", "memory.current": "1900", "memory.stat": "anon 1\ninactive_file 0",
    }  # fmt: skip
    root, own = tree(tmp_path, files, "0::/a")
    assert cgroup.memory_left_bytes(root, own) == 100
    (root / "memory.current").write_text("0")
    assert cgroup.memory_left_bytes(root, own) == 700
    assert cgroup.memory_left_bytes(root / "missing", own) is None
