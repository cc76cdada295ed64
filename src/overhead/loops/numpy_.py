"""Training loops in NumPy. Calls return when the work is done, so `block` has nothing to wait for."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from overhead.loops.base import STEP_OPS, Declined, Loop, Op, nothing_to_wait_for
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Array = NDArray[Any]  # float32 throughout; the tests check every temporary
Labels = NDArray[np.int32]


class State(NamedTuple):
    params: Params
    batches: list[tuple[Array, Labels]]  # views of the training images, in order
    at: int  # the next batch
    lr: np.float32


def place_batches(params: Params, data: Split, workload: Workload) -> State:
    """Own copies of the parameters and the images, and a view a batch."""
    x, y = np.array(data.x), np.array(data.y)
    x, y = x[: workload.images_seen], y[: workload.images_seen]
    size = workload.batch_size
    return State(
        params=tuple(Layer(w.copy(), b.copy()) for w, b in params),
        batches=[(x[i : i + size], y[i : i + size]) for i in range(0, len(y), size)],
        at=0,
        lr=np.float32(workload.learning_rate),
    )


@final
class NumpyLoop(Loop):
    """The loop one writes by hand: a Python loop over batches, every product a BLAS call."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return place_batches(params, data, workload)

    def run(self, state: State, steps: int) -> State:
        params, batches, at, lr = state
        for _ in range(steps):
            x, y = batches[at]
            sgd_step(params, x, y, lr)
            at = (at + 1) % len(batches)
        return State(params, batches, at, lr)

    def block(self, state: State) -> None:
        pass

    def fetch(self, state: State) -> Params:
        return tuple(Layer(w.copy(), b.copy()) for w, b in state.params)

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"

    def ops(self, state: State) -> list[Op]:
        if len(state.params) != 2:
            raise Declined(f"the thirteen ops are those of two layers, got {len(state.params)}")
        return step_ops(state)


def sgd_step(params: Params, x: Array, y: Labels, lr: np.float32) -> None:
    """One SGD step on softmax cross-entropy, in place. `x`: (batch, inputs) float32; `y`: (batch,) int32."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        inputs.append(np.maximum(inputs[-1] @ w + b, 0))        # (batch, hidden)
    d = softmax(inputs[-1] @ params[-1].w + params[-1].b)       # (batch, classes)
    d[np.arange(len(y)), y] -= 1                                # now the gradient at the logits
    d /= np.float32(len(y))
    for (w, b), a in zip(params[::-1], inputs[::-1]):
        dw, db = a.T @ d, d.sum(axis=0)                         # (inputs, outputs), (outputs,)
        if a is not x:                                          # nobody needs the gradient of the pixels
            d = (d @ w.T) * (a > 0)                             # (batch, hidden)
        dw *= lr
        w -= dw
        b -= lr * db


def softmax(z: Array) -> Array:
    """Probabilities along the last axis. `z`: (batch, classes)."""
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def step_ops(state: State) -> list[Op]:
    """The article's thirteen operations; `z1` also takes the next batch, which is two list look-ups."""
    (w1, b1), (w2, b2) = state.params
    s = SimpleNamespace(w1=w1.copy(), b1=b1.copy(), w2=w2.copy(), b2=b2.copy(), at=state.at, lr=state.lr)
    batches, rows = state.batches, {len(y): np.arange(len(y)) for _, y in state.batches}

    def z1():
        s.x, s.y = batches[s.at]
        s.at = (s.at + 1) % len(batches)
        s.z1 = s.x @ s.w1 + s.b1                                # (batch, hidden)

    def a1():
        s.a1 = np.maximum(s.z1, 0)                              # (batch, hidden)

    def z2():
        s.z2 = s.a1 @ s.w2 + s.b2                               # (batch, classes)

    def softmax_():
        e = np.exp(s.z2 - s.z2.max(axis=1, keepdims=True))
        s.p = e / e.sum(axis=1, keepdims=True)                  # (batch, classes)

    def dz2():
        s.dz2 = s.p.copy()
        s.dz2[rows[len(s.y)], s.y] -= 1
        s.dz2 /= np.float32(len(s.y))                           # (batch, classes)

    def dw2():
        s.dw2 = s.a1.T @ s.dz2                                  # (hidden, classes)

    def da1():
        s.da1 = s.dz2 @ s.w2.T                                  # (batch, hidden)

    def dz1():
        s.dz1 = s.da1 * (s.z1 > 0)                              # (batch, hidden)

    def dw1():
        s.dw1 = s.x.T @ s.dz1                                   # (inputs, hidden)

    def update_w1():
        s.w1 -= s.lr * s.dw1

    def update_b1():
        s.b1 -= s.lr * s.dz1.sum(axis=0)

    def update_w2():
        s.w2 -= s.lr * s.dw2

    def update_b2():
        s.b2 -= s.lr * s.dz2.sum(axis=0)

    calls = [z1, a1, z2, softmax_, dz2, dw2, da1, dz1, dw1, update_w1, update_b1, update_w2, update_b2]
    return [Op(*named, call, nothing_to_wait_for) for named, call in zip(STEP_OPS.items(), calls)]


class HiddenLayer:
    """The article's hidden layer: `W` (outputs, inputs) times one image (inputs,)."""

    def __init__(self, w: Array, b: Array) -> None:
        self.W, self.b = w.T.copy(), b.copy()                   # (outputs, inputs), (outputs,)
        self.dW, self.db = np.zeros_like(self.W), np.zeros_like(self.b)

    def forward(self, x: Array) -> Array:
        self.x = x                                              # (inputs,)
        self.z = self.W @ x + self.b                            # (outputs,)
        self.out = np.maximum(0, self.z)
        return self.out

    def backward(self, d_out: Array) -> Array:
        dz = d_out * (self.z > 0)                               # (outputs,)
        self.dW += np.outer(dz, self.x)                         # (outputs, inputs)
        self.db += dz
        return self.W.T @ dz                                    # (inputs,)

    def update(self, scale: np.float32) -> None:
        self.W -= scale * self.dW
        self.b -= scale * self.db
        self.dW[:], self.db[:] = 0, 0


class OutputLayer:
    """The article's output layer: softmax of one image's scores."""

    def __init__(self, w: Array, b: Array) -> None:
        self.W, self.b = w.T.copy(), b.copy()                   # (classes, hidden), (classes,)
        self.dW, self.db = np.zeros_like(self.W), np.zeros_like(self.b)

    def forward(self, x: Array) -> Array:
        self.x = x                                              # (hidden,)
        self.z = self.W @ x + self.b                            # (classes,)
        exp = np.exp(self.z - np.max(self.z))
        self.probs = exp / np.sum(exp)
        return self.probs

    def backward(self, label: int) -> Array:
        dz = self.probs.copy()
        dz[label] -= 1                                          # (classes,)
        self.dW += np.outer(dz, self.x)                         # (classes, hidden)
        self.db += dz
        return self.W.T @ dz                                    # (hidden,)

    update = HiddenLayer.update


class PerImageState(NamedTuple):
    hidden: HiddenLayer
    output: OutputLayer
    batches: list[tuple[Array, Labels]]
    at: int
    lr: np.float32


@final
class NumpyPerImageLoop(Loop):
    """The article's layer objects: forward and backward an image at a time, one update a batch."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> PerImageState:
        if len(params) != 2:
            raise Declined(f"the article's layer objects are two, got {len(params)} layers")
        state = place_batches(params, data, workload)
        hidden, output = HiddenLayer(*params[0]), OutputLayer(*params[1])
        return PerImageState(hidden, output, state.batches, 0, state.lr)

    def run(self, state: PerImageState, steps: int) -> PerImageState:
        hidden, output, batches, at, lr = state
        for _ in range(steps):
            xs, ys = batches[at]
            for x, y in zip(xs, ys):
                output.forward(hidden.forward(x))
                hidden.backward(output.backward(y))
            scale = lr / np.float32(len(ys))
            hidden.update(scale)
            output.update(scale)
            at = (at + 1) % len(batches)
        return PerImageState(hidden, output, batches, at, lr)

    def block(self, state: PerImageState) -> None:
        pass

    def fetch(self, state: PerImageState) -> Params:
        hidden, output = state.hidden, state.output
        return Layer(hidden.W.T.copy(), hidden.b), Layer(output.W.T.copy(), output.b)

    def placed_on(self, state: PerImageState) -> tuple[str, str]:
        return "cpu", "host memory"


class FloorState(NamedTuple):
    batches: list[Array]
    made: dict[int, Any]  # by batch length: weights and the arrays that hold the products
    at: int


@final
class NumpyFloor(Loop):
    """Not a loop: the step's matrix products over all batches in order, into arrays made beforehand."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> FloorState:
        state = place_batches(params, data, workload)
        made: dict[int, Any] = {}
        for x, _ in state.batches:
            if len(x) not in made:
                made[len(x)] = SimpleNamespace(
                    w=[w for w, _ in state.params],
                    a=[np.empty((len(x), n), np.float32) for n in workload.layers[1:]],
                    dw=[np.empty(shape, np.float32) for shape in pairwise(workload.layers)],
                    da=[np.empty((len(x), n), np.float32) for n in workload.layers[1:-1]],
                )
        return FloorState([x for x, _ in state.batches], made, 0)

    def run(self, state: FloorState, steps: int) -> FloorState:
        batches, made, at = state
        for _ in range(steps):
            x = batches[at]
            matrix_products(x, made[len(x)])
            at = (at + 1) % len(batches)
        return FloorState(batches, made, at)

    def block(self, state: FloorState) -> None:
        pass

    def fetch(self, state: FloorState) -> Params:
        raise Declined("the floor learns nothing")

    def placed_on(self, state: FloorState) -> tuple[str, str]:
        return "cpu", "host memory"


def matrix_products(x: Array, made: Any) -> None:
    """Forward, weight gradients and input gradients, the products alone. `x`: (batch, inputs)."""
    a = x
    for w, out in zip(made.w, made.a):
        a = np.matmul(a, w, out=out)                            # (batch, outputs)
    d = made.a[-1]                                              # stands in for the gradient at the logits
    for i in reversed(range(len(made.w))):
        a = made.a[i - 1] if i else x
        np.matmul(a.T, d, out=made.dw[i])                       # (inputs, outputs)
        if i:
            d = np.matmul(d, made.w[i].T, out=made.da[i - 1])   # (batch, inputs)
