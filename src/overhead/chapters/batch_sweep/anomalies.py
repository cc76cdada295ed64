"""Figures that the article left unexplained: each a hypothesis, a switch, a verdict with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import mul
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from overhead.chapters.batch_sweep.batches import mapped, size_of
from overhead.chapters.pages import Html, Markdown
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant
from overhead.measure.process import Process
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

OP = "anomaly"  # what marks the record of a loop with one thing switched
# The largest block that glibc can be told to keep in its heap, and a heap that is never given back.
KEEP_MEMORY = (("MALLOC_MMAP_THRESHOLD_", str(2**25)), ("MALLOC_TRIM_THRESHOLD_", str(2**30)))
COUNTED = ("numpy", "numpy-preallocated", "numpy-chunked")  # loops whose page faults are read
XLA, ON_TENSORFLOW = "overhead.loops.keras_xla", (("KERAS_BACKEND", "tensorflow"),)


ANOMALY = (4_096, 2_048)  # the batch sizes of the article's figures for NumPy
KERAS_FACTOR = 11.31 / 4.4  # between the article's two figures of Keras on the CPU


class Arm(NamedTuple):
    """A loop with one thing switched, the loop that it is compared with, and what it would show."""

    hypothesis: str
    switch: str
    contestant: Contestant
    against: str
    at_largest: bool  # at the largest batch size; else at the smallest
    quick: bool


ARMS = (
    Arm(
        "fresh memory at every step, handed out page by page", "malloc keeps large blocks (environment)",
        Contestant("numpy", env=KEEP_MEMORY), "numpy", True, True,
    ),
    Arm(
        "a second core that waits, and whose results the first has to fetch", "one thread (numpy)",
        Contestant("numpy", threads=1), "numpy", False, True,
    ),
    Arm(
        "the same, whatever the allocator", "arrays made beforehand (numpy-preallocated)",
        Contestant("numpy-preallocated"), "numpy", True, True,
    ),
    Arm(
        "arrays larger than the cache", "chunks of 512 images (numpy-chunked)",
        Contestant("numpy-chunked"), "numpy", True, False,
    ),
    Arm(
        "threads that do not help", "one thread (keras-fit)",
        Contestant("overhead.loops.keras_:KerasFitLoop", threads=1, env=ON_TENSORFLOW), "keras-fit", False, False,
    ),
    Arm(
        "XLA, which Keras turns on by the devices it sees", "jit_compile=True (keras-fit)",
        Contestant(f"{XLA}:KerasFitXlaLoop", env=ON_TENSORFLOW), "keras-fit", False, False,
    ),
    Arm(
        "the same, the other way", "jit_compile=False (keras-fit)",
        Contestant(f"{XLA}:KerasFitWithoutXlaLoop", env=ON_TENSORFLOW), "keras-fit", False, False,
    ),
)  # fmt: skip


def page_faults(pid: int) -> int | None:
    """Minor page faults of a process so far; None where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[7])
    except (OSError, IndexError, ValueError):
        return None


def keep_page_faults(worker: Process, case: Case) -> None:
    """Page faults a step of a NumPy loop, from an epoch and two more after the timing; the run itself falls out.

    A process's allocator decides early in its life whether it keeps large blocks, so that each process has its own.
    """
    if case.contestant.loop not in COUNTED:
        return
    steps, counts = case.workload.steps, []
    for n in (steps, 2 * steps):
        before = page_faults(worker.pid)
        worker.ask("run", steps=n)
        after = page_faults(worker.pid)
        if before is None or after is None:
            return
        counts.append(after - before)
    case.facts.setdefault("page_faults", []).append(max(0, counts[1] - counts[0]) / steps)


def of(records: Sequence[Record]) -> list[Record]:
    """The records of loops with one thing switched."""
    return [r for r in records if r.op == OP]


def switched(record: Record, arm: Arm) -> bool:
    """Whether `record` is this arm's: its loop, its environment, its number of threads where the arm sets one."""
    loop, _, threads, env = arm.contestant
    kept = dict(KEEP_MEMORY).items() <= record.env.items()
    return (
        (record.loop, record.device) == (loop, "cpu")
        and threads in (0, record.threads)
        and kept == (env == KEEP_MEMORY)
    )


def pairs(rows: Sequence[Record], arms: Sequence[Record]) -> list[tuple[Arm, Record, Record]]:
    """Each arm with its record and the record of the loop that it is compared with, at one batch size."""
    found = []
    for arm in ARMS:
        candidates = [r for r in [*arms, *rows] if switched(r, arm)]
        # an arm that the sweep holds too (full: numpy-preallocated) has a record at every size
        candidates.sort(key=size_of, reverse=arm.at_largest)
        for record in candidates[:1]:
            plain = [r for r in rows if (r.loop, r.device) == (arm.against, "cpu") and size_of(r) == size_of(record)]
            if plain and record is not plain[0]:
                found.append((arm, record, plain[0]))
    return found


def slowdown(rows: Sequence[Record]) -> tuple[Record, Record, Interval] | None:
    """NumPy's time for an image at its largest batch size over that at its best smaller one; None if not measured."""
    timed = sorted((r for r in rows if r.loop == "numpy" and r.status == "ok"), key=size_of)
    if len(timed) < 2:
        return None
    *smaller, largest = timed
    best = min(smaller, key=lambda r: stats.median_interval(r.epochs()).median / _images(r))
    ratio = tables.ratio(largest, best)
    if ratio is None:
        return None
    return largest, best, mapped(ratio, partial(mul, _images(best) / _images(largest)))


def table(rows: Sequence[Record], arms: Sequence[Record], caption: str) -> Html:
    """Hypothesis, switch, the ratio of times and what it says."""
    shown = []
    for arm, record, plain in pairs(rows, arms):
        row = {
            "switch": arm.switch,  # first, since the first column does not wrap
            "hypothesis": arm.hypothesis,
            "batch size": f"{size_of(record):,}",
        }
        ratio = tables.ratio(record, plain)
        faults = {"page faults a step": _faults(record), "without the switch": _faults(plain)}
        if ratio is None:
            bad = record if record.status != "ok" else plain
            dash = dict.fromkeys(("times as long", "n"), tables.NOT_MEASURED)
            shown.append(row | dash | {"verdict": f"{bad.status}: {bad.reason}"} | faults)
            continue
        found = {"times as long": tables.interval(ratio), "n": str(ratio.n), "verdict": stats.verdict(ratio)}
        shown.append(row | found | faults)
    if not shown:
        return Html("<p>No loop that a switch is for was measured here.</p>")
    title = "Seconds per epoch with the switch over those without it, from pairs of the same round. "
    return Html(tables.as_html(pd.DataFrame(shown), title + caption))


def sentence(rows: Sequence[Record], arms: Sequence[Record]) -> Markdown:
    """Whether NumPy is slower at its largest batch here, and which switches change that."""
    found = slowdown(rows)
    if found is None:
        return Markdown("NumPy was timed at fewer than two batch sizes, so whether a large one is slower is not known.")
    largest, best, ratio = found
    said = {
        "slower": "so the article's anomaly is there on this host",
        "faster": "so the article's anomaly is not there on this host",
        "no difference shown": "so no anomaly is shown on this host",
    }[stats.verdict(ratio)]
    if (size_of(largest), size_of(best)) != ANOMALY:
        said = "which is not the article's comparison of 4,096 with 2,048"
    text = (
        f"For an image, NumPy takes {tables.interval(ratio)} times as long at {size_of(largest):,} as at "
        f"{size_of(best):,} (n = {ratio.n} turns), {said}."
    )
    helping, idle = [], []
    small = ""
    for arm, record, plain in pairs(rows, arms):
        times = tables.ratio(record, plain)
        if arm.against != "numpy" or not times:
            continue
        if not arm.at_largest:
            small = (
                f" At {size_of(record):,} an epoch with one thread takes {tables.interval(times)} times as long as "
                f"with {plain.threads} ({stats.verdict(times)})."
            )
        else:
            (helping if stats.verdict(times) == "faster" else idle).append((arm, times))
    keras = keras_sentence(rows, arms)
    if idle and not helping:
        each = "; ".join(arm.switch for arm, _ in idle)
        return Markdown(f"{text} None of the switches is shown to shorten the epoch there: {each}.{small}{keras}")
    if helping:
        each = "; ".join(f"{arm.switch}: {tables.interval(times)} times the time" for arm, times in helping)
        text += f" What shortens the epoch there: {each}."
    if idle:
        text += f" What is not shown to: {'; '.join(arm.switch for arm, _ in idle)}."
    return Markdown(text + small + keras)


def keras_switches(rows: Sequence[Record], arms: Sequence[Record]) -> list[tuple[Arm, Interval]]:
    """The switches of Keras with the ratio of the epoch's time that each makes."""
    return [
        (arm, ratio)
        for arm, record, plain in pairs(rows, arms)
        if arm.against.startswith("keras") and (ratio := tables.ratio(record, plain))
    ]


def explains(ratio: Interval) -> bool:
    """Whether a switch's interval holds the factor between the article's two figures of Keras, either way."""
    return any(ratio.low <= factor <= ratio.high for factor in (KERAS_FACTOR, 1 / KERAS_FACTOR))


def keras_sentence(rows: Sequence[Record], arms: Sequence[Record]) -> str:
    """What the article's two figures of Keras on the CPU come down to here; nothing where no switch was tried."""
    found = keras_switches(rows, arms)
    if not found:
        return ""
    able = [arm.switch for arm, ratio in found if explains(ratio)]
    said = f"{'; '.join(able)} could make it." if able else "no switch that was tried makes it: unexplained here."
    return f" The article's 11.31 s and 4.4 s for Keras on the CPU differ by a factor of {KERAS_FACTOR:.2f}; {said}"


def _images(record: Record) -> int:
    return record.trained.images_seen


def _faults(record: Record) -> str:
    """Those of a step: of the process that was asked, or from the fewest to the most over processes."""
    counts = record.page_faults
    if counts is None:
        return tables.NOT_MEASURED
    if not isinstance(counts, list):
        several = len(record.epochs()) > 1
        return f"{counts:,.0f}" + (" in the first process, not counted in others" if several else "")
    least, most = f"{min(counts):,.0f}", f"{max(counts):,.0f}"
    return least if least == most else f"{least} to {most}, by process"
