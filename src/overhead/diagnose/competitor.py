"""A process on another core that keeps memory busy, or its own registers: `python -m overhead.diagnose.competitor`."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from signal import SIGCONT, SIGSTOP

STREAMED_BYTES = 64 << 20  # an array that no cache holds
SIDE = 48  # of matrices that the first cache holds


class Competitor:
    """The process, stopped except while it is asked to compete."""

    def __init__(self, kind: str, core: int) -> None:
        env = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, kind, str(core)], env=env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._process.stdout is not None
        watch = threading.Timer(30, self._process.kill)
        watch.start()
        self.works = self._process.stdout.readline() == b"ready\n"
        watch.cancel()
        self.stop()

    def go(self) -> None:
        self._process.send_signal(SIGCONT)

    def stop(self) -> None:
        self._process.send_signal(SIGSTOP)

    def cpu_seconds(self) -> float:
        """Processor time of the process so far."""
        import psutil

        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def work(kind: str) -> Callable[[], object]:
    """A piece of work of a few milliseconds at most: a copy of `STREAMED_BYTES`, or products that stay in a cache."""
    import numpy as np

    if kind == "memory":
        source = np.ones(STREAMED_BYTES // 8)
        target = source.copy()
        return lambda: np.copyto(target, source)
    a = np.full((SIDE, SIDE), 1 / SIDE, np.float32)
    b, c = a.copy(), a.copy()
    return lambda: np.matmul(a, b, out=c)


def compete(kind: str, core: int) -> None:
    """Work until the process is ended, or its parent is."""
    from overhead.machine.alone import die_with_parent

    die_with_parent()
    os.sched_setaffinity(0, {core})
    piece = work(kind)
    piece()
    print("ready", flush=True)
    while True:
        piece()


if __name__ == "__main__":
    compete(sys.argv[1], int(sys.argv[2]))
