"""A sweep's tasks in processes of this machine, a fresh one each, so many at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from overhead.measure.process import Process
from overhead.sweep.train import Task, Trained, start, train


def trained(tasks: Sequence[Task], processes: int, say: Callable[[int], None]) -> Iterator[Trained]:
    """The tasks as they end, at most `processes` at once. Leaving the iterator ends every process."""
    live: list[Process] = []

    def one(task: Task) -> Trained:
        worker = start(task)
        live.append(worker)
        try:
            return train(task, say, worker)
        finally:
            worker.close()

    executor = ThreadPoolExecutor(processes)  # threads only wait: each for its process
    try:
        for future in as_completed([executor.submit(one, task) for task in tasks]):
            yield future.result()
    finally:
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in live:
            worker.kill()
        executor.shutdown()
