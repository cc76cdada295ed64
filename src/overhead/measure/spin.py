"""Dispatch measured by cause: a busy wait at every dispatch that a loop makes, without touching the loop's code.

The slope of the time against the wait is the number of dispatches that the loop exposes. A dispatch that is
hidden behind work of another thread or device lengthens nothing and is not counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from overhead.loops import LOOPS
from overhead.loops.base import STEP_OPS, Declined, Loop, Point
from overhead.machine import timer as timers
from overhead.measure import clock as timing
from overhead.problem.workload import Workload


class Spinner:
    """Waits busily for `spin_ns` before each call it stands around; counts the calls and the time it spent."""

    def __init__(self, spin_ns: int, now: timers.Clock = timers.clock) -> None:
        self.spin_ns, self.now = spin_ns, now
        self.dispatches, self.spun_ns = 0, 0

    def wait(self) -> None:
        now, start = self.now, self.now()
        end = start
        while end - start < self.spin_ns:
            end = now()
        self.dispatches += 1
        self.spun_ns += end - start

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`call` with the wait before it."""

        def waited(*arguments: Any, **named: Any) -> Any:
            self.wait()
            return call(*arguments, **named)

        return waited


def point_of(loop: str) -> Point | None:
    """Where a loop of the table says that it dispatches; None where it does not, or is no longer in the table."""
    info = LOOPS.get(loop)
    return info.dispatches_at if info else None


def expected(point: Point, workload: Workload) -> int:
    """Dispatches an epoch that a loop with this point makes by its design."""
    if point.where == "ops":
        return len(STEP_OPS) * workload.steps
    return 1 if point.where == "loop:epoch" else workload.steps


def sample(loop: Loop, state: Any, steps: int, spin_ns: int) -> tuple[Any, dict[str, int]]:
    """Run `steps` steps (of the ops, for a loop that is dispatched op by op) with the wait at every dispatch.

    Returns the new state and nanoseconds of the whole (`wall_ns`) and of the waits (`spun_ns`), with the number of
    dispatches. Raises `Declined` for a loop that does not say where it dispatches.
    """
    if loop.dispatches_at is None:
        raise Declined(f"{type(loop).__name__} does not say where it dispatches")
    point, spinner = loop.dispatches_at.where, Spinner(spin_ns)
    if point == "ops":
        ops = [op._replace(call=spinner.around(op.call)) for op in loop.ops(state)]
        timing.measure_unread(ops, 2)
        spinner.dispatches, spinner.spun_ns = 0, 0
        wall_ns = sum(timing.measure_unread(ops, steps))
    else:
        with _in_place(point, loop, state, spinner) as spinning:
            spun, found = timing.measure(loop, spinning, steps)
            wall_ns = found.wall_ns
        state = spun._replace(step=state.step) if point == "state:step" else spun
    return state, {"wall_ns": wall_ns, "dispatches": spinner.dispatches, "spun_ns": spinner.spun_ns}


@contextmanager
def _in_place(point: str, loop: Loop, state: Any, spinner: Spinner) -> Iterator[Any]:
    """The state to run with, while what the loop dispatches is wrapped; put back afterwards."""
    where, _, name = point.partition(":")
    if where == "state":
        yield state._replace(**{name: spinner.around(getattr(state, name))})
        return
    owner = {"module": importlib.import_module(type(loop).__module__), "loop": loop}.get(where) or state.model
    own = getattr(owner, name)
    setattr(owner, name, spinner.around(own))
    try:
        yield state
    finally:
        setattr(owner, name, own)
