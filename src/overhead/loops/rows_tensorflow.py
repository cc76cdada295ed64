"""Skip-gram with negative sampling in TensorFlow: `IndexedSlices` into the rows that a batch names."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from overhead.loops.rows import Trainer
from overhead.loops.tensorflow_ import sync_devices
from overhead.problem.words import RATE, Batch, Weights


def trainers(device: str, batches: Sequence[Batch], weights: Weights) -> list[Trainer]:
    """The way of this file on these batches."""
    with tf.device(f"{device.upper()}:0"):
        centres, targets = (tf.Variable(tf.constant(w)) for w in weights)
        placed = [(tf.constant(batch.centres), tf.constant(batch.targets)) for batch in batches]
        pairs, width = batches[0].targets.shape
        context = tf.one_hot(tf.zeros(pairs, tf.int32), width)  # (pairs, width)

    @tf.function
    def step(centre: tf.Tensor, target: tf.Tensor) -> None:
        v, u = tf.gather(centres, centre), tf.gather(targets, target)
        g = RATE / pairs * (tf.sigmoid(tf.einsum("pd,ptd->pt", v, u)) - context)
        dv, du = tf.einsum("pt,ptd->pd", g, u), g[:, :, None] * v[:, None]
        centres.scatter_sub(tf.IndexedSlices(dv, centre))
        targets.scatter_sub(tf.IndexedSlices(tf.reshape(du, (-1, du.shape[-1])), tf.reshape(target, [-1])))

    return [
        Trainer(
            "tf IndexedSlices", "one graph a step, tf.Variable.scatter_sub of tf.IndexedSlices",
            lambda i: step(*placed[i]), lambda: Weights(centres.numpy(), targets.numpy()), sync_devices,
        )
    ]  # fmt: skip
