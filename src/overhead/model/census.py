"""What one step of each loop asks for, counted from its code: dispatches, products, bytes. Data, no code: the page's
calculator reads the same table.

A count is a sum over `FEATURES`: {"one": 9, "layers": 6} is nine and six a layer. Products are counted apart, since
their shapes decide: each layer has a forward product (nn) and a weight gradient (tn), each but the first an input
gradient (nt).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal, NamedTuple

from overhead.problem.data import VALIDATION_IMAGES
from overhead.problem.workload import Workload

FEATURES = ("one", "layers", "hidden")
Counts = dict[str, float]


class Census(NamedTuple):
    """One loop. Bytes are those of elementwise passes, reads and writes, outside the products."""

    frame: str  # the loop whose constants of a call and an operator it shares: itself where it is calibrated
    library: str  # whose products: numpy, xla, xla-tuned, tensorflow
    framework: str  # whose elementwise passes
    ops: Counts  # operators of a step that the framework dispatches one by one, products among them
    logits: float  # passes over the logits (softmax, its gradient, sums along rows), that of the frame's loop being 1
    activation_bytes: float  # a hidden activation
    parameter_bytes: float  # a parameter
    input_bytes: float = 0.0  # an input of the batch, where the loop gathers or copies it
    below_batch: int | None = None  # the loop is another program from this batch size on
    fresh: bool = False  # whether elementwise results are new arrays each time
    kernels: Counts | None = None  # of a step on a GPU; None where the loop has no GPU form
    launches: Literal["kernel", "step", "none"] = "kernel"  # on a GPU: what the host enqueues once each
    op_by_op: bool = False  # on a GPU: each kernel is also an operator called from Python
    executed: bool = False  # on a GPU: the framework's executor starts each of `ops`, one by one, on the host
    waits: bool = False  # on a GPU: the host reads the loss after each step, so that the two clocks take turns
    fed: bool = False  # on a GPU: each batch is copied from the host
    validated_images: int = 0  # after an epoch: a forward pass over so many


class Product(NamedTuple):
    """(m, k) @ (k, n)."""

    layout: str  # nn, tn, nt
    m: int
    n: int
    k: int


_NUMPY = {"one": 9.0, "layers": 8.0, "hidden": 4.0}
_XLA = {"one": 4.0, "layers": 5.0, "hidden": 2.0}
_TF = {"one": 8.0, "layers": 10.0, "hidden": 5.0}
_ACCURACY = 7.0  # operators of the metric: argmax, cast, compare, cast, sum, and two sums kept
_FUSED = {"one": 3.0, "layers": 4.0, "hidden": 2.0}
_EPOCH_KERNELS = {"one": 4.0, "layers": 4.0, "hidden": 2.0}

CENSUS: dict[str, Census] = {
    "numpy": Census("numpy", "numpy", "numpy", _NUMPY, 1.0, 38.0, 20.0, fresh=True),
    "numpy-preallocated": Census(
        "numpy", "numpy", "numpy", {"one": 8.0, "layers": 6.0, "hidden": 4.0}, 0.2, 42.0, 12.0
    ),
    "jax-step": Census("jax-step", "xla", "jax", _XLA, 1.0, 24.0, 12.0, kernels=_FUSED),
    "jax-epoch": Census("jax-epoch", "xla", "jax", _XLA, 1.0, 24.0, 12.0, kernels=_EPOCH_KERNELS, launches="step"),
    "jax-epoch-tuned": Census("jax-epoch", "xla-tuned", "jax", _XLA, 1.0, 24.0, 12.0),
    "tf-step": Census("tf-step", "tensorflow", "tensorflow", _TF, 1.0, 42.0, 20.0, kernels=_TF, executed=True),
    "tf-epoch": Census(
        "tf-epoch", "xla-tuned", "jax", _XLA, 1.0, 24.0, 12.0, kernels=_EPOCH_KERNELS, launches="step"
    ),
    # On a GPU Keras 2, which most published epochs are of, starts operator by operator; Keras 3 may compile them.
    "keras-fit": Census(
        "keras-fit", "tensorflow", "tensorflow", _TF, 1.0, 42.0, 20.0, input_bytes=8.0, kernels=_TF, executed=True,
        waits=True, fed=True,
    ),
    "keras-fit-validated": Census(
        "keras-fit", "tensorflow", "tensorflow", {**_TF, "one": _TF["one"] + _ACCURACY}, 1.0, 42.0, 20.0,
        input_bytes=8.0, kernels={**_TF, "one": _TF["one"] + _ACCURACY}, executed=True, waits=True, fed=True,
        validated_images=VALIDATION_IMAGES,
    ),
    "keras-fit-tuned": Census(
        "keras-fit-tuned", "xla-tuned", "jax", _XLA, 1.0, 24.0, 12.0, input_bytes=8.0,
        below_batch=512, kernels=_FUSED, fed=True,  # without XLA above, see loops/keras_.py
    ),
    "cupy": Census("cupy", "gpu", "gpu", _NUMPY, 1.0, 38.0, 20.0, kernels=_NUMPY, op_by_op=True),
    "cupy-graph": Census(
        "cupy", "gpu", "gpu", {"one": 1.0}, 1.0, 30.0, 12.0, kernels={"one": 6.0, "layers": 4.0, "hidden": 2.0},
        launches="step",
    ),
}  # fmt: skip

CALIBRATED = ("numpy", "jax-step", "jax-epoch", "tf-step", "tf-epoch", "keras-fit", "keras-fit-tuned")
CPU_LOOPS = tuple(name for name, census in CENSUS.items() if census.library != "gpu")
GPU_LOOPS = tuple(name for name, census in CENSUS.items() if census.kernels is not None)


def count(counts: Counts, workload: Workload) -> float:
    """What `counts` come to for the layers of `workload`."""
    layers = len(workload.layers) - 1
    features: dict[str, int] = dict(zip(FEATURES, (1, layers, layers - 1), strict=True))
    return sum(each * features[name] for name, each in counts.items())


def products(workload: Workload) -> list[Product]:
    """The matrix products of one step, layer by layer."""
    batch, found = workload.batch_size, []
    for i, (inputs, outputs) in enumerate(pairwise(workload.layers)):
        found.append(Product("nn", batch, outputs, inputs))
        found.append(Product("tn", inputs, outputs, batch))
        if i:
            found.append(Product("nt", batch, inputs, outputs))
    return found
