"""Records of the learning-rate chapter to frames, tables and sentences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

import pandas as pd

from overhead.chapters import pages
from overhead.loops import FLOORS, MANY
from overhead.records import pairs, stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.tables import NOT_MEASURED, interval, number

SAME_TIME = "no difference seen"


def of_part(records: Sequence[Record], part: str) -> list[Record]:
    """The records of one part of the page."""
    return [record for record in records if record.part == part]


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


def models_frame(records: Sequence[Record]) -> pd.DataFrame:
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


def models(frame: pd.DataFrame, caption: str) -> str:
    """The frame as a table."""
    rows = []
    for row in frame.itertuples():
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


def name(engine: str) -> str:
    """The engine with what it does."""
    if engine in MANY:
        return f"{engine}: {MANY[engine].does}"
    return {
        "jax-epoch": "jax-epoch: a solo run, no losses kept",
        "floor": "floor: the matrix products of one model, for each model",
        "jax-pool": "jax-pool: one process a configuration, JAX",
        "keras-pool": "keras-pool: one process a configuration, Keras fit",
        "article-pool": "article-pool: the article's spawn pool of 5, Keras, images by pickle",
        "dask": "dask: one process a configuration, sent out by Dask",
    }.get(engine, engine)


def all_rates(records: Sequence[Record], caption: str) -> str:
    """One epoch of the timed images for all the rates, a row an engine and device."""
    rows = []
    for record in records:
        if record.loop in FLOORS:
            continue
        models = compared(record)
        row = {"engine": name(record.loop), "device": record.device, "models": str(models)}
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


def curves(records: Sequence[Record]) -> str:
    """A row a rate: from the same first parameters, and from its own."""
    if not records:
        return tables.as_html(pd.DataFrame(), of="the curves")
    rows = []
    for rate in dict.fromkeys(member(record)["rate"] for record in records):
        row = {"rate": f"{rate:g}"}
        for own, of in ((False, "same first parameters"), (True, "own first parameters")):
            found = next(
                (r for r in records if member(r)["rate"] == rate and member(r)["own_weights"] is own), None
            )  # fmt: skip
            row[f"loss, {of}"] = _last(found, "loss", 1, "")
            row[f"validation accuracy, {of}"] = _last(found, "val_accuracy", 100, " %")
        rows.append(row)
    first = records[0]
    workload = first.trained
    caption = (
        "Mean training loss (nats) of the last epoch and validation accuracy after it; "
        f"epochs {workload.epochs}, batch size {workload.batch_size}, one run each; "
        f"engine {first.loop}, {first.device}; "
        + ", ".join(f"{package} {version}" for package, version in sorted(first.versions.items()))
    )
    return tables.as_html(pd.DataFrame(rows), caption)


def member(record: Record) -> dict[str, Any]:
    """What a record says of its model."""
    return record.member or {}


def _last(record: Record | None, name: str, scale: float, unit: str) -> str:
    if record is None:
        return NOT_MEASURED
    if record.status != "ok":
        at = member(record)["diverged_at"]
        return f"diverged at step {at}" if at is not None else f"{record.status}: {record.reason}"
    value = member(record)[name][-1]
    return NOT_MEASURED if value is None else f"{scale * value:.3g}{unit}" if not unit else f"{scale * value:.2f}{unit}"


def curves_sentence(records: Sequence[Record]) -> str:
    """The best rate of those that did not diverge, what diverged, and what own first parameters change."""
    same = [r for r in records if not member(r)["own_weights"]]
    finite = [r for r in same if r.status == "ok" and r.val_accuracy]
    if not any(r.status in ("ok", "diverged") for r in same):
        return pages.missing("the curves", records).text
    if not finite:
        return "Every rate diverged, so none is best."
    best = max(finite, key=lambda r: r.val_accuracy[-1])  # type: ignore[index]
    text = (
        f"Of {len(same)} rates, **{member(best)['rate']:g}** reaches the highest validation accuracy, "
        f"{100 * best.val_accuracy[-1]:.2f} %."  # type: ignore[index]
    )
    bad = [r for r in same if r.status == "diverged"]
    if bad:
        each = ", ".join(f"{member(r)['rate']:g} (at step {member(r)['diverged_at']:,})" for r in bad)
        text += f" Diverged: {each}; a diverged rate has no loss or accuracy from that epoch on and cannot be best."
    pairs = [
        abs(r.val_accuracy[-1] - o.val_accuracy[-1])
        for r in finite for o in records
        if member(o)["own_weights"] and member(o)["rate"] == member(r)["rate"] and o.status == "ok" and o.val_accuracy
        and r.val_accuracy
    ]  # fmt: skip
    if pairs:
        text += (
            f" First parameters of its own move the accuracy of a rate by up to {100 * max(pairs):.2f} points here: "
            "a difference of that size between two rates may be the seed's and not the rate's."
        )
    return text


def command(records: Sequence[Record], epochs: int) -> str:
    """A row an engine: seconds from start to last result, and what they were spent on."""
    rows = []
    for record in records:
        row = {"engine": name(record.loop)}
        cost = record.cost
        if record.status != "ok" or cost is None:
            dash = NOT_MEASURED
            rows.append(
                row | {"from start to last result, s": dash, "processes × threads": dash, "start and imports, s": dash,
                       "compiling, s": dash, "training, s": dash, "estimated a process, MiB": dash,
                       "peak memory, MiB": dash, "note": f"{record.status}: {record.reason}"}
            )  # fmt: skip
            continue
        started = cost.get("import_s", 0.0) + cost.get("start_s", 0.0)
        rows.append(
            row | {
                "from start to last result, s": number(cost["wall_s"]),
                "processes × threads": f"{cost['processes']} × {cost.get('threads') or 'its choice'}",
                "start and imports, s": number(started),
                "compiling, s": number(cost.get("compile_s", math.nan)),
                "training, s": number(cost.get("train_s", math.nan)),
                "estimated a process, MiB": number((cost.get("process_bytes") or math.nan) / 2**20),
                "peak memory, MiB": number((cost.get("peak_rss_bytes") or math.nan) / 2**20),
                "note": "",
            }
        )  # fmt: skip
    caption = (
        f"All the rates, epochs {epochs}, one run each; start, imports, compiling and training are sums over processes "
        "that overlap; memory is of all processes that ran at once, this page's own kernel included"
    )
    return tables.as_html(pd.DataFrame(rows), caption, "the whole sweep from start to last result")


def passed(records: Sequence[Record]) -> str:
    """A row a way to get the images into a worker."""
    from overhead.sweep.passing import WAYS

    rows = []
    for record in records:
        cost = record.cost
        if cost is None:
            columns = ("s a worker", "s once, by the caller", "bytes sent a worker", "worker's peak memory, MiB")
            way = f"{WAYS[record.loop]} ({record.status}: {record.reason})"
            rows.append({"way": way, **dict.fromkeys(columns, NOT_MEASURED)})
            continue
        rows.append(
            {
                "way": WAYS[record.loop],
                "s a worker": number(cost["seconds"]),
                "s once, by the caller": number(cost["once_s"]) if cost["once_s"] else "0",
                "bytes sent a worker": f"{cost['sent_bytes']:,}",
                "worker's peak memory, MiB": number(cost["peak_rss_bytes"] / 2**20),
            }
        )
    caption = "All 60,000 images and labels, from the request until the worker holds them; one run each"
    return tables.as_html(pd.DataFrame(rows), caption, "ways to pass the images")


def shapes(records: Sequence[Record]) -> str:
    """A row an architecture."""
    rows = []
    for record in records:
        rows.append(
            {
                "layers": "-".join(str(size) for size in record.trained.layers),
                "rate": f"{member(record)['rate']:g}",
                "loss": _last(record, "loss", 1, ""),
                "validation accuracy": _last(record, "val_accuracy", 100, " %"),
                "threads": str(record.threads),
            }
        )
    epochs = records[0].trained.epochs if records else None
    caption = f"One process an architecture (jax-pool), epochs: {epochs}, one run each"
    return tables.as_html(pd.DataFrame(rows), caption, "other architectures")
