"""Who is alive in a set of fresh processes: started as memory allows, replaced where one broke."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from overhead.machine import gpus, host
from overhead.measure.case import Cases
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed
from overhead.measure.session import FLOOR_PROCESSES, Preset, Session
from overhead.problem.workload import Workload


def lineup(contestants: Sequence[Contestant], preset: Preset, process: int) -> list[tuple[Contestant, int]]:
    """Who has a process in set number `process`, and the process's number; floors have several."""
    return [
        (contestant, process * copies + copy)
        for contestant in dict.fromkeys(contestants)
        for copies in [copies_of(contestant, preset)]
        for copy in range(copies)
    ]


def copies_of(contestant: Contestant, preset: Preset) -> int:
    """Processes that a contestant has in one set: the floor is the best of several."""
    return -(-FLOOR_PROCESSES // preset.processes) if contestant.is_floor else 1


def start(
    waiting: list[tuple[Contestant, int]], cases: Cases, workloads: list[Workload], session: Session
) -> tuple[list[tuple[Process, int]], list[tuple[Contestant, int]]]:
    """Start as many workers as memory allows, the host's and the GPU's; a core's worth of imports at a time.

    The others wait.
    """

    started: list[tuple[Process, int]] = []
    largest, images = 0, max(4 * w.images * w.layers[0] for w in workloads)
    at_once, cards = host.cores_allowed(), host.gpus() if any(who.device == "gpu" for who, _ in waiting) else []
    on_gpu = gpus.free_bytes(cards[0]["index"]) if cards else None  # nobody of ours is on it yet
    fit = max(1, gpus.fitting([who.device for who, _ in waiting], 2 * images, on_gpu))
    waiting, later = waiting[:fit], waiting[fit:]
    while waiting:
        free = host.memory_available_bytes() - 10**9
        if started and free < (len(started) + at_once) * 2 * images + at_once * largest:
            break
        chunk, waiting = waiting[:at_once], waiting[at_once:]
        starting: list[tuple[Process, int]] = []
        try:
            for contestant, process in chunk:
                starting.append((Process(contestant, session.limit_s), process))
            for worker, process in starting:
                try:
                    worker.facts = worker.ask("hello", START_LIMIT_S)
                    largest = max(largest, worker.ask("memory")["rss_bytes"])
                    worker.pause()
                    started.append((worker, process))
                except WorkerFailed as failure:
                    worker.kill()
                    for workload in workloads:
                        if case := cases.get((worker.contestant, workload)):
                            case.fail(failure.status, failure.reason)
        except BaseException:
            for worker, _ in (*started, *starting):
                worker.kill()
            raise
    session.say(f"{len(started)} workers started")
    return started, waiting + later


def replaced(worker: Process, session: Session) -> Process:
    """A fresh process in the place of one that failed: the memory and the device's context that it had are free again.

    Raises `WorkerFailed` where it does not start.
    """
    worker.kill()
    fresh = Process(worker.contestant, session.limit_s)
    try:
        fresh.facts = fresh.ask("hello", START_LIMIT_S)
    except BaseException:
        fresh.kill()
        raise
    session.say(f"{worker.contestant.loop} failed and was started again")
    return fresh


def mend_floors(workers: list[tuple[Process, int]], session: Session) -> None:
    """Replace the processes of floors that broke.

    Not by a thread that ends: Linux ends a worker with the thread that started it.
    """
    for index, (worker, process) in enumerate(workers):
        if worker.contestant.is_floor and worker.broken:
            with suppress(WorkerFailed):  # it says why when it is asked
                workers[index] = replaced(worker, session), process
