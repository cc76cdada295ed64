"""What the page on many learning rates claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overhead.chapters.learning_rates.curves import member
from overhead.records.record import Record
from overhead.showing.claims import Claim, Finding, counted, missing, slower

CHAPTER = "07-learning-rate-sweep"


def beside(slow: str, fast: str, models: int = 5) -> Callable[[Sequence[Record]], Finding]:
    """The check that one engine is slower than another for so many models."""

    def check(records: Sequence[Record]) -> Finding:
        found = {
            r.loop: r
            for r in records
            if r.part == "models" and r.beside == models and r.device == "cpu" and r.status == "ok"
        }
        return slower(found.get(slow), found.get(fast))

    return check


def seeds(records: Sequence[Record]) -> Finding:
    """How far first parameters of its own move a rate's accuracy, in points; rate and seed are then confounded."""
    last = {
        (member(r)["rate"], member(r)["own_weights"]): r.val_accuracy[-1]
        for r in records
        if r.part == "curves" and r.status == "ok" and r.val_accuracy
    }
    moved = [100 * abs(last[rate, False] - last[rate, True]) for rate, own in last if not own and (rate, True) in last]
    if not moved:
        return missing("no rate was trained with both")
    return counted(max(moved), max(moved) >= 0.1, "points at most")


def diverges(records: Sequence[Record]) -> Finding:
    same = [r for r in records if r.part == "curves" and not member(r)["own_weights"]]
    bad = [member(r)["rate"] for r in same if r.status == "diverged"]
    if not same:
        return missing("no curves were drawn")
    return Finding(
        "holds" if 10.0 in bad else "does not hold here",
        f"diverged: {', '.join(f'{rate:g}' for rate in bad) or 'none'}",
    )


def sent(records: Sequence[Record]) -> Finding:
    found = next((r.cost for r in records if r.loop == "pickle" and r.cost), None)
    if found is None:
        return missing("no images were passed")
    return counted(
        found["sent_bytes"] / 1e6, found["sent_bytes"] >= found["images_bytes"], "MB to each worker (one run)"
    )


CLAIMS = [
    Claim(
        "vmap-beats-one-by-one",
        "Five models one after another are slower than side by side in one `vmap` call.",
        CHAPTER,
        beside("sequential", "vmap"),
        ("S13",),
    ),
    Claim(
        "stacking-beats-vmap",
        "Five models in `vmap` are slower than stacked by hand.",
        CHAPTER,
        beside("vmap", "stacked"),
        ("S13",),
    ),
    Claim(
        "rate-and-seed-confounded",
        "First parameters of its own move the accuracy of a rate by a tenth of a point or more.",
        CHAPTER,
        seeds,
        ("S13",),
    ),
    Claim("rate-10-diverges", "The rate 10 diverges.", CHAPTER, diverges, ("S13",)),
    Claim(
        "pool-sends-all-images",
        "A pool that takes the images as an argument sends all of them to each worker.",
        CHAPTER,
        sent,
        ("S14",),
    ),
]
