"""The whole epoch in one compiled call around the library's products: dense, and with ever fewer zeros in them."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, final

import numpy as np
import scipy
from numpy.typing import NDArray

from overhead.loops import compiled
from overhead.loops.base import Declined, Loop
from overhead.loops.compiled import LANES, NO_CLASS, aligned, whole
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params
from overhead.problem.workload import Workload

Array = NDArray[Any]

OFTEN = 1 / 8  # of the images: pixels used at least as often are multiplied densely by `sorted` (323 of MNIST's 784)


class Images(NamedTuple):
    """What the products of a batch multiply, and what is left over."""

    order: Array                                                # (inputs,) int: the pixel of each row of w1
    dense: list[Array]                                          # (images, columns) float32 a batch
    rows: list[Array] | None                                    # (columns,) int32 a batch: the rows of w1 that go
                                                                # with them; None: the first ones
    start: Array                                                # (images + 1,) int32: of what is left of an image
    row: Array                                                  # (left,) int32
    value: Array                                                # (left,) float32


class State(NamedTuple):
    params: list[Array]  # w1 with its rows in `order`, b1, w2, b2, filled up to whole vectors; updated in place
    images: Images
    program: Program
    layers: tuple[int, ...]
    at: int  # the next batch


class Batch(ctypes.Structure):
    """`struct batch` of products.c."""

    _fields_ = [
        ("x", ctypes.c_void_p), ("first", ctypes.c_int32), ("images", ctypes.c_int32),
        ("columns", ctypes.c_int32), ("first_row", ctypes.c_int32),
    ]


def sgemm() -> ctypes.c_void_p:
    """Where BLAS's product lies that SciPy offers to compiled code (scipy.linalg.cython_blas)."""
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__["sgemm"]
    name, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(pointer(capsule, name(capsule)))


class Program:
    """The epoch, compiled when it is first called, with all that it reads and writes."""

    def __init__(self, params: list[Array], images: Images, labels: Array, classes: int, rate: float) -> None:
        units, wide = params[2].shape
        self.params, self.images, self.labels, self.rate = params, images, labels, rate
        self.defines = {"HIDDEN": units // LANES, "WIDE": wide // LANES, "CLASSES": classes}
        first = np.cumsum([0, *map(len, images.dense)]).tolist()
        first_row = np.cumsum([0, *map(len, images.rows)]).tolist() if images.rows else [-1] * len(first)
        self.batches = (Batch * len(images.dense))(*(
            Batch(x.ctypes.data, at, *x.shape, row) for x, at, row in zip(images.dense, first, first_row)
        ))
        self.rows = np.concatenate(images.rows or [np.zeros(0, np.int32)])
        self.gathered = aligned(*params[0].shape)
        self.hidden = aligned(max(map(len, images.dense)), units)
        self.room = aligned(units * wide + classes * units)     # the gradient of w2, and w2 transposed
        self.epoch: Any = None

    def train(self, at: int, steps: int) -> None:
        """Train `steps` steps from batch `at`."""
        if self.epoch is None:
            self.epoch, self.sgemm = compiled.load("products.c", self.defines).functions.epoch, sgemm()
        self.epoch(
            self.sgemm, self.batches, compiled.address(self.rows), compiled.addresses(self.images[3:]),
            compiled.address(self.labels), len(self.batches), at, steps, ctypes.c_float(self.rate),
            *map(compiled.address, (*self.params, self.gathered, self.hidden, self.room)),
        )


class ProductsLoop(Loop):
    """What the loops below share. They differ in what a step multiplies."""

    framework = "numpy"

    def images(self, x: Array, size: int) -> Images:
        """What batches of `size` multiply. `x`: (images, inputs)."""
        raise NotImplementedError

    def place(self, params: Params, data: Split, workload: Workload) -> State:
        if len(params) != 2:
            raise Declined(f"the compiled epoch has one hidden layer, got {len(params) - 1}")
        compiled.version()                                      # declines where there is no compiler
        inputs, hidden, classes = workload.layers
        images = self.images(data.x[: workload.images_seen], workload.batch_size)
        units, wide = whole(hidden), whole(classes)
        (w1, b1), (w2, b2) = params
        own = [aligned(inputs, units), aligned(units), aligned(units, wide), aligned(wide)]
        own[0][:, :hidden], own[1][:hidden], own[2][:hidden, :classes] = w1[images.order], b1, w2
        own[3][:], own[3][:classes] = NO_CLASS, b2
        labels = np.array(data.y[: workload.images_seen], np.int32)
        return State(own, images, Program(own, images, labels, classes, workload.learning_rate), workload.layers, 0)

    def run(self, state: State, steps: int) -> State:
        state.program.train(state.at, steps)
        return state._replace(at=(state.at + steps) % len(state.images.dense))

    def block(self, state: State) -> None:
        pass

    def fetch(self, state: State) -> Params:
        _, hidden, classes = state.layers
        own, b1, w2, b2 = state.params
        w1 = np.empty((len(own), hidden), np.float32)
        w1[state.images.order] = own[:, :hidden]
        return Layer(w1, b1[:hidden].copy()), Layer(w2[:hidden, :classes].copy(), b2[:classes].copy())

    def placed_on(self, state: State) -> tuple[str, str]:
        return "cpu", "host memory"

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def settings(self, state: State) -> dict[str, str]:
        columns = np.mean([x.shape[1] for x in state.images.dense])
        return {"compiler": compiled.version(), "blas": f"SciPy {scipy.__version__}", "columns": f"{columns:.0f}"}


def nothing_left(x: Array) -> tuple[Array, Array, Array]:
    """Start, row and value where the products leave nothing over."""
    return np.zeros(len(x) + 1, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)


@final
class BlasEpochLoop(ProductsLoop):
    """Dense: all pixels of all images, as every loop that does not leave out zeros."""

    def images(self, x: Array, size: int) -> Images:
        dense = [np.array(x[i : i + size]) for i in range(0, len(x), size)]
        return Images(np.arange(x.shape[1]), dense, None, *nothing_left(x))


@final
class DroppedLoop(ProductsLoop):
    """Pixels that are zero in every image are left out."""

    def images(self, x: Array, size: int) -> Images:
        batches = [x[i : i + size] for i in range(0, len(x), size)]
        used = np.any([batch.any(axis=0) for batch in batches], axis=0)
        order = np.argsort(~used, kind="stable")                # the used ones first
        return Images(order, [np.compress(used, batch, axis=1) for batch in batches], None, *nothing_left(x))


@final
class GatheredLoop(ProductsLoop):
    """Pixels that are zero in every image of the batch are left out; the rows of w1 are gathered and put back."""

    def images(self, x: Array, size: int) -> Images:
        dense, rows = [], []
        for i in range(0, len(x), size):
            used = x[i : i + size].any(axis=0)
            rows.append(np.flatnonzero(used).astype(np.int32))
            dense.append(np.compress(used, x[i : i + size], axis=1))
        return Images(np.arange(x.shape[1]), dense, rows, *nothing_left(x))


@final
class SortedLoop(ProductsLoop):
    """Pixels sorted by use: those that are used often densely, the few non-zeros of the others one by one."""

    def images(self, x: Array, size: int) -> Images:
        batches = [x[i : i + size] for i in range(0, len(x), size)]
        uses = np.sum([np.count_nonzero(batch, axis=0) for batch in batches], axis=0)
        order, often = np.argsort(-uses, kind="stable"), int(np.count_nonzero(uses >= OFTEN * len(x)))
        dense, left = [], []
        for batch in batches:
            dense.append(np.take(batch, order[:often], axis=1))
            rare = np.take(batch, order[often:], axis=1)
            image, row = np.nonzero(rare)
            left.append((np.bincount(image, minlength=len(batch)), row + often, rare[image, row]))
        counts, rows, values = map(np.concatenate, zip(*left))
        start = np.append(0, np.cumsum(counts)).astype(np.int32)
        return Images(order, dense, None, start, rows.astype(np.int32), values)
