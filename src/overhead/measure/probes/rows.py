"""Steps of skip-gram, each grouping in its framework, at every vocabulary and batch size; and what a cache gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from overhead.measure.probes import Probe
from overhead.problem import words
from overhead.problem.workload import Workload

VOCABULARIES = (500, 0, 50_000)  # words; 0: all of the text
PAIRS = (32, 512, 4096)  # in a batch
NEAR_FLOATS = 48 * 1024  # of each of two arrays that fit a second-level cache together, and no first-level one


def vocabularies() -> list[int]:
    """How many words each case has."""
    return [count or words.distinct() for count in VOCABULARIES]


def all_cases(make: Callable[[Sequence[words.Batch], words.Weights], list[Any]]) -> list[Probe]:
    """A probe for each trainer that `make` gives; its name is `GROUPING, V words, B pairs`."""
    found = []
    for vocabulary in vocabularies():
        weights = words.init(vocabulary)
        for pairs in PAIRS:
            batches = words.batches(vocabulary, pairs)
            for trainer in make(batches, weights):
                order, amount = cycle(range(len(batches))), words.counts(batches, vocabulary)
                found.append(
                    Probe(
                        f"{trainer.name}, {vocabulary} words, {pairs} pairs", "rows", trainer.does,
                        lambda step=trainer.step, order=order: step(next(order)), trainer.wait,
                        bytes=round(amount.dense_bytes if "dense" in trainer.name else amount.bytes),
                    )
                )  # fmt: skip
    return found


def numpy_rows(device: str, workload: Workload) -> list[Probe]:
    from overhead.loops import rows

    return all_cases(rows.trainers)


def jax_rows(device: str, workload: Workload) -> list[Probe]:
    from overhead.loops import rows_jax

    return all_cases(lambda batches, weights: rows_jax.trainers(device, batches, weights))


def tensorflow_rows(device: str, workload: Workload) -> list[Probe]:
    from overhead.loops import rows_tensorflow

    return all_cases(lambda batches, weights: rows_tensorflow.trainers(device, batches, weights))


def near(device: str, workload: Workload) -> list[Probe]:
    """Bytes a second that a core reads from its second-level cache."""
    a, b = (np.ones(NEAR_FLOATS, np.float32) for _ in range(2))
    does = f"scalar product of two arrays of {a.nbytes // 1024} KiB, on one thread"
    return [Probe("read-near", "near", does, lambda: np.dot(a, b), flops=2 * a.size, bytes=2 * a.nbytes)]


MAKERS = {
    "numpy": {"rows": numpy_rows, "near": near},
    "jax": {"rows": jax_rows},
    "tensorflow": {"rows": tensorflow_rows},
}
