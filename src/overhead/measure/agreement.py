"""Agreement before timing: what the float64 reference does, and whether a loop did the same."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

import numpy as np

from overhead.problem import mlp
from overhead.problem.data import Split
from overhead.problem.mlp import Params
from overhead.problem.workload import Workload

STEPS = 20
RATE = 0.1  # a larger rate magnifies rounding without any fault of the loop
TOLERANCES = {"float32": 1e-5, "tf32": 1e-2}
ROUNDING = {"float32": 2.0**-23, "tf32": 2.0**-11}  # of a product's factors, relative
# Of the parameters that 20 steps change, a float32 loop has a fifth to a half as the rounded float64 ones are; one that
# trains in float64 has them all, but for sums in another order. Fewer parameters than that tell nothing.
AS_FLOAT64, TELLING = 0.999, 1000
# An epoch's many steps magnify rounding: at rate 0.1 and batch 32, changing the initial parameters by one part in a
# million moves the loss after an epoch by up to 5e-3 in float64, since a hidden unit that is switched on or off by it
# takes another path; at 0.01 by 2e-5. So the epoch is compared at a rate at which the tolerance means something.
EPOCH_RATE, EPOCH_BATCH = 0.01, 32
LOSS_TOLERANCE = 1e-3  # relative, of the mean training loss after the first epoch


class Reference(NamedTuple):
    """The float64 oracle's runs at the two rates of agreement."""

    params: Params  # after `STEPS` steps at `RATE`
    ways: tuple[float, ...]  # how far each tensor went in them
    undecided: float  # how far apart they get where rounding decides whether a ReLU lets through: either is right
    epoch_loss: float  # mean training loss after the first epoch at the epoch's rate


class Agreement(NamedTuple):
    """How far a loop is from the reference, and the tolerance in force."""

    steps: int
    error: float
    tolerance: float
    epoch_loss_error: float
    why: str | None = None  # what keeps the two from being compared at all

    @property
    def disagreement(self) -> str | None:
        """Why the loop may not be timed, or None."""
        if self.why:
            return self.why
        if not self.error <= self.tolerance:
            return f"error {self.error:.2g} after {self.steps} steps exceeds {self.tolerance:g} (norm-wise)"
        if not self.epoch_loss_error <= LOSS_TOLERANCE:
            return f"mean loss after one epoch is off by {self.epoch_loss_error:.2g}, more than {LOSS_TOLERANCE:g}"
        return None


def at_agreement_rate(workload: Workload) -> Workload:
    """The workload with the rate at which loops are compared after 20 steps."""
    return workload.model_copy(update={"learning_rate": RATE})


def at_epoch_rate(workload: Workload) -> Workload:
    """The workload with the rate at which loops are compared after an epoch; smaller batches take smaller steps."""
    rate = EPOCH_RATE * min(1.0, workload.batch_size / EPOCH_BATCH)
    return workload.model_copy(update={"learning_rate": rate})


@lru_cache(maxsize=4)
def _reference(workload: Workload, split: _Same, precision: str) -> Reference:
    def after(w: Workload, steps: int, doubt: float = 0.0) -> Params:
        *_, (_, params) = islice(mlp.reference_steps(mlp.init(w), split.of.x, split.of.y, w, doubt), steps)
        return params

    epoch, rate = after(at_epoch_rate(workload), workload.steps), at_agreement_rate(workload)
    steps = [found for _, found in islice(mlp.reference_steps(mlp.init(rate), split.of.x, split.of.y, rate), STEPS)]
    params, ways = steps[-1], mlp.travelled(mlp.init(rate), steps)
    either = [
        mlp.relative_error(after(rate, STEPS, doubt), params, ways)
        for doubt in (-ROUNDING[precision], ROUNDING[precision])
    ]
    return Reference(params, ways, max(either), mlp.loss(epoch, split.of.x, split.of.y))


class _Same:
    """A split as a cache key: the same object is the same split."""

    def __init__(self, of: Split) -> None:
        self.of = of

    def __hash__(self) -> int:
        return id(self.of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.of is self.of


def reference(workload: Workload, split: Split, precision: str = "float32") -> Reference:
    """The oracle's parameters after 20 steps and its loss after an epoch, computed once per workload and precision.

    `precision` of the loop that is compared, `float32` or `tf32`: what its rounding leaves undecided.
    """
    return _reference(at_agreement_rate(workload).model_copy(update={"epochs": 1}), _Same(split), precision)


def compare(
    after_steps: Params, after_epoch: Params, workload: Workload, split: Split, precision: str = "float32"
) -> Agreement:
    """A loop's parameters after 20 steps and after one epoch, each at its rate of agreement, against the reference.

    Parameters of other shapes and a precision without a tolerance are a disagreement, not an error.
    """
    why = _incomparable(after_steps, after_epoch, workload)
    if precision not in TOLERANCES:
        why = f"precision must be one of {', '.join(TOLERANCES)}, got {precision!r}"
    if why:
        return Agreement(STEPS, math.inf, TOLERANCES.get(precision, 0.0), math.inf, why)
    expected = reference(workload, split, precision)
    if _as_float64(after_steps, expected.params, workload):
        why = f"after {STEPS} steps its parameters are those of float64: it must train in float32"
    loss = mlp.loss(after_epoch, split.x, split.y)
    error = abs(loss - expected.epoch_loss) / expected.epoch_loss
    return Agreement(
        STEPS,
        mlp.relative_error(after_steps, expected.params, expected.ways),
        TOLERANCES[precision] + expected.undecided,
        error if math.isfinite(error) else math.inf,
        why,
    )


def _as_float64(found: Params, expected: Params, workload: Workload) -> bool:
    """Whether parameters are more exact than arithmetic in float32 could make them."""
    start, own, exact = (
        np.concatenate([np.asarray(tensor, dtype=np.float32).ravel() for tensor in mlp.flat(params)])
        for params in (mlp.init(workload), found, expected)
    )
    moved = exact != start
    return int(moved.sum()) >= TELLING and float(np.mean(own[moved] == exact[moved])) > AS_FLOAT64


def _incomparable(after_steps: Params, after_epoch: Params, workload: Workload) -> str | None:
    expected = [tensor.shape for tensor in mlp.flat(mlp.init(workload))]
    for params in (after_steps, after_epoch):
        found = [tensor.shape for tensor in mlp.flat(params)]
        if found != expected:
            return f"shapes of the parameters must be {expected}, got {found}"
    return None


def diverged_step(losses: Sequence[float], classes: int, began: float = math.nan) -> int | None:
    """The step of one epoch at which it diverged, from its batch losses in nats; None when it did not.

    An epoch diverged when its mean loss is not finite or above ln(classes), the constant prediction's. The
    step is the first of the losses, not finite or above 10·ln(classes), that the epoch does not recover
    from; else the epoch's first. `began` is the first loss of the whole training: where no loss is half as
    much again, the rate was too low to leave He's start, which may lie above ln(classes), and nothing diverged.
    """
    limit = math.log(classes)
    if all(loss <= 1.5 * began for loss in losses):
        return None
    # A loss that lifts the mean above the limit by itself is seen first: the sum of finite losses may not be finite.
    if all(loss <= limit * len(losses) for loss in losses) and math.fsum(losses) <= limit * len(losses):
        return None
    step = len(losses)
    while step and not losses[step - 1] <= 10 * limit:
        step -= 1
    return step if step < len(losses) else 0


def diverged_at(workload: Workload, split: Split) -> int | None:
    """The step, from 0 over all epochs, at which float64 training at the workload's rate diverges, or None."""
    steps = mlp.reference_steps(mlp.init(workload), split.x, split.y, workload)
    began = math.nan
    for epoch in range(workload.epochs):
        losses = [value for value, _ in islice(steps, workload.steps)]
        began = losses[0] if epoch == 0 else began
        step = diverged_step(losses, workload.layers[-1], began)
        if step is not None:
            return epoch * workload.steps + step
    return None
