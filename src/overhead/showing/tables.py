"""Records to tables: pandas frames with units in the column names, and how they are shown on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

import pandas as pd

from overhead.loops import FLOORS
from overhead.records import headline as headlines
from overhead.records import stats
from overhead.records.levels import over_turns
from overhead.records.record import Record
from overhead.records.stats import Interval

NOT_MEASURED = "–"
NUMBER = re.compile(r"–|[-+±<≥]?\d[\d,.]*(e[-+]?\d+)?( \[[^\]]*\])?( ?[%×]| [a-zA-Z]{1,6})?|inf|nan")


def floor_of(records: Sequence[Record], batch_size: int, device: str) -> tuple[Record, Interval] | None:
    """The floor of a device at `batch_size`: over libraries and threads, the least headline, seconds per epoch.

    The record that holds it, and its interval; None when no floor was measured.
    """
    best: tuple[Record, Interval] | None = None
    for record in records:
        here = record.device == device and _batch_size(record) == batch_size
        if here and record.loop in FLOORS and (found := headline(record)):
            if best is None or found.median < best[1].median:
                best = record, found
    return best


def headline(record: Record) -> Interval | None:
    """A loop's undisturbed seconds per epoch (`records.headline`); None for one that was not timed."""
    return headlines.headline(headlines.turns(record))


def times_floor(record: Record, records: Sequence[Record]) -> Interval | None:
    """A loop's headline over the floor's, of as many steps an epoch on the same device.

    The floor is the library and number of threads with the least headline. None where they share no set of processes.
    """
    alike = [r for r in records if r.loop in FLOORS and r.steps_per_epoch == record.steps_per_epoch]
    size = _batch_size(record)
    floor = floor_of(alike, size, record.device) if size is not None else None
    return ratio(record, floor[0]) if floor else None


class EpochRow(NamedTuple):
    """What one record of a loop says of its epochs; what was not measured is None."""

    record: Record
    headline_s: Interval | None = None  # undisturbed seconds per epoch (`records.headline`); n turns
    epoch_s: Interval | None = None  # typical seconds per epoch: the median
    dispatch_us: Interval | None = None  # microseconds a step until the call returned
    times_floor: Interval | None = None
    spread: stats.Spread | None = None
    processes: int = 0
    drifts: bool = False


def epoch_rows(records: Sequence[Record]) -> list[EpochRow]:
    """A row a loop, device, threads and batch size, in the order of the records; floors, ops and members have none."""
    rows = []
    for record in records:
        if record.op is not None or record.member is not None or record.loop in FLOORS:
            continue
        if record.status != "ok" or not record.timing:
            rows.append(EpochRow(record))
            continue
        epochs = record.epochs()
        calls = [[v / s.steps * 1e6 for v in s.values_s] for s in record.timing.samples if s.clock == "dispatch"]
        rows.append(
            EpochRow(
                record,
                headline_s=headline(record),
                epoch_s=over_turns(epochs),
                dispatch_us=stats.median_interval(calls) if calls else None,
                times_floor=times_floor(record, records),
                spread=stats.spread(epochs),
                processes=len(epochs),
                drifts=not all(stats.drift(process).settled for process in epochs),
            )
        )
    return rows


EPOCH_COLUMNS = [
    "loop", "device", "threads", "batch_size", "remainder", "status", "reason", "headline_s", "headline_low_s",
    "headline_high_s", "turns", "epoch_s", "low_s", "high_s", "n", "processes", "dispatch_us", "first_s",
    "images_per_s", "steps", "images_seen", "val_accuracy", "times_floor", "times_floor_low", "times_floor_high",
    "peak_rss_bytes", "stopped", "drift", "disturbed", "between", "within", "cores_allowed", "busy_threads", "placed_s",
]  # fmt: skip


def epochs_frame(records: Sequence[Record]) -> pd.DataFrame:
    """`epoch_rows` flat, for drawing and sorting: the columns are `EPOCH_COLUMNS`, whatever was measured.

    `between` and `within` are relative spreads (`stats.spread`); `drift` is a word for a table.
    """
    return pd.DataFrame([_flat(row) for row in epoch_rows(records)], columns=EPOCH_COLUMNS)


def _flat(row: EpochRow) -> dict[str, Any]:
    record = row.record
    workload = record.workload
    flat: dict[str, Any] = {
        "loop": record.loop,
        "device": record.device,
        "threads": record.threads,
        "batch_size": workload and workload.batch_size,
        "remainder": workload and workload.remainder,
        "status": record.status,
        "reason": record.reason,
        "steps": workload and workload.steps,
        "images_seen": workload and workload.images_seen,
        "val_accuracy": record.val_accuracy[-1] if record.val_accuracy else math.nan,
        "peak_rss_bytes": record.peak_rss_bytes or math.nan,
        "disturbed": "; ".join(record.disturbed),
        "cores_allowed": record.cores_allowed,
        "busy_threads": record.busy_threads,
        "placed_s": record.placed_s,
    }
    if row.headline_s:
        undisturbed = row.headline_s
        flat |= {"headline_s": undisturbed.median, "turns": undisturbed.n}
        flat |= {"headline_low_s": undisturbed.low, "headline_high_s": undisturbed.high}
    if row.epoch_s and row.spread and record.timing:
        flat |= {
            "epoch_s": row.epoch_s.median,
            "low_s": row.epoch_s.low,
            "high_s": row.epoch_s.high,
            "n": row.epoch_s.n,
            "processes": row.processes,
            "first_s": record.timing.first_s,
            "images_per_s": record.trained.images_seen / row.epoch_s.median,
            "stopped": record.timing.stopped,
            **row.spread._asdict(),
            "drift": "drifts" if row.drifts else "",
        }
    if row.dispatch_us:
        flat["dispatch_us"] = row.dispatch_us.median
    if row.times_floor:
        found = row.times_floor
        flat |= {"times_floor": found.median, "times_floor_low": found.low, "times_floor_high": found.high}
    return flat


def floors_frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row a library, thread count and batch size: the best process's seconds per epoch of products alone."""
    rows = []
    for record in records:
        if record.loop in FLOORS:
            row: dict[str, Any] = {
                "library": record.loop.removeprefix("floor-"),
                "device": record.device,
                "threads": record.threads,
                "batch_size": _batch_size(record),
                "status": record.status,
                "reason": record.reason,
            }
            if record.status == "ok":
                best = headline(record)
                assert best is not None
                row |= {"epoch_s": best.median, "low_s": best.low, "high_s": best.high, "n": best.n}
            rows.append(row)
    columns = ["library", "device", "threads", "batch_size", "status", "reason", "epoch_s", "low_s", "high_s", "n"]
    return pd.DataFrame(rows, columns=columns)


def ratio(slower: Record, faster: Record) -> Interval | None:
    """The headline of `slower` over that of `faster`; None where they share no set of processes."""
    return headlines.quotient(headlines.turns(slower), headlines.turns(faster))


ONE_PROCESS_EACH = "no verdict: one process each"


def verdict(ours: Record, other: Record, found: Interval) -> str:
    """What a ratio of headlines says; nothing between single processes, since one can be slow for its whole life.

    A ratio nearer to 1 than `headline.REPEATS` shows no difference, however narrow: another run may turn it.
    """
    shared = set(headlines.turns(ours)) & set(headlines.turns(other))
    if len(shared) < 2:
        return ONE_PROCESS_EACH
    return stats.verdict(found) if max(found.median, 1 / found.median) > headlines.REPEATS else stats.NO_DIFFERENCE


def _batch_size(record: Record) -> int | None:
    return record.workload.batch_size if record.workload else None


def number(value: float, digits: int = 3) -> str:
    """`value` to `digits` significant digits in plain notation; a dash for nan."""
    if value is None or not math.isfinite(value):
        return NOT_MEASURED
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def with_interval(median: float, low: float, high: float, digits: int = 3) -> str:
    """`0.204 [0.201, 0.207]`: the median and its 95 % interval, to as many places as the median has."""
    if median is None or not math.isfinite(median):
        return NOT_MEASURED
    places = max(0, digits - 1 - math.floor(math.log10(abs(median)))) if median else digits
    return f"{median:,.{places}f} [{low:,.{places}f}, {high:,.{places}f}]"


def interval(found: Interval, digits: int = 3) -> str:
    """`with_interval` of an `Interval`."""
    return with_interval(found.median, found.low, found.high, digits)


LONG = 10  # rows from which on a table shows its first ones and folds the others
OPEN = 5  # rows of a long table that stay open
ENOUGH = 4  # rows from which on what is alike in all of them becomes a sentence


def as_html(frame: pd.DataFrame, caption: str = "", of: str = "") -> str:
    """A table for a page: every cell escaped, no index, numbers aligned right.

    A column that says the same in every row becomes words of the caption, and a long table shows its first rows: the
    others open on demand. Without a row, a sentence that says that there is nothing; `of` names what is missing.
    """
    if frame.empty:
        return f"<p>Not measured here{f': {escape(of)}' if of else ''}.</p>"
    frame, alike = _without_what_is_alike(frame)
    said = "; ".join(part for part in (caption, alike) if part)
    kinds = ["" if not is_numeric(frame[column]) else ' class="number"' for column in frame.columns]
    if len(frame) < LONG:
        return _table(frame, kinds, said)
    rest = frame.iloc[OPEN:]
    summary = f"<summary>The other {len(rest)} rows</summary>"
    return f"{_table(frame.iloc[:OPEN], kinds, said)}<details>{summary}{_table(rest, kinds, '')}</details>"


def _without_what_is_alike(frame: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """The columns that tell rows apart, and in words what the others say."""
    if len(frame) < ENOUGH:
        return frame, ""
    others = list(frame.columns)[1:]
    alike = [column for column in others if frame[column].astype(str).nunique() == 1]
    if len(alike) == len(others):
        return frame, ""
    told = [f"{column} {value}" for column in alike if (value := str(frame[column].iloc[0])) not in ("", "nan")]
    return frame.drop(columns=alike), f"in every row: {', '.join(told)}" if told else ""


def _table(frame: pd.DataFrame, kinds: Sequence[str], caption: str) -> str:
    def cells(values: Sequence[Any], tag: str) -> str:
        return "".join(f"<{tag}{kind}>{escape(str(v))}</{tag}>" for v, kind in zip(values, kinds, strict=True))

    head = f"<tr>{cells(list(frame.columns), 'th')}</tr>"
    body = "".join(f"<tr>{cells(list(row), 'td')}</tr>" for row in frame.itertuples(index=False))
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="overhead-table"><table>{title}<thead>{head}</thead><tbody>{body}</tbody></table></div>'


def is_numeric(column: pd.Series) -> bool:
    """Whether every entry is a number (with interval, unit or neither) or a dash, so that it is aligned right."""
    return len(column) > 0 and all(NUMBER.fullmatch(str(value)) for value in column)
