"""What a reader finds out on the simulated device; each exercise returns what it saw, and a sentence of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from overhead.lab import loops
from overhead.lab.device import Clock, Device, Simulated, kernels_s
from overhead.lab.loops import LabLoop
from overhead.measure.contestant import Contestant
from overhead.measure.rounds import run_cases
from overhead.measure.session import Preset, Session
from overhead.model import gpus
from overhead.model.replay import launched
from overhead.problem.workload import Workload
from overhead.records.record import Record

BATCHES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
SLOW_CALLS = 5
LONG_KERNEL_S = 1e-4  # many times a launch, so that the queue fills
SHORT = Workload(images=30_000)  # fewer steps than the queue holds launches, else the host has to wait all the same
# Few steps of few hidden units on a device fifty times as slow, so that what NumPy does on the quiet is short beside
# what the queue holds, however busy the host is.
FOR_HARNESS, SLOWER = Workload(layers=(784, 8, 10), batch_size=1, images=100), 50.0
BRIEF = Preset("lab", 0.5, 3.0, 1, (2, 3))


def epoch_s(kind: type[LabLoop], device: Device, workload: Workload, clock: Clock, *, wait: bool = True) -> float:
    """Seconds of one epoch after another was waited for; without `wait`, until the last call has returned."""
    step_s = kernels_s(device, kind.census, workload)
    loop, state = kind("cpu"), loops.State(Simulated(device, clock), step_s, None)
    began = clock.now()
    loop.run(state, workload.steps)
    if wait:
        state.device.synchronise()
    taken = clock.now() - began
    state.device.synchronise()
    return taken


def forget(device: Device, clock: Clock) -> dict[str, Any]:
    """The unfused step in a graph against the fused step kernel by kernel, with and without a wait at the end."""
    kinds, workload = {"graph of the unfused step": loops.Graph, "fused, kernel by kernel": loops.Fused}, SHORT
    waited = {name: epoch_s(kind, device, workload, clock) for name, kind in kinds.items()}
    returned = {name: epoch_s(kind, device, workload, clock, wait=False) for name, kind in kinds.items()}
    winner, seeming = min(waited, key=waited.__getitem__), min(returned, key=returned.__getitem__)
    return {
        "waited_s": waited, "returned_s": returned, "winner": winner, "winner_without_wait": seeming,
        "says": f"without a wait: {seeming}; with one: {winner}",
    }  # fmt: skip


def queue(device: Device, clock: Clock) -> dict[str, Any]:
    """The depth of the launch queue: launches before the first of several calls that each take as long as a kernel."""
    simulated, launched, slow = Simulated(device, clock), 0, 0
    started = clock.now()
    while slow < SLOW_CALLS:  # one may be slow because the host was busy
        began = clock.now()
        simulated.launch(LONG_KERNEL_S)
        slow = slow + 1 if clock.now() - began > LONG_KERNEL_S / 2 else 0
        launched += 1
    launched -= slow
    depth = round(launched + slow - (clock.now() - started) / LONG_KERNEL_S)  # without those that ended meanwhile
    simulated.synchronise()
    return {"launches": launched, "depth": depth, "says": f"after {launched:,} launches calls wait: depth {depth:,}"}


def batch(device: Device, clock: Clock) -> dict[str, Any]:
    """Seconds an epoch of the step op by op at twice and twice the batch size."""
    seconds = {size: epoch_s(loops.OpByOp, device, Workload(batch_size=size), clock) for size in BATCHES}
    pairs = list(pairwise(BATCHES))
    halved = [b for a, b in pairs if seconds[b] < 0.6 * seconds[a]]
    says = f"each doubling nearly halves the epoch up to {max(halved)} images" if halved else "no doubling helps"
    return {"seconds": seconds, "says": says}


def fuse(device: Device, clock: Clock) -> dict[str, Any]:
    """The step op by op against the step with its elementwise work in four kernels."""
    return _compared({"op by op": loops.OpByOp, "fused": loops.Fused}, device, clock)


def graph(device: Device, clock: Clock) -> dict[str, Any]:
    """The fused step kernel by kernel against the same kernels in a graph."""
    return _compared({"kernel by kernel": loops.Fused, "captured": loops.FusedGraph}, device, clock)


def _compared(kinds: dict[str, type[LabLoop]], device: Device, clock: Clock) -> dict[str, Any]:
    seconds = {name: epoch_s(kind, device, Workload(), clock) for name, kind in kinds.items()}
    first, second = seconds.values()
    return {"seconds": seconds, "says": f"{list(kinds)[1]}: {first / second:.2g} times as fast"}


def predicted(device: Device, clock: Clock) -> dict[str, Any]:
    """What chapter 8's model says of an epoch of each loop, beside the epoch as it is simulated."""
    rows, gpu = {}, gpus.preset(device.name)
    for kind in (loops.OpByOp, loops.Fused, loops.Graph, loops.FusedGraph):
        for size in (32, 1024):
            workload = Workload(batch_size=size)
            says, seen = launched(kind.census, workload, gpu).total_s, epoch_s(kind, device, workload, clock)
            rows[f"{kind.__name__} at {size}"] = {"predicted_s": says, "simulated_s": seen, "ratio": seen / says}
    worst = max((abs(row["ratio"] - 1), name) for name, row in rows.items())
    return {"rows": rows, "says": f"at most {worst[0]:.1%} apart ({worst[1]})"}


EXERCISES: dict[str, Callable[[Device, Clock], dict[str, Any]]] = {
    "forget": forget, "queue": queue, "batch": batch, "fuse": fuse, "graph": graph, "predict": predicted,
}  # fmt: skip


def caught(device: Device) -> list[Record]:
    """What the harness makes of the loop that forgets to wait and of the one that does not: processes of their own."""
    env = ((loops.VARIABLE, device.name), (loops.SLOWER, str(SLOWER)))
    names = [f"{loops.__name__}:{kind.__name__}" for kind in (loops.Graph, loops.ForgetsToWait)]
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    session = Session(BRIEF, {"host": "simulated", "notebook": "lab", "started": started})
    return run_cases([Contestant(name, "cpu", 1, env) for name in names], [FOR_HARNESS], session)
