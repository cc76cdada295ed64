"""What a formula leaves over, smoothed between the points where it is known: simple kriging with a nugget."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def weights(at: Floats, left: Floats, reach: float, nugget: float) -> Floats:
    """Of each point, (points,), for `left`, log(measured / formula) at `at`, (points, axes).

    `reach`: how far a leftover tells of another's, in units of the axes; `nugget`: how much of it is noise, against 1.
    """
    gaps = ((at[:, None] - at[None]) ** 2).sum(axis=2)
    return np.linalg.solve(np.exp(-0.5 * gaps / reach**2) + nugget * np.eye(len(left)), left)


def factor(at: Sequence[Sequence[float]], known: Sequence[float], point: Sequence[float], reach: float) -> float:
    """By which the formula is to be multiplied at `point`; 1 far from every point that is known."""
    total = 0.0
    for place, weight in zip(at, known, strict=True):
        gap = sum((a - b) ** 2 for a, b in zip(place, point, strict=True))
        total += weight * exp(-0.5 * gap / reach**2)
    return exp(total)
