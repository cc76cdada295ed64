"""The model: parameters made once in NumPy, and the float64 reference that every loop must agree with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.problem.workload import Workload

Array = NDArray[np.floating]
Labels = NDArray[np.int32]


class Layer(NamedTuple):
    """Weights `w`: (inputs, outputs); bias `b`: (outputs,)."""

    w: Array
    b: Array


Params = tuple[Layer, ...]


def init(workload: Workload) -> Params:
    """He-initialised float32 weights and zero biases, fixed by `workload.seed`.

    He et al. 2015, "Delving deep into rectifiers": standard deviation √(2 / inputs).
    """
    rng = np.random.default_rng([workload.seed, 1])
    return tuple(
        Layer(
            rng.standard_normal((inputs, outputs), dtype=np.float32) * np.float32((2 / inputs) ** 0.5),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in pairwise(workload.layers)
    )


def astype(params: Params, dtype: type) -> Params:
    """A copy of `params` in another dtype."""
    return tuple(Layer(w.astype(dtype), b.astype(dtype)) for w, b in params)


def logits(params: Params, x: Array) -> Array:
    """Outputs before the softmax. `x`: (images, inputs); returns (images, classes)."""
    *hidden, last = params
    for w, b in hidden:
        x = np.maximum(x @ w + b, 0)
    return x @ last.w + last.b


def loss(params: Params, x: Array, y: Labels) -> float:
    """Mean softmax cross-entropy in nats; infinite or nan once training has diverged."""
    with np.errstate(all="ignore"):
        z = logits(params, x).astype(np.float64)
        z -= z.max(axis=1, keepdims=True)
        return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]).mean())


def accuracy(params: Params, x: Array, y: Labels) -> float:
    """Share of `x` whose largest logit is at its label, 0 to 1."""
    with np.errstate(all="ignore"):
        return float((logits(params, x).argmax(axis=1) == y).mean())


def gradients(params: Params, x: Array, y: Labels, doubt: float = 0.0) -> tuple[float, Params]:
    """Mean loss of one batch and its gradient, in the dtype of `params`.

    Softmax cross-entropy is differentiated as one: the gradient at the logits is (p - onehot(y)) / batch. A ReLU
    lets gradients through above `doubt` times the magnitudes that its input is the sum of, instead of above zero.
    """
    activations, through = [x], []  # the input of each layer: (batch, inputs); whether its ReLU let through
    for w, b in params[:-1]:
        z = activations[-1] @ w + b
        through.append(z > (doubt * magnitudes(activations[-1], w) if doubt else 0))
        activations.append(np.maximum(z, 0))
    z = activations[-1] @ params[-1].w + params[-1].b  # (batch, classes)
    z -= z.max(axis=1, keepdims=True)
    rows = np.arange(len(y))
    total = np.exp(z).sum(axis=1, keepdims=True)
    value = float((np.log(total[:, 0]) - z[rows, y]).mean())
    d = np.exp(z) / total
    d[rows, y] -= 1
    d /= len(y)  # the real length of the batch, short ones included
    found: list[Layer] = []
    for layer, inputs in zip(reversed(params), reversed(activations), strict=True):
        found.append(Layer(inputs.T @ d, d.sum(axis=0)))
        if inputs is not x:
            d = (d @ layer.w.T) * through.pop()
    return value, tuple(reversed(found))


def magnitudes(x: Array, w: Array) -> Array:
    """Sums of the magnitudes that the product adds up, (batch, outputs) float32. `x`: (batch, inputs)."""
    return np.abs(x, dtype=np.float32, casting="same_kind") @ np.abs(w, dtype=np.float32, casting="same_kind")


def batches(x: Array, y: Labels, workload: Workload) -> Iterator[tuple[Array, Labels]]:
    """One epoch's batches as views, in order: ((batch, inputs), (batch,))."""
    for start in range(0, workload.images_seen, workload.batch_size):
        stop = min(start + workload.batch_size, workload.images_seen)
        yield x[start:stop], y[start:stop]


def reference_steps(
    params: Params, x: Array, y: Labels, workload: Workload, doubt: float = 0.0
) -> Iterator[tuple[float, Params]]:
    """The float64 oracle: training without end, one step at a time, wrapping round the epoch.

    Yields the loss of the batch before its update and the parameters after it. `doubt`: as of `gradients`.
    """
    params = astype(params, np.float64)
    while True:
        for xb, yb in batches(x, y, workload):
            with np.errstate(all="ignore"):
                value, found = gradients(params, xb.astype(np.float64), yb, doubt)
                params = tuple(
                    Layer(w - workload.learning_rate * dw, b - workload.learning_rate * db)
                    for (w, b), (dw, db) in zip(params, found, strict=True)
                )
            yield value, params


def travelled(start: Params, steps: Iterable[Params]) -> tuple[float, ...]:
    """How long each tensor's way was, of `flat`: the sum of ‖update‖₂ over the steps from `start` on."""
    totals, before = [0.0] * len(flat(start)), flat(start)
    for params in steps:
        after = flat(params)
        totals = [
            total + float(np.linalg.norm((b.astype(np.float64) - a).ravel()))
            for total, a, b in zip(totals, before, after, strict=True)
        ]
        before = after
    return tuple(totals)


def relative_error(ours: Params, reference: Params, ways: Sequence[float] | None = None) -> float:
    """The largest over the tensors of ‖ours - reference‖₂ / ‖reference‖₂.

    `ways`, of `travelled`: a tensor that went further than it got is measured by its way, since rounding goes with
    the updates that cancelled (the bias of two classes after 20 steps). Infinite where it is not finite or where
    shapes differ. Raises `ValueError` when the numbers of tensors differ.
    """
    worst = 0.0
    for a, b, way in zip(flat(ours), flat(reference), ways or [0.0] * len(flat(reference)), strict=True):
        if a.shape != b.shape:  # subtracting would broadcast, and could agree
            return np.inf
        with np.errstate(all="ignore"):
            norm = max(way, float(np.linalg.norm(b.ravel().astype(np.float64))))
            error = float(np.linalg.norm((a.astype(np.float64) - b).ravel()))
        ratio = error / norm if norm > 0 else (0.0 if error == 0 else np.inf)
        worst = max(worst, ratio if np.isfinite(ratio) else np.inf)
    return worst


def flat(params: Params) -> list[Array]:
    """The tensors in order: w1, b1, w2, b2, …"""
    return [tensor for layer in params for tensor in layer]


def unflat(tensors: list[Array]) -> Params:
    """The inverse of `flat`."""
    return tuple(Layer(w, b) for w, b in zip(tensors[::2], tensors[1::2], strict=True))
