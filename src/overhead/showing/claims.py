"""Claims: statements of fact with a check on a host's records, and the rules by which a verdict word may be said.

What a page, a notebook or the book says of the world beyond definitions, methods and arithmetic is a claim. A check
looks at the records of one chapter and says *holds*, *does not hold here* or *not measured here*, with a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from overhead.records import headline as headlines
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

Status = Literal["holds", "does not hold here", "not measured here"]
HOLDS: Status = "holds"
FAILS: Status = "does not hold here"
NOT_MEASURED: Status = "not measured here"
CLOSES = 0.10  # of the whole: what a sum may miss and is still said to close
ALIKE = 0.001  # validation accuracies that differ by less are called alike: 12 of 12,000 images


class Finding(NamedTuple):
    """What a host's records say of a claim."""

    status: Status
    figure: str  # the figure with its interval, or why there is none


class Claim(NamedTuple):
    """A statement of fact, the chapter whose records decide it, and how; `about` are the article's rows it settles."""

    name: str  # short, lower case, with hyphens: what prose refers to
    statement: str
    chapter: str
    check: Callable[[Sequence[Record]], Finding]
    about: tuple[str, ...] = ()  # S1 to S15, C1 to C6 (the article's conclusions)


def judged(claim: Claim, records: Sequence[Record] | None) -> Finding:
    """The finding on a host; without records, or with records that lack what the check needs, *not measured here*."""
    if not records:
        return missing("the chapter was not measured" if claim.chapter else "no chapter measures this yet")
    try:
        return claim.check(records)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        return missing(f"its records lack what the check needs ({type(error).__name__})")


def missing(why: str) -> Finding:
    """No finding, and why."""
    return Finding(NOT_MEASURED, why)


def timed(
    records: Sequence[Record], loop: str, batch_size: int | None = None, device: str = "cpu", remainder: str = "drop"
) -> Record | None:
    """The record of a loop that was timed by the epoch; without a batch size, at the smallest one."""
    found = [
        r
        for r in records
        if (r.loop, r.device, r.status, r.op, r.member) == (loop, device, "ok", None, None)
        and r.timing
        and of_workload(r, "remainder") == remainder
        and batch_size in (None, of_workload(r, "batch_size"))
    ]
    return min(found, key=lambda r: of_workload(r, "batch_size"), default=None)


def of_workload(record: Record, name: str) -> Any:
    """A field of what a record was measured on; None where it has none."""
    return getattr(record.workload, name, None)


def scaled(found: Interval, factor: float) -> Interval:
    """The interval times a number above 0."""
    return Interval(found.median * factor, found.low * factor, found.high * factor, found.n)


def against(value: float, found: Interval) -> Interval:
    """A single figure through a measured one, whose interval it takes over."""
    return Interval(value / found.median, value / found.high, value / found.low, found.n)


# --- rules: each word below is said by one of these and nothing else -------------------------------------------------


def above(found: Interval | None, limit: float = 1.0, what: str = "times as long") -> Finding:
    """*More*, *slower*: the whole interval lies above the limit."""
    if found is None:
        return missing("no shared turns")
    return Finding(HOLDS if found.n > 1 and found.low > limit else FAILS, f"{tables.interval(found)} {what}")


def below(found: Interval | None, limit: float = 1.0, what: str = "times as long") -> Finding:
    """*Less*, *faster*: the whole interval lies below the limit."""
    if found is None:
        return missing("no shared turns")
    return Finding(HOLDS if found.n > 1 and found.high < limit else FAILS, f"{tables.interval(found)} {what}")


def between(found: Interval | None, low: float, high: float, what: str = "times as long") -> Finding:
    """*As long*, *no penalty*: the whole interval lies between two limits; that a difference was not seen is not it."""
    if found is None:
        return missing("no shared turns")
    inside = found.n > 1 and low < found.low and found.high < high
    return Finding(HOLDS if inside else FAILS, f"{tables.interval(found)} {what}")


def slower(
    ours: Record | None, other: Record | None, limit: float = 1.0, per: Literal["epoch", "image"] = "epoch"
) -> Finding:
    """*Slower*: the interval of the headline ratio ours / other lies above the limit.

    From two sets of processes on; a single process can be slow for its whole life, so its ratio decides nothing.
    """
    if ours is None or other is None:
        return missing("one of the two was not timed")
    found = tables.ratio(ours, other)
    if found is None:
        return missing("the two share no turn")
    if per == "image":
        found = scaled(found, of_workload(other, "images_seen") / of_workload(ours, "images_seen"))
    words = "times as long" + (" for an image" if per == "image" else "")
    if len(set(headlines.turns(ours)) & set(headlines.turns(other))) < 2:
        return missing(f"{tables.interval(found)} {words}, of one process each: no verdict")
    return above(found, limit, words)


def largest(found: Mapping[str, Interval], name: str, unit: str = "") -> Finding:
    """*The largest*: its interval lies above that of every other one."""
    if name not in found or len(found) < 2:
        return missing("fewer than two were measured")
    ours = found[name]
    next_ = max((i for other, i in found.items() if other != name), key=lambda i: i.high)
    figure = f"{tables.interval(ours)}{unit}; of the others at most {tables.number(next_.high)}{unit}"
    return Finding(HOLDS if ours.low > next_.high else FAILS, figure)


def closes(residual: Interval, whole: float) -> Finding:
    """*Closes*: the whole interval of what is left over lies within `CLOSES` of the whole, on both sides."""
    share = scaled(residual, 100 / whole)
    held = share.low > -100 * CLOSES and share.high < 100 * CLOSES
    return Finding(HOLDS if held else FAILS, f"{tables.interval(share)} % left over")


def first_at(times: Mapping[str, Sequence[float]], name: str, unit: str = " s") -> Finding:
    """*First at*: each of its seeds got there before any seed of any other one; from five seeds each."""
    if name not in times or len(times) < 2 or min(map(len, times.values())) < 5:
        return missing("fewer than two were measured with five seeds")
    ours, others = times[name], [t for other, of in times.items() if other != name for t in of]
    last, next_ = tables.number(max(ours)), tables.number(min(others))
    figure = f"{name}: its last seed after {last}{unit}, the first of the others after {next_}{unit}"
    return Finding(HOLDS if max(ours) < min(others) else FAILS, figure)


def alike(accuracies: Mapping[str, float]) -> Finding:
    """*The same accuracy*: the highest and the lowest differ by less than `ALIKE`."""
    if len(accuracies) < 2:
        return missing("fewer than two accuracies were kept")
    low, high = min(accuracies.values()), max(accuracies.values())
    return Finding(HOLDS if high - low < ALIKE else FAILS, f"{100 * low:.2f} to {100 * high:.2f} %")


def counted(value: float, held: bool, words: str) -> Finding:
    """A count, which has no interval: it is as the statement says or it is not."""
    return Finding(HOLDS if held else FAILS, f"{tables.number(value)} {words}")


def first_run(records: Sequence[Record], loop: str, batch_size: int) -> Finding:
    """*The first is slower*: the first run of a loop, which may compile, takes longer than its later ones."""
    record = timed(records, loop, batch_size)
    steady = tables.headline(record) if record else None
    if record is None or steady is None or record.timing is None or not record.timing.first_s:
        return missing("no first run was kept beside later ones")
    return above(against(record.timing.first_s, steady))
