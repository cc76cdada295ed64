"""The rungs of the ladder, from Keras's defaults to a whole epoch in one call, and the variants of a loop."""

from __future__ import annotations

import os
from typing import NamedTuple

from overhead.measure.contestant import TF32
from overhead.records.record import Record


class Rung(NamedTuple):
    """A loop, the rung that it is compared with, and the overhead that it removes from it."""

    loop: str
    below: str | None
    removes: str
    variant: str = ""  # of the loop, by its environment; compared with the plain one


# Variants of a loop on a GPU, each by what is set before its process imports anything.
TF32_ON, NO_BUFFERS, WHILE_BUFFERED = "TF32", "no command buffers", "loops in command buffers"
BUFFERS_OFF = "--xla_gpu_enable_command_buffer="
WHILE_IN_BUFFERS = f"{BUFFERS_OFF}+WHILE"

RUNGS = (
    Rung("keras-fit-validated", None, "nothing: fit() with a metric and validation, as the article timed it"),
    Rung("keras-fit", "keras-fit-validated", "the validation pass and the metric"),
    Rung("keras-fit-tuned", "keras-fit", "Python between steps, and gathering rows into batches"),
    Rung("keras-jax-fit", None, "nothing: fit() on Keras's JAX backend, the only one where there is no TensorFlow"),
    Rung("tf-step", "keras-fit", "Keras: its data adapter, callbacks and loss tracking"),
    Rung("tf-epoch", "tf-step", "all dispatches but one an epoch"),
    Rung("jax-op-by-op", None, "nothing: one dispatch an operator"),
    Rung("jax-step", "jax-op-by-op", "all dispatches but one a step, and arrays between operators"),
    Rung("jax-autodiff", "jax-op-by-op", "the same, with gradients that JAX derives, as the article has them"),
    Rung("jax-epoch", "jax-step", "all dispatches but one an epoch"),
    Rung("jax-epoch-tuned", "jax-epoch", "YNNPACK, which XLA's CPU compiler prefers for products"),
    Rung("jax-epoch", "jax-epoch", "command buffers, so that each kernel is a launch again", NO_BUFFERS),
    Rung("jax-epoch", "jax-epoch", "a launch of each iteration's command buffer from the host", WHILE_BUFFERED),
    Rung("jax-epoch", "jax-epoch", "13 of 23 bits of each factor in the products", TF32_ON),
    Rung("numpy-per-image", None, "nothing: Python calls for every image"),
    Rung("numpy", "numpy-per-image", "Python calls an image; the weights are reused by the whole batch"),
    Rung("numpy-preallocated", "numpy", "allocation, and the page faults of fresh memory"),
    Rung("cupy-per-image", None, "nothing: kernel launches for every image"),
    Rung("cupy", "cupy-per-image", "launches an image; the weights are reused by the whole batch"),
    Rung("cupy", "cupy", "13 of 23 bits of each factor in the products", TF32_ON),
    Rung("cupy-fused", "cupy", "a launch an elementwise operation"),
    Rung("cupy-graph", "cupy-fused", "all launches but one a step"),
    Rung("cupy-graph-epoch", "cupy-graph", "all launches from the host but one an epoch"),
    Rung("cupy-persistent", "cupy-graph-epoch", "all kernels but one, and reading the weights anew in each step"),
)


CUPY = ("cupy-per-image", "cupy", "cupy-fused", "cupy-graph", "cupy-graph-epoch", "cupy-persistent")
ON_GPU_ONLY = ("keras-jax-fit", *CUPY)
NOT_IN_QUICK = "keras-fit-validated"  # its epochs are the longest; chapter 5 has them


def environment_of(variant: str) -> tuple[tuple[str, str], ...]:
    """What a variant sets; nothing for the plain loop. Flags of the user's own stay."""
    flag = {NO_BUFFERS: BUFFERS_OFF, WHILE_BUFFERED: WHILE_IN_BUFFERS}.get(variant)
    if flag:
        return (("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {flag}".strip()),)
    return TF32 if variant == TF32_ON else ()


def variant(record: Record) -> str:
    """Which variant a record is of, by its environment; nothing for the plain loop."""
    flags = record.env.get("XLA_FLAGS", "").split()
    if BUFFERS_OFF in flags or WHILE_IN_BUFFERS in flags:
        return NO_BUFFERS if BUFFERS_OFF in flags else WHILE_BUFFERED
    return TF32_ON if record.env.get("NVIDIA_TF32_OVERRIDE") == "1" else ""


def label(record: Record) -> str:
    """The rung's name: its loop, and the variant where it is one."""
    return ", ".join(part for part in (record.loop, variant(record)) if part)
