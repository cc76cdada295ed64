"""Probes in JAX of products of any shape and of passes over arrays of any size, each inside a compiled loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from overhead.loops.jax_ import WITHOUT_YNNPACK
from overhead.measure.probes import Probe
from overhead.measure.probes.jax_ import held, onto
from overhead.measure.probes.numpy_ import uniform
from overhead.measure.probes.numpy_shapes import PASS_BYTES, product_probe
from overhead.problem.workload import Workload

PASSES = 16  # of one call
PRODUCTS = 32  # of one call, and fewer where they are long: so many FLOPs suffice
ENOUGH_FLOPS = 1e8


def chained(product: Callable[[Any, Any], Any], x: Any, other: Any, times: int, options: dict[str, str]) -> Any:
    """A compiled call of `product(x, other)`, `times` times, none of which can be left out or moved out of the loop:
    each puts a number into `other`, in place. Nothing is copied, so that the product is timed and nothing else."""

    def run(x: Any, other: Any) -> Any:
        def body(_: Any, state: Any) -> Any:
            made = product(x, state[0])
            return state[0].at[0, 0].add(made[0, 0] * 1e-30), made

        nothing = jnp.zeros(jax.eval_shape(product, x, other).shape, x.dtype)
        return lax.fori_loop(0, times, body, (other, nothing))

    compiled = jax.jit(run, compiler_options=options) if options else jax.jit(run)
    return partial(compiled, x, other)


def shapes(device: str, workload: Workload, options: dict[str, str] | None = None) -> list[Probe]:
    """The three products of one layer, hot; a call is many of them, so its FLOPs are those of all."""
    put, batch, (inputs, outputs) = onto(device), workload.batch_size, workload.layers
    w, d, x = put(uniform(inputs, outputs)), put(uniform(batch, outputs)), put(uniform(batch, inputs))
    made = [
        ("nn", (batch, outputs, inputs), lambda x, w: x @ w, x, w),
        ("tn", (inputs, outputs, batch), lambda x, d: x.T @ d, x, d),
        ("nt", (batch, inputs, outputs), lambda d, w: d @ w.T, d, w),
    ]
    times = int(min(PRODUCTS, max(2, ENOUGH_FLOPS // (2 * batch * inputs * outputs))))
    found = []
    for name, shape, product, one, other in made:
        call, wait = held(chained(product, one, other, times, options or {}))
        probe = product_probe(name, shape, call, wait=wait)
        found.append(probe._replace(flops=times * probe.flops, bytes=times * probe.bytes))
    return found


def tuned_shapes(device: str, workload: Workload) -> list[Probe]:
    return shapes(device, workload, WITHOUT_YNNPACK)


def passes(device: str, workload: Workload) -> list[Probe]:
    """An update in place, a = a - b · rate: two reads and a write, `PASSES` times in one call."""
    put, found = onto(device), []
    rate = put(np.float32(1e-9))

    @partial(jax.jit, donate_argnums=0)
    def run(a: Any, b: Any, rate: Any) -> Any:
        return lax.fori_loop(0, PASSES, lambda _, a: a - rate * b, a)

    for size in PASS_BYTES:
        s = SimpleNamespace(a=put(uniform(size // 4)))
        b = put(uniform(size // 4))

        def call(s: Any = s, b: Any = b) -> None:
            s.a = run(s.a, b, rate)

        does = f"{PASSES} updates of an array of {size:,} bytes"
        wait = partial(lambda s: jax.block_until_ready(s.a), s)
        found.append(Probe(f"into {size}", "pass", does, call, wait, bytes=PASSES * 3 * size))
    return found


MAKERS = {"shape": shapes, "shape-tuned": tuned_shapes, "pass": passes}
