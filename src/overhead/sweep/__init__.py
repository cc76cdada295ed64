"""Many learning rates: one sweep, several engines, the same curves."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from overhead.machine import host
from overhead.machine.alone import scratch
from overhead.machine.usage import peak_rss_bytes
from overhead.problem import data
from overhead.problem.stored import save_split
from overhead.sweep import pool
from overhead.sweep.journal import Journal, JournalBusy
from overhead.sweep.memory import Allotment, DoesNotFit, allot, chunk_size, default_limit_bytes
from overhead.sweep.plan import Sweep
from overhead.sweep.train import Task, Trained, framework, greet, start, train

__all__ = ["DoesNotFit", "JournalBusy", "Outcome", "Sweep", "report", "run"]

IN_PROCESS = ("sequential", "vmap", "stacked")  # all models in one process
# What trains a configuration in a process of its own.
POOL_LOOPS = {"jax-pool": "sequential", "keras-pool": "keras", "dask": "sequential"}


class Outcome(NamedTuple):
    """A finished sweep: a row for each model in the order asked for, and where the time went."""

    sweep: Sweep
    engine: str
    rows: list[dict[str, Any]]  # rate, seed, layers, status, reason, diverged_at, loss, val_accuracy
    costs: list[dict[str, Any]]  # of each task, see `train.Trained`
    wall_s: float  # to the last result
    peak_rss_bytes: int  # of this process and of all that ran at once with it
    allotment: Allotment | None  # of a pool
    resumed: int  # models that an interrupted run had finished


class Progress(NamedTuple):
    """Epochs of models that are done, of all."""

    done: int
    total: int


def best_engine(sweep: Sweep) -> str:
    """The engine that `auto` stands for: models of one shape side by side; a single model by itself."""
    return "stacked" if len(sweep.rates) > 1 else "sequential"


def run(
    sweep: Sweep,
    *,
    scheduler: str | None = None,
    memory_limit_bytes: int | None = None,
    processes: int | None = None,
    began: float | None = None,
    say: Callable[[Progress], None] = lambda progress: None,
    keep: bool = True,
) -> Outcome:
    """Train every member. With `keep`, an interrupted sweep that is started again runs what it had not finished.

    `began`: when the command began, as of `time.time()`. Raises `DoesNotFit` before anything starts,
    `JournalBusy`, and `cluster.SchedulerUnreachable`.
    """
    began = time.time() if began is None else began
    engine = best_engine(sweep) if sweep.engine == "auto" else sweep.engine
    limit = memory_limit_bytes or default_limit_bytes()
    tasks, allotment = plan(sweep, engine, limit, processes)
    key = {"format": 1, "engine": engine, **sweep.model_dump(mode="json", exclude={"engine"})}
    journal = Journal(key) if keep else None
    done = list(journal.done) if journal else []
    finished = {position for trained in done for position in trained.positions}
    left = [part for task in tasks if (part := without(task, finished))]
    epochs = [0]

    def tell(trained_epochs: int) -> None:
        epochs[0] += trained_epochs
        say(Progress(min(epochs[0], len(sweep.members()) * sweep.epochs), len(sweep.members()) * sweep.epochs))

    tell(len(finished) * sweep.epochs)
    complete, ended = False, time.time()
    try:
        for trained in _trained(engine, left, scheduler, allotment, tell):
            done.append(trained)
            ended = time.time()
            if journal and all(row["status"] in ("ok", "diverged") for row in trained.rows):
                journal.keep(trained)
        complete = all(row["status"] in ("ok", "diverged") for trained in done for row in trained.rows)
    finally:
        if journal:
            journal.close(complete=complete)
    by_position = {p: row for trained in done for p, row in zip(trained.positions, trained.rows, strict=True)}
    costs = [trained.cost for trained in done]
    peaks = sorted((cost.get("peak_rss_bytes", 0) for cost in costs), reverse=True)
    at_once = allotment.processes if allotment else 1
    return Outcome(
        sweep, engine, [by_position[p] for p in sorted(by_position)], costs, ended - began,
        peak_rss_bytes() + sum(peaks[:at_once]), allotment, len(finished),
    )  # fmt: skip


def plan(
    sweep: Sweep, engine: str, limit_bytes: int, processes: int | None = None
) -> tuple[list[Task], Allotment | None]:
    """The tasks of a sweep: chunks of models of one shape, or a configuration each. Raises `DoesNotFit`."""
    tasks, allotment, position = [], None, 0
    members = sweep.members()
    if engine not in IN_PROCESS:
        largest = max((sweep.workload(layers) for layers in sweep.layers), key=lambda w: w.parameters)
        loop = POOL_LOOPS[engine]
        allotment = allot(largest, len(members), framework(loop), limit_bytes, processes)
    for layers, group in groupby(members, key=lambda member: member.layers):
        workload, alike = sweep.workload(layers), list(group)
        if allotment:
            loop, size, threads = POOL_LOOPS[engine], 1, allotment.threads
        else:
            loop, size, threads = (
                engine,
                chunk_size(workload, len(alike), limit_bytes, sweep.device),
                host.cores_allowed(),
            )
        for at in range(0, len(alike), size):
            chunk = tuple(alike[at : at + size])
            positions = tuple(range(position + at, position + at + len(chunk)))
            tasks.append(Task(loop, sweep.device, threads, workload, chunk, positions, size - len(chunk)))
        position += len(alike)
    return tasks, allotment


def without(task: Task, finished: set[int]) -> Task | None:
    """The task less the members that are finished, its size kept by padding; None when nothing is left."""
    left = [(p, member) for p, member in zip(task.positions, task.members, strict=True) if p not in finished]
    if not left:
        return None
    positions, members = zip(*left, strict=True)
    return task._replace(
        members=members, positions=positions, padding=task.padding + len(task.members) - len(members)
    )  # fmt: skip


def _trained(
    engine: str, tasks: Sequence[Task], scheduler: str | None, allotment: Allotment | None, tell: Callable[[int], None]
) -> Iterator[Trained]:
    """The tasks as they end, whatever the engine."""
    if not tasks:
        return
    if engine == "dask" and scheduler is not None:  # other machines take the images from their package
        yield from _on_dask(tasks, scheduler, allotment, tell)
        return
    needs = max(data.stored_bytes(task.workload, 1 if engine in IN_PROCESS else 4) for task in tasks)
    with scratch(needs) as folder:
        first = start(tasks[0]) if engine in IN_PROCESS else None
        greeting = threading.Thread(target=greet, args=[first])  # it imports while the images are unpacked
        try:
            if first:
                greeting.start()
            images = data.compact if first else data.for_workload  # the processes of a pool map one file of floats
            save_split(folder, images(tasks[0].workload))
            tasks = [task._replace(images=str(folder)) for task in tasks]
            if first:
                greeting.join()
                yield from _one_process(tasks, first, tell)
            elif engine == "dask":
                yield from _on_dask(tasks, None, allotment, tell)
            else:
                assert allotment is not None
                yield from pool.trained(tasks, allotment.processes, lambda _: tell(1))
        finally:
            if first:
                first.kill()


def _one_process(tasks: Sequence[Task], worker: Any, tell: Callable[[int], None]) -> Iterator[Trained]:
    """Chunk after chunk in one process; a fresh one after it failed."""
    failing = False
    for task in tasks:
        worker = start(task) if failing else worker
        members = len(task.members)
        found = train(task, lambda _, members=members: tell(members), worker)
        failing = found.rows[0]["status"] not in ("ok", "diverged")
        yield found
    worker.kill()  # it has told all it knows, and would take its time to end by itself


def _on_dask(
    tasks: Sequence[Task], scheduler: str | None, allotment: Allotment | None, tell: Callable[[int], None]
) -> Iterator[Trained]:
    from overhead.sweep import cluster

    with cluster.client(scheduler, allotment.processes if allotment else 1, tasks[0].device) as client:
        for found in cluster.trained(client, tasks):
            tell(tasks[0].workload.epochs)
            yield found


def report(outcome: Outcome) -> dict[str, Any]:
    """What `overhead sweep --json` prints: seconds are of this run, those of an interrupted one's tasks included."""
    costs = outcome.costs

    def total(name: str) -> float:
        return sum(cost.get(name, 0.0) for cost in costs)

    return {
        "engine": outcome.engine,
        "wall_s": outcome.wall_s,
        "train_s": total("train_s"),
        "first_s": next((cost["first_s"] for cost in costs if "first_s" in cost), None),
        "compile_s": total("compile_s"),
        "compilations": _compilations(outcome),
        "import_s": total("import_s"),
        "start_s": total("start_s"),
        "judge_s": total("judge_s"),
        "peak_rss_bytes": outcome.peak_rss_bytes,
        "chunks": len(costs),
        "models_at_once": max((cost.get("models", 0) for cost in costs), default=0),
        "processes": outcome.allotment.processes if outcome.allotment else 1,
        "threads": costs[0].get("threads") if costs else None,
        "resumed": outcome.resumed,
        "device": next((cost["device"] for cost in costs if "device" in cost), None),
        "best_rate": best_rate(outcome.rows),
        "epochs": outcome.sweep.epochs,
        "batch_size": outcome.sweep.batch_size,
        "rows": outcome.rows,
    }


def _compilations(outcome: Outcome) -> int | None:
    """Programs compiled: of each process in a pool, of the one process otherwise; None where nobody counts."""
    counted = [cost["compilations"] for cost in outcome.costs if cost.get("compilations") is not None]
    if not counted:
        return None
    return sum(counted) if outcome.allotment else max(counted)


def best_rate(rows: Sequence[dict[str, Any]]) -> float | None:
    """The rate with the highest last validation accuracy of those that did not diverge; None when all did."""
    finite = [row for row in rows if row["status"] == "ok" and row["val_accuracy"][-1] is not None]
    return max(finite, key=lambda row: row["val_accuracy"][-1])["rate"] if finite else None
