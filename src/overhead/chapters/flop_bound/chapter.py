"""Chapter 2: how fast the step could be at most, against published peaks and against what this host can do."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import BeforeValidator, Field

from overhead.chapters import micro, pages
from overhead.chapters.base import Chapter, results_folder, whole
from overhead.loops.base import STEP_OPS
from overhead.machine import host
from overhead.measure import calibration, probing
from overhead.measure.contestant import Contestant
from overhead.measure.probes import FIXED
from overhead.measure.probing import Ask
from overhead.measure.rounds import time_cases, time_ops
from overhead.measure.session import Session
from overhead.problem import bounds, peaks
from overhead.problem.workload import TRAINING_IMAGES, LearningRate, Workload
from overhead.records import stats
from overhead.records.record import Record, without_clock
from overhead.showing import figures, roofline, tables

ARTICLE_PEAK_FLOPS_PER_S = 3072 * 1.8e9 * 2  # the article's own assumption: cores, clock, a multiply-add
OPS_TURNS = 6


def _model(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a published device, got {value!r}")
    return peaks.device(value).name


class FlopBound(Chapter, frozen=True, strict=True, extra="forbid"):
    """FLOPs, bytes and bounds of the step, and how near this host comes to them."""

    name: ClassVar[str] = "02-flop-lower-bound"

    learning_rate: LearningRate = 0.1
    batch_size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=TRAINING_IMAGES)] = 32
    device_model: Annotated[str, BeforeValidator(_model)] = "Quadro RTX 5000"

    @property
    def workload(self) -> Workload:
        return Workload(batch_size=self.batch_size, learning_rate=self.learning_rate)

    def asks(self) -> list[Ask]:
        """The article's product in every library and with every kernel; in the calibration's processes where it can."""
        cores = host.cores_allowed()
        found = [Ask(Contestant("numpy", "cpu", cores), ("micro",))]
        for device in self.usable_devices():
            loops = ["jax-step", "keras-fit", *(["cupy"] if device == "gpu" else [])]
            found += [Ask(Contestant(loop, device, cores), ("micro",)) for loop in loops]
        if platform.machine() in ("x86_64", "AMD64"):
            for kernel in micro.KERNELS:
                forced = Contestant("numpy", "cpu", 1, (("OPENBLAS_CORETYPE", kernel),))
                found.append(Ask(forced, ("micro", "rate"), ("product", "sgemm-large")))
        return found

    def take(self, session: Session) -> list[Record]:
        """The host's calibration, the product in every form, and the thirteen ops for the roofline."""
        found = calibration.for_chapter(self.host, self.usable_devices(), session, results_folder(), self.asks())
        turns = session._replace(
            preset=session.preset._replace(target=0.0, processes=1, rounds=(OPS_TURNS, OPS_TURNS)), learns=False
        )
        gpu = [Contestant("cupy", "gpu")] if "gpu" in self.usable_devices() else []
        cases = time_cases([Contestant("numpy"), *gpu], [self.workload], turns, partial(time_ops, steps=20))
        return found + [record for case in cases for record in case.op_records(session.provenance)]

    def ceilings(self, records: Sequence[Record]) -> list[dict[str, Any]]:
        """What this host was seen to reach, a row a device and number of threads."""
        return calibration.ceilings([r for r in records if calibration.is_part(r)])

    def ceiling(self, records: Sequence[Record], device: str) -> dict[str, Any] | None:
        """The ceilings of a device with the most threads; None where they were not measured."""
        try:
            return calibration.ceiling(self.ceilings(records), device)
        except calibration.NoCalibration:
            return None

    def _here(self, ours: dict[str, Any], work: bounds.Work | None = None) -> bounds.Bound:
        """The least time of an op, or of the step, by measured ceilings."""
        flops, moved = (work.flops, work.bytes) if work else (
            bounds.step_flops(self.workload), bounds.step_bytes(self.workload)
        )  # fmt: skip
        return bounds.bound(flops, moved, ours["flops_per_s"], ours["bandwidth_bytes_per_s"])

    # --- the bound -------------------------------------------------------------------------------------------

    def bound_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """The article's bound, and what it leaves out, in words."""
        first = bounds.gemms(Workload())[0]
        step, forward = bounds.step_flops(self.workload), bounds.forward_flops(self.workload)
        article = bounds.bound(first.flops, first.bytes, ARTICLE_PEAK_FLOPS_PER_S).bound_us
        assert article is not None
        model = peaks.device(self.device_model)
        on_model = bounds.bound(step, bounds.step_bytes(self.workload), model.flops_per_s, model.bandwidth_bytes_per_s)
        products, epoch = len(bounds.gemms(self.workload)), bounds.epoch_flops(self.workload)
        here = (
            "".join(
                f", and at least {tables.number(self._here(ours).bound_us or math.nan)} us on this host's "
                f"{device.upper()} by what it was seen to reach ({ours['flops_per_s'] / 1e9:,.0f} GFLOP/s, "
                f"{ours['bandwidth_bytes_per_s'] / 1e9:,.1f} GB/s)"
                for device in ("cpu", "gpu")
                if (ours := self.ceiling(records, device))
            )
            or "; what this host's CPU can reach was not measured here"
        )
        return pages.Markdown(
            f"The first product at batch size 32 takes {first.flops:,} FLOP; at the article's assumed peak of "
            f"{ARTICLE_PEAK_FLOPS_PER_S / 1e12:.1f} TFLOPS that is at least {tables.number(article, 2)} us. It is one "
            f"of {products} products: a step at batch size {self.batch_size} takes {step:,} FLOP ({forward:,} "
            f"forward), an epoch {epoch / 1e9:.2f} GFLOP. With bytes counted beside FLOPs a step takes at least "
            f"{tables.number(on_model.bound_us or math.nan)} us on a {model.name} by its data sheet{here}. A bound "
            "says neither how long a kernel runs nor how much of a device it uses."
        )

    def bounds_table(self, records: Sequence[Record]) -> pages.Html:
        """A row an op, then the step: FLOPs, bytes, intensity and the least time by data sheet and by measurement."""
        model = peaks.device(self.device_model)
        ours, gpu = self.ceiling(records, "cpu"), self.ceiling(records, "gpu")
        step = bounds.Work("the products", "step", bounds.step_flops(self.workload), bounds.step_bytes(self.workload))
        rows = []
        for work in [*bounds.ops(self.workload), step]:
            published = bounds.bound(work.flops, work.bytes, model.flops_per_s, model.bandwidth_bytes_per_s)
            here, there = (self._here(found, work) if found else None for found in (ours, gpu))
            rows.append(
                {
                    "op": work.name,
                    "group": work.group,
                    "FLOP": f"{work.flops:,}",
                    "bytes": f"{work.bytes:,}",
                    "FLOP per byte": tables.number(work.intensity_flops_per_byte),
                    f"{model.name}, us": tables.number(published.bound_us or math.nan),
                    "set by": _limit(published),
                    "this CPU, us": tables.number((here.bound_us if here else None) or math.nan),
                    "set by ": _limit(here) if here else tables.NOT_MEASURED,
                    **({"this GPU, us": tables.number(there.bound_us or math.nan)} if there else {}),
                }
            )
        caption = (
            f"Batch size {self.batch_size}, float32: FLOPs and bytes are counted, not measured; least time = "
            f"max(FLOP / peak, bytes / bandwidth). Source: {model.source}; "
            + (f"this CPU by its ceilings, {ours['threads']} threads" if ours else "this CPU was not measured here")
        )
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption))

    def peaks_table(self) -> pages.Html:
        """A row a published device: its limits, and the least time of a step on it."""
        rows, flops, bytes_ = [], bounds.step_flops(self.workload), bounds.step_bytes(self.workload)
        for peak in peaks.PEAKS:
            found = bounds.bound(flops, bytes_, peak.flops_per_s, peak.bandwidth_bytes_per_s)
            rows.append(
                {
                    "device": peak.name,
                    "cores": f"{peak.cores:,}",
                    "boost, MHz": f"{peak.clock_hz / 1e6:,.0f}",
                    "dense FP32, TFLOPS": tables.number(peak.flops_per_s / 1e12),
                    "memory, GB/s": tables.number(peak.bandwidth_bytes_per_s / 1e9),
                    "a step at least, us": tables.number(found.bound_us or math.nan),
                    "source": peak.source,
                }
            )
        caption = f"Published figures, float32 without tensor cores; batch size {self.batch_size}"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption))

    def ceilings_table(self, records: Sequence[Record]) -> pages.Html:
        """The rates that this host reached, every library, large and step-shaped."""
        rows = []
        for record in records:
            if record.status != "ok" or probing.kind(record) not in ("rate", "product") or record.env:
                continue
            facts, us = probing.facts(record), probing.interval_us(record)
            streams = record.op in ("copy", "triad")
            amount, unit = (facts["bytes"], "GB/s") if streams else (facts["flops"], "GFLOP/s")
            rows.append(
                {
                    "library": f"{record.loop} ({record.device})", "threads": record.threads, "what": record.op,
                    "operands": micro.unbroken(facts["does"]), "us a call": tables.interval(us),
                    "rate": f"{tables.with_interval(*(amount / t / 1e3 for t in (us.median, us.high, us.low)))} {unit}",
                    "blocks": us.n,
                }
            )  # fmt: skip
        return self._shown(pd.DataFrame(rows), records, "rates that this host reaches")

    # --- the measured ops under the bound -----------------------------------------------------------------------

    def roofline_frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """`bounds.roofline` of every op that was timed, against its device's ceilings; with backend and op_group."""
        found = []
        for name, device in (("numpy", "cpu"), ("cupy", "gpu")):
            rows = [
                {"op": r.op, "time_us": stats.median_interval([[s * 1e6 for s in p] for p in without_clock(r)]).median}
                for r in records
                if r.loop == name and r.device == device and r.status == "ok" and r.op in STEP_OPS
                and probing.kind(r) is None
            ]  # fmt: skip
            launches = probing.select(records, FIXED, "smallest-op" if name == "numpy" else "launch", loop=name)
            if not rows or not launches:
                continue
            ceiling = self.ceiling(records, device)
            if ceiling is None:
                continue
            launch_s = probing.interval_us(launches[-1], "each").median * 1e-6
            peak, bandwidth = ceiling["flops_per_s"], ceiling["bandwidth_bytes_per_s"]
            frame = bounds.roofline(pd.DataFrame(rows), self.workload, peak, bandwidth, launch_s)
            found.append(
                frame.assign(
                    backend=f"{name} ({device})", group=[STEP_OPS[op] for op in frame["op"]], peak_flops_per_s=peak,
                    bandwidth_bytes_per_s=bandwidth, launch_floor_s=launch_s,
                )
            )  # fmt: skip
        return pd.concat(found, ignore_index=True) if found else pd.DataFrame()

    def roofline(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """The roofline with the launch floor as a third limit."""
        frame = self.roofline_frame(records)
        if frame.empty:
            return pages.Markdown("No op could be timed on this host, so there is nothing to draw.")
        row = frame.iloc[0]
        ceiling = (
            f"{row['peak_flops_per_s'] / 1e9:,.0f} GFLOP/s, {row['bandwidth_bytes_per_s'] / 1e9:,.1f} GB/s measured"
        )
        alt = f"Roofline at batch size {self.batch_size} ({ceiling}); achieved GFLOP/s: " + "; ".join(
            f"{r.backend} {r.op} {tables.number(r.achieved_flops_per_s / 1e9)}" for r in frame.itertuples()
        )
        return roofline.roofline(frame, ceiling, alt)

    def gap_table(self, records: Sequence[Record]) -> pages.Html:
        """A row an op: measured, bound, launch floor, and bound over measured or why that is none."""
        frame = self.roofline_frame(records)
        rows = [
            {
                "library": r.backend,
                "op": r.op,
                "measured, us": tables.number(r.time_us),
                "bound, us": tables.number(r.bound_us),
                "launch floor, us": tables.number(r.launch_floor_s * 1e6),
                "bound / measured": f"{r.share:.1%}" if math.isfinite(r.share) else r.verdict,
            }
            for r in frame.itertuples()
        ]
        return self._shown(pd.DataFrame(rows), records, "the ops beside their bounds")

    # --- the product, crossed -----------------------------------------------------------------------------------

    def crossed_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What turned the article's sign."""
        missing = [r for r in records if r.status != "ok" and not r.env]
        lines = [micro.crossed_sentence(records)]
        lines += [f"{pages.plain(r.loop)} ({r.device}) is missing: {pages.plain(r.reason)}." for r in missing]
        return pages.Markdown(" ".join(dict.fromkeys(lines)))

    def crossed_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Libraries and devices against two ways of waiting."""
        if not micro.crossed(records):
            return pages.missing("the article's product", records)
        return micro.crossed_figure(records)

    def crossed_table(self, records: Sequence[Record]) -> pages.Html:
        """The same, as numbers."""
        return self._shown(micro.crossed_table(records), records, "the article's product")

    def kernels_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What SIMD and FMA are worth."""
        return pages.Markdown(micro.kernels_sentence(records))

    def kernels_table(self, records: Sequence[Record]) -> pages.Html:
        """The product with OpenBLAS held to older kernels."""
        return self._shown(micro.kernels_table(records), records, "the product with older kernels")

    def layouts_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What taking the images together saves."""
        return pages.Markdown(micro.layouts_sentence(records))

    def layouts_table(self, records: Sequence[Record]) -> pages.Html:
        """One image at a time against a batch, and the layout of the weights."""
        return self._shown(micro.layouts_table(records), records, "the product in other forms")

    def _shown(self, frame: pd.DataFrame, records: Sequence[Record], of: str) -> pages.Html:
        return pages.Html(tables.as_html(frame, self._caption(records), of))

    def _caption(self, records: Sequence[Record]) -> str:
        return "Probes at batch size 32. " + pages.caption(records, self.settings)


def _limit(bound: bounds.Bound) -> str:
    return "arithmetic" if bound.flops_bound_us == bound.bound_us else "memory"
