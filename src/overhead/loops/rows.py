"""Skip-gram with negative sampling in NumPy and in C: one step, with look-ups and updates grouped in several ways.

Every way gives the same weights: the gradients of a batch are taken at the same weights, and a row that is named
several times moves by the sum of its gradients. `w[rows] -= g` does not: of each row it keeps one of the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.loops import compiled
from overhead.loops.base import nothing_to_wait_for
from overhead.problem.words import DIMENSIONS, RATE, Batch, Weights

Array = NDArray[Any]
Update = Callable[[Array, Array, Array], object]  # weights (vocabulary, DIMENSIONS), rows (n,), changes (n, DIMENSIONS)

DENSE_CELLS = 1 << 22  # batch times vocabulary: the logits of a dense softmax


class Trainer(NamedTuple):
    """One way of grouping. `step(i)` trains on batch `i`; `fetch()` gives the weights as float32 arrays."""

    name: str
    does: str
    step: Callable[[int], object]
    fetch: Callable[[], Weights]
    wait: Callable[[], object] = nothing_to_wait_for


# fmt: off
def one_by_one(w: Array, rows: Array, changes: Array) -> None:
    for row, change in zip(rows, changes):
        w[row] -= change


def add_at(w: Array, rows: Array, changes: Array) -> None:
    np.subtract.at(w, rows, changes)


def sorted_sums(w: Array, rows: Array, changes: Array) -> None:
    """Sort, add up each row's changes, then touch each row once."""
    order = np.argsort(rows, kind="stable")
    ordered = rows[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    w[ordered[first]] -= np.add.reduceat(changes[order], first)


def lost(w: Array, rows: Array, changes: Array) -> None:
    """The classical mistake: of a row that is named several times one change is kept."""
    w[rows] -= changes


def step(weights: Weights, batch: Batch, update: Update, take: Callable[[Array, Array], Array]) -> None:
    """One step, in the place of the weights."""
    rows = batch.targets.ravel()
    v = take(weights.centres, batch.centres)                    # (pairs, DIMENSIONS)
    u = take(weights.targets, rows).reshape(*batch.targets.shape, -1)
    g = np.matmul(u, v[:, :, None])[:, :, 0]                    # (pairs, 1 + NEGATIVES): the scores
    g = 1 / (1 + np.exp(-g))
    g[:, 0] -= 1
    g *= np.float32(RATE / len(g))
    changes = g[:, :, None] * v[:, None]                        # (pairs, 1 + NEGATIVES, DIMENSIONS)
    update(weights.centres, batch.centres, np.matmul(g[:, None], u)[:, 0])
    update(weights.targets, rows, changes.reshape(-1, v.shape[1]))


def dense_step(weights: Weights, batch: Batch) -> None:
    """A softmax over the whole vocabulary: every row is read and written, whatever the batch holds."""
    v = weights.centres[batch.centres]                          # (pairs, DIMENSIONS)
    z = v @ weights.targets.T                                   # (pairs, vocabulary)
    d = np.exp(z - z.max(axis=1, keepdims=True))
    d /= d.sum(axis=1, keepdims=True)
    d[np.arange(len(d)), batch.targets[:, 0]] -= 1
    d *= np.float32(RATE / len(d))
    change = d @ weights.targets
    weights.targets[:] -= d.T @ v
    np.subtract.at(weights.centres, batch.centres, change)
# fmt: on


def taken_one_by_one(w: Array, rows: Array) -> Array:
    return np.stack([w[row] for row in rows])


def taken(w: Array, rows: Array) -> Array:
    return np.take(w, rows, axis=0)


WAYS: dict[str, tuple[str, Update, Callable[[Array, Array], Array]]] = {
    "numpy one by one": ("a Python loop over the rows, read and updated", one_by_one, taken_one_by_one),
    "numpy add.at": ("rows taken together, updated by np.subtract.at", add_at, taken),
    "numpy sorted sums": ("rows taken together; sorted, their changes added up, each row once", sorted_sums, taken),
}


def copied(weights: Weights) -> Weights:
    return Weights(weights.centres.copy(), weights.targets.copy())


def trainers(batches: Sequence[Batch], weights: Weights) -> list[Trainer]:
    """All ways of this file on these batches, each with weights of its own. C is left out without a compiler."""
    found = []
    for name, (does, update, take) in WAYS.items():
        own = copied(weights)
        found.append(
            Trainer(
                name, does,
                lambda i, own=own, update=update, take=take: step(own, batches[i], update, take), partial(copied, own),
            )
        )  # fmt: skip
    if len(batches[0].centres) * len(weights.targets) <= DENSE_CELLS:
        own = copied(weights)
        does = "softmax over all words: dense products, every target's row updated"
        found.append(
            Trainer("numpy dense softmax", does, lambda i, own=own: dense_step(own, batches[i]), partial(copied, own))
        )
    try:
        return found + c_trainers(batches, weights)
    except compiled.Declined:
        return found


def c_trainers(batches: Sequence[Batch], weights: Weights) -> list[Trainer]:
    """`c/rows.c`, with the rows in the order of the batch and sorted. Raises `Declined`."""
    functions = compiled.load("rows.c", {"VECTORS": DIMENSIONS // compiled.LANES}).functions
    pairs, width = batches[0].targets.shape
    gradient, change = compiled.aligned(pairs, width), compiled.aligned(pairs, DIMENSIONS)
    found = []
    for name, does, grouped in (
        ("c one by one", "C: every row read, and updated in memory, in the order of the batch", False),
        ("c sorted", "C: rows sorted by NumPy, then each read and written once", True),
    ):
        own = Weights(*(compiled.aligned(*w.shape) for w in weights))
        for mine, given in zip(own, weights):
            mine[:] = given

        def train(i: int, own: Weights = own, grouped: bool = grouped) -> None:
            batch = batches[i]
            orders = [np.argsort(rows.ravel(), kind="stable").astype(np.int32) for rows in batch] if grouped else []
            lists = [batch.centres, batch.targets, *orders]
            functions.step(
                *(compiled.address(array) for array in (*own, *lists[:2])),
                *(map(compiled.address, lists[2:]) if grouped else (None, None)), pairs, width,
                compiled.ctypes.c_float(RATE / pairs), compiled.address(gradient), compiled.address(change),
            )  # fmt: skip

        found.append(Trainer(name, does, train, partial(copied, own)))
    return found
