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
from overhead.measure.probes.numpy_shapes import PASS_BYTES, product_probe, ring
from overhead.problem.workload import Workload

PASSES = 16  # of one call


def scanned(product: Callable[[Any, Any], Any], other: Any, ring: Any, options: dict[str, str]) -> Callable[[], Any]:
    """A compiled call of `product(one of the ring, other)` for all of the ring, one after another."""

    def run(other: Any, ring: Any) -> Any:
        first = jnp.zeros_like(product(ring[0], other))
        return lax.scan(lambda _, one: (product(one, other), None), first, ring)[0]

    compiled = jax.jit(run, compiler_options=options) if options else jax.jit(run)
    return partial(compiled, other, ring)


def shapes(device: str, workload: Workload, options: dict[str, str] | None = None) -> list[Probe]:
    """The three products of one layer; a call goes round the ring, so its FLOPs are those of all its products."""
    put, batch, (inputs, outputs) = onto(device), workload.batch_size, workload.layers
    w, d = put(uniform(inputs, outputs)), put(uniform(batch, outputs))
    xs, ds = put(np.stack(ring(batch, inputs))), put(np.stack(ring(batch, outputs)))
    made = [
        ("nn", (batch, outputs, inputs), lambda x, w: x @ w, w, xs),
        ("tn", (inputs, outputs, batch), lambda x, d: x.T @ d, d, xs),
        ("nt", (batch, inputs, outputs), lambda d, w: d @ w.T, w, ds),
    ]
    found = []
    for name, shape, product, other, many in made:
        call, wait = held(scanned(product, other, many, options or {}))
        probe = product_probe(name, shape, call, wait=wait)
        found.append(probe._replace(flops=len(many) * probe.flops, bytes=len(many) * probe.bytes))
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
