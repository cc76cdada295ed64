"""Several models in NumPy, one after another: the step of `numpy_` with the loss of its batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, final

import numpy as np

from overhead.loops.many import ManyLoop
from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload


class State(NamedTuple):
    params: list[Params]  # one a model
    rates: list[np.float32]
    batches: list[tuple[Any, Any]]  # views of the training images, in order
    validation: tuple[Any, Any]
    at: int  # the next batch
    losses: Any  # of the last `run`: (steps, models)


# fmt: off
def step(params: Params, x: Any, y: Any, lr: np.float32) -> tuple[Params, np.float32]:
    """One SGD step on softmax cross-entropy. `x`: (batch, inputs) float32; `y`: (batch,) int32."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        inputs.append(np.maximum(inputs[-1] @ w + b, 0))        # (batch, hidden)
    z = inputs[-1] @ params[-1].w + params[-1].b                # (batch, classes)
    z -= z.max(axis=1, keepdims=True)
    rows = np.arange(len(y))
    d = np.exp(z)
    total = d.sum(axis=1, keepdims=True)                        # (batch, 1)
    loss = (np.log(total[:, 0]) - z[rows, y]).mean()
    d /= total
    d[rows, y] -= 1                                             # now the gradient at the logits
    d /= np.float32(len(y))
    updated = []
    for (w, b), a in zip(params[::-1], inputs[::-1]):
        updated.append(Layer(w - lr * (a.T @ d), b - lr * d.sum(axis=0)))
        if a is not x:
            d = (d @ w.T) * (a > 0)                             # (batch, hidden)
    return tuple(updated[::-1]), loss
# fmt: on


@final
class NumpySequentialLoop(ManyLoop):
    """One model after another, a Python loop over batches."""

    framework = "numpy"

    def place_many(self, params: Sequence[Params], rates: Sequence[float], data: Split, workload: Workload) -> State:
        x, y = np.array(data.x[: workload.images_seen]), np.array(data.y[: workload.images_seen])
        batches = list(mlp.batches(x, y, workload))
        own = [tuple(Layer(w.copy(), b.copy()) for w, b in model) for model in params]
        return State(own, [np.float32(rate) for rate in rates], batches, (data.x_val, data.y_val), 0, None)

    def run(self, state: State, steps: int) -> State:
        losses, trained, at = np.empty((steps, len(state.rates)), np.float32), [], state.at
        with np.errstate(all="ignore"):  # a rate that is too high overflows; the losses say so
            for model, (params, lr) in enumerate(zip(state.params, state.rates)):
                at = state.at
                for i in range(steps):
                    params, losses[i, model] = step(params, *state.batches[at], lr)
                    at = (at + 1) % len(state.batches)
                trained.append(params)
        return state._replace(params=trained, at=at, losses=losses)

    def losses(self, state: State) -> Any:
        return state.losses

    def block(self, state: State) -> None:
        pass

    def judge(self, state: State) -> tuple[Any, Any]:
        x, y = state.validation
        accuracy = [mlp.accuracy(params, x, y) if len(y) else np.nan for params in state.params]
        finite = [all(np.isfinite(tensor).all() for tensor in mlp.flat(params)) for params in state.params]
        return np.asarray(accuracy), np.asarray(finite)

    def fetch_many(self, state: State) -> list[Params]:
        return list(state.params)

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"
