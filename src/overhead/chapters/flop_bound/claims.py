"""What the page on bounds claims."""

from __future__ import annotations

from collections.abc import Sequence

from overhead.chapters import micro
from overhead.chapters.flop_bound.chapter import ARTICLE_PEAK_FLOPS_PER_S, FlopBound
from overhead.measure import probing
from overhead.problem import bounds
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.showing.claims import Claim, Finding, above, below, counted, missing

CHAPTER = "02-flop-lower-bound"


def batching(records: Sequence[Record]) -> Finding:
    found = {r.op: r for r in probing.select(records, "micro", loop="numpy") if not r.env}
    return above(micro.ratio(found["product-per-image"], "end", found["product"], "end"))


def longer(records: Sequence[Record]) -> Finding:
    frame = FlopBound().roofline_frame(records)
    rows = frame[(frame["backend"] == "numpy (cpu)") & frame["op"].isin(["z1", "dw1"])]
    times = (rows["time_us"] / rows["bound_us"]).tolist()
    if len(times) < 2:
        return missing("the products were not timed")
    return counted(
        min(times), min(times) > 1, f"to {max(times):.2f} times the bound of z1 and dw1, the largest products"
    )


def instructions(records: Sequence[Record]) -> Finding:
    timed = [r for _, r in micro.kernels(records) if r.status == "ok"]
    if len({r.kernels for r in timed}) < 2:
        return missing("OpenBLAS could not be held to other kernels")
    return above(micro.ratio(timed[0], "each", timed[-1], "each"))


def article_bound(records: Sequence[Record]) -> Finding:
    first = bounds.gemms(Workload())[0]
    us = 1e6 * first.flops / ARTICLE_PEAK_FLOPS_PER_S
    share = first.flops / bounds.step_flops(Workload())
    return counted(
        us, 0.575 <= us < 0.585 and share < 0.5, f"us, of a product with {100 * share:.1f} % of the step's FLOP"
    )


def without_waiting(records: Sequence[Record]) -> Finding:
    found = micro.crossed(records)
    if "tf (gpu)" not in found or "tf (cpu)" not in found:
        return missing("no GPU was timed")
    return below(micro.ratio(found["tf (gpu)"], "end", found["tf (cpu)"], "end"))


def library(records: Sequence[Record]) -> Finding:
    found = micro.crossed(records)
    return above(micro.ratio(found["tf (cpu)"], "end", found["numpy (cpu)"], "end"))


CLAIMS = [
    Claim(
        "batch-reuses-weights",
        "The layer for one image after another is slower than for the batch.",
        CHAPTER,
        batching,
        ("S2",),
    ),
    Claim(
        "one-of-five-products",
        "At the article's assumed peak the first product takes at least 0.58 us, and it has less than "
        "half of the FLOP.",
        CHAPTER,
        article_bound,
        ("S3",),
    ),
    Claim("bound-is-no-duration", "The largest products take longer than their bound.", CHAPTER, longer, ("S3", "C2")),
    Claim(
        "wide-instructions-help",
        "The product is slower with OpenBLAS's oldest kernels than with its newest.",
        CHAPTER,
        instructions,
        ("S1",),
    ),
    Claim(
        "gpu-product-faster-unwaited",
        "Without a wait after each call, TensorFlow's product is faster on the GPU than on the CPU.",
        CHAPTER,
        without_waiting,
        ("S6",),
    ),
    Claim(
        "cpu-arm-matters",
        "TensorFlow's product on the CPU is slower than NumPy's: which library stands for the CPU matters.",
        CHAPTER,
        library,
        ("S6",),
    ),
]
