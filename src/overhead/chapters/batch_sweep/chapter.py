"""Chapter 5: every loop over batch sizes, with what each learnt, against the floor.

One set of fresh processes serves the sweep, the other remainder policy, the article's protocol and the causes that are
switched on and off (`anomalies`); the time to a quality is trained afterwards, in processes of its own (`quality`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.chapters.batch_sweep import anomalies, article, batches, quality, quality_tables
from overhead.chapters.batch_sweep.axes import (
    AUTO,
    AXES,
    HEADLINE_LOOPS,
    PER_IMAGE,
    QUICK_REMAINDER,
    VALIDATED,
    Loops,
    Sizes,
)
from overhead.loops import LOOPS
from overhead.measure.case import Case
from overhead.measure.contestant import Contestant, floors
from overhead.measure.rounds import time_cases
from overhead.measure.session import PRESETS, Preset, Session
from overhead.problem.workload import LearningRate, Workload
from overhead.records.record import Record
from overhead.showing import figures, tables


class BatchSweep(Chapter, frozen=True, strict=True, extra="forbid"):
    """Seconds per epoch of each loop at each batch size."""

    name: ClassVar[str] = "05-batch-sweep"
    presets: ClassVar[Mapping[str, Preset]] = {**PRESETS, "quick": Preset("quick", 0.10, 6.0, 3, (4, 10))}

    learning_rate: LearningRate = 0.1
    batch_sizes: Sizes = [AUTO]
    remainder: Literal["drop", "keep"] = "drop"
    loops: Loops = [AUTO]

    def sizes(self) -> list[int]:
        """Batch sizes to measure, smallest first."""
        return sorted(AXES[self.preset].batch_sizes if self.batch_sizes == [AUTO] else self.batch_sizes)

    def loop_names(self) -> list[str]:
        """Loops to measure: those asked for, else the preset's."""
        return list(AXES[self.preset].loops) if self.loops == [AUTO] else self.loops

    def workload(self, size: int, remainder: str | None = None) -> Workload:
        """What is trained at a batch size, by default under this run's remainder policy."""
        policy: Any = remainder or self.remainder
        return Workload(batch_size=size, remainder=policy, learning_rate=self.learning_rate)

    def workloads(self) -> list[Workload]:
        """One workload a batch size, then those where the other remainder policy makes a difference."""
        found = [self.workload(size) for size in self.sizes()]
        other = "keep" if self.remainder == "drop" else "drop"
        differing = [w.batch_size for w in found if w.last_batch]
        return found + [
            self.workload(size, other) for size in (differing[-1:] if self.preset == "quick" else differing)
        ]

    def contestants(self) -> list[Contestant]:
        """Every loop on every device of this host, and the floors."""
        devices = self.usable_devices()
        names = self.loop_names()
        loops = [Contestant(name, device) for name in names for device in devices if device in LOOPS[name].devices]
        return loops + floors(devices)

    def arms(self) -> list[anomalies.Arm]:
        """Loops with one thing switched, of the loops that are measured."""
        names, on_cpu = self.loop_names(), "cpu" in self.usable_devices()
        return [a for a in anomalies.ARMS if on_cpu and a.against in names and (a.quick or self.preset != "quick")]

    def take(self, session: Session) -> list[Record]:
        """The sweep with its interventions in one set of processes, then the time to a quality."""
        sweep = {contestant.resolved() for contestant in self.contestants()}
        arms: dict[Contestant, list[anomalies.Arm]] = {}
        for arm in self.arms():
            arms.setdefault(arm.contestant.resolved(), []).append(arm)
        smallest, largest = self.workload(self.sizes()[0]), self.workload(self.sizes()[-1])

        def wanted(contestant: Contestant, workload: Workload) -> bool:
            if contestant not in sweep:
                return workload in [largest if arm.at_largest else smallest for arm in arms[contestant]]
            if workload.remainder != self.remainder:
                brief = self.preset == "quick" and contestant.loop not in QUICK_REMAINDER
                return not (contestant.is_floor or contestant.loop == PER_IMAGE or brief)
            # its work for an image does not know the batch size; quick has no minute for showing that
            if self.preset == "quick" and contestant.loop == VALIDATED:
                return workload in (smallest, largest)
            return self.preset != "quick" or contestant.loop != PER_IMAGE or workload == smallest

        def brief(contestant: Contestant) -> bool:
            once = self.preset == "quick" and not contestant.is_floor
            return once and (contestant.loop not in HEADLINE_LOOPS or contestant not in sweep)

        asked = session._replace(afterwards=anomalies.keep_page_faults, wanted=wanted, brief=brief)
        found = []
        for case in time_cases(
            list(dict.fromkeys([*(c.resolved() for c in self.contestants()), *arms])), self.workloads(), asked
        ):
            record = case.record(session.provenance)
            # `op` keeps it out of every table of loops
            found.append(record if case.contestant in sweep else record.model_copy(update={"op": anomalies.OP}))
        return found + quality.take(quality.PLANS[self.preset], self.usable_devices(), self.learning_rate, session)

    def records_of(self, case: Case, fields: Mapping[str, Any]) -> list[Record]:
        """As `take`: a loop with one thing switched is no row of the sweep."""
        who = case.contestant
        of_sweep = who.is_floor or who.loop in self.loop_names()
        plain = not who.env and who.threads == case.facts.get("cores_allowed", who.threads)
        update = {} if of_sweep and plain else {"op": anomalies.OP}
        return [record.model_copy(update=update) for record in super().records_of(case, fields)]

    def rows(self, records: Sequence[Record]) -> list[Record]:
        """The records of the sweep itself: loops and floors under this run's remainder policy."""
        alone = [r for r in records if r.op is None and r.member is None]
        return [r for r in alone if r.workload is None or r.workload.remainder == self.remainder]

    def caption(self, records: Sequence[Record]) -> str:
        """Units, spread, batch sizes, threads and versions of the sweep."""
        return pages.caption(self.rows(records), self.settings)

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What this host's records say, in words."""
        records = self.rows(records)
        frame = tables.epochs_frame(records)
        timed = frame[frame["status"] == "ok"]
        size = int(timed["batch_size"].min()) if len(timed) else 0
        rows = timed[timed["batch_size"] == size].sort_values("headline_s")
        if len(rows) < 2:
            return pages.Markdown("Fewer than two loops could be timed on this host, so there is nothing to compare.")
        best, worst = rows.iloc[0], rows.iloc[-1]
        found = tables.ratio(_record(records, worst), _record(records, best))
        if found is None:
            return pages.Markdown("The slowest and the fastest loop share no round here, so they are not compared.")
        fast, slow = pages.plain(best["loop"]), pages.plain(worst["loop"])
        text = (
            f"At batch size {size}, **{fast}** on the {best['device'].upper()} takes "
            f"{tables.number(best['headline_s'])} s an epoch and **{slow}** on the {worst['device'].upper()} "
            f"{tables.number(worst['headline_s'])} s: {tables.interval(found)} times as long "
            f"(undisturbed, {found.n} turns, 95 % interval), for the same {int(best['images_seen']):,} images "
            f"and the same updates; validation accuracy {_percent(worst)} and {_percent(best)}."
        )
        floor = tables.floor_of(records, size, best["device"])
        if floor and "times_floor" in best and math.isfinite(best["times_floor"]):
            text += (
                f" {batches.FLOOR_IS[best['device']]} take {tables.interval(floor[1])} s undisturbed: {fast} "
                f"is at {tables.with_interval(*best[FLOOR_COLUMNS])} times its floor."
            )
        return pages.Markdown(text)

    def figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Seconds per epoch against batch size, log-log, with the floor."""
        records = self.rows(records)
        frame = tables.epochs_frame(records)
        timed = frame[frame["status"] == "ok"]
        if timed.empty:
            return pages.missing("a loop against batch size", records)
        best = [
            {"batch_size": size, "device": device, "epoch_s": found[1].median}
            for device in timed["device"].unique()
            for size in sorted(timed["batch_size"].unique())
            if (found := tables.floor_of(records, size, device))
        ]
        alt = (
            "Seconds per epoch against batch size, one line a loop, both axes logarithmic, 95 % intervals: "
            + "; ".join(
                f"{row.loop} ({row.device}) at {row.batch_size}: {tables.number(row.epoch_s)} s"
                for row in timed.itertuples()
            )
        )
        return figures.against_batch_size(
            timed, pd.DataFrame(best), "epoch_s", "seconds per epoch (median, 95 % interval)", alt
        )

    def table(self, records: Sequence[Record]) -> pages.Html:
        """Every row: seconds, throughput, accuracy and times the floor; or the reason why it is missing."""
        frame = tables.epochs_frame(self.rows(records))
        rows = [self._row(row) for row in frame.itertuples()]
        return pages.Html(tables.as_html(pd.DataFrame(rows), self.caption(records), "loops at each batch size"))

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
        return batches.floors_table(self.rows(records))

    def gains_table(self, records: Sequence[Record]) -> pages.Html:
        """Per loop and device, the first batch size whose doubling gains next to nothing."""
        return batches.gains_table(self.rows(records), self.caption(records))

    def plateau_table(self, records: Sequence[Record]) -> pages.Html:
        """What is left of each loop's time when the batch grows."""
        return batches.plateau_table(self.rows(records), self.caption(records))

    def remainder_table(self, records: Sequence[Record]) -> pages.Html:
        """Both policies for the last, partial batch: steps, images seen, seconds and accuracy."""
        return batches.remainder_table(records, self.caption(records))

    def settings_table(self, records: Sequence[Record]) -> pages.Html:
        """What each framework resolved by itself."""
        return batches.settings_table(self.rows(records))

    def protocol_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What the article's protocol alone is worth here, in words."""
        return article.sentence(records, self.remainder)

    def gaps_table(self, records: Sequence[Record]) -> pages.Html:
        """The article's gaps, and how much of each is its protocol."""
        return article.gaps_table(records, self.remainder, self.caption(records))

    def published_table(self, records: Sequence[Record]) -> pages.Html:
        """The article's figures beside the same protocol on this host."""
        return article.published_table(records, self.caption(records))

    def anomalies_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """Whether NumPy's large batches are slower here, and why."""
        return anomalies.sentence(self.rows(records), anomalies.of(records))

    def anomalies_table(self, records: Sequence[Record]) -> pages.Html:
        """Each cause that the article left open, switched, with its verdict."""
        return anomalies.table(self.rows(records), anomalies.of(records), self.caption(records))

    def updates_table(self, records: Sequence[Record]) -> pages.Html:
        """Equal epochs beside equal updates."""
        return quality_tables.updates_table(records)

    def quality_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """Time to the quality, in words."""
        return quality_tables.sentence(records)

    def rates_table(self, records: Sequence[Record]) -> pages.Html:
        """The grid of learning rates at each batch size."""
        return quality_tables.rates_table(records)

    def quality_table(self, records: Sequence[Record]) -> pages.Html:
        """Seconds to the quality at each batch size, each with its own rate."""
        return quality_tables.table(records)

    def quality_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Validation accuracy against seconds."""
        return quality_tables.figure(records)

    def quality_by_loop(self, records: Sequence[Record]) -> pages.Html:
        """Seconds to the quality of every loop at the smallest batch size."""
        return quality_tables.by_loop_table(records, self.rows(records))


FLOOR_COLUMNS = ["times_floor", "times_floor_low", "times_floor_high"]


def _percent(row: Any) -> str:
    return f"{100 * row['val_accuracy']:.2f} %" if math.isfinite(row["val_accuracy"]) else "not kept"


def _record(records: Sequence[Record], row: Any) -> Record:
    """The record that a row of `tables.epochs_frame` was made from."""
    return next(
        r
        for r in records
        if (r.loop, r.device, r.threads, r.workload and r.workload.batch_size)
        == (row["loop"], row["device"], row["threads"], row["batch_size"])
    )
