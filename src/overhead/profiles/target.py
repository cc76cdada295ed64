"""What runs under a profiler: `python -m overhead.profiles.target LOOP DEVICE [TRACE]`, one warm epoch with ranges.

With TRACE, a folder, JAX's own profiler records the epoch; without it, the ranges are NVTX ranges for nsys.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

from overhead import loops
from overhead.loops.base import Loop
from overhead.machine.alone import die_with_parent
from overhead.problem.data import load_mnist, split
from overhead.problem.mlp import init
from overhead.problem.workload import Workload
from overhead.profiles.nvtx import Mark, keras_ranges, nvtx_marker


def epoch(loop: Loop, state: Any, workload: Workload, mark: Mark) -> Any:
    """Train one epoch inside ranges: Keras marks its own, other loops are marked from outside."""
    model = getattr(state, "model", None)
    if model is not None:
        model.fit = partial(model.fit, callbacks=[keras_ranges(mark)])
        state = loop.run(state, workload.steps)
        loop.block(state)
        return state
    one_by_one = loop.steps_per_call(workload) == 1
    with mark("epoch"), mark("train"):
        for _ in range(workload.steps if one_by_one else 1):
            with mark("step") if one_by_one else mark("call"):
                state = loop.run(state, 1 if one_by_one else workload.steps)
        loop.block(state)
    return state


def main(name: str, device: str, trace: str | None = None, images: int = 48_000) -> None:
    die_with_parent()
    workload = Workload(images=images)
    loop = loops.make(name, device)
    state = loop.place(init(workload), split(load_mnist(), workload), workload)
    warm = loop.run(state, loop.steps_per_call(workload))  # compiles; its calls lie in no range
    loop.block(warm)
    if trace is None:
        mark, writer = nvtx_marker()
        done = epoch(loop, warm, workload, mark)
    else:
        import jax

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # a trace of every Python call would hide what it is about
        writer = "jax"
        with jax.profiler.trace(trace, profiler_options=options):
            done = epoch(loop, warm, workload, lambda name: jax.profiler.TraceAnnotation(name))
    kind, device_name = loop.placed_on(done)
    print(json.dumps({"device": kind, "device_name": device_name, "ranges": writer}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] if len(sys.argv) > 3 else None, *map(int, sys.argv[4:5]))
