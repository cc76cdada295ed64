"""Time to a validation accuracy: fewer updates told apart from smoother ones, then each batch size at its own rate.

Trained in worker processes by the loops of the learning-rate sweep; seconds are of whole epochs, evaluation included.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from overhead.machine.alone import measuring, scratch
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


class Trainer:
    """The process that trains on one device in one way: started when it is first asked, anew after it failed."""

    def __init__(self, engine: str, device: str, session: Session) -> None:
        self.engine, self.device, self.session = engine, device, session
        self.compiled: set[int] = set()  # batch sizes of which its process has compiled everything
        self._worker: Process | None = None
        self._facts: dict[str, Any] = {}
        self._cannot_start: WorkerFailed | None = None

    def once(self, name: str, part: str, make: Callable[[Trainer], Iterator[Record]]) -> list[Record]:
        """The records of a step, from the journal where it was finished; with the reason last where it failed."""
        return self.session.once(f"quality {self.engine} {self.device} {name}", lambda: self._made(part, make))

    def _made(self, part: str, make: Callable[[Trainer], Iterator[Record]]) -> list[Record]:
        found: list[Record] = []
        try:
            for record in make(self):
                found.append(record)
        except WorkerFailed as failure:
            self.end()
            found.append(_failed(self.engine, self.device, self.session, failure, part))
        return found

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """What the process answers. Raises `WorkerFailed`; one that did not start is not started again."""
        if self._cannot_start:
            raise self._cannot_start
        if self._worker is None:
            contestant = Contestant(self.engine, self.device).resolved()
            self._worker = Process(contestant, self.session.limit_s)
            try:
                hello = self._worker.ask("hello", START_LIMIT_S)
            except WorkerFailed as failure:
                self._cannot_start = failure
                raise
            self._facts = {"loop": self.engine, "threads": contestant.threads, "versions": hello["versions"]}
        return self._worker.ask(do, **arguments)

    def end(self) -> None:
        """End the process, if there is one."""
        if self._worker:
            self._worker.kill()
        self._worker, self.compiled = None, set()

    def place(self, workload: Workload, members: list[tuple[float, int]]) -> dict[str, Any]:
        """Fresh models of (rate, seed) on the images of `workload`."""
        return self.ask("place_members", images=None, workload=workload.model_dump(mode="json"), members=members)

    def record(self, workload: Workload, placed: dict[str, Any], member: dict[str, Any], **fields: Any) -> Record:
        """A record of one model; it was not timed in rounds, so its seconds stand with the member."""
        return Record(
            **{"status": "ok", **fields}, member=member, data=placed["data"], device=placed["device"],
            device_name=placed["device_name"], settings=placed["settings"],
            workload=workload,
            **self._facts,
            **self.session.provenance,
        )  # fmt: skip


def take(plan: Plan, devices: Sequence[str], learning_rate: float, session: Session) -> list[Record]:
    """Equal epochs and updates, the grid of rates, and the time to `TARGET` with the best; for each device.

    A step whose process fails leaves a record with the reason, and the next one has a fresh process.
    """
    found: list[Record] = []
    with measuring(session.force):
        for device in devices:
            trainer = Trainer(SIDE_BY_SIDE, device, session)
            try:
                grid = _grid(trainer, plan)
                session.say(f"time to quality: {SIDE_BY_SIDE} on the {device}")
                trainer.end()
                trainer = Trainer(ONE_BY_ONE, device, session)
                found += [*grid, *_one_by_one(trainer, plan, learning_rate, _chosen(grid))]
                session.say(f"time to quality: {ONE_BY_ONE} on the {device}")
            finally:
                trainer.end()
    return found


def _grid(trainer: Trainer, plan: Plan) -> list[Record]:
    return [
        record
        for size in plan.batch_sizes
        for record in trainer.once(f"{size}", ON_GRID, partial(on_grid, plan=plan, size=size))
    ]


def _chosen(grid: Sequence[Record]) -> dict[int, float]:
    """The best rate of each batch size whose grid was trained."""
    return {r.trained.batch_size: r.member["rate"] for r in grid if r.member and r.member.get("chosen")}


def _one_by_one(trainer: Trainer, plan: Plan, rate: float, chosen: dict[int, float]) -> list[Record]:
    """Equal epochs and equal updates at one rate; then seconds to the target at each size's own rate, by seed."""
    found = []
    for size in plan.batch_sizes:
        found += trainer.once(f"{size} compared", EPOCHS, partial(compared, plan=plan, size=size, rate=rate))
    runs = [(size, seed) for size in chosen for seed in range(1, plan.seeds + 1)]
    for size, seed in random.Random(0).sample(runs, len(runs)):
        make = partial(timed, plan=plan, chosen=chosen, size=size, seed=seed)
        found += trainer.once(f"{size} seed {seed}", TIMED, make)
    return found


def _failed(engine: str, device: str, session: Session, failure: WorkerFailed, part: str) -> Record:
    return Record(
        status=failure.status, reason=failure.reason, loop=engine, device=device,  # type: ignore[arg-type]
        member={"part": part}, **session.provenance,
    )  # fmt: skip


def on_grid(trainer: Trainer, plan: Plan, size: int) -> Iterator[Record]:
    """Every rate of the grid at a batch size, side by side, with seed 0; marks the best as chosen."""
    workload = Workload(batch_size=size, epochs=plan.epochs)
    placed = trainer.place(workload, [(rate, 0) for rate in plan.rates])
    epochs: list[dict[str, Any]] = []
    while len(epochs) < plan.epochs and not _all_settled(epochs, len(plan.rates)):
        epochs.append(trainer.ask("epoch"))
    curves = [_curve(epochs, i) for i in range(len(plan.rates))]
    best = max(range(len(curves)), key=lambda i: _merit(curves[i], plan.epochs))
    for i, (rate, curve) in enumerate(zip(plan.rates, curves, strict=True)):
        at = next((e for e, epoch in enumerate(epochs) if epoch["diverged"][i] is not None), None)
        fields: dict[str, Any] = {}
        if at is not None:
            step = at * workload.steps + epochs[at]["diverged"][i]
            fields = {"status": "diverged", "reason": f"diverged at step {step} (learning rate {rate:g})"}
        member = {"part": ON_GRID, "rate": rate, "seed": 0, "chosen": i == best, "reached_epoch": _reached(curve)}
        yield trainer.record(workload, placed, member, val_accuracy=curve, **fields)


def compared(trainer: Trainer, plan: Plan, size: int, rate: float) -> Iterator[Record]:
    """A batch size after equal epochs, and after as many updates as the smallest makes in them."""
    updates = plan.compared_epochs * Workload(batch_size=min(plan.batch_sizes)).steps
    workload = Workload(batch_size=size, learning_rate=rate)
    for part, steps in ((EPOCHS, plan.compared_epochs * workload.steps), (UPDATES, updates)):
        placed = trainer.place(workload, [(rate, 0)])
        trainer.ask("run", steps=steps)
        train, validation = _accuracies(trainer, workload)
        member = {
            "part": part, "rate": rate, "seed": 0, "updates": steps,
            "epochs": steps / workload.steps, "train_accuracy": train,
        }  # fmt: skip
        yield trainer.record(workload, placed, member, val_accuracy=[validation])


def timed(trainer: Trainer, plan: Plan, chosen: dict[int, float], size: int, seed: int) -> Iterator[Record]:
    """Seconds to the target with a batch size's own rate and a seed, in a process that has compiled every size."""
    for other in sorted(set(chosen) - trainer.compiled):
        trainer.place(Workload(batch_size=other), [(chosen[other], 0)])
        trainer.ask("epoch")
        trainer.compiled.add(other)
    workload = Workload(batch_size=size, learning_rate=chosen[size], epochs=plan.epochs, seed=seed)
    placed = trainer.place(workload, [(chosen[size], seed)])
    epochs: list[dict[str, Any]] = []
    while len(epochs) < plan.epochs and _reached(_curve(epochs, 0)) is None:
        epochs.append(trainer.ask("epoch"))
    curve = _curve(epochs, 0)
    member = {
        "part": TIMED, "rate": chosen[size], "seed": seed, "target": TARGET, "reached_epoch": _reached(curve),
        "train_s": [e["wall_s"] - e["compile_s"] for e in epochs], "judge_s": [e["judge_s"] for e in epochs],
    }  # fmt: skip
    yield trainer.record(workload, placed, member, val_accuracy=curve)


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


def _accuracies(trainer: Trainer, workload: Workload) -> tuple[float, float]:
    """Training and validation accuracy of the model that is placed, 0 to 1."""
    with scratch(5 * workload.parameters) as folder:
        out = folder / "fetched.npz"
        trainer.ask("fetch", out=str(out))
        with np.load(out) as archive:
            params = mlp.unflat([archive[name] for name in archive.files])
    split = data.for_workload(workload)
    return mlp.accuracy(params, split.x, split.y), mlp.accuracy(params, split.x_val, split.y_val)
