"""A device that does not exist, in real time: what it would cost to launch, to queue, to copy and to wait.

Nothing is computed here. A launch is known to end so much after the one before it, so a call keeps the host for as
long as a launch takes and returns, and a wait lasts until the last end: `perf_counter` is deceived as on a GPU.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from difflib import get_close_matches
from typing import NamedTuple

from overhead.problem import bounds
from overhead.problem.workload import Workload


class Device(NamedTuple):
    """Constants of a simulated device, seconds, bytes and FLOPs."""

    name: str
    launch_s: float  # the host's enqueue of one kernel or graph
    kernel_s: float  # the least time between the starts of two kernels that follow each other
    queue: int  # launches that may be under way before the next call waits
    copy_s: float  # a small copy, either way
    copy_bytes_per_s: float  # from pageable memory
    synchronise_s: float  # a wait for a device that has nothing to do
    flops_per_s: float  # float32 products at best
    bytes_per_s: float  # of its memory


# Rates are of NVIDIA's data sheets. RTX 3060: launches back to back in NVBench logs. The T4 has those of a V100: empty
# kernels enqueued in 2.6 to 2.8 us, 3.8 us apart in a graph (NVIDIA, Getting Started with CUDA Graphs). H100:
# cudaLaunchKernel and cudaStreamSynchronize in a public nsys export; 1.3 us between kernels of a graph (Hazy Research).
# A pageable copy of the T4 stands for all; 1,024 launches is the queue that is commonly seen.
PRESETS = {
    device.name: device
    for device in (
        Device("RTX 3060", 5.15e-6, 5.15e-6, 1024, 6.5e-6, 6.9e9, 6.4e-6, 12.7e12, 360e9),
        Device("T4", 2.7e-6, 3.8e-6, 1024, 6.5e-6, 6.9e9, 6.4e-6, 8.1e12, 320e9),
        Device("H100", 5.4e-6, 1.3e-6, 1024, 6.5e-6, 6.9e9, 6.4e-6, 66.9e12, 3352e9),
    )
}


def preset(name: str) -> Device:
    """The device called `name`; case does not matter. Raises `ValueError`, listing the known, for another."""
    known = {each.casefold(): device for each, device in PRESETS.items()}
    if (found := known.get(name.strip().casefold())) is not None:
        return found
    near = get_close_matches(name.casefold(), known, n=1, cutoff=0.6)
    hint = f"; did you mean {known[near[0]].name}?" if near else ""
    raise ValueError(f"--gpu must be one of {', '.join(PRESETS)}, got {name!r}{hint}")


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


def products_s(device: Device, workload: Workload) -> list[float]:
    """Seconds of each of a step's matrix products: its FLOPs or its bytes, whichever bind, and a kernel at least."""
    return [
        max(device.kernel_s, work.flops / device.flops_per_s, work.bytes / device.bytes_per_s)
        for work in bounds.gemms(workload)
    ]


def elementwise_s(device: Device, workload: Workload, kernels: int) -> list[float]:
    """Seconds of each of `kernels` that read or write, between them, the gradients, the weights and the activations."""
    inputs, hidden, classes = workload.layers
    touched = 4 * (3 * inputs * hidden + 6 * workload.batch_size * (hidden + classes))  # bytes
    return [max(device.kernel_s, touched / kernels / device.bytes_per_s)] * kernels
