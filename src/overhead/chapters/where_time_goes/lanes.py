"""A step on a GPU as two lanes that run side by side: the host enqueues while the device works, so nothing is added.

In the steady state a step takes what the longer lane takes: the critical path. A sum would count the overlap twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from overhead.chapters.where_time_goes import pieces
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables
from overhead.showing.claims import CLOSES, HOLDS, closes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

LANES = {"host, in parallel": "keras", "device, at most": "cupy"}  # and whose colours they have
HOW = (
    "On a GPU the host enqueues while the device works. *Host*: the loop's calls until they have returned, a few steps "
    "at a time, so that no queue is full. *Device, at most*: the products and the other arithmetic alone, called back "
    "to back; where a piece is enqueued more slowly than it runs, this is its enqueue. *Critical path*: the longer of "
    "the two, in each round."
)


class Lanes(NamedTuple):
    """A loop's step on a GPU, microseconds a step; `device` is an upper bound."""

    loop: str
    host: Interval
    device: Interval
    path: Interval  # the longer lane of each round
    step: Interval
    residual: Interval

    @property
    def longer(self) -> str | None:
        """The lane that the step waits for; None where the intervals overlap."""
        if self.host.low > self.device.high:
            return "host"
        return "device" if self.device.low > self.host.high else None

    def sentence(self) -> str:
        """One line of Markdown."""
        words = (
            f"- **{self.loop} (gpu)**: {tables.number(self.step.median)} us a step. Side by side the host takes "
            f"{tables.interval(self.host)} us and the device at most {tables.interval(self.device)} us; "
        )
        says = {
            "host": "the critical path is the host's: fewer or cheaper launches would shorten the step",
            "device": "the critical path is at most the device's: less arithmetic would shorten the step",
            None: "which of the two is the critical path is not shown",
        }
        left = f"{tables.interval(self.residual)} us ({self.residual.median / self.step.median:+.0%})"
        if closes(self.residual, self.step.median).status == HOLDS:
            return words + says[self.longer] + f". The budget closes: {left} is left."
        return (
            words + says[self.longer] + f". That it is all but {CLOSES:.0%} of the step is not shown: {left} is left."
        )


def found(records: Sequence[Record], workload: Workload) -> list[Lanes]:
    """The lanes of every loop that was timed on a GPU with its calls and its pieces, in rounds that have them all."""
    lanes = []
    for record in records:
        of = record.workload
        if record.device != "gpu" or record.op is not None or record.status != "ok" or record.loop not in pieces.TERMS:
            continue
        if of is None or (of.layers, of.batch_size) != (workload.layers, workload.batch_size):
            continue
        names = [(part, term.whole_epoch) for term in pieces.TERMS[record.loop] for _, part in term.parts]
        taken = [(_by_round(record, f"piece:{name}"), workload.steps if whole else 1) for name, whole in names]
        step, host = _by_round(record, "wall"), _by_round(record, "dispatch")
        shared = sorted(set(step).intersection(host, *(values for values, _ in taken)))
        if not shared or not taken:
            continue
        device = [sum(values[r] / steps for values, steps in taken) for r in shared]
        path = [max(host[r], busy) for r, busy in zip(shared, device, strict=True)]
        series = (
            [host[r] for r in shared], device, path, [step[r] for r in shared],
            [step[r] - longest for r, longest in zip(shared, path, strict=True)],
        )  # fmt: skip
        lanes.append(Lanes(record.loop, *(stats.difference_interval(values) for values in series)))
    return lanes


def _by_round(record: Record, clock: str) -> dict[int, float]:
    """The median microseconds a step (or call), by round."""
    gathered: dict[int, list[float]] = {}
    for series in record.timing.samples if record.timing else []:
        if series.clock == clock:
            for round_, seconds in zip(series.round, series.values_s, strict=True):
                gathered.setdefault(round_, []).append(seconds / series.steps * 1e6)
    return {round_: median(values) for round_, values in gathered.items()}


def sentences(lanes: Sequence[Lanes]) -> list[str]:
    """How the lanes were found, and a line each; nothing without any."""
    return [*(lane.sentence() for lane in lanes), "", HOW] if lanes else []


def table(lanes: Sequence[Lanes]) -> pd.DataFrame:
    """A row a loop: both lanes, the critical path, the step and what is left, microseconds a step."""
    return pd.DataFrame(
        {
            "loop (gpu)": lane.loop,
            "host, us": tables.interval(lane.host),
            "device at most, us": tables.interval(lane.device),
            "critical path, us": tables.interval(lane.path),
            "step, us": tables.interval(lane.step),
            "left, us": tables.interval(lane.residual),
            "rounds": lane.step.n,
        }
        for lane in lanes
    )


def figure(sums: figures.Figure, lanes: Sequence[Lanes]) -> figures.Figure:
    """The figure of the budgets, and below two bars a loop that ran on a GPU, one above the other."""
    if not lanes:
        return sums
    said = "; ".join(
        f"{lane.loop} (gpu): host {tables.number(lane.host.median)} beside device {tables.number(lane.device.median)}, "
        f"measured step {tables.number(lane.step.median)}"
        for lane in lanes
    )

    own = 0.5 * len(lanes) + 1.0

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        halves: Any = canvas.subfigures(2, 1, height_ratios=[sums.height, own])
        above, below = halves
        sums.draw(above, theme, dark)
        axes = below.subplots()
        inks = {name: figures.COLOURS[of][dark] for name, of in LANES.items()}
        for row, lane in enumerate(lanes):
            for side, part, ink in zip((-0.16, 0.16), (lane.host, lane.device), inks.values(), strict=True):
                axes.barh(row + side, part.median, 0.3, color=ink, edgecolor=theme["paper"], linewidth=0.6)
            axes.plot([lane.step.median], [row], "D", color=theme["ink"], ms=6, mec=theme["paper"])
        for name, ink in inks.items():
            axes.plot([], [], color=ink, lw=7, label=name)
        axes.set_yticks(range(len(lanes)), [f"{lane.loop} (gpu)" for lane in lanes])
        axes.set(ylim=(len(lanes) - 0.4, -0.6), xlabel="microseconds per step, host and device side by side (medians)")
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, fontsize=9)

    return figures.Figure(draw, f"{sums.alt}; side by side: {said}", height=sums.height + own)
