"""SGD that multiplies by no zero: a kernel of our own over the non-zero pixels, in C, the whole epoch in one call."""

from __future__ import annotations

import ctypes
import os
import threading
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from overhead.loops import compiled
from overhead.loops.base import Declined, Loop
from overhead.loops.compiled import LANES, NO_CLASS, aligned, whole
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Array = NDArray[Any]

TILE = 8  # vectors of activations that stay in registers
BLOCK = 64  # images whose gradient at the hidden units stays in the first-level cache
MOST_INPUTS = 2**16  # the index counts pixels in two bytes
MOST_CELLS = 2**28  # blocks times inputs: the index has a start for each while it is sorted


class Index(NamedTuple):
    """The non-zero pixels by image, and again, within a block of images, by pixel. What starts also ends: one more."""

    image_start: Array                                          # (images + 1,) int32
    pixel: Array                                                # (non-zeros,) uint16
    value: Array                                                # (non-zeros,) float32
    block_start: Array                                          # (blocks + 1,) int32: a block's first row
    row: Array                                                  # (rows,) uint16: a pixel that the block uses
    row_start: Array                                            # (rows + 1,) int32
    image: Array                                                # (non-zeros,) uint16, from the block's first image
    by_row: Array                                               # (non-zeros,) float32
    batches: Array                                              # (batches, 4) int32: first image, images,
                                                                # first block, blocks


class State(NamedTuple):
    params: list[list[Array]]  # a thread's w1, b1, w2, b2: its hidden units, filled up to whole vectors
    program: Program
    layers: tuple[int, ...]
    at: int  # the next batch


def check(workload: Workload) -> None:
    """Raise `Declined` for layers that the kernel does not have, and where there is no compiler."""
    if len(workload.layers) != 3:
        raise Declined(f"the kernel has one hidden layer, got {len(workload.layers) - 2}")
    if workload.layers[0] > MOST_INPUTS:
        raise Declined(f"inputs must be at most {MOST_INPUTS} (two bytes in the index), got {workload.layers[0]}")
    compiled.version()


def by_image(x: Array) -> tuple[Array, Array, Array, Array]:
    """Of every non-zero its image, then where an image's non-zeros start, their pixels and their values."""
    at = np.flatnonzero(x != 0)                                 # not-a-number is no zero
    image, pixel = np.divmod(at.astype(np.int32), np.int32(x.shape[1]))
    start = np.searchsorted(image, np.arange(len(x) + 1)).astype(np.int32)
    return image, start, pixel.astype(np.uint16), x.ravel()[at]


def index(x: Array, size: int, block: int) -> Index:
    """Sort the non-zeros of `x`, (images, inputs), once for all epochs; batches of `size`, blocks of up to `block`."""
    images, inputs = x.shape
    image, image_start, pixel, value = by_image(x)
    starts = np.arange(0, images, size)
    sizes = np.minimum(size, images - starts)
    blocks = -(-sizes // block)
    first_block = np.cumsum(blocks) - blocks
    within = np.arange(images) % size                           # an image's place in its batch
    block_of = np.repeat(first_block, sizes) + within // block
    cells = int(blocks.sum()) * inputs                          # a cell: a pixel of a block
    if cells > MOST_CELLS:
        raise Declined(f"blocks x inputs must be at most {MOST_CELLS} (the index), got {cells}")
    cell = block_of[image].astype(np.int32) * np.int32(inputs) + pixel
    by_cell = csr_array((value, cell, image_start), shape=(images, cells)).tocsc()
    used = np.flatnonzero(np.diff(by_cell.indptr))              # cells with a non-zero: the rows
    return Index(
        image_start, pixel, value,
        np.searchsorted(used, np.arange(0, cells + 1, inputs)).astype(np.int32), (used % inputs).astype(np.uint16),
        np.append(by_cell.indptr[used], len(value)).astype(np.int32),
        (within % block).astype(np.uint16)[by_cell.indices], by_cell.data,
        np.stack([starts, sizes, first_block, blocks], axis=1).astype(np.int32),
    )  # fmt: skip


def padded(params: Params, own: int, wide: int) -> list[Array]:
    """w1, b1, w2, b2 with `own` hidden units and `wide` classes: those too many stay zero, and without a chance."""
    (w1, b1), (w2, b2) = params
    hidden, classes = w2.shape
    part = [aligned(len(w1), own), aligned(own), aligned(own, wide), aligned(wide)]
    part[0][:, :hidden], part[1][:hidden], part[2][:hidden, :classes] = w1, b1, w2
    part[3][:], part[3][:classes] = NO_CLASS, b2
    return part


def threads_allowed() -> int:
    """Threads this process may use: what the environment says, and no more than it has cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    named = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(named), cores) if named.isdigit() and int(named) else cores


class Program:
    """The epoch, compiled when it is first called, with all that it reads and writes."""

    def __init__(self, params: list[list[Array]], found: Index, labels: Array, classes: int, rate: float) -> None:
        self.params, self.index, self.labels, self.rate = params, found, labels, rate
        self.threads, own, wide = len(params), params[0][1].size // LANES, params[0][3].size // LANES
        self.largest = int(found.batches[:, 1].max())
        self.block = min(BLOCK, self.largest)
        self.defines = {"OWN": own, "TILE": min(own, TILE), "WIDE": wide, "CLASSES": classes}
        room = self.block * (wide + own) + classes * own + own * LANES * wide
        self.room = [aligned(room, LANES) for _ in params]      # gradients of a block, and of w2
        self.hidden = [aligned(self.largest, own, LANES) for _ in params]
        self.logits = aligned(2, self.threads, self.largest, wide, LANES)
        self.epoch: Any = None

    def train(self, at: int, steps: int) -> None:
        """Train `steps` steps from batch `at`, a thread for each part of the hidden units."""
        if self.epoch is None:
            self.epoch = compiled.load("sparse.c", self.defines).functions.epoch
        arrived = ctypes.c_int64(0)

        def part(me: int) -> None:                              # ctypes lets go of Python's lock
            self.epoch(
                compiled.addresses(self.index[:8]), compiled.address(self.labels),
                compiled.address(self.index.batches), len(self.index.batches), at, steps, self.block, self.largest,
                ctypes.c_float(self.rate), compiled.addresses(self.params[me]), compiled.address(self.room[me]),
                compiled.address(self.hidden[me]), compiled.address(self.logits), me, self.threads,
                ctypes.byref(arrived), None,
            )

        others = [threading.Thread(target=part, args=[me]) for me in range(1, self.threads)]
        for other in others:
            other.start()
        part(0)
        for other in others:
            other.join()


@final
class SparseLoop(Loop):
    """Activations in registers, the update of `w1` inside its gradient, a thread for each part of the hidden units."""

    framework = "numpy"

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        check(workload)
        _, hidden, classes = workload.layers
        vectors, wide = -(-hidden // LANES), whole(classes)
        threads = min(threads_allowed(), vectors)
        own = -(-vectors // threads)
        own = own if own <= TILE else -(-own // TILE) * TILE
        own *= LANES                                            # hidden units a thread; those too many stay zero
        (w1, b1), (w2, b2) = params
        parts = []
        for first in range(0, hidden, own):
            n = min(own, hidden - first)
            own_units = slice(first, first + n)
            parts.append(padded((Layer(w1[:, own_units], b1[own_units]), Layer(w2[own_units], b2)), own, wide))
        found = index(data.x[: workload.images_seen], workload.batch_size, min(BLOCK, workload.batch_size))
        labels = np.array(data.y[: workload.images_seen], np.int32)
        program = Program(parts, found, labels, classes, workload.learning_rate)
        return State(parts, program, workload.layers, 0)

    def run(self, state: State, steps: int) -> State:
        state.program.train(state.at, steps)
        return state._replace(at=(state.at + steps) % len(state.program.index.batches))

    def block(self, state: State) -> None:
        pass

    def fetch(self, state: State) -> Params:
        _, hidden, classes = state.layers
        w1, b1, w2, b2 = zip(*state.params)
        return (
            Layer(np.concatenate(w1, axis=1)[:, :hidden], np.concatenate(b1)[:hidden]),
            Layer(np.concatenate(w2)[:hidden, :classes], b2[0][:classes].copy()),
        )

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def settings(self, state: State) -> dict[str, str]:
        return {"compiler": compiled.version(), "threads": str(state.program.threads)}
