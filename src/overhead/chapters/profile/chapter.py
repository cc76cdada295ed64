"""Chapter 4: what a profile says, from this host's own trace and from a recorded example of two H100s."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import Field

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.chapters.profile.figures import lanes
from overhead.machine import host
from overhead.machine.alone import measuring, scratch
from overhead.measure.contestant import Contestant, environment
from overhead.measure.session import Session
from overhead.problem.workload import TRAINING_IMAGES, Size, Workload
from overhead.profiles import ProfileError, ProfileSummary, example, frames, read_events, read_profile
from overhead.profiles.capture import capture
from overhead.records.record import Record
from overhead.showing import figures, tables

H100_SMS = 132  # NVIDIA H100 SXM5 datasheet
STEPS_DRAWN = 3
EXAMPLE_NS = 30_000_000  # of the example's timeline, from its middle
EXAMPLE = "recorded example: a PyTorch run on two H100s, not this host"
ROWS = 8


class Profile(Chapter, frozen=True, strict=True, extra="forbid"):
    """One epoch of a loop under the profiler that this host has, beside a recorded example of a GPU host."""

    name: ClassVar[str] = "04-profile"

    loop: str = "jax-step"
    images: Annotated[Size, Field(le=TRAINING_IMAGES)] = 6400

    def take(self, session: Session) -> list[Record]:
        """A record a device: the profile's summary, and the intervals of a few steps."""
        with measuring(session.force):
            return [
                record
                for device in self.usable_devices()
                for record in session.once(f"profile {device}", partial(self._profiled, device, session))
            ]

    def _profiled(self, device: str, session: Session) -> list[Record]:
        fields: dict[str, Any] = {"loop": self.loop, "device": device, "op": "profile", **session.provenance}
        workload = Workload(images=self.images)
        try:
            with scratch() as folder:
                made = capture(self.loop, device, out=folder, images=self.images)
                events = read_events(folder / (made.saved or ""))
                steps = frames.timeline(events, range_name="step", first=10, count=STEPS_DRAWN)
        except ProfileError as error:
            return [Record(status="failed", reason=str(error), **fields)]
        kept = made.summary.model_copy(update={"kernel_names": (), "parts": ()})
        fields |= {"tool": made.tool, "notes": list(made.notes)}
        fields |= {"profile": kept.model_dump(mode="json"), "timeline": steps.to_dict("list")}
        record = Record(
            status="ok",
            device_name=made.device_name,
            threads=made.threads,
            env=host.telling_environment({**os.environ, **environment(Contestant(self.loop, device).resolved())}),
            workload=workload,
            **fields,
        )
        return [record]

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What was profiled here and with what, or why nothing could be."""
        lines = []
        for record in records:
            if record.status != "ok":
                lines.append(f"- No profile on the {record.device.upper()}: {pages.plain(record.reason)}.")
                continue
            summary = summary_of(record)
            counted = f"{summary.executions:,} runs of compiled programs" if summary.executions else ""
            if summary.launches:
                counted = f"{summary.launches.total:,} launches, {summary.launches.graph:,} of them of graphs"
            wall = f"{(summary.span_ns or 0) / 1e6:,.0f} ms" if summary.span_ns else "an unknown span"
            steps = record.trained.steps
            lines.append(
                f"- On the {record.device.upper()}, *{pages.plain(record.tool)}* recorded an epoch of {steps:,} steps "
                f"of [{pages.plain(record.loop)}](loop-{record.loop}): {wall}, {counted or 'nothing that it counts'}. "
                + " ".join(f"Note: {pages.plain(note)}." for note in (*record.notes, *summary.warnings))
            )
        return pages.Markdown("\n".join(lines)) if lines else pages.missing("a profile", records)

    def timeline(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """A few steps of this host's own run, to scale."""
        found = [r for r in records if r.status == "ok"]
        if not found:
            return pages.Markdown("*There is no profile of this host to draw.*")
        record = found[-1]
        rows = pd.DataFrame(record.timeline)
        title = f"{STEPS_DRAWN} profiled steps of {record.loop}, {record.device}, batch size 32"
        return lanes(rows, f"microseconds ({title})", alt_of(rows, title))

    def own_times(self, records: Sequence[Record]) -> pages.Html:
        """Host calls and operations of this host's trace: count, median and total."""
        rows = []
        for record in records:
            if record.status != "ok":
                continue
            summary = summary_of(record)
            for what, names in (("host call", summary.api), ("operation", summary.ops)):
                for row in sorted(names, key=lambda r: -r.total_ns)[:ROWS]:
                    median = row.median_ns / 1000 if row.median_ns is not None else float("nan")
                    rows.append(
                        {
                            "device": record.device,
                            "kind": "waiting" if getattr(row, "waiting", False) else what,
                            "name": row.name[:60],
                            "count": f"{row.count:,}",
                            "median, us": tables.number(median),
                            "total, ms": tables.number(row.total_ns / 1e6),
                        }
                    )
        caption = (
            "One profiled epoch, the largest totals first. Calls overlap each other and the work: totals are no shares"
        )
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "a profile of this host"))

    def example_times(self) -> pages.Html:
        """Call, queue and kernel side by side in the recorded example."""
        frame = frames.three_times(read_profile(example())).head(ROWS)
        rows = [
            {
                "host call": row.api,
                "kernel": frames.label(row.kernel, 40),
                "count": f"{row.count:,}",
                "call, us": tables.number(row.api_us),
                "queue, us": tables.number(row.queue_us),
                "kernel, us": tables.number(row.kernel_us),
            }
            for row in frame.itertuples()
        ]
        return pages.Html(tables.as_html(pd.DataFrame(rows), f"Medians; the most frequent pairs ({EXAMPLE})"))

    def example_timeline(self) -> figures.Figure:
        """A window from the middle of the example, to scale."""
        middle = (read_profile(example()).span_ns or 0) // 2
        rows = frames.timeline(read_events(example()), start_ns=middle, length_ns=EXAMPLE_NS)
        return lanes(rows, f"microseconds ({EXAMPLE})", alt_of(rows, EXAMPLE))

    def mistakes(self) -> pages.Html:
        """Five ways to misread the example, each with the figure that misleads and the right one."""
        summary = read_profile(example())
        rows = [
            dict(zip(("what is read", "misleading", "right", "why"), row, strict=True)) for row in _mistakes(summary)
        ]
        return pages.Html(tables.as_html(pd.DataFrame(rows), f"All figures are computed from the file ({EXAMPLE})"))

    def launches_table(self) -> pages.Html:
        """Two runs that both make the article's count of graph launches."""
        split = Workload()
        whole = Workload(images=60_000)
        held = 12_000 // split.batch_size
        rows = [
            {
                "run": "48,000 images train, 12,000 validate",
                "training batches": f"{split.steps:,}",
                "validation batches": f"{held:,}",
                "graph launches, one a batch": f"{split.steps + held:,}",
            },
            {
                "run": "60,000 images train, no split",
                "training batches": f"{whole.steps:,}",
                "validation batches": "0",
                "graph launches, one a batch": f"{whole.steps:,}",
            },
        ]
        return pages.Html(tables.as_html(pd.DataFrame(rows), "Batches of 32; computed, not measured"))


def summary_of(record: Record) -> ProfileSummary:
    """The profile that a record holds."""
    return ProfileSummary.model_validate(record.profile)


def alt_of(rows: pd.DataFrame, title: str) -> str:
    """What a timeline shows, in words."""
    counts = rows.groupby("lane").size()
    return f"Timeline, {title}: " + "; ".join(f"{lane}: {count} intervals" for lane, count in counts.items())


def _mistakes(summary: ProfileSummary) -> list[tuple[str, str, str, str]]:
    span = summary.span_ns or 1
    calls = sum(row.total_ns for row in summary.api)
    waits = sum(row.total_ns for row in summary.waits)
    launch = max((r for r in summary.api if not r.waiting), key=lambda r: r.count)
    busy = max(summary.busy, key=lambda row: row.busy_share or 0)
    kernels = summary.kernels.total_ns or 0 if summary.kernels else 0
    grids = frames.grid_sizes(read_events(example()), H100_SMS)
    few, of = int(grids.loc[grids["fewer_than_sms"], "kernels"].sum()), int(grids["kernels"].sum())
    mean = launch.total_ns / launch.count / 1000
    return [
        (
            "the sum of API times as a share of the run",
            f"{calls / span:.0%} of the wall span",
            "not a share",
            "two processes' calls overlap each other and the GPU's work",
        ),
        (
            "a synchronising call as overhead",
            f"{waits / 1e6:,.0f} ms in {sum(r.count for r in summary.waits)} calls",
            "waiting",
            "the host waits there for work that was launched before; removing the call does not remove the work",
        ),
        (
            f"the mean of {launch.name}",
            f"{tables.number(mean)} us",
            f"{tables.number((launch.median_ns or 0) / 1000)} us (median)",
            "a few calls block on a full queue and carry the mean away",
        ),
        (
            "a busy device as a device that computes",
            f"{busy.busy_share or 0:.1%} busy (union of kernels, copies and memsets)",
            f"{kernels / len(summary.busy) / span:.1%} of the span in kernels, a device on average",
            "copies keep a device busy too; a busy device need not be computing",
        ),
        (
            "the number of launches as a measure of work",
            f"{of:,} kernels",
            f"{few:,} of them with fewer blocks than the device has SMs ({H100_SMS})",
            "a kernel with fewer blocks than SMs cannot fill the device, whatever its count",
        ),
    ]
