"""Skip-gram with negative sampling in JAX: scatter-add into the rows that a batch names, and a dense softmax."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from overhead.loops.rows import DENSE_CELLS, Trainer
from overhead.problem.words import RATE, Batch, Weights


# fmt: off
def gradients(weights: Any, centres: Array, targets: Array) -> tuple[Array, Array]:
    """Changes of the rows that are named: (pairs, DIMENSIONS), (pairs, 1 + NEGATIVES, DIMENSIONS)."""
    v, u = weights[0][centres], weights[1][targets]
    g = jax.nn.sigmoid(jnp.einsum("pd,ptd->pt", v, u)).at[:, 0].add(-1) * (RATE / len(v))
    return jnp.einsum("pt,ptd->pd", g, u), g[:, :, None] * v[:, None]


@partial(jax.jit, donate_argnums=0)
def scatter_step(weights: Any, centres: Array, targets: Array) -> Any:
    dv, du = gradients(weights, centres, targets)
    return weights[0].at[centres].add(-dv), weights[1].at[targets].add(-du)


@partial(jax.jit, donate_argnums=0)
def sorted_step(weights: Any, centres: Array, targets: Array) -> Any:
    """The same with the places sorted by row in the program, and XLA told so."""
    updated = []
    for w, rows, d in zip(weights, (centres, targets.ravel()), gradients(weights, centres, targets)):
        order = jnp.argsort(rows)
        d = d.reshape(-1, w.shape[1])[order]
        updated.append(w.at[rows[order]].add(-d, indices_are_sorted=True))
    return tuple(updated)


@partial(jax.jit, donate_argnums=0)
def dense_step(weights: Any, centres: Array, targets: Array) -> Any:
    """A softmax over the whole vocabulary."""
    v = weights[0][centres]
    d = jax.nn.softmax(v @ weights[1].T).at[jnp.arange(len(v)), targets[:, 0]].add(-1) * (RATE / len(v))
    return weights[0].at[centres].add(-(d @ weights[1])), weights[1] - d.T @ v
# fmt: on


WAYS: dict[str, tuple[str, Callable[..., Any]]] = {
    "jax scatter-add": ("one compiled step, w.at[rows].add", scatter_step),
    "jax sorted scatter-add": ("the same, the rows sorted in the program", sorted_step),
    "jax dense softmax": ("softmax over all words: dense products, every target's row updated", dense_step),
}


def trainers(device: str, batches: Sequence[Batch], weights: Weights) -> list[Trainer]:
    """All ways of this file on these batches, each with weights of its own."""
    put = partial(jax.device_put, device=jax.devices(device)[0], may_alias=False)
    placed = [(put(batch.centres), put(batch.targets)) for batch in batches]
    found = []
    for name, (does, step) in WAYS.items():
        if "dense" in name and len(batches[0].centres) * len(weights.targets) > DENSE_CELLS:
            continue
        s = SimpleNamespace(weights=(put(weights.centres), put(weights.targets)))

        def train(i: int, s: Any = s, step: Any = step) -> None:
            s.weights = step(s.weights, *placed[i])

        def fetch(s: Any = s) -> Weights:
            return Weights(*(np.asarray(w) for w in s.weights))

        found.append(Trainer(name, does, train, fetch, lambda s=s: jax.block_until_ready(s.weights)))
    return found
