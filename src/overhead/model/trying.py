"""An epoch measured, so that a prediction can be held against it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from overhead.machine.alone import measuring
from overhead.model.calibrate import epoch_s, worker
from overhead.problem.workload import Workload


def measured(loop: str, workload: Workload, threads: int, force: bool = False) -> float:
    """Seconds of a warm epoch in a process of its own: the median of three.

    Raises `Busy` when another measurement holds the host, `WorkerFailed` where the framework is missing.
    """
    folder = tempfile.TemporaryDirectory(prefix="overhead-")
    with measuring(force), folder as name, worker(loop, threads, {}) as asked:
        return epoch_s(asked, workload, Path(name))
