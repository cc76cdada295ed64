"""What each learning rate learns: its curve's end, which diverged, and what own first parameters change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from overhead.chapters import pages
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.tables import NOT_MEASURED


def table(records: Sequence[Record]) -> str:
    """A row a rate: from the same first parameters, and from its own."""
    if not records:
        return tables.as_html(pd.DataFrame(), of="the curves")
    rows = []
    for rate in dict.fromkeys(member(record)["rate"] for record in records):
        row = {"rate": f"{rate:g}"}
        for own, of in ((False, "same first parameters"), (True, "own first parameters")):
            found = next(
                (r for r in records if member(r)["rate"] == rate and member(r)["own_weights"] is own), None
            )  # fmt: skip
            row[f"loss, {of}"] = _last(found, "loss", 1, "")
            row[f"validation accuracy, {of}"] = _last(found, "val_accuracy", 100, " %")
        rows.append(row)
    first = records[0]
    workload = first.trained
    caption = (
        "Mean training loss (nats) of the last epoch and validation accuracy after it; "
        f"epochs {workload.epochs}, batch size {workload.batch_size}, one run each; "
        f"engine {first.loop}, {first.device}; "
        + ", ".join(f"{package} {version}" for package, version in sorted(first.versions.items()))
    )
    return tables.as_html(pd.DataFrame(rows), caption)


def member(record: Record) -> dict[str, Any]:
    """What a record says of its model."""
    return record.member or {}


def _last(record: Record | None, name: str, scale: float, unit: str) -> str:
    if record is None:
        return NOT_MEASURED
    if record.status != "ok":
        at = member(record)["diverged_at"]
        return f"diverged at step {at}" if at is not None else f"{record.status}: {record.reason}"
    value = member(record)[name][-1]
    return NOT_MEASURED if value is None else f"{scale * value:.3g}{unit}" if not unit else f"{scale * value:.2f}{unit}"


def sentence(records: Sequence[Record]) -> str:
    """The best rate of those that did not diverge, what diverged, and what own first parameters change."""
    same = [r for r in records if not member(r)["own_weights"]]
    finite = [r for r in same if r.status == "ok" and r.val_accuracy]
    if not any(r.status in ("ok", "diverged") for r in same):
        return pages.missing("the curves", records).text
    if not finite:
        return "Every rate diverged, so none is best."
    best = max(finite, key=lambda r: r.val_accuracy[-1])  # type: ignore[index]
    text = (
        f"Of {len(same)} rates, **{member(best)['rate']:g}** reaches the highest validation accuracy, "
        f"{100 * best.val_accuracy[-1]:.2f} %."  # type: ignore[index]
    )
    bad = [r for r in same if r.status == "diverged"]
    if bad:
        each = ", ".join(f"{member(r)['rate']:g} (at step {member(r)['diverged_at']:,})" for r in bad)
        text += f" Diverged: {each}; a diverged rate has no loss or accuracy from that epoch on and cannot be best."
    both = [
        abs(r.val_accuracy[-1] - o.val_accuracy[-1])
        for r in finite for o in records
        if member(o)["own_weights"] and member(o)["rate"] == member(r)["rate"] and o.status == "ok" and o.val_accuracy
        and r.val_accuracy
    ]  # fmt: skip
    if both:
        text += (
            f" First parameters of its own move the accuracy of a rate by up to {100 * max(both):.2f} points here: "
            "a difference of that size between two rates may be the seed's and not the rate's."
        )
    return text


def shapes_table(records: Sequence[Record]) -> str:
    """A row an architecture."""
    rows = []
    for record in records:
        rows.append(
            {
                "layers": "-".join(str(size) for size in record.trained.layers),
                "rate": f"{member(record)['rate']:g}",
                "loss": _last(record, "loss", 1, ""),
                "validation accuracy": _last(record, "val_accuracy", 100, " %"),
                "threads": str(record.threads),
            }
        )
    epochs = records[0].trained.epochs if records else None
    caption = f"One process an architecture (jax-pool), epochs: {epochs}, one run each"
    return tables.as_html(pd.DataFrame(rows), caption, "other architectures")
