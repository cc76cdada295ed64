"""Time to a validation accuracy: fewer updates told apart from smoother ones, then each batch size at its own rate.

Trained in worker processes by the loops of the learning-rate sweep; seconds are of whole epochs, evaluation included.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.machine.alone import measuring
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed
from overhead.measure.session import Session
from overhead.problem import data, mlp
from overhead.problem.workload import Workload
from overhead.records.record import Record

TARGET = 0.97  # validation accuracy
ON_GRID, TIMED, EPOCHS, UPDATES = "rate grid", "time to quality", "equal epochs", "equal updates"
ONE_BY_ONE, SIDE_BY_SIDE = "sequential", "vmap"  # engines of the sweep: a model an epoch in one call, all rates at once


class Plan(NamedTuple):
    """Axis points: never what is measured."""

    batch_sizes: tuple[int, ...]
    rates: tuple[float, ...]
    seeds: int
    epochs: int  # the limit
    compared_epochs: int  # of equal epochs, and at the smallest batch size also of equal updates


PLANS = {
    "quick": Plan((32, 512), (0.1, 0.3, 1.0), 3, 12, 1),
    "workshop": Plan((32, 128, 512, 2048), (0.1, 0.3, 1.0, 2.0), 5, 25, 1),
    "full": Plan((32, 128, 512, 2048), (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2), 10, 40, 3),
}


class Training(NamedTuple):
    """One worker, one device, and what each of its records says besides its result."""

    worker: Process
    facts: dict[str, Any]

    def place(self, workload: Workload, members: list[tuple[float, int]]) -> dict[str, Any]:
        """Fresh models of (rate, seed) on the images of `workload`."""
        return self.worker.ask(
            "place_members", images=None, workload=workload.model_dump(mode="json"), members=members
        )  # fmt: skip

    def record(self, workload: Workload, placed: dict[str, Any], member: dict[str, Any], **fields: Any) -> Record:
        """A record of one model; it was not timed in rounds, so its seconds stand with the member."""
        return Record(
            **{"status": "ok", **fields}, member=member, data=placed["data"], device=placed["device"],
            device_name=placed["device_name"], settings=placed["settings"],
            workload=workload,
            **self.facts,
        )  # fmt: skip


def take(plan: Plan, devices: Sequence[str], learning_rate: float, session: Session) -> list[Record]:
    """Equal epochs and updates, the grid of rates, and the time to `TARGET` with the best; for each device."""
    found: list[Record] = []
    with measuring(session.force):
        for device in devices:
            chosen: dict[int, float] = {}
            for engine, part in ((SIDE_BY_SIDE, on_grid), (ONE_BY_ONE, one_by_one)):
                try:
                    found += list(_in_worker(engine, device, session, part, plan, learning_rate, chosen))
                except WorkerFailed as failure:
                    found.append(_failed(engine, device, session, failure))
                session.say(f"time to quality: {engine} on the {device}")
    return found


def _in_worker(engine: str, device: str, session: Session, part: Any, *arguments: Any) -> Iterator[Record]:
    contestant = Contestant(engine, device).resolved()
    worker = Process(contestant, session.limit_s)
    try:
        hello = worker.ask("hello", START_LIMIT_S)
        facts = {"loop": engine, "threads": contestant.threads, "versions": hello["versions"], **session.provenance}
        yield from part(Training(worker, facts), *arguments)
        worker.close()
    except BaseException:
        worker.kill()
        raise


def _failed(engine: str, device: str, session: Session, failure: WorkerFailed) -> Record:
    return Record(
        status=failure.status, reason=failure.reason, loop=engine, device=device,  # type: ignore[arg-type]
        member={"part": ON_GRID if engine == SIDE_BY_SIDE else TIMED}, **session.provenance,
    )  # fmt: skip


def on_grid(training: Training, plan: Plan, _: float, chosen: dict[int, float]) -> Iterator[Record]:
    """Every rate of the grid at every batch size, side by side, with seed 0; puts the best rates into `chosen`."""
    for size in plan.batch_sizes:
        workload = Workload(batch_size=size, epochs=plan.epochs)
        placed = training.place(workload, [(rate, 0) for rate in plan.rates])
        epochs: list[dict[str, Any]] = []
        while len(epochs) < plan.epochs and not _all_settled(epochs, len(plan.rates)):
            epochs.append(training.worker.ask("epoch"))
        curves = [_curve(epochs, i) for i in range(len(plan.rates))]
        best = max(range(len(curves)), key=lambda i: _merit(curves[i], plan.epochs))
        chosen[size] = plan.rates[best]
        for i, (rate, curve) in enumerate(zip(plan.rates, curves, strict=True)):
            at = next((e for e, epoch in enumerate(epochs) if epoch["diverged"][i] is not None), None)
            fields: dict[str, Any] = {}
            if at is not None:
                step = at * workload.steps + epochs[at]["diverged"][i]
                fields = {"status": "diverged", "reason": f"diverged at step {step} (learning rate {rate:g})"}
            member = {"part": ON_GRID, "rate": rate, "seed": 0, "chosen": i == best, "reached_epoch": _reached(curve)}
            yield training.record(workload, placed, member, val_accuracy=curve, **fields)


def one_by_one(training: Training, plan: Plan, learning_rate: float, chosen: dict[int, float]) -> Iterator[Record]:
    """Equal epochs and equal updates at one rate; then seconds to the target at each size's own rate, by seed."""
    smallest = Workload(batch_size=min(plan.batch_sizes))
    updates = plan.compared_epochs * smallest.steps
    for size in plan.batch_sizes:
        workload = Workload(batch_size=size, learning_rate=learning_rate)
        for part, steps in ((EPOCHS, plan.compared_epochs * workload.steps), (UPDATES, updates)):
            placed = training.place(workload, [(learning_rate, 0)])
            training.worker.ask("run", steps=steps)
            train, validation = _accuracies(training.worker, workload)
            member = {
                "part": part, "rate": learning_rate, "seed": 0, "updates": steps,
                "epochs": steps / workload.steps, "train_accuracy": train,
            }  # fmt: skip
            yield training.record(workload, placed, member, val_accuracy=[validation])
    if not chosen:
        return
    for size in plan.batch_sizes:  # compile everything that is timed
        training.place(Workload(batch_size=size), [(chosen[size], 0)])
        training.worker.ask("epoch")
    runs = [(size, seed) for size in plan.batch_sizes for seed in range(1, plan.seeds + 1)]
    for size, seed in random.Random(0).sample(runs, len(runs)):
        workload = Workload(batch_size=size, learning_rate=chosen[size], epochs=plan.epochs, seed=seed)
        placed = training.place(workload, [(chosen[size], seed)])
        epochs = []
        while len(epochs) < plan.epochs and _reached(_curve(epochs, 0)) is None:
            epochs.append(training.worker.ask("epoch"))
        curve = _curve(epochs, 0)
        member = {
            "part": TIMED, "rate": chosen[size], "seed": seed, "target": TARGET, "reached_epoch": _reached(curve),
            "train_s": [e["wall_s"] - e["compile_s"] for e in epochs], "judge_s": [e["judge_s"] for e in epochs],
        }  # fmt: skip
        yield training.record(workload, placed, member, val_accuracy=curve)


def _curve(epochs: Sequence[dict[str, Any]], i: int) -> list[float]:
    """Validation accuracy of model `i` after each epoch up to the one where it diverged."""
    curve = []
    for epoch in epochs:
        if epoch["diverged"][i] is not None or epoch["val_accuracy"][i] is None:
            break
        curve.append(epoch["val_accuracy"][i])
    return curve


def _reached(curve: Sequence[float]) -> int | None:
    """The first epoch, counted from 1, after which the target is met."""
    return next((epoch for epoch, share in enumerate(curve, 1) if share >= TARGET), None)


def _merit(curve: Sequence[float], limit: int) -> tuple[int, float]:
    """What a rate is chosen by: fewest epochs to the target, then the higher accuracy."""
    return -(_reached(curve) or limit + 1), max(curve, default=0.0)


def _all_settled(epochs: Sequence[dict[str, Any]], models: int) -> bool:
    """Whether one model has met the target, so that no other can need fewer epochs."""
    return any(_reached(_curve(epochs, i)) is not None for i in range(models))


def _accuracies(worker: Process, workload: Workload) -> tuple[float, float]:
    """Training and validation accuracy of the worker's model, 0 to 1."""
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        out = Path(folder) / "fetched.npz"
        worker.ask("fetch", out=str(out))
        with np.load(out) as archive:
            params = mlp.unflat([archive[name] for name in archive.files])
    split = data.for_workload(workload)
    return mlp.accuracy(params, split.x, split.y), mlp.accuracy(params, split.x_val, split.y_val)
