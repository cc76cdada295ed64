"""A loop's constants of a call, an operator, a logit and an epoch, from the times of its small steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import lsq_linear

from overhead.model import kriging
from overhead.model.constants import TERMS, Frame
from overhead.model.kriging import Floats
from overhead.model.replay import DRAWS, REACH, Parts, framed, place_of
from overhead.problem.workload import Workload

FACTOR_BOUNDS = ((0.6, 4.0), (0.1, 8.0))  # of products and of passes in a step, against themselves alone
PRIOR = 0.05  # weight of "the factors are 1" beside one step
NUGGET = 0.3  # the share of a step's leftover that is noise


def solve(rows: Sequence[Parts], steps: Sequence[int], seconds: Sequence[float]) -> tuple[float, ...]:
    """A frame's constants (as `TERMS`) by bounded least squares of relative errors."""
    columns = [_column(row, count) for row, count in zip(rows, steps, strict=True)]
    matrix = np.array(columns) / np.array(seconds)[:, None]
    scale = np.maximum(matrix.max(axis=0), 1e-12)
    prior = PRIOR * np.eye(6)[4:]
    low = np.array([0, 0, 0, 0, FACTOR_BOUNDS[0][0], FACTOR_BOUNDS[1][0]])
    high = np.array([np.inf, np.inf, np.inf, np.inf, FACTOR_BOUNDS[0][1], FACTOR_BOUNDS[1][1]])
    # Robust: a step that was disturbed must not move the constants of all the others.
    weights, found = np.ones(len(rows)), np.zeros(6)
    for _ in range(5):
        a = np.vstack([weights[:, None] * matrix / scale, prior / scale])
        b = np.concatenate([weights, np.full(2, PRIOR)])
        found = lsq_linear(a, b, bounds=(low * scale, high * scale)).x / scale
        off = np.abs(matrix @ found - 1)
        weights = np.minimum(1.0, 0.15 / np.maximum(off, 1e-9)) ** 0.5
    return tuple(float(x) for x in np.clip(found, low, high))


def _column(row: Parts, steps: int) -> list[float]:
    return [1.0, steps, steps * row.ops, steps * row.logits, steps * sum(row.arithmetic_s), steps * row.memory_s]


def frame_of(rows: Sequence[Parts], workloads: Sequence[Workload], seconds: Sequence[float], seed: int = 0) -> Frame:
    """The constants of a loop from its steps, with draws from resampled leftovers, and the leftovers smoothed."""
    steps, t = [w.steps for w in workloads], np.array(seconds)
    at = np.array([place_of(w) for w in workloads])

    def left_over(constants: Sequence[float]) -> Floats:
        return np.log(t / [framed(row, count, constants).total_s for row, count in zip(rows, steps, strict=True)])

    best = solve(rows, steps, seconds)
    inside = left_over(best)
    outside = []  # each step by constants that never saw it
    for i in range(len(rows)):
        others = [j for j in range(len(rows)) if j != i]
        left = left_over(solve([rows[j] for j in others], [steps[j] for j in others], t[others].tolist()))
        known = kriging.weights(at[others], left[others], REACH, NUGGET)
        outside.append(float(left[i] - math.log(kriging.factor(at[others].tolist(), known.tolist(), at[i], REACH))))
    rng, draws = np.random.default_rng(seed), []
    for _ in range(DRAWS):
        drawn = t * np.exp(rng.choice(inside, len(inside)) - inside)
        draws.append(solve(rows, steps, drawn.tolist()))
    known = kriging.weights(at, inside, REACH, NUGGET)
    return Frame(
        **dict(zip(TERMS, best, strict=True)), draws=draws, residuals=outside, at=at.tolist(), weights=known.tolist(),
        timed=[(w.layers, w.batch_size, w.images, s) for w, s in zip(workloads, seconds, strict=True)],
    )  # fmt: skip
