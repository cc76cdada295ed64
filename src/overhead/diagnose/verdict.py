"""From shares to a verdict, and the one change that is most likely to help."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.diagnose.interventions import PLAIN, Condition
from overhead.diagnose.shares import LIMITS, Shares

CANNOT_TELL = "cannot tell"
LEAST_LEAD = 0.30  # of the time: a smaller share limits nothing by itself
MARGIN = 0.05  # of the time: what the shares are wrong by, whatever their intervals
BATCH_TIMES = 4


class Verdict(NamedTuple):
    """What limits the step; `certain` where one limit's interval is clear of the next."""

    text: str
    leading: str | None
    certain: bool


class Advice(NamedTuple):
    """A change, what it is predicted to multiply the examples a second by, and how it is tried by itself."""

    change: str
    gain: float
    low: float
    high: float
    before: Condition | None = None
    after: Condition | None = None


def name(limit: str) -> str:
    return f"{limit}-bound"


def verdict(found: Shares) -> Verdict:
    """The leading limit where the interval of its lead does not hold `MARGIN`; two where they lead together.

    Never certain where the host did something else meanwhile.
    """
    medians = np.median(found.of, axis=0)
    first, second, third = np.argsort(medians)[::-1][:3]
    if not found.enough or medians[first] < LEAST_LEAD:
        return Verdict(CANNOT_TELL, None, False)
    leading = LIMITS[first]
    unparted = {"arithmetic", "memory"} if not found.memory_known else set()
    if leading not in unparted and _clear(found.of, first, second):
        return Verdict(name(leading), leading, found.quiet)
    if leading in unparted and _clear(found.of, first, second):
        return Verdict(f"mixed: {name('arithmetic')} or {name('memory')}", "arithmetic", False)
    if _clear(found.of, second, third):
        return Verdict(f"mixed: {name(leading)} or {name(LIMITS[second])}", leading, False)
    return Verdict(CANNOT_TELL, leading, False)


def _clear(shares: NDArray[np.float64], ahead: int, behind: int) -> bool:
    return bool(np.quantile(shares[:, ahead] - shares[:, behind], 0.025) > MARGIN)


def advice(found: Shares, leading: str | None, has_pipeline: bool) -> Advice | None:
    """The change for the leading limit, with the gain that the shares predict; None where nothing leads."""
    if leading is None:
        return None
    share = found.of[:, LIMITS.index(leading)]
    rest = 1 - found.of[:, LIMITS.index("input")]  # of the time: the step without its input
    if leading == "dispatch":
        gain = BATCH_TIMES / (1 - rest + rest * (1 + (BATCH_TIMES - 1) * found.scaling))
        if has_pipeline:
            return _told(f"a batch {BATCH_TIMES} times as large (another number of updates)", gain)
        return _told(
            f"a batch {BATCH_TIMES} times as large (another number of updates)", gain, PLAIN,
            Condition(times=BATCH_TIMES),
        )  # fmt: skip
    if leading == "input":
        # A thread that works needs the interpreter, as the step's calls do; one that waits does not.
        calls = found.of[:, LIMITS.index("dispatch")] / np.maximum(rest, 1e-3)
        after = np.maximum(1, found.input + found.input_busy * calls)
        return _told(
            "batches made ready by a thread while the step runs", (1 + found.input) / after,
            Condition(pipeline=True), Condition(pipeline=True, prefetch=True),
        )  # fmt: skip
    one = found.one_core
    if leading == "arithmetic" and one is not None and np.quantile(one, 0.975) < 1:
        gain = 1 / (1 - rest + rest * one)
        return _told("one thread instead of all", gain, PLAIN, Condition(one_core=True))
    return _told(CHANGES[leading], 1 / (1 - share / 2))


CHANGES = {
    "arithmetic": "half the arithmetic (fewer or smaller products, or faster ones)",
    "memory": "half the bytes (smaller types, fewer passes over large arrays)",
    "wait": "half the waiting (wait once an epoch, not once a step; overlap what is waited for)",
}


def _told(change: str, gain: NDArray[np.float64], *tried: Condition) -> Advice:
    low, middle, high = (float(np.quantile(gain, q)) for q in (0.025, 0.5, 0.975))
    return Advice(change, middle, low, high, *tried)
