"""Chapter 9: under the floor: rungs that do less arithmetic, many models by one index, and word2vec by grouping."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from overhead.chapters import pages
from overhead.chapters.base import BatchSizes, Chapter
from overhead.chapters.batch_sweep.chapter import floors
from overhead.chapters.under_the_floor import rungs, shown, taking, wording
from overhead.machine import host
from overhead.measure import probing
from overhead.measure.contestant import Contestant
from overhead.measure.probing import Ask
from overhead.measure.rounds import run_cases
from overhead.measure.session import Preset, Session
from overhead.problem import words
from overhead.problem.workload import MNIST_LAYERS, Workload
from overhead.records.record import Record
from overhead.showing import figures, roofline, tables
from overhead.sweep.scaling import time_models

RUNGS = ("blas-epoch", "dropped", "gathered", "sorted", "sparse")
BESIDE = ("jax-epoch-tuned", "keras-fit")
WITHOUT_ZEROS = (MNIST_LAYERS[0] - 1, *MNIST_LAYERS[1:])  # no layers of MNIST, so that the images are noise
FIVE, MANY = 5, 41
RACES = {"quick": 2, "workshop": 5, "full": 9}


class UnderTheFloor(Chapter, frozen=True, strict=True, extra="forbid"):
    """Exact training that multiplies by no zero, and updates that touch few rows."""

    name: ClassVar[str] = "09-under-the-floor"
    presets: ClassVar[Mapping[str, Preset]] = {
        "quick": Preset("quick", 0.10, 6.0, 1, (4, 10)),
        "workshop": Preset("workshop", 0.05, 8.0, 3, (5, 20)),
        "full": Preset("full", 0.02, 15.0, 5, (5, 30)),
    }

    batch_sizes: BatchSizes = [32, 512, 4096]

    # --- measuring -------------------------------------------------------------------------------------------

    def take(self, session: Session) -> list[Record]:
        """Counts of pixels and words, the rungs, noise, many models, groupings of rows, and the race to 97 %."""
        asked = session._replace(learns=self.preset != "quick")
        found = session.once("digits", lambda: [taking.digits(self.batch_sizes, session), *taking.touched(session)])
        contestants = [*map(Contestant, (*RUNGS, *BESIDE)), Contestant("sparse", threads=1), *floors(["cpu"])]
        if host.cores_allowed() == 1:
            contestants.remove(Contestant("sparse", threads=1))
        found += run_cases(contestants, [Workload(batch_size=size) for size in self.batch_sizes], asked)
        noise = Workload(layers=WITHOUT_ZEROS, batch_size=self.batch_sizes[0])
        found += _marked(run_cases([*map(Contestant, ("sorted", "sparse")), *floors(["cpu"])], [noise], asked), "noise")
        for count, engine in ((FIVE, "stacked"), (MANY, "keras-fit")):
            who = [Contestant("sparse-many"), Contestant(engine), *floors(["cpu"])]
            workload = Workload(batch_size=self.batch_sizes[0])
            found += _marked(time_models(who, workload, [count], asked), "models")
        found += probing.measure(self.asks(), Workload(), session)
        found += session.once("race", lambda: taking.race(RACES[self.preset], session))
        return found

    def asks(self) -> list[Ask]:
        """Processes for the groupings of rows; NumPy's tells this host's limits too."""
        cores = host.cores_allowed()
        found = [
            Ask(Contestant("numpy", "cpu", cores), ("rate", "product", "rows")),
            Ask(Contestant("numpy", "cpu", 1), ("near",)),
            Ask(Contestant("tf-step", "cpu", cores), ("rows",)),
        ]
        return found + [Ask(Contestant("jax-step", device, cores), ("rows",)) for device in self.usable_devices()]

    # --- the digits ------------------------------------------------------------------------------------------

    def digits_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """The counts in words."""
        found = rungs.counted(records)
        if found is None:
            return pages.missing("the non-zero pixels", records)
        each = sum(found["by_pixel"]) / found["images"]
        unions = "; ".join(f"{rows:,.0f} in a batch of {int(size):,}" for size, rows in found["rows"].items())
        return pages.Markdown(
            f"Of {len(found['by_pixel'])} pixels an image uses {each:,.0f} on average "
            f"({each / len(found['by_pixel']):.1%}). {found['used']} pixels are used by any of the {found['images']:,} "
            f"training images; by some image of a batch are used: {unions}."
        )

    def digits_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """The digit plane: how many images use each pixel."""
        found = rungs.counted(records)
        if found is None:
            return pages.missing("the non-zero pixels", records)
        share = np.array(found["by_pixel"]) / found["images"]
        side = int(len(share) ** 0.5)

        def draw(canvas: Any, theme: dict[str, str], dark: bool) -> None:
            axes = canvas.subplots()
            plane = axes.imshow(100 * share.reshape(side, side), cmap="magma" if dark else "magma_r", vmin=0)
            axes.grid(visible=False)
            axes.set(xlabel="column", ylabel="row")
            canvas.colorbar(plane, ax=axes, label="images in which the pixel is not zero (%)")

        alt = (
            f"A plane of {side} by {side} pixels: used by up to {share.max():.0%} of the images in the middle, by none "
            f"at {int((share == 0).sum())} pixels of the rim"
        )
        return figures.Figure(draw, alt, height=4.4)

    # --- the rungs -------------------------------------------------------------------------------------------

    def rungs_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """Which rung is lowest at each batch size, and how many of its epochs fit into one of Keras."""
        said = []
        for size in self.batch_sizes:
            found = [row for row in rungs.rows(records) if row.record.trained.batch_size == size and row.times_floor]
            less = [row for row in found if rungs.kind(row.record.loop) != "dense" and row.times_floor]
            if not less:
                continue
            timed = [(row.times_floor, row) for row in less if row.times_floor]
            times, best = min(timed, key=lambda pair: pair[0].median)
            text = f"at batch size {size:,} `{best.record.loop}` is lowest, with {tables.interval(times)} times the "
            text += "dense floor"
            keras = next((row.record for row in found if row.record.loop == "keras-fit"), None)
            if keras and (ratio := tables.ratio(keras, best.record)):
                text += f"; {tables.interval(ratio)} of its epochs fit into one of Keras"
            said.append(text)
        if not said:
            return pages.missing("rungs under the floor", records)
        return pages.Markdown(f"On this host {'; '.join(said)}.")

    def rungs_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Times the dense floor, a row a rung and a marker a batch size."""
        found = [row for row in rungs.rows(records) if row.times_floor]
        if not found:
            return pages.missing("rungs under the floor", records)
        names = list(dict.fromkeys(rungs.name(row.record) for row in found))
        values = {
            f"batch size {size:,}": [
                next(
                    (
                        row.times_floor.median
                        for row in found
                        if row.times_floor and (rungs.name(row.record), row.record.trained.batch_size) == (name, size)
                    ),
                    np.nan,
                )
                for name in names
            ]
            for size in dict.fromkeys(row.record.trained.batch_size for row in found)
        }
        alt = "Times the dense floor: " + "; ".join(
            f"{name} at {size} {tables.number(value)}"
            for size, of_size in values.items()
            for name, value in zip(names, of_size, strict=True)
            if np.isfinite(value)
        )
        return figures.dots(names, values, "times the dense floor (lower decile of turns)", alt)

    def rungs_table(self, records: Sequence[Record]) -> pages.Html:
        """The numbers of the figure, the work of each rung, its own bound, and what its preparation takes."""
        return self._shown(rungs.table(records), rungs.part(records, None), "rungs under the floor")

    def roofline(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """The rungs at the smallest batch size under this host's measured roof."""
        sizes = [row.record.trained.batch_size for row in rungs.rows(records)]
        frame = rungs.roofline_frame(records, min(sizes)) if sizes else pd.DataFrame()
        if frame.empty:
            return pages.missing("the rungs beside this host's limits", records)
        alt = f"Roofline of whole steps at batch size {min(sizes)}; achieved GFLOP/s of their own work: " + "; ".join(
            f"{r.op} {tables.number(r.achieved_flops_per_s / 1e9)}" for r in frame.itertuples()
        )
        return roofline.roofline(frame, "measured here", alt)

    def limit_sentence(self, records: Sequence[Record]) -> pages.Markdown:
        """What the kernel moves between a core and its second-level cache, against the rate measured here."""
        found = rungs.limits(records)
        chosen = [r for r in rungs.rows(records) if r.record.loop == "sparse" and r.seconds and r.work and r.bound_s]
        chosen = [r for r in chosen if r.record.threads != 1 or host.cores_allowed() == 1]
        if found is None or not chosen or not np.isfinite(found.near_bytes_per_s):
            return pages.missing("the traffic of `sparse`", records)
        row = chosen[0]
        assert row.work
        assert row.seconds
        steps = row.record.steps_per_epoch
        near, flops = (
            steps * amount / rate
            for amount, rate in (
                (row.work.near_bytes, found.near_bytes_per_s),
                (row.work.flops, found.flops_per_s),
            )
        )
        return pages.Markdown(
            f"At batch size {row.record.trained.batch_size} a step of `sparse` moves {row.work.near_bytes / 1e6:,.1f} "
            f"MB of first weights: a row for each non-zero pixel forward, each row of a block twice in the update. At "
            f"the {found.near_bytes_per_s / 1e9:,.0f} GB/s that the cores were seen to read from their second-level "
            f"caches that takes {tables.number(near)} s an epoch; its FLOPs at this host's peak would take "
            f"{tables.number(flops)} s. Measured: {tables.interval(row.seconds)} s."
        )

    def noise_table(self, records: Sequence[Record]) -> pages.Html:
        """The same rungs on images without a zero, beside the dense floor on those."""
        return self._shown(shown.noise(records), rungs.part(records, "noise"), "images without a zero")

    # --- many models, and the race -----------------------------------------------------------------------------

    def models_table(self, records: Sequence[Record]) -> pages.Html:
        """Seconds of an epoch of all models, against as many dense floors."""
        return self._shown(shown.models(records), rungs.part(records, "models"), "many models")

    def race_table(self, records: Sequence[Record]) -> pages.Html:
        """From the command to 97 %, step by step, and the import of Keras beside it."""
        return pages.Html(tables.as_html(shown.race(records), shown.RACE, "the race"))

    # --- words -----------------------------------------------------------------------------------------------

    def touched_table(self, records: Sequence[Record]) -> pages.Html:
        """Rows that a batch of word pairs looks up, different ones among them, and bytes."""
        caption = f"Counted; {words.DIMENSIONS} float32 numbers a row, {words.NEGATIVES} negatives a pair"
        return pages.Html(tables.as_html(wording.touched_table(records), caption, "rows that a batch touches"))

    def rows_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Nanoseconds a pair by grouping on the words of the text, a marker a batch size."""
        found = wording.timed(records)
        vocabularies = sorted({row.vocabulary for row in found})
        if not vocabularies:
            return pages.missing("skip-gram by grouping", records)
        chosen = vocabularies[len(vocabularies) // 2]
        here = [row for row in found if row.vocabulary == chosen]
        names = list(dict.fromkeys(wording.shown(row) for row in here))
        values = {}
        for pairs in sorted({row.pairs for row in here}):
            by_name = {wording.shown(row): 1e3 * row.us.median / pairs for row in here if row.pairs == pairs}
            values[f"{pairs:,} pairs in a batch"] = [by_name.get(name, np.nan) for name in names]
        alt = f"Nanoseconds a pair, {chosen:,} words: " + "; ".join(
            f"{name} with {pairs} {tables.number(value)}"
            for pairs, of_pairs in values.items()
            for name, value in zip(names, of_pairs, strict=True)
            if np.isfinite(value)
        )
        return figures.dots(names, values, f"nanoseconds a pair (median; {chosen:,} words)", alt)

    def winners_table(self, records: Sequence[Record]) -> pages.Html:
        """Which grouping is quickest at which vocabulary and batch size."""
        return self._shown(wording.winners(records), probing.select(records, "rows"), "skip-gram by grouping")

    def rows_table(self, records: Sequence[Record]) -> pages.Html:
        """Every grouping at every vocabulary and batch size."""
        missing = {r.loop: r.reason for r in records if r.status != "ok" and r.part is None and r.workload is None}
        frame = wording.table(records)
        return self._shown(frame, probing.select(records, "rows"), f"skip-gram by grouping ({missing or 'no record'})")

    def _shown(self, frame: pd.DataFrame, records: Sequence[Record], of: str) -> pages.Html:
        return pages.Html(tables.as_html(frame, pages.caption(records, self.settings), of))


def _marked(found: Sequence[Record], part: str) -> list[Record]:
    return [record.model_copy(update={"part": part}) for record in found]
