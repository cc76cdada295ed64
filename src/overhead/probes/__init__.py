"""Probes: the smallest pieces of a training step, each timed by itself in a worker. Listing imports no framework."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from overhead import timing
from overhead.loops.base import nothing_to_wait_for
from overhead.workload import Workload

# What a probe is for. "floor": a cost that is paid however small the work is. "rate": a ceiling of this host.
# "product": one of the step's matrix products, hot. "micro": the article's product, written several ways.
# "piece": a part of a step, over the batches of an epoch. "frame": one training step of a framework.
KINDS = ("floor", "rate", "product", "micro", "piece", "frame")
MODULES = {"numpy": "numpy_", "jax": "jax_", "tensorflow": "tensorflow_", "cupy": "cupy_"}
LONGEST_BLOCK = 20_000  # calls


class Probe(NamedTuple):
    """A callable to be timed. `call()` may return early; `wait()` returns when all that was called is done."""

    name: str
    kind: str  # of KINDS
    does: str  # one line for a table
    call: Callable[[], object]
    wait: Callable[[], object] = nothing_to_wait_for
    flops: int = 0  # of one call
    bytes: int = 0  # that one call reads and writes


def make(framework: str, device: str, kind: str, workload: Workload) -> list[Probe]:
    """The probes of one kind in this process's framework, at the shapes of `workload`; none where it has none."""
    module = import_module(f"overhead.probes.{MODULES[framework]}")
    maker = module.MAKERS.get(kind)
    return maker(device, workload) if maker else []


def time_probe(probe: Probe, block_s: float, samples: int) -> dict[str, Any]:
    """Blocks of calls lasting about `block_s`: a wait after each call ("each"), and one wait at the end ("end").

    Returns the number of calls a block and the nanoseconds of `samples` blocks of either kind, in turn.
    """
    probe.call()  # compiles, allocates
    probe.wait()
    once = max(_block(probe, 1, each=True), 1)
    few = max(1, min(50, int(block_s * 1e8 / once)))  # a tenth of a block tells how long a call is when warm
    once = max(_block(probe, few, each=True) / few, 1)
    calls = max(1, min(LONGEST_BLOCK, round(block_s * 1e9 / once)))
    each, end = [], []
    for _ in range(samples):
        each.append(_block(probe, calls, each=True))
        end.append(_block(probe, calls, each=False))
    return {"calls": calls, "each_ns": each, "end_ns": end}


def _block(probe: Probe, calls: int, *, each: bool) -> int:
    call, wait = probe.call, probe.wait
    start = timing.clock()
    if each:
        for _ in range(calls):
            call()
            wait()
    else:
        for _ in range(calls):
            call()
        wait()
    return timing.clock() - start
