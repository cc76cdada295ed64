"""Seconds a model against the number of models: engines and floors in the same interleaved rounds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from overhead.loops import MANY
from overhead.machine.alone import measuring, scratch
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.finished import Finished
from overhead.measure.lineup import lineup, start
from overhead.measure.process import Process, WorkerFailed
from overhead.measure.rounds import Cases, go_round, time_epochs
from overhead.measure.session import Session
from overhead.problem import data
from overhead.problem.workload import Workload
from overhead.records.record import Record


def time_models(
    contestants: Sequence[Contestant], workload: Workload, counts: Sequence[int], session: Session
) -> list[Record]:
    """Time every contestant at each number of models; a record each, with `models`.

    A loop or a floor that trains one model is timed with that one in the rounds of every count. Each process
    goes through all counts. What an engine learns is compared with the reference first, as of any loop.
    """
    contestants = [contestant.resolved() for contestant in contestants]
    cases = {count: {(c, workload): Case(c, workload) for c in contestants} for count in counts}
    finished = {count: Finished(session.journal, of_count) for count, of_count in cases.items()}
    with measuring(session.force) as shared, scratch(data.stored_bytes(workload)) as folder:
        for process in range(session.preset.processes):
            _one_set(cases, finished, workload, session, process, folder)
    found = []
    for count, of_count in cases.items():
        for case in of_count.values():
            if shared:
                case.disturbed.add("another measurement ran at the same time (--force)")
            models = count if case.contestant.loop in MANY else 1
            found.append(case.record({**session.provenance, "models": models, "beside": count}))
    return found


def _one_set(
    cases: dict[int, Cases],
    finished: dict[int, Finished],
    workload: Workload,
    session: Session,
    process: int,
    folder: Path,
) -> None:
    """One set of fresh processes, in as many waves as memory needs, through all counts."""
    first = next(iter(cases.values()))
    waits = [who for who, _ in first if any(of_count.waits(process, who) for of_count in finished.values())]
    waiting = lineup(waits, session.preset, process)
    while waiting:
        workers, waiting = start(waiting, first, [workload], session)
        for of_count in cases.values():  # what did not start is missing from every count
            for key, case in of_count.items():
                if first[key].status != "ok" and case.status == "ok":
                    case.fail(first[key].status, first[key].reason or "")
        try:
            for count, of_count in cases.items():
                alive = {worker.contestant for worker, _ in workers}
                todo = {
                    (who, w): case
                    for (who, w), case in of_count.items()
                    if who in alive and finished[count].pending(process, who, w)
                }
                for worker, _ in workers:
                    if worker.contestant.loop in MANY and (worker.contestant, workload) in todo:
                        _set_models(worker, count, todo[worker.contestant, workload])
                session.say(f"{count} models side by side")
                go_round(workers, workload, todo, session, time_epochs, folder)
                later = {who for who, _ in waiting}  # further processes of a floor, in another wave
                finished[count].keep(process, [case for case in todo.values() if case.contestant not in later])
        except BaseException:
            for worker, _ in workers:
                worker.kill()
            raise
        for worker, _ in workers:
            worker.close()


def _set_models(worker: Process, count: int, case: Case) -> None:
    """Let the process train `count` models at once; one that failed at fewer is not asked again.

    A fresh process in its place would train a single model and be timed as `count` of them.
    """
    try:
        if worker.broken:
            raise WorkerFailed("failed", f"its process failed with fewer than {count} models")
        worker.ask("models", count=count)
        worker.pause()
    except WorkerFailed as failure:
        if case.status == "ok":
            case.fail(failure.status, failure.reason)
