"""What the page on the clocks claims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from overhead.harness import comparisons
from overhead.harness.experiments import MORE
from overhead.records.record import Record
from overhead.showing.claims import Claim, Finding, between, first_run, missing
from overhead.showing.claims import counted as counted_as

CHAPTER = "00-clocks"
NEAR = 0.03  # of the quiet ratio


def reading(records: Sequence[Record]) -> Finding:
    clock = next((r.timer for r in records if r.timer), None)
    if clock is None:
        return missing("no clock was kept")
    return counted_as(clock["pair_cost_ns"], clock["pair_cost_ns"] < 1_000, "ns for a pair of readings")


def turns(records: Sequence[Record]) -> Finding:
    quiet, together, _ = comparisons.beside_a_load(records)
    if quiet is None or not together:
        return missing("no load was set beside the arms")
    return between(together[0], quiet.median * (1 - NEAR), quiet.median * (1 + NEAR), f"times as long ({MORE} put in)")


def forgotten(records: Sequence[Record]) -> Finding:
    refused = [r for r in records if r.loop.endswith(":Unsynchronised")]
    if not refused:
        return missing("no device was pretended")
    return counted_as(len(refused), all(r.status == "failed" for r in refused), "contestant refused")


CLAIMS = [
    Claim("reading-costs-little", "A pair of readings of the clock costs less than a microsecond.", CHAPTER, reading),
    Claim(
        "turns-withstand-load",
        "Beside a load that comes and goes, arms that take turns keep the ratio they have without it, within 3 %.",
        CHAPTER,
        turns,
    ),
    Claim(
        "forgetting-is-caught",
        "A contestant that does not wait for its device is refused.",
        CHAPTER,
        forgotten,
        ("C3",),
    ),
    Claim(
        "cold-run-longer",
        "The first run of a compiled epoch is slower than later ones.",
        CHAPTER,
        partial(first_run, loop="jax-epoch", batch_size=32),
        ("C3",),
    ),
]
