"""The replay of a step: a census priced with a host's constants, or with a GPU's. Terms add up to the total.

On a CPU the step is the sum of its terms. On a GPU two clocks run: the host enqueues, the device drains a bounded
queue. With the same step again and again the queue is either never empty or never full, so that an epoch takes the
longer of the two and one step of the other; a test plays the queue event by event, and compares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from overhead.model import kriging
from overhead.model.census import CENSUS, Census, count, products
from overhead.model.constants import TERMS, Constants, Curve, Frame, Library
from overhead.model.gpus import Gpu
from overhead.model.products import correction, formula
from overhead.problem.workload import Workload

DRAWS = 64
REACH = 2.0  # of what is left over of steps: doublings of the batch size or of the parameters
A_LAYER = 1.5  # that another layer is away, in such doublings
CUPY = "cupy"  # runs on GPUs only: its host costs are published ones
WORD_BYTES = 4
BUDGET = ("dispatch_s", "arithmetic_s", "memory_s", "copy_s", "wait_s")


class CannotModel(ValueError):
    """What the model does not cover; says why."""


class Terms(NamedTuple):
    """Where an epoch's seconds go."""

    dispatch_s: float  # calls and operators, on the host
    arithmetic_s: float  # matrix products and what the loss does with the logits
    memory_s: float  # elementwise passes, new arrays, images from memory
    copy_s: float  # between host and device
    wait_s: float  # for the device, or for the host, where the other was not the cause

    @property
    def total_s(self) -> float:
        return sum(self)


class Prediction(NamedTuple):
    """An epoch of a loop: its terms, and the 90 % interval of the total."""

    loop: str
    device: str  # cpu or gpu
    modelled: bool  # from published figures of a device that is not here
    terms: Terms
    low_s: float
    high_s: float
    draws_s: tuple[float, ...]

    @property
    def epoch_s(self) -> float:
        """The median."""
        return self.terms.total_s


class Parts(NamedTuple):
    """A step of a loop on the CPU, before a frame's constants are put on it."""

    ops: float
    logits: float
    arithmetic_s: tuple[float, ...]  # by product
    memory_s: float


def at(curve: Curve, size: float) -> float:
    """Seconds a byte for an array of `size` bytes: straight between the points on the logarithm of size."""
    xs, ys = zip(*curve, strict=True)
    return float(np.interp(math.log(size), np.log(xs), ys))


def parts(census: Census, workload: Workload, constants: Constants, threads: int) -> Parts:
    """What `census` comes to for `workload`. Raises `CannotModel` for threads that were not calibrated."""
    library = constants.products.get(census.library, {}).get(str(threads))
    if library is None or census.framework not in constants.passes:
        had = ", ".join(constants.products.get(census.library, {})) or "none"
        raise CannotModel(f"{census.library} must be calibrated with {threads} threads, has {had}")
    arithmetic = [_product_s(library, *product) for product in products(workload)]
    passes, memory = constants.passes[census.framework], 0.0
    for inputs, outputs in pairwise(workload.layers):
        memory += census.parameter_bytes * inputs * outputs * at(passes, WORD_BYTES * inputs * outputs)
        if census.fresh:
            memory += WORD_BYTES * inputs * outputs * at(constants.fresh, WORD_BYTES * inputs * outputs)
    memory += _activations_s(census, workload, constants, census.activation_bytes)
    if census.fresh:
        for width in workload.layers[1:-1]:
            elements = workload.batch_size * width
            memory += 5 * WORD_BYTES * elements * at(constants.fresh, WORD_BYTES * elements)
    memory += _images_s(census, workload, constants)
    logits = census.logits * workload.batch_size * workload.layers[-1]
    return Parts(count(census.ops, workload), logits, tuple(arithmetic), memory)


def forward(census: Census, workload: Workload, constants: Constants, threads: int) -> Parts:
    """A step that validates: the forward products alone, and a third of operators and passes."""
    library = constants.products[census.library][str(threads)]
    arithmetic = [_product_s(library, *product) for product in products(workload) if product.layout == "nn"]
    memory = _activations_s(census, workload, constants, census.activation_bytes / 3)
    memory += _images_s(census, workload, constants)
    logits = census.logits * workload.batch_size * workload.layers[-1] / 3
    return Parts(count(census.ops, workload) / 3, logits, tuple(arithmetic), memory)


def validating_steps(census: Census, workload: Workload) -> int:
    return math.ceil(census.validated_images / workload.batch_size)


def _product_s(library: Library, layout: str, m: int, n: int, k: int) -> float:
    fit = library.fits[layout]
    return (float(formula(fit, float(m), float(n), float(k))) - fit.a_s) * correction(fit, m, n, k)


def _activations_s(census: Census, workload: Workload, constants: Constants, each_bytes: float) -> float:
    passes, found = constants.passes[census.framework], 0.0
    for width in workload.layers[1:-1]:
        elements = workload.batch_size * width
        found += each_bytes * elements * at(passes, WORD_BYTES * elements)
    return found


def _images_s(census: Census, workload: Workload, constants: Constants) -> float:
    """To gather a batch where the loop does, and to read it from memory where the epoch does not fit a cache."""
    slowest = constants.passes[census.framework][-1][1]
    found = census.input_bytes * workload.batch_size * workload.layers[0] * slowest
    if WORD_BYTES * workload.images * workload.layers[0] > constants.far_bytes:
        found += workload.batch_bytes * slowest
    return found


def framed(found: Parts, steps: int, frame: Sequence[float], factors: Sequence[float] | None = None) -> Terms:
    """The terms of an epoch of `steps`. `frame`: as `TERMS`; `factors`: of each product."""
    epoch_s, call_s, op_s, logit_s, product_factor, memory_factor = frame
    each = found.arithmetic_s if factors is None else [s * f for s, f in zip(found.arithmetic_s, factors, strict=True)]
    return Terms(
        epoch_s + steps * (call_s + found.ops * op_s),
        steps * (product_factor * sum(each) + logit_s * found.logits),
        steps * memory_factor * found.memory_s,
        0.0,
        0.0,
    )


def constants_of(frame: Frame) -> tuple[float, ...]:
    return tuple(getattr(frame, name) for name in TERMS)


def on_cpu(
    loop: str, workload: Workload, constants: Constants, threads: int | None = None, draws: int = DRAWS
) -> Prediction:
    """An epoch of `loop` on the host of `constants`; without draws, with no interval.

    Raises `CannotModel` for a loop without a census, or one whose framework was not there to be calibrated.
    """
    census = census_of(loop)
    if census.below_batch is not None and workload.batch_size >= census.below_batch:
        size = workload.batch_size
        raise CannotModel(f"{loop} is another program from batch size {census.below_batch} on, got {size}")
    frame = constants.frames.get(census.frame)
    threads = threads or constants.threads
    if frame is None:
        raise CannotModel(f"{loop} was not calibrated on {constants.name} (calibrated: {', '.join(constants.frames)})")
    if census.validated_images and not workload.is_mnist:
        raise CannotModel(f"{loop} needs images that validate, got layers {workload.layers} of no data set")
    found = [(parts(census, workload, constants, threads), workload.steps)]
    if census.validated_images:
        found.append((forward(census, workload, constants, threads), validating_steps(census, workload)))
    smoothed = kriging.factor(frame.at, frame.weights, place_of(workload), REACH)

    def summed(constants: Sequence[float], left: Sequence[float], i: int) -> Terms:
        total = Terms(0.0, 0.0, 0.0, 0.0, 0.0)
        for of, steps in found:
            factors = [math.exp(left[(i * 7 + j * 11) % len(left)]) for j in range(len(of.arithmetic_s))]
            total = Terms(*map(sum, zip(total, framed(of, steps, constants, factors), strict=True)))
        return Terms(*[smoothed * s for s in total])

    terms = summed(constants_of(frame), (0.0,), 0)
    left, drawn = constants.products[census.library][str(threads)].residuals, []
    for i in range(draws):
        off = math.log(summed(frame.draws[i % len(frame.draws)], left, i).total_s / terms.total_s)
        off += frame.residuals[(i * 5) % len(frame.residuals)]
        drawn.append(terms.total_s * math.exp(off))
    return _with_interval(loop, "cpu", False, terms, drawn)


def place_of(workload: Workload) -> tuple[float, float, float]:
    """Where a step lies among others, in doublings, for what is left over of it."""
    layers = len(workload.layers) - 1
    return math.log2(workload.batch_size), math.log2(workload.parameters), A_LAYER * layers


def on_gpu(
    loop: str, workload: Workload, constants: Constants, gpu: Gpu, host_factor: float = 1.0, draws: int = DRAWS
) -> Prediction:
    """An epoch of `loop` on a GPU that is not here, its host that of `constants` and `host_factor` times as slow.

    Raises `CannotModel` for a loop without a GPU form, or one whose frame was not calibrated.
    """
    census = census_of(loop)
    if census.kernels is None:
        raise CannotModel(f"{loop} has no form for a GPU")
    frame = constants.frames.get(census.frame)
    if frame is None and census.frame != CUPY:
        raise CannotModel(f"{loop} was not calibrated on {constants.name} (calibrated: {', '.join(constants.frames)})")

    def terms(draw: Sequence[float] | None, launch: float, arithmetic: float) -> Terms:
        return _gpu_terms(census, workload, gpu, draw, host_factor, launch, arithmetic)

    drawn = []
    for i in range(draws):
        draw = frame.draws[i % len(frame.draws)] if frame else None
        spread = math.log(1 + gpu.uncertainty)
        z, w = SPREAD[i % len(SPREAD)], SPREAD[(i * 5 + 3) % len(SPREAD)]
        drawn.append(terms(draw, math.exp(spread * z), math.exp(spread * w)).total_s)
    return _with_interval(loop, "gpu", True, terms(constants_of(frame) if frame else None, 1.0, 1.0), drawn)


# Quantiles of the normal distribution at the middles of eight equal parts, in an order without trend.
SPREAD = (-1.5341, 0.1573, 0.8871, -0.4888, 1.5341, -0.1573, -0.8871, 0.4888)


def device_step(census: Census, workload: Workload, gpu: Gpu) -> tuple[float, float, float, float]:
    """Kernels, and seconds a step of the device: their gaps, products' arithmetic, bytes."""
    assert census.kernels is not None
    made = products(workload)
    arithmetic = sum(2.0 * p.m * p.n * p.k / (gpu.flops_per_s * gpu.saturation(p.m, p.n, p.k)) for p in made)
    moved = sum(4.0 * (p.m * p.n + p.m * p.k + p.k * p.n) for p in made)
    moved += census.parameter_bytes * workload.parameters
    moved += census.activation_bytes * workload.batch_size * sum(workload.layers[1:-1])
    kernels = count(census.kernels, workload)
    return kernels, kernels * gpu.kernel_s, arithmetic, moved / gpu.bytes_per_s


def _gpu_terms(
    census: Census, workload: Workload, gpu: Gpu, frame: Sequence[float] | None, host_factor: float,
    launch: float, arithmetic: float,
) -> Terms:  # fmt: skip
    """`launch` and `arithmetic` are factors of a draw on what the device and the driver cost."""
    kernels, gaps_s, products_s, bytes_s = device_step(census, workload, gpu)
    device_s = [launch * gaps_s, arithmetic * products_s, arithmetic * bytes_s]
    enqueued = {"kernel": kernels, "step": 1.0, "none": 0.0}[census.launches]
    epoch_s, call_s, op_s = (frame[0], frame[1], frame[2]) if frame else (0.0, 0.0, 0.0)
    call_s, inside_s = host_factor * call_s, launch * enqueued * gpu.launch_s
    if census.executed:
        inside_s += host_factor * op_s * count(census.ops, workload)
    if census.op_by_op:
        inside_s += host_factor * kernels * gpu.python_op_s
    copy_s = workload.batch_bytes / gpu.copy_bytes_per_s + gpu.copy_s if census.fed else 0.0
    # A step that validates is called and fed like one that trains, and asks for a third of it.
    steps, checks = workload.steps, validating_steps(census, workload)
    busy, epochs = sum(device_s), 2.0 if checks else 1.0
    shown = (steps + checks / 3) * (busy if census.waits else max(0.0, busy - call_s - inside_s))
    # The device's own gaps, where they last longer than the host; and each wait, where the loss is read.
    waits = steps + checks if census.waits else 1.0
    return Terms(
        host_factor * epochs * epoch_s + (steps + checks) * call_s + (steps + checks / 3) * inside_s,
        shown * device_s[1] / busy,
        shown * device_s[2] / busy,
        (steps + checks) * copy_s,
        shown * device_s[0] / busy + launch * gpu.synchronise_s * waits,
    )


def launched(census: Census, workload: Workload, gpu: Gpu) -> Terms:
    """The terms of an epoch on `gpu` whose host does nothing but launch; op by op it also calls the operators."""
    return _gpu_terms(census, workload, gpu, None, 1.0, 1.0, 1.0)


def census_of(loop: str) -> Census:
    """Raises `CannotModel` for a loop without one."""
    if loop not in CENSUS:
        raise CannotModel(f"loop must be one of {', '.join(CENSUS)}, got {loop!r}")
    return CENSUS[loop]


def _with_interval(loop: str, device: str, modelled: bool, terms: Terms, draws: Sequence[float]) -> Prediction:
    ordered = sorted(draws) or [terms.total_s]
    reach = round(0.05 * (len(ordered) - 1))
    low, high = min(ordered[reach], terms.total_s), max(ordered[-1 - reach], terms.total_s)
    return Prediction(loop, device, modelled, terms, low, high, tuple(draws))
