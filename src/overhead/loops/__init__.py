"""The table of loops: one row a contestant. Listing them imports no framework."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

from overhead.loops.base import Declined, Loop, Op, Point

__all__ = ["FLOORS", "LOOPS", "MANY", "Declined", "Loop", "LoopInfo", "Op", "Point", "make"]


class LoopInfo(NamedTuple):
    """Where a loop's class stands and what a reader is told of it."""

    module: str
    cls: str
    framework: str  # the package that it imports
    devices: tuple[str, ...]
    does: str  # one line for tables and `--help`
    env: tuple[tuple[str, str], ...] = ()  # set before the worker imports anything
    dispatches_at: Point | None = None  # in the row, so that a page knows it without the framework
    less_arithmetic: bool = False  # leaves out multiplications by zero, so that the dense floor does not bound it
    sources: tuple[str, ...] = ()  # what else the exhibit is written in, under `loops/`


_CPU, _GPU, _BOTH = ("cpu",), ("gpu",), ("cpu", "gpu")

LOOPS: dict[str, LoopInfo] = {
    "numpy": LoopInfo(
        "numpy_", "NumpyLoop", "numpy", _CPU, "a Python loop over batches, BLAS products", dispatches_at=Point("ops")
    ),
    "numpy-per-image": LoopInfo(
        "numpy_", "NumpyPerImageLoop", "numpy", _CPU, "the article's layer objects, one image at a time"
    ),
    "numpy-preallocated": LoopInfo(
        "numpy_out", "NumpyPreallocatedLoop", "numpy", _CPU, "the NumPy loop with `out=` everywhere"
    ),
    "numpy-chunked": LoopInfo(
        "numpy_out", "NumpyChunkedLoop", "numpy", _CPU, "the NumPy loop, one update from cache-sized chunks"
    ),
    "jax-op-by-op": LoopInfo(
        "jax_", "JaxOpByOpLoop", "jax", _BOTH, "JAX without jit, one call an operator",
        dispatches_at=Point("ops", outlasts=12.0),
    ),
    "jax-step": LoopInfo(
        "jax_", "JaxStepLoop", "jax", _BOTH, "one compiled step, called once a batch",
        dispatches_at=Point("module:jitted_step", outlasts=2.5),
    ),
    "jax-autodiff": LoopInfo("jax_", "JaxAutodiffLoop", "jax", _BOTH, "the same, its gradients derived by JAX"),
    "jax-epoch": LoopInfo(
        "jax_", "JaxEpochLoop", "jax", _BOTH, "the whole epoch in one compiled call", dispatches_at=Point("loop:epoch")
    ),
    "jax-epoch-tuned": LoopInfo(
        "jax_", "JaxEpochTunedLoop", "jax", _CPU, "the whole epoch, with the compiler option that helps on the CPU"
    ),
    "keras-fit": LoopInfo(
        "keras_", "KerasFitLoop", "tensorflow", _BOTH, "Keras defaults, training only",
        (("KERAS_BACKEND", "tensorflow"),), dispatches_at=Point("model:train_function", outlasts=2.0),
    ),
    "keras-fit-validated": LoopInfo(
        "keras_", "KerasFitValidatedLoop", "tensorflow", _BOTH, "Keras with validation and metrics, as the article",
        (("KERAS_BACKEND", "tensorflow"),),
    ),
    "keras-fit-tuned": LoopInfo(
        "keras_", "KerasFitTunedLoop", "tensorflow", _BOTH, "Keras with the best settings found, training only",
        (("KERAS_BACKEND", "tensorflow"),),
    ),
    "keras-jax-fit": LoopInfo(
        "keras_", "KerasJaxFitLoop", "keras", _BOTH, "Keras defaults on its JAX backend, training only",
        (("KERAS_BACKEND", "jax"),),
    ),
    "tf-eager": LoopInfo(
        "tensorflow_", "TfEagerLoop", "tensorflow", _BOTH, "TensorFlow op by op",
        dispatches_at=Point("ops", outlasts=12.0),
    ),
    "tf-step": LoopInfo(
        "tensorflow_", "TfStepLoop", "tensorflow", _BOTH, "the step as one graph, called once a batch",
        dispatches_at=Point("state:step", outlasts=2.0),
    ),
    "tf-epoch": LoopInfo("tensorflow_", "TfEpochLoop", "tensorflow", _BOTH, "the whole epoch in one XLA program"),
    "cupy-per-image": LoopInfo(
        "cupy_", "CupyPerImageLoop", "cupy", _GPU, "the article's port of its layer objects, one image at a time"
    ),
    "cupy": LoopInfo(
        "cupy_", "CupyLoop", "cupy", _GPU, "the NumPy loop with CuPy's arrays", dispatches_at=Point("ops")
    ),
    "cupy-fused": LoopInfo("cupy_fused", "CupyFusedLoop", "cupy", _GPU, "elementwise work in kernels of its own"),
    "cupy-graph": LoopInfo("cupy_graph", "CupyGraphLoop", "cupy", _GPU, "the step captured in a CUDA graph"),
    "cupy-graph-epoch": LoopInfo(
        "cupy_graph", "CupyGraphEpochLoop", "cupy", _GPU, "all steps of an epoch in one CUDA graph"
    ),
    "blas-epoch": LoopInfo(
        "products", "BlasEpochLoop", "numpy", _CPU, "the whole epoch in one C call around BLAS products",
        sources=("c/vectors.h", "c/products.c"),
    ),
    "dropped": LoopInfo(
        "products", "DroppedLoop", "numpy", _CPU, "the same without the pixels that are always zero",
        less_arithmetic=True, sources=("c/vectors.h", "c/products.c"),
    ),
    "gathered": LoopInfo(
        "products", "GatheredLoop", "numpy", _CPU, "the same without the pixels that are zero in all of the batch",
        less_arithmetic=True, sources=("c/vectors.h", "c/products.c"),
    ),
    "sorted": LoopInfo(
        "products", "SortedLoop", "numpy", _CPU, "BLAS products over the pixels in frequent use, the others one by one",
        less_arithmetic=True, sources=("c/vectors.h", "c/products.c"),
    ),
    "sparse": LoopInfo(
        "sparse", "SparseLoop", "numpy", _CPU, "a kernel in C that multiplies by no zero", less_arithmetic=True,
        sources=("c/vectors.h", "c/sparse.c"),
    ),
    "cupy-persistent": LoopInfo(
        "cupy_persistent", "CupyPersistentLoop", "cupy", _GPU, "the whole epoch in one launch of a kernel of its own"
    ),
}  # fmt: skip

# The floor: the step's matrix products and nothing else, per library (not loops: they learn nothing).
FLOORS: dict[str, LoopInfo] = {
    "floor-numpy": LoopInfo("numpy_", "NumpyFloor", "numpy", _CPU, "the step's matrix products in NumPy"),
    "floor-xla": LoopInfo("jax_", "XlaFloor", "jax", _BOTH, "the step's matrix products in one XLA scan"),
}

# Loops that train many models on the same images (a learning rate each), by the name of the sweep's engine.
MANY: dict[str, LoopInfo] = {
    "sequential": LoopInfo(
        "jax_many", "JaxSequentialEpochLoop", "jax", _BOTH, "one model after another, each epoch one compiled call"
    ),
    "sequential-step": LoopInfo(
        "jax_many", "JaxSequentialStepLoop", "jax", _BOTH, "one model after another, a compiled step called a batch"
    ),
    "sequential-numpy": LoopInfo(
        "numpy_many", "NumpySequentialLoop", "numpy", _CPU, "one model after another, the NumPy loop"
    ),
    "vmap-step": LoopInfo("jax_many", "JaxVmapStepLoop", "jax", _BOTH, "vmap of the step, called once a batch"),
    "vmap": LoopInfo("jax_many", "JaxVmapLoop", "jax", _BOTH, "vmap of the step inside the compiled epoch"),
    "stacked": LoopInfo(
        "jax_many", "JaxStackedLoop", "jax", _BOTH, "hidden units of all models side by side, compiled epoch"
    ),
    "sparse-many": LoopInfo(
        "sparse_many", "SparseManyLoop", "numpy", _CPU, "a model a thread at a time, multiplying by no zero",
        less_arithmetic=True, sources=("c/vectors.h", "c/sparse.c"),
    ),
    "keras": LoopInfo(
        "keras_many", "KerasPoolLoop", "tensorflow", _BOTH, "one model, Keras fit as in the article",
        (("KERAS_BACKEND", "tensorflow"),),
    ),
}  # fmt: skip


def make(name: str, device: str = "cpu") -> Loop:
    """Import and build a loop, a floor, or a loop of your own, which is named `package.module:Class`.

    Raises `Declined` for an unknown name, a class that is no loop, or an unsupported device.
    """
    if ":" in name:
        module, _, cls = name.partition(":")
        own = getattr(import_module(module), cls, None)
        if not (isinstance(own, type) and issubclass(own, Loop)):
            raise Declined(f"{name} must name a subclass of overhead.loops.Loop, got {own!r}")
        return own(device)
    info = LOOPS.get(name) or FLOORS.get(name) or MANY.get(name)
    if info is None:
        raise Declined(f"loop must be one of {', '.join(LOOPS)}, or package.module:Class, got {name!r}")
    if device not in info.devices:
        raise Declined(f"{name} runs on {' or '.join(info.devices)} only, got {device}")
    loop = getattr(import_module(f"overhead.loops.{info.module}"), info.cls)(device)
    loop.dispatches_at = info.dispatches_at
    return loop
