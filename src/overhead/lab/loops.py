"""Training loops on the simulated device. They learn what the others learn: NumPy does that while the host waits.

What is left when the parameters are fetched is done then, so that no step is charged for it.

Started like any loop, as `overhead.lab.loops:Fused`, with the device's name in the variable `OVERHEAD_LAB_GPU`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, ClassVar, final

from overhead.lab.device import Simulated, elementwise_s, preset, products_s
from overhead.loops.base import Loop
from overhead.loops.numpy_ import NumpyLoop
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload

VARIABLE = "OVERHEAD_LAB_GPU"
OPERATORS = 24  # elementwise kernels of a step without fusion: bias, ReLU, softmax, its gradient, sums, updates
FUSED = 4  # … of a step whose elementwise work is fused between the products
PYTHON_OPERATOR_S = 11e-6  # an operator's way through Python and CuPy, on the host (cupy/cupy#3298)


@dataclass
class State:
    device: Simulated
    step_s: list[float]  # of the device, a kernel each
    numpy: Any  # the state of the NumPy loop, behind by `owed` steps
    owed: int = 0


class LabLoop(Loop):
    """What the variants share. `clock` of the device is real unless a test puts another in its place."""

    framework = "numpy"
    elementwise: ClassVar[int] = FUSED
    host_s: ClassVar[float] = 0.0  # before each launch
    clock: Any = None

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        gpu = preset(os.environ.get(VARIABLE, "RTX 3060"))
        self.quietly = NumpyLoop("cpu")
        device = Simulated(gpu, self.clock)
        device.copy(data.x.nbytes)
        step_s = products_s(gpu, workload) + elementwise_s(gpu, workload, self.elementwise)
        return State(device, step_s, self.quietly.place(params, data, workload))

    def run(self, state: State, steps: int) -> State:
        for _ in range(steps):
            for kernel_s in state.step_s:
                state.device.launch(kernel_s, self.host_s)
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

    elementwise, host_s = OPERATORS, PYTHON_OPERATOR_S


@final
class Fused(LabLoop):
    """The products, and four kernels between them."""


class Graph(LabLoop):
    """The unfused step captured in a graph: one launch of all its kernels."""

    elementwise = OPERATORS

    def run(self, state: State, steps: int) -> State:
        for _ in range(steps):
            state.device.launch(sum(state.step_s))
        state.owed += steps
        return state


@final
class FusedGraph(Graph):
    """The fused step captured in a graph."""

    elementwise = FUSED


@final
class ForgetsToWait(Graph):
    """The graph again, timed by somebody who does not wait for the device."""

    def block(self, state: State) -> None:
        pass
