"""Chapter 6: from Keras defaults to the whole epoch in one call, each rung removing one named overhead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import BeforeValidator, Field

from overhead.chapters import pages
from overhead.chapters.base import Chapter, whole
from overhead.chapters.ladder.rungs import NOT_IN_QUICK, ON_GPU_ONLY, RUNGS, environment_of, label, variant
from overhead.loops import LOOPS
from overhead.measure.case import Case
from overhead.measure.census import COUNTS
from overhead.measure.contestant import Contestant, floors
from overhead.measure.process import Process, WorkerFailed
from overhead.measure.rounds import run_cases
from overhead.measure.session import Session
from overhead.problem.workload import TRAINING_IMAGES, LearningRate, Workload
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables


def keep_census(worker: Process, case: Case) -> None:
    """Count one step of a loop that was timed; a loop that cannot be counted keeps its times and says why."""
    if case.contestant.is_floor or "census" in case.facts:
        return
    try:
        case.facts["census"] = worker.ask("census")
    except WorkerFailed as failure:
        case.facts["census"] = {"reason": failure.reason}


class OverheadLadder(Chapter, frozen=True, strict=True, extra="forbid"):
    """Seconds per epoch of every rung at one batch size, what each removes, and what that is worth."""

    name: ClassVar[str] = "06-overhead-ladder"

    learning_rate: LearningRate = 0.1
    batch_size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=TRAINING_IMAGES)] = 32

    def contestants(self) -> list[Contestant]:
        """Every rung on every device of this host that it runs on, and the floors; quick begins at Keras's `fit`."""
        devices = self.usable_devices()
        rungs = [
            Contestant(rung.loop, device, env=environment_of(rung.variant))
            for rung in RUNGS
            if self.preset != "quick" or rung.loop != NOT_IN_QUICK
            for device in devices
            if device in LOOPS[rung.loop].devices
            if device == "gpu" or not (rung.variant or rung.loop in ON_GPU_ONLY)
        ]
        return rungs + floors(devices)

    def take(self, session: Session) -> list[Record]:
        """The rungs in interleaved rounds; once they are over, a census of each."""
        workload = Workload(batch_size=self.batch_size, learning_rate=self.learning_rate)
        asked = session._replace(afterwards=keep_census, learns=self.preset != "quick")
        return run_cases(self.contestants(), [workload], asked)

    def frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a rung and device: seconds, the gain over the rung below, and the price of compiling.

        Columns: loop, variant, device, below, removes, status, reason, epoch (Interval, seconds), gain (Interval:
        seconds below over seconds here), verdict, first_s, payback_epochs, times_floor (Interval).
        """
        by_name = {(r.loop, r.device, variant(r)): r for r in records if r.loop in LOOPS}
        rows: list[dict[str, Any]] = []
        for rung in RUNGS:
            for device in ("cpu", "gpu"):
                record = by_name.get((rung.loop, device, rung.variant))
                if record is None:
                    continue
                row: dict[str, Any] = {
                    "loop": label(record),
                    "variant": rung.variant,
                    "device": device,
                    "below": rung.below,
                    "removes": rung.removes,
                    "status": record.status,
                    "reason": record.reason,
                    "epoch": None,
                    "gain": None,
                    "verdict": None,
                    "payback_epochs": None,
                    "times_floor": tables.times_floor(record, records),
                    "first_s": record.timing.first_s if record.timing else None,
                }
                below = by_name.get((rung.below, device, "")) if rung.below else None
                if rung.below and below is None:
                    row["removes"] = f"{rung.removes}; not compared, since {rung.below} was not measured"
                if record.status == "ok":
                    row["epoch"] = stats.median_interval(record.epochs())
                    if below is not None and (gain := tables.ratio(below, record)):
                        row |= {
                            "gain": gain,
                            "verdict": tables.verdict(record, below, _inverse(gain)),
                            "payback_epochs": payback(below, record),
                        }
                rows.append(row)
        return pd.DataFrame(rows, columns=FRAME_COLUMNS, dtype=object)  # pandas would make nan of the None of a text

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What this host's records say, in words."""
        frame = self.frame(records)
        climbed = frame[frame["gain"].notna()]
        if climbed[climbed["variant"] == ""].empty:
            return pages.Markdown("No two rungs could be timed on this host, so there is nothing to compare.")
        plain = [row for row in climbed.itertuples() if row.variant == ""]
        best = max(plain, key=lambda row: row.gain.median)
        sure = len(plain) > 1 and best.gain.low > max(row.gain.high for row in plain if row is not best)
        text = (
            f"The {'largest' if sure else 'largest estimate of a'} single gain at batch size {self.batch_size} "
            f"({best.device.upper()}) is from **{best.below}** "
            f"to **{best.loop}**: {tables.interval(best.gain)} times less time an epoch, by removing {best.removes}."
        )
        if not sure:
            text += " Its interval reaches into that of another rung."
        useless = [f"{r.loop} over {r.below}" for r in plain if r.verdict in ("slower", "no difference shown")]
        if useless:
            text += f" Rungs that are not shown to help here: {', '.join(useless)}."
        if any(r.verdict == tables.ONE_PROCESS_EACH for r in plain):
            text += " Rungs of one process each have no verdict, since a process can be slow for its whole life."
        ported, original = (frame[frame["loop"] == f"{name}-per-image"] for name in ("cupy", "numpy"))
        if len(ported) and len(original) and ported.iloc[0]["epoch"] and original.iloc[0]["epoch"]:
            by_name = {r.loop: r for r in records if not variant(r)}
            ratio = tables.ratio(by_name["cupy-per-image"], by_name["numpy-per-image"])
            if ratio is None:
                return pages.Markdown(text)
            text += (
                f" The per-image port to CuPy takes {tables.interval(ratio)} times as long as the per-image NumPy loop "
                "(the article reported six times)."
            )
        return pages.Markdown(text)

    def figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Seconds per epoch of every rung, in order, with the floor."""
        frame = self.frame(records)
        timed = frame[frame["epoch"].notna()]
        if timed.empty:
            return pages.missing("the rungs", records)
        floors = {
            device: found[1].median
            for device in timed["device"].unique()
            if (found := tables.floor_of(records, self.batch_size, device))
        }
        alt = f"Seconds per epoch at batch size {self.batch_size}, logarithmic: " + "; ".join(
            f"{row.loop} on the {row.device} {tables.number(row.epoch.median)} s" for row in timed.itertuples()
        )
        return figures.ladder(
            [(row.loop, row.device, row.epoch, row.below is None) for row in timed.itertuples()],
            floors,
            f"seconds per epoch (median, 95 % interval; batch size {self.batch_size})",
            alt,
        )

    def table(self, records: Sequence[Record]) -> pages.Html:
        """A row a rung: what it removes, what that is worth, and after how many epochs its first one is paid back."""
        rows = []
        for row in self.frame(records).itertuples():
            shown = {"rung": row.loop, "device": row.device, "removes": row.removes}
            if row.epoch is None:
                note = f"{row.status}: {row.reason}"
                rows.append(shown | dict.fromkeys(COLUMNS, tables.NOT_MEASURED) | {"note": note})
                continue
            rows.append(
                shown
                | {
                    "seconds per epoch": tables.interval(row.epoch),
                    "n": str(row.epoch.n),
                    "gain over the rung below": tables.interval(row.gain) if row.gain else tables.NOT_MEASURED,
                    "times the floor": tables.interval(row.times_floor) if row.times_floor else tables.NOT_MEASURED,
                    "first epoch, s": tables.number(row.first_s),
                    "paid back after": _epochs(row.payback_epochs),
                    "note": NOTES.get(row.verdict, ""),
                }
            )
        return pages.Html(tables.as_html(pd.DataFrame(rows), pages.caption(records, self.settings), "the rungs"))

    def census_table(self, records: Sequence[Record]) -> pages.Html:
        """Counts a step that carry no noise: calls, page faults, compilations, what XLA made of the step."""
        rows = []
        for record in records:
            if record.loop not in LOOPS:
                continue
            counts = record.census or {}
            row = {"rung": label(record), "device": record.device}
            row |= {label: count_text(counts.get(key)) for key, label in COUNTS.items()}
            rows.append(row | {"note": counts.get("reason", "")})
        caption = f"Counts of one step at batch size {self.batch_size}, the mean of several, taken after the timing"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "counts of a step"))


FRAME_COLUMNS = [
    "loop", "variant", "device", "below", "removes", "status", "reason", "epoch", "gain", "verdict", "payback_epochs",
    "times_floor", "first_s",
]  # fmt: skip
NOTES = {
    "slower": "does not help: slower",
    "no difference shown": "not shown to help",
    tables.ONE_PROCESS_EACH: tables.ONE_PROCESS_EACH,
}
COLUMNS = (
    "seconds per epoch",
    "n",
    "gain over the rung below",
    "times the floor",
    "first epoch, s",
    "paid back after",
)


def payback(below: Record, record: Record) -> float | None:
    """Epochs after which a rung's dearer first epoch is paid back by its cheaper ones; None when it never is."""
    if not (below.timing and record.timing and below.timing.first_s and record.timing.first_s):
        return None
    saved = stats.median_interval(below.epochs()).median - stats.median_interval(record.epochs()).median
    dearer = record.timing.first_s - below.timing.first_s
    return None if saved <= 0 else max(0.0, dearer / saved)


def _inverse(ratio: Interval) -> Interval:
    return Interval(1 / ratio.median, 1 / ratio.high, 1 / ratio.low, ratio.n)


def _epochs(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return tables.NOT_MEASURED
    return "at once" if value == 0 else f"{tables.number(value, 2)} epochs"


def count_text(value: float | None) -> str:
    """A count a step: whole where it is whole, a dash where it was not counted."""
    if value is None:
        return tables.NOT_MEASURED
    return f"{value:,.0f}" if value >= 100 or float(value).is_integer() else f"{value:,.3g}"
