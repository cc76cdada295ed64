"""Probes in NumPy of products of any shape and of passes over arrays of any size: what the model is calibrated on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np

from overhead.measure.probes import Probe
from overhead.measure.probes.numpy_ import uniform
from overhead.problem.workload import Workload

RING_BYTES = 1 << 23  # batches that take turns, so that a product does not find its images in the nearest cache
PASS_BYTES = tuple(1 << n for n in range(12, 26, 2))  # of an array: 4 KiB to 16 MiB
SMALLEST_RING = 3


def ring(rows: int, columns: int) -> list[Any]:
    """Arrays (rows, columns) that together do not fit the nearest caches, at most 64."""
    many = int(np.clip(RING_BYTES // (4 * rows * columns), SMALLEST_RING, 64))
    return list(uniform(many, rows, columns))


def product_probe(name: str, shape: tuple[int, int, int], call: Callable[[], object], **wait: Any) -> Probe:
    """A probe of (m, k) @ (k, n); `shape` is (m, n, k)."""
    m, n, k = shape
    return Probe(
        name, "shape", f"({m}, {k}) @ ({k}, {n})", call, flops=2 * m * n * k, bytes=4 * (m * n + m * k + k * n), **wait
    )


def shapes(device: str, workload: Workload) -> list[Probe]:
    """The three products of one layer: forward (nn), gradient of the weights (tn), gradient of the inputs (nt)."""
    batch, (inputs, outputs) = workload.batch_size, workload.layers
    w, d = uniform(inputs, outputs), uniform(batch, outputs)
    xs, ds = cycle(ring(batch, inputs)), cycle(ring(batch, outputs))
    z, dw, da = np.empty((batch, outputs), "f4"), np.empty((inputs, outputs), "f4"), np.empty((batch, inputs), "f4")
    return [
        product_probe("nn", (batch, outputs, inputs), lambda: np.matmul(next(xs), w, out=z)),
        product_probe("tn", (inputs, outputs, batch), lambda: np.matmul(next(xs).T, d, out=dw)),
        product_probe("nt", (batch, inputs, outputs), lambda: np.matmul(next(ds), w.T, out=da)),
    ]


def passes(device: str, workload: Workload) -> list[Probe]:
    """The sum of two arrays into a third that is there, and into a new one."""
    found = []
    for size in PASS_BYTES:
        a, b, c = uniform(size // 4), uniform(size // 4), np.empty(size // 4, np.float32)
        does = f"sum of two arrays of {size:,} bytes"
        found += [
            Probe(f"into {size}", "pass", does, lambda a=a, b=b, c=c: np.add(a, b, out=c), bytes=3 * size),
            Probe(f"new {size}", "pass", f"{does}, a new one", lambda a=a, b=b: a + b, bytes=3 * size),
        ]
    return found


MAKERS = {"shape": shapes, "pass": passes}
