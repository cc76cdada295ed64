"""Cases to records: contestants take turns in shuffled rounds until their intervals are narrow or time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from overhead.machine import gpus, host
from overhead.machine.alone import measuring, scratch
from overhead.machine.disturbance import Disturbance, GpuWatch
from overhead.measure import load
from overhead.measure.case import Case, Cases
from overhead.measure.contestant import Contestant
from overhead.measure.finished import Finished
from overhead.measure.lineup import copies_of, lineup, mend_floors, replaced, start
from overhead.measure.preparation import Turn, prepared
from overhead.measure.process import Process, WorkerFailed
from overhead.measure.session import Session
from overhead.problem import data, mlp
from overhead.problem.stored import save_split
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.headline import headline
from overhead.records.record import Record
from overhead.records.stats import Interval

FLOOR_TRIALS, FLOOR_LEAD = 2, 1.1  # rounds after which a floor so much slower than the fastest has no more turns


def run_cases(contestants: Sequence[Contestant], workloads: Sequence[Workload], session: Session) -> list[Record]:
    """Time every contestant on every workload; one record a case, whatever happens to it."""
    return [case.record(session.provenance) for case in time_cases(contestants, workloads, session)]


def time_cases(
    contestants: Sequence[Contestant],
    workloads: Sequence[Workload],
    session: Session,
    take_turn: Callable[[Turn, int], None] | None = None,
) -> list[Case]:
    """Interleaved rounds over every contestant on every workload.

    Each set of fresh processes goes through all workloads. In a round every contestant has one turn
    (`take_turn`, by default both clocks on whole epochs), in shuffled order, while the others are stopped.
    Raises `Busy` when another measurement holds the host.
    """
    contestants = [c.resolved() for c in contestants]
    cases = {
        (c, w): Case(c, w, copies=copies_of(c, session.preset))
        for c in contestants
        for w in workloads
        if session.wanted(c, w)
    }
    others, busy = _others_on_gpu(contestants), _busy_gpu(contestants)
    finished = Finished(session.journal, cases)
    with measuring(session.force) as shared, scratch(max(map(data.stored_bytes, workloads))) as folder:
        for process_set in range(session.preset.processes):
            _one_set(cases, finished, session, take_turn or time_epochs, process_set, folder)
        if shared:
            for case in cases.values():
                case.disturbed.add("another measurement ran at the same time (--force)")
        if others := max(others, _others_on_gpu(contestants)):
            busy.append(f"{others} other {'process' if others == 1 else 'processes'} on the GPU")
        for case in cases.values():
            if case.contestant.device == "gpu":
                case.disturbed.update(busy)
    return list(cases.values())


def _others_on_gpu(contestants: Sequence[Contestant]) -> int:
    """Processes on the GPU while no worker of ours runs; 0 when the GPU is not measured."""
    return (host.gpu_processes() or 0) if any(c.device == "gpu" for c in contestants) else 0


def _busy_gpu(contestants: Sequence[Contestant]) -> list[str]:
    """How busy the GPU is while no worker of ours runs: a container may not see whose processes they are."""
    watch = _gpu_watch(any(c.device == "gpu" for c in contestants))
    now = gpus.state(watch.index) if watch else None
    if now is None or now.utilisation is None or now.utilisation <= gpus.BUSY:
        return []
    return [f"the GPU was busy {now.utilisation:.0%} of the time before we began"]


def _gpu_watch(measured: bool) -> GpuWatch | None:
    """A watch of the GPU that is used, where one is measured."""
    cards = host.gpus() if measured else []
    return GpuWatch(cards[0]["index"]) if cards else None


def _one_set(
    cases: Cases,
    finished: Finished,
    session: Session,
    take_turn: Callable[[Turn, int], None],
    process_set: int,
    folder: Path,
) -> None:
    """One set of fresh processes, in as many waves as memory needs, through all workloads."""
    able = [
        who
        for (who, _), case in cases.items()
        if case.status == "ok" and finished.waits(process_set, who) and not (process_set and session.brief(who))
    ]
    waiting = lineup(able, session.preset, process_set)
    workloads = list(dict.fromkeys(workload for _, workload in cases))
    while waiting:
        workers, waiting = start(waiting, cases, workloads, session)
        try:
            for workload in workloads:
                alive = {worker.contestant for worker, _ in workers}
                todo = {
                    (who, w): case
                    for (who, w), case in cases.items()
                    if w == workload and who in alive and finished.pending(process_set, who, w)
                }
                go_round(workers, workload, todo, session, take_turn, folder)
                later = {who for who, _ in waiting}  # further processes of a floor, in another wave
                finished.keep(process_set, [case for case in todo.values() if case.contestant not in later])
        except BaseException:  # Ctrl-C: nobody waits for a command that may last minutes
            for worker, _ in workers:
                worker.kill()
            raise
        for worker, _ in workers:
            worker.close()


def go_round(
    workers: list[tuple[Process, int]],
    workload: Workload,
    cases: Cases,
    session: Session,
    take_turn: Callable[[Turn, int], None],
    folder: Path,
) -> None:
    """Prepare every worker for `workload`, then go round them."""
    split = data.for_workload(workload)
    place = {
        "data": str(folder),
        "params": str(folder / "params.npz"),
        "workload": workload.model_dump(mode="json"),
    }
    save_split(folder, split)
    np.savez(folder / "params.npz", *mlp.flat(mlp.init(workload)))
    ready: list[Turn] = []

    def prepare(index: int) -> None:
        worker, process = workers[index]
        case = cases.get((worker.contestant, workload))
        if case is None or case.status != "ok":
            return
        try:
            if worker.broken:
                worker = replaced(worker, session)
                workers[index] = worker, process
            ready.append(prepared(worker, case, process, split, place, folder, session.learns))
        except WorkerFailed as failure:
            case.fail(failure.status, failure.reason)
        worker.pause()

    for index, (worker, _) in enumerate(workers):
        if not worker.contestant.is_floor:
            prepare(index)
    mend_floors(workers, session)
    # Nothing that a floor does before its rounds is kept, so that as many as there are cores may do it at once.
    with ThreadPoolExecutor(host.cores_allowed()) as pool:
        list(pool.map(prepare, [i for i, (worker, _) in enumerate(workers) if worker.contestant.is_floor]))
    rounds = _rounds(ready, session, take_turn)
    for worker, case, *_ in ready:
        if case.status == "ok":
            try:
                used = worker.ask("memory")
                case.peak_rss_bytes = max(case.peak_rss_bytes, used["peak_rss_bytes"])
                if session.afterwards:
                    session.afterwards(worker, case)
                _threads_used(case, used["busy_threads"], session)
            except WorkerFailed as failure:
                case.fail(failure.status, failure.reason)
            worker.pause()
    session.say(f"batch size {workload.batch_size}: {rounds} rounds")


def _threads_used(case: Case, busy: int | None, session: Session) -> None:
    """Put the threads that really worked beside those that were allowed, and say so where they differ."""
    allowed = case.facts["cores_allowed"] = host.cores_allowed()
    if busy is None:
        return
    case.facts["busy_threads"] = max(busy, case.facts.get("busy_threads") or 0)
    if busy != min(allowed, case.contestant.threads) or busy > allowed:
        session.say(
            f"warning: {case.contestant.loop} used {busy} {'thread' if busy == 1 else 'threads'}, "
            f"{case.contestant.threads} were set and {allowed} {'core is' if allowed == 1 else 'cores are'} allowed"
        )


def _rounds(ready: list[Turn], session: Session, take_turn: Callable[[Turn, int], None]) -> int:
    """Rounds until every contestant's interval is within the target or the budget is spent."""
    preset, shuffle = session.preset, random.Random(session.seed)
    started, done, stopped = time.monotonic(), 0, "count"
    disturbance = Disturbance()
    watch = _gpu_watch(any(turn.case.contestant.device == "gpu" for turn in ready))
    disturbance.start(_own_seconds(ready))
    behind: set[Process] = set()
    while done < preset.rounds[1] and (able := [t for t in ready if t.case.status == "ok" and t.worker not in behind]):
        now = [turn for turn in able if done % turn.every == 0]
        for turn in shuffle.sample(now, len(now)):
            try:
                take_turn(turn, done)
            except WorkerFailed as failure:
                turn.case.fail(failure.status, failure.reason)
            turn.worker.pause()
        if watch and watch.due:
            load.look(watch, able, done)
        done += 1
        if done == FLOOR_TRIALS:
            behind = _behind(able)
            able = [turn for turn in able if turn.worker not in behind]
        if done < preset.rounds[0]:
            continue
        known = [own for turn in able if turn.case.status == "ok" and (own := _own(turn))]
        if known and all(stats.reached(own, preset.target) for own in known):
            stopped = "target"
            break
        if time.monotonic() - started > preset.budget_s:
            stopped = "budget"
            break
    found = disturbance.found(_own_seconds(ready))
    if watch:
        load.look(watch, ready, done)
    for turn in ready:
        own = _own(turn)
        why = "target" if own and stats.reached(own, preset.target) else stopped
        if turn.case.stopped in (None, "target"):  # of several processes, the one that was not done counts
            turn.case.stopped = why
        turn.case.disturbed.update(found)
        turn.case.facts["host_state"] = disturbance.facts
        if watch and turn.case.contestant.device == "gpu":
            turn.case.disturbed.update(watch.found())
            turn.case.facts["host_state"] = {**disturbance.facts, "gpu": watch.facts()}
    return done


def _own(turn: Turn) -> Interval | None:
    """The headline of the process that has the turn, seconds per epoch; None before its first turn."""
    taken = turn.case.turns(turn.process)
    return headline({0: taken}) if taken else None


def _behind(turns: list[Turn]) -> set[Process]:
    """Processes of the floor too slow to be it, since the fastest of a device is: they need no more turns."""
    floors = [(turn, _own(turn)) for turn in turns if turn.case.contestant.is_floor and turn.case.status == "ok"]
    medians = {turn.worker: own.median for turn, own in floors if own}
    least: dict[str, float] = {}
    for worker, median in medians.items():
        device = worker.contestant.device
        least[device] = min(median, least.get(device, median))
    return {w for w, median in medians.items() if median > FLOOR_LEAD * least[w.contestant.device]}


def _own_seconds(ready: list[Turn]) -> float:
    return time.process_time() + sum(turn.worker.cpu_seconds() for turn in ready)


def time_epochs(turn: Turn, round_: int) -> None:
    """A short run that wakes caches and pools and gives the dispatch clock, then the wall clock."""
    worker, case, process, steps, few, repeats, _ = turn
    if few:
        woken = worker.ask("run", steps=few)
        case.keep("dispatch", few, process, round_, woken["dispatch_ns"])
    answer = worker.ask("run", steps=steps, repeats=repeats)
    case.keep("wall", steps, process, round_, answer["wall_ns"])
    if not few:
        case.keep("dispatch", steps, process, round_, answer["dispatch_ns"])


def time_ops(turn: Turn, round_: int, steps: int = 50) -> None:
    """`steps` steps op by op, the same thunks in order without reading the clock, and the loop's own steps.

    Kept apart under the op "empty": as many empty calls, timed both ways.
    """
    worker, case, process, *_ = turn
    worker.ask("ops", steps=5, kind="op")
    answer = worker.ask("ops", steps=steps, kind="op")
    for op, ns in zip(answer["ops"], answer["ns"], strict=True):
        case.keep(f"{op['name']}/op", 1, process, round_, ns)
    case.keep("step/unread", 1, process, round_, worker.ask("ops", steps=steps, kind="unread")["ns"])
    case.keep("step/wall", steps, process, round_, worker.ask("run", steps=steps)["wall_ns"])
    empty = worker.ask("ops", steps=steps, kind="empty")
    case.keep("empty/op", 1, process, round_, empty["ns"])
    case.keep("empty/unread", 1, process, round_, empty["unread_ns"])
