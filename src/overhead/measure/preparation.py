"""Before a contestant is timed: its cold run, agreement with the reference, warm epochs, and the size of a sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overhead.measure import agreement
from overhead.measure.case import Case
from overhead.measure.process import Process, WorkerFailed
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.mlp import Params, unflat
from overhead.problem.workload import Workload

TURN_S = 0.1  # a turn lasts about as long, or one epoch of a loop that trains whole epochs
SAMPLE_S = 0.02  # of loops that are called step by step; others sample whole epochs
LONG_TURN_S, LONG_TURN_EVERY = 0.8, 2  # whose turn lasts longer has one every second round
LEAST_WAIT_S, LEAST_WAIT = 0.005, 0.1  # of a fetch after a run; the second as a share of the run
LONGEST_WAKING_S = 0.1  # a longer sample needs no other before it to wake caches and pools
TRIED = 3  # samples, to find how many steps make one
WARM_STEPS = 100  # where no epoch is trained to find out what is learnt
DISPATCH_STEPS = 8  # a launch queue is finite: dispatch is measured with few steps


class Turn(NamedTuple):
    """Who has the turn, and what one sample of it is."""

    worker: Process
    case: Case
    process: int
    steps: int  # training steps of one sample on the wall clock
    few: int  # … and on the dispatch clock; 0 where a sample gives both
    repeats: int
    every: int = 1  # rounds in which it has one turn: a long turn comes less often


class Preparation:
    """A contestant's process made ready for `case`. Each step raises `WorkerFailed` for a case that may not be timed.

    `place` are the arguments of the verb `place`; `folder` is where parameters that were fetched are written.
    """

    def __init__(self, worker: Process, case: Case, split: Split, place: dict[str, Any], folder: Path) -> None:
        self.worker, self.case, self.split, self.place = worker, case, split, place
        self.workload, self.out = case.workload, str(folder / f"fetched-{worker.pid}.npz")

    def cold_run(self) -> None:
        """The first placement and the first epoch, which may compile: kept apart from every other time."""
        facts = self._place(agreement.at_epoch_rate(self.workload))
        if facts["device"] != self.case.contestant.device:
            raise WorkerFailed("failed", f"ran on {facts['device']}")
        self.case.facts.update(self.worker.facts, **facts, data=self.split.name)
        self.steps_per_call: int = facts["steps_per_call"]
        cold = self.worker.ask("run", steps=self.workload.steps)
        self.case.first_s.append(cold["wall_ns"][0] * 1e-9)

    def agree(self) -> None:
        """Agreement with the float64 reference; who disagrees, or returns before the device is done, is not timed."""
        if self._had_to_wait(self.case.first_s[-1]):
            self._place(agreement.at_epoch_rate(self.workload))
            self.worker.ask("run", steps=self.workload.steps)
        after_epoch = self._fetched()
        self._place(agreement.at_agreement_rate(self.workload))
        self.worker.ask("run", steps=agreement.STEPS)
        precision = self.case.facts.get("settings", {}).get("matmul_precision", "float32")
        self.case.agreement = agreement.compare(self._fetched(), after_epoch, self.workload, self.split, precision)
        if self.case.agreement.disagreement:
            raise WorkerFailed("disagrees", self.case.agreement.disagreement)

    def warm_up(self, learns: bool) -> tuple[float, int | None]:
        """A fresh placement at the workload's rate and warm steps: seconds an epoch, and the threads that worked.

        An epoch is trained, and its accuracy kept, where `learns` says so or the rate is not agreement's, at which what
        is learnt is known from the reference.
        """
        steps = self.workload.steps
        if self.case.contestant.is_floor:
            return self._ran(steps)
        self._place(self.workload)
        if not learns and self.workload.learning_rate == agreement.RATE:
            return self._ran(-(-min(WARM_STEPS, steps) // self.steps_per_call) * self.steps_per_call)
        epoch_s, busy = self._ran(steps)
        if self._had_to_wait(epoch_s):
            self._place(self.workload)
            self.worker.ask("run", steps=steps)
        self._learnt()
        return epoch_s, busy

    def turn(self, process: int, epoch_s: float) -> Turn:
        """What one sample of this contestant is, from the seconds that a warm epoch takes."""
        steps, per_call = self.workload.steps, self.steps_per_call
        if per_call == 1:
            # From an epoch that was disturbed every sample would be too short, so a few short ones have the last word.
            few = self._of_a_sample(epoch_s)
            tried = self.worker.ask("run", steps=few, repeats=TRIED)
            epoch_s = min(epoch_s, min(tried["wall_ns"]) * 1e-9 * self.workload.steps / few)
            steps = self._of_a_sample(epoch_s)
        sample_s = epoch_s * steps / self.workload.steps
        few = -(-min(DISPATCH_STEPS, self.workload.steps) // per_call) * per_call
        if epoch_s > LONGEST_WAKING_S and (few >= steps or self.case.contestant.is_floor):
            few = 0
        repeats = max(1, min(50, round(TURN_S / sample_s)))
        every = LONG_TURN_EVERY if repeats * sample_s > LONG_TURN_S else 1
        return Turn(self.worker, self.case, process, steps, few, repeats, every)

    def _of_a_sample(self, epoch_s: float) -> int:
        """Steps of a sample of a loop that is called step by step."""
        return max(1, min(self.workload.steps, round(self.workload.steps * SAMPLE_S / epoch_s)))

    def _place(self, workload: Workload) -> dict[str, Any]:
        return self.worker.ask("place", **{**self.place, "workload": workload.model_dump(mode="json")})

    def _ran(self, steps: int) -> tuple[float, int | None]:
        warm = self.worker.ask("run", steps=steps)
        return warm["wall_ns"][0] * 1e-9 * self.workload.steps / steps, warm["busy_threads"]

    def _fetched(self) -> Params:
        self.worker.ask("fetch", out=self.out)
        with np.load(self.out) as archive:
            tensors = [archive[name] for name in archive.files]
        if len(tensors) % 2:
            raise WorkerFailed("disagrees", f"each layer must have weights and biases, got {len(tensors)} tensors")
        return unflat(tensors)

    def _had_to_wait(self, wall_s: float) -> bool:
        """Refuse a contestant whose parameters take longer to fetch right after its run than when the device rests.

        A slow first fetch is only a suspicion, since a busy host or a copy that is kept can be the reason; the same
        three times, with time to rest in between, is proof, and then no time of this case is kept. Returns whether
        steps were trained to find out.
        """
        allowed_s = max(LEAST_WAIT_S, LEAST_WAIT * wall_s)
        wait = self.worker.ask("fetch", out=self.out)
        if wait["fetch_s"] - wait["again_s"] <= allowed_s:
            return False
        tries = [self.worker.ask("outstanding", steps=self.workload.steps) for _ in range(3)]
        if min(t["at_once_s"] for t in tries) - max(t["rested_s"] for t in tries) > allowed_s:
            self.case.forget()
            raise WorkerFailed("failed", "returned before the device was done")
        return True

    def _learnt(self) -> None:
        """Validation accuracy after each epoch at the workload's own rate; a case that diverged is not timed."""
        workload, split = self.workload, self.split
        trained = [self._fetched()]
        for _ in range(workload.epochs - 1):
            self.worker.ask("run", steps=workload.steps)
            trained.append(self._fetched())
        finite = all(np.isfinite(tensor).all() for params in trained for tensor in mlp.flat(params))
        known = finite and workload.learning_rate == agreement.RATE
        step = None if known else agreement.diverged_at(workload, split)
        if step is not None:
            raise WorkerFailed("diverged", f"diverged at step {step} (learning rate {workload.learning_rate:g})")
        if not finite:
            raise WorkerFailed("disagrees", "parameters must be finite, as the reference's are at this learning rate")
        if len(split.y_val):
            self.case.val_accuracy = [mlp.accuracy(p, split.x_val, split.y_val) for p in trained]


def prepared(
    worker: Process, case: Case, process: int, split: Split, place: dict[str, Any], folder: Path, learns: bool
) -> Turn:
    """All that comes before a contestant's first turn. Raises `WorkerFailed` for a case that may not be timed."""
    preparation = Preparation(worker, case, split, place, folder)
    preparation.cold_run()
    if not case.contestant.is_floor:
        preparation.agree()
    epoch_s, busy = preparation.warm_up(learns)
    if busy is not None:
        case.facts["busy_threads"] = busy
    return preparation.turn(process, epoch_s)
