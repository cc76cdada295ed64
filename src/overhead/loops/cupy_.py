"""Training loops in CuPy: the article's port of its layer objects, and a step a batch.

CuPy is imported when a case is placed, so that this file can be read, listed and tested without a GPU: a
loop's `xp` is its array module, and the tests put NumPy there.
"""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import numpy as np

from overhead.loops.base import STEP_OPS, Declined, Loop, Op
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Array = Any  # cupy.ndarray, on the device


def usable_cupy() -> Any:
    """The `cupy` module, once it has run a kernel and a product.

    CuPy imports without a GPU, and with a CUDA that does not fit its wheel; only the first use tells.
    Raises `Declined` with what that use said.
    """
    try:
        import cupy  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise Declined(f"CuPy cannot be imported: {one_line(error)}") from None
    try:
        ones = cupy.ones((2, 2), np.float32)
        total = float((ones @ ones + ones).sum())  # cuBLAS, and two kernels that NVRTC compiles
    except Exception as error:  # whatever a driver, a compiler or a library may raise
        raise Declined(f"CuPy cannot run a kernel here: {one_line(error)}") from None
    if total != 12:
        raise Declined(f"CuPy's first kernels must give 12, got {total:g}")
    return cupy


def one_line(error: Exception) -> str:
    """The type and the text of an error without its line breaks and rules, at most 200 characters."""
    words = [word for word in str(error).split() if word.strip("=-")]
    return f"{type(error).__name__}: {' '.join(words)}"[:200]


def matmul_precision() -> str:
    """What float32 products are computed in: `float32`, or `tf32` where CUPY_TF32 asks for it."""
    return "tf32" if int(os.environ.get("CUPY_TF32", "0")) > 0 else "float32"


class State(NamedTuple):
    xp: Any  # the array module: CuPy
    params: tuple[Layer, ...]  # on the device
    batches: list[tuple[Array, Array]]  # views of the training images on the device, in order
    at: int  # the next batch
    lr: float  # a Python number takes the dtype of the array it meets, float32


def place_batches(xp: Any, params: Params, data: Split, workload: Workload) -> State:
    """Copy the parameters and, once, the images to the device; batches are views."""
    x, y = xp.array(data.x), xp.array(data.y)
    seen, size = workload.images_seen, workload.batch_size
    return State(
        xp=xp,
        params=tuple(Layer(xp.array(w), xp.array(b)) for w, b in params),
        batches=[(x[i : min(i + size, seen)], y[i : min(i + size, seen)]) for i in range(0, seen, size)],
        at=0,
        lr=workload.learning_rate,
    )


class OnGpu(Loop):
    """What the CuPy variants share: the array module, waiting, fetching, and where the arrays are."""

    framework = "cupy"
    xp: Any = None  # None: CuPy, tried out when a case is placed

    def array_module(self) -> Any:
        return self.xp or usable_cupy()

    def block(self, state: Any) -> None:
        state.xp.cuda.get_current_stream().synchronize()

    def fetch(self, state: Any) -> Params:
        return tuple(Layer(state.xp.asnumpy(w), state.xp.asnumpy(b)) for w, b in state.params)

    def placed_on(self, state: Any) -> tuple[str, str]:
        w = state.params[0].w
        if isinstance(w, np.ndarray):  # the tests' stand-in never passes for a GPU
            return "cpu", "host memory"
        properties = state.xp.cuda.runtime.getDeviceProperties(w.device.id)
        return "gpu", properties["name"].decode()

    def settings(self, state: Any) -> dict[str, str]:
        return {"matmul_precision": matmul_precision()}


@final
class CupyLoop(OnGpu):
    """The NumPy loop with another array module: some thirty kernels a step, each launched from Python."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        return place_batches(self.array_module(), params, data, workload)

    def run(self, state: State, steps: int) -> State:
        xp, params, batches, at, lr = state
        for _ in range(steps):
            x, y = batches[at]
            sgd_step(xp, params, x, y, lr)
            at = (at + 1) % len(batches)
        return State(xp, params, batches, at, lr)

    def ops(self, state: State) -> list[Op]:
        if len(state.params) != 2:
            raise Declined(f"the thirteen ops are those of two layers, got {len(state.params)}")
        return step_ops(state)


# fmt: off
def sgd_step(xp: Any, params: Any, x: Array, y: Array, lr: float) -> None:
    """One SGD step on softmax cross-entropy, in place. `x`: (batch, inputs) float32; `y`: (batch,) int32."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        inputs.append(xp.maximum(inputs[-1] @ w + b, 0))        # (batch, hidden)
    z = inputs[-1] @ params[-1].w + params[-1].b                # (batch, classes)
    e = xp.exp(z - z.max(axis=1, keepdims=True))
    d = e / e.sum(axis=1, keepdims=True)
    d[xp.arange(len(y)), y] -= 1                                # now the gradient at the logits
    d /= len(y)
    for (w, b), a in zip(params[::-1], inputs[::-1]):
        dw, db = a.T @ d, d.sum(axis=0)                         # (inputs, outputs), (outputs,)
        if a is not x:                                          # nobody needs the gradient of the pixels
            d = (d @ w.T) * (a > 0)                             # (batch, hidden)
        dw *= lr
        w -= dw
        b -= lr * db


def step_ops(state: State) -> list[Op]:
    """The article's thirteen operations; each waits for the stream, which holds nothing else."""
    xp, batches = state.xp, state.batches
    (w1, b1), (w2, b2) = state.params
    s = SimpleNamespace(w1=w1.copy(), b1=b1.copy(), w2=w2.copy(), b2=b2.copy(), at=state.at, lr=state.lr)
    rows = {len(y): xp.arange(len(y)) for _, y in batches}
    wait = xp.cuda.get_current_stream().synchronize

    def z1():
        s.x, s.y = batches[s.at]
        s.at = (s.at + 1) % len(batches)
        s.z1 = s.x @ s.w1 + s.b1                                # (batch, hidden)

    def a1():
        s.a1 = xp.maximum(s.z1, 0)                              # (batch, hidden)

    def z2():
        s.z2 = s.a1 @ s.w2 + s.b2                               # (batch, classes)

    def softmax():
        e = xp.exp(s.z2 - s.z2.max(axis=1, keepdims=True))
        s.p = e / e.sum(axis=1, keepdims=True)                  # (batch, classes)

    def dz2():
        s.dz2 = s.p.copy()
        s.dz2[rows[len(s.y)], s.y] -= 1
        s.dz2 /= len(s.y)                                       # (batch, classes)

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

    calls = [z1, a1, z2, softmax, dz2, dw2, da1, dz1, dw1, update_w1, update_b1, update_w2, update_b2]
    return [Op(*named, call, wait) for named, call in zip(STEP_OPS.items(), calls, strict=True)]


class HiddenLayer:
    """The article's hidden layer, ported: `W` (outputs, inputs) times one image (inputs,)."""

    def __init__(self, xp: Any, w: Array, b: Array) -> None:
        self.xp, self.W, self.b = xp, w.T.copy(), b             # (outputs, inputs), (outputs,)
        self.dW, self.db = xp.zeros_like(self.W), xp.zeros_like(self.b)

    def forward(self, x: Array) -> Array:
        self.x = x                                              # (inputs,)
        self.z = self.W @ x + self.b                            # (outputs,)
        self.out = self.xp.maximum(0, self.z)
        return self.out

    def backward(self, d_out: Array) -> Array:
        dz = d_out * (self.z > 0)                               # (outputs,)
        self.dW += self.xp.outer(dz, self.x)                    # (outputs, inputs)
        self.db += dz
        return self.W.T @ dz                                    # (inputs,)

    def update(self, scale: float) -> None:
        self.W -= scale * self.dW
        self.b -= scale * self.db
        self.dW.fill(0)
        self.db.fill(0)


class OutputLayer:
    """The article's output layer, ported: softmax of one image's scores."""

    def __init__(self, xp: Any, w: Array, b: Array) -> None:
        self.xp, self.W, self.b = xp, w.T.copy(), b             # (classes, hidden), (classes,)
        self.dW, self.db = xp.zeros_like(self.W), xp.zeros_like(self.b)

    def forward(self, x: Array) -> Array:
        self.x = x                                              # (hidden,)
        self.z = self.W @ x + self.b                            # (classes,)
        exp = self.xp.exp(self.z - self.xp.max(self.z))
        self.probs = exp / self.xp.sum(exp)
        return self.probs

    def backward(self, label: int) -> Array:
        dz = self.probs.copy()
        dz[label] -= 1                                          # (classes,)
        self.dW += self.xp.outer(dz, self.x)                    # (classes, hidden)
        self.db += dz
        return self.W.T @ dz                                    # (hidden,)

    update = HiddenLayer.update
# fmt: on


class PerImageState(NamedTuple):
    xp: Any
    hidden: HiddenLayer
    output: OutputLayer
    batches: list[tuple[Array, list[int]]]  # labels on the host: reading one off the device would wait for it
    at: int
    lr: float

    @property
    def params(self) -> tuple[Layer, ...]:
        return tuple(Layer(layer.W.T, layer.b) for layer in (self.hidden, self.output))


@final
class CupyPerImageLoop(OnGpu):
    """The article's port: the layer objects with CuPy for NumPy, some twenty kernels an image."""

    def place(self, params: Params, data: Split, workload: Workload) -> PerImageState:
        if len(params) != 2:
            raise Declined(f"the article's layer objects are two, got {len(params)} layers")
        xp, placed, batches, at, lr = place_batches(self.array_module(), params, data, workload)
        hidden, output = HiddenLayer(xp, *placed[0]), OutputLayer(xp, *placed[1])
        return PerImageState(xp, hidden, output, [(x, xp.asnumpy(y).tolist()) for x, y in batches], at, lr)

    def run(self, state: PerImageState, steps: int) -> PerImageState:
        xp, hidden, output, batches, at, lr = state
        for _ in range(steps):
            xs, ys = batches[at]
            for x, y in zip(xs, ys):
                output.forward(hidden.forward(x))
                hidden.backward(output.backward(y))
            hidden.update(lr / len(ys))
            output.update(lr / len(ys))
            at = (at + 1) % len(batches)
        return PerImageState(xp, hidden, output, batches, at, lr)
