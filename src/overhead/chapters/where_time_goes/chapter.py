"""Chapter 3: the floors of this host, a step's time as a sum of measured parts, and the dispatches a loop exposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from pydantic import BeforeValidator, Field

from overhead.chapters import micro, pages
from overhead.chapters.base import Chapter, results_folder, whole
from overhead.chapters.where_time_goes import budget, figures, lanes, pieces, spins
from overhead.loops import LOOPS
from overhead.machine import host
from overhead.measure import calibration, probing
from overhead.measure.contestant import Contestant
from overhead.measure.preparation import Turn
from overhead.measure.rounds import time_cases, time_epochs
from overhead.measure.session import ONE_PROCESS, PRESETS, Session
from overhead.problem import bounds
from overhead.problem.workload import TRAINING_IMAGES, LearningRate, Workload
from overhead.records import pairs, stats
from overhead.records.record import Record
from overhead.showing import tables
from overhead.showing.figures import Figure

A_BUDGET, SPUN = "a step as a sum of parts", "a loop with waits at its dispatches"  # what may be missing


class WhereTimeGoes(Chapter, frozen=True, strict=True, extra="forbid"):
    """A step's time from parts that were each measured, and dispatch measured by a wait at every dispatch."""

    name: ClassVar[str] = "03-where-time-goes"

    presets = {
        "quick": ONE_PROCESS._replace(target=0.0, rounds=(4, 4)),
        "workshop": PRESETS["workshop"]._replace(target=0.0, rounds=(8, 8), processes=1),
        "full": PRESETS["full"]._replace(target=0.0, rounds=(20, 20), processes=1, budget_s=240.0),
    }

    learning_rate: LearningRate = 0.1
    batch_size: Annotated[int, BeforeValidator(whole), Field(ge=1, le=TRAINING_IMAGES // 10)] = 32

    @property
    def workload(self) -> Workload:
        return Workload(batch_size=self.batch_size, learning_rate=self.learning_rate)

    @property
    def twin(self) -> Workload:
        """As many steps on a 2-2-2 network: the same calls with next to no arithmetic and no bytes."""
        return Workload(
            layers=(2, 2, 2), batch_size=2, images=2 * self.workload.steps, learning_rate=self.learning_rate
        )

    def contestants(self, names: Sequence[str]) -> list[Contestant]:
        """These loops on every device of this host that they run on."""
        devices = self.usable_devices()
        return [Contestant(name, device) for name in names for device in devices if device in LOOPS[name].devices]

    def take(self, session: Session) -> list[Record]:
        """The calibration, the budget's loops on the workload and on its twin, and the loops dispatched op by op."""
        found = calibration.for_chapter(self.host, self.usable_devices(), session, results_folder())
        session = session._replace(learns=False)
        alone = [c._replace(threads=1) for c in self.contestants(pieces.ALSO_ALONE) if c.device == "cpu"]
        timed = time_cases(
            self.contestants(list(pieces.TERMS)) + (alone if host.cores_allowed() > 1 else []),
            [self.workload, self.twin], session, self.budget_turn,
        )  # fmt: skip
        images = min(TRAINING_IMAGES, spins.STEPS["ops"] * self.batch_size)  # no more than a sample needs
        few = Workload(batch_size=self.batch_size, images=images, learning_rate=self.learning_rate)
        spun = time_cases(self.contestants(spins.OP_BY_OP), [few], session, spins.take)
        return found + [case.record(session.provenance) for case in (*timed, *spun)]

    def budget_turn(self, turn: Turn, round_: int) -> None:
        """The epoch on both clocks, the pieces of its step, and the epoch with a wait at every dispatch."""
        time_epochs(turn, round_)
        pieces.take(turn, round_)
        if turn.case.workload == self.workload and turn.case.contestant.threads != 1:
            spins.take(turn, round_)
            if turn.case.contestant.device == "gpu":
                pieces.watch(turn, round_)

    # --- floors -----------------------------------------------------------------------------------------------

    def floors_table(self, records: Sequence[Record]) -> pages.Html:
        """A row a floor: waited for each time, and with one wait at the end."""
        rows = []
        for floor in calibration.floors(records):
            each, end = (floor[f"{clock}_us"] for clock in ("each", "end"))
            rows.append(
                {
                    "library": f"{floor['loop']} ({floor['device']})",
                    "threads": floor["threads"],
                    "what": micro.unbroken(floor["does"]),
                    "waited for, us": tables.with_interval(each["median"], each["low"], each["high"]),
                    "one wait at the end, us": tables.with_interval(end["median"], end["low"], end["high"]),
                    "blocks": each["n"],
                }
            )
        caption = pages.caption(records, self.settings)
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "the smallest pieces of a step"))

    def frame_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What Keras adds to the same mathematics, and how many steps' dispatch fits into one of its steps."""
        lines = []
        for keras in probing.select(records, "frame", "keras-train-step"):
            plain = probing.select(records, "frame", "function-step", device=keras.device)
            if plain and (ratio := pairs.ratio(probing.rounds_us(keras, "end"), probing.rounds_us(plain[0], "end"))):
                lines.append(
                    f"On the {keras.device.upper()} one step through Keras's train function takes "
                    f"{tables.interval(probing.interval_us(keras))} us, the same mathematics in a plain `tf.function` "
                    f"{tables.interval(probing.interval_us(plain[0]))} us: {tables.interval(ratio)} times as long."
                )
        return pages.Markdown(" ".join(lines) or "Keras could not be timed on this host.")

    # --- the budget -------------------------------------------------------------------------------------------

    def budgets(self, records: Sequence[Record]) -> list[budget.Budget]:
        """One budget a loop and device that was timed on the workload and on its twin."""
        return budget.budgets(records, self.workload, self.twin)

    def budget_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """Where the step's time goes, loop by loop, with what stays unexplained."""
        lines = budget.sentences(self.budgets(records)) + lanes.sentences(lanes.found(records, self.workload))
        lines += [
            f"- **{pages.plain(r.loop)} ({r.device})** is missing: {pages.plain(r.reason)}."
            for r in records
            if r.status != "ok" and r.op is None
        ]
        return pages.Markdown("\n".join(dict.fromkeys(lines)) or "No loop could be timed on this host.")

    def budget_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """A bar a loop, its terms end to end, and a marker where the measured step ends."""
        found, beside = self.budgets(records), lanes.found(records, self.workload)
        if not found and not beside:
            return pages.missing(A_BUDGET, records)
        return lanes.figure(figures.budgets(found, self.batch_size), beside)

    def budget_table(self, records: Sequence[Record]) -> pages.Html:
        """A row a term, then sum, step and residual; a column a loop: microseconds a step and the share of the step."""
        found, caption = self.budgets(records), pages.caption(records, self.settings)
        shown = tables.as_html(budget.table(found) if found else pd.DataFrame(), caption, A_BUDGET)
        if beside := lanes.found(records, self.workload):
            shown += tables.as_html(lanes.table(beside), caption, "a step on a GPU in two lanes")
        return pages.Html(shown)

    def terms(self) -> pages.Markdown:
        """How each term is measured."""
        return pages.Markdown(pieces.how())

    def utilisation(self, records: Sequence[Record]) -> pages.Html | pages.Markdown:
        """On a GPU: what the driver reports beside the share of the measured peak that the step achieves (S8)."""
        rows = []
        ceilings = calibration.ceilings([r for r in records if calibration.is_part(r)])
        for r in records:
            shares = [share for s in r.of_no_unit(pieces.UTILISATION) for share in s.shares or []]
            if not shares or r.device != "gpu" or r.op is not None:
                continue
            achieved = bounds.epoch_flops(self.workload) / stats.median_interval(r.epochs()).median
            try:
                share = f"{achieved / calibration.ceiling(ceilings, 'gpu')['flops_per_s']:.2%}"
            except calibration.NoCalibration:  # every library declined to be calibrated on the GPU
                share = tables.NOT_MEASURED
            rows.append(
                {
                    "loop": r.loop,
                    "utilisation as the driver reports it": f"{np.median(shares):.0%}",
                    "achieved share of the measured peak": share,
                    "samples": len(shares),
                }
            )
        if not rows:
            return pages.Markdown(
                "No GPU was watched on this host. On one, this table sets the driver's utilisation (the share of its "
                "sample intervals in which any kernel ran) beside the share of peak that the step achieves."
            )
        return pages.Html(tables.as_html(pd.DataFrame(rows), pages.caption(records, self.settings)))

    # --- dispatch by cause --------------------------------------------------------------------------------------

    def spin_frame(self, records: Sequence[Record]) -> pd.DataFrame:
        """One row a loop, as `spins.frame_of` describes it."""
        return spins.frame_of(records, self.workload)

    def spin_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """How many of its dispatches each loop exposes, in words."""
        return pages.Markdown(
            "\n".join(spins.sentences(self.spin_frame(records))) or "No loop could be spun on this host."
        )

    def spin_table(self, records: Sequence[Record]) -> pages.Html:
        """A row a loop: dispatches expected, slope with interval, their ratio."""
        shown = spins.table(self.spin_frame(records))
        return pages.Html(tables.as_html(shown, pages.caption(records, self.settings), SPUN))

    def spin_figure(self, records: Sequence[Record]) -> Figure | pages.Markdown:
        """Milliseconds that an epoch gains against the wait at each dispatch, a panel a loop; expected: dashed."""
        frame = self.spin_frame(records)
        return pages.missing(SPUN, records) if frame.empty else figures.spins(frame)
