"""How long a matrix product takes on a CPU: a formula with bounded constants, fitted on the logarithm of time.

t = a + 2 m' n' k / (R s(m) s(n) s(k)) + bytes / BW(level) + wake [more threads than one and m n k > switch], with
s(x) = x / (x + x_half), m' and n' rounded up to the register tile, and the level by footprint. One such formula a
library, number of threads and layout (nn forward, tn gradient of the weights, nt gradient of the inputs), since a
BLAS takes another path for each. What the formula leaves over is kept, and a prediction takes the mean of its
neighbours' leftovers (`correction`), as in kriging with a nugget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel
from scipy.optimize import least_squares

from overhead.model import kriging

Floats = NDArray[np.float64]

LAYOUTS = ("nn", "tn", "nt")
TILES = ((1, 1), (4, 16))  # rows, columns: none, and that of OpenBLAS and Eigen on AVX-512 (NumPy is row-major)
SWITCHES = (0.0, 1e4, 1e5, 1e6)  # multiply-adds above which threads are woken; the best is taken
LEVEL_BYTES = 1 << 20  # a core's second cache: a larger footprint is read from further away
# Bounds of log10 of: a (s), R (FLOP/s), m_half, n_half, k_half, near and far bandwidth (B/s), wake (s).
LOWEST = np.array([-8.0, 9.0, -1.0, -1.0, -1.0, 9.5, 9.0, -9.0])
HIGHEST = np.array([-4.5, 12.5, 3.0, 3.0, 3.0, 12.5, 12.0, -4.0])
START = np.array([-6.3, 11.0, 0.7, 0.7, 0.7, 10.7, 10.3, -5.7])
REACH, NUGGET = 1.5, 0.5  # of the correction: octaves, and the share of a leftover that is noise


class Timed(NamedTuple):
    """A product that was timed: (m, k) @ (k, n)."""

    layout: str
    m: int
    n: int
    k: int
    seconds: float


class Fit(BaseModel, frozen=True, extra="forbid"):
    """The constants of one layout, and what the formula left over at the shapes that were timed."""

    a_s: float
    flops_per_s: float
    m_half: float
    n_half: float
    k_half: float
    near_bytes_per_s: float
    far_bytes_per_s: float
    wake_s: float
    switch: float
    tile_m: int
    tile_n: int
    at: list[tuple[float, float, float]]  # log2 of m, n, k
    weights: list[float]  # of the correction


def formula(fit: Fit, m: Any, n: Any, k: Any) -> Any:
    """Seconds of (m, k) @ (k, n) by the formula alone; numbers or arrays of them."""
    rows, columns = np.ceil(m / fit.tile_m) * fit.tile_m, np.ceil(n / fit.tile_n) * fit.tile_n
    saturation = (m / (m + fit.m_half)) * (n / (n + fit.n_half)) * (k / (k + fit.k_half))
    moved = 4.0 * (m * n + m * k + k * n)
    bandwidth = np.where(moved <= LEVEL_BYTES, fit.near_bytes_per_s, fit.far_bytes_per_s)
    wakes = np.where(m * n * k > fit.switch, fit.wake_s, 0.0)
    return fit.a_s + 2.0 * rows * columns * k / (fit.flops_per_s * saturation) + moved / bandwidth + wakes


def correction(fit: Fit, m: float, n: float, k: float) -> float:
    """The factor that the neighbours' leftovers give; 1 far from everything that was timed."""
    return kriging.factor(fit.at, fit.weights, (math.log2(m), math.log2(n), math.log2(k)), REACH)


def seconds(fit: Fit, m: float, n: float, k: float) -> float:
    """Seconds of (m, k) @ (k, n)."""
    return float(formula(fit, float(m), float(n), float(k))) * correction(fit, m, n, k)


def fit_layout(timed: Sequence[Timed], threads: int, like: Fit | None = None) -> Fit:
    """The constants of one layout; tile and switch are chosen anew, or are those of `like`.

    Raises `ValueError` for fewer shapes than constants.
    """
    if len(timed) < len(START):
        raise ValueError(f"a fit needs at least {len(START)} products, got {len(timed)}")
    m, n, k, t = (np.array([float(x[i]) for x in timed]) for i in (1, 2, 3, 4))

    def made(x: Floats, tile: tuple[int, int], switch: float) -> Fit:
        return Fit.model_construct(
            a_s=10 ** x[0], flops_per_s=10 ** x[1], m_half=10 ** x[2], n_half=10 ** x[3], k_half=10 ** x[4],
            near_bytes_per_s=10 ** x[5], far_bytes_per_s=10 ** x[6], wake_s=10 ** x[7] if threads > 1 else 0.0,
            switch=switch, tile_m=tile[0], tile_n=tile[1], at=[], weights=[],
        )  # fmt: skip

    best: tuple[float, Floats, tuple[int, int], float] | None = None
    for tile in TILES if like is None else [(like.tile_m, like.tile_n)]:
        for switch in (SWITCHES if threads > 1 else SWITCHES[:1]) if like is None else [like.switch]:

            def leftover(x: Floats, tile: tuple[int, int] = tile, switch: float = switch) -> Floats:
                return np.log(formula(made(x, tile, switch), m, n, k) / t)

            found = least_squares(leftover, START, bounds=(LOWEST, HIGHEST), loss="soft_l1", f_scale=0.2, max_nfev=60)
            if best is None or found.cost < best[0]:
                best = found.cost, found.x, tile, switch
    assert best is not None
    fit = made(*best[1:])
    at = np.log2(np.stack([m, n, k], axis=1))
    left = np.log(t / formula(fit, m, n, k))
    weights = kriging.weights(at, left, REACH, NUGGET)
    return Fit(**{**dict(fit), "at": at.tolist(), "weights": weights.tolist()})


def leave_out(timed: Sequence[Timed], threads: int, folds: int = 6) -> Floats:
    """log(measured / predicted) of each product of a layout by constants that never saw it: (products,)."""
    found, like = np.empty(len(timed)), fit_layout(timed, threads)
    for fold in range(folds):
        fit = fit_layout([x for i, x in enumerate(timed) if i % folds != fold], threads, like)
        for i in range(fold, len(timed), folds):
            found[i] = np.log(timed[i].seconds / seconds(fit, *timed[i][1:4]))
    return found


Predictor = Callable[[Timed], float]


def nearest_neighbour(timed: Sequence[Timed]) -> Predictor:
    """The rate of the nearest shape that was timed, in octaves."""
    at = np.log2([[x.m, x.n, x.k] for x in timed])
    rate = [x.m * x.n * x.k / x.seconds for x in timed]

    def predict(x: Timed) -> float:
        near = int(((at - np.log2([x.m, x.n, x.k])) ** 2).sum(axis=1).argmin())
        return x.m * x.n * x.k / rate[near]

    return predict


def plain_roofline(timed: Sequence[Timed]) -> Predictor:
    """max(FLOPs / the best rate seen, bytes / the best bandwidth seen)."""
    peak = max(2 * x.m * x.n * x.k / x.seconds for x in timed)
    bandwidth = max(_bytes(x) / x.seconds for x in timed)
    return lambda x: max(2 * x.m * x.n * x.k / peak, _bytes(x) / bandwidth)


def straight_line(timed: Sequence[Timed]) -> Predictor:
    """a + b · FLOPs by least squares of relative errors, a and b at least 0."""
    rows = np.array([[1 / x.seconds, 2 * x.m * x.n * x.k / x.seconds] for x in timed])
    scale = rows.max(axis=0)
    found = least_squares(lambda c: rows / scale @ c - 1, np.full(2, 0.5), bounds=(0, np.inf)).x / scale
    return lambda x: max(float(found[0] + found[1] * 2 * x.m * x.n * x.k), 1e-9)


RIVALS: dict[str, Callable[[Sequence[Timed]], Predictor]] = {
    "nearest neighbour": nearest_neighbour,
    "plain roofline": plain_roofline,
    "a + b FLOPs": straight_line,
}


def rivals(timed: Sequence[Timed], folds: int = 6) -> dict[str, float]:
    """The median of |log(predicted / measured)| of simpler ways, each product predicted from others alone."""
    left: dict[str, list[float]] = {name: [] for name in RIVALS}
    for layout in LAYOUTS:
        of_layout = [x for x in timed if x.layout == layout]
        for fold in range(folds):
            known = [x for i, x in enumerate(of_layout) if i % folds != fold]
            for name, make in RIVALS.items():
                predict = make(known)
                left[name] += [abs(float(np.log(predict(x) / x.seconds))) for x in of_layout[fold::folds]]
    return {name: float(np.median(errors)) for name, errors in left.items() if errors}


def _bytes(x: Timed) -> float:
    return 4.0 * (x.m * x.n + x.m * x.k + x.k * x.n)
