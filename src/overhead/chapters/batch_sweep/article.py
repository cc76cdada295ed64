"""The article's epoch figures as data, its protocol replayed, and the part of each gap that the protocol alone makes.

Its Keras figures are of a whole `fit()` with a metric and validation, the last partial batch kept; its NumPy and JAX
figures are of training alone, the last partial batch dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from overhead.chapters.pages import Html, Markdown
from overhead.records import pairs, stats
from overhead.records.levels import over_turns
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables

AS_TIMED = {"keras-fit-validated": ("keras-fit", "keep")}  # the article's loop: its controlled twin, its last batch


class Published(NamedTuple):
    """One figure that the article's prose keeps; its tables are lost, and with them most batch sizes."""

    what: str
    loop: str  # the loop that follows the article's protocol
    device: str
    batch_size: int | None
    epoch_s: float
    where: str


PUBLISHED = (
    Published("Keras on the GPU", "keras-fit-validated", "gpu", 32, 6.5, "one run, before the batch sweep"),
    Published("Keras on the CPU", "keras-fit-validated", "cpu", 32, 4.4, "one run, before the batch sweep"),
    Published("Keras on the GPU", "keras-fit-validated", "gpu", 32, 6.26, "batch sweep"),
    Published("Keras on the GPU", "keras-fit-validated", "gpu", None, 2.3, "batch sweep, its level at large batches"),
    Published("Keras on the CPU", "keras-fit-validated", "cpu", 32, 11.31, "batch sweep"),
    Published("Keras on the CPU", "keras-fit-validated", "cpu", None, 1.39, "batch sweep, its least"),
    Published("NumPy", "numpy", "cpu", 2048, 0.84, "batch sweep"),
    Published("NumPy", "numpy", "cpu", 4096, 1.03, "batch sweep"),
    Published("JAX, jit of the step", "jax-step", "cpu", 4096, 0.14, "batch sweep"),
    Published("NumPy, image by image", "numpy-per-image", "cpu", 32, 74 / 5, "about 74 s for five epochs"),
    Published("CuPy, image by image", "cupy-per-image", "gpu", 32, 443 / 5, "443 s for five epochs"),
)


class Side(NamedTuple):
    """One side of a gap, as the article timed it."""

    loop: str
    device: str
    batch_size: int


class Gap(NamedTuple):
    """Two figures that a reader of the article sets against each other."""

    what: str
    slower: Side
    faster: Side
    published: float | None  # None: the figures are lost
    note: str = ""


LOST = "the article's batch size is lost; 4,096 here"
GAPS = (
    Gap("Keras / NumPy", Side("keras-fit-validated", "cpu", 32), Side("numpy", "cpu", 32), None, "figure lost"),
    Gap("Keras / JAX", Side("keras-fit-validated", "cpu", 32), Side("jax-step", "cpu", 32), None, "figure lost"),
    Gap(
        "Keras / NumPy", Side("keras-fit-validated", "cpu", 4096), Side("numpy", "cpu", 4096), 1.39 / 1.03, LOST
    ),
    Gap("Keras / JAX", Side("keras-fit-validated", "cpu", 4096), Side("jax-step", "cpu", 4096), 1.39 / 0.14, LOST),
    Gap(
        "Keras on the GPU / Keras on the CPU",
        Side("keras-fit-validated", "gpu", 32), Side("keras-fit-validated", "cpu", 32), 6.5 / 4.4,
    ),
    Gap(
        "Keras on the GPU at 32 / JAX at 4,096",
        Side("keras-fit-validated", "gpu", 32), Side("jax-step", "cpu", 4096), 6.26 / 0.14,
        "no speed-up: two batch sizes, and unlike work",
    ),
    Gap(
        "CuPy / NumPy, image by image",
        Side("cupy-per-image", "gpu", 32), Side("numpy-per-image", "cpu", 32), 6.0,
    ),
)  # fmt: skip


def of(records: Sequence[Record], side: Side, remainder: str) -> Record | None:
    """The timed record of a side under a policy for the last batch; any policy where no batch is partial."""
    for r in records:
        if r.op is None and r.member is None and r.status == "ok" and r.timing:
            if (r.loop, r.device, r.trained.batch_size) == side:
                if r.trained.remainder == remainder or not r.trained.last_batch:
                    return r
    return None


def as_timed(records: Sequence[Record], side: Side) -> Record | None:
    """The record that follows the article's protocol."""
    return of(records, side, AS_TIMED[side.loop][1] if side.loop in AS_TIMED else "drop")


def controlled(records: Sequence[Record], side: Side, remainder: str) -> Record | None:
    """The same loop in the controlled comparison: training alone, one policy for all."""
    return of(records, side._replace(loop=AS_TIMED.get(side.loop, (side.loop,))[0]), remainder)


def quotient(over: Sequence[Record], under: Sequence[Record]) -> Interval | None:
    """The product of seconds per epoch of `over` through that of `under`, from pairs of one round; None without any."""
    return pairs.quotient([pairs.epochs(r) for r in over], [pairs.epochs(r) for r in under])


def gap_intervals(
    records: Sequence[Record], gap: Gap, remainder: str
) -> tuple[Interval | None, Interval | None, Interval | None]:
    """The gap under the article's protocol, the controlled gap, and the first over the second: protocol alone."""
    timed = as_timed(records, gap.slower), as_timed(records, gap.faster)
    same = controlled(records, gap.slower, remainder), controlled(records, gap.faster, remainder)
    theirs = quotient(timed[:1], timed[1:]) if timed[0] and timed[1] else None  # type: ignore[arg-type]
    ours = quotient(same[:1], same[1:]) if same[0] and same[1] else None  # type: ignore[arg-type]
    if not (theirs and ours):
        return theirs, ours, None
    # a record that stands on both sides falls out exactly
    over, under = [timed[0], same[1]], [timed[1], same[0]]
    for record in list(over):
        if any(record is other for other in under):
            over = [r for r in over if r is not record]
            under = [r for r in under if r is not record]
    return theirs, ours, quotient(over, under) if over else None  # type: ignore[arg-type]


def gaps_table(records: Sequence[Record], remainder: str, caption: str) -> Html:
    """Each gap as published, under the article's protocol here, controlled, and what the protocol alone makes."""
    rows = []
    for gap in GAPS:
        theirs, ours, protocol = gap_intervals(records, gap, remainder)
        sizes = list(dict.fromkeys((gap.slower.batch_size, gap.faster.batch_size)))
        missing = "" if theirs and ours else "not measured here"
        if theirs and ours and protocol is None:
            missing = "both sides are the same work: the protocol makes nothing"
        rows.append(
            {
                "gap": gap.what,
                "batch size": " / ".join(f"{size:,}" for size in sizes),
                "published": tables.number(gap.published) if gap.published else "lost",
                "article's protocol here": tables.interval(theirs) if theirs else tables.NOT_MEASURED,
                "controlled here": tables.interval(ours) if ours else tables.NOT_MEASURED,
                "protocol alone": tables.interval(protocol) if protocol else tables.NOT_MEASURED,
                "note": "; ".join(note for note in (gap.note, missing) if note),
            }
        )
    title = "Times as long (ratios of pairs); protocol alone = article's protocol over controlled. "
    return Html(tables.as_html(pd.DataFrame(rows), title + caption))


def published_table(records: Sequence[Record], caption: str) -> Html:
    """Every figure of the article beside the same loop and protocol on this host."""
    rows = []
    for figure in PUBLISHED:
        record = as_timed(records, Side(figure.loop, figure.device, figure.batch_size)) if figure.batch_size else None
        rows.append(
            {
                "what": figure.what,
                "batch size": f"{figure.batch_size:,}" if figure.batch_size else "lost",
                "published, s": tables.number(figure.epoch_s),
                "article's protocol here, s": tables.interval(over_turns(record.epochs()))
                if record
                else tables.NOT_MEASURED,
                "where in the article": figure.where,
            }
        )
    title = (
        "Seconds per epoch; published: single runs on a Quadro RTX 5000 and a Core i9-10885H, no spread given; "
        "those of the image-by-image loops divided by their five epochs. "
    )
    return Html(tables.as_html(pd.DataFrame(rows), title + caption))


def sentence(records: Sequence[Record], remainder: str) -> Markdown:
    """What the protocol alone is worth on this host, at the smallest batch size where it was timed."""
    sides = [
        Side(r.loop, r.device, r.trained.batch_size)
        for r in records
        if r.loop in AS_TIMED and r.op is None and r.status == "ok"
    ]
    for side in sorted(set(sides), key=lambda s: (s.batch_size, s.device)):
        timed, same = as_timed(records, side), controlled(records, side, remainder)
        if timed and same and (found := quotient([timed], [same])):
            text = (
                f"At batch size {side.batch_size:,} on the {side.device.upper()}, `fit()` as the article timed it "
                f"takes **{tables.interval(found)}** times as long as the same `fit()` without validation and metric "
                f"(median of {found.n} pairs, 95 % interval): "
            )
            said = {
                "slower": "that much of any gap to a loop that only trains is the protocol, not the library.",
                "faster": "here the protocol does not lengthen the epoch.",
                "no difference shown": "no difference is shown.",
            }
            return Markdown(text + said[stats.verdict(found)])
    return Markdown("The article's protocol was not timed beside the controlled one on this host.")
