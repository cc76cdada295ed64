"""Chapter 5: every loop over batch sizes, with what each learnt, against the floor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd
from pydantic import BeforeValidator

from overhead import figures, host, runner, tables
from overhead.contestant import Contestant
from overhead.loops import FLOORS, LOOPS
from overhead.records import Record
from overhead.studies import pages
from overhead.studies.base import BatchSizes, Study, a_list
from overhead.workload import Workload

DEFAULT_LOOPS: list[str] = ["numpy", "numpy-per-image", "keras-fit", "keras-fit-validated", "jax-step", "jax-epoch"]


def _loops(value: Any) -> list[str]:
    names = a_list([value] if isinstance(value, str) and value in LOOPS else value, "[numpy, jax-epoch]")
    for name in names:
        if not isinstance(name, str) or name not in LOOPS:
            raise ValueError(f"must be of {', '.join(LOOPS)}, got {name!r}")
    return list(dict.fromkeys(names))


Loops = Annotated[list[str], BeforeValidator(_loops)]


class BatchSweep(Study, frozen=True, strict=True, extra="forbid"):
    """Seconds per epoch of each loop at each batch size."""

    stem: ClassVar[str] = "05-batch-sweep"

    batch_sizes: BatchSizes = [32, 512, 4096]
    remainder: Literal["drop", "keep"] = "drop"
    loops: Loops = DEFAULT_LOOPS

    def workloads(self) -> list[Workload]:
        """One workload a batch size, smallest first."""
        return [
            Workload(batch_size=size, remainder=self.remainder, learning_rate=self.learning_rate)
            for size in sorted(self.batch_sizes)
        ]

    def contestants(self) -> list[Contestant]:
        """Every loop on every device of this host, and the floors."""
        devices = self.usable_devices()
        loops = [Contestant(name, device) for name in self.loops for device in devices if device in LOOPS[name].devices]
        return loops + floors(devices)

    def take(self, bench: runner.Bench) -> list[Record]:
        return runner.run_cases(self.contestants(), self.workloads(), bench)

    def host_card(self) -> pages.Html:
        """The host and the parameters of this page."""
        return pages.host_card(self)

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What this host's records say, in words."""
        frame = tables.epochs_frame(records)
        timed = frame[frame["status"] == "ok"]
        size = int(timed["batch_size"].min()) if len(timed) else 0
        rows = timed[timed["batch_size"] == size].sort_values("epoch_s")
        if len(rows) < 2:
            return pages.Markdown("Fewer than two loops could be timed on this host, so there is nothing to compare.")
        best, worst = rows.iloc[0], rows.iloc[-1]
        found = tables.ratio(_record(records, worst), _record(records, best))
        assert found is not None
        text = (
            f"At batch size {size}, **{best['loop']}** on the {best['device'].upper()} takes "
            f"{tables.number(best['epoch_s'])} s an epoch and **{worst['loop']}** on the {worst['device'].upper()} "
            f"{tables.number(worst['epoch_s'])} s: {tables.interval(found)} times as long "
            f"(median of {found.n} pairs, 95 % interval), for the same {int(best['images_seen']):,} images, "
            "the same updates and the same validation accuracy."
        )
        if "times_floor" in best and math.isfinite(best["times_floor"]):
            text += (
                f" The matrix products alone take {tables.number(best['epoch_s'] / best['times_floor'])} s, so "
                f"{best['loop']} is at {tables.with_interval(*best[FLOOR_COLUMNS])} times its floor."
            )
        return pages.Markdown(text)

    def figure(self, records: Sequence[Record]) -> figures.Figure:
        """Seconds per epoch against batch size, log-log, with the floor."""
        frame = tables.epochs_frame(records)
        timed = frame[frame["status"] == "ok"]
        best = [
            {"batch_size": size, "epoch_s": found[1].median}
            for size in sorted(timed["batch_size"].unique())
            if (found := tables.floor_of(records, size))
        ]
        alt = (
            "Seconds per epoch against batch size, one line a loop, both axes logarithmic, 95 % intervals: "
            + "; ".join(f"{row.loop} at {row.batch_size}: {tables.number(row.epoch_s)} s" for row in timed.itertuples())
        )
        return figures.against_batch_size(
            timed, pd.DataFrame(best), "epoch_s", "seconds per epoch (median, 95 % interval)", alt
        )

    def table(self, records: Sequence[Record]) -> pages.Html:
        """Every row: seconds, throughput, accuracy and times the floor; or the reason why it is missing."""
        frame = tables.epochs_frame(records)
        rows = [self._row(row) for row in frame.itertuples()]
        return pages.Html(tables.as_html(pd.DataFrame(rows), pages.caption(records, self.settings)))

    @staticmethod
    def _row(row: Any) -> dict[str, str]:
        shown = {
            "loop": row.loop,
            "device": row.device,
            "threads": row.threads,
            "batch size": f"{row.batch_size:,}",
            "steps": f"{row.steps:,}",
        }
        if row.status != "ok":
            dash = tables.NOT_MEASURED
            return shown | {
                "seconds per epoch": dash, "n": dash, "images/s": dash, "validation accuracy": dash,
                "times the floor": dash, "first epoch, s": dash, "note": f"{row.status}: {row.reason}",
            }  # fmt: skip
        notes = [row.drift, "time was up before the target" if row.stopped == "budget" else "", row.disturbed]
        times = [getattr(row, name, math.nan) for name in FLOOR_COLUMNS]
        return shown | {
            "seconds per epoch": tables.with_interval(row.epoch_s, row.low_s, row.high_s),
            "n": str(int(row.n)),
            "images/s": f"{row.images_per_s:,.0f}",
            "validation accuracy": f"{100 * row.val_accuracy:.2f} %" if math.isfinite(row.val_accuracy) else "–",
            "times the floor": tables.with_interval(times[0], times[1], times[2]),
            "first epoch, s": tables.number(row.first_s),
            "note": "; ".join(note for note in notes if note),
        }

    def floors_table(self, records: Sequence[Record]) -> pages.Html:
        """The floor by library and threads; the smallest at each batch size is the floor."""
        frame = tables.floors_frame(records)
        rows = [
            {
                "library": row.library,
                "threads": row.threads,
                "batch size": f"{row.batch_size:,}",
                "seconds per epoch": tables.with_interval(row.epoch_s, row.low_s, row.high_s)
                if row.status == "ok"
                else f"{row.status}: {row.reason}",
            }
            for row in frame.itertuples()
        ]
        caption = (
            "The step's matrix products alone, streaming the epoch; the best of the fresh processes, 95 % interval"
        )
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption))


FLOOR_COLUMNS = ["times_floor", "times_floor_low", "times_floor_high"]


def floors(devices: Sequence[str]) -> list[Contestant]:
    """The floor's contestants: every library on every device, with one and with all threads."""
    threads = sorted({1, host.cores_allowed()})
    return [
        Contestant(name, device, count)
        for name, info in FLOORS.items()
        for device in devices
        if device in info.devices
        for count in (threads if device == "cpu" else threads[-1:])
    ]


def _record(records: Sequence[Record], row: Any) -> Record:
    """The record that a row of `tables.epochs_frame` was made from."""
    return next(
        r
        for r in records
        if (r.loop, r.device, r.threads, (r.workload or {}).get("batch_size"))
        == (row["loop"], row["device"], row["threads"], row["batch_size"])
    )
