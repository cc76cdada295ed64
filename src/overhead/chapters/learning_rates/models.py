"""Several models together: microseconds a model and step by engine, against the floor, and which engine to use here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from overhead.chapters.learning_rates.commands import described
from overhead.loops import FLOORS, MANY
from overhead.records import pairs, stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.tables import NOT_MEASURED, interval, number


def compared(record: Record) -> int:
    """How many models the case is about; a solo run and a floor stand beside as many."""
    return record.beside or 1


def per_model_us(record: Record) -> list[list[float]]:
    """Microseconds a model and step, a list a process."""
    scale = 1e6 / record.trained.steps / (record.models or 1)
    return [[seconds * scale for seconds in process] for process in record.epochs()]


def rounds_us(record: Record) -> pairs.Rounds:
    """Microseconds a model and step of each round."""
    return _scaled(pairs.epochs(record), record)


def floor_us(records: Sequence[Record], device: str, beside: int) -> pairs.Rounds:
    """The floor of one model, microseconds a step: the fastest process of each set, any library and thread count."""
    alike = [r for r in records if r.loop in FLOORS and r.device == device and compared(r) == beside]
    return _scaled(pairs.best(alike), alike[0]) if alike else {}


def _scaled(epochs: pairs.Rounds, record: Record) -> pairs.Rounds:
    scale = 1e6 / record.steps_per_epoch / (record.models or 1)
    return {set_: {r: seconds * scale for r, seconds in rounds.items()} for set_, rounds in epochs.items()}


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """One row an engine, device and number of models, solo `jax-epoch` and the floor among them.

    Columns: engine, device, threads, models, status, reason, us, low_us, high_us, n, first_s, times_floor,
    times_floor_low, times_floor_high. `us` is microseconds a model and step.
    """
    rows: list[dict[str, Any]] = []
    for record in records:
        if record.loop in FLOORS:
            continue
        beside = compared(record)
        row = {
            "engine": record.loop, "device": record.device, "threads": record.threads, "models": beside,
            "status": record.status, "reason": record.reason,
        }  # fmt: skip
        if record.status == "ok":
            found = stats.median_interval(per_model_us(record))
            row |= {"us": found.median, "low_us": found.low, "high_us": found.high, "n": found.n}
            row["first_s"] = record.timing.first_s if record.timing else math.nan
            if times := pairs.ratio(rounds_us(record), floor_us(records, record.device, beside)):
                row |= {"times_floor": times.median, "times_floor_low": times.low, "times_floor_high": times.high}
        rows.append(row)
    for device, beside in sorted({(r.device, compared(r)) for r in records if r.loop in FLOORS}):
        if floor := floor_us(records, device, beside):
            lowest = min((list(rounds.values()) for rounds in floor.values()), key=lambda p: statistics.median(p))
            found = stats.median_interval([lowest])
            rows.append(
                {"engine": "floor", "device": device, "models": beside, "status": "ok", "us": found.median,
                 "low_us": found.low, "high_us": found.high, "n": found.n}
            )  # fmt: skip
    return pd.DataFrame(rows)


def table(models: pd.DataFrame, caption: str) -> str:
    """The frame as a table."""
    rows = []
    for row in models.itertuples():
        timed = row.status == "ok"
        rows.append(
            {
                "engine": row.engine,
                "device": row.device,
                "models": f"{int(row.models):,}",  # type: ignore[arg-type]
                "µs a model and step": tables.with_interval(row.us, row.low_us, row.high_us) if timed else NOT_MEASURED,  # type: ignore[arg-type]
                "n": str(int(row.n)) if timed else NOT_MEASURED,  # type: ignore[arg-type]
                "times the floor": _times(row),
                "first epoch with compilation, s": number(getattr(row, "first_s", math.nan)),
                "note": "" if timed else f"{row.status}: {row.reason}",
            }
        )
    return tables.as_html(pd.DataFrame(rows), caption, "several models together")


def _times(row: Any) -> str:
    median, low, high = (getattr(row, f"times_floor{end}", math.nan) for end in ("", "_low", "_high"))
    return tables.with_interval(median, low, high) if math.isfinite(median) else NOT_MEASURED


def rates_table(records: Sequence[Record], caption: str) -> str:
    """One epoch of the timed images for all the rates, a row an engine and device."""
    rows = []
    for record in records:
        if record.loop in FLOORS:
            continue
        models = compared(record)
        row = {"engine": described(record.loop), "device": record.device, "models": str(models)}
        if record.status != "ok":
            rows.append(
                row | {"s for all": NOT_MEASURED, "times the floor": NOT_MEASURED,
                       "against solo jax-epoch runs": NOT_MEASURED, "n": NOT_MEASURED,
                       "note": f"{record.status}: {record.reason}"}
            )  # fmt: skip
            continue
        ours = per_model_us(record)
        steps = record.trained.steps
        seconds = stats.median_interval([[us * 1e-6 * steps * models for us in process] for process in ours])
        floor = pairs.ratio(rounds_us(record), floor_us(records, record.device, models))
        solo = next((r for r in records if (r.loop, r.device) == ("jax-epoch", record.device)), None)
        against = pairs.ratio(rounds_us(record), rounds_us(solo)) if solo and solo is not record else None
        rows.append(
            row | {
                "s for all": interval(seconds),
                "times the floor": interval(floor) if floor else NOT_MEASURED,
                "against solo jax-epoch runs": interval(against) if against else NOT_MEASURED,
                "n": str(seconds.n),
                "note": "; ".join(record.disturbed),
            }
        )  # fmt: skip
    images = records[0].trained.images_seen if records else 0
    return tables.as_html(
        pd.DataFrame(rows), f"One epoch of {images:,} images for each model. {caption}", "all the rates together"
    )


def advice(records: Sequence[Record]) -> str:
    """Which engine to use up to which number of models on each device, and when `vmap` loses."""
    parts = []
    for device in dict.fromkeys(record.device for record in records):
        here = [r for r in records if r.device == device and r.loop in MANY and r.status == "ok"]
        counts = sorted({compared(r) for r in here})
        if not counts:
            continue
        best = {count: min((r for r in here if compared(r) == count), key=_median).loop for count in counts}
        runs: list[tuple[str, int, int]] = []  # engine, first and last count
        for count in counts:
            if runs and runs[-1][0] == best[count]:
                runs[-1] = (runs[-1][0], runs[-1][1], count)
            else:
                runs.append((best[count], count, count))
        said = ", ".join(f"**{engine}** {_span(low, high)}" for engine, low, high in runs)
        parts.append(
            f"On this host's {device.upper()}, of the numbers that were timed, the fastest by its median is {said}."
        )
        parts.append(_vmap(here, counts))
    return " ".join(parts) or "No engine could be timed on this host, so there is nothing to advise."


def _span(low: int, high: int) -> str:
    models = "model" if high == 1 else "models"
    return f"for {low:,} {models}" if low == high else f"for {low:,} to {high:,} {models}"


def _median(record: Record) -> float:
    return stats.median_interval(per_model_us(record)).median


def _vmap(here: Sequence[Record], counts: Sequence[int]) -> str:
    """`vmap` inside the epoch against one compiled run after another, at each number of models."""
    wins, loses, open_ = [], [], []
    for count in counts:
        of = {r.loop: r for r in here if compared(r) == count}
        if "vmap" in of and "sequential" in of:
            found = pairs.ratio(rounds_us(of["vmap"]), rounds_us(of["sequential"]))
            if found is None:
                continue
            side = wins if found.n > 1 and found.high < 1 else loses if found.n > 1 and found.low > 1 else open_
            side.append((count, found))
    told = [
        _listed("`vmap` takes less time than one compiled run after another at", wins),
        _listed("`vmap` loses to one compiled run after another at", loses),
        _listed("no difference from one compiled run after another was seen at", open_),
    ]
    return " ".join(part for part in told if part)


def _listed(what: str, cases: Sequence[tuple[int, Interval]]) -> str:
    if not cases:
        return ""
    each = ", ".join(f"{count:,} ({interval(found)} times as long)" for count, found in cases)
    sentence = f"{what} {each}."
    return sentence if sentence.startswith("`") else sentence[0].upper() + sentence[1:]
