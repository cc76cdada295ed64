"""A loop of the book, diagnosed as a reader's file is: `OVERHEAD_LOOP` names it, `target` gives what to diagnose.

A call runs `STEPS` training steps, so that what `fit` or a compiled epoch costs once is spread as in an epoch.
`OVERHEAD_PRODUCER_S` puts a producer before it that sleeps so many seconds a call.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from overhead import loops
from overhead.diagnose.session import Target
from overhead.measure.contestant import Contestant, environment
from overhead.problem.data import for_workload
from overhead.problem.mlp import init
from overhead.problem.workload import TRAINING_IMAGES, Workload

STEPS = 50


def target(loop: str, batch_size: int = 32, producer_s: float = 0.0) -> Target:
    """What to diagnose: a loop of the book, with its environment."""
    env = environment(Contestant(loop).resolved())
    env |= {"OVERHEAD_LOOP": loop, "OVERHEAD_PRODUCER_S": str(producer_s), "OVERHEAD_BATCH_SIZE": str(batch_size)}
    return Target(Path(__file__), batch_size=batch_size, env=tuple(env.items()))


class Batches:
    """The loop's state on batches of `n` images: those of an epoch, or a tenth where an epoch of MNIST has fewer."""

    def __init__(self, n: int) -> None:
        self.shape = (n,)
        count = STEPS if n * STEPS <= TRAINING_IMAGES else STEPS // 10
        workload = Workload(batch_size=n, images=n * count)
        self.state = loop.place(init(workload), for_workload(workload), workload)


def make_batch(n: int) -> Batches:
    return Batches(n)


def step(batches: Batches) -> None:
    global last
    last = batches
    batches.state = loop.run(batches.state, STEPS)


def sync() -> None:
    if last is not None:
        loop.block(last.state)


def state() -> Any:
    return [np.asarray(array) for layer in loop.fetch(last.state) for array in layer] if last is not None else []


def producer() -> Iterator[Batches]:
    made, producer_s = Batches(int(os.environ["OVERHEAD_BATCH_SIZE"])), float(os.environ["OVERHEAD_PRODUCER_S"])
    while True:
        time.sleep(producer_s)
        yield made


def asked_for() -> tuple[str, float] | None:
    """The loop and the producer's seconds, where this file runs as a reader's does; None where it is only imported."""
    name = os.environ.get("OVERHEAD_LOOP")
    return (name, float(os.environ["OVERHEAD_PRODUCER_S"])) if name else None


last: Batches | None = None
if asked := asked_for():
    loop = loops.make(asked[0], "cpu")
    if asked[1]:
        batches = producer
