"""What the harness is tried on without a measurement: samples whose median is known, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import optimize
from scipy import stats as distributions

from overhead.harness.comparisons import PROCESSES
from overhead.harness.experiments import PAIRS
from overhead.machine.timer import Clock


def samples() -> dict[str, tuple[Callable[[np.random.Generator], list[Any]], float]]:
    """Samples whose true median is known: what draws the series of one interval, and the median."""

    def lognormal(rng: np.random.Generator, n: int) -> Any:
        return rng.lognormal(0, 0.25, n)

    def bimodal(rng: np.random.Generator, n: int) -> Any:  # two samples in five are 1.5 times as long
        return np.where(rng.random(n) < 0.6, 1, 1.5) * rng.lognormal(0, 0.05, n)

    def below(x: float) -> float:
        return 0.6 * distributions.norm.cdf(np.log(x) / 0.05) + 0.4 * distributions.norm.cdf(np.log(x / 1.5) / 0.05)

    middle = float(optimize.brentq(lambda x: below(x) - 0.5, 1, 1.5))  # type: ignore[arg-type]
    cases: dict[str, tuple[Callable[[np.random.Generator], list[Any]], float]] = {}
    for n in (6, 8, PAIRS, 30):
        cases[f"log-normal, n = {n}"] = (lambda rng, n=n: [lognormal(rng, n)]), 1.0
        cases[f"bimodal, n = {n}"] = (lambda rng, n=n: [bimodal(rng, n)]), middle
    cases[f"log-normal, {PROCESSES} processes that differ by 20 %"] = (
        (lambda rng: [level * lognormal(rng, 8) for level in rng.lognormal(0, 0.2, PROCESSES)]),
        1.0,
    )
    return cases


def standing_clock(stuck: int) -> Clock:
    """A clock that shows the same for its first `stuck` readings, then one microsecond more each time."""
    count = 0

    def now() -> int:
        nonlocal count
        count += 1
        return 1000 * max(0, count - stuck)

    return now
