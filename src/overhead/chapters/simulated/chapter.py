"""Chapter 11: a simulated GPU in real time. Nothing on its page was measured on one; each table and figure says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
import pandas as pd
from pydantic import BeforeValidator

from overhead.chapters import pages
from overhead.chapters.base import Chapter
from overhead.lab import exercises, loops, opencl
from overhead.lab.device import Clock, Device, Simulated, preset
from overhead.lab.loops import LabLoop
from overhead.machine.alone import measuring
from overhead.measure.session import Session
from overhead.model import gpus
from overhead.model.replay import launched
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record, Samples, Timing
from overhead.records.stats import Interval
from overhead.showing import figures, tables

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

DEVICE = "simulated"  # in the place of cpu and gpu, so that no table of a host's devices takes these records in
SHOWN: dict[str, type[LabLoop]] = {
    "op by op": loops.OpByOp, "compiled step, kernel by kernel": loops.Fused,
    "graph of the unfused step": loops.Graph, "graph of the compiled step": loops.FusedGraph,
}  # fmt: skip
WAITED, RETURNED, CALL = "wall", "returned", "call"  # the clocks: to the end of the work, to that of the call
FORGOTTEN = ("graph of the unfused step", "compiled step, kernel by kernel")
DOUBLED = ("op by op", "compiled step, kernel by kernel")  # at every batch size
INK = ("#8250df", "#c297ff")  # of what is simulated, on light pages and on dark ones: no framework's colour
QUEUE, REAL = "queue", "opencl"  # of the records that are of no loop


def _gpu(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a GPU, got {value!r}")
    return gpus.preset(value).name


class Lab(Chapter, frozen=True, strict=True, extra="forbid"):
    """The exercises of `overhead lab`, several times each, on one simulated GPU."""

    name: ClassVar[str] = "11-lab"

    gpu: Annotated[str, BeforeValidator(_gpu)] = "RTX 3060"

    @property
    def device(self) -> Device:
        return preset(self.gpu)

    def cases(self) -> list[tuple[str, Workload]]:
        """Loops and workloads: each loop at 32, two at every batch size, and the two of the first exercise."""
        found = [(name, Workload()) for name in SHOWN]
        found += [(name, Workload(batch_size=size)) for name in DOUBLED for size in exercises.BATCHES[1:]]
        return found + [(name, exercises.SHORT) for name in FORGOTTEN]

    def take(self, session: Session) -> list[Record]:
        """Every case in as many rounds as the preset has at least, the queue once, a real queue where there is one."""
        with measuring(session.force):
            found = session.once("loops", lambda: self._loops(session, Clock()))
            found += session.once(QUEUE, lambda: [self._queue(session, Clock())])
            return found + session.once(REAL, lambda: [self._real(session)])

    def _loops(self, session: Session, clock: Clock) -> list[Record]:
        taken: dict[tuple[str, Workload], dict[str, list[float]]] = {case: {} for case in self.cases()}
        for round_ in range(session.preset.rounds[0]):
            session.say(f"simulated {self.gpu}: round {round_ + 1} of {session.preset.rounds[0]}")
            for name, workload in taken:
                clocks = {WAITED: True, RETURNED: False} if workload == exercises.SHORT else {WAITED: True}
                for which, wait in clocks.items():
                    seconds = exercises.epoch_s(SHOWN[name], self.device, workload, clock, wait=wait)
                    taken[name, workload].setdefault(which, []).append(seconds)
        return [
            self._record(session, name, workload=workload, timing=_timing(workload.steps, clocks))
            for (name, workload), clocks in taken.items()
        ]

    def _queue(self, session: Session, clock: Clock) -> Record:
        """Seconds of each of so many calls that the queue fills, each kernel as long as many launches."""
        device = Simulated(self.device, clock)
        calls = []
        for _ in range(self.device.queue + 200):
            began = clock.now()
            device.launch(exercises.LONG_KERNEL_S)
            calls.append(clock.now() - began)
        device.synchronise()
        return self._record(session, QUEUE, op=QUEUE, timing=_timing(1, {CALL: calls}))

    def _real(self, session: Session) -> Record:
        about: dict[str, Any] = {"loop": REAL, "op": REAL, "device": "cpu", **session.provenance}
        try:
            name, commands, waited_ns = opencl.queued()
        except opencl.Missing as missing:
            return Record(status="declined", reason=str(missing), **about)
        columns = {field: [ns * 1e-9 for ns in values] for field, values in
                   zip(opencl.Command._fields, zip(*commands, strict=True), strict=True)}  # fmt: skip
        timing = _timing(1, {**columns, WAITED: [waited_ns * 1e-9]})
        return Record(status="ok", device_name=name, timing=timing, **about)

    def _record(self, session: Session, loop: str, **fields: Any) -> Record:
        return Record(
            status="ok", loop=loop, device=DEVICE, device_name=f"simulated {self.gpu}", settings={"simulated": "true"},
            **fields, **session.provenance,
        )  # fmt: skip

    # The page

    def note(self) -> pages.Markdown:
        """What is simulated, and from which figures."""
        d = self.device
        return pages.Markdown(
            f"**Simulated {self.gpu}**: no such device is here, and nothing below was measured on one. A launch keeps "
            f"the host for {tables.number(d.launch_s * 1e6)} us, kernels start at least "
            f"{tables.number(d.kernel_s * 1e6)} us apart, {d.queue:,} launches may be under way, a wait takes "
            f"{tables.number(d.synchronise_s * 1e6)} us: the published figures of chapter 8. The time is real, so that "
            "clocks are deceived as on a GPU."
        )

    def forgot(self, records: Sequence[Record]) -> pages.Html:
        """The first exercise: seconds an epoch until the last call returned, and until the device was done."""
        rows = []
        for record in self._of(records, exercises.SHORT):
            waited, returned = _interval(record, WAITED), _interval(record, RETURNED)
            rows.append(
                {
                    "loop": record.loop,
                    "until the last call returned, ms": tables.interval(_times(returned, 1e3)),
                    "until the device was done, ms": tables.interval(_times(waited, 1e3)),
                    "n": waited.n,
                }
            )
        return self._table(rows)

    def winner(self, records: Sequence[Record]) -> pages.Markdown:
        """Who seems to win without a wait, and who wins."""
        found = self._of(records, exercises.SHORT)
        if not found:
            return pages.missing("the first exercise", records)
        seeming, real = (
            min((_interval(record, clock).median, record.loop) for record in found)[1] for clock in (RETURNED, WAITED)
        )
        return pages.Markdown(
            f"Simulated {self.gpu}. Without a wait the winner seems to be the **{seeming}**; when the device is waited "
            f"for it is the **{real}**."
        )

    def queue_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Microseconds of each call, in order."""
        record = next((r for r in records if r.op == QUEUE and r.status == "ok"), None)
        if record is None:
            return pages.missing("the queue", records)
        calls = 1e6 * np.array(record.processes(CALL)[0])

        def draw(axes: Any, dark: bool) -> None:
            axes.plot(np.arange(1, len(calls) + 1), calls, ".", ms=2.5, color=INK[dark])
            axes.set(xlabel="number of the launch", ylabel="microseconds of the call", ylim=(0, 1.5 * np.max(calls)))

        return self._figure(draw, f"calls take {tables.number(float(np.median(calls[:500])))} us until the queue is "
                            f"full, and then {tables.number(float(np.median(calls[-50:])))} us")  # fmt: skip

    def batch_figure(self, records: Sequence[Record]) -> figures.Figure | pages.Markdown:
        """Seconds an epoch of two loops against batch size, each beside a line that halves with every doubling."""
        whole = [r for r in records if r.status == "ok" and r.loop in DOUBLED and r.trained.images == Workload().images]
        curves = {
            name: {r.trained.batch_size: _interval(r, WAITED).median for r in whole if r.loop == name}
            for name in DOUBLED
        }
        sizes = sorted(set.intersection(*map(set, curves.values())))
        if not sizes:
            return pages.missing("epochs by batch size", records)

        def draw(axes: Any, dark: bool) -> None:
            for mark, (name, of_size) in zip(figures.MARKERS, curves.items(), strict=False):
                axes.plot(sizes, [of_size[size] for size in sizes], f"{mark}-", color=INK[dark], label=name)
                halved = [of_size[sizes[0]] * sizes[0] / size for size in sizes]
                axes.plot(sizes, halved, ls="--", color=figures.FLOOR[dark])
            axes.set(xscale="log", yscale="log", xlabel="batch size (images per step)", ylabel="seconds per epoch")
            figures.plain_ticks(axes.xaxis, sizes)
            figures.plain_ticks(axes.yaxis)
            axes.legend(loc="lower left")

        return self._figure(draw, "; ".join(f"{name}: {_halves(of_size)}" for name, of_size in curves.items()))

    def changes(self, records: Sequence[Record]) -> pages.Html:
        """A row a loop at 32: seconds an epoch, as many times the fastest, and what chapter 8 predicts."""
        found = {r.loop: _interval(r, WAITED) for r in self._of(records, Workload())}
        fastest = min((interval.median for interval in found.values()), default=0.0)
        rows = []
        for name, interval in found.items():
            says = launched(SHOWN[name].census, Workload(), gpus.preset(self.gpu)).total_s
            rows.append(
                {
                    "loop": name,
                    "epoch, s": tables.interval(interval),
                    "times the fastest": tables.number(interval.median / fastest),
                    "predicted by chapter 8, s": tables.number(says),
                    "simulated / predicted": f"{interval.median / says:.3f}",
                    "n": interval.n,
                }
            )
        return self._table(rows)

    def real_queue(self, records: Sequence[Record]) -> pages.Html | pages.Markdown:
        """The commands of a real queue: the call, and the device's own clock of it; or why there are none."""
        record = next((r for r in records if r.op == REAL), None)
        if record is None:
            return pages.missing("a real queue", records)
        if record.status != "ok":
            return pages.Markdown(f"Left out here: {pages.plain(record.reason)}.")
        columns = {field: record.processes(field)[0] for field in opencl.Command._fields}
        rows = [
            {"command": number, **{field.removesuffix("_ns") + ", us": tables.number(s * 1e6) for field, s in
                                   zip(columns, values, strict=True)}}
            for number, values in enumerate(zip(*columns.values(), strict=True), 1)
        ]  # fmt: skip
        total = tables.number(record.processes(WAITED)[0][0] * 1e6)
        caption = f"Not simulated: OpenCL on {record.device_name}; all commands and a wait at the end took {total} us"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, "commands in a queue of OpenCL"))

    def _of(self, records: Sequence[Record], workload: Workload) -> list[Record]:
        return [r for r in records if r.workload == workload and r.status == "ok" and r.loop in SHOWN]

    def _table(self, rows: list[dict[str, Any]]) -> pages.Html:
        caption = f"Simulated {self.gpu}: real time, no such device; median [95 % interval]"
        return pages.Html(tables.as_html(pd.DataFrame(rows), caption, f"simulated {self.gpu}"))

    def _figure(self, draw: Callable[[Any, bool], None], says: str) -> figures.Figure:
        title = f"Simulated {self.gpu}: no such device"

        def drawn(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
            axes = canvas.subplots()
            draw(axes, dark)
            axes.set_title(title)

        return figures.Figure(drawn, f"{title}; {says}", height=3.4)


def _halves(of_size: dict[int, float]) -> str:
    """Up to which batch size each doubling nearly halves the epoch, in words."""
    last = None
    for a, b in pairwise(sorted(of_size)):
        if of_size[b] > 0.6 * of_size[a]:
            break
        last = b
    return (
        f"each doubling nearly halves the epoch up to {last:,} images" if last else "doubling does not halve the epoch"
    )


def _timing(steps: int, clocks: dict[str, list[float]]) -> Timing:
    return Timing(samples=[
        Samples(clock=clock, steps=steps, process=0, round=list(range(len(values))), seconds=values)
        for clock, values in clocks.items()
    ])  # fmt: skip


def _interval(record: Record, clock: str) -> Interval:
    return stats.median_interval(record.processes(clock))


def _times(interval: Interval, factor: float) -> Interval:
    return Interval(interval.median * factor, interval.low * factor, interval.high * factor, interval.n)
