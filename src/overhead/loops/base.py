"""The contract of a training loop: explicit state and four verbs, each exposing one cost."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload


class Declined(Exception):
    """A loop that cannot run a case says why; the reason is recorded and shown."""


class Op(NamedTuple):
    """One of the thirteen named operations of a training step.

    `call()` enqueues the operation on the newest results of the ones before it; `wait()` returns when it
    is done (for a library that queues nothing, at once). In order, the calls make exactly one step.
    """

    name: str  # z1, a1, z2, softmax, dz2, dw2, da1, dz1, dw1, w1, b1, w2, b2
    group: str  # forward, loss, backward or update
    call: Callable[[], object]
    wait: Callable[[], object]


class Point(NamedTuple):
    """Where a loop hands work over, and how long a wait there must be before each one lengthens the epoch by itself.

    `where`: an attribute of its module, of the loop, of its state or its model ("module:jitted_step"), or its "ops".
    `outlasts`: of loops whose dispatches hide behind the work of another thread, or wake threads that fall asleep
    while they wait: the longest wait, in times per dispatch, half of which outlasts both, so that the slope is that of
    the longer half. None: the loop works and waits in one thread, and the slope is that of all waits.
    """

    where: str
    outlasts: float | None = None


# The thirteen operations in order, with the group that a page adds them up by.
STEP_OPS = {
    "z1": "forward",
    "a1": "forward",
    "z2": "forward",
    "softmax": "forward",
    "dz2": "loss",
    "dw2": "backward",
    "da1": "backward",
    "dz1": "backward",
    "dw1": "backward",
    "w1": "update",
    "b1": "update",
    "w2": "update",
    "b2": "update",
}


def nothing_to_wait_for() -> None:
    """The wait of a library whose calls return when the work is done."""


class Loop(ABC):
    """A training loop on one device. Subclasses are final; each is one variant and one row of the tables.

    `device` is "cpu" or "gpu". Importing a loop's module imports its framework.
    """

    framework: ClassVar[str]  # the package whose version stands beside the figures
    dispatches_at: Point | None = None  # of a loop in the table: `make` takes it from its row

    def __init__(self, device: str = "cpu") -> None:
        self.device = device

    @abstractmethod
    def place(self, params: Params, data: Split, workload: Workload) -> Any:
        """Copy `params` and the training images to the device and build the program; train nothing.

        Never changes `params` or `data`. Raises `Declined` for a case that the loop cannot run.
        """

    @abstractmethod
    def run(self, state: Any, steps: int) -> Any:
        """Enqueue `steps` training steps, going on where the last call stopped and wrapping round the epoch.

        May return before the device is done; the first call may compile.
        """

    @abstractmethod
    def block(self, state: Any) -> None:
        """Return when every step that was enqueued is done."""

    @abstractmethod
    def fetch(self, state: Any) -> Params:
        """The parameters as float32 NumPy arrays: `(w, b)` a layer, w (inputs, outputs), b (outputs,)."""

    @abstractmethod
    def placed_on(self, state: Any) -> tuple[str, str]:
        """The kind ("cpu" or "gpu") and the name of the device that holds the state's arrays."""

    def steps_per_call(self, workload: Workload) -> int:
        """Training steps in one call of the program that is timed: 1, or the whole epoch."""
        return 1

    def settings(self, state: Any) -> dict[str, str]:
        """What the framework resolved by itself and a reader must know (XLA on or off, precision …)."""
        return {}

    def compilations(self) -> int | None:
        """Programs compiled so far in this process; None where the framework does not tell."""
        return None

    def program(self, state: Any) -> str | None:
        """The optimised program that is called (HLO text), where the framework shows it."""
        return None

    def transfers(self, state: Any) -> int | None:
        """Host-device transfers that a step makes without being asked; None where they cannot be counted."""
        return None

    def ops(self, state: Any) -> list[Op]:
        """The thirteen operations of one step (see `STEP_OPS`), or `Declined`."""
        raise Declined(f"{type(self).__name__} has no op-by-op form")
