"""What the page on batch sizes claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from overhead.chapters.batch_sweep import anomalies, quality_tables
from overhead.chapters.batch_sweep.quality import EPOCHS, TIMED, UPDATES
from overhead.loops import LOOPS
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import (
    Claim,
    Finding,
    above,
    alike,
    counted,
    first_at,
    first_run,
    missing,
    of_workload,
    scaled,
    slower,
    timed,
)  # fmt: skip

CHAPTER = "05-batch-sweep"


def rows(records: Sequence[Record]) -> list[Record]:
    """The records of loops and floors: neither with one thing switched nor of the time to a quality."""
    return [r for r in records if r.op is None and r.member is None]


def sizes(records: Sequence[Record], loop: str) -> list[int]:
    """Batch sizes at which a loop was timed on the CPU, smallest first."""
    return sorted({of_workload(r, "batch_size") for r in records if timed([r], loop)})


def than(slow: str, fast: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that one loop is slower than another at the smallest batch size of the first."""

    def check(records: Sequence[Record]) -> Finding:
        ours = timed(records, slow)
        return slower(ours, timed(records, fast, of_workload(ours, "batch_size")) if ours else None)

    return check


def larger_pays(loop: str, backwards: bool = False) -> Callable[[Sequence[Record]], Finding]:
    """The check that an image takes a loop longer at its smallest batch size than at its largest; or the other way."""

    def check(records: Sequence[Record]) -> Finding:
        found = sizes(records, loop)
        if len(found) < 2:
            return missing("one batch size was timed")
        few, many = timed(records, loop, found[0]), timed(records, loop, found[-1])
        return slower(many, few, per="image") if backwards else slower(few, many, per="image")

    return check


def device(records: Sequence[Record]) -> Finding:
    best = {
        kind: min(
            (r for loop in LOOPS if (r := timed(records, loop, 32, kind))),
            key=lambda r: getattr(tables.headline(r), "median", math.inf), default=None,
        )
        for kind in ("cpu", "gpu")
    }  # fmt: skip
    return missing("no GPU was timed") if best["gpu"] is None else slower(best["gpu"], best["cpu"])


def on_gpu(loop: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that a loop is slower on the GPU than on the CPU at 32 images."""

    def check(records: Sequence[Record]) -> Finding:
        ours = timed(records, loop, 32, "gpu")
        return missing("no GPU was timed") if ours is None else slower(ours, timed(records, loop, 32))

    return check


def same_accuracy(records: Sequence[Record]) -> Finding:
    return alike({r.loop: r.val_accuracy[-1] for loop in LOOPS if (r := timed(records, loop, 32)) and r.val_accuracy})


def spread(records: Sequence[Record]) -> Finding:
    found = [r for loop in LOOPS if (r := timed(records, loop, 32))]
    found.sort(key=lambda r: getattr(tables.headline(r), "median", math.inf))
    return missing("fewer than two loops were timed") if len(found) < 2 else slower(found[-1], found[0], 2.0)


def anomaly(records: Sequence[Record]) -> Finding:
    two, four = timed(records, "numpy", 2048), timed(records, "numpy", 4096)
    if two is None or four is None:
        return missing("2,048 and 4,096 were not both timed")
    return slower(four, two, per="image")


def preallocated(records: Sequence[Record]) -> Finding:
    ours = timed(records, "numpy-preallocated", 32)
    return slower(timed(records, "numpy", 32), ours)


def unexplained(records: Sequence[Record]) -> Finding:
    loops = rows(records)
    found = anomalies.keras_switches(loops, anomalies.of(records))
    if not found:
        return missing("no switch of Keras was tried")
    figure = "; ".join(f"{arm.switch}: {tables.interval(ratio)} times as long" for arm, ratio in found)
    explained = any(anomalies.explains(ratio) for _, ratio in found)
    return Finding("does not hold here" if explained else "holds", f"{anomalies.KERAS_FACTOR:.2f} wanted; {figure}")


def threads(records: Sequence[Record]) -> Finding:
    """NumPy with one thread over NumPy with all, at the smallest batch size."""
    loops = rows(records)
    for arm, record, plain in anomalies.pairs(loops, anomalies.of(records)):
        if arm.contestant.loop == "numpy" and arm.contestant.threads == 1:
            return slower(record, plain)
    return missing("one thread was not tried")


def fewer_updates(records: Sequence[Record]) -> Finding:
    """Accuracy lost from the smallest to the largest batch: after equal epochs, less that after equal updates."""
    lost = []
    for part in (EPOCHS, UPDATES):
        members = sorted(quality_tables.parts(records, part), key=lambda r: of_workload(r, "batch_size"))
        if len(members) < 2:
            return missing("equal epochs and equal updates were not both trained")
        lost.append(100 * ((members[0].val_accuracy or [0.0])[-1] - (members[-1].val_accuracy or [0.0])[-1]))
    words = f"points lost after equal epochs, {lost[1]:.2f} after equal updates (one seed)"
    return counted(lost[0], lost[0] > lost[1], words)


def first_batch(records: Sequence[Record]) -> Finding:
    times: dict[str, list[float]] = {}
    for record in quality_tables.parts(records, TIMED):
        if record.status == "ok":
            times.setdefault(f"{of_workload(record, 'batch_size')} on the {record.device}", []).append(
                quality_tables.reached_s(record)
            )
    if not times:
        return missing("no batch size was trained to the target")
    return first_at(times, min(times, key=lambda name: sorted(times[name])[len(times[name]) // 2]))


def per_image_floor(records: Sequence[Record]) -> Finding:
    """Whether a line that is flat can lie far from the floor: the article's per-image loop, ten times at least."""
    ours = timed(records, "numpy-per-image")
    found = tables.times_floor(ours, rows(records)) if ours else None
    return above(found, 10.0, "times the floor") if found else missing("the per-image loop has no floor")


def per_image_flat(records: Sequence[Record]) -> Finding:
    few, many = (timed(records, "numpy-per-image", size) for size in (32, 4096))
    found = tables.ratio(few, many) if few and many else None
    if found is None or few is None or many is None:
        return missing("32 and 4,096 were not both timed")
    found = scaled(found, of_workload(many, "images_seen") / of_workload(few, "images_seen"))
    inside = found.low > 0.5 and found.high < 2
    return Finding("holds" if inside else "does not hold here", f"{tables.interval(found)} times as long for an image")


CLAIMS = [
    Claim(
        "more-threads-pay",
        "The NumPy loop with one thread is slower than with all, at the smallest batch size.",
        CHAPTER, threads,
    ),
    Claim(
        "cpu-wins-small",
        "At 32 images the GPU's fastest loop is slower than the CPU's fastest.",
        CHAPTER, device, ("C1",),
    ),
    Claim(
        "keras-slower-on-gpu",
        "Keras as the article timed it is slower on the GPU than on the CPU at 32 images.",
        CHAPTER, on_gpu("keras-fit-validated"), ("S9", "C1"),
    ),
    Claim(
        "same-step-slower-on-gpu",
        "The same compiled step is slower on the GPU than on the CPU at 32 images.",
        CHAPTER, on_gpu("jax-step"), ("S7", "C1"),
    ),
    Claim(
        "validation-changes-the-figure",
        "fit() with validation and a metric is slower than without.",
        CHAPTER, than("keras-fit-validated", "keras-fit"), ("S10", "C3"),
    ),
    Claim(
        "first-epoch-longer",
        "The first epoch of a compiled loop is slower than its later ones.",
        CHAPTER, partial(first_run, loop="jax-epoch", batch_size=32), ("S11", "C3"),
    ),
    Claim(
        "equal-learning",
        "At 32 images all loops reach the same validation accuracy after their first epoch.",
        CHAPTER, same_accuracy, ("C4",),
    ),
    Claim(
        "parameters-do-not-decide",
        "With the same parameters, images and updates, the slowest loop takes more than twice the time of the fastest.",
        CHAPTER, spread, ("C5",),
    ),
    Claim(
        "larger-batch-pays-keras",
        "An image is slower in Keras's fit at the smallest batch size than at the largest.",
        CHAPTER, larger_pays("keras-fit"), ("S10", "S11", "C6"),
    ),
    Claim(
        "larger-batch-pays-tuned",
        "An image is slower in `jax-epoch-tuned` at the smallest batch size than at the largest.",
        CHAPTER, larger_pays("jax-epoch-tuned"), ("S10",),
    ),
    Claim(
        "batching-pays-numpy",
        "NumPy's loop for each image is slower than its loop over batches.",
        CHAPTER, than("numpy-per-image", "numpy"), ("S2", "S11"),
    ),
    Claim(
        "keras-slower-than-numpy",
        "Keras's fit is slower than the NumPy loop at 32 images, training alone.",
        CHAPTER, than("keras-fit", "numpy"), ("S11",),
    ),
    Claim(
        "numpy-slower-than-compiled-epoch",
        "The NumPy loop is slower than the compiled epoch at 32 images.",
        CHAPTER, than("numpy", "jax-epoch"), ("S11",),
    ),
    Claim(
        "preallocation-pays",
        "The NumPy loop is slower than the one with `out=` everywhere at 32 images.",
        CHAPTER, preallocated,
    ),
    Claim("numpy-slower-at-4096", "An image is slower in NumPy at 4,096 than at 2,048.", CHAPTER, anomaly, ("S10",)),
    Claim(
        "keras-two-figures-unexplained",
        "No switch that was tried makes Keras on the CPU differ by the article's 11.31 s against 4.4 s: "
        "unexplained here.",
        CHAPTER, unexplained, ("S10",),
    ),
    Claim(
        "flat-is-not-fast",
        "A loop whose time does not fall with the batch can take more than ten times its floor: `numpy-per-image`.",
        CHAPTER, per_image_floor, ("S2",),
    ),
    Claim(
        "per-image-is-flat",
        "`numpy-per-image` takes as long for an image at 32 as at 4,096, within a factor of two.",
        CHAPTER, per_image_flat, ("S2",),
    ),
    Claim(
        "fewer-updates-cost-accuracy",
        "The largest batch loses more accuracy after equal epochs than after equal updates.",
        CHAPTER, fewer_updates, ("S12",),
    ),
    Claim(
        "one-batch-size-is-first",
        "One batch size is first at the target accuracy.",
        CHAPTER, first_batch, ("S12", "C4"),
    ),
]  # fmt: skip
