"""A pretended asynchronous device, to see whether the harness catches a contestant that forgets to synchronise.

Started like any loop, as `overhead.harness.fake_device:Synchronised` or `overhead.harness.fake_device:Unsynchronised`.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, final

from overhead.loops.base import Loop
from overhead.loops.numpy_ import NumpyLoop
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload

LATENCY_S = 0.05  # from the call to the end of the work, at least


class FakeDevice(Loop):
    """NumPy on a thread of its own, which the caller does not wait for."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> Future[Any]:
        self.numpy = NumpyLoop(self.device)
        self.queue = ThreadPoolExecutor(max_workers=1)
        return self.queue.submit(self.numpy.place, params, data, workload)

    def run(self, state: Future[Any], steps: int) -> Future[Any]:
        called = time.perf_counter()

        def work() -> Any:
            done = self.numpy.run(state.result(), steps)
            time.sleep(max(0.0, called + LATENCY_S - time.perf_counter()))
            return done

        return self.queue.submit(work)

    def fetch(self, state: Future[Any]) -> Params:
        return self.numpy.fetch(state.result())

    def placed_on(self, state: Future[Any]) -> tuple[str, str]:
        return "cpu", "a pretended asynchronous device"


@final
class Synchronised(FakeDevice):
    """Waits for its device, as it must."""

    def block(self, state: Future[Any]) -> None:
        state.result()


@final
class Unsynchronised(FakeDevice):
    """Does not wait: its time is that of handing the work over."""

    def block(self, state: Future[Any]) -> None:
        pass
