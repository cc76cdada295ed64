"""The article's product crossed: libraries and devices against ways of waiting; kernels; images alone or together."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from overhead.measure import probing
from overhead.records import pairs, stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables

WAITS = {"each": "a wait after each product", "end": "one wait at the end"}
# OpenBLAS's names for its kernels on x86, oldest first; each is tried in a process of its own.
KERNELS = {
    "Prescott": "SSE3",
    "Nehalem": "SSE4.2",
    "Sandybridge": "AVX",
    "Haswell": "AVX2 and FMA",
    "SkylakeX": "AVX-512",
}
LAYOUTS = {
    "product": "batch, right side as stored",
    "product-stored-transposed": "batch, right side a view of its transpose",
    "product-per-image": "one image at a time",
}
DASH = tables.NOT_MEASURED


def crossed(records: Sequence[Record]) -> dict[str, Record]:
    """`library (device)` → the record of the product in it."""
    found = probing.select(records, "micro", "product")
    return {f"{r.loop} ({r.device})": r for r in found if not r.env}


def crossed_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row a library and device: microseconds either way, and what the waiting multiplies the time by."""
    rows = []
    for name, record in crossed(records).items():
        each, end = (probing.interval_us(record, clock) for clock in WAITS)
        rate = probing.facts(record)["flops"] / end.median / 1e3
        rows.append(
            {
                "library": name,
                "threads": record.threads,
                f"{WAITS['each']}, us": tables.interval(each),
                f"{WAITS['end']}, us": tables.interval(end),
                "each / end": tables.interval(ratio(record, "each", record, "end")),
                "GFLOP/s": tables.number(rate),
                "blocks": end.n,
            }
        )
    return pd.DataFrame(rows)


def crossed_figure(records: Sequence[Record]) -> figures.Figure:
    """A row a library and device, a marker a way of waiting."""
    found = crossed(records)
    values, spans = {}, {}
    for clock, words in WAITS.items():
        intervals = [probing.interval_us(record, clock) for record in found.values()]
        values[words] = [i.median for i in intervals]
        spans[words] = figures.error_bars(intervals)
    alt = "Microseconds of (32, 784) @ (784, 128): " + "; ".join(
        f"{name} with {words} {tables.number(value)}"
        for words, of_words in values.items()
        for name, value in zip(found, of_words, strict=True)
    )
    return figures.dots(list(found), values, "microseconds per product (median, 95 % interval)", alt, spans)


def crossed_sentence(records: Sequence[Record]) -> str:
    """What turned the article's sign on this host: the waiting, the CPU's library, or both."""
    found = crossed(records)
    gpu, ours, theirs = (found.get(name) for name in ("tf (gpu)", "numpy (cpu)", "tf (cpu)"))
    if ours is None:
        return "NumPy could not be timed on this host, so nothing can be crossed."
    if gpu is None or theirs is None:
        lines = ["Without a GPU that TensorFlow sees, only the CPU's half of the comparison can be shown here."]
        for name, record in found.items():
            if record is not ours:
                lines.append(
                    f"{name} takes {tables.interval(ratio(record, 'each', ours, 'each'))} times NumPy's time with a "
                    f"wait after each product, {tables.interval(ratio(record, 'end', ours, 'end'))} times with one at "
                    "the end."
                )
        lines.append("Which library stands for the CPU is therefore part of any such result.")
        return " ".join(lines)
    cells = {
        (arm, clock): ratio(gpu, clock, record, clock)
        for arm, record in (("NumPy", ours), ("TensorFlow on the CPU", theirs))
        for clock in WAITS
    }
    said = "; ".join(
        f"{tables.interval(i)} times that of {arm} with {WAITS[clock]}" for (arm, clock), i in cells.items()
    )
    return f"TensorFlow's product on the GPU takes {said}. {turned({k: stats.verdict(i) for k, i in cells.items()})}"


def turned(verdicts: dict[tuple[str, str], stats.Verdict]) -> str:
    """What the four verdicts (CPU arm, waiting) say of the change from the article's first to its second figure."""
    first, last = verdicts["NumPy", "each"], verdicts["TensorFlow on the CPU", "end"]
    if first == last:
        return f"Both of the article's set-ups give the same answer here ({first}), so nothing turned the sign."
    by_method = verdicts["NumPy", "end"] == last
    by_arm = verdicts["TensorFlow on the CPU", "each"] == last
    if by_method and by_arm:
        return "Either change alone turns the answer: the waiting, or the library on the CPU."
    if by_method:
        return "The waiting turns the answer; the library on the CPU alone does not."
    if by_arm:
        return "The library on the CPU turns the answer; the waiting alone does not."
    return "Neither change alone turns the answer; the two together do."


def ratio(a: Record, clock_a: str, b: Record, clock_b: str) -> Interval:
    """Time of a over b, from pairs of the same round; nan where they share none."""
    found = pairs.ratio(probing.rounds_us(a, clock_a), probing.rounds_us(b, clock_b))
    return found or Interval(math.nan, math.nan, math.nan, 0)


def kernels(records: Sequence[Record]) -> list[tuple[str, Record]]:
    """(kernel asked for, the record of the product with it), oldest instructions first, failures included."""
    found = {r.env["OPENBLAS_CORETYPE"]: r for r in reversed(records) if _forced(r)}
    return [(name, found[name]) for name in KERNELS if name in found]


def _forced(record: Record) -> bool:
    wanted = record.status != "ok" or (probing.kind(record), record.op) == ("micro", "product")
    return "OPENBLAS_CORETYPE" in record.env and wanted


def kernels_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row a kernel: what OpenBLAS really used, microseconds, GFLOP/s, times the newest kernel's time."""
    found = kernels(records)
    timed = [record for _, record in found if record.status == "ok"]
    rows = []
    for name, record in found:
        row = {"kernels": name, "instructions": KERNELS[name]}
        if record.status != "ok":
            rows.append(row | dict.fromkeys(("used", "us", "GFLOP/s", "times the newest", "blocks"), DASH))
            rows[-1]["used"] = f"{record.status}: {record.reason}"
            continue
        us = probing.interval_us(record, "each")
        rows.append(
            row
            | {
                "used": str(record.kernels),
                "us": tables.interval(us),
                "GFLOP/s": tables.number(probing.facts(record)["flops"] / us.median / 1e3),
                "times the newest": tables.interval(ratio(record, "each", timed[-1], "each")),
                "blocks": us.n,
            }
        )
    return pd.DataFrame(rows)


def kernels_sentence(records: Sequence[Record]) -> str:
    """What the wider instructions are worth on this host."""
    timed = [(name, r) for name, r in kernels(records) if r.status == "ok"]
    if len(timed) < 2:
        return "OpenBLAS could not be held to older kernels on this host, so what SIMD is worth was not measured."
    (old, first), (new, last) = timed[0], timed[-1]
    found = ratio(first, "each", last, "each")
    return (
        f"On one thread the product takes {tables.interval(found)} times as long with OpenBLAS held to "
        f"{_used(old, first)} as held to {_used(new, last)}."
    )


def _used(asked: str, record: Record) -> str:
    """The kernel that was asked for with its instructions; the one that OpenBLAS used where it is another."""
    if record.kernels in (None, asked):
        return f"its {asked} kernels ({KERNELS[asked]})"
    return f"{asked}, for which this build used its {record.kernels} kernels"


def layouts_table(records: Sequence[Record]) -> pd.DataFrame:
    """A row a form of the same arithmetic in NumPy: bytes touched, FLOPs a byte, microseconds, times the first row."""
    found = {r.op: r for r in probing.select(records, "micro", loop="numpy") if not r.env}
    rows = []
    for op, words in LAYOUTS.items():
        if op in found:
            facts, us = probing.facts(found[op]), probing.interval_us(found[op])
            rows.append(
                {
                    "how": words,
                    "operands": unbroken(facts["does"].partition(", the right")[0]),
                    "bytes asked for": f"{facts['bytes']:,}",
                    "FLOP per byte": tables.number(facts["flops"] / facts["bytes"]),
                    "us": tables.interval(us),
                    "times the first row": tables.interval(ratio(found[op], "end", found["product"], "end")),
                    "blocks": us.n,
                }
            )
    return pd.DataFrame(rows)


def unbroken(text: str) -> str:
    """`text` that a table does not break: a shape over five lines cannot be read."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def layouts_sentence(records: Sequence[Record]) -> str:
    """What taking the images together saves, in bytes and in time."""
    found = {r.op: r for r in probing.select(records, "micro", loop="numpy") if not r.env}
    if not {"product", "product-per-image"} <= set(found):
        return "NumPy could not be timed on this host."
    alone, together = found["product-per-image"], found["product"]
    asked = probing.facts(alone)["bytes"] / probing.facts(together)["bytes"]
    return (
        f"One image at a time asks for the weights once an image: {tables.number(asked)} times the bytes of the batch "
        f"for the same FLOPs, and {tables.interval(ratio(alone, 'end', together, 'end'))} times its time on this host."
    )
