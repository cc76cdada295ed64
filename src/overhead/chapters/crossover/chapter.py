"""Chapter 8: predictions held against epochs that no constant was fitted on, and where a GPU would win."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import Chapter, results_folder
from overhead.chapters.crossover import drawings
from overhead.chapters.crossover.kept import CONSTANTS, constants_of, record_of, report_of
from overhead.machine import host as hosts
from overhead.measure.session import Session
from overhead.model import advise, atlas, calibrate, check
from overhead.model import constants as keeping
from overhead.model.census import CALIBRATED, CPU_LOOPS, GPU_LOOPS
from overhead.model.constants import Constants
from overhead.model.gpus import GPUS, preset
from overhead.model.replay import CannotModel, on_cpu
from overhead.problem.workload import Workload
from overhead.records.record import Record
from overhead.showing import figures, tables

SECONDS = {"quick": 45.0, "workshop": 300.0, "full": 600.0}  # of hold-outs
# Workers of TensorFlow take ten seconds each to start.
LOOPS = {"quick": ("numpy", "numpy-preallocated", "jax-step", "jax-epoch", "keras-fit")}
MAPPED = ("Quadro RTX 5000", "T4", "H100")  # GPUs of the map and the table
WIDTHS, SIZES = (16, 64, 256, 1024, 4096), (8, 32, 128, 512, 2048, 8192)
ARTICLE = "the seed article"


class Crossover(Chapter, frozen=True, strict=True, extra="forbid"):
    """Constants of this host, hold-outs against their predictions, and what follows for GPUs that are not here."""

    name: ClassVar[str] = "08-crossover"

    def take(self, session: Session) -> list[Record]:
        """The constants, and a record a hold-out. Raises `Busy` when another measurement holds the host."""
        folder = results_folder() / self.host
        constants = self._constants(session)
        found = check.read(folder / check.FILE, constants) if (folder / check.FILE).exists() else []
        if not found:
            with tempfile.TemporaryDirectory(prefix="overhead-") as kept:
                loops = LOOPS.get(self.preset, CPU_LOOPS)
                found = check.check(
                    constants, Path(kept) / check.FILE, SECONDS[self.preset], session.say, session.force, loops
                )
        about: dict[str, Any] = {"device": "cpu", "threads": constants.threads, **session.provenance}
        about["versions"] = constants.versions
        return [
            Record(status="ok", loop="model", op=CONSTANTS, model=constants.model_dump(mode="json"), **about),
            *[record_of(case, about) for case in found],
        ]

    def _constants(self, session: Session) -> Constants:
        """Those of the host's file, measured anew where there are none that can be used here."""
        try:
            return keeping.read(results_folder(), self.host, hosts.facts())
        except keeping.NoConstants as why:
            session.say(f"{why}: doing it now")
        made = calibrate.fitted(calibrate.measure(session.say, session.force), self.host)
        keeping.write(keeping.path_of(results_folder(), self.host), made)
        return made

    # --- predicted against measured ----------------------------------------------------------------------------

    def held_out(self, records: Sequence[Record]) -> list[check.Checked]:
        """The hold-outs, predicted by the constants among the records."""
        constants, found = constants_of(records), []
        for record in records if constants else []:
            if record.op is None and record.status == "ok" and record.timing and record.workload and constants:
                ns = tuple(round(1e9 * s) for process in record.processes() for s in process)
                try:
                    p = on_cpu(record.loop, record.workload, constants)
                except CannotModel:
                    continue
                layers, size = record.workload.layers, record.workload.batch_size
                measured_s, disturbed = calibrate.undisturbed_s(ns), tuple(record.disturbed)
                found.append(
                    check.Checked(layers, size, record.loop, p.epoch_s, p.low_s, p.high_s, measured_s, disturbed, ns)
                )
        return found

    def sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """How far off the predictions are, in words."""
        found = self.held_out(records)
        if not found:
            return pages.missing("epochs that no constant was fitted on", records)
        said = check.report(found)
        short, regret = "; ".join(check.shortfalls(said)), said["regret"]
        networks = len({(c.layers, c.batch_size) for c in found})
        return pages.Markdown(
            f"{len(found)} epochs of {networks} networks on which no constant was fitted: the median error is "
            f"**{said['median_error']:.0%}**, the 90th percentile {said['p90_error']:.0%}; the 90 % intervals hold "
            f"{said['coverage']:.0%} of the measured times; the loop that is predicted to be fastest takes "
            f"{regret['median']:.2f} times as long as the fastest one (at the 95th percentile {regret['p95']:.2f})."
            + (f" Short of what was aimed at: {short}." if short else "")
        )

    def predicted_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Predicted against measured seconds a step: steps of the calibration, hold-outs, loops it never saw."""
        constants, found = constants_of(records), self.held_out(records)
        if constants is None or not found:
            return pages.missing("predictions beside measurements", records)
        steps = [
            (w, on_cpu(loop, w, constants, draws=0).epoch_s / w.steps, seconds / w.steps)
            for loop, frame in constants.frames.items()
            for layers, size, images, seconds in frame.timed
            for w in [Workload(layers=layers, batch_size=size, images=images)]
        ]
        points = {
            "steps that constants were fitted on": [(predicted, measured) for _, predicted, measured in steps],
            "hold-outs": [_step(c) for c in found if c.loop in CALIBRATED],
            "hold-outs of loops known by their census alone": [_step(c) for c in found if c.loop not in CALIBRATED],
        }
        return drawings.against(points)

    def residuals_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Measured over predicted of each hold-out, with the predicted interval, a lane a loop."""
        found = self.held_out(records)
        return drawings.residuals(found) if found else pages.missing("what predictions leave over", records)

    def errors_table(self, records: Sequence[Record]) -> pages.Html:
        """A row a loop: how far off."""
        rows, found = [], self.held_out(records)
        for loop in dict.fromkeys(c.loop for c in found):
            of = [c for c in found if c.loop == loop]
            worst = max(of, key=lambda c: c.error)
            rows.append({
                "loop": loop,
                "known by": "its own small steps" if loop in CALIBRATED else "its census alone",
                "hold-outs": len(of),
                "median error": f"{np.median([c.error for c in of]):.0%}",
                "inside the 90 % interval": f"{np.mean([c.low_s <= c.measured_s <= c.high_s for c in of]):.0%}",
                "worst: measured / predicted": f"{worst.measured_s / worst.predicted_s:.2f}",
                "worst at": f"{'-'.join(map(str, worst.layers))}, batch size {worst.batch_size:,}",
            })  # fmt: skip
        return pages.Html(tables.as_html(pd.DataFrame(rows), "Error: |log(measured / predicted)|", "hold-outs"))

    def products_table(self, records: Sequence[Record]) -> pages.Html:
        """How well products are predicted that the formula never saw, beside simpler ways."""
        constants, rows = constants_of(records), []
        for name, by in constants.products.items() if constants else ():
            for threads, fitted in by.items():
                errors = {how: f"{error:.0%}" for how, error in fitted.rivals.items()}
                rows.append({"products of": name, "threads": threads, **errors})
        caption = "Median error of products that were left out of the fit"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "products"))

    # --- GPUs that are not here: modelled -----------------------------------------------------------------------

    def map_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """The fastest loop here over the fastest of a modelled GPU, by batch size and width, a panel a GPU."""
        constants = constants_of(records)
        if constants is None:
            return pages.missing("the constants of this host", records)
        return drawings.crossover_map({name: _ratios(constants, name) for name in MAPPED}, SIZES, WIDTHS)

    def crossover_table(self, records: Sequence[Record]) -> pages.Html:
        """From which batch size on a modelled GPU wins, for the article's network and a wide one."""
        constants, rows = constants_of(records), []
        for name in MAPPED if constants else ():
            for layers in ((784, 128, 10), (784, 1024, 1024, 10)):
                assert constants is not None
                found = advise.crossover(Workload(layers=layers), constants, preset(name))
                span = f"{found.low or '…'} to {found.high or '…'}" if found.low or found.high else tables.NOT_MEASURED
                rows.append({
                    "modelled GPU": name, "network": "-".join(map(str, layers)),
                    "the GPU wins, by batch size": found.verdict, "90 % interval": span,
                })  # fmt: skip
        caption = f"Modelled, not measured; batch sizes up to {advise.LARGEST_BATCH:,}, the fastest loop of each device"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "the constants of this host"))

    def constants_table(self) -> pages.Html:
        """Every constant of every preset, with its source."""
        rows = [
            {
                "GPU": gpu.name, "constant": name, "value": f"{given.value:.3g}", "source": given.source,
                "of": given.date, "interpolated": "yes" if given.interpolated else "no",
            }
            for gpu in GPUS if gpu.name in MAPPED for name, given in gpu.given.items()
        ]  # fmt: skip
        caption = "Published figures, of which modelled GPUs are made; seconds, units a second"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption))

    def calculator_table(self, records: Sequence[Record]) -> pages.Html:
        """What the calculator says of some networks, for a page without scripts."""
        constants, rows = constants_of(records), []
        for layers in ((784, 10), (784, 128, 10), (784, 1024, 1024, 10)) if constants else ():
            for size in (32, 512, 4096):
                assert constants is not None
                found = advise.predictions(Workload(layers=layers, batch_size=size), constants, preset("T4"))
                row: dict[str, Any] = {"network": "-".join(map(str, layers)), "batch size": f"{size:,}"}
                for device, title in (("cpu", "fastest here"), ("gpu", "fastest on a modelled T4")):
                    p = advise.best(found, device)
                    told = tables.with_interval(p.epoch_s, p.low_s, p.high_s, 2) if p else tables.NOT_MEASURED
                    row |= {title: p.loop if p else tables.NOT_MEASURED, f"s an epoch, {device}": told}
                rows.append(row)
        caption = "Predicted seconds an epoch of 48,000 images with 90 % intervals"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "the constants of this host"))

    # --- what others published ----------------------------------------------------------------------------------

    def atlas_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """How many published epochs are predicted, and which direction."""
        found = report_of(records)
        if found is None:
            return pages.missing("Keras's constants, without which published epochs cannot be predicted", records)
        wrong = ", ".join(d["of"] for d in found["directions"] if not d["right"])
        judged, right = len(found["directions"]), sum(d["right"] for d in found["directions"])
        return pages.Markdown(
            f"Of {found['predicted']} published epochs that set nothing, **{found['within']:.0%}** lie within a factor "
            f"of {atlas.WITHIN} of what is modelled; of those on rented hosts, which the one guessed constant is of, "
            f"{found['within_rented']:.0%}. Which of two devices is faster is right in {right} of {judged} cases"
            f"{f' (wrong: {wrong})' if wrong else ''}. Calls are taken to last {found['rented_factor']:.2f} times as "
            "long on others' hosts as on this one."
        )

    def atlas_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Published and modelled seconds an epoch; a miss is shown as a miss."""
        found = report_of(records)
        if found is None:
            return pages.missing("Keras's constants", records)
        return drawings.atlas_dots([row for row in found["entries"] if row["predicted_s"] is not None])

    def atlas_table(self, records: Sequence[Record]) -> pages.Html:
        """A row an entry, with why a miss misses as far as its source tells."""
        found, rows = report_of(records), []
        for entry in found["entries"] if found else []:
            modelled = tables.NOT_MEASURED if entry["predicted_s"] is None else f"{entry['predicted_s']:.2g}"
            rows.append({
                "entry": entry["name"], "device": entry["device_name"],
                "published, s": atlas.published(entry), "modelled, s": modelled,
                "said": atlas.verdict(entry), "why": entry["why"] or "", "source": entry["source"],
            })  # fmt: skip
        return pages.Html(tables.as_html(pd.DataFrame(rows), "Seconds an epoch", "Keras's constants"))

    def article_table(self, records: Sequence[Record]) -> pages.Html:
        """The article's own figures, predicted."""
        found, rows = report_of(records), []
        for entry in found["entries"] if found else []:
            if entry["source"] == ARTICLE and entry["predicted_s"] is not None:
                rows.append({
                    "what": entry["code"], "batch size": f"{entry['batch_size']:,}", "device": entry["device_name"],
                    "published, s": atlas.published(entry), "modelled, s": f"{entry['predicted_s']:.2g}",
                    "said": atlas.verdict(entry),
                })  # fmt: skip
        return pages.Html(tables.as_html(pd.DataFrame(rows), "The article's epochs, modelled", "Keras's constants"))


def _step(c: check.Checked) -> tuple[float, float]:
    steps = check.IMAGES // c.batch_size
    return c.predicted_s / steps, c.measured_s / steps


def _ratios(constants: Constants, name: str) -> np.ndarray[Any, Any]:
    """Seconds of the fastest loop here over those of the fastest on a GPU: (widths, batch sizes); nan where neither."""
    gpu, found = preset(name), np.full((len(WIDTHS), len(SIZES)), np.nan)
    for i, width in enumerate(WIDTHS):
        for j, size in enumerate(SIZES):
            workload = Workload(layers=(784, width, 10), batch_size=size)
            made = advise.predictions(workload, constants, gpu, loops=(*CPU_LOOPS, *GPU_LOOPS), draws=0)
            cpu, other = advise.best(made, "cpu"), advise.best(made, "gpu")
            if cpu and other:
                found[i, j] = cpu.epoch_s / other.epoch_s
    return found
