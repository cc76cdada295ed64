"""The GPU's clocks and what holds them back, asked of its driver while a loop keeps the GPU busy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from overhead.machine.disturbance import GpuWatch
from overhead.measure.preparation import Turn
from overhead.measure.process import WorkerFailed

BEFORE_S = 0.3  # of the loop's own work before the driver is asked: clocks rise from rest in less
WORK_S = (1.0, 4.0)  # how long the loop works; the second where the driver took longer to answer


def look(watch: GpuWatch, turns: Sequence[Turn], round_: int) -> None:
    """One look while one of the contestants on the GPU trains, in each round another; at rest where none can."""
    on_gpu = [turn for turn in turns if turn.case.contestant.device == "gpu" and turn.case.status == "ok"]
    if not on_gpu:
        watch.look()
        return
    turn = on_gpu[round_ % len(on_gpu)]
    try:
        _look_while_it_works(watch, turn)
    except WorkerFailed as failure:
        turn.case.fail(failure.status, failure.reason)
    turn.worker.pause()


def _look_while_it_works(watch: GpuWatch, turn: Turn) -> None:
    with ThreadPoolExecutor(1) as pool:
        for seconds in WORK_S:
            work = pool.submit(turn.worker.ask, "work", seconds=seconds, steps=turn.steps)
            time.sleep(BEFORE_S)
            watch.look()
            during = not work.done()
            work.result()
            if during:
                return
            if seconds != WORK_S[-1]:
                watch.forget_last()
