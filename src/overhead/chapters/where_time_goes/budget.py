"""A step's time as a sum of parts that were each measured; nothing is what is left over but the residual."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from overhead.chapters.where_time_goes.pieces import ALL_TERMS, FAULTS, TERMS, Term, of_loop
from overhead.problem.workload import Workload
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.claims import CLOSES, HOLDS, closes

ALONE = ", 1 thread"  # how the second budget of a loop is named


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
        if other is None or not all(_by_round(record, f"piece:{name}").size for name in of_loop(record.loop)):
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
