"""Cases to records: workers, agreement, and interleaved rounds. The only place that starts workers for timing."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.machine import gpus, host
from overhead.machine.disturbance import Disturbance, GpuWatch
from overhead.measure import agreement
from overhead.measure.case import Case
from overhead.measure.contestant import CALL_LIMIT_S, START_LIMIT_S, Contestant, Worker, WorkerFailed
from overhead.measure.worker import save_split
from overhead.problem import data, mlp
from overhead.problem.data import Split
from overhead.problem.mlp import Params, unflat
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record

TURN_S = 0.03  # a turn lasts at least this long
LONGEST_SAMPLE_S = 1.0  # loops that are called step by step sample a part of a longer epoch
LEAST_WAIT_S, LEAST_WAIT = 0.005, 0.1  # of a fetch after a run; the second as a share of the run
LONGEST_WAKING_S = 0.1  # a longer sample needs no other before it to wake caches and pools
FLOOR_TRIALS, FLOOR_LEAD = 2, 1.1  # rounds after which a floor so much slower than the fastest has no more turns
WARM_STEPS = 100  # where no epoch is trained to find out what is learnt
DISPATCH_STEPS = 8  # a launch queue is finite: dispatch is measured with few steps


class Busy(RuntimeError):
    """Another measurement is running on this host."""


class Preset(NamedTuple):
    """How long and how often; never what is measured."""

    name: str
    target: float  # half-width of the median's 95 % interval, relative
    budget_s: float  # seconds of rounds for one workload in one set of fresh processes
    processes: int  # fresh processes a contestant
    rounds: tuple[int, int]  # least and most rounds in one process


PRESETS = {
    "quick": Preset("quick", 0.10, 8.0, 1, (5, 15)),
    "workshop": Preset("workshop", 0.05, 10.0, 3, (5, 30)),
    "full": Preset("full", 0.02, 15.0, 5, (5, 30)),
}
FLOOR_PROCESSES = 3  # the floor is the best of at least this many fresh processes


@contextmanager
def measuring(force: bool = False) -> Iterator[bool]:
    """Hold the host's one measurement. Raises `Busy` when another holds it, unless `force`; yields whether shared."""
    import fcntl

    path = Path(tempfile.gettempdir()) / f"overhead-measuring-{os.getuid()}.lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shared = False
        except OSError:
            if not force:
                raise Busy(
                    "another overhead measurement is running on this host; wait for it, or use --force"
                ) from None
            shared = True
        yield shared


class Turn(NamedTuple):
    """Who has the turn, and what one sample of it is."""

    worker: Worker
    case: Case
    process: int
    steps: int  # training steps of one sample on the wall clock
    few: int  # … and on the dispatch clock; 0 where a sample gives both
    repeats: int


class Bench(NamedTuple):
    """How a run of cases goes, besides the cases."""

    preset: Preset
    provenance: dict[str, Any]  # fields of every record: host, notebook, started, commit …
    say: Callable[[str], None] = lambda line: None
    seed: int = 0
    force: bool = False
    limit_s: float = CALL_LIMIT_S  # of one command to a worker; a longer one is ended
    afterwards: Callable[[Worker, Case], None] | None = None  # asked of each worker once its rounds are over
    wanted: Callable[[Contestant, Workload], bool] = lambda contestant, workload: True  # cases that are timed
    learns: bool = True  # whether an epoch at the workload's own rate is trained and its accuracy kept


def run_cases(contestants: Sequence[Contestant], workloads: Sequence[Workload], bench: Bench) -> list[Record]:
    """Time every contestant on every workload; one record a case, whatever happens to it."""
    return [case.record(bench.provenance) for case in time_cases(contestants, workloads, bench)]


def time_cases(
    contestants: Sequence[Contestant],
    workloads: Sequence[Workload],
    bench: Bench,
    take_turn: Callable[[Turn, int], None] | None = None,
) -> list[Case]:
    """Interleaved rounds over every contestant on every workload.

    Each set of fresh processes goes through all workloads. In a round every contestant has one turn
    (`take_turn`, by default both clocks on whole epochs), in shuffled order, while the others are stopped.
    Raises `Busy` when another measurement holds the host.
    """
    contestants = [c.resolved() for c in contestants]
    cases = {
        (c, w): Case(c, w, copies=copies_of(c, bench.preset))
        for c in contestants
        for w in workloads
        if bench.wanted(c, w)
    }
    others, busy = _others_on_gpu(contestants), _busy_gpu(contestants)
    with measuring(bench.force) as shared, tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        for process in range(bench.preset.processes):
            _one_set(cases, bench, take_turn or time_epochs, process, Path(folder))
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


Cases = dict[tuple[Contestant, Workload], Case]


def _one_set(cases: Cases, bench: Bench, take_turn: Callable[[Turn, int], None], process: int, folder: Path) -> None:
    """One set of fresh processes, in as many waves as memory needs, through all workloads."""
    waiting = lineup([who for (who, _), case in cases.items() if case.status == "ok"], bench.preset, process)
    workloads = list(dict.fromkeys(workload for _, workload in cases))
    while waiting:
        workers, waiting = start(waiting, cases, workloads, bench)
        try:
            for workload in workloads:
                go_round(workers, workload, cases, bench, take_turn, folder)
        except BaseException:  # Ctrl-C: nobody waits for a command that may last minutes
            for worker, _ in workers:
                worker.kill()
            raise
        for worker, _ in workers:
            worker.close()


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
    waiting: list[tuple[Contestant, int]], cases: Cases, workloads: list[Workload], bench: Bench
) -> tuple[list[tuple[Worker, int]], list[tuple[Contestant, int]]]:
    """Start as many workers as memory allows, a core's worth of imports at a time; the others wait."""
    import psutil

    started: list[tuple[Worker, int]] = []
    largest, images = 0, max(4 * w.images * w.layers[0] for w in workloads)
    at_once = host.cores_allowed()
    while waiting:
        free = psutil.virtual_memory().available - 10**9
        if started and free < (len(started) + at_once) * 2 * images + at_once * largest:
            break
        chunk, waiting = waiting[:at_once], waiting[at_once:]
        starting: list[tuple[Worker, int]] = []
        try:
            for contestant, process in chunk:
                starting.append((Worker(contestant, bench.limit_s), process))
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
    bench.say(f"{len(started)} workers started")
    return started, waiting


def go_round(
    workers: list[tuple[Worker, int]],
    workload: Workload,
    cases: Cases,
    bench: Bench,
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
            if worker.faulted:
                worker = _replaced(worker, bench)
                workers[index] = worker, process
            ready.append(_prepare(worker, case, process, split, place, folder, bench.learns))
        except WorkerFailed as failure:
            case.fail(failure.status, failure.reason)
        worker.pause()

    for index, (worker, _) in enumerate(workers):
        if not worker.contestant.is_floor:
            prepare(index)
    # Nothing that a floor does before its rounds is kept, so that as many as there are cores may do it at once.
    with ThreadPoolExecutor(host.cores_allowed()) as pool:
        list(pool.map(prepare, [i for i, (worker, _) in enumerate(workers) if worker.contestant.is_floor]))
    rounds = _rounds(ready, bench, take_turn)
    for worker, case, *_ in ready:
        if case.status == "ok":
            try:
                used = worker.ask("memory")
                case.peak_rss_bytes = max(case.peak_rss_bytes, used["peak_rss_bytes"])
                if bench.afterwards:
                    bench.afterwards(worker, case)
                _threads_used(case, used["busy_threads"], bench)
            except WorkerFailed as failure:
                case.fail(failure.status, failure.reason)
            worker.pause()
    bench.say(f"batch size {workload.batch_size}: {rounds} rounds")


def _replaced(worker: Worker, bench: Bench) -> Worker:
    """A fresh process in the place of one that failed: the memory and the device's context that it had are free again.

    Raises `WorkerFailed` where it does not start.
    """
    worker.kill()
    fresh = Worker(worker.contestant, bench.limit_s)
    try:
        fresh.facts = fresh.ask("hello", START_LIMIT_S)
    except BaseException:
        fresh.kill()
        raise
    bench.say(f"{worker.contestant.loop} failed and was started again")
    return fresh


def _threads_used(case: Case, busy: int | None, bench: Bench) -> None:
    """Put the threads that really worked beside those that were allowed, and say so where they differ."""
    allowed = case.facts["cores_allowed"] = host.cores_allowed()
    if busy is None:
        return
    case.facts["busy_threads"] = max(busy, case.facts.get("busy_threads") or 0)
    if busy != min(allowed, case.contestant.threads) or busy > allowed:
        bench.say(
            f"warning: {case.contestant.loop} used {busy} {'thread' if busy == 1 else 'threads'}, "
            f"{case.contestant.threads} were set and {allowed} {'core is' if allowed == 1 else 'cores are'} allowed"
        )


def _prepare(
    worker: Worker, case: Case, process: int, split: Split, place: dict[str, Any], folder: Path, learns: bool
) -> Turn:
    """The cold run, agreement with the reference, and a fresh placement with warm epochs at the workload's rate.

    What is learnt at agreement's rate is known from the reference, so that `learns` may leave those epochs out.
    Raises `WorkerFailed` for a case that may not be timed.
    """
    workload = case.workload
    out = str(folder / "fetched.npz")

    def fetched() -> Params:
        worker.ask("fetch", out=out)
        with np.load(out) as archive:
            tensors = [archive[name] for name in archive.files]
        if len(tensors) % 2:
            raise WorkerFailed("disagrees", f"each layer must have weights and biases, got {len(tensors)} tensors")
        return unflat(tensors)

    def at(other: Workload) -> dict[str, Any]:
        return {**place, "workload": other.model_dump(mode="json")}

    facts = worker.ask("place", **at(agreement.at_epoch_rate(workload)))
    if facts["device"] != case.contestant.device:
        raise WorkerFailed("failed", f"ran on {facts['device']}")
    case.facts.update(worker.facts, **facts, data=split.name)
    cold = worker.ask("run", steps=workload.steps)
    case.first_s.append(cold["wall_ns"][0] * 1e-9)
    if not case.contestant.is_floor:
        if _must_wait(worker, case, out, case.first_s[-1], workload.steps):
            worker.ask("place", **at(agreement.at_epoch_rate(workload)))
            worker.ask("run", steps=workload.steps)
        after_epoch = fetched()
        worker.ask("place", **at(agreement.at_agreement_rate(workload)))
        worker.ask("run", steps=agreement.STEPS)
        _agree(case, fetched(), after_epoch, split)
    per_call, steps = facts["steps_per_call"], workload.steps
    learns = not case.contestant.is_floor and (learns or workload.learning_rate != agreement.RATE)
    if not case.contestant.is_floor:
        worker.ask("place", **place)
        steps = steps if learns else -(-min(WARM_STEPS, steps) // per_call) * per_call
    warm = worker.ask("run", steps=steps)
    if learns:
        if _must_wait(worker, case, out, warm["wall_ns"][0] * 1e-9, workload.steps):
            worker.ask("place", **place)
            worker.ask("run", steps=workload.steps)
        _learnt(worker, case, split, fetched)
    seconds = warm["wall_ns"][0] * 1e-9 * workload.steps / steps
    steps = workload.steps
    if per_call == 1 and seconds > LONGEST_SAMPLE_S:
        steps = max(1, int(steps * LONGEST_SAMPLE_S / seconds))
    if warm["busy_threads"] is not None:
        case.facts["busy_threads"] = warm["busy_threads"]
    few = -(-min(DISPATCH_STEPS, workload.steps) // per_call) * per_call
    if seconds > LONGEST_WAKING_S and (few >= steps or case.contestant.is_floor):
        few = 0
    return Turn(worker, case, process, steps, few, max(1, min(50, round(TURN_S / max(seconds, 1e-6)))))


def _must_wait(worker: Worker, case: Case, out: str, wall_s: float, steps: int) -> bool:
    """Refuse a contestant whose parameters take longer to fetch right after its run than when the device is at rest.

    A slow first fetch is only a suspicion, since a busy host or a copy that is kept can be the reason; the same
    three times, with time to rest in between, is proof. Raises `WorkerFailed`, and then no time is kept.
    Returns whether steps were trained to find out.
    """
    wait = worker.ask("fetch", out=out)
    if wait["fetch_s"] - wait["again_s"] <= max(LEAST_WAIT_S, LEAST_WAIT * wall_s):
        return False
    tries = [worker.ask("outstanding", steps=steps) for _ in range(3)]
    waited_s = min(t["at_once_s"] for t in tries) - max(t["rested_s"] for t in tries)
    if waited_s > max(LEAST_WAIT_S, LEAST_WAIT * wall_s):
        case.first_s.clear()
        case.samples.clear()
        raise WorkerFailed("failed", "returned before the device was done")
    return True


def _agree(case: Case, after_steps: Params, after_epoch: Params, split: Split) -> None:
    """Keep the agreement with the float64 reference; a loop that disagrees is not timed."""
    precision = case.facts.get("settings", {}).get("matmul_precision", "float32")
    case.agreement = agreement.compare(after_steps, after_epoch, case.workload, split, precision)
    if case.agreement.disagreement:
        raise WorkerFailed("disagrees", case.agreement.disagreement)


def _learnt(worker: Worker, case: Case, split: Split, fetched: Callable[[], Params]) -> None:
    """Validation accuracy after each epoch at the workload's own rate; a case that diverged is not timed."""
    workload = case.workload
    trained = [fetched()]
    for _ in range(workload.epochs - 1):
        worker.ask("run", steps=workload.steps)
        trained.append(fetched())
    finite = all(np.isfinite(tensor).all() for params in trained for tensor in mlp.flat(params))
    step = agreement.diverged_at(workload, split) if workload.learning_rate != agreement.RATE or not finite else None
    if step is not None:
        raise WorkerFailed("diverged", f"diverged at step {step} (learning rate {workload.learning_rate:g})")
    if not finite:
        raise WorkerFailed("disagrees", "parameters must be finite, as the reference's are at this learning rate")
    if len(split.y_val):
        case.val_accuracy = [mlp.accuracy(p, split.x_val, split.y_val) for p in trained]


def _rounds(ready: list[Turn], bench: Bench, take_turn: Callable[[Turn, int], None]) -> int:
    """Rounds until every contestant's interval is within the target or the budget is spent."""
    preset, shuffle = bench.preset, random.Random(bench.seed)
    started, done, stopped = time.monotonic(), 0, "count"
    disturbance = Disturbance()
    watch = _gpu_watch(any(turn.case.contestant.device == "gpu" for turn in ready))
    disturbance.start(_own_seconds(ready))
    behind: set[Worker] = set()
    while done < preset.rounds[1] and (able := [t for t in ready if t.case.status == "ok" and t.worker not in behind]):
        for turn in shuffle.sample(able, len(able)):
            try:
                take_turn(turn, done)
            except WorkerFailed as failure:
                turn.case.fail(failure.status, failure.reason)
            turn.worker.pause()
        if watch:
            watch.look()
        done += 1
        if done == FLOOR_TRIALS:
            behind = _behind(able)
            able = [turn for turn in able if turn.worker not in behind]
        if done < preset.rounds[0]:
            continue
        series = [own for turn in able if turn.case.status == "ok" and (own := _own(turn))]
        if series and all(stats.reached(stats.median_interval(s), preset.target) for s in series):
            stopped = "target"
            break
        if time.monotonic() - started > preset.budget_s:
            stopped = "budget"
            break
    found = disturbance.found(_own_seconds(ready))
    if watch:
        watch.look(now=True)
    for turn in ready:
        own = _own(turn)
        why = "target" if own and stats.reached(stats.median_interval(own), preset.target) else stopped
        if turn.case.stopped in (None, "target"):  # of several processes, the one that was not done counts
            turn.case.stopped = why
        turn.case.disturbed.update(found)
        turn.case.facts["host_state"] = disturbance.facts
        if watch and turn.case.contestant.device == "gpu":
            turn.case.disturbed.update(watch.found())
            turn.case.facts["host_state"] = {**disturbance.facts, "gpu": watch.facts()}
    return done


def _own(turn: Turn) -> list[list[float]]:
    """Seconds per epoch of the process that has the turn."""
    seconds = turn.case.epochs_by_process().get(turn.process)
    return [seconds] if seconds else []


def _behind(turns: list[Turn]) -> set[Worker]:
    """Processes of the floor too slow to be it, since the fastest of a device is: they need no more turns."""
    floors = [(turn, _own(turn)) for turn in turns if turn.case.contestant.is_floor and turn.case.status == "ok"]
    medians = {turn.worker: stats.median_interval(own).median for turn, own in floors if own}
    least: dict[str, float] = {}
    for worker, median in medians.items():
        device = worker.contestant.device
        least[device] = min(median, least.get(device, median))
    return {w for w, median in medians.items() if median > FLOOR_LEAD * least[w.contestant.device]}


def _own_seconds(ready: list[Turn]) -> float:
    return time.process_time() + sum(turn.worker.cpu_seconds() for turn in ready)


def time_epochs(turn: Turn, round_: int) -> None:
    """A short run that wakes caches and pools and gives the dispatch clock, then the wall clock."""
    worker, case, process, steps, few, repeats = turn
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
