"""What the page on predictions claims."""

from __future__ import annotations

from collections.abc import Sequence

from overhead.chapters.crossover.chapter import Crossover
from overhead.chapters.crossover.kept import constants_of, report_of
from overhead.model import atlas, check
from overhead.records.record import Record
from overhead.showing.claims import Claim, Finding, counted, missing

CHAPTER = "08-crossover"


def _report(records: Sequence[Record]) -> dict[str, float] | None:
    found = Crossover().held_out(records)
    return check.report(found) if found else None


def typical(records: Sequence[Record]) -> Finding:
    said = _report(records)
    if said is None:
        return missing("no hold-out was measured")
    return counted(100 * said["median_error"], said["median_error"] <= check.MEDIAN, "% in the median")


def covered(records: Sequence[Record]) -> Finding:
    said = _report(records)
    if said is None:
        return missing("no hold-out was measured")
    held = check.COVERAGE <= said["coverage"] <= check.COVERAGE + 0.10
    return counted(100 * said["coverage"], held, "% of the measured epochs")


def formula(records: Sequence[Record]) -> Finding:
    constants = constants_of(records)
    if constants is None:
        return missing("no constants were kept")
    rivals = [library.rivals for by in constants.products.values() for library in by.values()]
    better = sum(r["formula"] == min(r.values()) for r in rivals)
    return counted(better, better == len(rivals), f"of {len(rivals)} libraries and numbers of threads")


def published(records: Sequence[Record]) -> Finding:
    found = report_of(records)
    if found is None:
        return missing("Keras was not calibrated")
    return counted(100 * found["within"], found["within"] >= atlas.ENOUGH, f"% of {found['predicted']} epochs")


CLAIMS = [
    Claim(
        "hold-outs-predicted",
        "Epochs that no constant was fitted on are predicted within 10 % in the median.",
        CHAPTER, typical, ("C5",),
    ),
    Claim(
        "intervals-hold", "The 90 % intervals hold between 85 and 95 % of the measured epochs.",
        CHAPTER, covered, ("C5",),
    ),
    Claim(
        "formula-beats-simpler",
        "The fitted formula predicts products better than nearest neighbour, a plain roofline and a line in FLOPs.",
        CHAPTER, formula, ("C2",),
    ),
    Claim(
        "published-predicted",
        "At least four in five published epochs lie within a factor of 1.5 of their modelled time.",
        CHAPTER, published, ("C1",),
    ),
]  # fmt: skip
