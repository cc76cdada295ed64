"""Training loops in TensorFlow: op by op, the step as one graph, and the epoch as one XLA program."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, final

import numpy as np
import tensorflow as tf

from overhead.loops.base import STEP_OPS, Declined, Loop, Op
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Tensor = Any  # tf.Tensor, whose stubs know no shape
sync_devices: Callable[[], None] = tf.test.experimental.sync_devices  # looked up once: the name is lazy


class State(NamedTuple):
    params: Any  # a tuple of (w, b), tf.Variables that `run` updates in place
    batches: list[tuple[Tensor, Tensor]]  # (batch, inputs) and (batch,), the short last one included
    at: int  # the next batch
    lr: Tensor  # ()
    step: Callable[[Tensor, Tensor], None]  # one update of `params`


# fmt: off
def gradients(params: Any, x: Tensor, y: Tensor) -> Any:
    """Gradients of softmax cross-entropy, `(dw, db)` a layer. `x`: (batch, inputs) float32; `y`: (batch,) int64."""
    inputs = [x]                                                # of each layer
    for w, b in params[:-1]:
        inputs.append(tf.nn.relu(inputs[-1] @ w + b))           # (batch, hidden)
    w, b = params[-1]
    p = tf.nn.softmax(inputs[-1] @ w + b)                       # (batch, classes)
    d = (p - tf.one_hot(y, p.shape[1])) / float(x.shape[0])
    found = []
    for (w, _), a in zip(params[::-1], inputs[::-1]):
        found.append((tf.matmul(a, d, transpose_a=True), tf.reduce_sum(d, axis=0)))
        if a is not x:                                          # nobody needs the gradient of the pixels
            d = tf.matmul(d, w, transpose_b=True) * tf.cast(a > 0, tf.float32)  # (batch, hidden)
    return tuple(found[::-1])


def update(params: Any, x: Tensor, y: Tensor, lr: Tensor) -> None:
    """One SGD step in place. `params`: tf.Variables; `x`: (batch, inputs); `y`: (batch,)."""
    for (w, b), (dw, db) in zip(params, gradients(params, x, y)):
        w.assign_sub(lr * dw)                                   # (inputs, outputs)
        b.assign_sub(lr * db)                                   # (outputs,)
# fmt: on


def see_only(device: str) -> None:
    """Hide the GPUs, or let their memory grow as needed; no TF32 unless NVIDIA_TF32_OVERRIDE asks for it.

    A second call changes nothing. Raises `Declined` where there is no GPU, and where TensorFlow has
    started with other devices: it sees one set of them for the life of a process.
    """
    gpus = tf.config.list_physical_devices("GPU")
    if device == "gpu" and not gpus:
        raise Declined("TensorFlow must see a GPU, got none")
    try:
        if device == "cpu":
            tf.config.set_visible_devices([], "GPU")
        elif not tf.config.get_visible_devices("GPU"):
            raise RuntimeError("the GPU is hidden")
        else:
            for gpu in gpus:
                tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError as error:
        raise Declined(
            f"TensorFlow on the {device} needs a process of its own: it has started otherwise ({error})"
        ) from None
    tf.config.experimental.enable_tensor_float_32_execution(
        device == "gpu" and os.environ.get("NVIDIA_TF32_OVERRIDE") == "1"
    )


def matmul_precision() -> str:
    """What float32 products are computed in: `float32`, or `tf32` where it was asked for."""
    return "tf32" if tf.config.experimental.tensor_float_32_execution_enabled() else "float32"


def whereabouts(tensor: Tensor) -> tuple[str, str]:
    """The kind ("cpu" or "gpu") and the name of the device whose memory holds `tensor`."""
    spec = tf.DeviceSpec.from_string(tensor.backing_device)
    if spec.device_type != "GPU":
        return str(spec.device_type).lower(), f"{spec.device_type}:{spec.device_index}"
    gpu = tf.config.get_visible_devices("GPU")[spec.device_index or 0]
    return "gpu", tf.config.experimental.get_device_details(gpu).get("device_name", "GPU")


def pre_batched(data: Split, workload: Workload) -> tf.data.Dataset:
    """One element a batch, the short last one included; the next is made ready while one is in use."""
    whole, size = workload.whole_batches, workload.batch_size
    with tf.device("CPU:0"):  # tf.data runs on the host and would fetch each batch back from a GPU
        x = tf.constant(data.x[: whole * size].reshape(whole, size, -1))  # (batches, batch, inputs)
        y = tf.constant(data.y[: whole * size].reshape(whole, size))  # (batches, batch)
        batches = tf.data.Dataset.from_tensor_slices((x, y))
        if workload.remainder == "keep" and workload.last_batch:
            tail = tf.constant(data.x[whole * size :]), tf.constant(data.y[whole * size :])
            batches = batches.concatenate(tf.data.Dataset.from_tensors(tail))
    return batches.prefetch(tf.data.AUTOTUNE)


class TensorFlowLoop(Loop):
    """What the TensorFlow variants share: placing on one device, waiting, fetching."""

    framework = "tensorflow"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        see_only(device)

    def scope(self) -> Any:
        return tf.device(f"{self.device.upper()}:0")

    def block(self, state: Any) -> None:
        sync_devices()

    def fetch(self, state: Any) -> Params:
        return tuple(Layer(w.numpy(), b.numpy()) for w, b in state.params)

    def placed_on(self, state: Any) -> tuple[str, str]:
        return whereabouts(state.params[0][0].read_value())

    def settings(self, state: Any) -> dict[str, str]:
        return {"matmul_precision": matmul_precision(), "jit_compile": "off"}


def device_labels(y: np.ndarray) -> np.ndarray:
    """Labels in a type that TensorFlow puts into a GPU's memory: it keeps int32 in the host's, whatever the scope says.

    From there they would be copied at every step.
    """
    return y.astype(np.int64)


def as_variables(params: Any) -> Any:
    """A copy of the parameters, `(w, b)` a layer, as tf.Variables on the device in scope."""
    return tuple((tf.Variable(w), tf.Variable(b)) for w, b in params)


def place_batches(params: Params, data: Split, workload: Workload) -> State:
    """Copy the parameters and every batch to the device in scope; the step is `update`, not yet a graph."""
    variables = as_variables(params)
    batches = []
    for start in range(0, workload.images_seen, workload.batch_size):
        stop = min(start + workload.batch_size, workload.images_seen)
        batches.append((tf.constant(data.x[start:stop]), tf.constant(device_labels(data.y[start:stop]))))
    lr = tf.constant(workload.learning_rate, tf.float32)
    return State(variables, batches, 0, lr, lambda x, y: update(variables, x, y, lr))


def run_steps(state: State, steps: int) -> State:
    """Call the step once a batch, round and round the epoch."""
    batches, at, step = state.batches, state.at, state.step
    for _ in range(steps):
        x, y = batches[at]
        step(x, y)
        at = (at + 1) % len(batches)
    return state._replace(at=at)


@final
class TfEagerLoop(TensorFlowLoop):
    """Op by op from Python: each operation is dispatched by itself."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        with self.scope():
            return place_batches(params, data, workload)

    def run(self, state: State, steps: int) -> State:
        return run_steps(state, steps)

    def ops(self, state: State) -> list[Op]:
        if len(state.params) != 2:
            raise Declined(f"the thirteen ops are those of two layers, got {len(state.params)}")
        with self.scope():
            return step_ops(state)


@final
class TfStepLoop(TensorFlowLoop):
    """The step as one graph (`tf.function`), variables on the device, called from Python once a batch."""

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        with self.scope():
            state = place_batches(params, data, workload)
        # Traced once a batch length: the whole batches and, with remainder=keep, the short one.
        return state._replace(step=tf.function(state.step, autograph=False))

    def run(self, state: State, steps: int) -> State:
        return run_steps(state, steps)


class EpochState(NamedTuple):
    params: Any  # a tuple of (w, b), tf.Variables
    x: Tensor  # (whole batches, batch, inputs), batched once before the clock starts
    y: Tensor  # (whole batches, batch)
    tail: Any  # the short last batch of remainder=keep, or None
    at: int  # the next batch
    step: Callable[[Tensor, Tensor], None]
    epoch: Callable[[], None]


@final
class TfEpochLoop(TensorFlowLoop):
    """The whole epoch in one XLA program: a `tf.while_loop` over data batched before the clock started."""

    def place(self, params: Params, data: Split, workload: Workload) -> EpochState:
        whole, size = workload.whole_batches, workload.batch_size
        with self.scope():
            variables = as_variables(params)
            lr = tf.constant(workload.learning_rate, tf.float32)
            x = tf.constant(data.x[: whole * size].reshape(whole, size, -1))
            y = tf.constant(device_labels(data.y[: whole * size].reshape(whole, size)))
            tail = None
            if workload.remainder == "keep" and workload.last_batch:
                tail = tf.constant(data.x[whole * size :]), tf.constant(device_labels(data.y[whole * size :]))

        def step(xb: Tensor, yb: Tensor) -> None:
            update(variables, xb, yb, lr)

        def epoch() -> None:
            # The trip count is a constant: XLA on a GPU would else ask the host after each iteration.
            def body(i, layers):
                found = gradients(layers, x[i], y[i])
                return i + 1, tuple((w - lr * dw, b - lr * db) for (w, b), (dw, db) in zip(layers, found))

            read = tuple((w.read_value(), b.read_value()) for w, b in variables)
            _, layers = tf.while_loop(lambda i, _: i < whole, body, (0, read))
            for (w, b), (new_w, new_b) in zip(variables, layers):
                w.assign(new_w)  # (inputs, outputs)
                b.assign(new_b)  # (outputs,)
            if tail is not None:
                update(variables, *tail, lr)

        compiled = [tf.function(f, autograph=False, jit_compile=True) for f in (step, epoch)]
        return EpochState(variables, x, y, tail, 0, *compiled)

    def run(self, state: EpochState, steps: int) -> EpochState:
        whole, at = state.x.shape[0], state.at
        epoch = whole + (state.tail is not None)
        while steps:
            if at == 0 and steps >= epoch:
                state.epoch()
                steps -= epoch
            else:  # what is left over, step by step
                x, y = (state.x[at], state.y[at]) if at < whole else state.tail
                state.step(x, y)
                steps, at = steps - 1, (at + 1) % epoch
        return state._replace(at=at)

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def settings(self, state: EpochState) -> dict[str, str]:
        return super().settings(state) | {"jit_compile": "on"}


# fmt: off
def step_ops(state: State) -> list[Op]:
    """The article's thirteen operations, on copies of the parameters; each is waited for as the article did."""
    (w1, b1), (w2, b2) = as_variables(state.params)
    s = SimpleNamespace(w1=w1, b1=b1, w2=w2, b2=b2, at=state.at, lr=state.lr)
    batches, classes = state.batches, int(b2.shape[0])
    lengths = {x.shape[0]: tf.constant(np.float32(x.shape[0])) for x, _ in batches}

    def z1():
        s.x, s.y = batches[s.at]
        s.at = (s.at + 1) % len(batches)
        s.z1 = s.x @ s.w1 + s.b1                                # (batch, hidden)

    def a1():
        s.a1 = tf.nn.relu(s.z1)                                 # (batch, hidden)

    def z2():
        s.z2 = s.a1 @ s.w2 + s.b2                               # (batch, classes)

    def softmax():
        s.p = tf.nn.softmax(s.z2)                               # (batch, classes)

    def dz2():
        s.dz2 = (s.p - tf.one_hot(s.y, classes)) / lengths[s.x.shape[0]]  # (batch, classes)

    def dw2():
        s.dw2 = tf.matmul(s.a1, s.dz2, transpose_a=True)        # (hidden, classes)

    def da1():
        s.da1 = tf.matmul(s.dz2, s.w2, transpose_b=True)        # (batch, hidden)

    def dz1():
        s.dz1 = s.da1 * tf.cast(s.z1 > 0, tf.float32)           # (batch, hidden)

    def dw1():
        s.dw1 = tf.matmul(s.x, s.dz1, transpose_a=True)         # (inputs, hidden)

    def update_w1():
        s.w1.assign_sub(s.lr * s.dw1)

    def update_b1():
        s.b1.assign_sub(s.lr * tf.reduce_sum(s.dz1, axis=0))

    def update_w2():
        s.w2.assign_sub(s.lr * s.dw2)

    def update_b2():
        s.b2.assign_sub(s.lr * tf.reduce_sum(s.dz2, axis=0))

    calls = [z1, a1, z2, softmax, dz2, dw2, da1, dz1, dw1, update_w1, update_b1, update_w2, update_b2]
    return [Op(*named, call, sync_devices) for named, call in zip(STEP_OPS.items(), calls, strict=True)]
# fmt: on
