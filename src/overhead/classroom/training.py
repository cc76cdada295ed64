"""What records answer of the chapters that train: from batch sizes to what stands under the floor, and the lab."""

from __future__ import annotations

from overhead.chapters.batch_sweep.chapter import BatchSweep
from overhead.chapters.ladder.chapter import OverheadLadder
from overhead.chapters.learning_rates.curves import member
from overhead.chapters.under_the_floor import rungs, wording
from overhead.chapters.your_loop.chapter import factor
from overhead.classroom.answers import MissingRecord, Records, exact, need
from overhead.records import stats
from overhead.records.record import Record
from overhead.records.stats import Interval
from overhead.showing import tables
from overhead.showing.claims import against, timed


def loop_of(records: Records, loop: str, batch_size: int | None = None) -> Record:
    """A loop's record on the CPU, at its smallest batch size where none is named."""
    record = timed(records, loop, batch_size)
    if record is None:
        raise MissingRecord(f"{loop}, timed on the CPU" + (f" at batch size {batch_size:,}" if batch_size else ""))
    return record


def quotient(records: Records, slow: str, fast: str) -> Interval:
    """The headline ratio of two loops at the smallest batch size of the first."""
    first = loop_of(records, slow)
    found = tables.ratio(first, loop_of(records, fast, first.trained.batch_size))
    if found is None:
        raise MissingRecord(f"turns that {slow} and {fast} share")
    return found


# --- 05-batch-sweep ---------------------------------------------------------------------------------------------------


def times_floor(records: Records) -> Interval:
    """How many times its floor the NumPy loop takes at its smallest batch size."""
    found = tables.times_floor(loop_of(records, "numpy"), records)
    if found is None:
        raise MissingRecord("a floor that shares turns with numpy")
    return found


def largest(records: Records) -> Record:
    """The NumPy loop at its largest batch size."""
    rows = [r for r in BatchSweep().rows(records) if (r.loop, r.device, r.status) == ("numpy", "cpu", "ok")]
    if not rows:
        raise MissingRecord("numpy, timed on the CPU")
    return max(rows, key=lambda r: r.trained.batch_size)


def images_seen(records: Records) -> Interval:
    return exact(largest(records).trained.images_seen)


def images_there(records: Records) -> float:
    return largest(records).trained.images


def image_at_both_ends(records: Records) -> Interval:
    """Time of an image in the NumPy loop at the smallest batch size over that at the largest."""
    small, large = loop_of(records, "numpy"), largest(records)
    found = tables.ratio(small, large)
    if found is None or small is large:
        raise MissingRecord("numpy at two batch sizes")
    share = large.trained.images_seen / small.trained.images_seen
    return Interval(found.median * share, found.low * share, found.high * share, found.n)


def doubled(records: Records) -> float:
    """What the batch grows by between the two ends."""
    return largest(records).trained.batch_size / loop_of(records, "numpy").trained.batch_size


def first_epoch(records: Records) -> Interval:
    record = loop_of(records, "jax-epoch")
    steady = tables.headline(record)
    if record.timing is None or record.timing.first_s is None or steady is None:
        raise MissingRecord("jax-epoch with its first epoch")
    return against(record.timing.first_s, steady)


# --- 06-overhead-ladder -----------------------------------------------------------------------------------------------


def step_us(records: Records, clock: str) -> Interval:
    """Microseconds a step of the compiled JAX step: when the calls returned, or when the work was done."""
    record = loop_of(records, "jax-step")
    found = [
        [v / s.steps * 1e6 for v in s.values_s]
        for s in (record.timing.samples if record.timing else [])
        if s.clock == clock
    ]
    need(found, f"jax-step by the clock {clock}")
    return stats.median_interval(found)


def best_rungs(records: Records) -> tuple[str, ...]:
    """The rungs whose gain may be the largest: those whose interval reaches that of the largest."""
    frame = OverheadLadder().frame(records)
    found = {row.loop: row.gain for row in frame.itertuples() if row.device == "cpu" and row.gain is not None}
    need(found, "a rung with the one below it")
    most = max(found.values(), key=lambda gain: gain.median)
    return tuple(name for name, gain in found.items() if gain.high >= most.low)


# --- 07-learning-rate-sweep -------------------------------------------------------------------------------------------


def engines(records: Records, slow: str, fast: str, models: int = 5) -> Interval:
    """The headline ratio of two engines for so many models."""
    found = {
        r.loop: r
        for r in records
        if r.part == "models" and r.models == models and r.device == "cpu" and r.status == "ok"
    }
    ratio = tables.ratio(found[slow], found[fast]) if {slow, fast} <= set(found) else None
    if ratio is None:
        raise MissingRecord(f"{slow} and {fast} for {models} models")
    return ratio


def diverged(records: Records) -> Interval:
    """The smallest rate that diverged, of those with the same first parameters."""
    curves = [r for r in records if r.part == "curves" and not member(r)["own_weights"]]
    need(curves, "the curves of the learning rates")
    bad = [member(r)["rate"] for r in curves if r.status == "diverged"]
    need(bad, "a rate that diverged (none did here)")
    return exact(min(bad))


def images_timed(records: Records) -> Interval:
    found = [r for r in records if r.part == "models" and r.loop == "vmap" and r.status == "ok"]
    need(found, "vmap, timed")
    return exact(found[0].trained.images_seen)


# --- 10-your-loop -----------------------------------------------------------------------------------------------------


def diagnosed(records: Records) -> tuple[str, ...]:
    """The verdict on the NumPy loop at its smallest batch; of a mixture each part is right."""
    found = [r for r in records if r.loop == "numpy" and r.op is None and r.status == "ok" and r.diagnosis]
    need(found, "a diagnosis of the NumPy loop")
    said = min(found, key=lambda r: r.trained.batch_size).diagnosis
    assert said is not None
    parts = said["verdict"].removeprefix("mixed: ").split(" or ")
    return tuple(part if part.endswith("-bound") or part == "cannot tell" else f"{part}-bound" for part in parts)


def pitfall(records: Records, name: str) -> Interval:
    """What a pitfall multiplies a step's time by."""
    found = next((r for r in records if r.op == name and r.status == "ok"), None)
    if found is None:
        raise MissingRecord(f"a step with the pitfall {name}")
    return factor(found)


# --- 09-under-the-floor -----------------------------------------------------------------------------------------------


def zeros(records: Records) -> Interval:
    """Percent of the pixels that are zero."""
    found = rungs.counted(records)
    if found is None:
        raise MissingRecord("the counts of the pixels")
    return exact(100 - 100 * sum(found["by_pixel"]) / found["images"] / len(found["by_pixel"]))


def dense_over_sparse(records: Records) -> Interval:
    """The dense step's products alone over all of the sparse step, at the smallest batch size."""
    here = rungs.part(records, None)
    ours = loop_of(here, "sparse")
    floor = tables.floor_of(here, ours.trained.batch_size, "cpu")
    found = tables.ratio(floor[0], ours) if floor else None
    if found is None:
        raise MissingRecord("a floor that shares turns with sparse")
    return found


def surviving(records: Records) -> float:
    """Percent of the changes that are to rows of their own, in the first case of the words."""
    found = wording.counts(records)
    need(found, "the counts of the words")
    cost = found[min(found)]
    return 100 * cost["touched"] / cost["looked_up"]


def lost(records: Records) -> Interval:
    return exact(100 - surviving(records))


# --- 11-lab -----------------------------------------------------------------------------------------------------------


def calls_of_the_queue(records: Records) -> list[float]:
    """Seconds of each launch in order."""
    found = next((r for r in records if r.op == "queue" and r.status == "ok"), None)
    if found is None:
        raise MissingRecord("the launches that fill the queue")
    return found.processes("call")[0]


def depth(records: Records) -> Interval:
    """Launches that return at once before the first one that waits: ten times the median of the first hundred."""
    calls = calls_of_the_queue(records)
    usual = sorted(calls[:100])[50]
    return exact(next((n for n, seconds in enumerate(calls) if n > 100 and seconds > 10 * usual), len(calls)))


def forgotten(records: Records, clock: str) -> Interval:
    """Milliseconds of the short epoch, a graph a step, by a clock: to the end of the work, or of the last call."""
    found = [r for r in records if r.status == "ok" and r.timing and r.processes("returned")]
    need(found, "an epoch that was not waited for")
    epoch = stats.median_interval(found[0].processes(clock))
    return Interval(1e3 * epoch.median, 1e3 * epoch.low, 1e3 * epoch.high, epoch.n)


def seeming(records: Records) -> Interval:
    """How many times as long the short epoch is as it seems to who does not wait."""
    done, returned = forgotten(records, "wall"), forgotten(records, "returned")
    return Interval(done.median / returned.median, done.low / returned.high, done.high / returned.low, int(done.n))
