"""What the page on the clocks claims."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from overhead.harness import comparisons
from overhead.harness.estimator_runs import of_study
from overhead.harness.experiments import MORE
from overhead.records import estimators
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.claims import FAILS, HOLDS, Claim, Finding, above, between, first_run, missing
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


def repeats_best(records: Sequence[Record]) -> Finding:
    ratios = estimators.against_headline(of_study(records))
    if not ratios:
        return missing("no independent runs were taken (estimator_runs)")
    name, nearest = min(ratios.items(), key=lambda item: item[1].low)
    return above(nearest, what=f"times the headline's deviation: {name}, the nearest, {nearest.n} runs")


def not_beaten(records: Sequence[Record]) -> Finding:
    ratios = estimators.against_headline(of_study(records))
    if not ratios:
        return missing("no independent runs were taken (estimator_runs)")
    name, best = min(ratios.items(), key=lambda item: item[1].high)
    return Finding(
        FAILS if best.high < 1 else HOLDS,
        f"{tables.interval(best)} times the headline's deviation: {name}, the best other, {best.n} runs",
    )


def median_worse(records: Sequence[Record]) -> Finding:
    ratio = estimators.against_headline(of_study(records)).get("median")
    if ratio is None:
        return missing("no independent runs were taken (estimator_runs)")
    return above(ratio, what=f"times the headline's deviation, {ratio.n} runs")


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
        "headline-repeats-best",
        "Of five estimates from the same turns, the headline's (the lower decile) lies closest together over "
        "independent runs, quiet ones and ones beside a load.",
        CHAPTER,
        repeats_best,
        ("C3",),
    ),
    Claim(
        "no-estimate-beats-headline",
        "None of the four other estimates is shown to lie closer together than the headline's.",
        CHAPTER,
        not_beaten,
    ),
    Claim(
        "median-repeats-worse",
        "Over quiet runs and runs beside a load, the median's estimates deviate more than the headline's.",
        CHAPTER,
        median_worse,
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
