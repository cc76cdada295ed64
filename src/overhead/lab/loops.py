"""Training loops on the simulated device. They learn what the others learn: NumPy does that while the host waits.

What is left when the parameters are fetched is done then, so that no step is charged for it.

Started like any loop, as `overhead.lab.loops:Fused`, with the device's name in the variable `OVERHEAD_LAB_GPU`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar, final

from overhead.lab.device import Simulated, kernels_s, preset
from overhead.loops.base import Loop
from overhead.loops.numpy_ import NumpyLoop
from overhead.model.census import CENSUS, Census
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload

VARIABLE, SLOWER = "OVERHEAD_LAB_GPU", "OVERHEAD_LAB_SLOWER"
# What chapter 8 counts of a step: operators called one by one, or few kernels of a compiled step.
UNFUSED, COMPILED = CENSUS["cupy"], CENSUS["jax-step"]


@dataclass
class State:
    device: Simulated
    step_s: list[float]  # of the device, a kernel each
    numpy: Any  # the state of the NumPy loop, behind by `owed` steps
    owed: int = 0


class LabLoop(Loop):
    """What the variants share. `clock` of the device is real unless a test puts another in its place."""

    framework = "numpy"
    census: ClassVar[Census] = COMPILED  # kernels, launches and bytes of a step
    clock: Any = None

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        gpu = preset(os.environ.get(VARIABLE, "RTX 3060"))
        self.quietly = NumpyLoop("cpu")
        device = Simulated(gpu, self.clock)
        device.copy(data.x.nbytes)
        step_s = kernels_s(gpu, self.census, workload, float(os.environ.get(SLOWER, 1)))
        return State(device, step_s, self.quietly.place(params, data, workload))

    def run(self, state: State, steps: int) -> State:
        host_s = state.device.device.python_op_s if self.census.op_by_op else 0.0
        for _ in range(steps):
            for kernel_s in state.step_s:
                state.device.launch(kernel_s, host_s)
        state.owed += steps
        return state

    def block(self, state: State) -> None:
        state.device.synchronise(lambda: self.catch_up(state))

    def catch_up(self, state: State) -> bool:
        """Train one step that is owed; False where none is."""
        if state.owed:
            state.numpy, state.owed = self.quietly.run(state.numpy, 1), state.owed - 1
        return state.owed > 0

    def fetch(self, state: State) -> Params:
        size = sum(w.nbytes + b.nbytes for w, b in state.numpy.params)
        state.device.copy(size, lambda: self.catch_up(state))
        state.numpy, state.owed = self.quietly.run(state.numpy, state.owed), 0
        return self.quietly.fetch(state.numpy)

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", f"simulated {state.device.device.name}"

    def settings(self, state: State) -> dict[str, str]:
        return {"simulated": "true"}


@final
class OpByOp(LabLoop):
    """An operator, a launch: each goes through Python."""

    census = UNFUSED


@final
class Fused(LabLoop):
    """The compiled step: few kernels, launched one by one."""


class Graph(LabLoop):
    """The unfused step captured in a graph: one launch of all its kernels."""

    census = UNFUSED._replace(launches="step", op_by_op=False)

    def run(self, state: State, steps: int) -> State:
        for _ in range(steps):
            state.device.launch(sum(state.step_s))
        state.owed += steps
        return state


@final
class FusedGraph(Graph):
    """The compiled step captured in a graph."""

    census = COMPILED._replace(launches="step")


@final
class ForgetsToWait(Graph):
    """The graph again, timed by somebody who does not wait for the device."""

    def block(self, state: State) -> None:
        pass
