"""What a batch size changes, as tables: the gain of a doubling, what stays, the last batch, resolved settings."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from operator import mul
from typing import Any

import pandas as pd

from overhead.chapters.pages import Html
from overhead.loops import LOOPS
from overhead.records import pairs, stats
from overhead.records.levels import over_turns
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

GAIN = 1.05  # a doubling of the batch that gains less has stopped gaining


def size_of(record: Record) -> int:
    """The record's batch size."""
    return record.trained.batch_size


def mapped(interval: Interval, change: Callable[[float], float]) -> Interval:
    """The interval of a rising function of what `interval` is of."""
    return Interval(change(interval.median), change(interval.low), change(interval.high), interval.n)


def series_of(records: Sequence[Record]) -> list[list[Record]]:
    """Timed records of loops by loop, device and threads, each from the smallest batch size to the largest."""
    found: dict[Any, list[Record]] = {}
    for record in records:
        if record.status == "ok" and record.loop in LOOPS and record.timing:
            found.setdefault((record.loop, record.device, record.threads), []).append(record)
    return [sorted(series, key=size_of) for series in found.values()]


def gains(series: Sequence[Record]) -> list[tuple[Record, Record, Interval]]:
    """What a doubling of the batch gains between neighbouring sizes: times less that an epoch takes.

    On average a doubling, where the sizes are further apart.
    """
    found = []
    for small, large in pairwise(series):
        ratio = tables.ratio(small, large)
        if ratio is None:
            continue
        share = 1 / math.log2(size_of(large) / size_of(small))
        found.append((small, large, mapped(ratio, partial(pow, exp=share))))
    return found


def gains_table(records: Sequence[Record], caption: str) -> Html:
    """Per loop and device, the first batch size whose doubling gains less than 5 %."""
    rows = []
    for series in series_of(records):
        steps = gains(series)
        if not steps:
            continue
        stopped = [step for step in steps if step[2].median < GAIN]
        small, large, gain = stopped[0] if stopped else steps[-1]
        rows.append(
            {
                "loop": small.loop,
                "device": small.device,
                "stops gaining at": f"{size_of(small):,}" if stopped else "no such size in the range tried",
                "shown from … to": f"{size_of(small):,} … {size_of(large):,}",
                "gain a doubling": tables.interval(gain),
                "n": str(gain.n),
                "note": "not settled: the interval holds 1.05" if gain.low <= GAIN <= gain.high else "",
            }
        )
    if not rows:
        return Html("<p>No loop was timed at two batch sizes, so there is no doubling to judge.</p>")
    title = "Seconds per epoch at a batch size over those at the next, for each doubling between the two. "
    return Html(tables.as_html(pd.DataFrame(rows), title + caption))


def plateau(small: Record, large: Record) -> dict[str, Interval | None]:
    """A line through two batch sizes: seconds = steps · per_step + images · per_image, from pairs of a round.

    `per_step_s` and `per_image_s` are seconds, `stays` the share of the larger size's epoch that is not paid once
    a step. None where a pair makes one of them negative: then no line describes the loop.
    """
    a, b = small.trained, large.trained
    per_step, per_image, stays = [], [], []
    for rows in pairs.joined(pairs.epochs(small), pairs.epochs(large)):
        # both epochs see about the same images; each is scaled to its own
        det = a.steps * b.images_seen - b.steps * a.images_seen
        step = [(s * b.images_seen - f * a.images_seen) / det for s, f in rows]
        per_step.append(step)
        per_image.append([(f - b.steps * p) / b.images_seen for (_, f), p in zip(rows, step, strict=True)])
        stays.append([(f - b.steps * p) / f for (_, f), p in zip(rows, step, strict=True)])
    named = {"per_step_s": per_step, "per_image_s": per_image, "stays": stays}
    return {name: _positive(series) for name, series in named.items()}


def _positive(series: list[list[float]]) -> Interval | None:
    return (
        stats.median_interval(series) if series and all(value > 0 for process in series for value in process) else None
    )


def plateau_table(records: Sequence[Record], caption: str) -> Html:
    """Per loop and device: what is paid once a step, what is paid for each image, and what of it stays."""
    rows = []
    for series in series_of(records):
        if len(series) < 2:
            continue
        found = plateau(series[0], series[-1])
        row = {
            "loop": series[0].loop,
            "device": series[0].device,
            "from … to": f"{size_of(series[0]):,} … {size_of(series[-1]):,}",
        }
        for name, label, scale in (
            ("per_step_s", "us per step", 1e6),
            ("per_image_s", "us per image", 1e6),
            ("stays", "stays at the largest batch, %", 100),
        ):
            value = found[name]
            shown = tables.interval(mapped(value, partial(mul, scale))) if value and all(found.values()) else None
            row[label] = shown or tables.NOT_MEASURED
        rows.append(row | {"note": "" if all(found.values()) else "no line: one of its parts is below 0 in some round"})
    if not rows:
        return Html("<p>No loop was timed at two batch sizes, so nothing can be told apart.</p>")
    title = "Epoch = steps · (us per step) + images · (us per image), through the smallest and the largest batch. "
    return Html(tables.as_html(pd.DataFrame(rows), title + caption))


def remainder_table(records: Sequence[Record], caption: str) -> Html:
    """Both policies for the last, partial batch: steps, images seen, seconds and accuracy."""
    by_key: dict[Any, dict[str, Record]] = {}
    for r in records:
        if r.op is None and r.member is None and r.loop in LOOPS:
            key = (r.loop, r.device, r.threads, r.trained.batch_size)
            by_key.setdefault(key, {})[r.trained.remainder] = r
    rows = []
    for both in by_key.values():
        for policy in ("drop", "keep") if len(both) == 2 else ():
            record, work = both[policy], both[policy].trained
            row = {
                "loop": record.loop,
                "device": record.device,
                "batch size": f"{work.batch_size:,}",
                "last batch": policy,
                "steps": f"{work.steps:,}",
                "images seen": f"{work.images_seen:,}",
            }
            if record.status == "ok":
                epoch = over_turns(record.epochs())
                share = record.val_accuracy[-1] if record.val_accuracy else math.nan
                row |= {
                    "seconds per epoch": tables.interval(epoch),
                    "us per image": tables.number(epoch.median / work.images_seen * 1e6),
                    "validation accuracy": f"{100 * share:.2f} %" if math.isfinite(share) else tables.NOT_MEASURED,
                    "note": "",
                }
            else:
                dash = dict.fromkeys(
                    ("seconds per epoch", "us per image", "validation accuracy"), tables.NOT_MEASURED
                )  # fmt: skip
                row |= dash | {"note": f"{record.status}: {record.reason}"}
            rows.append(row)
    if not rows:
        return Html("<p>Every batch size here divides the images, so no batch is partial.</p>")
    return Html(tables.as_html(pd.DataFrame(rows), "Both policies at the same batch size. " + caption))


def settings_table(records: Sequence[Record]) -> Html:
    """What each framework resolved by itself, by loop and device; one row where it is the same at all sizes."""
    rows: dict[Any, set[int]] = {}
    for r in records:
        if r.loop in LOOPS and r.settings:
            text = ", ".join(f"{name} {value}" for name, value in sorted(r.settings.items()))
            rows.setdefault((r.loop, r.device, text), set()).add(size_of(r))
    if not rows:
        return Html("<p>No loop reported a setting.</p>")
    shown = [
        {"loop": loop, "device": device, "batch sizes": ", ".join(f"{s:,}" for s in sorted(sizes)), "resolved": text}
        for (loop, device, text), sizes in rows.items()
    ]
    return Html(tables.as_html(pd.DataFrame(shown), "Settings as the framework resolved them, read after placing"))


FLOOR_IS = {
    "cpu": "The matrix products alone",
    "gpu": "The matrix products with their launches (the launch-bound floor)",
}


def floors_table(records: Sequence[Record]) -> Html:
    """The floor by library and threads; the smallest at each batch size is the floor."""
    frame = tables.floors_frame(records)
    rows = [
        {
            "library": row.library,
            "threads": row.threads,
            "batch size": f"{row.batch_size:,}",
            "seconds per epoch": tables.with_interval(row.epoch_s, row.low_s, row.high_s)
            if row.status == "ok"
            else f"{row.status}: {row.reason}",
        }
        for row in frame.itertuples()
    ]
    caption = "The step's matrix products alone, streaming the epoch; the best of the fresh processes, 95 % interval"
    if "gpu" in set(frame["device"] if len(frame) else ()):
        caption += "; on a GPU their launches are in it: the launch-bound floor"
    return Html(tables.as_html(pd.DataFrame(rows), caption, "the matrix products alone"))
