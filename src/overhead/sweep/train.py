"""Some models of a sweep trained in one process, started as every worker is and ended afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from overhead.loops import MANY
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed
from overhead.problem.workload import Workload
from overhead.sweep.plan import Member

EPOCH_LIMIT_S = 600.0  # for one model; each further one may take a minute more


class Task(NamedTuple):
    """Models of one shape for one process. Plain values, so that a task can travel to another machine."""

    engine: str  # a row of `loops.MANY`
    device: str
    threads: int
    workload: Workload
    members: tuple[Member, ...]
    positions: tuple[int, ...]  # of the members in the sweep
    padding: int = 0  # equal models added so that every chunk has one size and needs no program of its own
    images: str | None = None  # folder of the images; without one the process takes them from the package


class Trained(NamedTuple):
    """What became of a task: a row for each member, and where the seconds went."""

    positions: tuple[int, ...]
    rows: list[dict[str, Any]]  # rate, seed, layers, status, reason, diverged_at, loss, val_accuracy
    cost: dict[str, Any]  # seconds by what they were spent on, memory, device, versions


def start(task: Task) -> Process:
    """The process for `task`; it imports while we go on."""
    return Process(Contestant(task.engine, task.device, task.threads))


def greet(worker: Process) -> None:
    """Let `worker` import its framework; `train` meets it again and says what went wrong, if anything did."""
    with suppress(WorkerFailed):
        worker.facts = worker.ask("hello", START_LIMIT_S)


def train(task: Task, say: Callable[[int], None] = lambda epoch: None, worker: Process | None = None) -> Trained:
    """Train the members of `task` in a process of their own, or in `worker`, which then stays.

    A process that dies, hangs or runs out of memory leaves rows that say so. `say` is told each epoch that ended.
    """
    began = time.perf_counter()
    own = worker is None
    worker = worker or start(task)
    try:
        worker.facts = worker.facts or worker.ask("hello", START_LIMIT_S)
        hello_s = time.perf_counter() - began
        found = _epochs(task, worker, say)
        import_s = worker.facts.pop("import_s", 0.0)  # charged to its first task
        found.cost.update(import_s=import_s, start_s=max(0.0, hello_s - import_s), versions=worker.facts["versions"])
        if own:
            worker.close()
        found.cost["process_s"] = time.perf_counter() - began
        return found
    except WorkerFailed as failure:
        worker.kill()
        return failed(task, failure.status, failure.reason)
    except BaseException:  # interrupted: nothing of ours goes on
        worker.kill()
        raise


def failed(task: Task, status: str, reason: str) -> Trained:
    """Rows of members that could not be trained."""
    rows = [_row(member, status, reason, None, [], []) for member in task.members]
    return Trained(task.positions, rows, {"threads": task.threads})


def _epochs(task: Task, worker: Process, say: Callable[[int], None]) -> Trained:
    members = list(task.members) + [task.members[-1]] * task.padding
    limit_s = EPOCH_LIMIT_S + 60 * len(members)
    placed = worker.ask(
        "place_members", limit_s, images=task.images, workload=task.workload.model_dump(mode="json"),
        members=[(member.rate, member.seed) for member in members],
    )  # fmt: skip
    epochs = []
    for epoch in range(task.workload.epochs):
        epochs.append(worker.ask("epoch", limit_s))
        say(epoch)
    memory = worker.ask("memory")
    rows = []
    for i, member in enumerate(task.members):
        steps = [epoch["diverged"][i] for epoch in epochs]
        bad = next((e for e, step in enumerate(steps) if step is not None), None)
        at = None if bad is None else bad * task.workload.steps + steps[bad]
        reason = None if at is None else f"diverged at step {at} (learning rate {member.rate:g})"
        losses, shares = ([epoch[name][i] for epoch in epochs] for name in ("loss", "val_accuracy"))
        if bad is not None:  # what follows means nothing, and must not stretch an axis
            losses[bad:] = shares[bad:] = [None] * (len(epochs) - bad)
        rows.append(_row(member, "ok" if at is None else "diverged", reason, at, losses, shares))
    cost = {
        "train_s": sum(epoch["wall_s"] - epoch["compile_s"] for epoch in epochs),
        "first_s": epochs[0]["wall_s"],
        "compile_s": placed["compile_s"] + sum(epoch["compile_s"] for epoch in epochs),
        "judge_s": sum(epoch["judge_s"] for epoch in epochs),
        "load_s": placed["load_s"],
        "placed_s": placed["placed_s"],
        "peak_rss_bytes": memory["peak_rss_bytes"],
        "compilations": epochs[-1]["compilations"],
        "models": len(members),
        "threads": task.threads,
        **{name: placed[name] for name in ("device", "device_name", "settings", "data")},
    }
    return Trained(task.positions, rows, cost)


def _row(
    member: Member, status: str, reason: str | None, diverged_at: int | None, losses: list[Any], shares: list[Any]
) -> dict[str, Any]:
    return {
        "rate": member.rate,
        "seed": member.seed,
        "layers": list(member.layers),
        "status": status,
        "reason": reason,
        "diverged_at": diverged_at,
        "loss": losses,
        "val_accuracy": shares,
    }


def framework(engine: str) -> str:
    """The package that an engine's processes import."""
    return MANY[engine].framework
