"""Dispatch measured by cause: a busy wait at every dispatch that a loop makes, without touching the loop's code.

The slope of the time against the wait is the number of dispatches that the loop exposes. A dispatch that is
hidden behind work of another thread or device lengthens nothing and is not counted.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from overhead.loops.base import Loop
from overhead.machine import timer as timers
from overhead.measure import clock as timing
from overhead.problem.workload import Workload


class Point(NamedTuple):
    """Where a loop hands work over, and how long a wait there must be before each one lengthens the epoch by itself.

    `where`: an attribute of its module, of the loop, of its state or its model, or its ops. `outlasts`: of loops whose
    dispatches hide behind the work of another thread, or wake threads that fall asleep while they wait: the longest
    wait, in times per dispatch, half of which outlasts both, so that the slope is that of the longer half. None: the
    loop works and waits in one thread, and the slope is that of all waits.
    """

    where: str
    outlasts: float | None = None


POINTS = {
    "JaxStepLoop": Point("module:jitted_step", 2.5),
    "JaxEpochLoop": Point("loop:epoch"),
    "TfStepLoop": Point("state:step", 2.0),
    "KerasFitLoop": Point("model:train_function", 2.0),
    "NumpyLoop": Point("ops"),
    "TfEagerLoop": Point("ops", 12.0),
    "JaxOpByOpLoop": Point("ops", 12.0),
    "CupyLoop": Point("ops"),
}  # by the loop's class
OPS_A_STEP = 13


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


def expected(loop: str, workload: Workload) -> int:
    """Dispatches an epoch that the loop makes by its design. Raises `KeyError` for a loop without a declared point."""
    from overhead.loops import LOOPS

    point = POINTS[LOOPS[loop].cls].where
    if point == "ops":
        return OPS_A_STEP * workload.steps
    return 1 if point == "loop:epoch" else workload.steps


def sample(loop: Loop, state: Any, steps: int, spin_ns: int) -> tuple[Any, dict[str, int]]:
    """Run `steps` steps (of the ops, for a loop that is dispatched op by op) with the wait at every dispatch.

    Returns the new state and nanoseconds of the whole (`wall_ns`) and of the waits (`spun_ns`), with the number of
    dispatches. Raises `KeyError` for a loop without a declared point.
    """
    point, spinner = POINTS[type(loop).__name__].where, Spinner(spin_ns)
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
