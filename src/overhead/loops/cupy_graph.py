"""The CuPy step, and the epoch of such steps, captured in a CUDA graph: one launch is all that Python does then."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from typing import Any, NamedTuple, final

import numpy as np

from overhead.loops.base import Declined
from overhead.loops.cupy_ import Array, OnGpu, matmul_precision
from overhead.loops.cupy_fused import KERNELS, Kernel, build
from overhead.problem.data import Split
from overhead.problem.mlp import Layer, Params, flat, relative_error, unflat
from overhead.problem.workload import Workload

# Which batch comes next stands on the device, so that a replay needs no argument and no copy.
BATCH_KERNELS = {
    "take_images": Kernel(
        "raw float32 images, raw int32 start, int32 inputs", "float32 x",
        "x = images[(ptrdiff_t)start[0] * inputs + i];",
    ),
    "take_labels": Kernel("raw int32 labels, raw int32 start", "int32 y", "y = labels[start[0] + i];"),
    "advance": Kernel("int32 batch, int32 stop", "int32 start", "start = start + batch < stop ? start + batch : 0;"),
}  # fmt: skip

CHECKED_STEPS = 3  # eager against replayed: one step would not show a replay that forgets the last one
REPLAY_TOLERANCE = 1e-6  # norm-wise; the same kernels on the same numbers
LONGEST_EPOCH = 6_000  # steps in one graph: some 100,000 kernels, each a node that the driver keeps


class GraphState(NamedTuple):
    xp: Any
    params: tuple[Layer, ...]  # every replay updates them in place
    epoch: list[Any]  # the graph of each step of an epoch: of a whole batch, of the short last one
    at: int  # the next step
    stream: Any
    step_of: dict[int, Callable[[], None]]  # by batch length; holds the arrays that the graphs write to
    start: Array  # (1,) int32: the first image of the next batch
    whole: Any = None  # the graph of all steps of an epoch


class Epoch(NamedTuple):
    images: Array  # (images, inputs), the one copy of them
    labels: Array  # (images,)
    start: Array  # (1,) int32: the first image of the next batch


class Cublas:
    """float32 products on a cuBLAS handle of our own: `products(a, b, out)` writes a @ b to `out`.

    CuPy refuses its handle while a stream is captured (cupy/cupy#6290). cuBLAS itself allows it, and
    allocates nothing, once its workspace is given to it (cuBLAS documentation, "CUDA Graphs Support").
    """

    WORKSPACE_BYTES = 32 * 2**20  # what cuBLAS takes by itself on Hopper; less elsewhere
    TF32_TENSOR_OP_MATH = 3  # cublasMath_t; 0 is float32
    ONE, ZERO = ctypes.c_float(1), ctypes.c_float(0)

    def __init__(self, xp: Any, stream: Any) -> None:
        self.library = loaded_cublas()
        self.workspace = xp.empty(self.WORKSPACE_BYTES, np.uint8)
        self.handle = ctypes.c_void_p()
        self.call("cublasCreate_v2", ctypes.byref(self.handle))
        weakref.finalize(self, self.library.cublasDestroy_v2, self.handle).atexit = False
        # The stream first: setting it resets the workspace.
        self.call("cublasSetStream_v2", self.handle, ctypes.c_void_p(stream.ptr))
        self.call(
            "cublasSetWorkspace_v2", self.handle, ctypes.c_void_p(self.workspace.data.ptr),
            ctypes.c_size_t(self.WORKSPACE_BYTES),
        )  # fmt: skip
        if matmul_precision() == "tf32":
            self.call("cublasSetMathMode", self.handle, self.TF32_TENSOR_OP_MATH)

    def __call__(self, a: Array, b: Array, out: Array) -> None:
        transposes, sizes, (ldb, lda, ldc) = sgemm_arguments(a, b)
        self.call(
            "cublasSgemm_v2", self.handle, *transposes, *sizes,
            ctypes.byref(self.ONE), ctypes.c_void_p(b.data.ptr), ldb, ctypes.c_void_p(a.data.ptr), lda,
            ctypes.byref(self.ZERO), ctypes.c_void_p(out.data.ptr), ldc,
        )  # fmt: skip

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} must return 0 (success), got {status}")


def loaded_cublas() -> ctypes.CDLL:
    """The cuBLAS that CuPy has loaded into this process. Raises `Declined` where there is none (Windows)."""
    if hasattr(os, "RTLD_NOLOAD"):
        for major in (13, 12, 11):
            with suppress(OSError):
                return ctypes.CDLL(f"libcublas.so.{major}", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    raise Declined(
        "cupy-graph needs the cuBLAS that CuPy loads, libcublas.so.11 to .13; found none in this process"
    )


def sgemm_arguments(a: Array, b: Array) -> tuple[tuple[int, int], tuple[int, ...], tuple[int, ...]]:
    """Transposes, sizes and leading dimensions with which column-major sgemm writes a row-major a @ b.

    Column by column, that is its own transpose, b.T @ a.T: the factors change places. A row-major factor
    is passed as it stands (0, CUBLAS_OP_N), the transposed view of one with 1 (CUBLAS_OP_T).
    """

    def layout(matrix: Array) -> tuple[int, int]:
        if matrix.flags.c_contiguous:
            return 0, matrix.shape[1]
        return 1, matrix.shape[0]

    (m, inner), n = a.shape, b.shape[1]
    (transpose_a, lda), (transpose_b, ldb) = layout(a), layout(b)
    return (transpose_b, transpose_a), (n, m, inner), (ldb, lda, n)


@final
class CupyGraphLoop(OnGpu):
    """The fused step with all its arrays made beforehand, captured a batch length, and replayed."""

    products: Any = Cublas

    def place(self, params: Params, data: Split, workload: Workload) -> GraphState:
        return placed_steps(self.array_module(), self.products, params, data, workload)

    def run(self, state: GraphState, steps: int) -> GraphState:
        epoch, at, stream = state.epoch, state.at, state.stream
        for _ in range(steps):
            epoch[at].launch(stream)
            at = (at + 1) % len(epoch)
        return state._replace(at=at)

    def block(self, state: GraphState) -> None:
        state.stream.synchronize()

    def fetch(self, state: GraphState) -> Params:
        state.stream.synchronize()
        return super().fetch(state)


@final
class CupyGraphEpochLoop(OnGpu):
    """All steps of an epoch in one graph, in which each kernel is still a kernel; steps beyond an epoch one by one."""

    products: Any = Cublas

    def steps_per_call(self, workload: Workload) -> int:
        return workload.steps

    def place(self, params: Params, data: Split, workload: Workload) -> GraphState:
        if workload.steps > LONGEST_EPOCH:
            raise Declined(f"cupy-graph-epoch captures at most {LONGEST_EPOCH:,} steps, got {workload.steps:,}")
        state = placed_steps(self.array_module(), self.products, params, data, workload)
        xp, stream = state.xp, state.stream
        lengths = [workload.batch_size] * workload.whole_batches
        lengths += [workload.last_batch] * (workload.steps - len(lengths))

        def epoch() -> None:
            for batch in lengths:
                state.step_of[batch]()

        with stream:
            whole = capture(xp, stream, epoch, workload.batch_size)
            one_by_one, at_end = trained(state, params, lambda: [graph.launch(stream) for graph in state.epoch])
            at_once, at_its_end = trained(state, params, lambda: whole.launch(stream))
            reset(state, params)
        stream.synchronize()
        if not (error := apart(at_once, one_by_one)) <= REPLAY_TOLERANCE or at_its_end != at_end:
            raise Declined(
                f"an epoch in one graph must be within {REPLAY_TOLERANCE:g} of one step by step and end at image "
                f"{at_end}, got {error:.2g} and image {at_its_end}"
            )
        return state._replace(whole=whole)

    def run(self, state: GraphState, steps: int) -> GraphState:
        epoch, at, stream, end = state.epoch, state.at, state.stream, state.at + steps
        while at < end:
            if at % len(epoch) == 0 and end - at >= len(epoch):
                state.whole.launch(stream)
                at += len(epoch)
            else:
                epoch[at % len(epoch)].launch(stream)
                at += 1
        return state._replace(at=at % len(epoch))

    def block(self, state: GraphState) -> None:
        state.stream.synchronize()

    def fetch(self, state: GraphState) -> Params:
        state.stream.synchronize()
        return super().fetch(state)


def placed_steps(xp: Any, products: Any, params: Params, data: Split, workload: Workload) -> GraphState:
    """Parameters and images on the device, and the checked graph of a step of each batch length."""
    stream = xp.cuda.Stream(non_blocking=True)  # the default stream cannot be captured
    with stream:
        placed = tuple(Layer(xp.array(w), xp.array(b)) for w, b in params)
        epoch = Epoch(xp.array(data.x), xp.array(data.y), xp.zeros(1, np.int32))
        multiply, kernels = products(xp, stream), build(xp, KERNELS | BATCH_KERNELS)
        size, whole = workload.batch_size, workload.whole_batches
        first_image = {size: 0}
        if workload.steps > whole:
            first_image[workload.last_batch] = whole * size
        graphs, step_of = {}, {}
        for batch, first in first_image.items():
            step_of[batch] = make_step(xp, multiply, kernels, placed, epoch, batch, workload)
            graphs[batch] = checked_graph(xp, stream, step_of[batch], placed, epoch.start, first, batch)
        in_order = [graphs[size]] * whole + [graphs[batch] for batch in first_image if batch != size]
        state = GraphState(xp, placed, in_order, 0, stream, step_of, epoch.start)
        reset(state, params)  # what the checks have trained is undone
    stream.synchronize()
    return state


def reset(state: GraphState, params: Params) -> None:
    for mine, given in zip(flat(state.params), flat(params), strict=True):
        mine[...] = state.xp.array(given)
    state.start.fill(0)


def trained(state: GraphState, params: Params, call: Callable[[], object]) -> tuple[list[Any], int]:
    """The parameters that `call` makes of `params`, and the image that would come next."""
    reset(state, params)
    call()
    state.stream.synchronize()
    return [state.xp.asnumpy(tensor) for tensor in flat(state.params)], int(state.xp.asnumpy(state.start)[0])


def apart(ours: list[Any], theirs: list[Any]) -> float:
    """Norm-wise distance: to the bit as a rule, and where a rate is too large with the same nans, 0."""
    if all(np.array_equal(*pair, equal_nan=True) for pair in zip(ours, theirs, strict=True)):
        return 0.0
    return relative_error(unflat(ours), unflat(theirs))


# fmt: off
def make_step(
    xp: Any, products: Any, k: Any, params: Any, epoch: Epoch, batch: int, workload: Workload
) -> Callable[[], None]:
    """One SGD step, `params` in place, on the `batch` images at `epoch.start`; allocates nothing when called."""
    def made(*shape):
        return xp.empty(shape, np.float32)

    inputs, *widths = workload.layers
    x, y = made(batch, inputs), xp.empty(batch, np.int32)
    ones = xp.ones((1, batch), np.float32)                      # sums over the batch as a product
    z = [made(batch, n) for n in widths]
    a = [x] + [made(batch, n) for n in widths[:-1]]             # the input of each layer
    da = [made(batch, n) for n in widths[:-1]]
    d = [made(batch, n) for n in widths]                        # the gradient at each z
    dw = [made(*shape) for shape in pairwise(workload.layers)]
    db = [made(1, n) for n in widths]
    w, b = [w for w, _ in params], [b for _, b in params]
    last, lr, stop = len(params) - 1, workload.learning_rate, workload.images_seen

    def step() -> None:
        k.take_images(epoch.images, epoch.start, inputs, x)     # (batch, inputs)
        k.take_labels(epoch.labels, epoch.start, y)             # (batch,)
        for i in range(last):
            products(a[i], w[i], z[i])                          # (batch, hidden)
            k.relu(z[i], b[i], a[i + 1])
        products(a[last], w[last], z[last])                     # (batch, classes)
        k.logit_gradient(z[last], b[last], y, widths[-1], batch, d[last], size=batch)
        for i in reversed(range(last + 1)):
            products(a[i].T, d[i], dw[i])                       # (inputs, outputs)
            products(ones, d[i], db[i])                         # (1, outputs)
            if i:                                               # nobody needs the gradient of the pixels
                products(d[i], w[i].T, da[i - 1])               # (batch, hidden), before `w` changes
                k.relu_gradient(da[i - 1], a[i], d[i - 1])
            k.update(dw[i], lr, w[i])
            k.update(db[i][0], lr, b[i])
        k.advance(batch, stop, epoch.start)

    return step
# fmt: on


def checked_graph(
    xp: Any, stream: Any, step: Callable[[], None], params: Any, start: Array, first: int, batch: int
) -> Any:
    """`step` as a CUDA graph whose replays do what the step does, from image `first` on; leaves `params` trained.

    Raises `Declined` when the step allocates while it is captured (a replay would write to memory that is
    someone else's by then) and when replayed steps differ from eager ones.
    """
    before = [tensor.copy() for tensor in flat(params)]

    def train(call: Callable[[], object]) -> tuple[list[Any], int]:
        for tensor, value in zip(flat(params), before, strict=True):
            tensor[...] = value
        for _ in range(CHECKED_STEPS):
            start.fill(first)  # this batch again: the next one may be shorter, and end past the last image
            call()
        stream.synchronize()
        return [xp.asnumpy(tensor) for tensor in flat(params)], int(xp.asnumpy(start)[0])

    eager, next_image = train(step)  # before the capture: compiles the kernels
    graph = capture(xp, stream, step, batch)
    replayed, replayed_next = train(lambda: graph.launch(stream))
    if not (error := apart(replayed, eager)) <= REPLAY_TOLERANCE or replayed_next != next_image:
        raise Declined(
            f"{CHECKED_STEPS} replays of batch {batch} must be within {REPLAY_TOLERANCE:g} of eager steps and go "
            f"on at image {next_image}, got {error:.2g} and image {replayed_next}"
        )
    return graph


def capture(xp: Any, stream: Any, step: Callable[[], None], batch: int) -> Any:
    """The graph of what `step` enqueues on `stream`, none of which runs yet."""

    def refuse(size: int) -> Any:
        raise Declined(f"a captured step of batch {batch} must allocate nothing, got {size} bytes")

    stream.begin_capture()
    try:
        with xp.cuda.using_allocator(refuse):
            step()
    except BaseException:
        with suppress(Exception):  # the first error says why
            stream.end_capture()
        raise
    return stream.end_capture()
