"""Training loops in NumPy that allocate nothing, or only what fits the cache."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from overhead.loops.base import Loop
from overhead.loops.numpy_ import place_batches, softmax
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Array = NDArray[Any]  # float32 throughout; the tests check every temporary
Labels = NDArray[np.int32]

CHUNK = 512  # images whose activations and gradients fit a core's second-level cache


class State(NamedTuple):
    params: Params  # updated in place
    batches: list[tuple[Array, Labels]]
    at: int  # the next batch
    lr: np.float32
    made: dict[int, Any]  # by batch length: every array that a step writes to


def buffers(layers: tuple[int, ...], batch: int) -> Any:
    """Every array that one step of `batch` images writes to, made once, and constants of its shapes."""
    hidden, classes = layers[1:-1], layers[-1]
    return SimpleNamespace(
        a=[np.empty((batch, n), np.float32) for n in hidden],       # activations
        d=[np.empty((batch, n), np.float32) for n in hidden],       # gradients before the activations
        live=[np.empty((batch, n), bool) for n in hidden],          # where a ReLU let through
        p=np.empty((classes, batch), np.float32),
        onehot=np.empty((classes, batch), bool),
        image=np.empty(batch, np.float32),
        dw=[np.empty(shape, np.float32) for shape in pairwise(layers)],
        db=[np.empty(n, np.float32) for n in layers[1:]],
        zeros=[np.zeros((batch, n), np.float32) for n in hidden],
        ones=np.ones(batch, np.float32),
        classes=np.arange(classes, dtype=np.int32)[:, None],
    )


def sgd_step_in_place(params: Params, x: Array, y: Labels, lr: np.float32, m: Any) -> None:
    """One SGD step, every result written into an array of `m`. `x`: (batch, inputs); `y`: (batch,).

    As fast as NumPy goes: the classes come first, since it reduces along the first axis about ten times as fast as
    along a last one of ten; `maximum` of two arrays takes a third of the time of `maximum` with a number; a sum over
    the batch is a product with ones; and the learning rate goes into the gradient where that is smallest.
    """
    (*hidden, (w, b)), a = params, x
    for i, (wi, bi) in enumerate(hidden):
        z = np.matmul(a, wi, out=m.a[i])                        # (batch, outputs)
        np.add(z, bi, out=z)
        a = np.maximum(z, m.zeros[i], out=z)
    p = np.matmul(w.T, a.T, out=m.p)                            # (classes, batch)
    np.add(p, b[:, None], out=p)
    np.max(p, axis=0, out=m.image)                              # (batch,)
    np.exp(np.subtract(p, m.image, out=p), out=p)
    np.sum(p, axis=0, out=m.image)
    np.divide(p, m.image, out=p)                                # probabilities
    np.equal(m.classes, y, out=m.onehot)
    np.subtract(p, m.onehot, out=p)                             # now the gradient at the logits
    np.multiply(p, lr / np.float32(len(y)), out=p)              # and from here on what is subtracted
    d = p.T                                                     # (batch, classes)
    for i in range(len(hidden), -1, -1):
        w, b = params[i]
        a = m.a[i - 1] if i else x
        np.matmul(a.T, d, out=m.dw[i])                          # (inputs, outputs)
        np.matmul(m.ones, d, out=m.db[i])                       # (outputs,)
        if i:                                                   # nobody needs the gradient of the pixels
            np.greater(a, m.zeros[i - 1], out=m.live[i - 1])
            np.matmul(d, w.T, out=m.d[i - 1])                   # (batch, inputs)
            d = np.multiply(m.d[i - 1], m.live[i - 1], out=m.d[i - 1])
        np.subtract(w, m.dw[i], out=w)
        np.subtract(b, m.db[i], out=b)


@final
class NumpyPreallocatedLoop(Loop):
    """The NumPy loop with `out=` everywhere: a step allocates no array, so it faults in no page."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        state = place_batches(params, data, workload)
        lengths = {len(y) for _, y in state.batches}
        return State(*state, {n: buffers(workload.layers, n) for n in lengths})

    def run(self, state: State, steps: int) -> State:
        params, batches, at, lr, made = state
        for _ in range(steps):
            x, y = batches[at]
            sgd_step_in_place(params, x, y, lr, made[len(y)])
            at = (at + 1) % len(batches)
        return State(params, batches, at, lr, made)

    def block(self, state: State) -> None:
        pass

    def fetch(self, state: State) -> Params:
        return tuple(Layer(w.copy(), b.copy()) for w, b in state.params)

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"


@final
class NumpyChunkedLoop(Loop):
    """The NumPy loop with one update a batch, its gradient added up from chunks that fit the cache."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return State(*place_batches(params, data, workload), {})

    def run(self, state: State, steps: int) -> State:
        params, batches, at, lr, _ = state
        for _ in range(steps):
            x, y = batches[at]
            params = chunked_step(params, x, y, lr)
            at = (at + 1) % len(batches)
        return state._replace(params=params, at=at)

    def block(self, state: State) -> None:
        pass

    def fetch(self, state: State) -> Params:
        return state.params

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"


def chunked_step(params: Params, x: Array, y: Labels, lr: np.float32) -> Params:
    """One SGD step whose gradient is the sum over chunks of the batch. `x`: (batch, inputs); `y`: (batch,)."""
    total = [Layer(np.zeros_like(w), np.zeros_like(b)) for w, b in params]
    for start in range(0, len(y), CHUNK):
        xc, yc = x[start : start + CHUNK], y[start : start + CHUNK]
        inputs = [xc]                                           # of each layer
        for w, b in params[:-1]:
            inputs.append(np.maximum(inputs[-1] @ w + b, 0))    # (chunk, hidden)
        d = softmax(inputs[-1] @ params[-1].w + params[-1].b)   # (chunk, classes)
        d[np.arange(len(yc)), yc] -= 1                          # now the gradient at the logits
        d /= np.float32(len(y))
        for (w, _), (dw, db), a in zip(params[::-1], total[::-1], inputs[::-1]):
            dw += a.T @ d                                       # (inputs, outputs)
            db += d.sum(axis=0)                                 # (outputs,)
            if a is not xc:                                     # nobody needs the gradient of the pixels
                d = (d @ w.T) * (a > 0)                         # (chunk, hidden)
    return tuple(Layer(w - lr * dw, b - lr * db) for (w, b), (dw, db) in zip(params, total))
