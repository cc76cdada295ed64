"""What the page on profiles claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overhead.records.record import Record
from overhead.showing.claims import Claim, Finding, counted, missing

CHAPTER = "04-profile"


def profile_of(records: Sequence[Record]) -> dict[str, Any] | None:
    """The summary of this host's own trace."""
    return next((r.profile for r in records if r.status == "ok" and r.profile), None)


def overlap(records: Sequence[Record]) -> Finding:
    found = profile_of(records)
    if not found or not found["queue"] or not found["span_ns"]:
        return missing("no trace has queue times")
    times = found["queue"]["total_ns"] / found["span_ns"]
    return counted(times, times > 1, "times the whole span is what the queue times add up to")


def launches(records: Sequence[Record]) -> Finding:
    found = profile_of(records)
    if not found or not found.get("launches"):
        return missing("no GPU was profiled with ranges around training and validation")
    return missing("a trace without ranges cannot tell training from validation")


CLAIMS = [
    Claim(
        "queue-times-overlap",
        "Queue times add up to more than the time in which they were taken.",
        CHAPTER,
        overlap,
        ("S5", "S8"),
    ),
    Claim(
        "launches-by-range",
        "Of the graph launches, 1,500 fall into training and 375 into validation.",
        CHAPTER,
        launches,
        ("S5",),
    ),
]
