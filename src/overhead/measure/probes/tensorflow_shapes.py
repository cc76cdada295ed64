"""Probes in TensorFlow of products of any shape and of passes over arrays of any size, called op by op."""

from __future__ import annotations

from itertools import cycle

import tensorflow as tf

from overhead.loops.tensorflow_ import sync_devices
from overhead.measure.probes import Probe
from overhead.measure.probes.numpy_ import uniform
from overhead.measure.probes.numpy_shapes import PASS_BYTES, product_probe, ring
from overhead.problem.workload import Workload


def shapes(device: str, workload: Workload) -> list[Probe]:
    """The three products of one layer, laid out as in `loops/tensorflow_.py`."""
    batch, (inputs, outputs) = workload.batch_size, workload.layers
    with tf.device(f"{device.upper()}:0"):
        w, d = tf.constant(uniform(inputs, outputs)), tf.constant(uniform(batch, outputs))
        xs = cycle([tf.constant(x) for x in ring(batch, inputs)])
        ds = cycle([tf.constant(x) for x in ring(batch, outputs)])
    matmul = tf.raw_ops.MatMul
    return [
        product_probe("nn", (batch, outputs, inputs), lambda: matmul(a=next(xs), b=w), wait=sync_devices),
        product_probe(
            "tn", (inputs, outputs, batch), lambda: matmul(a=next(xs), b=d, transpose_a=True), wait=sync_devices
        ),
        product_probe(
            "nt", (batch, inputs, outputs), lambda: matmul(a=next(ds), b=w, transpose_b=True), wait=sync_devices
        ),
    ]


def passes(device: str, workload: Workload) -> list[Probe]:
    """The sum of two arrays: TensorFlow makes a new one for it each time."""
    found = []
    for size in PASS_BYTES:
        with tf.device(f"{device.upper()}:0"):
            a, b = tf.constant(uniform(size // 4)), tf.constant(uniform(size // 4))
        does = f"sum of two arrays of {size:,} bytes"
        call = lambda a=a, b=b: tf.raw_ops.AddV2(x=a, y=b)  # noqa: E731
        found.append(Probe(f"into {size}", "pass", does, call, sync_devices, bytes=3 * size))
    return found


MAKERS = {"shape": shapes, "pass": passes}
