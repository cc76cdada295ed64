"""Several models that multiply by no zero: one index for all, and each model's weights in one core's cache."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray

from overhead.loops import compiled
from overhead.loops.compiled import LANES, address, addresses, aligned, whole
from overhead.loops.many import ManyLoop
from overhead.loops.sparse import BLOCK, TILE, Index, by_image, check, index, padded, threads_allowed
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Array = NDArray[Any]


class Piece(NamedTuple):
    """Steps of one model that one thread trains in one go."""

    model: int
    first: int  # step
    steps: int


class State(NamedTuple):
    params: list[list[Array]]  # w1, b1, w2, b2 of each model, filled up to whole vectors
    rates: list[float]
    layers: tuple[int, ...]
    index: Index  # of the training images, for all models
    labels: Array  # (images,) int32
    validation: tuple[Array, ...]  # where an image's non-zeros start, their pixels and values, and the labels
    at: int  # the next batch
    losses: Array  # of the last `run`: (models, steps)


def shared_out(models: int, steps: int, threads: int) -> list[list[Piece]]:
    """Equal work for every thread, whole models where possible: McNaughton's rule (1959), in order of time.

    The models lie end to end on a line that is cut into equal lengths. A model that is cut is trained by the thread
    on the right first, which begins with it, and by the one on the left last.
    """
    cuts = [models * steps * thread // threads for thread in range(threads + 1)]
    found: list[list[Piece]] = [[] for _ in range(threads)]
    for thread, (low, high) in enumerate(pairwise(cuts)):
        for model in range(low // steps, -(-high // steps)):
            start, end = max(low, model * steps), min(high, (model + 1) * steps)
            if end > start:
                found[thread].append(Piece(model, (model + 1) * steps - end, end - start))
    return found


@final
class SparseManyLoop(ManyLoop):
    """The kernel of `sparse`, a model a thread at a time: the threads need not meet, and no weights leave their cache.

    Side by side, as the dense engines have them, the models would drive one another out of the second-level cache.
    """

    framework = "numpy"

    def __init__(self, device: str = "cpu") -> None:
        super().__init__(device)
        self.libraries: dict[tuple[int, ...], ctypes.CDLL] = {}

    def functions(self, layers: tuple[int, ...]) -> ctypes.CDLL:
        """The kernel for one thread and these layers, compiled before its first call."""
        if layers not in self.libraries:
            start = time.perf_counter()
            own, wide = widths(layers)
            tile = min(own // LANES, TILE)
            defines = {"OWN": own // LANES, "TILE": tile, "WIDE": wide // LANES, "CLASSES": layers[-1]}
            self.libraries[layers] = compiled.load("sparse.c", defines).functions
            self.compile_s += time.perf_counter() - start
        return self.libraries[layers]

    def place_many(self, params: Sequence[Params], rates: Sequence[float], data: Split, workload: Workload) -> State:
        check(workload)
        own, wide = widths(workload.layers)
        seen, size = workload.images_seen, workload.batch_size
        found = index(data.x[:seen], size, min(BLOCK, size))
        _, *held = by_image(data.x_val)
        return State(
            [padded(model, own, wide) for model in params], [float(rate) for rate in rates], workload.layers, found,
            np.array(data.y[:seen], np.int32), (*held, np.array(data.y_val, np.int32)), 0,
            np.empty((len(params), 0), np.float32),
        )  # fmt: skip

    def prepare(self, params: Sequence[Params], workload: Workload, held: int) -> None:
        check(workload)
        self.functions(workload.layers)

    def run(self, state: State, steps: int) -> State:
        functions, (own, wide) = self.functions(state.layers), widths(state.layers)
        models, batches = len(state.params), state.index.batches
        largest = int(batches[:, 1].max())
        block, classes = min(BLOCK, largest), state.layers[-1]
        losses = np.empty((models, steps), np.float32)
        pieces = shared_out(models, steps, threads_allowed())
        ended = {(piece.model, piece.first + piece.steps): threading.Event() for of_one in pieces for piece in of_one}

        def train(mine: list[Piece]) -> None:
            room = aligned(block * (wide + own) + classes * own + own * wide)
            hidden, logits = aligned(largest, own), aligned(2, largest, wide)
            for model, first, count in mine:
                if first:
                    ended[model, first].wait()
                functions.epoch(
                    addresses(state.index[:8]), address(state.labels), address(batches), len(batches),
                    (state.at + first) % len(batches), count, block, largest, ctypes.c_float(state.rates[model]),
                    addresses(state.params[model]), address(room), address(hidden), address(logits), 0, 1,
                    ctypes.byref(ctypes.c_int64(0)), address(losses[model, first : first + count]),
                )  # fmt: skip
                ended[model, first + count].set()

        others = [threading.Thread(target=train, args=[mine]) for mine in pieces[1:]]
        for other in others:
            other.start()
        train(pieces[0])
        for other in others:
            other.join()
        return state._replace(at=(state.at + steps) % len(batches), losses=losses)

    def losses(self, state: State) -> Array:
        return state.losses.T

    def block(self, state: State) -> None:
        pass

    def judge(self, state: State) -> tuple[Array, Array]:
        right, own = self.functions(state.layers).right, widths(state.layers)[0]
        *found, labels = state.validation
        images = addresses(found)                               # all that judging reads of an index

        def count(model: list[Array]) -> int:
            hidden = aligned(own)  # by name: an array that only its address is left of is freed before the call
            return right(images, address(labels), len(labels), addresses(model), address(hidden))

        with ThreadPoolExecutor(threads_allowed()) as pool:
            counts = list(pool.map(count, state.params))
        finite = [all(np.isfinite(tensor).all() for tensor in model) for model in state.params]
        return np.asarray(counts) / (len(labels) or np.nan), np.asarray(finite)

    def fetch_many(self, state: State) -> list[Params]:
        _, hidden, classes = state.layers
        return [
            (Layer(w1[:, :hidden].copy(), b1[:hidden].copy()), Layer(w2[:hidden, :classes].copy(), b2[:classes].copy()))
            for w1, b1, w2, b2 in state.params
        ]

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def settings(self, state: State) -> dict[str, str]:
        return {"compiler": compiled.version(), "threads": str(threads_allowed())}

    def compilations(self) -> int:
        return len(self.libraries)


def widths(layers: tuple[int, ...]) -> tuple[int, int]:
    """Hidden units and classes, filled up to whole vectors, and to whole tiles where there are several."""
    vectors = -(-layers[1] // LANES)
    vectors = vectors if vectors <= TILE else -(-vectors // TILE) * TILE
    return vectors * LANES, whole(layers[2])
