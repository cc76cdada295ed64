"""A device that does not exist, in real time: what it would cost to launch, to queue, to copy and to wait.

Nothing is computed here. A launch is known to end so much after the one before it, so a call keeps the host for as
long as a launch takes and returns, and a wait lasts until the last end: `perf_counter` is deceived as on a GPU.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from overhead.model import gpus
from overhead.model.census import Census
from overhead.model.replay import device_step
from overhead.problem.workload import Workload

QUEUE = 1024  # launches: the depth that is commonly seen


class Device(NamedTuple):
    """Constants of a simulated device, seconds and bytes."""

    name: str
    launch_s: float  # the host's enqueue of one kernel or graph
    kernel_s: float  # the least time between the starts of two kernels that follow each other
    queue: int  # launches that may be under way before the next call waits
    copy_s: float  # a small copy, either way
    copy_bytes_per_s: float  # from pageable memory
    synchronise_s: float  # a wait for a device that has nothing to do
    python_op_s: float  # an operator's way through Python, on the host


def preset(name: str) -> Device:
    """The device of chapter 8's figures (`model.gpus`). Raises `ValueError`, listing the known, for another name."""
    gpu = gpus.preset(name)
    return Device(
        gpu.name, gpu.launch_s, gpu.kernel_s, QUEUE, gpu.copy_s, gpu.copy_bytes_per_s, gpu.synchronise_s,
        gpu.python_op_s,
    )  # fmt: skip


A_LITTLE_S = 0.001  # longer than what is done meanwhile


def nothing_to_do() -> bool:
    return False


class Clock:
    """Real time."""

    def now(self) -> float:
        return time.perf_counter()

    def until(self, moment: float) -> None:
        """Return at `moment` and not before: sleep through most of a long wait, and spin for the rest."""
        while (left := moment - time.perf_counter()) > 0:
            if left > 0.002:
                time.sleep(left - 0.001)


class Simulated:
    """A device with one stream. Its calls take the host as long as they would, and return before their work is done."""

    def __init__(self, device: Device, clock: Clock | None = None) -> None:
        self.device, self.clock = device, clock or Clock()
        self._ends: deque[float] = deque()  # of the launches that are queued

    def launch(self, work_s: float, host_s: float = 0.0) -> None:
        """Enqueue one kernel or graph that keeps the device for `work_s`; `host_s` is the caller's own time before.

        Waits where the queue is full, as a GPU's driver does.
        """
        began = self.clock.now()
        while self._ends and self._ends[0] <= began:
            self._ends.popleft()
        if len(self._ends) >= self.device.queue:
            self.clock.until(self._ends.popleft())
        returns = max(began, self.clock.now()) + host_s + self.device.launch_s
        start = max(returns, self._ends[-1]) if self._ends else returns
        self._ends.append(start + work_s)
        self.clock.until(returns)

    def copy(self, size_bytes: int, meanwhile: Callable[[], bool] = nothing_to_do) -> None:
        """A copy from pageable memory, either way: comes after all that is queued, and returns when it is done."""
        self._drain(meanwhile)
        self.clock.until(self.clock.now() + self.device.copy_s + size_bytes / self.device.copy_bytes_per_s)

    def synchronise(self, meanwhile: Callable[[], bool] = nothing_to_do) -> None:
        """Return when everything that was enqueued is done; `meanwhile` does a little work, if there is any left."""
        began = self.clock.now()
        self._drain(meanwhile)
        self.clock.until(began + self.device.synchronise_s)

    def _drain(self, meanwhile: Callable[[], bool]) -> None:
        if self._ends:
            while self.clock.now() < self._ends[-1] - A_LITTLE_S and meanwhile():
                pass
            self.clock.until(self._ends[-1])
            self._ends.clear()


def kernels_s(device: Device, census: Census, workload: Workload, slower: float = 1.0) -> list[float]:
    """Seconds of each kernel of a step: equal parts of what chapter 8's model has the device do, times `slower`."""
    count, *busy_s = device_step(census, workload, gpus.preset(device.name))
    return [slower * sum(busy_s) / count] * round(count)
