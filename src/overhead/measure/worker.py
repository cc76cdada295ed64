"""One contestant in one process, its own side: commands as JSON lines on stdin, answers on a descriptor of their own.

The environment is set by the caller before this process starts, so that no thread or memory variable comes
after the import that reads it.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from overhead import loops
from overhead.loops import frameworks
from overhead.loops.base import Loop, Op, nothing_to_wait_for
from overhead.machine import timer as timers
from overhead.machine.pools import thread_pools
from overhead.machine.usage import busy_threads, peak_rss_bytes, resident_bytes, thread_seconds
from overhead.measure import clock as timing
from overhead.measure.answering import answer_commands
from overhead.problem.mlp import flat, unflat
from overhead.problem.stored import load_split
from overhead.problem.workload import Workload

WARMING_BYTES = 1 << 20


class Worker:
    """The loop of this process, its state, and the verbs that a caller may ask for."""

    def __init__(self, loop: Loop) -> None:
        warm_allocator()
        self.loop = loop
        self.state: Any = None
        self.workload: Workload | None = None
        self._since: dict[int, float] | None = None
        self._ops: list[Op] | None = None
        self._ops_of: Any = None  # the state that they work on
        self._probes: dict[tuple[str, str], tuple[list[Any], dict[str, int]]] = {}

    def hello(self) -> dict[str, Any]:
        """Versions, thread pools and the clock of this process."""
        return {
            "pid": os.getpid(),
            "versions": versions(self.loop.framework),
            "pools": thread_pools(),
            "timer": timers.measured()._asdict(),
        }

    def place(self, data: str, params: str, workload: dict[str, Any]) -> dict[str, Any]:
        """Free the last state, then place parameters and images for `workload`; the seconds it took."""
        self.state = None
        gc.collect()
        self.workload = Workload(**workload)
        with np.load(params) as archive:
            initial = unflat([archive[name] for name in archive.files])
        split = load_split(Path(data))
        start = timers.clock()
        self.state = self.loop.place(initial, split, self.workload)
        self.loop.block(self.state)  # a copy may be on its way when the call returns
        placed_s = (timers.clock() - start) * 1e-9
        device, name = self.loop.placed_on(self.state)
        self._since = None
        return {
            "placed_s": placed_s,
            "device": device,
            "device_name": name,
            "steps_per_call": self.loop.steps_per_call(self.workload),
            "settings": self.loop.settings(self.state),
            "pools": thread_pools(),
        }

    def run(self, steps: int, repeats: int = 1) -> dict[str, Any]:
        """`repeats` samples of `steps` steps each: nanoseconds to the call's return and to the device's end."""
        before = thread_seconds()
        found = []
        for _ in range(repeats):
            self.state, sample = timing.measure(self.loop, self.state, steps)
            found.append(sample)
        used = thread_seconds()
        if self._since is None:
            self._since = used  # the first run may compile, with threads of its own
        return {
            "dispatch_ns": [s.dispatch_ns for s in found],
            "wall_ns": [s.wall_ns for s in found],
            "busy_threads": busy_threads(before, used),
        }

    def work(self, seconds: float, steps: int) -> dict[str, Any]:
        """Train for at least so long, `steps` steps a call, and keep no time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.state, _ = timing.measure(self.loop, self.state, steps)
        return {}

    def fetch(self, out: str) -> dict[str, Any]:
        """Save the parameters to `out`; the seconds of this fetch and of a second one."""
        start = timers.clock()
        params = self.loop.fetch(self.state)
        first = timers.clock()
        self.loop.fetch(self.state)
        second = timers.clock()
        np.savez(out, *flat(params))
        return {"fetch_s": (first - start) * 1e-9, "again_s": (second - first) * 1e-9}

    def ops(self, steps: int, kind: str) -> dict[str, Any]:
        """Nanoseconds of the thirteen ops (`kind` "op", one list each) or of whole steps of them ("unread").

        "empty": as many calls that do nothing, timed both ways, so that what the clock costs is known.
        """
        if self._ops is None or self._ops_of is not self.state:
            self._ops, self._ops_of = self.loop.ops(self.state), self.state
        if kind == "op":
            found = timing.measure_ops(self._ops, steps)
            return {"ops": [{"name": op.name, "group": op.group} for op in self._ops], "ns": found}
        if kind == "empty":
            idle = [Op("empty", "none", nothing_to_wait_for, nothing_to_wait_for)] * len(self._ops)
            sums = [sum(times) for times in zip(*timing.measure_ops(idle, steps), strict=True)]
            return {"ns": sums, "unread_ns": timing.measure_unread(idle, steps)}
        return {"ns": timing.measure_unread(self._ops, steps)}

    def outstanding(self, steps: int) -> dict[str, Any]:
        """Seconds of a fetch right after `steps` steps, and of one that comes when the device has had time to end."""

        def fetch_s() -> float:
            start = timers.clock()
            self.loop.fetch(self.state)
            return (timers.clock() - start) * 1e-9

        self.state, _ = timing.measure(self.loop, self.state, steps)
        at_once_s = fetch_s()
        self.state, _ = timing.measure(self.loop, self.state, steps)
        time.sleep(min(max(0.1, 2 * at_once_s), 10.0))
        return {"at_once_s": at_once_s, "rested_s": fetch_s()}

    def alternate(
        self,
        steps: int,
        pairs: int,
        other_steps: int | None = None,
        share: float = 0.0,
        interleaved: bool = True,
        seed: int = 0,
    ) -> dict[str, Any]:
        """Nanoseconds of `pairs` samples of this loop (a) and of itself again (b), in pairs or one after the other.

        The second may take `other_steps`, or wait busily for `share` of its time.
        """
        arms = (
            timing.Arm(self.loop, steps),
            timing.Arm(timing.Slowed(self.loop, share) if share else self.loop, other_steps or steps),
        )
        if interleaved:
            self.state, a, b = timing.alternate(arms, self.state, pairs, random.Random(seed))
        else:
            self.state, a, b = timing.one_after_the_other(arms, self.state, pairs)
        return {"a": a, "b": b}

    def timer(self, pairs: int = 2000) -> dict[str, Any]:
        """The clock measured again, and what pairs of readings with nothing between them show, nanoseconds."""
        return {**timers.measured()._asdict(), "ns": timers.empty_ns(pairs)}

    def pin(self, core: int) -> dict[str, Any]:
        """Keep this process's calling thread on one core. Raises `AttributeError` where the system has no affinity."""
        os.sched_setaffinity(0, {core})
        return {"cores": sorted(os.sched_getaffinity(0))}

    def census(self) -> dict[str, Any]:
        """Counts of one step that carry no noise."""
        from overhead.measure.census import census

        assert self.workload is not None
        return census(self.loop, self.state, self.workload)

    def faults(self, steps: int) -> dict[str, Any]:
        """Minor page faults of `steps` steps."""
        from overhead.measure import census

        def run(count: int) -> None:
            self.state = self.loop.run(self.state, count)
            self.loop.block(self.state)

        return {"faults": census.faults(run, steps)}

    def probe(
        self,
        kind: str,
        workload: dict[str, Any],
        names: list[str] | None = None,
        block_s: float = 0.004,
        samples: int = 2,
        clocks: list[str] | None = None,
        pause_ns: int = 0,
    ) -> dict[str, Any]:
        """Time this framework's probes of one kind at the shapes of `workload`, all or those of `names`."""
        from overhead.measure import probes

        key = kind, json.dumps(workload, sort_keys=True)
        if key not in self._probes:
            self._probes[key] = probes.make(self.loop.framework, self.loop.device, kind, Workload(**workload)), {}
        made, calls = self._probes[key]
        found = []
        for probe in made:
            if names is None or probe.name in names:
                timed = probes.time_probe(
                    probe, block_s, samples, calls.get(probe.name), tuple(clocks or ("each", "end")), pause_ns
                )
                calls[probe.name] = timed["calls"]
                found.append(
                    {"name": probe.name, "kind": probe.kind, "does": probe.does, "flops": probe.flops,
                     "bytes": probe.bytes, **timed}
                )  # fmt: skip
        return {"probes": found}

    def spin(self, spin_ns: int, steps: int) -> dict[str, Any]:
        """One sample of `steps` steps with a busy wait of `spin_ns` at every dispatch that the loop declares."""
        from overhead.measure import spin

        self.state, found = spin.sample(self.loop, self.state, steps, spin_ns)
        return found

    def memory(self) -> dict[str, Any]:
        """Peak and present resident memory, bytes; threads that worked since the first run, None if too short."""
        return {
            "peak_rss_bytes": peak_rss_bytes(),
            "rss_bytes": resident_bytes(),
            "busy_threads": busy_threads(self._since or {}, thread_seconds()),
        }


def warm_allocator() -> None:
    """Free some megabyte arrays, as any script has that loaded MNIST.

    Once glibc has freed a block that came from the system, it keeps blocks up to that size for the next time. In a
    process that never freed one (ours maps its images from a file) it gives memory back or not by where a block
    happens to lie: a NumPy step at batch 32 had 0 to 165 page faults by that and took once or twice its time.
    """
    held = [np.ones(WARMING_BYTES // 8) for _ in range(8)]  # more than the heap has room for
    del held


def versions(framework: str) -> dict[str, str]:
    """Versions of Python, NumPy and the framework with what it stands on."""
    found = {"python": platform.python_version(), "numpy": np.__version__}
    for name in (framework, *frameworks.of(framework).beside):
        if version := frameworks.version(frameworks.of(name)):
            found[name] = version
    return found


def serve(name: str, device: str, answers_on: int, kind: type[Worker] = Worker) -> None:
    """Answer commands about a loop until stdin ends."""
    answer_commands(lambda: kind(loops.make(name, device)), device, answers_on)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], int(sys.argv[3]))
