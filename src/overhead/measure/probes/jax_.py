"""Probes in JAX."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from overhead.loops.jax_ import matrix_products
from overhead.measure.probes import FIXED, Probe
from overhead.measure.probes.numpy_ import (
    GPU_STREAM_BYTES,
    LARGE,
    STREAM_BYTES,
    epoch_batches,
    product_operands,
    uniform,
)
from overhead.problem import bounds
from overhead.problem.workload import Workload


def onto(device: str) -> Callable[[Any], Any]:
    return partial(jax.device_put, device=jax.devices(device)[0])


def held(call: Callable[[], Any]) -> tuple[Callable[[], None], Callable[[], None]]:
    """`call` keeping its newest result, and the wait for it."""
    last = SimpleNamespace(result=None)

    def keep() -> None:
        last.result = call()

    return keep, lambda: jax.block_until_ready(last.result)


def fixed_costs(device: str, workload: Workload) -> list[Probe]:
    put, host = onto(device), uniform(workload.batch_size, workload.layers[0])
    one, batch = put(np.ones(1, np.float32)), put(host)
    add_one = jax.jit(lambda x: x + 1)
    size = f"one batch ({host.nbytes:,} bytes)"
    return [
        Probe("smallest-op", FIXED, "JAX's add of one element, not compiled by us", *held(lambda: one + one)),
        Probe("jit-smallest", FIXED, "a compiled call that adds 1 to one element", *held(lambda: add_one(one))),
        Probe("to-device", FIXED, f"{size} to the device, pageable", *held(lambda: put(host)), bytes=host.nbytes),
        # A second read of one array is served from a copy on the host, so each read is of a new array.
        Probe("to-host", FIXED, f"{size} made on the device and read back",
              lambda: np.asarray(add_one(batch)), bytes=host.nbytes),
        Probe("synchronise", FIXED, "a wait for a result that is there", lambda: jax.block_until_ready(one)),
    ]  # fmt: skip


def rates(device: str, workload: Workload) -> list[Probe]:
    put, matmul = onto(device), jax.jit(jnp.matmul)
    n = LARGE if device == "cpu" else 8 * LARGE
    a = put(uniform(n, n))
    stream, size = (STREAM_BYTES, "64 MiB") if device == "cpu" else (GPU_STREAM_BYTES, "1 GiB")
    b, c = put(np.ones(stream // 4, np.float32)), put(np.ones(stream // 4, np.float32))
    copy, triad = jax.jit(lambda x: x + 0.5), jax.jit(lambda x, y: x + 3 * y)
    return [
        Probe("sgemm-large", "rate", f"({n}, {n}) @ ({n}, {n})", *held(lambda: matmul(a, a)),
              flops=2 * n**3, bytes=12 * n**2),
        Probe("copy", "rate", f"one read and one write of {size}", *held(lambda: copy(b)), bytes=2 * stream),
        Probe("triad", "rate", f"a = b + 3 c over {size} arrays", *held(lambda: triad(b, c)), bytes=3 * stream),
    ]  # fmt: skip


def products(device: str, workload: Workload) -> list[Probe]:
    put, found = onto(device), []
    transposed = {"dw2": "a", "da1": "b", "dw1": "a"}  # inside the program, as in the loop's step
    for work in bounds.gemms(workload):
        a, b = product_operands(work, workload)
        side, does = transposed.get(work.name), f"{a.shape} @ {b.shape}"
        if side == "a":
            a, run = a.T, jax.jit(lambda a, b: a.T @ b)
        elif side == "b":
            b, run = b.T, jax.jit(lambda a, b: a @ b.T)
        else:
            run = jax.jit(jnp.matmul)
        a, b = put(np.ascontiguousarray(a)), put(np.ascontiguousarray(b))
        found.append(Probe(work.name, "product", does, *held(partial(run, a, b)), flops=work.flops, bytes=work.bytes))
    return found


def micro(device: str, workload: Workload) -> list[Probe]:
    put, work = onto(device), bounds.gemms(workload)[0]
    x, w = (put(operand) for operand in product_operands(work, workload))
    matmul = jax.jit(jnp.matmul)
    does = f"{x.shape} @ {w.shape}"
    return [
        Probe("product", "micro", does, *held(lambda: x @ w), flops=work.flops, bytes=work.bytes),
        Probe("product-compiled", "micro", f"{does}, compiled", *held(lambda: matmul(x, w)),
              flops=work.flops, bytes=work.bytes),
    ]  # fmt: skip


@jax.jit
def five_products(weights: Any, x: Any, before: Any) -> Any:
    """(dw1, dw2) from the five products of a step, once `before` is there. `x`: (batch, inputs)."""
    x, _ = lax.optimization_barrier((x, before))  # steps follow each other; independent calls would overlap
    w1, w2 = weights
    a1 = x @ w1
    a2 = a1 @ w2
    return x.T @ (a2 @ w2.T), a1.T @ a2


def elementwise(params: Any, made: Any, y: Any, lr: Any) -> Any:
    """The loop's step with its products taken out. `made`: z1, z2, da1, dw1, dw2."""
    (w1, b1), (w2, b2) = params
    z1, z2, da1, dw1, dw2 = made
    a = jnp.maximum(z1 + b1, 0)
    p = jax.nn.softmax(z2 + b2)
    d = (p - jax.nn.one_hot(y, p.shape[1], dtype=p.dtype)) / len(y)
    da = da1 * (a > 0)
    return (w1 - lr * dw1, b1 - lr * da.sum(axis=0)), (w2 - lr * dw2, b2 - lr * d.sum(axis=0))


@partial(jax.jit, donate_argnums=0)
def elementwise_epoch(params: Any, made: Any, ys: Any, lr: Any) -> Any:
    """`elementwise` once a row of `ys`; the rate shrinks a little, so that nothing can be moved out of the loop."""

    def one(carry, y):
        params, lr = carry
        return (elementwise(params, made, y, lr), lr * 0.999), None

    (params, _), _ = lax.scan(one, (params, lr), ys)
    return params


def pieces(device: str, workload: Workload) -> list[Probe]:
    put, batch, (inputs, hidden, classes) = onto(device), workload.batch_size, workload.layers
    host = epoch_batches(workload)
    batches, whole = cycle([put(x) for x in host]), put(np.stack(host))
    weights = [put(uniform(inputs, hidden)), put(uniform(hidden, classes))]
    made = [put(uniform(*shape)) for shape in ((batch, hidden), (batch, classes), (batch, hidden))]
    made += [put(uniform(inputs, hidden)), put(uniform(hidden, classes))]
    y, ys = put(np.zeros(batch, np.int32)), put(np.zeros((workload.steps, batch), np.int32))
    lr = put(np.float32(1e-6))

    def state() -> Any:
        new = [put(uniform(*shape)) for shape in ((inputs, hidden), (hidden,), (hidden, classes), (classes,))]
        return SimpleNamespace(params=((new[0], new[1]), (new[2], new[3])))

    called, scanned, chain = state(), state(), SimpleNamespace(products=tuple(state().params[i][0] for i in (0, 1)))
    step = jax.jit(elementwise, donate_argnums=0)

    def call() -> None:
        called.params = step(called.params, made, y, lr)

    def multiply() -> None:
        chain.products = five_products(weights, next(batches), chain.products)

    def scan() -> None:
        scanned.params = elementwise_epoch(scanned.params, made, ys, lr)

    flops, steps = bounds.step_flops(workload), workload.steps
    return [
        Probe("products-into", "piece", "the five products, one compiled call a step",
              multiply, lambda: jax.block_until_ready(chain.products), flops=flops),
        Probe("elementwise-into", "piece", "all other arithmetic, one compiled call a step",
              call, lambda: jax.block_until_ready(called.params)),
        Probe("products-epoch", "piece", f"the five products of {steps:,} steps in one compiled call",
              *held(lambda: matrix_products(weights, whole, None)), flops=steps * flops),
        Probe("elementwise-epoch", "piece", f"all other arithmetic of {steps:,} steps in one compiled call",
              scan, lambda: jax.block_until_ready(scanned.params)),
    ]  # fmt: skip


MAKERS = {FIXED: fixed_costs, "rate": rates, "product": products, "micro": micro, "piece": pieces}
