"""A diagnosis being taken: the step's process, the competitors, and rounds of pairs."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from overhead.diagnose.competitor import Competitor
from overhead.diagnose.interventions import (
    CALLS,
    HALVED,
    INPUT,
    INTERVENTIONS,
    MEMORY,
    ONE_CORE,
    SPIN,
    WAITS,
    Condition,
    Intervention,
)  # fmt: skip
from overhead.machine import host
from overhead.machine.disturbance import Disturbance
from overhead.measure.contestant import Contestant
from overhead.measure.process import START_LIMIT_S, Process, WorkerFailed

SAMPLE_S = 0.025  # of steps, at least one
MOST_ROUNDS = 40
FEWEST_ROUNDS = 5
SPIN_SHARE, HOOK_SHARE = 0.25, 0.3  # of a step's time: the busy wait, and the sum of those at its calls
LEAST_HOOK_NS = 100
LONGEST_STEP_S = 20.0
MOST_PRINTED = 1_000_000  # characters a step


class Failed(Exception):
    """A step that cannot be diagnosed, with the reason in a line."""


class Target(NamedTuple):
    """What is diagnosed."""

    path: Path
    function: str = "step"
    make: str = "make_batch"
    batch_size: int = 32
    env: tuple[tuple[str, str], ...] = ()


class StepProcess(Process):
    """The process of a reader's step: the reader's own environment, and a group of processes that ends with it."""

    def __init__(self, target: Target, limit_s: float) -> None:
        self.target = target
        self.printed = 0  # characters so far
        super().__init__(Contestant("step", env=target.env), limit_s)

    def hears(self, text: str) -> None:
        self.printed += len(text)
        super().hears(text)

    def environment(self) -> dict[str, str]:
        return {"TF_CPP_MIN_LOG_LEVEL": os.environ.get("TF_CPP_MIN_LOG_LEVEL", "3"), **dict(self.target.env)}

    def command(self) -> list[str]:
        t = self.target
        return ["overhead.diagnose.worker", str(t.path), t.function, t.make]

    def kill(self) -> None:
        self._end_group()
        super().kill()

    def close(self) -> None:
        super().close()
        self._end_group()

    def _end_group(self) -> None:
        with contextlib.suppress(OSError):  # nobody is left in it
            os.killpg(self.pid, signal.SIGKILL)


class Sample(NamedTuple):
    """Nanoseconds a step: of the whole, of the processor time of all threads, of busy waits."""

    ns: float
    cpu_ns: float
    spun_ns: float


@dataclass
class Measured:
    """What was taken: for each intervention the pairs (changed, reference), one a round."""

    pairs: dict[str, list[tuple[Sample, Sample]]] = field(default_factory=dict)
    copies: list[tuple[float, float]] = field(default_factory=list)  # beside the memory competitor, and the other
    beyond_ns: float = 0.0  # of a step, in stretches that are longer than a call may cost
    calls: float = 0.0  # from Python, a step
    cores: int = 1
    first_ns: int = 0
    disturbed: list[str] = field(default_factory=list)  # what else the host did
    warnings: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        return min((len(pairs) for pairs in self.pairs.values()), default=0)


class Session:
    """A step's process with its competitors; use as a context, so that nothing is left running."""

    def __init__(self, target: Target, seconds: float, seed: int = 0) -> None:
        self.target, self.seconds, self.random = target, seconds, random.Random(seed)
        self.started = time.monotonic()
        self.process = StepProcess(target, seconds)
        self.competitors: dict[str, Competitor] = {}
        self._steps: dict[Condition, int] = {}
        self._step_ns = 0

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        for competitor in self.competitors.values():
            competitor.close()
        self.process.close()

    @property
    def left_s(self) -> float:
        return self.seconds - (time.monotonic() - self.started)

    def ask(self, do: str, limit_s: float | None = None, **arguments: Any) -> dict[str, Any]:
        """Raises `Failed` with the reason."""
        limit_s = max(5.0, self.left_s) if limit_s is None else limit_s
        try:
            return self.process.ask(do, limit_s, **arguments)
        except WorkerFailed as failed:
            reason = str(failed)
            if reason.startswith("no answer to"):
                t = self.target
                what = f"{t.path.name} did not load" if do == "hello" else f"{t.function} did not end"
                reason = f"{what} within {limit_s:.0f} s; killed"
            raise Failed(reason) from None

    def _check_printed(self, steps: int) -> None:
        if self.process.printed / steps > MOST_PRINTED:
            raise Failed(
                f"{self.target.function} must print at most {MOST_PRINTED:,} characters a step, and prints more"
            )

    def take(self) -> Measured:
        """Start the step, then go round the interventions until the time is up. Raises `Failed`."""
        n = self.target.batch_size
        hello = self.ask("hello", min(START_LIMIT_S, self.seconds))
        first = self.ask("first", n=n)
        found = Measured(first_ns=first["first_ns"], warnings=first["warnings"], cores=host.cores_allowed())
        self._step_ns = first["second_ns"]
        self._check_printed(2)
        if self._step_ns * 1e-9 > LONGEST_STEP_S:
            raise Failed(f"a step must take at most {LONGEST_STEP_S:g} s, got {self._step_ns * 1e-9:.0f} s")
        counted = self.ask("census", n=n)
        self._check_printed(5)
        if self.process.printed:
            found.warnings.append("what the step prints goes to a pipe here; a terminal may take longer")
        found.calls, found.beyond_ns = counted["calls"], counted["beyond_ns"]
        arms = self._possible(hello, found)
        disturbance = Disturbance()
        disturbance.start(self._own_seconds())
        while found.rounds < MOST_ROUNDS:
            before, is_first = self.left_s, not found.pairs
            self._round(arms, found)
            took = before - self.left_s
            if self.left_s < (took / 2 if is_first else 1.2 * took):  # the first finds out how long samples must be
                break
        found.disturbed = disturbance.found(self._own_seconds())
        found.warnings += [f"the host was not quiet: {what}" for what in found.disturbed]
        if found.rounds < FEWEST_ROUNDS:
            found.warnings.append(f"{found.rounds} rounds in {self.seconds:g} s are few: give more --seconds")
        return found

    def _own_seconds(self) -> float:
        """Processor time so far of the step's process and the competitors."""
        return self.process.cpu_seconds() + sum(c.cpu_seconds() for c in self.competitors.values())

    def _possible(self, hello: dict[str, Any], found: Measured) -> dict[str, Intervention]:
        """The interventions that this step and this host allow; warnings for the others."""
        arms = dict(INTERVENTIONS)
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        if not hello["has_pipeline"]:
            del arms[INPUT]
        if not hello["may_queue"]:
            del arms[WAITS]
        if self.target.batch_size < 2:
            del arms[HALVED]
        if len(cores) < 2:
            for name in (ONE_CORE, MEMORY):
                del arms[name]
            found.warnings.append("not possible here: one core and memory competitor need two cores and Linux")
        else:
            self.competitors = {kind: Competitor(kind, cores[1]) for kind in ("memory", "registers")}
        if not found.calls:
            del arms[CALLS]
        return arms

    def _round(self, arms: dict[str, Intervention], found: Measured) -> None:
        for name in self.random.sample(list(arms), len(arms)):
            arm = arms[name]
            changed, reference = (self._scaled(c, name, found) for c in (arm.changed, arm.reference))
            if self.random.random() < 0.5:
                pair = self.sample(changed), self.sample(reference)
            else:
                pair = tuple(reversed((self.sample(reference), self.sample(changed))))
            found.pairs.setdefault(name, []).append(pair)  # type: ignore[arg-type]
        if self.competitors:
            found.copies.append((self._copy("memory"), self._copy("registers")))

    def _scaled(self, c: Condition, name: str, found: Measured) -> Condition:
        """With the busy waits in proportion to the step."""
        if name == SPIN and c.spin_ns:
            return c._replace(spin_ns=round(SPIN_SHARE * self._step_ns))
        if name == CALLS and c.hook_ns:
            return c._replace(hook_ns=max(LEAST_HOOK_NS, round(HOOK_SHARE * self._step_ns / found.calls)))
        return c

    def sample(self, c: Condition) -> Sample:
        asked = c._replace(competitor=None)
        if c not in self._steps:  # how many steps make a sample; what compiles, compiles here
            once = self._one(asked, 1)
            again = self._one(asked, max(1, round(SAMPLE_S / 4 / (once.ns * 1e-9))))
            self._steps[c] = max(1, round(SAMPLE_S / (again.ns * 1e-9)))
        with self._beside(c.competitor):
            return self._one(asked, self._steps[c])

    def _one(self, c: Condition, steps: int) -> Sample:
        answer = self.ask("sample", n=self.target.batch_size, steps=steps, condition=c._asdict())
        return Sample(answer["ns"] / steps, answer["cpu_ns"] / steps, answer["spun_ns"] / steps)

    def _copy(self, kind: str) -> float:
        with self._beside(kind):
            return self.ask("copy")["ns"]

    @contextlib.contextmanager
    def _beside(self, kind: str | None):
        if kind is None:
            yield
            return
        self.competitors[kind].go()
        try:
            time.sleep(0.002)  # it is at work when the clock starts
            yield
        finally:
            self.competitors[kind].stop()

    def compare(self, before: Condition, after: Condition, rounds: int) -> list[tuple[Sample, Sample]]:
        """Pairs of two conditions, in shuffled order."""
        pairs = []
        for _ in range(rounds):
            first = self.random.random() < 0.5
            taken = [self.sample(c) for c in ((before, after) if first else (after, before))]
            pairs.append((taken[0], taken[1]) if first else (taken[1], taken[0]))
        return pairs
