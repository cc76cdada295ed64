"""Experiments on the harness itself: a loop against itself, with a known slowdown, beside a load, in fresh processes.

Each gives records whose `op` names the experiment and whose clocks `a` and `b` are its two arms, in nanoseconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil
from typing import NamedTuple

from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.preparation import Turn
from overhead.measure.rounds import run_cases, time_cases, time_epochs, time_ops
from overhead.measure.session import PRESETS, Session
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record

PAIRS = 17  # of one comparison: with 17, order statistics err 4.9 % of the time at a nominal 5 %
SHARES = (1, 2, 5, 10)  # percent of busy waiting that is to be recovered
MORE = 1.25  # times the steps of arm a that arm b takes beside a load
PAIRS_IN_TURN = 24  # of an injection trial, between looks at the interval
CLOSE = 0.0025  # half-width at which a trial ends, a share
SHORT_MS, LONG_MS = 2.0, 12.0  # of one sample: for the many of a loop against itself, and for all others
REPEATED = ("numpy", "jax-epoch")  # loops that are timed again in a fresh run
LOAD_PAIRS = 30  # one after the other; interleaved are twice as many, to see the load come and go twice

# 100 steps of the book's network: long enough to be a sample, short enough to agree with the reference quickly.
WORKLOAD = Workload(images=3200)


class Sizes(NamedTuple):
    """How often each experiment is done; never what is measured."""

    comparisons: int = 1000  # of a loop with itself in one process
    fresh: int = 40  # pairs of fresh processes
    trials: int = 10  # of each injected slowdown
    trial_s: float = 4.0  # the most that one of them may take
    loads: int = 5  # trials beside a load
    fakes: int = 5  # unsynchronised contestants
    runs: int = 2  # of the harness from its beginning


def arm(name: str, loop: str = "numpy", threads: int = 1) -> Contestant:
    """A contestant that differs from another of the same loop by a variable that nothing reads."""
    return Contestant(loop, "cpu", threads, (("OVERHEAD_ARM", name),))


def _take(
    contestants: list[Contestant],
    session: Session,
    workload: Workload,
    take_turn: Callable[[Turn, int], None] | None = None,
    rounds: int = 1,
    processes: int = 1,
) -> list[Case]:
    preset = session.preset._replace(target=0.0, budget_s=float("inf"), processes=processes, rounds=(rounds, rounds))
    return time_cases(contestants, [workload], session._replace(preset=preset), take_turn)


def _records(cases: list[Case], session: Session) -> list[Record]:
    return [record for case in cases for record in case.op_records(session.provenance)]


def in_one_process(session: Session, sizes: Sizes, workload: Workload = WORKLOAD) -> list[Record]:
    """The clock, a loop against itself, injected slowdowns, and a step timed op by op, in one NumPy worker."""

    def take(turn: Turn, round_: int) -> None:
        turn.case.keep("timer/empty", 1, turn.process, 0, turn.worker.ask("timer")["ns"])
        against_itself(turn, sizes.comparisons)
        for percent in SHARES:
            for trial in range(1, sizes.trials + 1):
                injected(turn, percent, trial, sizes.trial_s)
        for op_round in range(4):
            time_ops(turn, op_round)

    return _records(_take([arm("a")], session, workload, take), session)


def steps_for(turn: Turn, ms: float) -> int:
    """Training steps that take at least `ms` milliseconds, by the fastest of a few runs."""
    found = turn.worker.ask("run", steps=20, repeats=9)["wall_ns"]
    return ceil(20 * ms * 1e6 / min(found))


def _alternate(turn: Turn, op: str, steps: int, pairs: int, first: int = 0, **options: float | bool | int) -> None:
    """Keep `pairs` pairs under `op`, numbered from `first`."""
    answer = turn.worker.ask("alternate", steps=steps, pairs=pairs, seed=first, **options)
    other = int(options.get("other_steps", steps))
    for name, samples, steps_taken in (("a", answer["a"], steps), ("b", answer["b"], other)):
        for pair, ns in enumerate(samples, first):
            turn.case.keep(f"{op}/{name}", steps_taken, turn.process, pair, [ns])


def against_itself(turn: Turn, comparisons: int) -> None:
    """One long series of alternating samples, in random order within each pair, to be cut into comparisons."""
    steps = steps_for(turn, SHORT_MS)
    at_once = 20
    for first in range(0, comparisons, at_once):
        _alternate(turn, "a-a", steps, PAIRS * min(at_once, comparisons - first), PAIRS * first)


def injected(turn: Turn, percent: int, trial: int, limit_s: float) -> None:
    """Pairs until the ratio's half-width is close enough or the time is up."""
    steps, started, done = steps_for(turn, LONG_MS), time.monotonic(), 0
    op = f"injection-{percent} {trial}"
    while True:
        _alternate(turn, op, steps, PAIRS_IN_TURN, done, share=percent / 100)
        done += PAIRS_IN_TURN
        a, b = (turn.case.samples[f"{op}/{side}", steps, turn.process][1] for side in "ab")
        if time.monotonic() - started > limit_s or stats.paired_ratio([b], [a]).half_width <= CLOSE:
            return


def in_fresh_processes(session: Session, sizes: Sizes, workload: Workload = WORKLOAD) -> list[Record]:
    """A loop against itself in two fresh processes, `sizes.fresh` times; a record an arm with a series a process."""

    def take(turn: Turn, round_: int) -> None:
        turn.worker.ask("run", steps=turn.few)
        answer = turn.worker.ask("run", steps=turn.steps)
        name = dict(turn.case.contestant.env)["OVERHEAD_ARM"]
        turn.case.keep(f"fresh/{name}", turn.steps, turn.process, round_, answer["wall_ns"])

    cases = _take([arm("a"), arm("b")], session, workload, take, rounds=PAIRS, processes=sizes.fresh)
    return _records(cases, session)


def beside_a_load(session: Session, sizes: Sizes, workload: Workload = WORKLOAD) -> list[Record]:
    """A loop against `MORE` of itself, quietly, then with a load on the same core that comes and goes.

    The load is away while one arm's samples could all be taken, then there for as long as the other arm's take
    beside it. So it is there for one arm and not for the other when they run one after the other.
    """

    def take(turn: Turn, round_: int) -> None:
        core = max(turn.worker.ask("pin", core=a_core())["cores"])
        steps = steps_for(turn, LONG_MS)
        more = {"other_steps": ceil(MORE * steps)}
        _alternate(turn, "load quiet", steps, 2 * LOAD_PAIRS, **more)
        a_s = sum(turn.case.samples["load quiet/a", steps, turn.process][1][:LOAD_PAIRS]) * 1e-9
        for trial in range(1, sizes.loads + 1):
            with load(core, a_s, 2 * MORE * a_s):
                _alternate(turn, f"load interleaved {trial}", steps, 2 * LOAD_PAIRS, **more)
            with load(core, a_s, 2 * MORE * a_s):
                _alternate(turn, f"load one-after-the-other {trial}", steps, LOAD_PAIRS, interleaved=False, **more)

    return _records(_take([arm("a")], session, workload, take), session)


def a_core() -> int:
    """One of the cores that this process may use."""
    return max(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0


LOAD = """
import os, sys, time
core, away_s, there_s = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
os.sched_setaffinity(0, {core})
parent = os.getppid()
print("ready", flush=True)
sys.stdin.readline()
while os.getppid() == parent:
    time.sleep(away_s)
    until = time.perf_counter() + there_s
    while time.perf_counter() < until:
        pass
"""


@contextmanager
def load(core: int, away_s: float, there_s: float) -> Iterator[None]:
    """A process that keeps `core` busy for `there_s` seconds after each `away_s` seconds of sleep."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOAD, str(core), str(away_s), str(there_s)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", errors="replace",
    )  # fmt: skip
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.flush()
        yield
    finally:
        process.kill()
        process.communicate()


def unsynchronised(session: Session, sizes: Sizes, workload: Workload = WORKLOAD) -> list[Record]:
    """Contestants that do not wait for their pretended device, and one that does; a record each."""
    fakes = [arm(f"{n}", "overhead.harness.fake_device:Unsynchronised") for n in range(sizes.fakes)]
    cases = _take([*fakes, arm("a", "overhead.harness.fake_device:Synchronised")], session, workload, time_epochs)
    return [case.record(session.provenance) for case in cases]


def repeated(session: Session, sizes: Sizes, workload: Workload | None = None) -> list[list[Record]]:
    """The same loops, timed by the harness as `overhead bench` times them, in `sizes.runs` fresh runs; a list a run."""
    quick = session._replace(preset=PRESETS["quick"], learns=False)
    contestants = [Contestant(name) for name in REPEATED]
    return [run_cases(contestants, [workload or Workload()], quick) for _ in range(sizes.runs)]


def of_devices(
    contestants: list[Contestant], session: Session, workload: Workload = WORKLOAD, rounds: int = 7
) -> list[Record]:
    """Whole epochs, the first cold, each on both clocks; a record a contestant."""

    def take(turn: Turn, round_: int) -> None:
        answer = turn.worker.ask("run", steps=workload.steps)
        for clock in ("dispatch", "wall"):
            turn.case.keep(clock, workload.steps, turn.process, round_, answer[f"{clock}_ns"])

    cases = _take(contestants, session, workload, take, rounds)
    return [case.record(session.provenance) for case in cases]
