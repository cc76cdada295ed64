"""Probes in TensorFlow, and in Keras on it."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy as np
import tensorflow as tf

from overhead.loops import tensorflow_ as loops
from overhead.measure.probes import FIXED, Probe
from overhead.measure.probes.numpy_ import (
    GPU_STREAM_BYTES,
    LARGE,
    STREAM_BYTES,
    epoch_batches,
    product_operands,
    uniform,
)
from overhead.problem import bounds, mlp
from overhead.problem.workload import Workload

wait = loops.sync_devices


def scope(device: str) -> Any:
    return tf.device(f"{device.upper()}:0")


def on(device: str, array: Any) -> Any:
    with scope(device):
        return tf.identity(tf.constant(np.ascontiguousarray(array)))


def fixed_costs(device: str, workload: Workload) -> list[Probe]:
    host = uniform(workload.batch_size, workload.layers[0])
    one, batch = on(device, np.ones(1, np.float32)), on(device, host)
    size = f"one batch ({host.nbytes:,} bytes)"
    empty = tf.function(lambda: None, autograph=False)
    add_one = tf.function(lambda x: x + 1.0, autograph=False)
    return [
        Probe("smallest-op", FIXED, "TensorFlow's eager add of one element", lambda: one + one, wait),
        Probe("function-empty", FIXED, "an empty tf.function", lambda: empty(), wait),
        Probe("function-smallest", FIXED, "a tf.function that adds 1 to one element", lambda: add_one(one), wait),
        Probe("to-device", FIXED, f"{size} to the device, pageable", lambda: on(device, host), wait,
              bytes=host.nbytes),
        Probe("to-host", FIXED, f"{size} made on the device and read back", lambda: (batch + 1.0).numpy(),
              bytes=host.nbytes),
        Probe("synchronise", FIXED, "sync_devices with nothing to wait for", wait),
    ]  # fmt: skip


def rates(device: str, workload: Workload) -> list[Probe]:
    n = LARGE if device == "cpu" else 8 * LARGE
    stream, size = (STREAM_BYTES, "64 MiB") if device == "cpu" else (GPU_STREAM_BYTES, "1 GiB")
    a, b = on(device, uniform(n, n)), on(device, np.ones(stream // 4, np.float32))
    return [
        Probe("sgemm-large", "rate", f"({n}, {n}) @ ({n}, {n})", lambda: tf.matmul(a, a), wait,
              flops=2 * n**3, bytes=12 * n**2),
        Probe("copy", "rate", f"one read and one write of {size}", lambda: b + 0.5, wait, bytes=2 * stream),
    ]  # fmt: skip


def micro(device: str, workload: Workload) -> list[Probe]:
    work = bounds.gemms(workload)[0]
    x, w = (on(device, operand) for operand in product_operands(work, workload))
    does = f"{tuple(x.shape)} @ {tuple(w.shape)}"
    return [Probe("product", "micro", does, lambda: tf.matmul(x, w), wait, flops=work.flops, bytes=work.bytes)]


def pieces(device: str, workload: Workload) -> list[Probe]:
    batch, (inputs, hidden, classes), steps = workload.batch_size, workload.layers, workload.steps
    host = epoch_batches(workload)
    batches = cycle([on(device, x) for x in host])
    shapes = [(batch, hidden), (batch, classes), (batch, hidden), (inputs, hidden), (hidden, classes)]
    z1, z2, da1, dw1, dw2 = (on(device, uniform(*shape)) for shape in shapes)
    y, lr = on(device, np.zeros(batch, np.int32)), on(device, np.float32(1e-6))
    with scope(device):
        (w1, b1), (w2, b2) = loops.as_variables(mlp.init(workload))
    with tf.device("CPU:0"):
        images = tf.constant(np.concatenate(host))

    @tf.function(autograph=False)
    def products(x: Any) -> Any:
        a1 = x @ w1
        a2 = a1 @ w2
        da = tf.matmul(a2, w2, transpose_b=True)
        return tf.matmul(x, da, transpose_a=True), tf.matmul(a1, a2, transpose_a=True)

    @tf.function(autograph=False)
    def elementwise() -> None:
        a = tf.nn.relu(z1 + b1)
        p = tf.nn.softmax(z2 + b2)
        d = (p - tf.one_hot(y, classes)) / float(batch)
        da = da1 * tf.cast(a > 0, tf.float32)
        for variable, grad in ((w1, dw1), (b1, tf.reduce_sum(da, axis=0)), (w2, dw2), (b2, tf.reduce_sum(d, axis=0))):
            variable.assign_sub(lr * grad)

    def gathered() -> None:  # as `fit` takes rows of arrays: indices, then a gather of each batch
        with tf.device("CPU:0"):
            rows = tf.data.Dataset.range(steps).map(lambda i: tf.range(i * batch, (i + 1) * batch))
            for _ in rows.map(lambda index: tf.gather(images, index)).prefetch(1):
                pass

    flops = bounds.step_flops(workload)
    return [
        Probe("products-into", "piece", "the five products in one tf.function", lambda: products(next(batches)), wait,
              flops=flops),
        Probe("elementwise-into", "piece", "all other arithmetic in one tf.function", elementwise, wait),
        Probe("data-epoch", "piece", f"gathering {steps:,} batches from one array by tf.data", gathered),
    ]  # fmt: skip


def frames(device: str, workload: Workload) -> list[Probe]:
    """One training step through Keras's own train function, and the same mathematics in a plain tf.function."""
    from overhead.loops import keras_

    x, y = uniform(workload.batch_size, workload.layers[0]), np.zeros(workload.batch_size, np.int32)
    params = mlp.init(workload)
    with scope(device):
        model = keras_.compiled(params, workload)
        variables = loops.as_variables(params)
        placed = tf.constant(x), tf.constant(y), tf.constant(np.float32(workload.learning_rate))
    data = iter(tf.data.Dataset.from_tensors((tf.constant(x), tf.constant(y))).repeat())
    model.make_train_function()
    train = model.train_function
    step = tf.function(lambda: loops.update(variables, *placed), autograph=False)
    return [
        Probe("keras-train-step", "frame", "one step through Keras's train function", lambda: train(data), wait),
        Probe("function-step", "frame", "the same mathematics in a tf.function", step, wait),
    ]


MAKERS = {FIXED: fixed_costs, "rate": rates, "micro": micro, "piece": pieces, "frame": frames}
