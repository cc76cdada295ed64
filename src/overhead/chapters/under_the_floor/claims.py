"""What the page on arithmetic that need not be done claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overhead.chapters.under_the_floor import rungs, wording
from overhead.loops import FLOORS
from overhead.measure import probing
from overhead.records import pairs
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import Claim, Finding, above, below, counted, missing, scaled, slower, timed

CHAPTER = "09-under-the-floor"
KERAS_EPOCHS = 20  # of `sparse` in one of Keras
MODELS_SHARE = 0.6  # of as many dense floors


def _floor(part: Sequence[Record]) -> Record | None:
    sizes = [r.trained.batch_size for r in part if r.loop in FLOORS and r.status == "ok"]
    found = tables.floor_of(part, min(sizes), "cpu") if sizes else None
    return found[0] if found else None


def under(loop: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that the dense floor takes longer than a loop, at the smallest batch size."""

    def check(records: Sequence[Record]) -> Finding:
        here = rungs.part(records, None)
        return slower(_floor(here), timed(here, loop))

    return check


def twenty(records: Sequence[Record]) -> Finding:
    here = rungs.part(records, None)
    return slower(timed(here, "keras-fit"), timed(here, "sparse"), KERAS_EPOCHS)


def noise(records: Sequence[Record]) -> Finding:
    here = rungs.part(records, "noise")
    return slower(timed(here, "sparse"), _floor(here))


def five(records: Sequence[Record]) -> Finding:
    here = [r for r in rungs.part(records, "models") if r.beside == 5]
    ours = next((r for r in here if r.loop == "sparse-many" and r.status == "ok"), None)
    found = tables.times_floor(ours, here) if ours else None
    return below(scaled(found, 1 / 5) if found else None, MODELS_SHARE, "times five dense floors")


def one_keras_epoch(records: Sequence[Record]) -> Finding:
    here = [r for r in rungs.part(records, "models") if r.beside == 41 and r.status == "ok"]
    found = {r.loop: r for r in here}
    if "sparse-many" not in found or "keras-fit" not in found:
        return missing("one of the two was not timed")
    return slower(found["keras-fit"], found["sparse-many"])


def first(records: Sequence[Record]) -> Finding:
    walls = {r.loop: r.cost["wall_s"] for r in rungs.part(records, "race") if r.cost}
    if len(walls) < 2:
        return missing("one of the two could not run")
    last, soonest = max(walls["sparse"]), min(walls["keras"])
    return counted(last, last < soonest, f"s at most to 97 %, and at least {tables.number(soonest)} s for the import")


def zeros(records: Sequence[Record]) -> Finding:
    found = rungs.counted(records)
    if found is None:
        return missing("the pixels were not counted")
    share = 100 - 100 * sum(found["by_pixel"]) / found["images"] / len(found["by_pixel"])
    return counted(share, share > 80, "% of the pixels are zero")


def grouped(slow: str, fast: str) -> Callable[[Sequence[Record]], Finding]:
    """The check that one grouping is slower than another on the words of the text, in the largest batch."""

    def check(records: Sequence[Record]) -> Finding:
        found = wording.timed(records)
        sizes = sorted({row.vocabulary for row in found})
        chosen = sizes[len(sizes) // 2]
        most = max(row.pairs for row in found if row.vocabulary == chosen)
        here = {row.grouping: row.record for row in found if (row.vocabulary, row.pairs) == (chosen, most)}
        return above(pairs.ratio(*(probing.rounds_us(here[name], "end") for name in (slow, fast))))

    return check


def devices(records: Sequence[Record]) -> Finding:
    """Whether the CPU wins with one grouping and the GPU with another, in one case."""
    found = wording.timed(records)
    if not any(row.device == "gpu" for row in found):
        return missing("no GPU was timed")
    for case in wording.cases(found):
        rows = [row for row in wording.of_case(found, *case) if row.grouping.startswith("jax")]
        faster = {}
        for name in {row.grouping for row in rows}:
            of_name = {row.device: row.us for row in rows if row.grouping == name}
            if len(of_name) == 2:
                faster[name] = of_name["cpu"].high < of_name["gpu"].low, of_name["gpu"].high < of_name["cpu"].low
        if any(cpu for cpu, _ in faster.values()) and any(gpu for _, gpu in faster.values()):
            return counted(case[0], True, f"words with {case[1]} pairs: one grouping is faster on each")
    return counted(len(wording.cases(found)), False, "cases, and one device is faster in each with every grouping")


CLAIMS = [
    Claim("most-pixels-are-zero", "More than four fifths of the pixels are zero.", CHAPTER, zeros),
    Claim(
        "sparse-under-the-floor", "The dense step's products alone are slower than all of `sparse`.", CHAPTER,
        under("sparse"), ("C2",),
    ),
    Claim(
        "sorted-under-the-floor", "The dense step's products alone are slower than all of `sorted`.", CHAPTER,
        under("sorted"),
    ),
    Claim(
        "twenty-sparse-epochs", "An epoch of Keras's fit is slower than twenty epochs of `sparse`.", CHAPTER, twenty
    ),
    Claim(
        "noise-costs-sparse", "On images without a zero `sparse` is slower than the dense step's products.", CHAPTER,
        noise,
    ),
    Claim(
        "five-sparse-models", "Five models with one index take less than 0.6 times five dense floors.", CHAPTER, five,
        ("S13",),
    ),
    Claim(
        "41-models-in-a-keras-epoch", "An epoch of Keras's fit is slower than an epoch of 41 models with one index.",
        CHAPTER, one_keras_epoch,
    ),
    Claim(
        "trained-before-keras-is-imported", "Training to 97 % takes less time, from the command on, than to import "
        "Keras.", CHAPTER, first,
    ),
    Claim(
        "rows-one-by-one-cost", "In NumPy a loop over rows is slower than `np.subtract.at`.", CHAPTER,
        grouped("numpy one by one", "numpy add.at"), ("S15",),
    ),
    Claim(
        "sorted-sums-pay", "In NumPy `np.subtract.at` is slower than to sort the rows and add up their changes.",
        CHAPTER, grouped("numpy add.at", "numpy sorted sums"), ("S15",),
    ),
    Claim(
        "grouping-decides-rows",
        "Where an update touches few rows, the way look-ups and updates are grouped changes which device is faster.",
        CHAPTER, devices, ("S15",),
    ),
]  # fmt: skip
