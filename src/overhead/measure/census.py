"""An overhead census: numbers of one training step that carry no noise. A census run is never the timed run."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overhead.loops.base import Loop
    from overhead.problem.workload import Workload

# What is counted, and its heading in a table.
COUNTS = {
    "python_calls": "Python calls a step",
    "c_calls": "C calls from Python a step",
    "page_faults": "page faults a step",
    "compilations": "programs compiled",
    "fusions": "fusions in the program",
    "products": "products in the program",
    "custom_calls": "custom calls in the program",
    "transfers": "implicit transfers a step",
}
LEAST_STEPS = 32
FAULT_RUNS = 3  # of each length where runs are short; whatever else happens in the process can only add a page fault


def calls(run: Any, steps: int) -> tuple[int, int]:
    """Python calls and C calls made by this thread while `run(steps)` runs."""
    python = c = 0

    def count(_: Any, event: str, __: Any) -> None:
        nonlocal python, c
        if event == "call":
            python += 1
        elif event == "c_call":
            c += 1

    sys.setprofile(count)
    try:
        run(steps)
    finally:
        sys.setprofile(None)
    return python, c


def faults(run: Any, steps: int) -> int:
    """Minor page faults of this process while `run(steps)` runs."""
    import resource  # which native Windows has not, where the records of others are read

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    run(steps)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def census(loop: Loop, state: Any, workload: Workload) -> dict[str, float]:
    """Counts per step: each is the difference of a run of 2N steps and one of N, over N.

    What a call of `run` costs once falls out of the difference. The program's counts are of the whole
    compiled program (one step, or one epoch), where the loop can show it.
    """
    per_call = loop.steps_per_call(workload)
    steps = -(-LEAST_STEPS // per_call) * per_call

    def run(n: int) -> None:
        nonlocal state
        state = loop.run(state, n)
        loop.block(state)

    short = steps <= 2 * LEAST_STEPS  # of a loop that runs whole epochs each run may last seconds
    for n in (steps, 2 * steps, steps) if short else (steps,):
        run(n)  # every program is compiled and every cache is warm
    counted: dict[int, tuple[int, int]] = {}

    def profiled(n: int) -> None:
        counted[n] = calls(run, n)

    # Where an epoch lasts seconds, its page faults are counted while its calls are, which may add a few.
    one, two = (faults(profiled, n) for n in (steps, 2 * steps))
    if short:
        one, two = (min(faults(run, n) for _ in range(FAULT_RUNS)) for n in (steps, 2 * steps))
    (python, c), (python2, c2) = counted[steps], counted[2 * steps]
    found = {
        "python_calls": (python2 - python) / steps,
        "c_calls": (c2 - c) / steps,
        "page_faults": max(0, two - one) / steps,
    }
    if (compilations := loop.compilations()) is not None:
        found["compilations"] = compilations
    if (text := loop.program(state)) is not None:
        found |= program_counts(text)
    if (transfers := loop.transfers(state)) is not None:
        found["transfers"] = transfers
    return found


def program_counts(text: str) -> dict[str, float]:
    """Fusions, products and custom calls in an optimised HLO module's text."""
    products = len(re.findall(r"= \S+ dot\(", text))
    custom = re.findall(r'custom_call_target="([^"]*)"', text)
    return {
        "fusions": len(re.findall(r"= \S+ fusion\(", text)),
        "products": products + sum("matmul" in name or "gemm" in name for name in custom),
        "custom_calls": len(custom),
    }
