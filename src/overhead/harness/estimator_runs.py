"""The same loops in many independent runs, with nothing beside them and beside a load: which estimate repeats best?"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from overhead.harness import experiments
from overhead.harness.experiments import WORKLOAD
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.preparation import TURN_S, Turn
from overhead.measure.process import Process
from overhead.measure.rounds import time_cases
from overhead.measure.session import Session
from overhead.problem.workload import Workload
from overhead.records.estimators import LOADED, QUIET
from overhead.records.record import Record

OP = "estimators"  # of these records
LOOPS = ("numpy", "jax-step", "jax-epoch", "jax-epoch-tuned", "keras-fit", "floor-numpy")
FEWEST_RUNS = 3  # with fewer, a floor would have several processes in one run
TURNS = 20  # of each loop in a run: quiet ones, then as many beside the load; a turn takes as long for every loop
SIZED_BY = 5  # runs, the fastest of which says how many samples make a turn
AWAY_S, THERE_S = 1.1, 0.9  # of the load; together no multiple of a turn


def estimator_runs(
    session: Session, runs: int, workload: Workload = WORKLOAD, loops: tuple[str, ...] = LOOPS
) -> list[Record]:
    """`runs` fresh processes of each loop, each with turns without and beside a load on one core that comes and goes.

    A record a loop, whose `op` is `OP`: the clocks `quiet` and `beside a load`, a series a run. None for no runs.
    """
    if not runs:
        return []
    rounds, beside = 2 * TURNS, _Load()
    samples: dict[tuple[str, int], int] = {}  # of a turn, so that it takes as long for every loop and in every run

    def take(turn: Turn, round_: int) -> None:
        worker, case, process, steps, *_ = turn
        condition = QUIET if round_ < TURNS else LOADED
        beside.switch(condition == LOADED)
        tried = worker.ask("run", steps=steps, repeats=1 if round_ else SIZED_BY)
        if not round_:
            samples[case.contestant.loop, process] = max(1, round(TURN_S * 1e9 / min(tried["wall_ns"])))
        answer = worker.ask("run", steps=steps, repeats=samples[case.contestant.loop, process])
        case.keep(f"{OP}/{condition}", steps, process, round_, answer["wall_ns"])

    def afterwards(worker: Process, case: Case) -> None:
        beside.switch(False)

    preset = session.preset._replace(target=0.0, budget_s=float("inf"), processes=runs, rounds=(rounds, rounds))
    contestants = [Contestant(name) for name in loops]
    quietly = session._replace(preset=preset, learns=False, afterwards=afterwards)
    try:
        cases = time_cases(contestants, [workload], quietly, take)
    finally:
        beside.switch(False)
    found = [record for case in cases for record in case.op_records(session.provenance)]
    return [record.model_copy(update={"op": OP}) for record in found]


def of_study(records: Sequence[Record]) -> list[Record]:
    """Those of the records that `estimator_runs` took."""
    return [r for r in records if r.op == OP]


class _Load:
    """The load of `experiments.load`, there or not."""

    def __init__(self) -> None:
        self.there: AbstractContextManager[None] | None = None

    def switch(self, on: bool) -> None:
        if on and self.there is None:
            self.there = experiments.load(experiments.a_core(), AWAY_S, THERE_S)
            self.there.__enter__()
        elif not on and self.there is not None:
            there, self.there = self.there, None
            there.__exit__(None, None, None)
