"""Advice for a reader's own network: predicted epochs by loop and device, what would help, where a GPU wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from overhead.model.census import CPU_LOOPS, GPU_LOOPS
from overhead.model.constants import Constants
from overhead.model.gpus import Gpu
from overhead.model.replay import DRAWS, CannotModel, Prediction, on_cpu, on_gpu
from overhead.problem.workload import Workload

DEFAULT_LOOP = "keras-fit"
LARGEST_BATCH = 16_384  # up to which a crossover is looked for
WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)  # of the hidden layers, all alike
DEPTHS = (1, 2, 3, 4, 6, 8)  # layers of weights
DEFAULT_WIDTH = 128  # of the hidden layers that a network without any is given
LEVEL = 0.90
NO_GAIN = 1.05  # a gain whose interval reaches below is no reason to change anything
WHOLE_EPOCH = ("jax-epoch-tuned", "jax-epoch", "tf-epoch")
OF_CLASS = {
    "compile the step": ("jax-step", "tf-step"),
    "compile the whole epoch": WHOLE_EPOCH,
    "tune fit": ("keras-fit-tuned",),
    "preallocate": ("numpy-preallocated",),
}


class Crossover(NamedTuple):
    """The smallest batch size (or width, or depth) from which the GPU wins, there and for all larger ones looked at."""

    batch_size: int | None
    low: int | None
    high: int | None
    verdict: str


class Advice(NamedTuple):
    """A change, the factor by which an epoch gets shorter with its 90 % interval, and what it costs in learning."""

    change: str
    gain: float
    low: float
    high: float
    updates_per_epoch: int
    why: str
    loop: str
    device: str
    batch_size: int
    threads: int | None = None


def predictions(
    workload: Workload,
    constants: Constants,
    gpu: Gpu | None = None,
    host_factor: float = 1.0,
    loops: Sequence[str] | None = None,
    draws: int = DRAWS,
) -> list[Prediction]:
    """Every loop that can be priced, on this CPU and on `gpu`, the fastest first; without draws, with no intervals."""
    found = []
    for loop in loops or CPU_LOOPS:
        if loop in CPU_LOOPS:
            try:
                found.append(on_cpu(loop, workload, constants, draws=draws))
            except CannotModel:  # a framework that this host lacks
                continue
    for loop in loops or GPU_LOOPS:
        if gpu is not None and loop in GPU_LOOPS:
            try:
                found.append(on_gpu(loop, workload, constants, gpu, host_factor, draws))
            except CannotModel:
                continue
    return sorted(found, key=lambda p: p.epoch_s)


def best(found: Sequence[Prediction], device: str) -> Prediction | None:
    """The fastest on a device; None where nothing could be priced."""
    return min((p for p in found if p.device == device), key=lambda p: p.epoch_s, default=None)


def batch_sizes(images: int) -> list[int]:
    """Powers of two up to the images and `LARGEST_BATCH`."""
    return [size for i in range(15) if (size := 1 << i) <= min(images, LARGEST_BATCH)]


def along(workload: Workload, by: str) -> tuple[list[int], list[Workload]]:
    """Values of `by` (batch_size, width or depth of the hidden layers) and `workload` with each."""
    inputs, *hidden, classes = workload.layers
    width = hidden[0] if hidden else DEFAULT_WIDTH
    if by == "batch_size":
        values = batch_sizes(workload.images)
        return values, [workload.model_copy(update={"batch_size": value}) for value in values]
    if by == "width":
        made = [(inputs, *[value] * max(len(hidden), 1), classes) for value in WIDTHS]
        return list(WIDTHS), [workload.model_copy(update={"layers": layers}) for layers in made]
    made = [(inputs, *[width] * (value - 1), classes) for value in DEPTHS]
    return list(DEPTHS), [workload.model_copy(update={"layers": layers}) for layers in made]


def crossover(workload: Workload, constants: Constants, gpu: Gpu, host_factor: float = 1.0,
              by: str = "batch_size") -> Crossover:  # fmt: skip
    """From where on the fastest loop of the GPU beats the fastest of the CPU."""
    values, workloads = along(workload, by)
    share, wins = [], []
    for at in workloads:
        found = predictions(at, constants, gpu, host_factor)
        cpu, other = best(found, "cpu"), best(found, "gpu")
        if cpu is None or other is None:
            return Crossover(None, None, None, "cannot tell: no loop can be priced on both devices")
        wins.append(other.epoch_s < cpu.epoch_s)
        share.append(float(np.mean(np.array(other.draws_s) < np.array(cpu.draws_s))))
    return crossing(values, wins, share)


def crossing(sizes: Sequence[int], wins: Sequence[bool], share: Sequence[float]) -> Crossover:
    """From which size on the GPU wins for good. `share`: of the draws in which it wins, by size.

    The interval: from where it wins in 5 % of the draws to where it wins in 95 %, there and for all larger.
    """

    def first(holds: Sequence[bool]) -> int | None:
        at = len(holds)
        while at and holds[at - 1]:
            at -= 1
        return sizes[at] if at < len(sizes) else None

    low, high = first([s >= (1 - LEVEL) / 2 for s in share]), first([s >= (1 + LEVEL) / 2 for s in share])
    middle = first(wins)
    if low is None:
        return Crossover(None, None, None, f"never up to {sizes[-1]}")
    if high == sizes[0]:
        return Crossover(sizes[0], low, high, "always")
    if high is None or middle is None:
        return Crossover(middle, low, high, "cannot tell")
    return Crossover(middle, low, high, f"from {middle} on")


def advise(
    workload: Workload, constants: Constants, loop: str = DEFAULT_LOOP, gpu: Gpu | None = None, host_factor: float = 1.0
) -> dict[str, Any]:
    """What `overhead advise --json` prints: rows, crossover, advice and answer; `advice` holds the objects besides."""
    now = on_cpu(loop, workload, constants) if loop in CPU_LOOPS else None
    found = predictions(workload, constants, gpu, host_factor)
    if now is None:
        raise CannotModel(f"--loop must be one that runs on this CPU ({', '.join(CPU_LOOPS)}), got {loop!r}")
    advice = ranked(now, workload, constants, found)
    none = Crossover(None, None, None, "no --gpu given")
    crossed, by_width, by_depth = [
        crossover(workload, constants, gpu, host_factor, by) if gpu else none for by in ("batch_size", "width", "depth")
    ]
    return {
        "layers": list(workload.layers),
        "batch_size": workload.batch_size,
        "loop": loop,
        "host": constants.name,
        "gpu": gpu.name if gpu else None,
        "rows": [row(p) for p in found],
        "crossover": crossed._asdict(),
        "crossover_width": _of("width", by_width),
        "crossover_depth": _of("depth", by_depth),
        "advice": [
            {key: value for key, value in a._asdict().items() if key not in ("threads",)} for a in advice
        ],
        "answer": answer(now, found, advice, crossed, gpu),
    }  # fmt: skip


def _of(by: str, crossed: Crossover) -> dict[str, Any]:
    return {by: crossed.batch_size, **{name: getattr(crossed, name) for name in ("low", "high", "verdict")}}


def row(p: Prediction) -> dict[str, Any]:
    """A prediction, ready for JSON."""
    epoch = {"median": p.epoch_s, "low": p.low_s, "high": p.high_s}
    return {"loop": p.loop, "device": p.device, "modelled": p.modelled, "epoch_s": epoch, "terms": p.terms._asdict()}


def gain(now: Prediction, then: Prediction) -> tuple[float, float, float]:
    """How many times faster, with the 90 % interval of the draws' ratio."""
    ratio = np.array(now.draws_s) / np.array(then.draws_s)
    middle = now.epoch_s / then.epoch_s
    low, high = np.quantile(ratio, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return middle, float(min(low, middle)), float(max(high, middle))


def ranked(
    now: Prediction, workload: Workload, constants: Constants, found: Sequence[Prediction]
) -> list[Advice]:  # fmt: skip
    """Changes from `now`, the largest certain gain first; always one, if only to leave it as it is."""
    options: list[Advice] = []

    def offer(change: str, then: Prediction, why: str, size: int = workload.batch_size, threads: int | None = None):
        updates = workload.model_copy(update={"batch_size": size}).steps
        options.append(Advice(change, *gain(now, then), updates, why, then.loop, then.device, size, threads))

    for change, loops in OF_CLASS.items():
        faster = [p for p in found if p.device == "cpu" and p.loop in loops and p.loop != now.loop]
        if faster:
            then = min(faster, key=lambda p: p.epoch_s)
            offer(f"{change} ({then.loop})", then, _why(now, then))
    other = best(found, "gpu")
    if other is not None:
        offer(f"other device ({other.loop})", other, _why(now, other))
    larger = workload.batch_size * 4
    if larger <= min(workload.images, LARGEST_BATCH):
        then = on_cpu(now.loop, workload.model_copy(update={"batch_size": larger}), constants)
        updates = workload.model_copy(update={"batch_size": larger}).steps
        offer(
            f"batch size {larger}", then,
            f"{_why(now, then)}; {updates} updates an epoch in the place of {workload.steps}: it learns less an epoch",
            larger,
        )  # fmt: skip
    if constants.threads > 1:
        try:
            then = on_cpu(now.loop, workload, constants, threads=1)
            offer("one thread", then, _why(now, then), threads=1)
        except CannotModel:
            pass
    good = sorted((a for a in options if a.low >= NO_GAIN), key=lambda a: -a.gain)
    unsure = sorted((a for a in options if a.low < NO_GAIN <= a.gain), key=lambda a: -a.gain)
    leave = Advice(
        "leave it as it is", 1.0, 1.0, 1.0, workload.steps, "nothing else is surely faster", now.loop, now.device,
        workload.batch_size,
    )  # fmt: skip
    return [*good, leave, *unsure]


def _why(now: Prediction, then: Prediction) -> str:
    """The term that shrinks most."""
    shrunk = {name[:-2]: a - b for name, a, b in zip(now.terms._fields, now.terms, then.terms, strict=True)}
    most = max(shrunk, key=lambda name: shrunk[name])
    if shrunk[most] <= 0:
        return "no term shrinks"
    before = getattr(now.terms, f"{most}_s")
    return f"{most} falls from {before:.3g} to {before - shrunk[most]:.3g} s an epoch"


def answer(
    now: Prediction, found: Sequence[Prediction], advice: Sequence[Advice], crossed: Crossover, gpu: Gpu | None
) -> str:
    """One sentence."""
    cpu, other = best(found, "cpu"), best(found, "gpu")
    assert cpu is not None
    said = f"{now.loop} takes about {now.epoch_s:.2g} s an epoch here"
    first = advice[0]
    said += (
        "; leave it as it is" if first.change == "leave it as it is"
        else f"; {first.change} is about {first.gain:.2g} times as fast [{first.low:.2g}, {first.high:.2g}]"
    )  # fmt: skip
    if gpu is None or other is None:
        return f"{said}."
    ratio = cpu.epoch_s / other.epoch_s
    _, low, high = gain(cpu, other)
    if high < 1:
        verdict = f"stay on the CPU: a modelled {gpu.name} would take {1 / ratio:.2g} times as long at best"
    elif low > 1:
        verdict = f"take the GPU: a modelled {gpu.name} is {ratio:.2g} times as fast as the best loop here"
    else:
        verdict = f"whether a modelled {gpu.name} would be faster cannot be told"
    return f"{said}; {verdict} (GPU wins: {crossed.verdict})."
