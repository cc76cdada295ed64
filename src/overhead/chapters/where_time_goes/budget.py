"""A step's time as a sum of parts that were each measured; nothing is what is left over but the residual."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from overhead.measure.preparation import Turn
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import figures, tables
from overhead.showing.claims import CLOSES, HOLDS, closes

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

PIECE_BLOCK_S = 0.02
WATCHED_S = 0.6  # the driver's own sample interval is up to a sixth of a second


class Term(NamedTuple):
    """One part of a step: (sign, piece) sums, each taken as workload minus twin, over `per` calls a step."""

    name: str
    how: str
    parts: tuple[tuple[int, str], ...] = ()  # none: the twin's own step
    whole_epoch: bool = False  # a piece covers all steps of an epoch


CALLS = Term("calls", "the same loop on a 2-2-2 network: Python, framework and dispatch with next to no arithmetic")
PRODUCTS = Term("products", "the five products alone, less the same there", ((1, "products-into"),))
ELEMENTWISE = Term("elementwise", "all other arithmetic alone, less the same there", ((1, "elementwise-into"),))
ALLOCATION = Term(
    "allocation",
    "page faults counted in an epoch of the loop (`ru_minflt`), each at what a page costs that is taken from the "
    "system, written to and given back; memory that the allocator kept costs nothing here",
    ((1, "page-faults"),),
)
DATA = Term("data", "taking the batches, less the same there", ((1, "data"),))
# The terms of each loop; a piece is of the loop's own framework.
TERMS: dict[str, list[Term]] = {
    "numpy": [CALLS, PRODUCTS, ELEMENTWISE, ALLOCATION, DATA],
    "jax-step": [CALLS, PRODUCTS, ELEMENTWISE],
    "jax-epoch": [
        CALLS,
        PRODUCTS._replace(parts=((1, "products-epoch"),), whole_epoch=True),
        ELEMENTWISE._replace(parts=((1, "elementwise-epoch"),), whole_epoch=True),
    ],
    "keras-fit": [CALLS, PRODUCTS, ELEMENTWISE, DATA._replace(parts=((1, "data-epoch"),), whole_epoch=True)],
}
# Loops whose pieces are called at the loop's own pace: between two calls the threads that they use fall asleep.
PACED = ["keras-fit"]
# Loops that are also budgeted with one thread: what only their usual budget leaves over comes with the second core.
ALSO_ALONE = ["numpy", "jax-epoch"]
ALL_TERMS = (CALLS, PRODUCTS, ELEMENTWISE, ALLOCATION, DATA)
ALONE = ", 1 thread"


FAULTS, UTILISATION = "page-faults", "gpu-utilisation"  # what is counted, and what is a share
PAGES = "pages"  # the probe that the cost of a page fault is taken from


def pieces(loop: str) -> list[str]:
    """Names of the pieces that a loop's budget needs."""
    return list(dict.fromkeys(piece for term in TERMS[loop] for _, piece in term.parts))


def take_pieces(turn: Turn, round_: int) -> None:
    """Time the pieces of the loop's step, one block each; page faults are counted in an epoch and have their cost."""
    case, steps = turn.case, turn.case.workload.steps
    loop, (step_s, *_) = case.contestant.loop, [process[-1] / steps for process in case.epochs()[-1:]]
    whole = [piece for term in TERMS[loop] if term.whole_epoch for _, piece in term.parts]
    for names, clock in (
        ([name for name in pieces(loop) if name not in whole], "paced" if loop in PACED else "end"),
        (whole, "end"),
    ):
        if not names:
            continue
        answer = turn.worker.ask(
            "probe", kind="piece", workload=case.workload.model_dump(mode="json"),
            names=[PAGES if name == "page-faults" else name for name in names],
            block_s=PIECE_BLOCK_S, samples=1, clocks=[clock], pause_ns=round(step_s * 1e9),
        )  # fmt: skip
        for probe in answer["probes"]:
            name, calls, ns = probe["name"], probe["calls"], probe[f"{clock}_ns"]
            if name == PAGES:
                faults = turn.worker.ask("faults", steps=steps)["faults"]
                case.keep_count(FAULTS, steps, turn.process, round_, faults)
                pages = calls * probe["bytes"] / mmap.PAGESIZE
                name, calls, ns = "page-faults", steps, [round(faults * block / pages) for block in ns]
            case.keep(f"piece:{name}", calls, turn.process, round_, ns)


class Budget(NamedTuple):
    """A loop's step: its terms, their sum, the measured step and what is unexplained, microseconds a step."""

    backend: str
    terms: list[tuple[Term, Interval]]
    total: Interval
    step: Interval
    residual: Interval
    faults: float | None = None  # page faults a step, where they are a term

    @property
    def unexplained(self) -> float:
        """The residual as a share of the step."""
        return self.residual.median / self.step.median

    @property
    def closes(self) -> bool:
        """Whether the whole interval of the residual lies within `CLOSES` of the step."""
        return closes(self.residual, self.step.median).status == HOLDS

    def sentence(self) -> str:
        """One line of Markdown."""
        parts = ", ".join(f"{term.name} {tables.number(_rounded(i).median)}" for term, i in self.terms)
        words = (
            f"- **{self.backend}**: {tables.number(self.step.median)} us a step; measured apart, {parts}: together "
            f"{tables.number(self.total.median)} us. "
        )
        if self.faults is not None:
            words += f"Its new arrays cause {self.faults:,.0f} page faults a step. "
        left = f"{tables.interval(_rounded(self.residual))} us ({self.unexplained:+.0%})"
        if self.closes:
            return words + f"The budget closes: {left} is left."
        if self.residual.low > 0:
            return words + f"It does not close: {left} is unexplained."
        if self.residual.high < 0:
            return words + f"It does not close: the parts cost more alone than together, by {left}."
        return words + f"That it closes is not shown: {left} is left, and its interval reaches beyond {CLOSES:.0%}."

    def cells(self) -> dict[str, str]:
        """A text a term, then sum, step and residual: microseconds with interval, and the share of the step."""
        found = {term.name: interval for term, interval in self.terms}
        found |= {"sum": self.total, "step": self.step, "residual": self.residual}
        return {
            name: f"{tables.interval(_rounded(interval))} ({round(100 * interval.median / self.step.median)} %)"
            for name, interval in found.items()
        }


def sentences(found: Sequence[Budget]) -> list[str]:
    """A line of Markdown a budget; one that does not close is told with what one thread leaves over."""
    lines = []
    for ours in found:
        alone = next((b for b in found if b.backend == f"{ours.backend}{ALONE}"), None)
        line = ours.sentence()
        if alone and not ours.closes:
            line += f" With one thread {tables.interval(_rounded(alone.residual))} us is left"
            apart = ours.residual.low > alone.residual.high
            line += ": the rest comes with the other threads." if apart else "; the two intervals overlap."
        lines.append(line)
    return lines


def table(found: Sequence[Budget]) -> pd.DataFrame:
    """A row a term, then sum, step and residual; a column a loop; the last column is the number of rounds."""
    columns = {budget.backend: budget.cells() for budget in found}
    names = [term.name for term in ALL_TERMS if any(term.name in cells for cells in columns.values())]
    rounds = "/".join(dict.fromkeys(str(budget.step.n) for budget in found))
    rows = []
    for name in [*names, "sum", "step", "residual"]:
        row = {"term": name} | {f"{b}, us a step": cells.get(name, tables.NOT_MEASURED) for b, cells in columns.items()}
        rows.append(row | {"rounds": rounds})
    return pd.DataFrame(rows)


def how() -> str:
    """A line of Markdown a term: how it is measured."""
    lines = [f"- *{term.name}*: {term.how}." for term in ALL_TERMS]
    paced = ", ".join(f"`{loop}`" for loop in PACED)
    lines.append(
        f"- For {paced} products and other arithmetic are called once a step's time, as in the loop, since between two "
        "calls the library's threads go to sleep and have to be woken."
    )
    return "\n".join(lines)


def budgets(records: Sequence[Record], workload: Workload, twin: Workload) -> list[Budget]:
    """A budget for every loop on the CPU with records of `workload` and of `twin`; `lanes` are those of a GPU."""
    found = []
    for record in records:
        if record.op is not None or record.status != "ok" or not _is_of(record, workload) or record.loop not in TERMS:
            continue
        if record.device == "gpu":  # host and device overlap there: nothing may be added
            continue
        other = next(
            (
                r for r in records
                if (r.loop, r.device, r.threads, r.status, r.op) == (*_of(record), "ok", None) and _is_of(r, twin)
            ),
            None,
        )  # fmt: skip
        if other is None or not all(_by_round(record, f"piece:{name}").size for name in pieces(record.loop)):
            continue
        steps = workload.steps
        terms = [(term, _term(term, record, other, steps)) for term in TERMS[record.loop]]
        whole = pd.concat([_by_round(record, "wall"), *(values for _, values in terms)], axis=1, join="inner").dropna()
        if whole.empty:  # no round in which everything was taken
            continue
        wall, sums = whole.iloc[:, 0], whole.iloc[:, 1:].sum(axis=1)
        measured = [(term, stats.difference_interval(values.dropna())) for term, values in terms]
        step = stats.difference_interval(wall)
        # Medians that a reader can add up; the intervals are those of the rounds' own sums and differences.
        total = _around(sum(interval.median for _, interval in measured), stats.difference_interval(sums))
        residual = _around(step.median - total.median, stats.difference_interval(wall - sums))
        counted = [count / s.steps for s in record.of_no_unit(FAULTS) for count in s.counts or []]
        faults = float(np.median(counted)) if counted else None
        alone = record.threads == 1 and any(_of(r)[:2] == _of(record)[:2] and (r.threads or 0) > 1 for r in records)
        name = f"{record.loop} ({record.device})" + (ALONE if alone else "")
        found.append(Budget(name, measured, total, step, residual, faults))
    return found


def _rounded(interval: Interval) -> Interval:
    """`interval` to the nanosecond (its values are microseconds): what rounding left over is no measurement."""
    median, low, high = (round(value, 3) + 0.0 for value in (interval.median, interval.low, interval.high))
    return Interval(median, low, high, interval.n)


def _around(median: float, interval: Interval) -> Interval:
    """`interval` with this median, widened to hold it."""
    return Interval(median, min(median, interval.low), max(median, interval.high), interval.n)


def _of(record: Record) -> tuple[str | None, str | None, int | None]:
    return record.loop, record.device, record.threads


def _is_of(record: Record, workload: Workload) -> bool:
    kept = record.workload
    return kept is not None and (kept.layers, kept.batch_size) == (workload.layers, workload.batch_size)


def _by_round(record: Record, clock: str) -> pd.Series:
    """The median microseconds a step (or call), by round."""
    parts = [
        pd.DataFrame({"round": s.round, "us": np.array(s.values_s) / s.steps * 1e6})
        for s in (record.timing.samples if record.timing else [])
        if s.clock == clock
    ]
    return pd.concat(parts).groupby("round")["us"].median() if parts else pd.Series(dtype=float)


def _term(term: Term, record: Record, twin: Record, steps: int) -> pd.Series:
    """Microseconds a step of one term, by round; nan in a round that one of its parts lacks."""
    if not term.parts:
        return _by_round(twin, "wall")
    values = []
    for sign, name in term.parts:
        full, tiny = _by_round(record, f"piece:{name}"), _by_round(twin, f"piece:{name}")
        values.append(sign * (full - tiny) / (steps if term.whole_epoch else 1))
    return sum(values[1:], values[0])


def watch(turn: Turn, round_: int) -> None:
    """Read the driver's utilisation while the loop runs for a while; kept as shares."""
    from overhead.profiles.nvml import NvmlSampler
    from overhead.profiles.summary import ProfileError

    epochs = [s for process in turn.case.epochs() for s in process]
    steps = max(1, round(WATCHED_S / max(epochs[-1], 1e-6))) * turn.case.workload.steps
    try:
        with NvmlSampler() as sampler:
            turn.worker.ask("run", steps=steps)
    except ProfileError:
        return  # no driver library for Python: the page says that no GPU was watched
    shares = [s.state.utilisation for s in sampler.samples if s.state.utilisation is not None]
    turn.case.keep_shares(UTILISATION, steps, turn.process, round_, shares)


def figure(found: list[Budget], batch_size: int) -> figures.Figure:
    """A bar a loop, its terms end to end, and a marker where the measured step ends; microseconds a step."""
    names = [budget.backend for budget in found]
    terms = list(dict.fromkeys(term.name for budget in found for term, _ in budget.terms))
    alt = f"Microseconds of a step at batch size {batch_size} as a sum of parts: " + "; ".join(
        f"{b.backend}: " + ", ".join(f"{t.name} {tables.number(i.median)}" for t, i in b.terms)
        + f", measured step {tables.number(b.step.median)}"
        for b in found
    )  # fmt: skip

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        axes = canvas.subplots()
        palette = dict(
            zip(terms, (figures.COLOURS[k][dark] for k in ("tf", "numpy", "jax", "keras", "cupy")), strict=False)
        )
        for row, budget in enumerate(found):
            at = 0.0
            for term, interval in budget.terms:
                width = max(interval.median, 0.0)  # a part measured below nothing has no width
                axes.barh(row, width, 0.62, left=at, color=palette[term.name], edgecolor=theme["paper"], linewidth=0.6)
                at += width
            step = budget.step
            axes.errorbar([step.median], [row], xerr=[[step.median - step.low], [step.high - step.median]], fmt="D",
                          color=theme["ink"], ms=6, capsize=3, mec=theme["paper"])  # fmt: skip
        for term in terms:
            axes.plot([], [], color=palette[term], lw=7, label=term)
        axes.plot([], [], "D", color=theme["ink"], ls="none", label="the step, measured")
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set(xlabel=f"microseconds per step (medians; batch size {batch_size})", xlim=(0, None))
        axes.grid(axis="y", visible=False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, fontsize=9)

    return figures.Figure(draw, alt, height=1.7 + 0.5 * max(len(names), 1))


def spin_figure(frame: pd.DataFrame) -> figures.Figure:
    """Milliseconds that an epoch gains against the wait at each dispatch, a panel a loop, with the line expected."""
    alt = "Milliseconds that an epoch gains by a wait at every dispatch: " + "; ".join(
        f"{row.backend} slope {tables.number(row.slope.median)} of {row.expected:,}" for row in frame.itertuples()
    )
    columns = 3
    lines = -(-max(len(frame), 1) // columns)

    def draw(canvas: Canvas, theme: dict[str, str], dark: bool) -> None:
        panels = np.atleast_1d(canvas.subplots(lines, columns)).ravel()
        for panel, row in zip(panels, frame.itertuples(), strict=False):
            x, y = row.points["spin_us"], (row.points["epoch_s"] - row.points["epoch_s"].iloc[0]) * 1e3
            scale, unit = (1e3, "ms") if x.max() > 1e3 else (1.0, "us")
            free = row.hidden_us.median if row.threaded else 0.0
            expected = row.expected * np.maximum(0, x - x.iloc[0] - free) / 1e3
            corner = sorted([*zip(x, expected, strict=True), (x.iloc[0] + max(0.0, free), expected.iloc[0])])
            panel.plot(*(np.array(corner).T / [[scale], [1]]), ls="--", color=theme["faint"], lw=1.2)
            panel.plot(x / scale, y, "o-", color=figures.colour(row.backend, dark), ms=5)
            panel.set_title(
                f"{row.backend}\nslope {tables.number(row.slope.median, 4)} of {row.expected:,}", fontsize=9
            )
            panel.set_xlabel(f"wait at a dispatch ({unit})", fontsize=9)
            panel.tick_params(labelsize=8)
        for panel in panels[::columns]:
            panel.set_ylabel("epoch gains (ms)", fontsize=9)
        for panel in panels[len(frame) :]:
            panel.set_visible(False)

    return figures.Figure(draw, alt, height=0.4 + 2.3 * lines)
