"""Common pitfalls, each beside the step without it; run as a reader's file is, `choose` says which."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import threadpoolctl

from overhead.diagnose.session import Target
from overhead.machine import host
from overhead.problem.data import for_workload
from overhead.problem.mlp import Layer, Params, init
from overhead.problem.workload import Workload


class Pitfall(NamedTuple):
    """A habit that costs: the framework whose step it is shown on, and what is done."""

    framework: str
    does: str


PITFALLS = {
    "read-each-step": Pitfall("jax", "`.item()` each step: one number fetched, so that the step must be waited for"),
    "wait-each-step": Pitfall("jax", "`block_until_ready()` each step"),
    "host-arrays": Pitfall("jax", "NumPy arrays handed to a compiled step, which copies them each time"),
    "new-shape": Pitfall("jax", "a batch of another length each step: compiled anew"),
    "print-each-step": Pitfall("numpy", "a line printed each step, to a pipe and flushed"),
    "metric-each-step": Pitfall("numpy", "the accuracy of the batch each step, by a second forward pass"),
    "float64": Pitfall("numpy", "weights that became float64 by accident"),
    "convert-each-step": Pitfall("numpy", "images kept as bytes, scaled to float32 each step"),
    "too-many-threads": Pitfall("numpy", "four times as many BLAS threads as cores"),
    "one-image-at-a-time": Pitfall("numpy", "a step an image, in the place of one a batch"),
}
BATCH_SIZE = 32
LEARNING_RATE = np.float32(0.01)


def target(framework: str) -> Target:
    """What to start: the file of the pitfalls on one framework."""
    return Target(
        Path(__file__), batch_size=BATCH_SIZE, env=(("OVERHEAD_PITFALLS", framework), ("JAX_PLATFORMS", "cpu"))
    )


def make_batch(n: int) -> tuple[np.ndarray, np.ndarray]:
    data = for_workload(Workload(batch_size=n, images=n))
    return data.x, data.y


def own(params: Params, dtype: type = np.float32) -> Params:
    """A copy of the parameters, which a step changes in place."""
    return tuple(Layer(w.astype(dtype), b.astype(dtype)) for w, b in params)


def numpy_steps() -> dict[str, Callable[[Any], Any]]:
    """The book's NumPy step, by itself ("plain") and with each pitfall."""
    from overhead.loops.numpy_ import sgd_step

    start = init(Workload(batch_size=BATCH_SIZE, images=BATCH_SIZE))
    params, doubled = own(start), own(start, np.float64)
    x, _ = make_batch(BATCH_SIZE)
    stored = np.round(x * 255).astype(np.uint8)

    def plain(batch: Any) -> Any:
        x, y = batch
        sgd_step(params, x, y, LEARNING_RATE)
        return params

    def prints(batch: Any) -> Any:
        plain(batch)
        print("step", float(params[1].b[0]), flush=True)

    def metric(batch: Any) -> Any:
        plain(batch)
        x, y = batch
        h = np.maximum(x @ params[0].w + params[0].b, 0)
        return float(((h @ params[1].w + params[1].b).argmax(axis=1) == y).mean())

    def float64(batch: Any) -> Any:
        x, y = batch
        sgd_step(doubled, x, y, LEARNING_RATE)

    def convert(batch: Any) -> Any:
        plain((stored.astype(np.float32) / np.float32(255), batch[1]))

    def images(batch: Any) -> Any:
        x, y = batch
        for i in range(len(y)):
            sgd_step(params, x[i : i + 1], y[i : i + 1], LEARNING_RATE)

    return {
        "plain": plain, "print-each-step": prints, "metric-each-step": metric, "float64": float64,
        "convert-each-step": convert, "too-many-threads": plain, "one-image-at-a-time": images,
    }  # fmt: skip


def jax_steps() -> dict[str, Callable[[Any], Any]]:
    """The book's compiled JAX step, by itself ("plain") and with each pitfall."""
    jax_ = importlib.import_module("overhead.loops.jax_")
    place = jax_.jax.device_put
    params = place(tuple(tuple(layer) for layer in init(Workload(batch_size=BATCH_SIZE, images=BATCH_SIZE))))
    rate, batch_there = place(LEARNING_RATE), place(make_batch(BATCH_SIZE))
    long = place(make_batch(1024))
    lengths = iter(range(BATCH_SIZE + 1, 1024))

    def run(x: Any, y: Any) -> Any:
        nonlocal params
        params = jax_.jitted_step(params, x, y, rate)
        return params

    def reads(_: Any) -> Any:
        return run(*batch_there)[1][1][0].item()

    def waits(_: Any) -> Any:
        return run(*batch_there)[0][0].block_until_ready()

    def new_shape(_: Any) -> Any:
        n = next(lengths)
        return run(long[0][:n], long[1][:n])

    return {
        "plain": lambda _: run(*batch_there), "read-each-step": reads, "wait-each-step": waits,
        "host-arrays": lambda batch: run(*batch), "new-shape": new_shape,
    }  # fmt: skip


def choose(name: str) -> None:
    """Make `step` that of a pitfall, or "plain"."""
    global chosen
    chosen = steps[name]
    pools.restore_original_limits()
    if name == "too-many-threads":
        threadpoolctl.threadpool_limits(4 * host.cores_allowed())


def step(batch: Any) -> Any:
    return chosen(batch)


def asked_for() -> str | None:
    """The framework, where this file runs as a reader's does; None where it is only imported."""
    return os.environ.get("OVERHEAD_PITFALLS")


if framework := asked_for():
    steps = {"numpy": numpy_steps, "jax": jax_steps}[framework]()
    chosen = steps["plain"]
    pools = threadpoolctl.threadpool_limits(None)
