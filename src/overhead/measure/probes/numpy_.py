"""Probes in NumPy."""

from __future__ import annotations

import mmap
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np

from overhead.loops.numpy_ import matrix_products
from overhead.measure.probes import FIXED, Probe
from overhead.problem import bounds
from overhead.problem.workload import Workload

LARGE = 1024  # rows and columns of the large product
STREAM_BYTES = 1 << 26  # an array that no cache of a CPU in the table of peaks holds twice
GPU_STREAM_BYTES = 1 << 30  # an H200's second-level cache alone holds 60 MB
TOUCHED = 256  # pages of a call that measures what a fresh one costs


def uniform(*shape: int) -> Any:
    """Float32 numbers in [0, 1): zeros would let denormals or skipped work flatter a library."""
    return np.random.default_rng(0).random(shape, np.float32)


def product_operands(work: bounds.Work, workload: Workload) -> tuple[Any, Any]:
    """Operands of one of the step's products, laid out as the NumPy loop has them (transposes are views)."""
    batch, (inputs, hidden, classes) = workload.batch_size, workload.layers
    x, a1 = uniform(batch, inputs), uniform(batch, hidden)
    dz1, dz2 = uniform(batch, hidden), uniform(batch, classes)
    w1, w2 = uniform(inputs, hidden), uniform(hidden, classes)
    return {"z1": (x, w1), "z2": (a1, w2), "dw2": (a1.T, dz2), "da1": (dz2, w2.T), "dw1": (x.T, dz1)}[work.name]


def epoch_batches(workload: Workload) -> list[Any]:
    """As many batches as an epoch has, in memory of their own, so that each is read from where training reads it."""
    block = uniform(workload.batch_size, workload.layers[0])
    return list(np.tile(block, (workload.steps, 1)).reshape(workload.steps, *block.shape))


def fixed_costs(device: str, workload: Workload) -> list[Probe]:
    one, batch = np.ones(1, np.float32), uniform(workload.batch_size, workload.layers[0])
    out, copied = np.empty_like(one), np.empty_like(batch)
    weights = workload.layers[0] * workload.layers[1]
    return [
        Probe("python-call", FIXED, "an empty Python call", lambda: None),
        Probe("smallest-op", FIXED, "NumPy's add of one element", lambda: np.add(one, one, out=out)),
        Probe(
            "copy-batch", FIXED, f"a copy of one batch ({batch.nbytes:,} bytes)", lambda: np.copyto(copied, batch),
            bytes=2 * batch.nbytes,
        ),
        Probe(
            "allocate", FIXED, f"a new array the size of the first weights ({4 * weights:,} bytes), filled",
            lambda: np.empty(weights, np.float32).fill(0), bytes=4 * weights,
        ),
    ]  # fmt: skip


def rates(device: str, workload: Workload) -> list[Probe]:
    a, b, c = uniform(LARGE, LARGE), uniform(LARGE, LARGE), np.empty((LARGE, LARGE), np.float32)
    source, other = (np.ones(STREAM_BYTES // 4, np.float32) for _ in range(2))
    target = np.zeros_like(source)

    def triad() -> None:
        np.multiply(source, np.float32(3), out=target)
        np.add(target, other, out=target)

    return [
        Probe(
            "sgemm-large", "rate", f"({LARGE}, {LARGE}) @ ({LARGE}, {LARGE})", lambda: np.matmul(a, b, out=c),
            flops=2 * LARGE**3, bytes=12 * LARGE**2,
        ),
        Probe("copy", "rate", "copy of 64 MiB", lambda: np.copyto(target, source), bytes=2 * STREAM_BYTES),
        Probe("triad", "rate", "a = b + 3 c in two passes over 64 MiB arrays", triad, bytes=5 * STREAM_BYTES),
    ]  # fmt: skip


def products(device: str, workload: Workload) -> list[Probe]:
    found = []
    for work in bounds.gemms(workload):
        a, b = product_operands(work, workload)
        out = np.empty((a.shape[0], b.shape[1]), np.float32)
        does = f"{a.shape} @ {b.shape}"
        found.append(
            Probe(work.name, "product", does, lambda a=a, b=b, out=out: np.matmul(a, b, out=out),
                  flops=work.flops, bytes=work.bytes)
        )  # fmt: skip
    return found


def micro(device: str, workload: Workload) -> list[Probe]:
    batch, inputs, hidden = workload.batch_size, *workload.layers[:2]
    x, w = uniform(batch, inputs), uniform(inputs, hidden)
    stored = np.ascontiguousarray(w.T)  # (hidden, inputs), as the per-image layers store it
    work = bounds.gemms(workload)[0]

    def per_image() -> None:
        for image in x:
            np.matmul(stored, image)  # (hidden,)

    per_image_bytes = batch * 4 * (hidden * inputs + inputs + hidden)
    shape = f"({batch}, {inputs}) @ ({inputs}, {hidden})"
    return [
        Probe("product", "micro", shape, lambda: x @ w, flops=work.flops, bytes=work.bytes),
        Probe(
            "product-stored-transposed", "micro", f"{shape}, the right side a view of its transpose",
            lambda: x @ stored.T, flops=work.flops, bytes=work.bytes,
        ),
        Probe(
            "product-per-image", "micro", f"{batch} times ({hidden}, {inputs}) @ ({inputs},)", per_image,
            flops=work.flops, bytes=per_image_bytes,
        ),
    ]  # fmt: skip


def pieces(device: str, workload: Workload) -> list[Probe]:
    batch, (inputs, hidden, classes) = workload.batch_size, workload.layers
    batches = epoch_batches(workload)
    xs, order = cycle(batches), cycle(range(len(batches)))
    w1, w2 = uniform(inputs, hidden), uniform(hidden, classes)
    made = SimpleNamespace(
        w=[w1, w2], a=[np.empty((batch, n), np.float32) for n in (hidden, classes)],
        dw=[np.empty_like(w1), np.empty_like(w2)], da=[np.empty((batch, hidden), np.float32)],
    )  # fmt: skip
    z1, z2, da1 = uniform(batch, hidden), uniform(batch, classes), uniform(batch, hidden)
    dw1, dw2, lr = w1.copy(), w2.copy(), np.float32(1)  # 1: they keep their size
    y, rows, n = np.zeros(batch, np.int32), np.arange(batch), np.float32(batch)
    s = SimpleNamespace(w1=w1.copy(), b1=np.zeros(hidden, np.float32), w2=w2.copy(), b2=np.zeros(classes, np.float32))
    h, d, dh, mask = np.empty_like(z1), np.empty_like(z2), np.empty_like(z1), np.empty(z1.shape, bool)
    column, db1, db2 = np.empty((batch, 1), np.float32), np.empty(hidden, np.float32), np.empty(classes, np.float32)

    def elementwise() -> None:  # the step's, every update in its place as in the loop
        np.maximum(np.add(z1, s.b1, out=h), 0, out=h)
        np.add(z2, s.b2, out=d)
        np.exp(np.subtract(d, d.max(axis=1, keepdims=True, out=column), out=d), out=d)
        np.divide(d, d.sum(axis=1, keepdims=True, out=column), out=d)
        d[rows, y] -= 1
        np.divide(d, n, out=d)
        np.subtract(s.w2, np.multiply(lr, dw2, out=dw2), out=s.w2)
        np.subtract(s.b2, np.multiply(lr, d.sum(axis=0, out=db2), out=db2), out=s.b2)
        np.multiply(da1, np.greater(h, 0, out=mask), out=dh)
        np.subtract(s.w1, np.multiply(lr, dw1, out=dw1), out=s.w1)
        np.subtract(s.b1, np.multiply(lr, dh.sum(axis=0, out=db1), out=db1), out=s.b1)

    def touch() -> None:
        with mmap.mmap(-1, TOUCHED * mmap.PAGESIZE) as pages:
            np.frombuffer(pages, np.uint8)[:: mmap.PAGESIZE] = 1

    flops = bounds.step_flops(workload)
    return [
        Probe("products-into", "piece", "the five products into arrays made beforehand",
              lambda: matrix_products(next(xs), made), flops=flops),
        Probe("elementwise-into", "piece", "all other arithmetic into arrays made beforehand", elementwise),
        Probe("data", "piece", "taking the next batch", lambda: batches[next(order)]),
        Probe("pages", "piece", f"{TOUCHED} pages taken from the system, one byte of each written, given back", touch,
              bytes=TOUCHED * mmap.PAGESIZE),
    ]  # fmt: skip


MAKERS = {FIXED: fixed_costs, "rate": rates, "product": products, "micro": micro, "piece": pieces}
