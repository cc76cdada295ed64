"""One model with Keras's `fit`, as a task of the article's pool: validated after each epoch, the accuracy tracked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from overhead.loops.base import Declined
from overhead.loops.keras_ import KerasFitValidatedLoop
from overhead.loops.many import ManyLoop
from overhead.problem.data import Split
from overhead.problem.mlp import Params, flat
from overhead.problem.workload import Workload


class State(NamedTuple):
    fitted: Any  # the state of `keras-fit-validated`
    history: list[dict[str, float]]  # of the last `run`, an epoch each


@final
class KerasPoolLoop(ManyLoop):
    """`fit` with the article's settings. Keras tells the mean loss of an epoch, not that of each batch."""

    framework = "tensorflow"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.loop = KerasFitValidatedLoop(device)

    def place_many(self, params: Sequence[Params], rates: Sequence[float], data: Split, workload: Workload) -> State:
        if len(params) != 1:
            raise Declined(f"a task of the Keras pool trains one model, got {len(params)}")
        given = workload.model_copy(update={"learning_rate": float(rates[0])})
        return State(self.loop.place(params[0], data, given), [])

    def run(self, state: State, steps: int) -> State:
        """Whole epochs only."""
        epochs, left = divmod(steps, state.fitted.epoch)
        if left:
            raise Declined(f"the Keras pool trains whole epochs of {state.fitted.epoch} steps, got {steps}")
        fitted, history = state.fitted, []
        for _ in range(epochs):
            fitted = self.loop.run(fitted, fitted.epoch)
            told = fitted.model.history.history
            history.append({name: float(values[-1]) for name, values in told.items()})
        return State(fitted, history)

    def losses(self, state: State) -> Any:
        """The mean of each epoch in the place of its steps: (epochs, 1)."""
        return np.asarray([[epoch["loss"]] for epoch in state.history])

    def judge(self, state: State) -> tuple[Any, Any]:
        finite = all(np.isfinite(tensor).all() for tensor in flat(self.loop.fetch(state.fitted)))
        return np.asarray([state.history[-1]["val_accuracy"]]), np.asarray([finite])

    def block(self, state: State) -> None:
        self.loop.block(state.fitted)

    def fetch_many(self, state: State) -> list[Params]:
        return [self.loop.fetch(state.fitted)]

    def placed_on(self, state: State) -> tuple[str, str]:
        return self.loop.placed_on(state.fitted)

    def settings(self, state: State) -> dict[str, str]:
        return self.loop.settings(state.fitted)

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps
