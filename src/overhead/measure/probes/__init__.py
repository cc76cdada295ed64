"""Probes: the smallest pieces of a training step, each timed by itself in a worker. Listing imports no framework."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from overhead.loops import frameworks
from overhead.loops.base import nothing_to_wait_for
from overhead.machine import timer as timers
from overhead.problem.workload import Workload

# What a probe is for. FIXED: a cost that is paid however small the work is. "rate": a ceiling of this host.
# "product": one of the step's matrix products, hot. "micro": the article's product, written several ways.
# "piece": a part of a step, over the batches of an epoch. "frame": one training step of a framework.
# "rows": a step that touches few rows of its weights. "near": what a core reads from its second-level cache.
# "shape", "shape-tuned": a layer's products, and "pass": elementwise passes, of any size: what the model stands on.
FIXED = "fixed"
OF_ANY_SIZE = ("shape", "shape-tuned", "pass")  # in modules of their own
BY_ROWS = ("rows", "near")  # in one module for all frameworks
KINDS = (FIXED, "rate", "product", "micro", "piece", "frame", *BY_ROWS, *OF_ANY_SIZE)
WITH_SHAPES = ("numpy_", "jax_", "tensorflow_")
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
    module = frameworks.of(framework).probes
    if kind in BY_ROWS:
        by_rows = import_module("overhead.measure.probes.rows").MAKERS.get(framework, {}).get(kind)
        return by_rows(device, workload) if by_rows else []
    if module and kind in OF_ANY_SIZE:
        module = f"{module}shapes" if module in WITH_SHAPES else ""
    maker = import_module(f"overhead.measure.probes.{module}").MAKERS.get(kind) if module else None
    return maker(device, workload) if maker else []


def time_probe(
    probe: Probe,
    block_s: float,
    samples: int,
    calls: int | None = None,
    clocks: tuple[str, ...] = ("each", "end"),
    pause_ns: int = 0,
) -> dict[str, Any]:
    """Blocks of calls lasting about `block_s`: a wait after each call ("each"), and one wait at the end ("end").

    "paced": a wait after each call and a busy pause of `pause_ns` before it, which is not counted.
    Returns the number of calls a block (as given, or found after a first call that may compile) and, for each of
    `clocks`, the nanoseconds of `samples` blocks; the kinds take turns.
    """
    if calls is None:
        calls = calls_in(probe, block_s)
    found: dict[str, list[int]] = {f"{clock}_ns": [] for clock in clocks}
    for _ in range(samples):
        for clock in clocks:
            paced = clock == "paced"
            found[f"{clock}_ns"].append(
                _paced(probe, calls, pause_ns) if paced else _block(probe, calls, each=clock == "each")
            )
    return {"calls": calls, **found}


def calls_in(probe: Probe, block_s: float) -> int:
    """How many calls, at least one, last about `block_s` once what is done at a first call is done."""
    probe.call()  # compiles, allocates
    probe.wait()
    once = max(_block(probe, 1, each=True), 1)
    if once < 1e8 * block_s:  # a tenth of a block and more tells better how long a warm call is
        few = min(50, int(block_s * 1e8 / once))
        once = max(_block(probe, few, each=True) / few, 1)
    return max(1, min(LONGEST_BLOCK, round(block_s * 1e9 / once)))


def _block(probe: Probe, calls: int, *, each: bool) -> int:
    call, wait = probe.call, probe.wait
    start = timers.clock()
    if each:
        for _ in range(calls):
            call()
            wait()
    else:
        for _ in range(calls):
            call()
        wait()
    return timers.clock() - start


def _paced(probe: Probe, calls: int, pause_ns: int) -> int:
    now, spent = timers.clock, 0
    for _ in range(calls):
        start = now()
        while now() - start < pause_ns:
            pass
        start = now()
        probe.call()
        probe.wait()
        spent += now() - start
    return max(spent, 1)
